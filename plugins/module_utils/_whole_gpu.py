# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A pod that has whole GPUs for itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._pool_names import WHOLE_GPU
from ansible_collections.gpushare.eks.plugins.module_utils._shares import ShareError


def whole_gpu(derived: Mapping[str, Any], pool: str | None = None, gpus: Any = 1) -> dict[str, Any]:
    """Resources, tolerations and affinity of a container with `gpus` whole GPUs.

    Without a pool any exclusive one whose nodes have that many. Returns {"resources": {"limits",
    "requests"}, "tolerations", "affinity", "pools"}. Raises ShareError.
    """
    if isinstance(gpus, bool) or not isinstance(gpus, int) or gpus < 1:
        raise ShareError(f"gpus: {gpus!r} is not a whole number from 1")
    exclusive = [one for one in derived["pools"] if one["kind"] == "exclusive"]
    allowed = ", ".join(one["name"] for one in exclusive)
    remedy = f"exclusive pools: {allowed or 'none; give a pool sharing: {strategy: exclusive}'}"
    found = [one for one in exclusive if pool in (None, one["name"])]
    if not found:
        what = "no pool offers whole GPUs" if pool is None else f"{pool} does not offer whole GPUs"
        raise ShareError(f"pool: {what}; {remedy}")
    most = max(_gpus(one) for one in found)
    found = [one for one in found if _gpus(one) >= gpus]
    if not found:
        raise ShareError(f"gpus: {gpus} are more than a node has; {most} would fit; {remedy}")
    pairs = dict.fromkeys((t["key"], t["effect"]) for one in found for t in one["taints"])
    names = [one["name"] for one in found]
    term = {"key": derived["names"]["pool_label"], "operator": "In", "values": names}
    required = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
    return {
        "resources": {"limits": {WHOLE_GPU: gpus}, "requests": {WHOLE_GPU: gpus}},
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": effect} for key, effect in pairs
        ],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        "pools": names,
    }


def _gpus(pool: Mapping[str, Any]) -> int:
    """How many whole GPUs the pool's smallest node offers."""
    return min(predicted["gpu_count"] for predicted in pool["predicted_by_type"].values())
