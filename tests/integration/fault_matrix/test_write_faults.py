"""The API server, and the wire to it."""

from __future__ import annotations

import time
from typing import Any

import boto3
import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import _token

from ..support import doors, engine
from ..support.engine import Fault
from ..support.fleet import TRUTH_MIB
from .judge import CLUSTER, FOREVER, TRIO, converged, typed


def expired() -> str:
    """A bearer token of an hour ago: the API server itself answers 401."""
    source = boto3.Session()
    return _token.mint(source, CLUSTER, clock=lambda: time.time() - 3600)


def kill_api_server(_path: str) -> None:
    doors.cluster({"cluster": CLUSTER, "kill": "kube-apiserver"})


def freeze_api_server(_path: str) -> None:
    doors.cluster({"cluster": CLUSTER, "pause": 1})


NOBODY = "https://127.0.0.1:9"  # the discard port: nobody listens there
# Name: (faults on the wire, None where the run converges, else the type of the error and whether
# only the nodes fail (True) or the whole task at once)
WIRE: dict[str, tuple[list[Fault], tuple[str, bool] | None]] = {
    "409 once on each node": ([Fault(status=409, times=TRIO)], None),
    "409 for ever": ([Fault(status=409, times=FOREVER)], ("ApiError", True)),
    "429 with Retry-After": (
        [Fault(status=429, headers={"Retry-After": "1"}, times=TRIO)],
        None,
    ),
    "429 without Retry-After": ([Fault(status=429, times=TRIO)], None),
    "429 on the list": ([Fault("GET", status=429, headers={"Retry-After": "0"}, times=2)], None),
    "429 for ever": ([Fault(status=429, times=FOREVER)], ("ApiError", True)),
    "500 twice on each node": ([Fault(status=500, times=2 * TRIO)], None),
    "500 on the list": ([Fault("GET", status=500, times=2)], None),
    "500 for ever": ([Fault("GET", status=500, times=FOREVER)], ("ApiError", False)),
    "503 while it starts": ([Fault("GET", status=503, times=2), Fault(status=503)], None),
    "gone in the middle and back": ([Fault(at=2, before=kill_api_server)], None),
    "silent for a second": ([Fault(at=2, before=freeze_api_server)], None),
    "gone after a write, before its answer": ([Fault(at=2, after=kill_api_server)], None),
    "not there at all": ([Fault("GET", endpoint=NOBODY, times=FOREVER)], ("Unreachable", False)),
    "gone for good in the middle": ([Fault(endpoint=NOBODY, times=FOREVER)], ("Unreachable", True)),
    "token expired during the run": ([Fault(bearer=expired)], None),
    "token expired before the list": ([Fault("GET", bearer=expired)], None),
    "no token is taken any more": ([Fault(bearer=expired, times=FOREVER)], ("AccessDenied", True)),
    "403": ([Fault(status=403, times=FOREVER)], ("AccessDenied", True)),
}


@pytest.mark.parametrize("case", WIRE)
def test_the_api_server(
    case: str,
    readings: list[dict[str, Any]],
    nothing_published: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults, expected = WIRE[case]
    with monkeypatch.context() as during:
        wires = engine.wire(during, *faults)
        # What never heals ends with the time; what heals may take as long as a restart does.
        timeout = 1 if expected else 40
        run = engine.publish(CLUSTER, readings=readings, timeout=timeout)
    assert sum(one.met for one in wires) > 0, "the fault was not met"
    if expected is None:
        assert not run.failed, run.result
        assert {row["after_mib"] for row in run.result["nodes"]} == {TRUTH_MIB}
    else:
        kind, by_node = expected
        assert run.failed
        typed(run.error, "PartialFailure" if by_node else kind)
        for row in run.result.get("nodes", []):
            assert row["action"] == "failed"
            (problem,) = row["problems"]
            typed({"type": problem["code"], **problem}, kind)
    converged(readings)
