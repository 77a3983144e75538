"""One small cluster without an agent for all cases, and honest readings of three of its nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from ..support import doors, engine
from ..support.fleet import Fleet, documents, running
from .judge import CLUSTER, TRIO

NODES = 24  # more than any table of faults of nodes has cases


@pytest.fixture(scope="package")
def fleet() -> Iterator[Fleet]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(documents(CLUSTER))
        stack.callback(doors.faults, None)
        yield stack.enter_context(running(CLUSTER, NODES))


@pytest.fixture(scope="package")
def ids(fleet: Fleet) -> list[str]:
    return sorted(fleet.nodes)


@pytest.fixture(scope="package")
def readings(ids: list[str]) -> list[dict[str, Any]]:
    """Honest readings of three nodes: what the cases of the API server start from."""
    run = engine.read(instance_ids=ids[:TRIO])
    assert not run.failed, run
    assert [row["error"] for row in run.result["readings"]] == [None] * TRIO
    return run.result["readings"]


@pytest.fixture
def nothing_published(readings: list[dict[str, Any]]) -> None:
    assert not engine.publish(CLUSTER, state="absent").failed
