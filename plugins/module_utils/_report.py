# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who has which part of which GPU: the fleet as data (schema 1) and as a table for a person. Pure.

Memory is whole MiB (`_mib`); an unknown number is None, never 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils import _usage
from ansible_collections.gpushare.eks.plugins.module_utils._names import TYPE_LABEL
from ansible_collections.gpushare.eks.plugins.module_utils._pod_requests import request_of
from ansible_collections.gpushare.eks.plugins.module_utils._pool_names import (
    POOL_LABEL,
    SHARED_GPU,
    WHOLE_GPU,
)
from ansible_collections.gpushare.eks.plugins.module_utils._process_readings import pod_names
from ansible_collections.gpushare.eks.plugins.module_utils._quantity import MIB, parse_quantity

Pod = Mapping[str, Any]


def report(
    cluster: str,
    resource: str,
    derived: Mapping[str, Any],
    nodes: Iterable[Mapping[str, Any]],
    pods: Iterable[Pod],
    readings: Iterable[Mapping[str, Any]],
) -> dict[str, Any]:
    """The report of schema 1. nodes and pods: Kubernetes JSON; readings: of gpu_capacity_info.

    Of the pods those that ask for gpu-memory or a GPU are listed, and where processes were read
    those that use a GPU; the nodes all, by pool.
    """
    by_node: dict[str, list[Pod]] = defaultdict(list)
    waiting = []
    pods = list(pods)
    named = pod_names(pods)
    found = {reading["instance_id"]: _read(reading, named) for reading in readings}
    users = {
        one["pod"]
        for row in found.values()
        for one in (row["processes"] or {"entries": []})["entries"]
    }
    for pod in pods:
        if _finished(pod) or not (_asks(pod, resource) or "/".join(_identity(pod)) in users):
            continue
        node = (pod.get("spec") or {}).get("nodeName")
        if node:
            by_node[node].append(pod)
        else:
            waiting.append(pod)
    order = {pool["name"]: place for place, pool in enumerate(derived["pools"])}
    predictions = {pool["name"]: pool.get("predicted_by_type") or {} for pool in derived["pools"]}
    rows = [
        {**_node(node, resource, found, by_node), **_offers(node, predictions)} for node in nodes
    ]
    return {
        "schema": 1,
        "cluster": cluster,
        "resource": resource,
        "nodes": sorted(rows, key=lambda row: (order.get(row["pool"], len(order)), row["name"])),
        "pending": [_pending(pod, resource) for pod in sorted(waiting, key=_identity)],
    }


def _identity(pod: Pod) -> tuple[str, str]:
    return pod["metadata"].get("namespace") or "", pod["metadata"]["name"]


def _asks(pod: Pod, resource: str) -> bool:
    return any(request_of(pod, name) > 0 for name in (resource, WHOLE_GPU, SHARED_GPU))


