# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A cluster's API server over HTTPS: requests that are tried again in time, as plain JSON.

The connection is urllib3's, which botocore brings. The kubernetes client is left out: to import it
takes longer than a small fleet takes, and for 1,000 nodes its model objects cost more than the API
server's own work.
"""

from __future__ import annotations

import base64
import json
import random
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

from ansible_collections.gpushare.eks.plugins.module_utils._errors import (
    AccessDenied,
    GpushareError,
    Unreachable,
)

try:
    import urllib3
    from botocore.utils import get_environ_proxies
except ImportError:  # the modules' door reports a missing boto3, which brings both
    pass

PAGE = 500
THREADS = 8  # what one API server served fastest on two cores; more only queue
CONNECT_S, READ_S = 5.0, 30.0
UNREACHABLE_S = 30.0  # a restarting API server is back by then
RETURNING_S = 15.0  # and so long it may refuse everybody, until it has read its own RBAC rules
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
CHECK_ENDPOINT = "check the network, the proxy and the cluster's public_access_cidrs"
CHECK_ACCESS = "give the caller an access entry (gpushare.eks.eks_access_entry)"


class ApiError(GpushareError):
    """The API server's answer to one request: `status`, and its own message."""

    def __init__(self, status: int, message: str, **kwargs: Any) -> None:
        super().__init__(message, status=status, **kwargs)
        self.status = status


