# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which live nodes have to change their sharing, to what, in which order; what is refused. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils import _policy, _shares
from ansible_collections.gpushare.eks.plugins.module_utils._errors import Conflict, InvalidInput
from ansible_collections.gpushare.eks.plugins.module_utils._names import TYPE_LABEL
from ansible_collections.gpushare.eks.plugins.module_utils._pod_requests import request_of
from ansible_collections.gpushare.eks.plugins.module_utils._pool_names import SHARED_GPU, WHOLE_GPU
from ansible_collections.gpushare.eks.plugins.module_utils._quantity import MIB
from ansible_collections.gpushare.eks.plugins.module_utils._sharing_change import (
    Seen,
    Target,
    offered,
)
from ansible_collections.gpushare.eks.plugins.module_utils._sharing_configs import name_of

OTHER_POOL = (
    "taint and resource name differ between shared and whole GPUs, so that no pod can move from "
    "one to the other: make a pool of another name, move the workloads, and remove the old one"
)
Node = Mapping[str, Any]
Pod = Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    """What the caller asked for.

    derived: what derive() returned. configs: the plugin's configs as they are deployed, by name.
    pools: names of the pools to change.
    """

    derived: Mapping[str, Any]
    configs: Mapping[str, Mapping[str, Any]]
    pools: tuple[str, ...]

    @property
    def resource(self) -> str:
        return self.derived["resource"]

    def pool(self, node: Node) -> Mapping[str, Any] | None:
        """The derived pool of this node, if this run is about it."""
        name = _policy.pool_of(node)
        return next((one for one in self.derived["pools"] if one["name"] == name), None)

    def body(self, pool: str) -> Mapping[str, Any]:
        """The wanted config of a pool."""
        return self.derived["device_plugin_configs"][pool]

    def target(self, node: Node) -> Target:
        """What the node shall be. Raises InvalidInput for a type that its pool does not name."""
        pool, kind = self.pool(node), _type(node)
        predicted = pool["predicted_by_type"].get(kind)
        if predicted is None:
            raise InvalidInput(
                f"node {_name(node)}: pool {pool['name']} predicts nothing for its instance type "
                f"{kind}, only for: {', '.join(sorted(pool['predicted_by_type']))}",
                object=f"node {_name(node)}",
                remedy="name the type in the pool's instance_types, or replace the node",
                field="derived",
            )
        return Target(
            name_of(pool["name"], self.body(pool["name"])),
            predicted["gpu_resource"],
            predicted["gpu_count"],
            self.resource,
            predicted["gpu_memory_mib"],
        )

    def is_due(self, node: Node) -> bool:
        """Whether the node has another sharing than its pool, or a change is under way on it."""
        if not in_pools(self, node) or node["metadata"].get("deletionTimestamp"):
            return False
        seen = Seen(node)
        if seen.state is not None:
            return True
        target, wanted = self.target(node), self.body(_policy.pool_of(node))
        if seen.config == target.config:
            return False
        if self.configs.get(seen.config or "") != wanted:
            return True
        # The name is right now, but its plugin has read what it was before.
        now = offered(node, self.resource)
        now.pop(self.resource, None)
        return bool(now) and now != {target.gpu_resource: target.gpu_count}


def check(derived: Mapping[str, Any], pools: Iterable[str]) -> tuple[str, ...]:
    """The pools to change, by default all that share or could. Raises InvalidInput."""
    wanted = {"resource", "pools", "gpu_pools", "device_plugin_configs"}
    if missing := sorted(wanted - set(derived)):
        raise InvalidInput(
            f"derived has no {' and no '.join(missing)}",
            field="derived",
            remedy="give what the filter gpushare.eks.derive returns",
        )
    known, asked = derived["gpu_pools"], tuple(pools)
    for name in asked:
        if name not in known:
            raise InvalidInput(
                f"there is no GPU pool {name!r}; GPU pools: {', '.join(known) or 'none'}",
                object=f"pool {name}",
                remedy="name a pool of gpushare_pools that has `sharing`",
                field="pools",
            )
    return asked or tuple(known)


def in_pools(plan: Plan, node: Node) -> bool:
    """Whether the node is of a pool that this run is about."""
    return _policy.pool_of(node) in plan.pools


def holders(plan: Plan, node: Node, pods: Iterable[Pod]) -> list[Pod]:
    """The pods on this node that hold a part of its GPU and have not ended."""
    name = _name(node)
    return [
        pod
        for pod in pods
        if (pod.get("spec") or {}).get("nodeName") == name
        and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        and any(request_of(pod, one) for one in (plan.resource, SHARED_GPU, WHOLE_GPU))
    ]


def label(pod: Pod) -> str:
    """namespace/name."""
    return f"{pod['metadata'].get('namespace')}/{pod['metadata']['name']}"


def is_ready(node: Node) -> bool:
    """Whether the kubelet says that its node is Ready."""
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def order(plan: Plan, nodes: Iterable[Node], pods: list[Pod]) -> list[Node]:
    """A change under way first, then the node with the fewest pods; what is not Ready last."""

    def key(node: Node) -> tuple[bool, bool, int, str]:
        held = len(holders(plan, node, pods))
        return Seen(node).state is None, not is_ready(node), held, _name(node)

    return sorted(nodes, key=key)


def refuse_impossible(plan: Plan, nodes: Iterable[Node], pods: list[Pod]) -> None:
    """Refuse what the nodes' pods could not live with, with the numbers. Raises Conflict."""
    found: list[str] = []
    remedies: dict[str, None] = {}
    for node in nodes:
        pool = plan.pool(node)
        old = plan.configs.get(Seen(node).config or "")
        if old is not None and bool(old.get("sharing")) != (pool["kind"] == "shared"):
            was = "shared" if old.get("sharing") else "whole"
            found.append(f"node {_name(node)} of pool {pool['name']} has {was} GPUs")
            remedies[OTHER_POOL] = None
            continue
        predicted = pool["predicted_by_type"].get(_type(node)) or {"gpu_memory_mib": None}
        if predicted["gpu_memory_mib"] is None:
            continue
        most = _shares.limit_mib({**pool, "predicted_by_type": {_type(node): predicted}})
        for pod in holders(plan, node, pods):
            wanted = int(-(-request_of(pod, plan.resource) // MIB))
            if wanted > most:
                strategy = f"{pool['sharing']['strategy']} x {pool['sharing']['replicas']}"
                found.append(
                    f"pod {label(pod)} on node {_name(node)} asks for {wanted} MiB, pool "
                    f"{pool['name']} grants {most} MiB under {strategy}"
                )
                remedies[_fitting(predicted, wanted)] = None
    if found:
        remedy = "; ".join(remedies)
        raise Conflict(
            f"the change is impossible for what runs: {'; '.join(found)}",
            object=f"pools {', '.join(plan.pools)}",
            cause=f"{len(found)} of what runs could not run again",
            remedy=remedy,
        )


def _fitting(predicted: Mapping[str, Any], wanted: int) -> str:
    fit = _shares.mps_replicas_that_fit(predicted["gpu_total_mib"], wanted)
    offer = f"replicas: {fit} would fit; " if fit >= 2 else "no number of MPS replicas would fit; "
    return f"{offer}or give the pod a smaller gpu_memory, or move it to another pool, and run again"


def _name(node: Node) -> str:
    return node["metadata"]["name"]


def _type(node: Node) -> str:
    return (node["metadata"].get("labels") or {}).get(TYPE_LABEL, "")
