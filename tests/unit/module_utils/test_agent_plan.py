"""What the agent writes: number, condition and startup taint in one patch, or a withdrawal."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import _agent_plan, _policy
from ansible_collections.gpushare.eks.plugins.module_utils._names import (
    ANNOTATION,
    CONDITION,
    RESOURCE,
    STARTUP_TAINT,
)

BOOT = "11111111-2222-3333-4444-555555555555"
NOW = "2026-11-21T12:00:00Z"
POOL = {
    "name": "shared",
    "sharing": {"headroom_mib": 0, "multi_gpu": "refuse"},
    "predicted_by_type": {
        "g4dn.xlarge": {"gpu_memory_mib": 14848, "hardware_mib": 16384, "gpus": 1}
    },
}
POLICY = _policy.document(RESOURCE, [POOL])


def gpu(**changes):
    keys = {"index": 0, "uuid": "GPU-1", "name": "Tesla T4", "cc": "7.5", "mig": False}
    return {**keys, "total_mib": 15360, "reserved_mib": 450, "error": None, **changes}


def reading(*gpus, error=None):
    head = {"schema": 1, "boot_id": BOOT, "instance_id": None, "time": NOW}
    return {**head, "driver": "580.1", "cuda": "13.0", "gpus": list(gpus), "error": error}


def node(**status):
    return {
        "metadata": {
            "name": "n",
            "uid": "u1",
            "resourceVersion": "7",
            "labels": {
                "gpushare.eks/pool": "shared",
                "node.kubernetes.io/instance-type": "g4dn.xlarge",
            },
            "annotations": {"other": "kept"},
        },
        "spec": {
            "providerID": "aws:///us-east-1a/i-00000000000000001",
            "taints": [
                {"key": "gpushare.eks/shared", "value": "shared", "effect": "NoSchedule"},
                {"key": STARTUP_TAINT, "value": "true", "effect": "NoSchedule"},
            ],
        },
        "status": {
            "capacity": {"cpu": "4"},
            "allocatable": {"cpu": "4"},
            "nodeInfo": {"bootID": BOOT},
            "conditions": [{"type": "Ready", "status": "True"}],
            **status,
        },
    }


def apply(seen, operations):
    """The server's side of a JSON Patch, as far as the agent uses it; AssertionError is a 422."""
    seen = copy.deepcopy(seen)
    for one in operations:
        *parents, last = [
            part.replace("~1", "/").replace("~0", "~") for part in one["path"].split("/")[1:]
        ]
        holder = seen
        for part in parents:
            holder = holder[int(part)] if isinstance(holder, list) else holder[part]
        key = (int(last) if last != "-" else None) if isinstance(holder, list) else last
        if one["op"] == "test":
            assert holder[key] == one["value"]
        elif one["op"] == "remove":
            del holder[key]
        elif key is None:
            holder.append(one["value"])
        else:
            holder[key] = one["value"]
    return seen


def settle(seen, read, policy=POLICY, boot=BOOT):
    """Plan and write until nothing is left to do -> (node, last plan, writes)."""
    writes = []
    while True:
        found = _agent_plan.plan(seen, read, policy, boot, NOW)
        todo = found and (found.status or found.spec)
        if not todo:
            return seen, found, writes
        writes.append(todo)
        seen = apply(seen, todo)
        assert len(writes) < 5


def condition(seen):
    return next(one for one in seen["status"]["conditions"] if one["type"] == CONDITION)


def test_a_new_node_gets_its_number_in_one_patch_and_then_loses_the_startup_taint():
    seen, found, writes = settle(node(), reading(gpu()))
    assert found.ready
    assert len(writes) == 2
    assert seen["status"]["capacity"][RESOURCE] == seen["status"]["allocatable"][RESOURCE]
    assert seen["status"]["allocatable"] == {"cpu": "4", RESOURCE: "14848Mi"}
    assert condition(seen)["status"] == "True"
    assert condition(seen)["reason"] == "AgentPublished"
    assert "15360 MiB" in condition(seen)["message"]
    assert "450 MiB" in condition(seen)["message"]
    assert [taint["key"] for taint in seen["spec"]["taints"]] == ["gpushare.eks/shared"]
    assert seen["metadata"]["annotations"].keys() == {"other", ANNOTATION}


def test_a_startup_taint_of_somebody_else_stays():
    foreign = node()
    foreign["spec"]["taints"][1]["value"] = "other"
    seen, found, _writes = settle(foreign, reading(gpu()))
    assert found.ready
    assert len(seen["spec"]["taints"]) == 2


def test_the_taint_stays_until_the_number_stands():
    found = _agent_plan.plan(node(), reading(gpu()), POLICY, BOOT, NOW)
    touched = {one["path"].split("/")[1] for one in found.status}
    assert touched == {"metadata", "status"}
    seen, found, _writes = settle(node(), reading(gpu(error="GPU_IS_LOST")))
    assert not found.ready
    assert len(seen["spec"]["taints"]) == 2


