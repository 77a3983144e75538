"""Instance metadata (IMDSv2) of the lab's instances, for what runs on them.

One server on loopback serves all instances, each below a path of its own: the standard variable
AWS_EC2_METADATA_SERVICE_ENDPOINT takes a URL with a path. A request without a token gets 401.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# instance id -> {"instance-id": .., "placement/region": .., ...}; None for an unknown instance
Lookup = Callable[[str], Mapping[str, str] | None]


class MetadataServer:
    """IMDSv2 for every instance that `lookup` knows."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._tokens: dict[str, tuple[str, float]] = {}
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                self._answer(*service.token(self.path, self.headers))

            def do_GET(self) -> None:
                self._answer(*service.read(self.path, self.headers))

            def _answer(self, status: int, text: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "text/plain")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *args: object) -> None:
                """Silence: one line per probe of a fleet is no log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True, name="imds").start()

    def endpoint(self, instance_id: str) -> str:
        """The value of AWS_EC2_METADATA_SERVICE_ENDPOINT on this instance."""
        return f"http://127.0.0.1:{self._server.server_port}/{instance_id}"

    def stop(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()

    def token(self, path: str, headers: Mapping[str, str]) -> tuple[int, str]:
        """PUT /<instance>/latest/api/token -> (status, token)."""
        instance_id, _, rest = path.lstrip("/").partition("/")
        if rest != "latest/api/token" or self._lookup(instance_id) is None:
            return 404, ""
        seconds = headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
        if not seconds.isdigit() or not 1 <= int(seconds) <= 21600:
            return 400, ""
        token, now = secrets.token_urlsafe(32), time.monotonic()
        self._tokens = {k: v for k, v in self._tokens.items() if v[1] > now}
        self._tokens[token] = (instance_id, now + int(seconds))
        return 200, token

    def read(self, path: str, headers: Mapping[str, str]) -> tuple[int, str]:
        """GET /<instance>/latest/meta-data/<key> -> (status, value)."""
        instance_id, _, rest = path.lstrip("/").partition("/")
        owner, until = self._tokens.get(headers.get("X-aws-ec2-metadata-token", ""), ("", 0.0))
        if owner != instance_id or until <= time.monotonic():
            return 401, ""
        data = self._lookup(instance_id) or {}
        key = rest.removeprefix("latest/meta-data/")
        return (200, data[key]) if key in data else (404, "")
