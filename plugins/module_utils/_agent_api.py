# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The few requests that the agent makes of the API server. Standard library only, Python 3.9.

No client library: the agent's image is a stock Python, and a client's models would take more memory
than all else in the agent.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

REQUEST_S = 5.0
# The server sends a bookmark about once a minute: silence for longer means a dead connection.
SILENCE_S = 150.0
JSON_PATCH = "application/json-patch+json"


class Lost(Exception):
    """No answer from the API server; the message says why."""


class Api:
    """The API server at https://host:port, as the ServiceAccount whose token stands in a file.

    The file is read for each request, because the kubelet renews it. Thread-safe.
    """

    def __init__(self, host: str, port: int, token_file: str, ca_file: str) -> None:
        self._host, self._port = host.strip("[]"), port
        self._token_file, self._ca_file = token_file, ca_file
        self._context: ssl.SSLContext | None = None
        self._watching: http.client.HTTPSConnection | None = None
        self.requests = 0

    def _connect(self, timeout_s: float) -> http.client.HTTPSConnection:
        if self._context is None:
            self._context = ssl.create_default_context(cafile=self._ca_file)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=timeout_s, context=self._context
        )

    def _headers(self) -> dict[str, str]:
        with open(self._token_file, encoding="ascii") as handle:
            token = handle.read().strip()
        return {"Authorization": f"Bearer {token}", "Accept": "application/json"}

    def request(self, method: str, path: str, body: Any = None, kind: str = "application/json"):
        """-> (HTTP status, parsed answer). Raises Lost."""
        self.requests += 1
        connection = None
        try:
            headers = self._headers()
            data = None
            if body is not None:
                headers["Content-Type"] = kind
                data = json.dumps(body, separators=(",", ":"))
            connection = self._connect(REQUEST_S)
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Lost(f"{method} {path}: {error or type(error).__name__}") from error
        finally:
            if connection is not None:
                connection.close()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, {"message": text[:200].decode("utf-8", "replace")}

    def patch(self, path: str, operations: list[dict[str, Any]]):
        """A JSON Patch -> (HTTP status, parsed answer). Raises Lost."""
        return self.request("PATCH", path, operations, JSON_PATCH)

    def node(self, name: str):
        """-> (HTTP status, Node). Raises Lost."""
        return self.request("GET", f"/api/v1/nodes/{quote(name)}")

    def follow(self, name: str) -> Iterator[dict[str, Any] | None]:
        """The Node as it is now (None when there is none), and again at each change.

        Ends when the server ends the watch; raises Lost. Its position is kept by the caller calling
        it anew: a list costs one request and can miss nothing, also after 410 Gone.
        """
        selector = {"fieldSelector": f"metadata.name={name}"}
        status, listed = self.request("GET", f"/api/v1/nodes?{urlencode(selector)}")
        if status != 200:
            raise Lost(f"listing node {name}: {status} {listed.get('message', '')}")
        yield next(iter(listed["items"]), None)
        version = listed["metadata"]["resourceVersion"]
        while True:
            query = {**selector, "watch": "true", "resourceVersion": version}
            query["allowWatchBookmarks"] = "true"
            began = time.monotonic()
            for event in self._watch(f"/api/v1/nodes?{urlencode(query)}"):
                if event["type"] == "ERROR":
                    return  # 410: too old, list again
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    yield None if event["type"] == "DELETED" else event["object"]
            if time.monotonic() - began < 1.0:
                raise Lost("the watch was ended at once")  # a server that stops, or one before it

    def _watch(self, path: str) -> Iterator[dict[str, Any]]:
        self.requests += 1
        connection = None
        try:
            connection = self._watching = self._connect(SILENCE_S)
            connection.request("GET", path, headers=self._headers())
            _keep_alive(connection.sock)
            answer = connection.getresponse()
            if answer.status != 200:
                raise Lost(f"GET {path}: {answer.status} {answer.read(200)!r}")
            while True:
                line = answer.readline()
                if not line:
                    return
                yield json.loads(line)
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            raise Lost(f"watching: {error or type(error).__name__}") from error
        finally:
            self._watching = None
            if connection is not None:
                connection.close()

    def close(self) -> None:
        """End the watch that runs, from another thread."""
        connection = self._watching
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):  # it ended by itself
                connection.sock.shutdown(socket.SHUT_RDWR)


def _keep_alive(sock: socket.socket) -> None:
    """Notice a dead path within half a minute; load balancers forget idle connections in 350 s."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
