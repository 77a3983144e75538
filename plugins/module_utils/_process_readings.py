# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a node says of the processes on its GPUs: parsed strictly, joined to pods by UID. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils import _readings
from ansible_collections.gpushare.eks.plugins.module_utils._readings import HIGHEST_MIB, Refused
from ansible_collections.gpushare.eks.plugins.module_utils._ssm import Outcome
from ansible_collections.gpushare.eks.plugins.module_utils.nvml_probe import MOST_ROWS, unpack

_POD = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")
_CONTAINER = re.compile(r"[0-9a-f]{13}|[0-9a-f]{64}")
_HIGHEST_PID = 2**22  # PID_MAX_LIMIT of Linux
_MOST = 1_000_000
# The UID under which the kubelet runs a static pod; the API server's Pod has another one.
_MANIFEST_HASH = "kubernetes.io/config.hash"
NOTHING = {"count": None, "used_mib": None, "truncated": None, "entries": []}


def of_node(
    outcome: Outcome,
    *,
    instance_id: str,
    hardware: Mapping[str, int] | None,
    names: Mapping[str, str],
) -> dict[str, Any]:
    """One node's answer as gpu_capacity_info returns it; what cannot be used is its `error`."""
    if outcome.outcome != "Success":
        return {**NOTHING, "error": outcome.error}
    try:
        answer = parse(outcome.output, instance_id=instance_id, hardware=hardware)
    except Refused as refused:
        return {**NOTHING, "error": _readings.error(refused.type, str(refused))}
    entries = [{**row, "pod": names.get(row["pod_uid"])} for row in answer.pop("entries")]
    return {**answer, "entries": entries}


def parse(output: str, *, instance_id: str, hardware: Mapping[str, int] | None) -> dict[str, Any]:
    """The line of the processes document -> {"count", "used_mib", "truncated", "entries", "error"}.

    entries: the largest first, {"gpu", "pid", "used_mib", "pod_uid", "container_id"}. Or Refused.
    """
    raw = _readings.loads(output)
    _readings.head(raw, instance_id)
    whole = _readings.probe_error(raw.get("error"))
    if whole:
        return {**NOTHING, "error": _readings.error(whole["type"], whole["message"])}
    if not isinstance(raw.get("truncated"), bool):
        raise Refused("MALFORMED", "truncated is neither true nor false")
    rows = _rows(raw.get("processes"))
    entries = [_entry(row, hardware) for row in rows]
    count = _readings.number(raw, "count", _MOST)
    if count is None or count < len(rows) or raw["truncated"] is not (count > len(rows)):
        claim = f"{len(rows)} processes stand there, {count} are counted"
        raise Refused("MALFORMED", f"{claim}, truncated is {raw['truncated']}")
    return {
        "count": count,
        "used_mib": _readings.number(raw, "used_mib", HIGHEST_MIB * MOST_ROWS),
        "truncated": raw["truncated"],
        "entries": entries,
        "error": _lost(raw),
    }


def _rows(packed: Any) -> list[dict[str, Any]]:
    if packed == []:
        return []
    try:
        return unpack(packed)
    except (ValueError, TypeError):
        raise Refused("MALFORMED", "processes are not as the probe writes them") from None


def _entry(row: Mapping[str, Any], hardware: Mapping[str, int] | None) -> dict[str, Any]:
    entry = {
        "gpu": _readings.number(row, "gpu", MOST_ROWS - 1),
        "pid": _readings.number(row, "pid", _HIGHEST_PID),
        "used_mib": _readings.number(row, "used_mib", HIGHEST_MIB),
        "pod_uid": _readings.text(row, "pod", _POD),
        "container_id": _readings.text(row, "container", _CONTAINER),
    }
    if entry["gpu"] is None or entry["pid"] is None:
        raise Refused("MALFORMED", "a process without GPU or PID")
    most = hardware["gpu_memory_mib"] * _readings.TOTAL_FACTOR if hardware else HIGHEST_MIB
    if (entry["used_mib"] or 0) > most:
        claim = f"PID {entry['pid']} claims {entry['used_mib']} MiB"
        raise Refused("IMPLAUSIBLE", f"{claim}; EC2 says {hardware['gpu_memory_mib']} MiB")
    return entry


def _lost(raw: Mapping[str, Any]) -> dict[str, str] | None:
    """The GPUs whose processes NVML did not tell."""
    lost = raw.get("gpu_errors")
    if not isinstance(lost, list) or len(lost) > MOST_ROWS:
        raise Refused("MALFORMED", "gpu_errors is no list")
    told = []
    for one in lost:
        if not isinstance(one, dict):
            raise Refused("MALFORMED", "gpu_errors is no list of objects")
        kind = _readings.error_type(one.get("error"))
        told.append((_readings.number(one, "gpu", MOST_ROWS - 1), kind))
    if not told:
        return None
    return _readings.error(told[0][1], ", ".join(f"GPU {gpu} {kind}" for gpu, kind in told))


def pod_names(pods: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """{pod UID: "namespace/name"} of Pods as the Kubernetes API gives them."""
    names = {}
    for pod in pods:
        meta = pod.get("metadata") or {}
        name = f"{meta.get('namespace')}/{meta.get('name')}"
        for uid in (meta.get("uid"), (meta.get("annotations") or {}).get(_MANIFEST_HASH)):
            if uid:
                names[str(uid)] = name
    return names
