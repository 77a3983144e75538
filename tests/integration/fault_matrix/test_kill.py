"""kill -9 of the module's run at any point."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from ..support import engine
from ..support.engine import Fault
from ..support.fleet import TRUTH_MIB, Fleet
from .judge import CLUSTER, FOREVER, converged, node_of, stands

# Name: the module's run ends before its so-maniest call or request of this kind.
KILLS: dict[str, tuple[str, int]] = {
    "before EC2 is asked": ("DescribeInstances", 1),
    "before the types are asked": ("DescribeInstanceTypes", 1),
    "before the send": ("SendCommand", 1),
    "before the first page": ("ListCommandInvocations", 1),
    "before EKS is asked": ("DescribeCluster", 1),
    "before the list": ("GET", 1),
    "before the first patch": ("PATCH", 1),
    "before the second patch": ("PATCH", 2),
    "before the third patch": ("PATCH", 3),
    "after the first patch": ("PATCH done", 1),
    "after the second patch": ("PATCH done", 2),
    "after the third patch": ("PATCH done", 3),
}
LIMIT_S = 60
ROOT = Path(__file__).resolve().parents[3]
_LOCK = threading.Lock()
WRITING = {"DescribeCluster", "GET", "PATCH", "PATCH done"}


def _die_at(kind: str, number: int, left: dict[str, int]) -> None:
    with _LOCK:  # the patches go out in threads
        left[kind] = left.get(kind, 0) + 1
        if left[kind] == number:
            os.kill(os.getpid(), signal.SIGKILL)


def _doomed(kind: str, number: int, readings: list[dict[str, Any]]) -> None:
    """In a process of its own: read or publish, and die on the way.

    A fresh interpreter, because a fork of this one inherits the locks of threads that it has not.
    """
    seen: dict[str, int] = {}

    def die(what: str) -> None:
        if what == kind:
            _die_at(kind, number, seen)

    def at(method: str, what: str) -> Fault:
        hook = {"after" if what.endswith("done") else "before": lambda _path: die(what)}
        return Fault(method, times=FOREVER, **hook)

    engine.wire(
        pytest.MonkeyPatch(), at("GET", "GET"), at("PATCH", "PATCH"), at("PATCH", "PATCH done")
    )
    if kind in WRITING:
        engine.publish(CLUSTER, on_call=die, readings=readings)
    else:
        engine.read(on_call=die, instance_ids=[row["instance_id"] for row in readings])


@pytest.mark.parametrize("case", KILLS)
def test_kill_9_of_the_modules_run(
    case: str, readings: list[dict[str, Any]], nothing_published: None, fleet: Fleet
) -> None:
    ids = [row["instance_id"] for row in readings]
    path = [str(ROOT / "tests"), str(ROOT / "collections"), str(ROOT)]
    done = subprocess.run(
        [sys.executable, "-m", "integration.fault_matrix.test_kill", case],
        input=json.dumps(readings),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, "the run ended by itself"
    for one in ids:
        assert stands(node_of(one, fleet)) in (None, TRUTH_MIB)
    converged(readings)


if __name__ == "__main__":
    _doomed(*KILLS[sys.argv[1]], json.load(sys.stdin))
