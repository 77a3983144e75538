# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What may be published on which node: one document, made of the pools, read by module and agent.

Pure and standard library only, Python 3.9: the agent in the cluster runs this same file.
The document: {"schema": 1, "resource", "pools": {name: {"headroom_mib", "multi_gpu", "types":
{instance type: {"predicted_mib", "hardware_mib", "gpus"}}}}}; only pools that publish are in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._names import POOL_LABEL, TYPE_LABEL
from ansible_collections.gpushare.eks.plugins.module_utils._refusals import Refusal

SCHEMA = 1


def document(resource: str, pools: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The policy of derived pools. `hardware_mib` is EC2's size of one GPU of the type."""
    found = {}
    for pool in pools:
        sharing = pool.get("sharing") or {}
        types = {
            name: {
                "predicted_mib": one["gpu_memory_mib"],
                "hardware_mib": one.get("hardware_mib"),
                "gpus": one.get("gpus") or 1,
            }
            for name, one in pool["predicted_by_type"].items()
            if one["gpu_memory_mib"] is not None
        }
        if types:
            found[pool["name"]] = {
                "headroom_mib": sharing.get("headroom_mib") or 0,
                "multi_gpu": sharing.get("multi_gpu") or "refuse",
                "types": types,
            }
    return {"schema": SCHEMA, "resource": resource, "pools": found}


def bounds(policy: Mapping[str, Any]) -> dict[str, str]:
    """{instance type: quantity}: more than this no node of the type can have."""
    sizes: dict[str, int] = {}
    for pool in policy["pools"].values():
        for name, one in pool["types"].items():
            if one["hardware_mib"] is not None:
                count = one["gpus"] if pool["multi_gpu"] == "sum" else 1
                sizes[name] = max(sizes.get(name, 0), one["hardware_mib"] * count)
    return {name: f"{size}Mi" for name, size in sorted(sizes.items())}


def pool_of(node: Mapping[str, Any]) -> str | None:
    """The pool that the node's label names."""
    return (node["metadata"].get("labels") or {}).get(POOL_LABEL)


def for_node(node: Mapping[str, Any], policy: Mapping[str, Any]) -> dict[str, Any]:
    """The policy of _capacity.decide for this node, as its pool and type say. Raises Refusal."""
    name, label = node["metadata"]["name"], pool_of(node)
    pool = policy["pools"].get(label)
    if pool is None:
        message = f"{name}: its label {POOL_LABEL}={label} names no pool that publishes"
        raise Refusal("POOL", message)
    kind = (node["metadata"].get("labels") or {}).get(TYPE_LABEL)
    one = pool["types"].get(kind)
    if one is None:
        allowed = ", ".join(sorted(pool["types"]))
        message = f"{name}: pool {label} predicts no gpu-memory for its instance type {kind}"
        raise Refusal("TYPE", f"{message}, only for: {allowed}")
    return {
        "resource": policy["resource"],
        "predicted_mib": one["predicted_mib"],
        "hardware_mib": one["hardware_mib"],
        "headroom_mib": pool["headroom_mib"],
        "multi_gpu": pool["multi_gpu"],
    }
