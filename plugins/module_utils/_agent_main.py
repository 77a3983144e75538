# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The DaemonSet's command: environment in, one agent out. Standard library only, Python 3.9.

NODE_NAME and GPUSHARE_POLICY_FILE have to be set; GPUSHARE_TOKEN_FILE, GPUSHARE_CA_FILE,
GPUSHARE_METRICS_PORT, and what nvml_probe reads, may be.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils import nvml_probe
from ansible_collections.gpushare.eks.plugins.module_utils._agent import Agent, say
from ansible_collections.gpushare.eks.plugins.module_utils._agent_api import Api
from ansible_collections.gpushare.eks.plugins.module_utils._agent_reader import Reader

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# "Unknown Error" for this long: the container lost its devices (container-toolkit issue 48), which
# only a new container gets back.
CUT_OFF_S = 60.0
LOOK_S = 10.0


class PolicyFile:
    """The policy document in a file that the kubelet replaces; read again only when it changed."""

    def __init__(self, path: str) -> None:
        self._path, self._seen, self._policy = path, None, None

    def __call__(self) -> dict[str, Any] | None:
        """The document; the last good one while the file is missing or broken; None before any."""
        try:
            found = os.stat(self._path)
            seen = (found.st_mtime_ns, found.st_ino, found.st_size)
            if seen != self._seen:
                with open(self._path, encoding="utf-8") as handle:
                    policy = json.load(handle)
                if policy.get("schema") != 1:
                    raise ValueError(f"its schema is {policy.get('schema')}, not 1")
                self._seen, self._policy = seen, policy
        except (OSError, ValueError, AttributeError) as error:
            if self._seen != str(error):
                say(f"policy {self._path}: {error}")
            self._seen = str(error)
        return self._policy


def serve_metrics(agent: Agent, port: int) -> Any:
    """Prometheus text at /metrics, of every address of the pod."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer  # 3 MiB, only if wanted

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = agent.metrics().encode() if self.path == "/metrics" else b""
            self.send_response(200 if text else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True, name="metrics").start()
    return server


def watch_over(agent: Agent) -> None:
    """End the process when NVML cannot come back in this container."""
    while True:
        time.sleep(LOOK_S)
        since = agent.error_since
        if since and since[0] == "UNKNOWN" and time.monotonic() - since[1] > CUT_OFF_S:
            say("NVML answers UNKNOWN: a new container is needed")
            os._exit(1)


def main() -> int:
    """Run until SIGTERM; the number stays, because another agent follows at an update."""
    environment = os.environ
    missing = [
        key
        for key in ("NODE_NAME", "GPUSHARE_POLICY_FILE", "KUBERNETES_SERVICE_HOST")
        if not environment.get(key)
    ]
    if missing:
        say(f"not set: {', '.join(missing)}; see the DaemonSet of gpushare.eks")
        return 2
    api = Api(
        environment["KUBERNETES_SERVICE_HOST"],
        int(environment.get("KUBERNETES_SERVICE_PORT") or 443),
        environment.get("GPUSHARE_TOKEN_FILE") or f"{ACCOUNT}/token",
        environment.get("GPUSHARE_CA_FILE") or f"{ACCOUNT}/ca.crt",
    )
    agent = Agent(
        environment["NODE_NAME"],
        api,
        policy=PolicyFile(environment["GPUSHARE_POLICY_FILE"]),
        boot_id=nvml_probe.boot_id(),
    )
    reader = Reader(agent.saw_reading)

    def end(*_arguments: Any) -> None:
        # Not from here: this interrupts a thread that may hold the agent's lock.
        threading.Thread(target=agent.stop, daemon=True).start()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    reader.start()
    for work in (agent.watch, lambda: watch_over(agent)):
        threading.Thread(target=work, daemon=True).start()
    if environment.get("GPUSHARE_METRICS_PORT"):
        serve_metrics(agent, int(environment["GPUSHARE_METRICS_PORT"]))
    agent.run()
    reader.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
