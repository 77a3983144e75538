# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which nodes get which decision: readings joined to Nodes by instance ID, pools by label. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils import _policy
from ansible_collections.gpushare.eks.plugins.module_utils._capacity import Decision, decide
from ansible_collections.gpushare.eks.plugins.module_utils._errors import GpushareError
from ansible_collections.gpushare.eks.plugins.module_utils._names import ANNOTATION, CONDITION
from ansible_collections.gpushare.eks.plugins.module_utils._quantity import MIB, parse_quantity
from ansible_collections.gpushare.eks.plugins.module_utils._refusals import Refusal


def instance_of(node: Mapping[str, Any]) -> str:
    """The instance ID in a node's providerID (aws:///zone/i-...), "" without one."""
    return str((node.get("spec") or {}).get("providerID") or "").rpartition("/")[2]


def claimed_by_agent(node: Mapping[str, Any]) -> bool:
    """Whether the agent of this node wrote its condition; it may have ended since."""
    conditions = (node.get("status") or {}).get("conditions") or []
    found = [one for one in conditions if one.get("type") == CONDITION]
    return any(str(one.get("reason", "")).startswith("Agent") for one in found)


def live_agents(pods: list[Mapping[str, Any]]) -> frozenset[str]:
    """Names of the nodes whose agent's pod is ready, out of the agents' pods.

    The pod tells more than a heartbeat on the node would, and costs an idle agent no request.
    """
    found = set()
    for pod in pods:
        conditions = (pod.get("status") or {}).get("conditions") or []
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
        if ready and not pod["metadata"].get("deletionTimestamp"):
            found.add(pod["spec"].get("nodeName") or "")
    return frozenset(found - {""})


@dataclass(frozen=True)
class Wanted:
    """What the caller asked for: options of node_capacity, indexed for a fleet.

    readings: {instance ID: row of gpu_capacity_info}; pools: _policy.document or None; policy:
    {"headroom_mib" | None, "multi_gpu" | None}, None meaning: as the pool says; agents: names of
    the nodes that a live agent keeps.
    """

    resource: str
    state: str
    readings: Mapping[str, Mapping[str, Any]]
    pools: Mapping[str, Any] | None
    policy: Mapping[str, Any]
    nodes: frozenset[str] | None
    force: bool
    agents: frozenset[str] = frozenset()

    def selects(self, node: Mapping[str, Any]) -> bool:
        """Whether this run is about that node."""
        if self.nodes is not None:
            return node["metadata"]["name"] in self.nodes
        if self.state == "absent":
            return self._has_any(node)
        if self.pools is not None:
            return self._shares(node)
        return instance_of(node) in self.readings

    def _has_any(self, node: Mapping[str, Any]) -> bool:
        status = node.get("status") or {}
        places = [status.get("capacity"), status.get("allocatable")]
        annotations = node["metadata"].get("annotations") or {}
        told = any(one.get("type") == CONDITION for one in status.get("conditions") or [])
        return told or ANNOTATION in annotations or any(self.resource in (p or {}) for p in places)

    def _shares(self, node: Mapping[str, Any]) -> bool:
        return _policy.pool_of(node) in self.pools["pools"]

    def decide(self, node: Mapping[str, Any]) -> Decision:
        """What has to become of the node, by _capacity.decide under its pool's policy."""
        row = self.readings.get(instance_of(node))
        policy = {
            "resource": self.resource,
            "state": self.state,
            "force": self.force,
            "agent_alive": node["metadata"]["name"] in self.agents and claimed_by_agent(node),
            "hardware_mib": ((row or {}).get("hardware") or {}).get("gpu_memory_mib"),
            "predicted_mib": None,
            "headroom_mib": self.policy.get("headroom_mib"),
            "multi_gpu": self.policy.get("multi_gpu"),
        }
        if self.state == "present" and self.pools is not None:
            try:
                by_pool = _policy.for_node(node, self.pools)
            except Refusal as refusal:
                return Decision("refuse", str(refusal), problems=[refusal.problem])
            policy["predicted_mib"] = by_pool["predicted_mib"]
            for key in ("hardware_mib", "headroom_mib", "multi_gpu"):
                if policy[key] is None:
                    policy[key] = by_pool[key]
        policy["headroom_mib"] = policy["headroom_mib"] or 0
        policy["multi_gpu"] = policy["multi_gpu"] or "refuse"
        return decide(node, _usable(row), policy)


