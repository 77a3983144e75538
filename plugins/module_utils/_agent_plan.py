# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the agent has to write on its node: number, condition, startup taint. Pure.

Standard library only, Python 3.9. Whether and how much is decided by _capacity.decide, as for the
module; here stands only what an agent adds to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils import _policy
from ansible_collections.gpushare.eks.plugins.module_utils._capacity import Decision, decide
from ansible_collections.gpushare.eks.plugins.module_utils._names import CONDITION, STARTUP_TAINT
from ansible_collections.gpushare.eks.plugins.module_utils._quantity import to_mib
from ansible_collections.gpushare.eks.plugins.module_utils._refusals import Refusal

PUBLISHED = "AgentPublished"
OURS = {"key": STARTUP_TAINT, "value": "true", "effect": "NoSchedule"}  # all that the fence allows


@dataclass
class Plan:
    """status: JSON Patch for the status subresource; spec: for the node itself, after the first.

    `ready` says whether the number stands; `reason` and `message` are the condition's.
    """

    status: list[dict[str, Any]] = field(default_factory=list)
    spec: list[dict[str, Any]] = field(default_factory=list)
    ready: bool = False
    reason: str = ""
    message: str = ""
    decision: Decision | None = None


def plan(
    node: Mapping[str, Any],
    reading: Mapping[str, Any] | None,
    policy: Mapping[str, Any] | None,
    boot_id: str | None,
    now: str,
) -> Plan | None:
    """What to write, or None while it cannot be known. now: the time as the API writes it.

    The reading is of the machine that this process runs on, the node is a name: they belong
    together only while the kubelet reports this machine's boot.
    """
    status = node.get("status") or {}
    boot = (status.get("nodeInfo") or {}).get("bootID")
    if reading is None or policy is None or not boot or boot != boot_id:
        return None
    provider = (node.get("spec") or {}).get("providerID") or ""
    reading = {**reading, "instance_id": provider.rpartition("/")[2] or None}
    decision = _decide(node, reading, policy)
    if decision.action == "refuse":
        problem = decision.problems[0]
        made = _withdraw(node, policy["resource"])
        reason = "Agent" + "".join(word.capitalize() for word in problem["code"].split("_"))
        found = Plan(reason=reason, message=f"{problem['message']}; {problem['remedy']}")
    else:
        made = decision
        gpus, driver = reading["gpus"], reading["driver"]
        total = sum(gpu["total_mib"] for gpu in gpus)
        reserved = sum(gpu["reserved_mib"] for gpu in gpus)
        found = Plan(
            ready=True,
            reason=PUBLISHED,
            message=f"{decision.after_mib} MiB are published: NVML shows {total} MiB, of which "
            f"driver {driver} reserves {reserved} MiB",
        )
        found.spec = _untaint(node)
    condition = _condition(node, found, now)
    if made.patch or condition:
        fence = {"op": "test", "path": "/metadata/uid", "value": node["metadata"]["uid"]}
        found.status = (made.patch or [fence]) + condition
    found.decision = made
    return found


def _decide(
    node: Mapping[str, Any], reading: Mapping[str, Any], policy: Mapping[str, Any]
) -> Decision:
    try:
        return decide(node, reading, {**_policy.for_node(node, policy), "force": True})
    except Refusal as refusal:
        return Decision("refuse", str(refusal), problems=[refusal.problem])


def _withdraw(node: Mapping[str, Any], resource: str) -> Decision:
    """Nothing may stand: the keys go. A 0 would make the kubelet reject pods that run."""
    policy = {"resource": resource, "state": "absent", "force": True, "keep_condition": True}
    return decide(node, None, policy)


def _condition(node: Mapping[str, Any], found: Plan, now: str) -> list[dict[str, Any]]:
    """Operations for our condition; none when it says the same already."""
    conditions = (node.get("status") or {}).get("conditions")
    wanted = {
        "type": CONDITION,
        "status": "True" if found.ready else "False",
        "reason": found.reason,
        "message": found.message[:1024],
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    if conditions is None:
        return [{"op": "add", "path": "/status/conditions", "value": [wanted]}]
    for index, old in enumerate(conditions):
        if old.get("type") != CONDITION:
            continue
        if all(old.get(key) == wanted[key] for key in ("status", "reason", "message")):
            return []
        if old.get("status") == wanted["status"]:
            wanted["lastTransitionTime"] = old.get("lastTransitionTime") or now
        path = f"/status/conditions/{index}"
        return [
            {"op": "test", "path": f"{path}/type", "value": CONDITION},
            {"op": "replace", "path": path, "value": wanted},
        ]
    return [{"op": "add", "path": "/status/conditions/-", "value": wanted}]


def _untaint(node: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Take away the one taint that waited for us; the others' places in the list are tested."""
    taints = (node.get("spec") or {}).get("taints") or []
    for index, taint in enumerate(taints):
        if {key: taint.get(key) for key in OURS} == OURS:
            path = f"/spec/taints/{index}"
            return [
                {"op": "test", "path": "/metadata/uid", "value": node["metadata"]["uid"]},
                {"op": "test", "path": path, "value": taint},
                {"op": "remove", "path": path},
            ]
    return []


def stands(node: Mapping[str, Any], resource: str) -> int | None:
    """MiB of the resource in allocatable, None when there is none or it is no number."""
    try:
        text = ((node.get("status") or {}).get("allocatable") or {}).get(resource)
        return to_mib(text)
    except ValueError:
        return None
