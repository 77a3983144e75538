# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who uses a node's GPU memory: NVML's processes joined to pods, and nvidia-smi's view. Pure.

Memory is whole MiB (`_mib`); an unknown number is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def processes(reading: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any] | None:
    """The processes of one row of gpu_capacity_info, each with its pod; None where none were read.

    names: {pod UID: "namespace/name"}. Returns {"count", "used_mib", "truncated", "error": message
    or None, "entries": [{"gpu", "pid", "used_mib", "pod": "namespace/name" or None}]}.
    """
    found = reading.get("processes")
    if not found:
        return None
    entries = [
        {
            "gpu": one["gpu"],
            "pid": one["pid"],
            "used_mib": one["used_mib"],
            "pod": names.get(one["pod_uid"]) or one.get("pod"),
        }
        for one in found["entries"]
    ]
    error = found.get("error")
    return {
        **{key: found[key] for key in ("count", "used_mib", "truncated")},
        "error": error and error["message"],
        "entries": entries,
    }


def of_pod(found: Mapping[str, Any] | None, name: str) -> int | None:
    """What the pod namespace/name uses by NVML, over all its processes; None where nobody knows."""
    if found is None or found["count"] is None:
        return None
    mine = [one["used_mib"] for one in found["entries"] if one["pod"] == name]
    if None in mine or (not mine and (found["truncated"] or found["error"])):
        return None
    return sum(mine)


def above(used_mib: int | None, gpu_memory_mib: int | None, *, whole: bool) -> bool | None:
    """Whether a pod uses more than its number; None where nobody knows.

    whole: the pod has a whole GPU, or asks in shares and not by memory: it has no number.
    """
    if used_mib is None or whole:
        return None
    return used_mib > (gpu_memory_mib or 0)


def smi(data: Mapping[str, Any]) -> str:
    """The report as nvidia-smi shows a node: its GPUs, and below them who uses their memory."""
    lines = []
    for node in data["nodes"]:
        if not node["gpus"] and node["processes"] is None:
            continue
        driver = f"driver {node['driver'] or '?'}, CUDA {node['cuda'] or '?'}"
        lines.append(f"{node['name']} ({node['instance_id']}, {node['instance_type']}): {driver}")
        for gpu in node["gpus"]:
            used, total = _text(gpu["used_mib"]), _text(gpu["total_mib"])
            name = f"GPU {gpu['index']}  {gpu['name'] or '?'}  {gpu['uuid'] or '?'}"
            mig = "  MIG" if gpu["mig"] else ""
            lines.append(f"  {name}  {used} / {total} MiB{mig}")
        lines += _process_lines(node["processes"])
    return "\n".join(lines) or "no GPU was read"


def _process_lines(found: Mapping[str, Any] | None) -> list[str]:
    if found is None:
        return ["  processes were not read"]
    lines = [f"  processes cannot be read: {found['error']}"] if found["error"] else []
    if found["count"] == 0 and not found["error"]:
        return ["  no process"]
    rows = [
        (str(one["gpu"]), str(one["pid"]), _text(one["used_mib"]), one["pod"] or "(no pod)")
        for one in found["entries"]
    ]
    rows = [("GPU", "PID", "MiB", "POD"), *rows] if rows else []
    widths = [max(len(row[column]) for row in rows) for column in range(3)] if rows else []
    for row in rows:
        cells = [text.rjust(width) for text, width in zip(row, widths, strict=False)]
        lines.append("  " + "  ".join([*cells, row[3]]))
    if found["truncated"]:
        lines.append(f"  and {found['count'] - len(found['entries'])} more")
    return lines


def _text(value: Any) -> str:
    return "-" if value is None else str(value)
