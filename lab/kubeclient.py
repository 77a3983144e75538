"""A small admin client of one API server: requests with keep-alive, watches, kubeconfigs."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3
import yaml

from lab import LabError
from lab.processes import write_atomically

# What a watch may run before the server ends it; follow() then resumes where it was.
_WATCH_SECONDS = 300


class KubeClient:
    """Speaks as the holder of one client certificate; safe to share between threads."""

    def __init__(self, endpoint: str, *, ca: Path, certificate: Path, key: Path) -> None:
        self.endpoint = endpoint
        self._pool = urllib3.PoolManager(
            num_pools=1,
            maxsize=32,
            ca_certs=str(ca),
            cert_file=str(certificate),
            key_file=str(key),
            retries=False,
        )
        self._closing = threading.Event()
        self._watches: set[urllib3.BaseHTTPResponse] = set()
        self._lock = threading.Lock()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        params: Mapping[str, Any] | None = None,
        timeout: float = 30.0,
    ) -> tuple[int, Any]:
        """(HTTP status, decoded JSON or None). Raises LabError only when nobody answers."""
        url = self._url(path, params)
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json"}
        if data is not None:
            headers["Content-Type"] = content_type
        for attempt in (1, 2):
            try:
                answer = self._pool.request(
                    method, url, body=data, headers=headers, timeout=urllib3.Timeout(timeout)
                )
                break
            except urllib3.exceptions.HTTPError as error:
                # A kept connection may have been closed by the server; reading again is harmless.
                if attempt == 1 and method == "GET" and not self._closing.is_set():
                    continue
                raise LabError(
                    f"the API server at {self.endpoint} did not answer {method} {path}: {error}; "
                    "`python -m lab status` shows whether it runs"
                ) from error
        try:
            return answer.status, json.loads(answer.data) if answer.data else None
        except ValueError:
            # /readyz and the like answer in plain text.
            return answer.status, None

    def watch(self, path: str, params: Mapping[str, Any] | None = None) -> Iterator[dict]:
        """Events {"type", "object"} of one watch, until the server or close() ends it.

        The caller resumes, or uses follow(). An error status of the server comes as an event of
        type ERROR with the Status as its object.
        """
        query = {"watch": "true", "timeoutSeconds": _WATCH_SECONDS, **(params or {})}
        try:
            answer = self._pool.request(
                "GET",
                self._url(path, query),
                headers={"Accept": "application/json"},
                preload_content=False,
                timeout=urllib3.Timeout(connect=10, read=_WATCH_SECONDS + 30),
            )
        except urllib3.exceptions.HTTPError as error:
            if self._closing.is_set():
                return
            raise LabError(f"cannot watch {path} at {self.endpoint}: {error}") from error
        with self._lock:
            self._watches.add(answer)
        try:
            if answer.status != 200:
                yield {"type": "ERROR", "object": _decode(answer.data)}
                return
            yield from _lines(answer)
        except (urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError):
            # The server went away, or close() pulled the connection from under the reader.
            return
        finally:
            with self._lock:
                self._watches.discard(answer)
            with contextlib.suppress(Exception):
                answer.close()

    def follow(self, path: str, params: Mapping[str, Any] | None = None) -> Iterator[dict]:
        """Everything that is and will be at `path`, until close(): list, watch, and again.

        First one {"type": "SYNC", "items": [...]}, then events; another SYNC after a gap (its items
        replace what was known before).
        """
        while not self._closing.is_set():
            try:
                status, listed = self.request("GET", path, params=params)
            except LabError:
                self._closing.wait(0.5)
                continue
            if status != 200:
                # A CRD that does not exist yet, or a server that is starting.
                self._closing.wait(1.0)
                continue
            yield {"type": "SYNC", "items": listed.get("items") or []}
            version = listed["metadata"]["resourceVersion"]
            while not self._closing.is_set():
                query = {
                    **(params or {}),
                    "resourceVersion": version,
                    "allowWatchBookmarks": "true",
                }
                began = time.monotonic()
                try:
                    for event in self.watch(path, query):
                        if event["type"] == "ERROR":
                            version = None
                            break
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            yield event
                except LabError:
                    version = None
                if version is None:
                    break
                if time.monotonic() - began < 0.2:
                    self._closing.wait(0.2)

    def close(self) -> None:
        """End all watches and drop the connections."""
        self._closing.set()
        with self._lock:
            watches = list(self._watches)
        for answer in watches:
            with contextlib.suppress(Exception):
                answer.shutdown()
        self._pool.clear()

    def _url(self, path: str, params: Mapping[str, Any] | None) -> str:
        return f"{self.endpoint}{path}" + (f"?{urlencode(params)}" if params else "")


def _decode(data: bytes) -> dict:
    try:
        return json.loads(data)
    except ValueError:
        return {"kind": "Status", "message": data.decode(errors="replace")}


def _lines(answer: urllib3.BaseHTTPResponse) -> Iterator[dict]:
    pending = b""
    for chunk in answer.read_chunked(amt=None, decode_content=True):
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            if line:
                yield json.loads(line)


def kubeconfig(name: str, endpoint: str, ca: str, certificate: str, key: str) -> dict:
    """A kubeconfig of one context `name` with everything inline; `ca` and the rest in PEM."""

    def inline(pem: str) -> str:
        return base64.b64encode(pem.encode()).decode()

    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {"server": endpoint, "certificate-authority-data": inline(ca)},
            }
        ],
        "users": [
            {
                "name": name,
                "user": {
                    "client-certificate-data": inline(certificate),
                    "client-key-data": inline(key),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def write_merged_kubeconfig(path: Path, kubeconfigs: Iterable[Path]) -> None:
    """One file with a context per live cluster, the first current; none gives an empty one."""
    merged: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [],
        "users": [],
        "contexts": [],
        "current-context": "",
    }
    for each in kubeconfigs:
        config = yaml.safe_load(each.read_text())
        for part in ("clusters", "users", "contexts"):
            merged[part] += config[part]
        merged["current-context"] = merged["current-context"] or config["current-context"]
    write_atomically(path, yaml.safe_dump(merged, sort_keys=False))
