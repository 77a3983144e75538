# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which pods prove that a GPU is shared. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils import _shares


def plan(
    gpu_memory: Any, *, derived: Mapping[str, Any], pods: Any = 3, pool: str | None = None
) -> dict[str, Any]:
    """Which pods on which pool; without a name the first MPS pool, else the first that publishes.

    -> {"pool", "strategy", "pods", "over_allocator", "total", "workload"}: `pods` hold their share,
    on an MPS pool one more asks for more than it has. Raises ShareError with what would fit.
    """
    if isinstance(pods, bool) or not isinstance(pods, int) or pods < 2:
        raise _shares.ShareError(f"pods: {pods!r} is not a whole number from 2; one shares nothing")
    chosen = _choose(derived, pool)
    work = _shares.workload(gpu_memory, derived=derived, pool=chosen["name"])
    # A list: of Ansible's lazy mappings the values come once.
    each = list(chosen["predicted_by_type"].values())
    if any(predicted["gpus"] != 1 for predicted in each):
        raise _shares.ShareError(
            f"pool: nodes of {chosen['name']} have several GPUs, and the plugin chooses among "
            "them; name a pool whose types have one"
        )
    over = chosen["sharing"]["strategy"] == "mps"
    total = pods + over
    fit = min(
        _shares.how_many_fit(_shares.one_gpu_mib(chosen), work["gpu_memory_mib"]),
        *(predicted["gpu_count"] for predicted in each),
    )
    if total > fit:
        beside = " and the one that asks for too much" if over else ""
        raise _shares.ShareError(
            f"pods: {pods}{beside} of {_shares.format_mib(work['gpu_memory_mib'])} do not fit on "
            f"one GPU of pool {chosen['name']}; {fit - over} would fit"
        )
    return {
        "pool": chosen["name"],
        "strategy": chosen["sharing"]["strategy"],
        "pods": pods,
        "over_allocator": over,
        "total": total,
        "workload": work,
    }


def _choose(derived: Mapping[str, Any], name: str | None) -> Mapping[str, Any]:
    having = [pool for pool in derived["pools"] if pool["predicted"]["gpu_memory_mib"]]
    allowed = ", ".join(pool["name"] for pool in having) or "none; give a pool gpu_memory: true"
    if name is None:
        # Only MPS holds a pod to its share: such a pool proves more.
        having.sort(key=lambda pool: pool["sharing"]["strategy"] != "mps")
    else:
        having = [pool for pool in having if pool["name"] == name]
    if not having:
        raise _shares.ShareError(
            f"pool: {name or 'no pool'} does not share by memory; pools that do: {allowed}"
        )
    return having[0]
