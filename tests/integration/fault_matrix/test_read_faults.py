"""A node, its NVML, its SSM agent and what it prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import _documents

from ..support import doors, engine
from ..support.aws_state import TAG
from ..support.fleet import TRUTH_MIB, Fleet
from .judge import CLUSTER, Trial, node_of, stands, tried, typed

MEMORY = "nvmlDeviceGetMemoryInfo_v2"
INIT = "nvmlInit_v2"
SILENT = "SSM NoAnswer"
# Name: (what is done to the node, the type of the error that has to come of it)
NODE_FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "NVML 3": ({"nvml": {"function": MEMORY, "code": 3}}, "NOT_SUPPORTED"),
    "NVML 4": ({"nvml": {"function": INIT, "code": 4}}, "NO_PERMISSION"),
    "NVML 9": ({"nvml": {"function": INIT, "code": 9}}, "DRIVER_NOT_LOADED"),
    "NVML 10": ({"nvml": {"function": MEMORY, "code": 10}}, "TIMEOUT"),
    "NVML 15": ({"nvml": {"device": 0, "code": 15}}, "GPU_IS_LOST"),
    "NVML 16": ({"nvml": {"device": 0, "code": 16}}, "RESET_REQUIRED"),
    "NVML 18": ({"nvml": {"function": INIT, "code": 18}}, "LIB_RM_VERSION_MISMATCH"),
    "NVML 25": ({"nvml": {"function": MEMORY, "code": 25}}, "ARGUMENT_VERSION_MISMATCH"),
    "NVML 999": ({"nvml": {"code": 999}}, "UNKNOWN"),
    "no NVML library": ({"nvml": {"absent": True}}, "LIBRARY_NOT_FOUND"),
    "no GPU": ({"figures": {"gpus": {"0": {"missing": True}}}}, "GPU_MISSING"),
    "a lie of NVML": ({"figures": {"gpus": {"0": {"total_mib": 20000}}}}, "IMPLAUSIBLE"),
    "SSM Failed": ({"outcome": "Failed"}, "Failed"),
    "SSM TimedOut": ({"outcome": "TimedOut"}, "TimedOut"),
    "SSM DeliveryTimedOut": ({"outcome": "DeliveryTimedOut"}, "DeliveryTimedOut"),
    "SSM Undeliverable": ({"outcome": "Undeliverable"}, "Undeliverable"),
    "SSM Terminated": ({"outcome": "Terminated"}, "Terminated"),
    "SSM Cancelled": ({"outcome": "Cancelled"}, "Cancelled"),
    SILENT: ({"outcome": "NoAnswer"}, "NoAnswer"),
}
SPARE = 4  # nodes that stay healthy all the time: the first ones


def _gpu(**changes: Any) -> dict[str, Any]:
    gpu = {"index": 0, "uuid": None, "name": "Tesla T4", "cc": "7.5", "used_mib": 0, "mig": False}
    return {**gpu, "total_mib": 15360, "reserved_mib": 450, "error": None, **changes}


def _line(**changes: Any) -> str:
    reading = {"schema": 1, "driver": "580.105.08", "cuda": "13.0", "gpus": [_gpu()], "error": None}
    return json.dumps({**reading, **changes})


# Name: (what the node prints in place of its reading, the type or None where it is to be believed)
OUTPUTS: dict[str, tuple[str, str | None]] = {
    "nothing": ("", "MALFORMED"),
    "garbage": ("\x07\x1b[2J\u2028 \ufffd NVRM: Xid 79, GPU has fallen off the bus", "MALFORMED"),
    "a traceback": ('Traceback (most recent call last):\n  File "<stdin>", line 1', "MALFORMED"),
    "truncated": (_line(gpus=[_gpu(index=n) for n in range(30)]), "TRUNCATED"),
    "oversized": ("x" * 20000, "TRUNCATED"),
    "shell metacharacters": ("$(reboot)`id`; rm -rf / #|&>", "MALFORMED"),
    "a GPU named by a shell": (_line(gpus=[_gpu(name="T4 $(reboot)")]), "MALFORMED"),
    "another node's name": (_line(instance_id="i-0123456789abcdef0"), "WRONG_INSTANCE"),
    "10^18 MiB": (_line(gpus=[_gpu(total_mib=10**18)]), "MALFORMED"),
    "more than the hardware": (_line(gpus=[_gpu(total_mib=17000)]), "IMPLAUSIBLE"),
    "fewer than no MiB": (_line(gpus=[_gpu(reserved_mib=-(2**40))]), "MALFORMED"),
    "two GPUs on a type with one": (_line(gpus=[_gpu(), _gpu(index=1)]), "IMPLAUSIBLE"),
    "an error without a name": (_line(error={"type": "ALL_IS_WELL", "code": 0}), "MALFORMED"),
    "a reading of another schema": (_line(schema=2), "MALFORMED"),
    "an honest line": (_line(), None),
}


@pytest.fixture(scope="module")
def ill(fleet: Fleet, ids: list[str]) -> Trial:
    """All faults of nodes at once, each on a node of its own, beside healthy ones."""
    assert not engine.publish(CLUSTER, state="absent").failed
    victims = dict(zip(NODE_FAULTS, ids[SPARE:], strict=False))
    for name, instance_id in victims.items():
        doors.node({"instance_id": instance_id, **NODE_FAULTS[name][0]})
    # For the silent one a second is as good as a minute; the others get the time that they need.
    silent = victims[SILENT]
    talking = [one for one in ids if one != silent]
    read = engine.read(instance_ids=[silent], timeout=1), engine.read(instance_ids=talking)
    return tried(victims, *read)


@pytest.fixture(scope="module")
def healed(ill: Trial) -> Trial:
    for instance_id in ill.victims.values():
        doors.node({"instance_id": instance_id, "nvml": None, "outcome": None, "figures": None})
    return tried(ill.victims, engine.read(cluster_name=CLUSTER))


@pytest.mark.parametrize("case", NODE_FAULTS)
def test_a_faulty_node_is_refused_with_its_cause(case: str, ill: Trial, fleet: Fleet) -> None:
    instance_id = ill.victims[case]
    typed(ill.readings[instance_id]["error"], NODE_FAULTS[case][1])
    row = ill.published.rows()[fleet.nodes[instance_id]]
    assert (row["action"], row["after_mib"]) == ("refuse", None)
    assert row["problems"]
    assert all(problem["remedy"] for problem in row["problems"])


def test_healthy_neighbours_of_faulty_nodes_are_published(
    ill: Trial, ids: list[str], fleet: Fleet
) -> None:
    rows = ill.published.rows()
    told = [rows[fleet.nodes[one]] for one in ids if one not in ill.victims.values()]
    assert len(told) >= SPARE
    assert {(row["action"], row["after_mib"]) for row in told} == {("patch", TRUTH_MIB)}


@pytest.mark.parametrize("case", NODE_FAULTS)
def test_a_healed_node_is_published(case: str, healed: Trial, fleet: Fleet) -> None:
    instance_id = healed.victims[case]
    row = healed.published.rows()[fleet.nodes[instance_id]]
    assert (row["action"], row["before_mib"]) == ("patch", None)
    assert stands(node_of(instance_id, fleet)) == TRUTH_MIB


@pytest.fixture(scope="module")
def lying(healed: Trial, ids: list[str]) -> Iterator[Trial]:
    """The nodes print something else: a document of ours that says on each node what it says."""
    liars = dict(zip(OUTPUTS, ids[SPARE:], strict=False))
    lines = ['case "$AWS_SSM_INSTANCE_ID" in']
    for name, instance_id in liars.items():
        lines += [f"{instance_id})", "cat <<'GPUSHARE_LIE'", OUTPUTS[name][0], "GPUSHARE_LIE", ";;"]
    step = {"action": "aws:runShellScript", "name": "lie"}
    step["inputs"] = {"runCommand": [*lines, "esac", "echo noise >&2"]}
    content = {"schemaVersion": "2.2", "description": "lies", "mainSteps": [step]}
    documents = _documents.Documents(boto3.client("ssm"))
    name = f"gpushare-lies-of-{CLUSTER}"
    desired = _documents.wanted(name, content, {TAG: CLUSTER})
    sync = {"cluster": CLUSTER, "check_mode": False}
    documents.sync(name, desired, state="present", **sync)
    try:
        yield tried(liars, engine.read(instance_ids=[*liars.values()], document_name=name))
    finally:
        documents.release(name, **sync)


@pytest.mark.parametrize("case", OUTPUTS)
def test_what_a_node_prints_is_a_claim(case: str, lying: Trial, fleet: Fleet) -> None:
    instance_id, kind = lying.victims[case], OUTPUTS[case][1]
    reading = lying.readings[instance_id]
    row = lying.published.rows()[fleet.nodes[instance_id]]
    if kind is None:
        assert reading["error"] is None
        # Its line has no boot ID, so that the annotation is written anew; the number is the truth.
        assert (row["action"], row["after_mib"]) == ("patch", TRUTH_MIB)
    else:
        typed(reading["error"], kind)
        assert reading["reading"] is None
        assert row["action"] == "refuse"
        assert all(problem["remedy"] for problem in row["problems"])
    # What was published before stands, whatever somebody claims now.
    assert stands(node_of(instance_id, fleet)) == TRUTH_MIB


def test_who_uses_the_memory_is_read_by_a_document_of_its_own(ids: list[str]) -> None:
    used = {"gpus": {"0": {"processes": [{"pid": 4_000_000, "used_mib": 3155}]}}}
    doors.node({"instance_id": ids[0], "figures": used})
    try:
        read = engine.read(instance_ids=ids[:2], processes=True)
    finally:
        doors.node({"instance_id": ids[0], "figures": None})
    one, none = (row["processes"] for row in read.result["readings"])
    entry = {"gpu": 0, "pid": 4_000_000, "used_mib": 3155, "pod": None}
    assert one["entries"] == [{**entry, "pod_uid": None, "container_id": None}]
    assert (none["count"], none["error"]) == (0, None)
