# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How many equal shares pools hold when they are as large as they may become. Pure.

Memory is whole MiB (`_mib`). A share lies on one GPU: what is left on two is not added up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def shares_of_node(size_mib: int, predicted: Mapping[str, Any], max_pods: int) -> int:
    """Shares of `size_mib` on one node: by memory of each GPU, replicas, and pods of the node."""
    gpus = predicted["gpus"]
    by_memory = predicted["gpu_memory_mib"] // gpus // size_mib * gpus
    return min(by_memory, predicted["gpu_count"], max_pods)


def most_shares(size_mib: int, pool: Mapping[str, Any]) -> int | None:
    """Shares of `size_mib` on all nodes of a pool at its max_size, of its largest type.

    None as long as nobody knows how many zones have a group of the pool.
    """
    groups = 1 if pool["zones"] == "spread" else len(pool["node_groups"])
    if not groups:
        return None
    each = pool["predicted_by_type"].values()
    return (
        pool["max_size"]
        * groups
        * max(shares_of_node(size_mib, predicted, pool["max_pods"]) for predicted in each)
    )


def refusal(size_mib: int, replicas: int, pools: list[Mapping[str, Any]]) -> str | None:
    """Why so many shares do not fit, with the numbers that would; None where they may."""
    held = [most_shares(size_mib, pool) for pool in pools]
    total = sum(count or 0 for count in held)
    if None in held or replicas <= total:
        return None
    told = "; ".join(
        f"pool {pool['name']} holds {count} at {_nodes(pool)}"
        for pool, count in zip(pools, held, strict=True)
    )
    remedies = [f"replicas: {total} would fit"] if total else []
    smaller = _largest_size(replicas, size_mib, pools)
    if smaller:
        remedies.append(f"gpu_memory: {smaller}Mi would fit")
    for pool, count in zip(pools, held, strict=True):
        if count:
            size = -(-(replicas - total + count) // (count // pool["max_size"]))
            remedies.append(f"max_size: {size} of pool {pool['name']} would fit")
            break
    return f"{replicas} times {size_mib}Mi is more than there is: {told}; {', or '.join(remedies)}"


def _nodes(pool: Mapping[str, Any]) -> str:
    groups = len(pool["node_groups"])
    zones = f" in each of {groups} zones" if groups > 1 else ""
    return f"max_size {pool['max_size']}{zones}"


def _largest_size(replicas: int, size_mib: int, pools: list[Mapping[str, Any]]) -> int:
    """The largest share of which `replicas` fit; 0 where replicas or pods are the limit."""

    def fits(size: int) -> bool:
        return sum(most_shares(size, pool) or 0 for pool in pools) >= replicas

    if not fits(1):
        return 0
    low, high = 1, size_mib
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
