"""Waits: a predicate plus a clock; quick first, then slower; the time-out tells the last state."""

from __future__ import annotations

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils._errors import (
    GpushareError,
    WaitTimeout,
)
from ansible_collections.gpushare.eks.plugins.module_utils._wait import wait_for
from tests.unit.eks_fake import Clock


def wait(states, clock, **more):
    left = list(states)
    return wait_for(
        lambda: left.pop(0) if len(left) > 1 else left[0],
        lambda seen: seen == "ACTIVE",
        **{"timeout": 60, "what": "cluster demo", "clock": clock, "sleep": clock.sleep, **more},
    )


def test_done_at_once_never_sleeps():
    clock = Clock()
    assert wait(["ACTIVE"], clock) == "ACTIVE"
    assert clock.pauses == []


def test_pauses_start_short_and_grow_to_the_maximum():
    clock = Clock()
    wait(["CREATING"] * 14 + ["ACTIVE"], clock, timeout=1000)
    assert clock.pauses[0] == 0.2
    assert clock.pauses == sorted(clock.pauses)
    assert clock.pauses[-1] == 10.0


def test_time_out_tells_the_last_state_and_is_bounded():
    clock = Clock()
    with pytest.raises(WaitTimeout, match="last state: CREATING") as caught:
        wait(["CREATING"], clock)
    assert caught.value.last_state == "CREATING"
    assert caught.value.as_dict()["last_state"] == "CREATING"
    assert caught.value.remedy
    assert clock.now == pytest.approx(60)


def test_zero_time_out_looks_once():
    clock = Clock()
    with pytest.raises(WaitTimeout):
        wait(["CREATING"], clock, timeout=0)
    assert clock.pauses == []


def test_failure_ends_the_wait():
    clock = Clock()
    with pytest.raises(GpushareError, match="cluster demo failed: it broke") as caught:
        wait(
            ["CREATING", "FAILED"],
            clock,
            failed=lambda seen: "it broke" if seen == "FAILED" else None,
        )
    assert not isinstance(caught.value, WaitTimeout)
    assert len(clock.pauses) == 1


def test_progress_tells_changes_and_a_sign_of_life():
    clock, lines = Clock(), []
    wait(["CREATING"] * 20 + ["UPDATING", "ACTIVE"], clock, timeout=1000, progress=lines.append)
    assert lines[0].startswith("cluster demo: CREATING after 0 s of at most 1000 s")
    assert "UPDATING" in lines[-1]
    assert 3 <= len(lines) <= 8
