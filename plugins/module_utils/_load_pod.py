# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the pod of the load test runs: requests against one URL, and how they were answered.

One line of JSON, to standard output and to the termination message. Standard library only, Python
3.9. Environment: GPUSHARE_LOAD_URL, GPUSHARE_LOAD_SECONDS, GPUSHARE_LOAD_CONNECTIONS,
GPUSHARE_LOAD_MESSAGE_FILE.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

SCHEMA = 1
ANSWER_S = 30.0
# A server that refuses connections is not asked thousands of times a second.
PAUSE_S = 0.2
_PIXEL = [0.5, 0.5, 0.5]


def body() -> bytes:
    """One picture of 224 x 224 in TensorFlow Serving's row format."""
    return json.dumps({"instances": [[[_PIXEL] * 224] * 224]}).encode()


class Load:
    """Connections that ask one after the other until the time is over."""

    def __init__(self, url: str, seconds: float, payload: bytes) -> None:
        self._url, self._payload = urlsplit(url), payload
        self._end = time.monotonic() + seconds
        self._lock = threading.Lock()
        self.times_ms: list[float] = []
        self.errors = 0
        self.first_error: str | None = None

    def ask(self) -> None:
        """One connection's work."""
        connection = None
        while time.monotonic() < self._end:
            began = time.monotonic()
            try:
                if connection is None:
                    host, port = self._url.hostname or "", self._url.port
                    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_S)
                head = {"Content-Type": "application/json"}
                connection.request("POST", self._url.path or "/", self._payload, head)
                answer = connection.getresponse()
                said = answer.read()
                if answer.status != 200:
                    raise OSError(f"{answer.status} {said[:120].decode('utf-8', 'replace')}")
            except (OSError, http.client.HTTPException) as error:
                self._note(f"{type(error).__name__}: {error}")
                if connection is not None:
                    connection.close()
                connection = None
                time.sleep(PAUSE_S)
            else:
                with self._lock:
                    self.times_ms.append((time.monotonic() - began) * 1000)

    def _note(self, error: str) -> None:
        with self._lock:
            self.errors += 1
            self.first_error = self.first_error or error[:200]


def percentile(sorted_ms: list[float], percent: int) -> float | None:
    """The value that `percent` of all are not above; None of none."""
    if not sorted_ms:
        return None
    index = max(0, -(-len(sorted_ms) * percent // 100) - 1)
    return round(sorted_ms[index], 1)


def run(environment: Mapping[str, str]) -> dict[str, Any]:
    """Ask for GPUSHARE_LOAD_SECONDS -> how many were answered, how fast, and the first error."""
    seconds = float(environment["GPUSHARE_LOAD_SECONDS"])
    began = time.monotonic()
    load = Load(environment["GPUSHARE_LOAD_URL"], seconds, body())
    threads = [
        threading.Thread(target=load.ask, daemon=True)
        for _number in range(int(environment["GPUSHARE_LOAD_CONNECTIONS"]))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + ANSWER_S)
    took = time.monotonic() - began
    times = sorted(load.times_ms)
    return {
        "schema": SCHEMA,
        "seconds": round(took, 1),
        "requests": len(times),
        "errors": load.errors,
        "first_error": load.first_error,
        "per_second": round(len(times) / took, 2),
        **{f"p{percent}_ms": percentile(times, percent) for percent in (50, 95, 99)},
    }


def main() -> int:
    """The container's command; the role judges what it says."""
    line = json.dumps(run(os.environ), separators=(",", ":"), sort_keys=True)
    sys.stdout.write(line + "\n")
    with open(os.environ["GPUSHARE_LOAD_MESSAGE_FILE"], "w", encoding="utf-8") as handle:
        handle.write(line)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
