# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The agent's ear at NVML: a child process that may crash or hang without taking the agent along.

Standard library only, Python 3.9.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils import nvml_probe

CHILD = "ansible_collections.gpushare.eks.plugins.module_utils._nvml_watch"
HANG_S = (
    10.0  # a look takes milliseconds; the driver's own worst case (initialisation) a few seconds
)
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 10.0


class Reader(threading.Thread):
    """Calls `tell` with each new reading of the probe, also one that says how the child failed."""

    def __init__(
        self,
        tell: Callable[[dict[str, Any]], None],
        *,
        command: list[str] | None = None,
        hang_s: float = HANG_S,
    ) -> None:
        super().__init__(name="nvml", daemon=True)
        # -S and -B: without site packages and compiled files, it starts faster and stays small.
        self._command = command or [sys.executable, "-S", "-B", "-m", CHILD]
        self._tell, self._hang_s = tell, hang_s
        self._child: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()

    def run(self) -> None:
        pause = FIRST_PAUSE_S
        while not self._stopping.is_set():
            began = time.monotonic()
            failure = self._listen()
            if self._stopping.is_set():
                return
            self._tell(self._reading(failure))
            healthy = time.monotonic() - began > 60
            pause = FIRST_PAUSE_S if healthy else min(pause * 2, LONGEST_PAUSE_S)
            self._stopping.wait(pause)

    def stop(self) -> None:
        """End the child, and the thread with it."""
        self._stopping.set()
        child = self._child
        if child is not None:
            child.kill()

    def _listen(self) -> dict[str, Any]:
        """Hand on what the child says until it ends or hangs -> the failure that this is."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        child = self._child = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=environment,
            bufsize=0,
        )
        output = child.stdout.fileno()
        pending = b""
        try:
            while True:
                ready, _dummy, _dummy = select.select([output], [], [], self._hang_s)
                if not ready:
                    message = f"NVML did not answer within {self._hang_s:g} s: the driver hangs"
                    return _failure("TIMEOUT", 10, message)
                chunk = os.read(output, 65536)
                if not chunk:
                    message = f"the process that reads NVML ended: {child.wait()}"
                    return _failure("PROBE_CRASHED", None, message)
                *lines, pending = (pending + chunk).split(b"\n")
                for line in filter(None, lines):
                    self._tell(self._reading(json.loads(line)))
        except ValueError:
            return _failure("PROBE_CRASHED", None, "the process that reads NVML printed no JSON")
        finally:
            child.kill()
            child.stdout.close()
            self._reap(child)

    @staticmethod
    def _reap(child: subprocess.Popen[bytes]) -> None:
        """A process that is stuck in the driver survives SIGKILL for a while: left to its fate."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(1)

    @staticmethod
    def _reading(answer: dict[str, Any]) -> dict[str, Any]:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        head = {"schema": nvml_probe.SCHEMA, "boot_id": nvml_probe.boot_id(), "instance_id": None}
        return {**head, "time": now, **answer}


def _failure(kind: str, code: int | None, message: str) -> dict[str, Any]:
    error = {"type": kind, "code": code, "message": message}
    return {"driver": None, "cuda": None, "gpus": [], "error": error}
