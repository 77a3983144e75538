# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Changes the sharing of live nodes one after the other: reads, asks for the next step, patches."""

from __future__ import annotations

import datetime
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils import _process_readings, _publish
from ansible_collections.gpushare.eks.plugins.module_utils import _sharing_plan as _plan
from ansible_collections.gpushare.eks.plugins.module_utils._errors import (
    Conflict,
    GpushareError,
    WaitTimeout,
    aws_errors,
)
from ansible_collections.gpushare.eks.plugins.module_utils._names import CHANGE_ANNOTATION
from ansible_collections.gpushare.eks.plugins.module_utils._nodes import Cluster
from ansible_collections.gpushare.eks.plugins.module_utils._pool_names import CONFIG_LABEL
from ansible_collections.gpushare.eks.plugins.module_utils._scripts import processes_document
from ansible_collections.gpushare.eks.plugins.module_utils._sharing_change import (
    BACK,
    DRAIN,
    READY,
    Seen,
    StateError,
    Step,
    as_before,
    next_step,
)
from ansible_collections.gpushare.eks.plugins.module_utils._ssm import run_on_fleet
from ansible_collections.gpushare.eks.plugins.module_utils._wait import wait_for

ROUNDS = 20  # how often a write that collides is decided anew
NODE_GONE = "the node was deleted meanwhile"
LET_IT_END = (
    "let the pods end, or delete them or scale their owner down, or raise the time limit "
    "(wait_timeout, in the role device_plugin_change_timeout); then run again: it goes on from "
    "there"
)
LOOK_AT_PLUGIN = (
    "look at the node's pods of NVIDIA's device plugin and of the agent (kubectl describe pod), "
    "and run again"
)


@dataclass
class Gpus:
    """Asks a node by SSM who computes on its GPUs. `ssm`: a boto3 client; `calls` is counted.

    namespace: of NVIDIA's own pods; the MPS server is a process of theirs and no reason to wait.
    """

    ssm: Any
    namespace: str
    timeout: float
    calls: Counter[str] = field(default_factory=Counter)

    def users(self, instance_id: str, names: Mapping[str, str]) -> list[str]:
        """The processes, each with its pod. Raises GpushareError when the node cannot tell.

        names: {pod UID: "namespace/name"}.
        """
        document = processes_document()["name"]
        with aws_errors(f"SSM document {document}"):
            fleet = run_on_fleet(
                self.ssm,
                document,
                [instance_id],
                timeout=self.timeout,
                comment="gpushare.eks: wait for the processes on a GPU",
            )
        self.calls += fleet.calls
        answer = _process_readings.of_node(
            fleet.outcomes[instance_id], instance_id=instance_id, hardware=None, names=names
        )
        if answer["error"]:
            raise GpushareError(
                f"NVML of instance {instance_id} cannot be read: {answer['error']['message']}",
                object=f"instance {instance_id}",
                cause=f"{answer['error']['type']}: {answer['error']['message']}",
                remedy=answer["error"].get("remedy") or "mend the node, or replace it",
            )
        found = []
        for one in answer["entries"]:
            if not (one["pod"] or "").startswith(f"{self.namespace}/"):
                whose = f"of pod {one['pod']}" if one["pod"] else "of no pod of this cluster"
                found.append(f"process {one['pid']} {whose}")
        if answer["truncated"]:
            found.append(f"{answer['count'] - len(answer['entries'])} more processes")
        return found


