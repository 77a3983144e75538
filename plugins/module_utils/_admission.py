# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the admission policies compare a pod with: the numbers of derived pools. Pure.

Memory is whole MiB (`_mib`). The policies are CEL in the role device_plugin; they decide from these
numbers as _shares.workload does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils import _shares


def admission(derived: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers of the policies about pods. derived: what derive() returned, whose names they use.

    Returns {"memory_pools": {name: {"limit_mib": the most that a container gets, "types":
    [[grant_mib, node_mib], ...], "mps", "compute_percent", "tolerations"}}, "fits": the same as a
    text for people, "tolerations", "shared_pools", "exclusive_pools"}.
    """
    pools = derived["pools"]
    memory = {pool["name"]: _numbers(pool) for pool in pools if pool["predicted"]["gpu_memory_mib"]}
    return {
        "memory_pools": memory,
        "fits": ", ".join(f"{name} {one['limit_mib']}Mi" for name, one in memory.items()),
        "tolerations": _shares.tolerations(None),
        "shared_pools": [pool["name"] for pool in pools if pool["kind"] == "shared"],
        "exclusive_pools": [pool["name"] for pool in pools if pool["kind"] == "exclusive"],
    }


def _numbers(pool: Mapping[str, Any]) -> dict[str, Any]:
    mps = pool["sharing"]["strategy"] == "mps"
    each = pool["predicted_by_type"].values()
    types = [[_shares.grant_mib(one), one["gpu_memory_mib"]] for one in each]
    return {
        "limit_mib": _shares.limit_mib(pool),
        "types": [list(pair) for pair in dict.fromkeys(tuple(pair) for pair in types)],
        "mps": mps,
        "compute_percent": _shares.compute_limit(pool) if mps else 0,
        "tolerations": _shares.tolerations(pool),
    }
