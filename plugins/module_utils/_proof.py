# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The proof that pods share one GPU: what their answers prove. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from xml.sax.saxutils import escape, quoteattr

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
HOLDER, OVER = "holder", "over_allocator"
SCHEMA = 1
# What XML 1.0 cannot carry, in a message that a pod wrote.
_CONTROL = {code: " " for code in range(32) if code not in (9, 10, 13)}

Case = tuple[str, str]


def evaluate(pods: Iterable[Mapping[str, Any]], plan: Mapping[str, Any]) -> dict[str, Any]:
    """What the pods of the proof prove, from their Kubernetes objects.

    plan: what _proof_plan.plan returned.
    -> {"schema", "passed", "cases": [{"name", "verdict", "message"}], "gpu", "node", "pool",
    "strategy", "overlap_s", "pods": [{"name", "role", "began", "ended", "exit_code"}], "junit"};
    `overlap_s` is the time during which all holders ran, in seconds.
    """
    rows = sorted((_row(pod) for pod in pods), key=lambda row: row["name"])
    over = [row for row in rows if row["role"] == OVER]
    holders = [row for row in rows if row["role"] != OVER]
    told = [row for row in holders if row["said"]]
    overlap = None
    if told and len(told) == plan["pods"]:
        overlap = round(_edge(told, "ended", min) - _edge(told, "began", max), 3)
    steps: list[tuple[str, Callable[[], Case]]] = [
        ("every pod ran to its end", lambda: _ran(holders, plan["pods"])),
        ("all pods were on one node", lambda: _one(told, "node", "node")),
        ("all pods had the same GPU", lambda: _same_gpu(told)),
        ("all pods ran at the same time", lambda: _together(overlap, plan["pods"], len(told))),
        ("CUDA gave every pod memory of its share", lambda: _held(told)),
        ("a pod that asks for too much dies alone", lambda: _died_alone(over, told, plan)),
    ]
    cases = []
    for name, judge in steps:
        verdict, message = judge()
        cases.append({"name": name, "verdict": verdict, "message": message})
    gpus = sorted({uuid for row in told for uuid in row["said"]["gpus"]})
    nodes = sorted({row["node"] for row in rows if row["node"]})
    found = {
        "schema": SCHEMA,
        "passed": all(case["verdict"] != FAILED for case in cases),
        "cases": cases,
        "gpu": gpus[0] if len(gpus) == 1 else None,
        "node": nodes[0] if len(nodes) == 1 else None,
        "pool": plan["pool"],
        "strategy": plan["strategy"],
        "overlap_s": overlap,
        "pods": [
            {
                "name": row["name"],
                "role": row["role"],
                "began": row["said"].get("began"),
                "ended": row["said"].get("ended"),
                "exit_code": row["exit_code"],
            }
            for row in rows
        ],
    }
    return {**found, "junit": junit(found)}


def _row(pod: Mapping[str, Any]) -> dict[str, Any]:
    """One pod: what Kubernetes says of it, and what it said itself ({} if nothing usable)."""
    status = pod.get("status") or {}
    ended: Mapping[str, Any] = {}
    waits: list[str] = []
    for one in status.get("containerStatuses") or []:
        state = one.get("state") or {}
        ended = state.get("terminated") or ended
        reason = state.get("waiting") or {}
        waits += [reason[key] for key in ("reason", "message") if reason.get(key)]
    if status.get("phase") == "Pending":
        waits += [one["message"] for one in status.get("conditions") or [] if one.get("message")]
    said = _said(ended.get("message"))
    return {
        "name": pod["metadata"]["name"],
        "node": (pod.get("spec") or {}).get("nodeName"),
        "phase": status.get("phase") or "Unknown",
        "role": said.get("role") or _role(pod),
        "exit_code": ended.get("exitCode"),
        "why": "; ".join(waits) or ended.get("reason") or "",
        "said": said,
    }


def _role(pod: Mapping[str, Any]) -> str:
    """The role of a pod that said nothing: by its index, as the Job's controller labels it."""
    labels = pod["metadata"].get("labels") or {}
    index = labels.get("batch.kubernetes.io/job-completion-index")
    for container in (pod.get("spec") or {}).get("containers") or []:
        for entry in container.get("env") or []:
            if entry["name"] == "GPUSHARE_PROOF_OVER_INDEX" and entry.get("value") == index:
                return OVER
    return HOLDER


def _said(message: Any) -> dict[str, Any]:
    try:
        said = json.loads(message)
    except (TypeError, ValueError):
        return {}
    good = (
        isinstance(said, dict)
        and said.get("schema") == SCHEMA
        and all(isinstance(said.get(key), (int, float)) for key in ("began", "ended"))
        and isinstance(said.get("gpus"), list)
        and isinstance(said.get("cuda"), dict)
    )
    return said if good else {}


def _edge(rows: list[dict[str, Any]], key: str, which: Callable[..., float]) -> float:
    return which(row["said"][key] for row in rows)


def _ran(holders: list[dict[str, Any]], wanted: int) -> Case:
    bad = []
    for row in holders:
        if row["phase"] != "Succeeded" or not row["said"]:
            told = [row["phase"], row["why"], _trouble(row["said"])]
            bad.append(f"{row['name']}: {', '.join(filter(None, told))}")
    if bad:
        return FAILED, "; ".join(bad)
    if len(holders) != wanted:
        return FAILED, f"{len(holders)} of {wanted} pods were there"
    return PASSED, f"{wanted} pods"


def _trouble(said: Mapping[str, Any]) -> str:
    if not said:
        return ""
    errors = [said.get("nvml_error"), said["cuda"].get("error")]
    return "; ".join(error["message"] for error in errors if error)