def _usable(row: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """A row as decide() takes it: the reading speaks for itself where the node gave one.

    A missing GPU shows in no GPU's own error, so there the row's error has to speak.
    """
    if not row or not row.get("reading") or (row.get("error") or {}).get("type") == "GPU_MISSING":
        return row
    return row["reading"]


def unmatched(wanted: Wanted, nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows for what was asked for and is no Node: readings of other machines, names of `nodes`."""
    rows = []
    if wanted.state == "present" and wanted.nodes is None:
        known = {instance_of(node) for node in nodes}
        for instance_id in sorted(set(wanted.readings) - known):
            reason = f"instance {instance_id} is no Node of this cluster"
            rows.append(_missing(None, instance_id, reason, "let it join, or do not read it"))
    for name in sorted(wanted.nodes or frozenset()):
        if all(node["metadata"]["name"] != name for node in nodes):
            reason = f"there is no Node {name}"
            rows.append(_missing(name, None, reason, "correct the name in `nodes`"))
    return rows


def _missing(name: str | None, instance_id: str | None, reason: str, remedy: str) -> dict[str, Any]:
    problem = {"code": "NO_NODE", "message": reason, "remedy": remedy}
    row = dict.fromkeys(("pool", "before_mib", "after_mib", "surplus_mib"))
    return {
        **row,
        "name": name,
        "instance_id": instance_id,
        "action": "refuse",
        "reason": reason,
        "problems": [problem],
    }


def row(
    node: Mapping[str, Any],
    action: str,
    reason: str,
    decision: Decision,
    error: GpushareError | None = None,
) -> dict[str, Any]:
    """One node of the module's result; after_mib is what stands now, in check mode what would.

    error: why the write failed.
    """
    failed = action in ("refuse", "failed", "gone")
    problems = list(decision.problems)
    if error is not None:
        problem = {"code": type(error).__name__, "message": error.message, "remedy": error.remedy}
        problems.append(problem)
    return {
        "name": node["metadata"]["name"],
        "instance_id": instance_of(node) or None,
        "pool": _policy.pool_of(node),
        "before_mib": decision.before_mib,
        "after_mib": decision.before_mib if failed else decision.after_mib,
        "action": action,
        "reason": reason,
        "problems": problems,
        "surplus_mib": decision.surplus_mib,
    }


def diff(node: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
    """What the patch changes on this node, path by path: as it stands, and as it will stand."""
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    for operation in decision.patch:
        if operation["op"] == "test":
            continue
        path = [p.replace("~1", "/").replace("~0", "~") for p in operation["path"].split("/")[1:]]
        value = operation.get("value")
        pairs = value.items() if isinstance(value, dict) else [(None, value)]
        for key, new in pairs:
            place = [*path, key] if key is not None else path
            old: Any = node
            for part in place:
                old = old[int(part)] if isinstance(old, list) else (old or {}).get(part)
            holder = ".".join(place[:-1])
            if old is not None:
                before.setdefault(holder, {})[place[-1]] = old
            if operation["op"] != "remove":
                after.setdefault(holder, {})[place[-1]] = new
    header = f"{node['metadata']['name']} ({instance_of(node)})"
    return {"before_header": header, "after_header": header, "before": before, "after": after}


def over_requested(
    resource: str, pods: list[dict[str, Any]], shrunk: Mapping[str, int]
) -> dict[str, dict[str, Any]]:
    """Pods that no longer fit after a shrink: {node: {"requested_mib", "pods": [names]}}.

    shrunk: {node name: MiB that stand now}. The newest pods are those that are too many.
    """
    by_node: dict[str, list[tuple[str, str, int]]] = {name: [] for name in shrunk}
    for pod in pods:
        node_name = pod["spec"].get("nodeName")
        if node_name not in by_node:
            continue
        size = sum(_request(c, resource) for c in pod["spec"].get("containers") or [])
        if size:
            meta = pod["metadata"]
            label = f"{meta.get('namespace')}/{meta['name']}"
            by_node[node_name].append((meta.get("creationTimestamp") or "", label, size))
    found = {}
    for name, items in by_node.items():
        requested, over = sum(size for _dummy, _dummy, size in items), []
        left = requested
        for _dummy, label, size in sorted(items, reverse=True):
            if left <= shrunk[name]:
                break
            over.append(label)
            left -= size
        if over:
            found[name] = {"requested_mib": requested, "pods": over}
    return found


def _request(container: Mapping[str, Any], resource: str) -> int:
    resources = container.get("resources") or {}
    quantities = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return int(parse_quantity(quantities.get(resource, "0")) // MIB)
