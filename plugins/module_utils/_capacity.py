# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a node's extended resource has to become: reading + policy + node -> JSON Patch or nothing.

Pure and standard library only, Python 3.9: the module node_capacity and the agent in the cluster
run this same file, so that the two never fight. Memory is whole MiB (`_mib`); quantities are
compared as exact numbers of bytes, because the API server re-emits 15360Mi as 15Gi.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._names import ANNOTATION, CONDITION
from ansible_collections.gpushare.eks.plugins.module_utils._quantity import (
    MIB,
    escape_pointer,
    parse_quantity,
)
from ansible_collections.gpushare.eks.plugins.module_utils._refusals import Refusal

# NVML's total may exceed EC2's size a little: L4 23034 by NVML, 22888 by EC2 (aws-cli issue 8970).
TOTAL_TOLERANCE = Fraction(102, 100)


@dataclass
class Decision:
    """action: none, patch or refuse. `patch` is a JSON Patch for the node's status subresource.

    problems: [{"code", "message", "remedy"}]; surplus_mib: what NVML shows above the published.
    """

    action: str
    reason: str
    before_mib: int | None = None
    after_mib: int | None = None
    patch: list[dict[str, Any]] = field(default_factory=list)
    problems: list[dict[str, str]] = field(default_factory=list)
    surplus_mib: int | None = None


def decide(
    node: Mapping[str, Any], reading: Mapping[str, Any] | None, policy: Mapping[str, Any]
) -> Decision:
    """What to write on this node's status, if anything.

    node: Kubernetes JSON. reading: the probe's JSON, an entry of gpu_capacity_info's `readings`, or
    None. policy: {"resource", "predicted_mib" | None, "headroom_mib", "multi_gpu": refuse | sum,
    "state": present | absent, "hardware_mib" | None (EC2's size of ONE GPU), "agent_alive",
    "force", "keep_condition" (of an agent that writes its own)}.
    """
    before = None
    try:
        name, status = _node_parts(node)
        before = _current(status, "capacity", policy["resource"])
        if policy.get("state", "present") == "absent":
            keep_condition = bool(policy.get("keep_condition"))
            decision = _withdraw(node, status, policy["resource"], before, keep_condition)
        else:
            decision = _publish(node, name, status, reading, policy, before)
        if decision.action == "patch" and policy.get("agent_alive") and not policy.get("force"):
            raise Refusal("AGENT", f"{name}: an agent keeps this node ({decision.reason})")
        return decision
    except Refusal as refusal:
        return Decision(
            "refuse",
            str(refusal),
            before_mib=_floor_mib(before),
            after_mib=_floor_mib(before),
            problems=[refusal.problem],
        )


