# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A cluster's Nodes: one paged LIST, and status patches in parallel, as plain JSON.

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
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

from ansible_collections.gpushare.eks.plugins.module_utils._capacity import Decision
from ansible_collections.gpushare.eks.plugins.module_utils._errors import (
    AccessDenied,
    GpushareError,
    NotFound,
    Unreachable,
    aws_errors,
)
from ansible_collections.gpushare.eks.plugins.module_utils._names import AGENT_NAME
from ansible_collections.gpushare.eks.plugins.module_utils._token import TokenSource

try:
    import urllib3
    from botocore.utils import get_environ_proxies
except ImportError:  # the modules' door reports a missing boto3, which brings both
    pass

PAGE = 500
THREADS = 8  # what one API server served fastest on two cores; more only queue
ROUNDS = 5  # how often a write that collides is decided anew
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


@dataclass(frozen=True)
class Write:
    """How one node ended: `action` none | patch | refuse | gone | failed, with `reason`."""

    action: str
    reason: str
    decision: Decision | None = None
    error: GpushareError | None = None


class Cluster:
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

    def nodes(self) -> list[dict[str, Any]]:
        """All Nodes."""
        return self.list("/api/v1/nodes")

    def pods(self) -> list[dict[str, Any]]:
        """All pods that have not ended."""
        live = "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="
        return self.list("/api/v1/pods", "list_pods", fieldSelector=live)

    def all_pods(self) -> list[dict[str, Any]]:
        """All pods, those that wait and those that have ended among them."""
        return self.list("/api/v1/pods", "list_pods")

    def agent_pods(self) -> list[dict[str, Any]]:
        """The pods of the agent that keeps nodes' numbers, wherever it is installed."""
        label = f"app.kubernetes.io/name={AGENT_NAME}"
        return self.list("/api/v1/pods", "list_pods", labelSelector=label)

    def node(self, name: str) -> dict[str, Any] | None:
        """One Node, or None."""
        return self.read(f"/api/v1/nodes/{quote(name)}")

    def pods_of(self, node_name: str) -> list[dict[str, Any]]:
        """All pods of one node."""
        return self.list("/api/v1/pods", "list_pods", fieldSelector=f"spec.nodeName={node_name}")

    def patch_node(self, name: str, patch: Mapping[str, Any]) -> bool:
        """Merge-patch one Node; False when it is gone, or no longer what the patch was made for.

        patch: with `metadata.uid` and `metadata.resourceVersion`.
        """
        self._count("patch")
        path = f"/api/v1/nodes/{quote(name)}"
        try:
            self.request("PATCH", path, patch, content_type="application/merge-patch+json")
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            return False
        return True

    def read(self, path: str) -> dict[str, Any] | None:
        """One object, or None."""
        self._count("get")
        try:
            return self.request("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def write_all(
        self,
        decisions: Mapping[str, Decision],
        decide: Callable[[dict[str, Any]], Decision],
        threads: int = THREADS,
    ) -> dict[str, Write]:
        """Patch the status of all these nodes in parallel; what fails is told, node by node."""
        with ThreadPoolExecutor(max_workers=threads) as pool:
            jobs = {
                name: pool.submit(self._write, name, decision, decide)
                for name, decision in decisions.items()
            }
            return {name: job.result() for name, job in jobs.items()}

    def _write(self, name: str, decision: Decision, decide: Callable[..., Decision]) -> Write:
        try:
            return self._write_or_raise(name, decision, decide)
        except GpushareError as error:
            return Write("failed", str(error), decision, error)

    def _write_or_raise(
        self, name: str, decision: Decision, decide: Callable[..., Decision]
    ) -> Write:
        path = f"/api/v1/nodes/{quote(name)}/status"
        uid = _fenced_uid(decision)
        for _dummy in range(ROUNDS):
            self._count("patch")
            try:
                after = self.request(
                    "PATCH", path, decision.patch, content_type="application/json-patch+json"
                )
            except ApiError as error:
                if error.status == 404:
                    return Write("gone", "the node was deleted since it was listed", decision)
                if error.status not in (409, 422):
                    raise
                last = error
            else:
                return _verified(decision, decide(after))
            # 409: somebody else wrote; 422: the fence says it is another node, or a list changed.
            fresh = self.node(name)
            if fresh is None:
                return Write("gone", "the node was deleted since it was listed", decision)
            replaced = fresh["metadata"]["uid"] != uid
            decision = decide(fresh)
            if decision.action != "patch":
                prefix = "a new node took its name: " if replaced else ""
                return Write(decision.action, prefix + decision.reason, decision)
            uid = fresh["metadata"]["uid"]
        raise ApiError(
            last.status,
            f"{name}: others changed it {ROUNDS} times while it was written",
            object=f"node {name}",
            cause=last.cause,
            remedy="run again; see who else writes this node's status",
        )


def _verified(decision: Decision, left: Decision) -> Write:
    """A patch that was accepted counts only when the answer shows it."""
    if left.action != "patch":
        return Write("patch", decision.reason, decision)
    reason = f"the API server accepted the patch but did not keep it: {left.reason}"
    remedy = "see what changes this node's status, such as an admission policy; then run again"
    return Write("failed", reason, decision, GpushareError(reason, remedy=remedy))


def _fenced_uid(decision: Decision) -> str | None:
    return next((op["value"] for op in decision.patch if op["path"] == "/metadata/uid"), None)


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


def connect(
    eks: Any, sts: Any, cluster_name: str, region: str | None = None, *, timeout: float = 120
) -> Cluster:
    """The cluster by its name: endpoint and CA from EKS, tokens by STS. Raises NotFound."""
    what = f"EKS cluster {cluster_name}"
    with aws_errors(what):
        found = eks.describe_cluster(name=cluster_name)["cluster"]
    if not found.get("endpoint"):
        raise NotFound(
            f"{what} has no endpoint yet (status {found.get('status')})",
            object=what,
            cause=f"its status is {found.get('status')}",
            remedy="wait until it is ACTIVE (gpushare.eks.eks_cluster with wait: true)",
        )
    ca_data = (found.get("certificateAuthority") or {}).get("data")
    source = TokenSource(sts, cluster_name, region)

    def token(renew: bool) -> str:
        nonlocal source
        if renew:  # the one in use was refused before its time
            source = TokenSource(sts, cluster_name, region)
        return source.token()

    return Cluster(cluster_name, found["endpoint"], ca_data, token, timeout=timeout)
