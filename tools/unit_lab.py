"""Runs each test file of the lab in a process of its own: moto's state and patches are global.

The processes are forks of this one, which has imported what they all import (1.3 s of CPU each, 30
files) and has no thread. As many run at once as there are cores: half of their time is waiting.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import threading
from pathlib import Path

import boto3  # noqa: F401
import moto.server  # noqa: F401
import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
import lab  # noqa: E402


def main() -> int:
    """Exit status 1 when a file's tests fail; each file's output in one piece."""
    for module in pkgutil.walk_packages(lab.__path__, "lab."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    if threading.active_count() != 1:
        sys.exit("unit_lab: an import started a thread, and a fork would not have it")
    waiting = sorted((ROOT / "tests/unit/lab").glob("test_*.py"))
    logs = ROOT / "build" / "test" / "unit_lab"
    logs.mkdir(parents=True, exist_ok=True)
    running: dict[int, Path] = {}
    bad = 0
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            file = waiting.pop(0)
            running[_fork(file, logs / f"{file.stem}.log")] = file
        pid, status = os.wait()
        file = running.pop(pid)
        text = (logs / f"{file.stem}.log").read_text(errors="replace")
        print(f"== {file.relative_to(ROOT)}\n{text}", flush=True)
        bad |= status != 0
    return int(bad)


def _fork(file: Path, log: Path) -> int:
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    status = int(pytest.main(["-q", "--durations=3", str(file)]))
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