class Api:
    """The API server of one cluster. Thread-safe; `counts` {"list", "pages", "patch", ...}.

    token(renew: bool) gives a bearer token, a new one when `renew`. `timeout` bounds all of it (s).
    """

    def __init__(
        self,
        name: str,
        endpoint: str,
        ca_data: str | None,
        token: Callable[[bool], str],
        *,
        timeout: float = 120,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Any] = time.sleep,
    ) -> None:
        self.name, self.endpoint, self._token = name, endpoint.rstrip("/"), token
        self._clock, self._sleep, self._timeout = clock, sleep, timeout
        self.extend()
        self._lock, self.counts, self._lost_at = threading.Lock(), Counter(), float("-inf")
        self._pool = _pool(self.endpoint, ca_data)

    @property
    def _what(self) -> str:
        return f"Kubernetes API of cluster {self.name} ({self.endpoint})"

    def extend(self) -> None:
        """Begin the time limit anew, for a caller that waits for longer than that in between."""
        self._deadline = self._clock() + self._timeout

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def request(
        self, method: str, path: str, body: Any = None, *, content_type: str | None = None
    ) -> Any:
        """One answer as parsed JSON. Raises ApiError, AccessDenied or Unreachable.

        429, 5xx and lost connections are tried again in time, 401 once with a new token; right
        after the connection was lost, 401 and 403 too.
        """
        headers = {"Accept": "application/json"}
        if content_type:
            headers["Content-Type"] = content_type
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        pause, renewed, lost_since = FIRST_PAUSE_S, False, None
        token = self._token(False)
        while True:
            headers["Authorization"] = f"Bearer {token}"
            status, answer, cause, wait = 0, {}, "", None
            try:
                got = self._pool.request(
                    method,
                    self.endpoint + path,
                    body=data,
                    headers=headers,
                    timeout=urllib3.Timeout(connect=CONNECT_S, read=READ_S),
                    retries=False,
                )
                status, lost_since = got.status, None
                answer, cause = _parsed(got.data)
                wait = _seconds(got.headers.get("Retry-After"))
            except urllib3.exceptions.HTTPError as error:
                if _untrusted(error):
                    raise self._given_up(0, str(error), method, path) from None
                cause, self._lost_at = str(error), self._clock()
                lost_since = self._lost_at if lost_since is None else lost_since
            if 200 <= status < 300:
                return answer
            if status == 401 and not renewed:
                token, renewed = self._token(True), True
                self._count("token")
                continue
            now = self._clock()
            until = min(self._deadline, self._lost_at + RETURNING_S)
            unready = status in (401, 403) and now < until
            if status and status != 429 and status < 500 and not unready:
                raise self._refused(status, cause, method, path)
            lost = lost_since is not None and now - lost_since >= UNREACHABLE_S
            if lost or now >= self._deadline:
                raise self._given_up(status, cause, method, path)
            pause_s = wait if wait is not None else pause * random.uniform(0.5, 1.0)
            self._count("retry")
            self._sleep(min(pause_s, max(0.0, self._deadline - now)))
            pause = min(pause * 2, LONGEST_PAUSE_S)

    def _refused(self, status: int, cause: str, method: str, path: str) -> GpushareError:
        if status in (401, 403):
            message = f"the {self._what} refuses {method} {path} ({status})"
            return AccessDenied(
                message, object=self._what, cause=cause, remedy=CHECK_ACCESS, status=status
            )
        return ApiError(
            status,
            f"{method} {path}: {status} {cause}",
            object=self._what,
            cause=cause,
            remedy="see the cause; run again once it is mended",
        )

    def _given_up(self, status: int, cause: str, method: str, path: str) -> GpushareError:
        if status:
            message = f"{method} {path}: the API server still answered {status} when time was up"
            remedy = "run again when the API server is less busy, or raise timeout"
            return ApiError(status, message, object=self._what, cause=cause, remedy=remedy)
        return Unreachable(
            f"no answer from the {self._what}",
            object=self._what,
            cause=cause,
            remedy=CHECK_ENDPOINT,
        )

    def list(self, path: str, count: str = "list", **parameters: str) -> list[dict[str, Any]]:
        """All items of a paged LIST; begun again, once, when its continue token expires (410)."""
        for attempt in (1, 2):
            self._count(count)
            items: list[dict[str, Any]] = []
            token = None
            try:
                while True:
                    more = {"continue": token} if token else {}
                    query = urlencode({"limit": PAGE, **parameters, **more})
                    page = self.request("GET", f"{path}?{query}")
                    self._count("pages")
                    items += page.get("items") or []
                    token = (page.get("metadata") or {}).get("continue")
                    if not token:
                        return items
            except ApiError as error:
                if error.status != 410 or attempt == 2:
                    raise
        raise AssertionError("unreachable")

    def read(self, path: str) -> dict[str, Any] | None:
        """One object, or None."""
        self._count("get")
        try:
            return self.request("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise


def _untrusted(error: Exception) -> bool:
    """Whether a certificate is the matter, which no time mends.

    A server that dies in a handshake makes an SSLError, too, and that one passes.
    """
    chain = (*error.args, error.__cause__, error.__context__)
    return any(isinstance(one, ssl.SSLCertVerificationError) for one in chain)


def _parsed(data: bytes) -> tuple[Any, str]:
    """(parsed JSON, the message of a Status); text that is no JSON is the message itself."""
    try:
        answer = json.loads(data)
    except ValueError:
        return {}, data[:200].decode("utf-8", "replace")
    return answer, str(answer.get("message") or "") if isinstance(answer, dict) else ""


def _seconds(retry_after: str | None) -> float | None:
    """Retry-After in seconds; the API server never sends the date form."""
    return float(retry_after) if retry_after and retry_after.isdigit() else None


def _pool(endpoint: str, ca_data: str | None) -> Any:
    """A pool through the proxy that the environment names, with the CA from memory, not a file."""
    options: dict[str, Any] = {"maxsize": THREADS}
    if endpoint.startswith("https:"):
        pem = base64.b64decode(ca_data).decode("ascii") if ca_data else None
        options["ssl_context"] = ssl.create_default_context(cadata=pem)
    proxy = get_environ_proxies(endpoint).get(urlsplit(endpoint).scheme)
    if not proxy:
        return urllib3.PoolManager(**options)
    login = urlsplit(proxy)
    if login.username:
        pair = f"{unquote(login.username)}:{unquote(login.password or '')}"
        options["proxy_headers"] = urllib3.make_headers(proxy_basic_auth=pair)
    return urllib3.ProxyManager(proxy, **options)
