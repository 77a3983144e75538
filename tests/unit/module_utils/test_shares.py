"""Quantities, and one number of a workload into all that its pod needs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpushare.eks.plugins.module_utils._pools import derive
from ansible_collections.gpushare.eks.plugins.module_utils._quantity import parse_quantity
from ansible_collections.gpushare.eks.plugins.module_utils._shares import (
    ShareError,
    format_mib,
    how_many_fit,
    limit_mib,
    mib,
    mps_replicas_that_fit,
    workload,
)

RESOURCE = "gpushare.eks/gpu-memory"


def pool(name, strategy="time_slicing", replicas=10, types=("g4dn.xlarge",), **changes):
    sharing = {"strategy": strategy, "replicas": replicas, "gpu_memory": True, **changes}
    return {"name": name, "instance_types": list(types), "max_size": 2, "sharing": sharing}


SYSTEM = {"name": "system", "instance_types": ["m6i.large"], "max_size": 1}
WHOLE = {
    "name": "whole",
    "instance_types": ["g6.xlarge"],
    "max_size": 1,
    "sharing": {"strategy": "exclusive"},
}
DERIVED = derive(
    [SYSTEM, pool("shared"), pool("mps", "mps", 4), WHOLE], cluster_name="demo"
)  # fmt: skip
ONE = derive([SYSTEM, pool("shared"), WHOLE], cluster_name="demo")


@pytest.mark.parametrize(
    ("quantity", "size"),
    [
        ("3Gi", 3072),
        ("3072Mi", 3072),
        ("1.5Gi", 1536),
        ("1Ti", 1048576),
        ("3221225472", 3072),
        (3221225472, 3072),
        ("3145728Ki", 3072),
        ("1048576k", 1000),
        ("1048576e3", 1000),
        ("1048576000m", 1),
    ],
)
def test_mib(quantity, size):
    assert mib(quantity) == size


@pytest.mark.parametrize(
    ("quantity", "told"),
    [
        ("0", "not above zero"),
        ("-1Gi", "not above zero"),
        ("0.3", "fraction of a byte"),
        ("1m", "fraction of a byte"),
        ("3G", "2861Mi or 2862Mi"),
        ("100", "not whole MiB"),
        (3072, "not whole MiB"),
        ("three", "not a quantity"),
        ("3 Gi", "not a quantity"),
        ("3Gi\n", "not a quantity"),
        ("1e999999999", "not a quantity"),
        ("٣Gi", "not a quantity"),
        ("", "not a quantity"),
        (None, "not a quantity"),
        (True, "not a quantity"),
        (1.5, "not a quantity"),
        ([], "not a quantity"),
    ],
)
def test_mib_refuses(quantity, told):
    with pytest.raises(ShareError, match=told):
        mib(quantity)


@given(st.integers(1, 10**9))
def test_format_and_parse_round_trip(size):
    assert mib(format_mib(size)) == size
    assert parse_quantity(format_mib(size)) == size * 1048576


@pytest.mark.parametrize("size", [0, -1, True, 1.5, "3"])
def test_format_refuses(size):
    with pytest.raises(ShareError):
        format_mib(size)


def test_how_many_fit():
    assert how_many_fit(14848, 3072) == 4
    assert how_many_fit(14848, 14849) == 0
    assert how_many_fit(-5, 1) == 0
    with pytest.raises(ShareError):
        how_many_fit(14848, 0)


@given(st.integers(1, 200_000), st.integers(1, 200_000))
def test_replicas_that_fit_do_and_one_more_does_not(total, request):
    fit = mps_replicas_that_fit(total, request)
    assert fit == 0 or total // fit >= request
    assert total // (fit + 1) < request


def test_a_share_of_a_named_pool():
    assert workload("3Gi", derived=ONE, pool="shared") == {
        "gpu_memory_mib": 3072,
        "resources": {
            "limits": {RESOURCE: "3072Mi", "nvidia.com/gpu.shared": 1},
            "requests": {RESOURCE: "3072Mi", "nvidia.com/gpu.shared": 1},
        },
        "env": [],
        "tolerations": [
            {
                "key": "gpushare.eks/shared",
                "operator": "Equal",
                "effect": "NoSchedule",
                "value": "shared",
            }
        ],
        "node_selector": {"gpushare.eks/pool": "shared"},
        "framework": {},
    }


def test_a_share_of_any_pool_selects_nothing():
    made = workload("3Gi", derived=ONE)
    assert made["node_selector"] == {}
    assert made["tolerations"] == [
        {"key": "gpushare.eks/shared", "operator": "Exists", "effect": "NoSchedule"}
    ]


def test_the_pools_other_taints_are_tolerated():
    own = {**pool("shared"), "taints": [{"key": "team", "value": "a", "effect": "NoExecute"}]}
    made = workload("3Gi", derived=derive([own], cluster_name="demo"), pool="shared")
    assert {"key": "team", "operator": "Exists", "effect": "NoExecute"} in made["tolerations"]


def test_mps_gets_its_limits():
    made = workload("3Gi", derived=DERIVED, pool="mps", gpu_compute_percent=25)
    assert made["env"] == [
        {"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": "0=3072M"},
        {"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "25"},
    ]


def test_time_slicing_gets_none():
    assert workload("3Gi", derived=DERIVED, pool="shared")["env"] == []


def test_a_part_of_the_gpu():
    assert workload("20%", derived=ONE)["gpu_memory_mib"] == 2969
    assert workload("12.5%", derived=ONE)["gpu_memory_mib"] == 1856
    assert workload("100%", derived=ONE)["gpu_memory_mib"] == 14848


@pytest.mark.parametrize(
    ("framework", "knob"),
    [
        ("tensorflow", {"memory_limit_mib": 3072}),
        ("pytorch", {"per_process_memory_fraction": 0.2}),
        ("vllm", {"gpu_memory_utilization": 0.2}),
    ],
)
def test_the_frameworks_own_knob(framework, knob):
    made = workload("3Gi", derived=ONE, framework=framework)
    assert made["framework"] == {"name": framework, **knob}


@pytest.mark.parametrize(
    ("memory", "options", "told"),
    [
        ("50Gi", {}, "pool shared has 14848Mi"),
        ("14849Mi", {"pool": "shared"}, "pool shared has 14848Mi"),
        ("5Gi", {"pool": "mps"}, "replicas: 3 would fit"),
        ("9Gi", {"pool": "mps"}, "no number of MPS replicas would fit"),
        ("5Gi", {}, "name one of the pools that fit: shared"),
        ("3Gi", {"pool": "none"}, "no pool 'none'; pools with gpu_memory: shared, mps"),
        ("3Gi", {"pool": "whole"}, "does not share by memory; pools that do: shared, mps"),
        ("3Gi", {"pool": "system"}, "does not share by memory"),
        ("0%", {"pool": "shared"}, "outside 0-100"),
        ("101%", {"pool": "shared"}, "outside 0-100"),
        ("0.001%", {"pool": "shared"}, "less than 1 MiB"),
        ("3Gi", {"gpu_compute_percent": 25}, "name one: mps"),
        ("3Gi", {"pool": "shared", "gpu_compute_percent": 25}, "only an MPS pool"),
        ("3Gi", {"pool": "mps", "gpu_compute_percent": 26}, "above the 25"),
        ("3Gi", {"pool": "mps", "gpu_compute_percent": 60}, "no number of replicas"),
        ("3Gi", {"pool": "mps", "gpu_compute_percent": 0}, "not a whole number"),
        ("3Gi", {"pool": "mps", "gpu_compute_percent": 2.5}, "not a whole number"),
        ("3Gi", {"framework": "caffe"}, "tensorflow, pytorch, vllm"),
    ],
)
def test_what_cannot_be_had_is_refused_with_what_would_fit(memory, options, told):
    with pytest.raises(ShareError) as raised:
        workload(memory, derived=DERIVED, **options)
    assert told in str(raised.value)


def test_a_part_of_unlike_gpus_needs_a_pool():
    unlike = derive([pool("a"), pool("b", types=["g6.xlarge"])], cluster_name="demo")
    with pytest.raises(ShareError, match="name one"):
        workload("20%", derived=unlike)
    assert workload("20%", derived=unlike, pool="b")["gpu_memory_mib"] == 4403


def test_no_pool_publishes():
    with pytest.raises(ShareError, match="no pool publishes"):
        workload("3Gi", derived=derive([SYSTEM, WHOLE], cluster_name="demo"))


def test_a_mixed_pool_grants_what_its_largest_gpu_has():
    mixed = derive([pool("a", types=["g4dn.xlarge", "g6.xlarge"])], cluster_name="demo")
    assert workload("20Gi", derived=mixed, pool="a")["gpu_memory_mib"] == 20480


def test_a_sum_grants_no_more_than_one_gpu():
    several = derive([pool("a", types=["g4dn.12xlarge"], multi_gpu="sum")], cluster_name="demo")
    assert several["pools"][0]["predicted"]["gpu_memory_mib"] == 4 * 14848
    with pytest.raises(ShareError, match="14848Mi on a GPU"):
        workload("20Gi", derived=several, pool="a")


@given(
    st.integers(1, 40_000),
    st.sampled_from([None, "shared", "mps"]),
    st.sampled_from([None, "tensorflow", "pytorch", "vllm"]),
)
def test_a_request_is_never_above_what_is_predicted(size, name, framework):
    pools = {item["name"]: item for item in DERIVED["pools"]}
    try:
        made = workload(format_mib(size), derived=DERIVED, pool=name, framework=framework)
    except ShareError:
        largest = max(limit_mib(pools[item]) for item in ([name] if name else ["shared", "mps"]))
        smallest = min(limit_mib(pools[item]) for item in ([name] if name else ["shared", "mps"]))
        assert size > smallest or size > largest
        return
    asked = mib(made["resources"]["requests"][RESOURCE])
    assert made["resources"]["limits"] == made["resources"]["requests"]
    for item in [name] if name else ["shared", "mps"]:
        assert asked <= pools[item]["predicted"]["gpu_memory_mib"]
        assert asked <= limit_mib(pools[item])
    fraction = made["framework"].get("per_process_memory_fraction", 0)
    assert fraction * 15360 <= asked
