# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Idempotency, check mode and diff live here, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """What became of one object. `before` and `after` are views ({} = not there).

    `value` is the raw object afterwards: None when it is gone, or when check mode did not make it.
    """

    changed: bool
    before: dict[str, Any]
    after: dict[str, Any]
    value: Any


def _identity(value: Any) -> Any:
    return value


def sync(
    *,
    state: str,
    current: Any,
    desired: dict[str, Any] | None,
    differs: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]],
    create: Callable[[], Any],
    update: Callable[[Any, dict[str, Any]], Any],
    delete: Callable[[Any], Any],
    check_mode: bool,
    view: Callable[[Any], dict[str, Any]] = _identity,
) -> Outcome:
    """Bring one object to its desired state, or in check mode say what that would do.

    current: the raw object, or None where there is none; desired: the wanted view.
    differs(before, desired) -> {field: wanted value} of what has to change, {} when nothing.
    create() and update(current, changes) return the new raw object; delete returns nothing.
    """
    before = view(current) if current is not None else {}
    if state == "absent":
        if current is not None and not check_mode:
            delete(current)
        return Outcome(current is not None, before, {}, None)
    wanted = desired or {}
    if current is None:
        if check_mode:
            return Outcome(True, {}, dict(wanted), None)
        value = create()
        # What was asked for shows in the diff even while AWS is still working on it.
        return Outcome(True, {}, {**wanted, **view(value)}, value)
    changes = differs(before, wanted)
    if not changes:
        return Outcome(False, before, before, current)
    value = current if check_mode else update(current, changes)
    after = {**view(value), **changes}
    return Outcome(before != after, before, after, value)


def merge(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """{"changed", "diff"} of several outcomes; the diff holds only what changed, under its name."""
    return {
        "changed": any(outcome.changed for outcome in outcomes.values()),
        "diff": [
            {
                "before_header": name,
                "after_header": name,
                "before": outcome.before,
                "after": outcome.after,
            }
            for name, outcome in outcomes.items()
            if outcome.changed
        ],
    }