@dataclass
class Roll:
    """One run over a fleet. limits: {step: seconds}; say: takes a line of progress."""

    cluster: Cluster
    gpus: Gpus
    plan: _plan.Plan
    limits: Mapping[str, float]
    say: Callable[[str], Any]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Any] = time.sleep

    def change(self, name: str) -> dict[str, Any]:
        """Bring one node to its pool's sharing -> its row; `action` tells how it ended."""
        began, conflicts, given_up = self.clock(), 0, ""
        self._waited: dict[str, None] = {}
        first = seen = self._look(name)
        if first is None:
            return row({"metadata": {"name": name}}, self.plan, "gone", NODE_GONE)
        if first.state is None and (reason := _unfit(first)):
            return row(first.node, self.plan, "refused", reason)
        # What an earlier run had given up is put right first, and then tried anew.
        again = first.state is not None and first.state.step == BACK
        while seen is not None:
            seen, step, cause = self._settled(seen)
            if seen is None:
                break
            given_up = cause or given_up
            if step.patch is not None:
                self.say(f"node {name}: {step.kind.replace('_', ' ')}")
                if not self.cluster.patch_node(name, step.patch):
                    conflicts += 1
                    if conflicts > ROUNDS:
                        raise _never_still(name)
                    seen = self._look(name)
                    continue
            if step.ends == "rolled_back" and again:
                again, given_up = False, ""
                seen = self._look(name)
                continue
            if step.ends is None:
                seen = self._look(name)
                continue
            ended = row(first.node, self.plan, step.ends, given_up + _left(seen, self.plan))
            if step.ends == "rolled_back":
                ended["remedy"] = LET_IT_END if step.kind == "undo" else LOOK_AT_PLUGIN
            return {
                **ended,
                "waited_for": list(self._waited),
                "seconds": round(self.clock() - began, 1),
            }
        return row(first.node, self.plan, "gone", NODE_GONE)

    def _look(self, name: str) -> Seen | None:
        """The node as it stands; who uses its GPU only where that decides."""
        self.cluster.extend()
        node = self.cluster.node(name)
        if node is None:
            return None
        try:
            seen = Seen(node)
        except StateError as error:
            remedy = f"kubectl annotate node {name} {CHANGE_ANNOTATION}- and look at its cordon"
            raise Conflict(str(error), object=f"node {name}", remedy=remedy) from None
        if seen.state is not None and seen.state.step != DRAIN:
            return seen
        pods = self.cluster.pods_of(name)
        held = [f"pod {_plan.label(one)}" for one in _plan.holders(self.plan, node, pods)]
        if held and seen.state is not None:
            seen = Seen(node, busy=held)
        else:
            try:
                names = _process_readings.pod_names(pods)
                users = self.gpus.users(_publish.instance_of(node), names)
            except GpushareError as error:
                return Seen(node, problem=str(error))
            seen = Seen(node, busy=held or users)
        if seen.state is not None:
            self._waited.update(dict.fromkeys(seen.busy))
        return seen

    def _settled(self, seen: Seen) -> tuple[Seen | None, Step, str]:
        """Wait until there is something to do -> (the node, what, why the time was up or "")."""
        name, last = seen.node["metadata"]["name"], [seen]
        if not self._next(seen).waits:
            return seen, self._next(seen), ""

        def read() -> Seen | None:
            last.append(self._look(name))
            return last[-1]

        limit = self.limits[seen.state.step]
        try:
            found = wait_for(
                read,
                lambda one: one is None or not self._next(one).waits,
                timeout=limit,
                interval=0.5,
                what=f"node {name}",
                describe=_describe,
                progress=self.say,
                clock=self.clock,
                sleep=self.sleep,
            )
        except WaitTimeout as error:
            step = self._next(last[-1], time_up=True)
            return last[-1], step, f"{error.last_state} after {limit:g} s"
        return found, Step("gone") if found is None else self._next(found), ""

    def _next(self, seen: Seen, *, time_up: bool = False) -> Step:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return next_step(seen, self.plan.target(seen.node), time_up=time_up, now=now)


def _unfit(seen: Seen) -> str:
    """Why a node is left alone, before anything is done to it; "" for no reason."""
    if not _plan.is_ready(seen.node):
        return "it is not Ready; see kubectl describe node, or replace it"
    return seen.problem or ""


def _left(seen: Seen, plan: _plan.Plan) -> str:
    """What a node that was given back does not yet offer again."""
    state = seen.state
    if state is None or state.step != BACK or as_before(seen.node, state, plan.resource):
        return ""
    return "; its plugin does not yet offer again what it did before"


def _never_still(name: str) -> Conflict:
    return Conflict(
        f"node {name}: others changed it {ROUNDS} times while it was written",
        object=f"node {name}",
        remedy="see who else writes this node; then run again: it goes on from there",
    )


def _describe(seen: Seen | None) -> str:
    if seen is None:
        return "gone"
    if seen.state.step == DRAIN:
        users = ", ".join(seen.busy or [])
        return f"its GPU is in use by {users}" if users else seen.problem or "nobody can tell"
    what = "its new sharing" if seen.state.step == READY else "what it offered before"
    return f"plugin and agent do not show {what} (config {seen.config})"


def row(node: Mapping[str, Any], plan: _plan.Plan, action: str, reason: str) -> dict[str, Any]:
    """One node of the module's result; `before` and `after` are names of configs."""
    known = "labels" in node["metadata"]
    before = (node["metadata"].get("labels") or {}).get(CONFIG_LABEL)
    moved = action in ("changed", "would_change")
    return {
        "name": node["metadata"]["name"],
        "instance_id": _publish.instance_of(node) or None,
        "pool": (plan.pool(node) or {}).get("name") if known else None,
        "before": before,
        "after": plan.target(node).config if moved else before,
        "action": action,
        "reason": reason,
        "remedy": "",
        "waited_for": [],
        "seconds": 0.0,
    }
