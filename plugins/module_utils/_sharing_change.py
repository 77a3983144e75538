# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The next step in the change of one live node's sharing: from what is seen, and nothing else.

Pure. The state stands in an annotation of the node, so that a run that was killed is taken up:

    (none) --cordon--> drain --switch--> ready --finish--> (none)
                         |                 | time is up
                         | time is up      +--give back--> back --finish--> (none)
                         +--undo--> (none)

A step is one patch of the Node; label, cordon and state change together or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._names import (
    CHANGE_ANNOTATION,
    CONDITION,
)
from ansible_collections.gpushare.eks.plugins.module_utils._pool_names import (
    CONFIG_LABEL,
    SHARED_GPU,
    WHOLE_GPU,
)
from ansible_collections.gpushare.eks.plugins.module_utils._quantity import MIB, parse_quantity

SCHEMA = 1
DRAIN, READY, BACK = "drain", "ready", "back"
STEPS = (DRAIN, READY, BACK)


class StateError(ValueError):
    """The annotation on the node is none that this version has written."""


@dataclass(frozen=True)
class Target:
    """What a node shall become: its config's name, and what it then offers."""

    config: str
    gpu_resource: str
    gpu_count: int
    resource: str
    memory_mib: int | None


@dataclass(frozen=True)
class State:
    """What the annotation says. `before`: config and offer of the node as it was found."""

    step: str
    to: str
    config: str | None
    unschedulable: bool
    offered: Mapping[str, int]
    since: str

    def text(self) -> str:
        """As the annotation's value."""
        before = {
            "config": self.config,
            "unschedulable": self.unschedulable,
            "offered": dict(self.offered),
        }
        content = {"schema": SCHEMA, "step": self.step, "to": self.to, "before": before}
        return json.dumps({**content, "since": self.since}, sort_keys=True)

    def at(self, step: str, to: str | None = None) -> State:
        """The same change at another step."""
        return State(step, to or self.to, self.config, self.unschedulable, self.offered, self.since)


@dataclass(frozen=True)
class Seen:
    """A node as it stands. `busy`: who still uses or may use its GPU; None: nobody could tell."""

    node: Mapping[str, Any]
    busy: list[str] | None = None
    problem: str | None = None
    state: State | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", state_of(self.node))

    @property
    def config(self) -> str | None:
        return (self.node["metadata"].get("labels") or {}).get(CONFIG_LABEL)

    @property
    def unschedulable(self) -> bool:
        return bool((self.node.get("spec") or {}).get("unschedulable"))


@dataclass(frozen=True)
class Step:
    """What comes next. patch: a merge patch of the Node, or None for a wait or an end.

    ends: None, or how the node ended: none, changed, rolled_back.
    """

    kind: str
    patch: dict[str, Any] | None = None
    ends: str | None = None

    @property
    def waits(self) -> bool:
        return self.kind.startswith("wait_")


def state_of(node: Mapping[str, Any]) -> State | None:
    """The change that is under way on this node, or None. Raises StateError."""
    text = (node["metadata"].get("annotations") or {}).get(CHANGE_ANNOTATION)
    if text is None:
        return None
    try:
        raw = json.loads(text)
        before = raw["before"]
        if raw["schema"] != SCHEMA or raw["step"] not in STEPS:
            raise ValueError(text)
        offered = {str(key): int(value) for key, value in before["offered"].items()}
        return State(
            raw["step"], str(raw["to"]), before["config"], before["unschedulable"] is True,
            offered, str(raw["since"]),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StateError(
            f"node {node['metadata']['name']}: its annotation {CHANGE_ANNOTATION} is not readable: "
            f"{text[:200]}"
        ) from None


def offered(node: Mapping[str, Any], resource: str) -> dict[str, int]:
    """What the scheduler sees of the node's GPU: pieces of each kind, and MiB of gpu-memory."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    found = {}
    for name in (WHOLE_GPU, SHARED_GPU):
        if parse_quantity(allocatable.get(name, "0")):
            found[name] = int(parse_quantity(allocatable[name]))
    if resource in allocatable:
        found[resource] = int(parse_quantity(allocatable[resource]) // MIB)
    return found


def as_predicted(node: Mapping[str, Any], target: Target, before: Mapping[str, int]) -> bool:
    """Whether plugin and agent show what the target's config makes of the node."""
    now = offered(node, target.resource)
    pieces = {name: count for name, count in now.items() if name != target.resource}
    if pieces != {target.gpu_resource: target.gpu_count}:
        return False
    # The memory is the publisher's matter: a number that stood there stands, or is the new one.
    stood = before.get(target.resource)
    return stood is None or (now.get(target.resource) in (stood, target.memory_mib) and _told(node))


def as_before(node: Mapping[str, Any], state: State, resource: str) -> bool:
    """Whether the node offers again what it offered before the change."""
    return offered(node, resource) == dict(state.offered)


def _told(node: Mapping[str, Any]) -> bool:
    """Whether the agent, where one has spoken, says that its number stands."""
    conditions = (node.get("status") or {}).get("conditions") or []
    return all(one.get("status") == "True" for one in conditions if one.get("type") == CONDITION)


def next_step(seen: Seen, target: Target, *, time_up: bool, now: str) -> Step:
    """The next step of one node. time_up: the limit of the step that it is at has passed."""
    state = seen.state
    if state is None:
        if seen.config == target.config:
            return Step("none", ends="none")
        begun = State(
            DRAIN, target.config, seen.config, seen.unschedulable,
            offered(seen.node, target.resource), now,
        )  # fmt: skip
        return Step("cordon", _patch(seen, begun, cordon=True))
    if state.step == DRAIN:
        if seen.config == target.config:  # wanted again as it was when that run was killed
            return Step("undo", _over(seen, state), "none")
        if time_up:
            return Step("undo", _over(seen, state), "rolled_back")
        if seen.busy is None or seen.busy:
            return Step("wait_drain")
        return Step("switch", _patch(seen, state.at(READY, target.config), config=target.config))
    if state.step == READY:
        if state.to != target.config:  # the inventory has changed since that run was killed
            return Step("drain_again", _patch(seen, state.at(DRAIN), cordon=True))
        if as_predicted(seen.node, target, state.offered):
            return Step("finish", _over(seen, state), "changed")
        if not time_up:
            return Step("wait_ready")
        return Step("give_back", _patch(seen, state.at(BACK), config=state.config, relabel=True))
    if as_before(seen.node, state, target.resource) or time_up:
        return Step("finish", _over(seen, state), "rolled_back")
    return Step("wait_back")


def _patch(
    seen: Seen,
    state: State,
    *,
    cordon: bool = False,
    config: str | None = None,
    relabel: bool = False,
) -> dict[str, Any]:
    """A merge patch that is refused (409) when the node is another one or has changed since."""
    metadata = _fence(seen)
    metadata["annotations"] = {CHANGE_ANNOTATION: state.text()}
    if config is not None or relabel:
        metadata["labels"] = {CONFIG_LABEL: config}
    patch: dict[str, Any] = {"metadata": metadata}
    if cordon:
        patch["spec"] = {"unschedulable": True}
    return patch


def _over(seen: Seen, state: State) -> dict[str, Any]:
    """The end of a change: no state, and as schedulable as before."""
    metadata = _fence(seen)
    metadata["annotations"] = {CHANGE_ANNOTATION: None}
    return {"metadata": metadata, "spec": {"unschedulable": state.unschedulable or None}}


def _fence(seen: Seen) -> dict[str, Any]:
    found = seen.node["metadata"]
    return {"uid": found["uid"], "resourceVersion": found["resourceVersion"]}
