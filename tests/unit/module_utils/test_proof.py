"""The proof of sharing: which pods it takes, and what their answers prove."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import _proof, _proof_plan
from ansible_collections.gpushare.eks.plugins.module_utils._pools import derive
from ansible_collections.gpushare.eks.plugins.module_utils._shares import ShareError

GPU, OTHER = "GPU-1", "GPU-2"


def pool(name, strategy, kind="g4dn.xlarge", **sharing):
    sharing = {"strategy": strategy, "gpu_memory": strategy != "exclusive", **sharing}
    return {"name": name, "instance_types": [kind], "max_size": 1, "sharing": sharing}


SHARED, MPS = pool("shared", "time_slicing"), pool("mps", "mps", replicas=4)
BOTH = derive([SHARED, MPS], cluster_name="c")
PLAN = _proof_plan.plan("1Gi", derived=BOTH, pods=2, pool="shared")
MPS_PLAN = _proof_plan.plan("1Gi", derived=BOTH, pods=2, pool="mps")
CASES = (
    "every pod ran to its end",
    "all pods were on one node",
    "all pods had the same GPU",
    "all pods ran at the same time",
    "CUDA gave every pod memory of its share",
    "a pod that asks for too much dies alone",
)


def said(index=0, **changes):
    cuda = {"uuid": GPU, "error": None, "held_mib": 512, "intact": True}
    cuda.update(changes.pop("cuda", {}))
    base = {"schema": 1, "index": index, "role": "holder", "began": 100.0 + index, "ended": 120.0}
    return {**base, "gpus": [GPU], "nvml_error": None, "cuda": cuda, **changes}


def over(**changes):
    cuda = {"intact": None, "held_mib": 960, "refused": "OUT_OF_MEMORY", **changes.pop("cuda", {})}
    return said(2, **{"role": "over_allocator", "ended": 107.0, "cuda": cuda, **changes})


def made(message, name="p-0", node="n", code=0, phase=None, **status):
    text = message if isinstance(message, str) or message is None else json.dumps(message)
    ended = {"exitCode": code, "reason": "Error" if code else "Completed"}
    if text is not None:
        ended["message"] = text
    return {
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "python"}]},
        "status": {
            "phase": phase or ("Failed" if code else "Succeeded"),
            "containerStatuses": [{"state": {"terminated": ended}}],
            **status,
        },
    }


def judged(pods, plan=PLAN):
    found = _proof.evaluate(pods, plan)
    assert tuple(case["name"] for case in found["cases"]) == CASES
    return found, [case["verdict"] for case in found["cases"]]


def two(*, code=0, **changes):
    return [made(said(0), "p-0"), made(said(1, **changes), "p-1", code=code)]


# -- which pods -------------------------------------------------------------------------------


def test_an_mps_pool_proves_more_and_is_taken_first():
    found = _proof_plan.plan("1Gi", derived=BOTH)
    assert (found["pool"], found["strategy"], found["over_allocator"]) == ("mps", "mps", True)
    assert (found["pods"], found["total"]) == (3, 4)
    assert found["workload"]["node_selector"] == {"gpushare.eks/pool": "mps"}
    assert PLAN["total"] == 2
    assert not PLAN["over_allocator"]


@pytest.mark.parametrize(
    ("memory", "more", "told"),
    [
        ("1Gi", {"pods": 1}, "pods: 1 is not a whole number from 2"),
        ("1Gi", {"pods": True}, "pods: True is not"),
        ("1Gi", {"pods": 4}, "4 and the one that asks for too much of 1024Mi .* 3 would fit"),
        ("5Gi", {"pods": 3, "pool": "shared"}, "3 of 5120Mi do not fit .* pool shared; 2 would"),
        ("1Gi", {"pool": "nowhere"}, "nowhere does not share by memory; .* shared, mps"),
    ],
)
def test_what_does_not_fit_on_one_gpu_is_refused_with_what_would(memory, more, told):
    with pytest.raises(ShareError, match=told):
        _proof_plan.plan(memory, derived=BOTH, **more)


def test_several_gpus_in_a_node_prove_nothing():
    many = derive(
        [pool("many", "time_slicing", "g4dn.12xlarge", multi_gpu="sum")], cluster_name="c"
    )
    with pytest.raises(ShareError, match="several GPUs"):
        _proof_plan.plan("1Gi", derived=many)
    with pytest.raises(ShareError, match="give a pool gpu_memory: true"):
        _proof_plan.plan("1Gi", derived=derive([pool("x", "exclusive")], cluster_name="c"))


# -- what they prove --------------------------------------------------------------------------


def test_two_pods_on_one_gpu_at_the_same_time():
    found, verdicts = judged(two())
    assert verdicts == ["passed"] * 5 + ["skipped"]
    assert found["passed"]
    assert (found["gpu"], found["node"], found["overlap_s"]) == (GPU, "n", 19.0)
    assert found["pods"][1] == {
        "name": "p-1", "role": "holder", "began": 101.0, "ended": 120.0, "exit_code": 0,
    }  # fmt: skip
    assert "time-slicing limits no memory" in found["cases"][5]["message"]


@pytest.mark.parametrize(
    ("pods", "case", "told"),
    [
        (two(gpus=[OTHER], cuda={"uuid": OTHER}), 2, "GPU GPU-1, GPU-2"),
        (two(cuda={"uuid": OTHER}), 2, "GPU GPU-1, GPU-2"),
        (two(gpus=[]), 2, "p-1 sees no GPU"),
        (two(gpus=[GPU, OTHER]), 2, "p-1 sees GPU-1, GPU-2"),
        (two(began=121.0, ended=140.0), 3, "the first ended 1 s before the last began"),
        (two(code=1, cuda={"error": {"type": "X", "message": "cuInit answered X"}}), 0, "cuInit"),
        (two(cuda={"intact": False}), 4, "p-1: its memory was not as it left it"),
        ([made(said(0)), made(said(1), "p-1", node="m")], 1, "node m, n"),
        ([made(said(0))], 0, "1 of 2 pods were there"),
        ([made(said(0))], 3, "1 of 2 pods said when they ran"),
        ([], 2, "no pod said anything"),
    ],
)
def test_what_does_not_hold_fails_with_the_reason(pods, case, told):
    found, verdicts = judged(pods)
    assert verdicts[case] == "failed"
    assert told in found["cases"][case]["message"]
    assert not found["passed"]


@pytest.mark.parametrize(
    "message", [None, "", "Killed", "[]", '{"schema": 2}', '{"schema": 1, "began": "x"}']
)
def test_a_pod_that_says_nothing_usable_fails(message):
    found, verdicts = judged([made(said(0)), made(message, "p-1", code=137)])
    assert verdicts[0] == "failed"
    assert "p-1: Failed" in found["cases"][0]["message"]


def test_a_pod_that_waits_says_what_for():
    waits = made(None, "p-1", None, phase="Pending", containerStatuses=[])
    waits["status"]["conditions"] = [{"message": "0/2 nodes: Insufficient gpu-memory"}]
    found, _verdicts = judged([made(said(0)), waits])
    assert found["cases"][0]["message"] == "p-1: Pending, 0/2 nodes: Insufficient gpu-memory"
    pull = made(None, "p-1", phase="Pending")
    pull["status"]["containerStatuses"] = [
        {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    ]
    found, _verdicts = judged([made(said(0)), pull])
    assert "ImagePullBackOff; no such image" in found["cases"][0]["message"]


def test_without_cuda_it_is_skipped_and_never_passed():
    none = {"uuid": None, "held_mib": 0, "error": {"type": "LIBRARY_NOT_FOUND", "message": "no"}}
    without = [made(said(n, cuda=none), f"p-{n}") for n in range(2)]
    _found, verdicts = judged(without)
    assert verdicts == ["passed"] * 4 + ["skipped"] * 2
    third = made(over(cuda=none), "p-2")
    found, verdicts = judged([*without, third], MPS_PLAN)
    assert verdicts[5] == "skipped"
    assert "libcuda.so.1" in found["cases"][5]["message"]
    # One pod without it beside one that has it is no reason to skip.
    _found, verdicts = judged([made(said(0)), without[1]])
    assert verdicts[4] == "failed"


def test_an_over_allocator_that_dies_alone():
    found, verdicts = judged([*two(), made(over(), "p-2", code=1)], MPS_PLAN)
    assert verdicts == ["passed"] * 6
    assert found["cases"][5]["message"] == "refused after 960 MiB of 1024 MiB; the others went on"


@pytest.mark.parametrize(
    ("pods", "told"),
    [
        (two(), "was not there"),
        ([*two(), made(over(cuda={"refused": None, "held_mib": 1536}), "p-2")], "got 1536 MiB"),
        ([*two(), made(over(cuda={"held_mib": 1088}), "p-2", code=1)], "only after 1088 MiB"),
        ([*two(), made(over(cuda={"refused": "UNKNOWN"}), "p-2", code=1)], "by UNKNOWN"),
        ([*two(), made(over(cuda={"error": {"message": "cuInit"}}), "p-2", code=1)], "cuInit"),
        ([*two(code=1), made(over(), "p-2", code=1)], "1 of 2 pods ran before and after"),
        ([*two(ended=106.0), made(over(), "p-2", code=1)], "1 of 2 pods ran before and after"),
    ],
)
def test_an_over_allocator_that_does_not(pods, told):
    found, verdicts = judged(pods, MPS_PLAN)
    assert verdicts[5] == "failed"
    assert told in found["cases"][5]["message"]


def test_an_over_allocator_that_says_nothing_is_known_by_its_index():
    silent = made(None, "p-2", code=139)
    silent["metadata"]["labels"] = {"batch.kubernetes.io/job-completion-index": "2"}
    silent["spec"]["containers"][0]["env"] = [{"name": "GPUSHARE_PROOF_OVER_INDEX", "value": "2"}]
    found, verdicts = judged([*two(), silent], MPS_PLAN)
    assert verdicts == ["passed"] * 5 + ["failed"]
    assert "p-2 said nothing: Failed, Error" in found["cases"][5]["message"]


def test_the_report_is_junit_whatever_a_pod_says():
    bad = {"type": "X", "message": '<&"\x00> '}
    found, _verdicts = judged(two(cuda={"error": bad}, code=1))
    suite = ET.fromstring(found["junit"])
    assert (suite.get("tests"), suite.get("skipped")) == ("6", "1")
    assert suite.get("failures") == str(sum(c["verdict"] == "failed" for c in found["cases"]))
    assert [case.get("name") for case in suite.iter("testcase")] == list(CASES)
    properties = {one.get("name"): one.get("value") for one in suite.iter("property")}
    assert properties["gpu"] == GPU
    assert properties["overlap_s"] == "19.0"