def _one(rows: list[dict[str, Any]], key: str, what: str) -> Case:
    found = sorted({str(row[key]) for row in rows})
    if not rows:
        return FAILED, "no pod said anything"
    return (PASSED if len(found) == 1 else FAILED), f"{what} {', '.join(found)}"


def _same_gpu(rows: list[dict[str, Any]]) -> Case:
    """One GPU by NVML in every pod, and by CUDA the same one."""
    if not rows:
        return FAILED, "no pod said anything"
    bad = [
        f"{row['name']} sees {', '.join(row['said']['gpus']) or 'no GPU'}"
        for row in rows
        if len(row["said"]["gpus"]) != 1
    ]
    if bad:
        return FAILED, "; ".join(bad)
    found = {row["said"]["gpus"][0] for row in rows}
    found |= {row["said"]["cuda"]["uuid"] for row in rows if row["said"]["cuda"].get("uuid")}
    return (PASSED if len(found) == 1 else FAILED), f"GPU {', '.join(sorted(found))}"


def _together(overlap_s: float | None, wanted: int, told: int) -> Case:
    if overlap_s is None:
        return FAILED, f"{told} of {wanted} pods said when they ran"
    if overlap_s <= 0:
        return (
            FAILED,
            f"the first ended {-overlap_s:g} s before the last began; let them run longer",
        )
    return PASSED, f"for {overlap_s:g} s"


def _without_cuda(rows: list[dict[str, Any]]) -> str | None:
    """Why CUDA could not be asked anywhere; None where one of the pods had it."""
    errors = [row["said"]["cuda"].get("error") or {} for row in rows]
    if errors and all(error.get("type") == "LIBRARY_NOT_FOUND" for error in errors):
        return "no pod has libcuda.so.1, so CUDA was asked for nothing"
    return None


def _held(rows: list[dict[str, Any]]) -> Case:
    if not rows:
        return FAILED, "no pod said anything"
    reason = _without_cuda(rows)
    if reason:
        return SKIPPED, reason
    bad = []
    for row in rows:
        cuda = row["said"]["cuda"]
        if cuda.get("error"):
            bad.append(f"{row['name']}: {cuda['error']['message']}")
        elif not cuda.get("intact"):
            bad.append(f"{row['name']}: its memory was not as it left it")
    if bad:
        return FAILED, "; ".join(bad)
    return PASSED, f"{sum(row['said']['cuda']['held_mib'] for row in rows)} MiB in all, intact"


def _died_alone(
    over: list[dict[str, Any]], holders: list[dict[str, Any]], plan: Mapping[str, Any]
) -> Case:
    if not plan["over_allocator"]:
        limits = {"time_slicing": "time-slicing limits no memory"}.get(plan["strategy"], "")
        return SKIPPED, f"pool {plan['pool']}: {limits or 'no limit'}; only an MPS pool has one"
    if not over:
        return FAILED, "the pod that asks for too much was not there"
    (row, *_more), share_mib = over, plan["workload"]["gpu_memory_mib"]
    if not row["said"]:
        told = ", ".join(filter(None, [row["phase"], row["why"]]))
        return FAILED, f"{row['name']} said nothing: {told}"
    reason = _without_cuda([row])
    if reason:
        return SKIPPED, reason
    cuda = row["said"]["cuda"]
    if cuda.get("error"):
        return FAILED, f"{row['name']}: {cuda['error']['message']}"
    if not cuda.get("refused") or row["exit_code"] == 0:
        return FAILED, f"{row['name']} got {cuda['held_mib']} MiB with a share of {share_mib} MiB"
    if cuda["held_mib"] > share_mib:
        return FAILED, f"refused only after {cuda['held_mib']} MiB, above its {share_mib} MiB"
    if cuda["refused"] != "OUT_OF_MEMORY":
        return FAILED, f"{row['name']} was refused by {cuda['refused']}, which is no limit"
    ended = row["said"]["ended"]
    fine = [one["said"] for one in holders if one["exit_code"] == 0]
    outlived = sum(one["began"] < ended < one["ended"] for one in fine)
    if outlived != plan["pods"]:
        return FAILED, f"{outlived} of {plan['pods']} pods ran before and after its end"
    return PASSED, f"refused after {cuda['held_mib']} MiB of {share_mib} MiB; the others went on"


def junit(found: Mapping[str, Any]) -> str:
    """The cases as JUnit XML, with a line break at the end."""
    counted = [case["verdict"] for case in found["cases"]]
    head = (
        f'<testsuite name="prove_sharing" tests="{len(counted)}" '
        f'failures="{counted.count(FAILED)}" errors="0" skipped="{counted.count(SKIPPED)}">'
    )
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', head, "  <properties>"]
    for key in ("pool", "strategy", "node", "gpu", "overlap_s"):
        value = _clean("" if found[key] is None else found[key])
        lines.append(f"    <property name={quoteattr(key)} value={quoteattr(value)}/>")
    lines.append("  </properties>")
    for case in found["cases"]:
        head = f'  <testcase classname="gpushare.prove_sharing" name={quoteattr(case["name"])}>'
        message = _clean(case["message"])
        inner = {
            PASSED: f"<system-out>{escape(message)}</system-out>",
            FAILED: f"<failure message={quoteattr(message)}/>",
            SKIPPED: f"<skipped message={quoteattr(message)}/>",
        }[case["verdict"]]
        lines.append(f"{head}{inner}</testcase>")
    return "\n".join([*lines, "</testsuite>", ""])


def _clean(value: Any) -> str:
    return str(value).translate(_CONTROL)
