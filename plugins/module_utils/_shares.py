# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A workload's one number, `gpu_memory`, into everything that a pod template needs. Pure.

Memory is whole MiB (`_mib`), written as a Kubernetes quantity `<n>Mi`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils import _packing
from ansible_collections.gpushare.eks.plugins.module_utils._pool_names import (
    POOL_LABEL,
    SHARED_TAINT,
)
from ansible_collections.gpushare.eks.plugins.module_utils._quantity import MIB, parse_quantity

FRAMEWORKS = ("tensorflow", "pytorch", "vllm")
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,4})?)\s*%\Z", re.ASCII)


class ShareError(ValueError):
    """A share that cannot be had; the message names the number, the reason and what would fit."""


def mib(quantity: Any) -> int:
    """Whole MiB of a quantity such as 3Gi, 3072Mi or 3221225472 (bytes). Raises ShareError."""
    try:
        size = parse_quantity(quantity)
    except ValueError:
        raise ShareError(
            f"gpu_memory: {quantity!r} is not a quantity; write it as 3Gi, 3072Mi or 20%"
        ) from None
    if size <= 0:
        raise ShareError(f"gpu_memory: {quantity!r} is not above zero; write it as 3Gi or 3072Mi")
    if size.denominator != 1:
        raise ShareError(f"gpu_memory: {quantity!r} is a fraction of a byte; write it as 3072Mi")
    if size % MIB:
        near = int(size // MIB)
        offer = f"{near}Mi or {near + 1}Mi" if near else "1Mi"
        raise ShareError(f"gpu_memory: {quantity!r} is not whole MiB; {offer} would be")
    return int(size // MIB)


def format_mib(size: int) -> str:
    """The quantity of whole MiB, the one form that we write: `3072Mi`."""
    if isinstance(size, bool) or not isinstance(size, int) or size <= 0:
        raise ShareError(f"{size!r} is not a number of MiB above zero")
    return f"{size}Mi"


def how_many_fit(usable_mib: int, request_mib: int) -> int:
    """How many requests one GPU holds."""
    if request_mib <= 0:
        raise ShareError(f"a request of {request_mib} MiB is not above zero")
    return max(usable_mib, 0) // request_mib


def mps_replicas_that_fit(total_mib: int, request_mib: int) -> int:
    """The most MPS replicas whose equal share, floor(total / replicas), still holds the request."""
    return how_many_fit(total_mib, request_mib)


def workload(
    gpu_memory: Any,
    *,
    derived: Mapping[str, Any],
    pool: str | None = None,
    gpu_compute_percent: int | None = None,
    framework: str | None = None,
    replicas: int | None = None,
) -> dict[str, Any]:
    """Resources, environment, tolerations and selector of one container's share.

    gpu_memory: a quantity, or `20%` of one GPU of the pool. derived: what derive() returned.
    Returns {"gpu_memory_mib", "resources": {"limits", "requests"}, "env", "tolerations",
    "node_selector", "framework"}; without a pool the pod tolerates every shared pool.
    replicas: so many pods with this share have to fit on the pools at their max_size.
    """
    pools = _candidates(derived, pool)
    size = _size(gpu_memory, pools)
    fitting = _fitting(size, pools, named=pool is not None)
    if replicas is not None:
        _check_replicas(size, replicas, fitting)
    mps = [item for item in fitting if item["sharing"]["strategy"] == "mps"]
    env = []
    if mps:
        env.append({"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": f"0={size}M"})
    if gpu_compute_percent is not None:
        _check_percent(gpu_compute_percent, fitting, mps)
        value = str(gpu_compute_percent)
        env.append({"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": value})
    amounts = {
        derived["resource"]: format_mib(size),
        # The plugin injects the device for this one; the scheduler counts the other.
        fitting[0]["predicted"]["gpu_resource"]: 1,
    }
    return {
        "gpu_memory_mib": size,
        "resources": {"limits": dict(amounts), "requests": dict(amounts)},
        "env": env,
        "tolerations": tolerations(None if pool is None else fitting[0]),
        "node_selector": {} if pool is None else {POOL_LABEL: pool},
        "framework": _framework(framework, size, fitting),
    }


def tolerations(pool: Mapping[str, Any] | None) -> list[dict[str, str]]:
    """What a pod of this pool tolerates; without a pool, every shared pool's own taint."""
    shared: dict[str, str] = {"key": SHARED_TAINT, "operator": "Exists", "effect": "NoSchedule"}
    if pool is None:
        return [shared]
    shared.update(operator="Equal", value=pool["name"])
    extra = [
        {"key": taint["key"], "operator": "Exists", "effect": taint["effect"]}
        for taint in pool["taints"]
        if taint["key"] != SHARED_TAINT
    ]
    return [shared, *extra]


def _candidates(derived: Mapping[str, Any], name: str | None) -> list[Mapping[str, Any]]:
    """The pools that publish gpu-memory, or the one that is named."""
    having = [pool for pool in derived["pools"] if pool["predicted"]["gpu_memory_mib"]]
    allowed = ", ".join(pool["name"] for pool in having) or "none; give a pool gpu_memory: true"
    if name is None:
        if not having:
            raise ShareError(f"gpu_memory: no pool publishes it; pools that do: {allowed}")
        return having
    if name not in [pool["name"] for pool in derived["pools"]]:
        raise ShareError(f"pool: there is no pool {name!r}; pools with gpu_memory: {allowed}")
    found = [pool for pool in having if pool["name"] == name]
    if not found:
        raise ShareError(f"pool: {name} does not share by memory; pools that do: {allowed}")
    return found


def _size(gpu_memory: Any, pools: list[Mapping[str, Any]]) -> int:
    """MiB of the request; a percentage is of one GPU of the pools, which then must be alike."""
    match = _PERCENT.match(gpu_memory.strip()) if isinstance(gpu_memory, str) else None
    if match is None:
        return mib(gpu_memory)
    percent = Fraction(match.group(1))
    if not 0 < percent <= 100:
        raise ShareError(f"gpu_memory: {gpu_memory!r} is outside 0-100 %")
    sizes = {one_gpu_mib(pool) for pool in pools}
    if len(sizes) > 1:
        raise ShareError(
            f"gpu_memory: {gpu_memory!r} of which GPU? The pools have {_join(sizes)} MiB; name one"
        )
    size = int(sizes.pop() * percent / 100)
    if size < 1:
        raise ShareError(f"gpu_memory: {gpu_memory!r} is less than 1 MiB")
    return size


def one_gpu_mib(pool: Mapping[str, Any]) -> int:
    """Published MiB of one GPU of the pool (its smallest type); a pod can never have more."""
    each = pool["predicted_by_type"].values()
    return min(predicted["gpu_memory_mib"] // predicted["gpus"] for predicted in each)


def grant_mib(predicted: Mapping[str, Any]) -> int:
    """The most that one pod gets on a node of this type; under MPS the daemon's equal share."""
    each = predicted["gpu_memory_mib"] // predicted["gpus"]
    share = predicted["mps_share_mib"]
    return each if share is None else min(each, share)


def limit_mib(pool: Mapping[str, Any]) -> int:
    """The largest request that a node of the pool can grant."""
    return max(grant_mib(predicted) for predicted in pool["predicted_by_type"].values())


def _is_trap(size: int, pool: Mapping[str, Any]) -> bool:
    """Whether a node has the memory, so that the scheduler may choose it, but grants a pod less."""
    each = pool["predicted_by_type"].values()
    return any(grant_mib(predicted) < size <= predicted["gpu_memory_mib"] for predicted in each)


def _fitting(size: int, pools: list[Mapping[str, Any]], *, named: bool) -> list[Mapping[str, Any]]:
    """The pools whose nodes can hold the request, if no other one would take it and fail."""
    traps = [pool for pool in pools if _is_trap(size, pool)]
    fitting = [pool for pool in pools if size <= limit_mib(pool) and pool not in traps]
    if fitting and not traps:
        return fitting
    told = "; ".join(_told(size, pool) for pool in traps or pools)
    if fitting and not named:
        names = ", ".join(pool["name"] for pool in fitting)
        raise ShareError(
            f"gpu_memory: {format_mib(size)} could land on a pool that grants less: {told}; "
            f"name one of the pools that fit: {names}"
        )
    raise ShareError(f"gpu_memory: {format_mib(size)} does not fit: {told}")


def _check_replicas(size: int, replicas: Any, fitting: list[Mapping[str, Any]]) -> None:
    if isinstance(replicas, bool) or not isinstance(replicas, int) or replicas < 0:
        raise ShareError(f"replicas: {replicas!r} is not a whole number from 0")
    refused = _packing.refusal(size, replicas, fitting)
    if refused:
        raise ShareError(f"gpu_memory: {refused}")


def _told(size: int, pool: Mapping[str, Any]) -> str:
    name, sharing = pool["name"], pool["sharing"]
    each = list(pool["predicted_by_type"].values())
    if sharing["strategy"] != "mps" or not _is_trap(size, pool):
        return f"pool {name} has {format_mib(limit_mib(pool))} on a GPU"
    fit = mps_replicas_that_fit(min(predicted["gpu_total_mib"] for predicted in each), size)
    remedy = f"replicas: {fit} would fit" if fit >= 2 else "no number of MPS replicas would fit"
    least = min(grant_mib(predicted) for predicted in each)
    return f"pool {name} grants {format_mib(least)} under MPS x {sharing['replicas']}, {remedy}"


def _check_percent(
    percent: Any, fitting: list[Mapping[str, Any]], mps: list[Mapping[str, Any]]
) -> None:
    """A share of the compute exists under MPS alone, and never above the daemon's equal share."""
    if isinstance(percent, bool) or not isinstance(percent, int) or percent < 1:
        raise ShareError(f"gpu_compute_percent: {percent!r} is not a whole number from 1")
    if len(mps) < len(fitting):
        names = ", ".join(pool["name"] for pool in mps) or "none"
        raise ShareError(
            f"gpu_compute_percent: {percent}: only an MPS pool limits compute; name one: {names}"
        )
    for pool in mps:
        limit = compute_limit(pool)
        if percent > limit:
            fit = 100 // percent
            remedy = f"replicas: {fit} would fit" if fit >= 2 else "no number of replicas would fit"
            raise ShareError(
                f"gpu_compute_percent: {percent} is above the {limit} that pool {pool['name']} "
                f"grants under MPS x {pool['sharing']['replicas']}; {remedy}"
            )


def compute_limit(pool: Mapping[str, Any]) -> int:
    """The percent of the compute that the daemon grants each client of an MPS pool."""
    return 100 // pool["sharing"]["replicas"]


def _framework(name: str | None, size: int, pools: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The framework's own knob as data; fractions are of the largest GPU the pod may meet."""
    if name is None:
        return {}
    if name not in FRAMEWORKS:
        raise ShareError(f"framework: {name!r} is unknown; allowed: {', '.join(FRAMEWORKS)}")
    if name == "tensorflow":
        return {"name": name, "memory_limit_mib": size}
    totals = [
        each["gpu_total_mib"] for pool in pools for each in pool["predicted_by_type"].values()
    ]
    # Rounded down: a framework may take less than its share, never more.
    fraction = int(Fraction(size, max(totals)) * 10000) / 10000
    key = "per_process_memory_fraction" if name == "pytorch" else "gpu_memory_utilization"
    return {"name": name, key: fraction}


def _join(sizes: set[int]) -> str:
    return " and ".join(str(size) for size in sorted(sizes))