@pytest.mark.parametrize("lie", ["0", "20Gi", "1", None])
@pytest.mark.parametrize("part", ["capacity", "allocatable"])
def test_it_asserts_the_number_again(part, lie):
    good, _found, _writes = settle(node(), reading(gpu()))
    bad = copy.deepcopy(good)
    if lie is None:
        del bad["status"][part][RESOURCE]
    else:
        bad["status"][part][RESOURCE] = lie
    seen, _found, writes = settle(bad, reading(gpu()))
    assert len(writes) == 1
    assert seen["status"] == good["status"]


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (reading(gpu(error="GPU_IS_LOST")), "AgentGpuError"),
        (reading(error={"type": "DRIVER_NOT_LOADED", "code": 9}), "AgentProbeError"),
        (reading(error={"type": "TIMEOUT", "code": 10}), "AgentProbeError"),
        (reading(), "AgentNoGpu"),
        (reading(gpu(mig=True)), "AgentMig"),
        (reading(gpu(), gpu(index=1, uuid="GPU-2")), "AgentMultiGpu"),
        (reading(gpu(total_mib=10**12)), "AgentImplausible"),
        (reading(gpu(total_mib=14000)), "AgentBelowPredicted"),
    ],
)
def test_what_nvml_does_not_vouch_for_is_withdrawn_and_never_zero(read, reason):
    good, _found, _writes = settle(node(), reading(gpu()))
    seen, found, writes = settle(good, read)
    assert len(writes) == 1
    assert seen["status"]["capacity"] == seen["status"]["allocatable"] == {"cpu": "4"}
    assert ANNOTATION not in seen["metadata"]["annotations"]
    assert condition(seen)["status"] == "False"
    assert condition(seen)["reason"] == found.reason == reason
    back, _found, _writes = settle(seen, reading(gpu()))
    assert back["status"]["allocatable"][RESOURCE] == "14848Mi"


def test_a_node_of_a_pool_that_does_not_publish_carries_nothing():
    seen, _found, _writes = settle(node(), reading(gpu()))
    seen["metadata"]["labels"]["gpushare.eks/pool"] = "other"
    seen, found, _writes = settle(seen, reading(gpu()))
    assert found.reason == "AgentPool"
    assert RESOURCE not in seen["status"]["capacity"]


def test_another_boot_is_not_ours_to_judge():
    assert _agent_plan.plan(node(), reading(gpu()), POLICY, "another", NOW) is None
    assert _agent_plan.plan(node(nodeInfo={}), reading(gpu()), POLICY, BOOT, NOW) is None
    assert _agent_plan.plan(node(), reading(gpu()), POLICY, None, NOW) is None


def test_nothing_is_written_before_reading_and_policy_are_there():
    assert _agent_plan.plan(node(), None, POLICY, BOOT, NOW) is None
    assert _agent_plan.plan(node(), reading(gpu()), None, BOOT, NOW) is None


def test_stale_capacity_of_a_predecessor_is_claimed_anew_for_this_uid():
    old, _found, _writes = settle(node(), reading(gpu()))
    young = copy.deepcopy(old)
    young["metadata"]["uid"] = "u2"
    seen, _found, writes = settle(young, reading(gpu()))
    assert len(writes) == 1
    assert '"node_uid":"u2"' in seen["metadata"]["annotations"][ANNOTATION]


def test_a_replaced_node_refuses_the_old_patch():
    found = _agent_plan.plan(node(), reading(gpu()), POLICY, BOOT, NOW)
    young = node()
    young["metadata"]["uid"] = "u2"
    with pytest.raises(AssertionError):
        apply(young, found.status)
    ready, _found, _writes = settle(node(), reading(gpu()))
    ready["spec"]["taints"] = node()["spec"]["taints"]
    untaint = _agent_plan.plan(ready, reading(gpu()), POLICY, BOOT, NOW).spec
    ready["spec"]["taints"].pop(0)
    with pytest.raises((AssertionError, IndexError)):
        apply(ready, untaint)


def test_an_old_condition_of_ours_keeps_its_time_of_transition():
    seen, _found, _writes = settle(node(), reading(gpu()))
    mine = condition(seen)
    mine.update(message="older words", lastTransitionTime="2020-01-01T00:00:00Z")
    seen, _found, writes = settle(seen, reading(gpu()))
    assert len(writes) == 1
    assert condition(seen)["lastTransitionTime"] == "2020-01-01T00:00:00Z"


def test_a_node_without_conditions():
    bare = node()
    del bare["status"]["conditions"]
    seen, found, _writes = settle(bare, reading(gpu()))
    assert found.ready
    assert [one["type"] for one in seen["status"]["conditions"]] == [CONDITION]
