# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Keep NVML open, look once a second, tell only what changes: the agent's child process.

Prints one JSON line (as read_nvml gives it) when something changed, else an empty line, so that
silence means a driver that hangs. A look costs a few NVML calls; opening NVML anew for each would
cost a hundred times as much on a GPU without persistence mode. Standard library only, Python 3.9.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils import nvml_probe

PERIOD_S = 1.0
REOPEN_S = 2.0  # how long a failure stands before NVML is opened anew


class Watch:
    """NVML, kept open while all is well. `look` raises nothing that NVML made."""

    def __init__(
        self,
        library: str | None = None,
        load: Callable[[str], Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = library or os.environ.get("GPUSHARE_NVML_LIBRARY") or "libnvidia-ml.so.1"
        self._load, self._clock = load or nvml_probe.ctypes.CDLL, clock
        self._nvml: nvml_probe.Nvml | None = None
        self._head: dict[str, Any] = {}
        self._count, self._failed, self._reopen_at = 0, {}, 0.0

    def look(self) -> dict[str, Any]:
        """{"driver", "cuda", "gpus", "error"} as it is now, or as it failed a moment ago."""
        if self._failed and self._clock() < self._reopen_at:
            return self._failed
        try:
            if self._nvml is None:
                self._open()
            gpus = [nvml_probe.read_gpu(self._nvml, index) for index in range(self._count)]
            answer = {**self._head, "gpus": gpus, "error": None}
        except nvml_probe.NvmlError as exc:
            error = {"type": exc.type, "code": exc.code, "message": str(exc)[:200]}
            answer = {"driver": None, "cuda": None, "gpus": [], "error": error}
        if answer["error"] or not answer["gpus"] or any(gpu["error"] for gpu in answer["gpus"]):
            self._close()
            # Opened anew at the next look, which tells a lost GPU from a driver that went away.
            pause = REOPEN_S if self._failed else 0.0
            self._failed, self._reopen_at = answer, self._clock() + pause
        else:
            self._failed = {}
        return answer

    def _open(self) -> None:
        nvml = nvml_probe.Nvml(self._path, self._load)
        nvml.call("nvmlInit_v2")
        self._nvml = nvml
        self._head = nvml_probe.system(nvml)
        self._count = nvml.numbers("nvmlDeviceGetCount_v2", 1)[0]

    def _close(self) -> None:
        if self._nvml is not None:
            with contextlib.suppress(nvml_probe.NvmlError):  # it is opened anew anyway
                self._nvml.call("nvmlShutdown")
            self._nvml = None


def steady(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer without what changes all the time: memory in use is not what is published."""
    moving = ("used_mib", "processes")
    gpus = [{k: v for k, v in gpu.items() if k not in moving} for gpu in answer["gpus"]]
    return {**answer, "gpus": gpus}


def main(period_s: float = PERIOD_S) -> None:
    """Look for ever; ends when nobody reads any more."""
    watch, told = Watch(), None
    while True:
        answer = steady(watch.look())
        line = "" if answer == told else json.dumps(answer, separators=(",", ":"))
        told = answer
        try:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            os._exit(0)  # the agent ended; the interpreter's own flush would fail again
        time.sleep(period_s)


if __name__ == "__main__":
    main()