def _node_parts(node: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    metadata = node.get("metadata") or {}
    if not metadata.get("uid") or not metadata.get("name"):
        raise Refusal("NODE", "the node has no metadata.name or no metadata.uid")
    return metadata["name"], node.get("status") or {}


def _current(status: Mapping[str, Any], part: str, resource: str) -> Fraction | None:
    """The number that stands there in bytes; None for none and for what is not a number."""
    try:
        text = (status.get(part) or {}).get(resource)
        return None if text is None else parse_quantity(text)
    except ValueError:
        return None


def _floor_mib(size: Fraction | None) -> int | None:
    return None if size is None else int(size // MIB)


def _withdraw(
    node: Mapping[str, Any],
    status: Mapping[str, Any],
    resource: str,
    before: Fraction | None,
    keep_condition: bool,
) -> Decision:
    key = escape_pointer(resource)
    patch = [
        {"op": "remove", "path": f"/status/{part}/{key}"}
        for part in ("capacity", "allocatable")
        if resource in (status.get(part) or {})
    ]
    if ANNOTATION in (node["metadata"].get("annotations") or {}):
        patch.append({"op": "remove", "path": _annotation_path()})
    if not keep_condition:
        patch += _without_condition(status)
    if not patch:
        return Decision("none", "nothing is published", before_mib=None, after_mib=None)
    return Decision(
        "patch",
        "withdrawn: state is absent",
        before_mib=_floor_mib(before),
        after_mib=None,
        patch=[_fence(node), *patch],
    )


def _without_condition(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Without an agent nobody would keep our condition true."""
    for index, one in enumerate(status.get("conditions") or []):
        if one.get("type") == CONDITION:
            path = f"/status/conditions/{index}"
            return [
                {"op": "test", "path": f"{path}/type", "value": CONDITION},
                {"op": "remove", "path": path},
            ]
    return []


def _annotation_path() -> str:
    return "/metadata/annotations/" + escape_pointer(ANNOTATION)


def _fence(node: Mapping[str, Any]) -> dict[str, Any]:
    """A node of the same name but another UID answers 422 instead of taking our number."""
    return {"op": "test", "path": "/metadata/uid", "value": node["metadata"]["uid"]}


def _publish(
    node: Mapping[str, Any],
    name: str,
    status: Mapping[str, Any],
    reading: Mapping[str, Any] | None,
    policy: Mapping[str, Any],
    before: Fraction | None,
) -> Decision:
    probe = _probe(name, reading)
    _check_identity(node, name, probe)
    gpus = _gpus(name, probe, policy)
    headroom = (policy.get("headroom_mib") or 0) * len(gpus)
    nvml = sum(gpu["total_mib"] - gpu["reserved_mib"] for gpu in gpus) - headroom
    predicted = policy.get("predicted_mib")
    if nvml <= 0:
        raise Refusal("NOTHING_LEFT", f"{name}: NVML leaves {nvml} MiB after headroom")
    if predicted is not None and nvml < predicted:
        raise Refusal(
            "BELOW_PREDICTED",
            f"{name}: NVML shows {nvml} MiB usable after headroom, {predicted} MiB were predicted",
        )
    after = nvml if predicted is None else predicted
    if after <= 0:
        raise Refusal("NOTHING_LEFT", f"{name}: {after} MiB are predicted")
    claim = {
        "schema": 1,
        "instance_id": probe["instance_id"],
        "node_uid": node["metadata"]["uid"],
        "boot_id": _text(probe.get("boot_id")),
        "driver": _text(probe.get("driver")),
        "total_mib": sum(gpu["total_mib"] for gpu in gpus),
        "reserved_mib": sum(gpu["reserved_mib"] for gpu in gpus),
        "published_mib": after,
        "time": _text(probe.get("time")),
    }
    decision = _compare(node, status, policy["resource"], before, after, claim)
    decision.surplus_mib = nvml - after
    return decision


def _text(claimed: Any) -> str | None:
    """What a node claims about itself goes into an annotation as short text, or not at all."""
    return claimed if isinstance(claimed, str) and len(claimed) <= 64 else None


def _probe(name: str, reading: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The probe's own JSON out of what was given; anything but a good one is refused."""
    if isinstance(reading, Mapping) and "outcome" in reading:
        if reading.get("error") or reading["outcome"] != "Success":
            error = reading.get("error")
            error = error if isinstance(error, Mapping) else {"type": error}
            cause = error.get("message") or error.get("type") or reading["outcome"]
            raise Refusal("NO_READING", f"{name}: not read ({reading['outcome']}): {cause}")
        reading = reading.get("reading")
    if not isinstance(reading, Mapping):
        raise Refusal("NO_READING", f"{name}: there is no reading of its GPU")
    if reading.get("schema") != 1:
        raise Refusal("SCHEMA", f"{name}: reading of schema {reading.get('schema')!r}, not 1")
    error = reading.get("error")
    if error:
        kind = error.get("type") if isinstance(error, Mapping) else error
        raise Refusal("PROBE_ERROR", f"{name}: NVML answers {kind}")
    return reading


def _check_identity(node: Mapping[str, Any], name: str, probe: Mapping[str, Any]) -> None:
    """A reading is good for one instance: never for a name alone."""
    provider = (node.get("spec") or {}).get("providerID") or ""
    instance = provider.rpartition("/")[2]
    claimed = probe.get("instance_id")
    if not instance or not isinstance(claimed, str) or claimed != instance:
        raise Refusal(
            "IDENTITY",
            f"{name}: the reading is of instance {claimed or 'unknown'}, "
            f"the node's is {instance or 'unknown'}",
        )


def _gpus(
    name: str, probe: Mapping[str, Any], policy: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """The node's GPUs, each plausible; a lost one, MIG or a sum nobody asked for is refused."""
    gpus = probe.get("gpus")
    if not isinstance(gpus, list) or not gpus:
        raise Refusal("NO_GPU", f"{name}: NVML shows no GPU")
    for gpu in gpus:
        if not isinstance(gpu, Mapping):
            raise Refusal("IMPLAUSIBLE", f"{name}: the reading of a GPU is no object")
        label = f"{name}: GPU {gpu.get('uuid') or gpu.get('index')}"
        if gpu.get("error"):
            raise Refusal("GPU_ERROR", f"{label} answers {gpu['error']}")
        if gpu.get("mig"):
            raise Refusal("MIG", f"{label} has MIG on: its memory belongs to the slices")
        _check_plausible(label, gpu, policy.get("hardware_mib"))
    if len(gpus) > 1 and policy.get("multi_gpu", "refuse") != "sum":
        raise Refusal("MULTI_GPU", f"{name}: has {len(gpus)} GPUs; a sum over them lies about each")
    return gpus


def _check_plausible(label: str, gpu: Mapping[str, Any], hardware: int | None) -> None:
    sizes = [gpu.get("total_mib"), gpu.get("reserved_mib")]
    if any(isinstance(size, bool) or not isinstance(size, int) for size in sizes):
        raise Refusal("IMPLAUSIBLE", f"{label}: total_mib and reserved_mib are not whole")
    total, reserved = sizes
    if not 0 <= reserved < total:
        raise Refusal("IMPLAUSIBLE", f"{label}: {reserved} MiB reserved of {total} MiB")
    if hardware is None:
        return
    if total - reserved > hardware or total > hardware * TOTAL_TOLERANCE:
        raise Refusal(
            "IMPLAUSIBLE",
            f"{label}: claims {total - reserved} MiB usable of {total} MiB; "
            f"EC2 says the GPU has {hardware} MiB",
        )


def _compare(
    node: Mapping[str, Any],
    status: Mapping[str, Any],
    resource: str,
    before: Fraction | None,
    after_mib: int,
    claim: dict[str, Any],
) -> Decision:
    """Only the operations that are needed, behind the fence; none when all of it stands."""
    key, wanted = escape_pointer(resource), after_mib * MIB
    patch = []
    for part in ("capacity", "allocatable"):
        if _current(status, part, resource) != wanted:
            patch += _add(node, status.get(part), "/status/" + part, key, f"{after_mib}Mi")
    stale = _stale(node, claim)
    if stale:
        annotations = node["metadata"].get("annotations")
        text = json.dumps(claim, separators=(",", ":"), sort_keys=True)
        patch += _add(node, annotations, "/metadata/annotations", escape_pointer(ANNOTATION), text)
    before_mib = _floor_mib(before)
    if not patch:
        return Decision("none", "is as wanted", before_mib=before_mib, after_mib=after_mib)
    if before is None:
        reason = "is missing"
    elif before == 0:
        reason = "is zero"
    elif before != wanted:
        reason = "differs"
    else:
        reason = stale or "allocatable differs"
    patch = [_fence(node), *patch]
    return Decision("patch", reason, before_mib=before_mib, after_mib=after_mib, patch=patch)


def _add(
    node: Mapping[str, Any], parent: Any, path: str, key: str, value: str
) -> list[dict[str, Any]]:
    """`add` below a parent that exists, or the parent with it.

    Adding a parent that somebody else made meanwhile would replace it: then the version is tested.
    """
    if parent is not None:
        return [{"op": "add", "path": path + "/" + key, "value": value}]
    plain = key.replace("~1", "/").replace("~0", "~")
    made = {"op": "add", "path": path, "value": {plain: value}}
    version = node["metadata"].get("resourceVersion")
    if version is None:
        return [made]
    return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, made]


def _stale(node: Mapping[str, Any], claim: Mapping[str, Any]) -> str | None:
    """Why the annotation does not vouch for this number, node and boot; None when it does."""
    text = (node["metadata"].get("annotations") or {}).get(ANNOTATION)
    if text is None:
        return "stands without our annotation"
    try:
        old = json.loads(text)
    except ValueError:
        return "stands with an unreadable annotation"
    if not isinstance(old, dict) or old.get("schema") != 1:
        return "stands with an annotation of another schema"
    for key, reason in (
        ("node_uid", "is stale: published for another node of this name"),
        ("instance_id", "is stale: published for another instance"),
        ("boot_id", "is stale: published before the node was rebooted"),
        ("published_mib", "stands with an annotation of another number"),
    ):
        if old.get(key) != claim[key]:
            return reason
    return None
