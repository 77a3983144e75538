# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A wait is a predicate plus a clock; its time-out carries the last state seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from ansible_collections.gpushare.eks.plugins.module_utils._errors import GpushareError, WaitTimeout

T = TypeVar("T")

# Polls start quick, so that a quick answer costs nothing, and slow down to spare AWS's rate limits.
_GROWTH = 1.5
_MAX_INTERVAL = 10.0
_PROGRESS_EVERY = 30.0


def wait_for(
    read: Callable[[], T],
    done: Callable[[T], bool],
    *,
    failed: Callable[[T], str | None] | None = None,
    timeout: float,
    interval: float = 0.2,
    max_interval: float = _MAX_INTERVAL,
    what: str,
    progress: Callable[[str], Any] | None = None,
    describe: Callable[[T], Any] = lambda seen: seen,
    remedy: str = "run again: it goes on from there; or give the wait a longer time-out",
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Any] = time.sleep,
) -> T:
    """Read until `done(seen)`; returns what was seen then.

    failed(seen) -> reason or None ends the wait at once with an error. All times are seconds.
    interval is the first pause; it grows to max_interval. `describe` turns what was read into the
    state that progress lines and the time-out tell. Raises WaitTimeout or GpushareError.
    """
    start = clock()
    pause = interval
    told_state: Any = None
    told_at = start
    while True:
        seen = read()
        if done(seen):
            return seen
        state = describe(seen)
        reason = failed(seen) if failed else None
        if reason:
            raise GpushareError(
                f"{what} failed: {reason}",
                object=what,
                cause=reason,
                remedy="mend the cause and run again: it goes on from there",
                last_state=state,
            )
        now = clock()
        if progress and (state != told_state or now - told_at >= _PROGRESS_EVERY):
            progress(f"{what}: {state} after {now - start:.0f} s of at most {timeout:.0f} s")
            told_state, told_at = state, now
        left = timeout - (now - start)
        if left <= 0:
            raise WaitTimeout(
                f"{what} did not get ready within {timeout:.0f} s; last state: {state}",
                object=what,
                cause=f"still {state} after {now - start:.0f} s",
                remedy=remedy,
                last_state=state,
                waited_s=round(now - start, 1),
            )
        sleep(min(pause, left))
        pause = min(pause * _GROWTH, max_interval)