def _finished(pod: Pod) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _gpus(reading: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The GPUs of one reading; usable is total - reserved where NVML gave both."""
    found = []
    for gpu in reading.get("gpus") or []:
        total, reserved = gpu.get("total_mib"), gpu.get("reserved_mib")
        known = total is not None and reserved is not None
        found.append(
            {
                "uuid": gpu.get("uuid"),
                "name": gpu.get("name"),
                "total_mib": total,
                "reserved_mib": reserved,
                "usable_mib": total - reserved if known else None,
                "used_mib": gpu.get("used_mib"),
                "index": gpu.get("index"),
                "mig": gpu.get("mig"),
            }
        )
    return found


def _read(reading: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """What was read of one node."""
    head = reading.get("reading") or {}
    return {
        "gpus": _gpus(reading),
        "driver": head.get("driver"),
        "cuda": head.get("cuda"),
        "processes": _usage.processes(reading, names),
    }


_NOTHING = {"gpus": [], "driver": None, "cuda": None, "processes": None}


def _amount(part: Mapping[str, Any] | None, resource: str) -> int | None:
    """Whole MiB of a resource in capacity or allocatable; None where it is not published."""
    text = (part or {}).get(resource)
    return None if text is None else int(parse_quantity(text) // MIB)


def _node(
    node: Mapping[str, Any],
    resource: str,
    found: Mapping[str, Mapping[str, Any]],
    by_node: Mapping[str, list[Pod]],
) -> dict[str, Any]:
    metadata, status = node["metadata"], node.get("status") or {}
    labels = metadata.get("labels") or {}
    provider = (node.get("spec") or {}).get("providerID") or ""
    instance = provider.rpartition("/")[2] or None
    seen = found.get(instance or "", _NOTHING)
    allocatable = _amount(status.get("allocatable"), resource)
    mine = sorted(by_node.get(metadata["name"], []), key=_identity)
    # The scheduler rounds nothing: neither is a sum of pods rounded before it is complete.
    requested = sum((request_of(pod, resource) for pod in mine), Fraction(0))
    requested_mib = int(-(-requested // MIB))
    return {
        "name": metadata["name"],
        "pool": labels.get(POOL_LABEL),
        "instance_id": instance,
        "instance_type": labels.get("node.kubernetes.io/instance-type"),
        "zone": labels.get("topology.kubernetes.io/zone"),
        **seen,
        "capacity_mib": _amount(status.get("capacity"), resource),
        "allocatable_mib": allocatable,
        "requested_mib": requested_mib,
        "free_mib": None if allocatable is None else allocatable - requested_mib,
        "price_per_hour": None,
        "pods": [_pod(pod, resource, seen["processes"]) for pod in mine],
    }


def _pod(pod: Pod, resource: str, processes: Mapping[str, Any] | None) -> dict[str, Any]:
    number = _pod_mib(pod, resource)
    used = _usage.of_pod(processes, "/".join(_identity(pod)))
    whole = number is None and _asks(pod, resource)
    return {
        **_named(pod),
        "phase": (pod.get("status") or {}).get("phase"),
        "gpu_memory_mib": number,
        "used_mib": used,
        "above": _usage.above(used, number, whole=whole),
    }


def _offers(node: Mapping[str, Any], predictions: Mapping[str, Any]) -> dict[str, Any]:
    """GPUs or shares of them that a node offers, and what its pool predicts for its type."""
    labels = node["metadata"].get("labels") or {}
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    counts = {
        name: int(parse_quantity(allocatable.get(name, 0))) for name in (WHOLE_GPU, SHARED_GPU)
    }
    predicted = predictions.get(labels.get(POOL_LABEL), {}).get(labels.get(TYPE_LABEL))
    keys = ("gpu_memory_mib", "gpu_resource", "gpu_count")
    return {
        "gpu_resources": {name: count for name, count in counts.items() if count},
        "predicted": None if predicted is None else {key: predicted[key] for key in keys},
    }


def _named(pod: Pod) -> dict[str, Any]:
    namespace, name = _identity(pod)
    return {"namespace": namespace, "name": name}


def _pod_mib(pod: Pod, resource: str) -> int | None:
    """Whole MiB that the pod takes off its node; None for a pod of whole GPUs."""
    wanted = request_of(pod, resource)
    return int(-(-wanted // MIB)) if wanted else None


def _pending(pod: Pod, resource: str) -> dict[str, Any]:
    return {
        **_named(pod),
        "gpu_memory_mib": _pod_mib(pod, resource),
        "reason": _reason(pod),
    }


def _reason(pod: Pod) -> str:
    """What the scheduler says about a pod without a node."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return condition.get("message") or condition.get("reason") or "not scheduled"
    if spec.get("schedulingGates"):
        gates = ", ".join(gate["name"] for gate in spec["schedulingGates"])
        return f"held by the scheduling gates {gates}"
    return "the scheduler has not looked at it yet"


_COLUMNS = (
    *("NODE", "POOL", "TYPE", "GPU"),
    *("USABLE", "PUBLISHED", "ALLOCATABLE", "REQUESTED", "FREE"),
)
# From here on columns hold numbers and stand at their right edge.
_NUMBERS = 4


def table(data: Mapping[str, Any]) -> str:
    """The report as plain text: a line per node, its pods below it, what is pending at the end."""
    cells = [(_COLUMNS, [])] + [(_cells(node), node["pods"]) for node in data["nodes"]]
    widths = [max(len(row[column]) for row, _pods in cells) for column in range(len(_COLUMNS))]
    lines = [f"{data['cluster']}: {data['resource']} in MiB"]
    for row, pods in cells:
        padded = [
            text.ljust(width) if column < _NUMBERS else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
        lines += _pod_lines(pods)
    if not data["nodes"]:
        lines.append("no nodes")
    if data["pending"]:
        lines.append("PENDING")
        for pod in data["pending"]:
            size = _text(pod["gpu_memory_mib"])
            lines.append(f"  {pod['namespace']}/{pod['name']}  {size}  {pod['reason']}")
    return "\n".join(lines)


def _pod_lines(pods: list[dict[str, Any]]) -> list[str]:
    """A line for each pod; what it uses is told where anybody's use is known."""
    known = any(pod["used_mib"] is not None for pod in pods)
    names = [f"{pod['namespace']}/{pod['name']}" for pod in pods]
    width = max(map(len, names), default=0)
    sizes = [_text(pod["gpu_memory_mib"]) for pod in pods]
    digits = max(map(len, sizes), default=0)
    uses = [f"  uses {_text(pod['used_mib'])}" if known else "" for pod in pods]
    longest = max(map(len, uses), default=0)
    return [
        f"    {name.ljust(width)}  {size.rjust(digits)}{use.ljust(longest)}  {pod['phase'] or '-'}"
        + (f"  ABOVE by {pod['used_mib'] - (pod['gpu_memory_mib'] or 0)}" if pod["above"] else "")
        for name, size, use, pod in zip(names, sizes, uses, pods, strict=True)
    ]


def _text(value: Any) -> str:
    return "-" if value is None else str(value)


def _cells(node: Mapping[str, Any]) -> tuple[str, ...]:
    gpus = node["gpus"]
    names = sorted({gpu["name"] or "?" for gpu in gpus})
    gpu = (f"{len(gpus)} x " if len(gpus) > 1 else "") + ", ".join(names)
    usable = [item["usable_mib"] for item in gpus]
    total = sum(usable) if usable and None not in usable else None
    numbers = (node["capacity_mib"], node["allocatable_mib"], node["requested_mib"])
    requested_known = node["allocatable_mib"] is not None or node["requested_mib"]
    return (
        node["name"],
        _text(node["pool"]),
        _text(node["instance_type"]),
        gpu or "-",
        _text(total),
        _text(numbers[0]),
        _text(numbers[1]),
        _text(numbers[2]) if requested_known else "-",
        _text(node["free_mib"]),
    )
