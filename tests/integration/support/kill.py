"""Ends a playbook run as a power cut would: SIGKILL for it and every process it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from .playbook import ROOT, arguments


def _descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = stat.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, queue = [], [pid]
    while queue:
        queue += children.get(current := queue.pop(), [])
        found.append(current)
    return found


def _stopped(pid: int) -> list[int]:
    """The process and all that it started: stopped, so that none forks while it is looked for."""
    found: list[int] = []
    while fresh := [one for one in _descendants(pid) if one not in found]:
        for one in fresh:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGSTOP)
        found += fresh
    return found


def run_until(
    playbook: str,
    reached: Callable[[str], bool],
    log: Path,
    *,
    extra_vars: dict,
    env: dict[str, str] | None = None,
    timeout: float,
) -> str:
    """Runs ``playbook``, and kills it and all its children once ``reached(output so far)``.

    Returns the output up to then. Raises AssertionError if it ended by itself before that, so that
    a kill which never happened cannot pass for one that healed.
    """
    with log.open("w") as out:
        process = subprocess.Popen(
            arguments(playbook, extra_vars=extra_vars),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {}), "ANSIBLE_NOCOLOR": "1", "PYTHONUNBUFFERED": "1"},
        )
        deadline = time.monotonic() + timeout
        while not reached(log.read_text()):
            assert process.poll() is None, f"ended by itself:\n{log.read_text()}"
            assert time.monotonic() < deadline, f"never reached:\n{log.read_text()}"
            time.sleep(0.05)
        for pid in _stopped(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
    return log.read_text()
