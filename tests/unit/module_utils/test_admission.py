"""What the admission policies compare a pod with, as it follows from the pools."""

from __future__ import annotations

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import _pool_names, _shares
from ansible_collections.gpushare.eks.plugins.module_utils._admission import admission
from ansible_collections.gpushare.eks.plugins.module_utils._names import POOL_LABEL
from ansible_collections.gpushare.eks.plugins.module_utils._pools import derive


def pool(name, kind="g4dn.xlarge", **changes):
    types = [kind] if isinstance(kind, str) else kind
    return {"name": name, "instance_types": types, "max_size": 2, **changes}


def memory(strategy="time_slicing", **changes):
    return {"sharing": {"strategy": strategy, "gpu_memory": True, **changes}}


SYSTEM = pool("system", "m6i.large")
DERIVED = derive(
    [
        SYSTEM,
        pool("slices", **memory()),
        pool("mps", **memory("mps", replicas=4), taints=[{"key": "team", "value": "ml"}]),
        pool("turns", sharing={"strategy": "time_slicing", "replicas": 10}),
        pool("whole", sharing={"strategy": "exclusive"}),
    ],
    cluster_name="demo",
    resource="veriff.com/gpu-memory",
)
FOUND = admission(DERIVED)


def test_the_pools_by_what_they_share():
    assert list(FOUND["memory_pools"]) == ["slices", "mps"]
    assert FOUND["shared_pools"] == ["slices", "mps", "turns"]
    assert FOUND["exclusive_pools"] == ["whole"]
    assert FOUND["fits"] == "slices 14848Mi, mps 3840Mi"


def test_the_numbers_are_those_of_the_filter():
    slices, mps = FOUND["memory_pools"].values()
    assert (slices["limit_mib"], slices["types"]) == (14848, [[14848, 14848]])
    assert (slices["mps"], slices["compute_percent"]) == (False, 0)
    assert (mps["limit_mib"], mps["types"]) == (3840, [[3840, 14848]])
    assert (mps["mps"], mps["compute_percent"]) == (True, 25)
    for name, one in FOUND["memory_pools"].items():
        at_most = f"{one['limit_mib']}Mi"
        made = _shares.workload(at_most, derived=DERIVED, pool=name)
        assert made["tolerations"] == one["tolerations"]
        with pytest.raises(_shares.ShareError):
            _shares.workload(f"{one['limit_mib'] + 1}Mi", derived=DERIVED, pool=name)
    assert FOUND["tolerations"] == _shares.workload("1Gi", derived=DERIVED)["tolerations"]


def test_a_pool_of_two_types_has_both():
    derived = derive([SYSTEM, pool("two", ["g4dn.xlarge", "g6.xlarge"], **memory())],
                     cluster_name="demo")  # fmt: skip
    (two,) = admission(derived)["memory_pools"].values()
    sizes = [one["gpu_memory_mib"] for one in derived["pools"][1]["predicted_by_type"].values()]
    assert two["types"] == [[size, size] for size in sizes]
    assert two["limit_mib"] == max(sizes)


def test_a_sum_of_GPUs_grants_what_one_has():
    derived = derive([SYSTEM, pool("wide", "g4dn.12xlarge", **memory(multi_gpu="sum"))],
                     cluster_name="demo")  # fmt: skip
    (wide,) = admission(derived)["memory_pools"].values()
    assert wide["types"] == [[14848, 4 * 14848]]
    assert wide["limit_mib"] == 14848


def test_without_a_GPU_there_is_nothing_to_compare_with():
    found = admission(derive([SYSTEM], cluster_name="demo"))
    assert found["memory_pools"] == {}
    assert found["shared_pools"] == found["exclusive_pools"] == []
    assert found["fits"] == ""


def test_names_are_those_that_pools_write():
    names = DERIVED["names"]
    shared, whole = DERIVED["pools"][1], DERIVED["pools"][4]
    assert shared["labels"][names["pool_label"]] == shared["labels"][names["config_label"]]
    assert names["pool_label"] == POOL_LABEL
    assert shared["taints"][0]["key"] == names["shared_taint"]
    assert shared["predicted"]["gpu_resource"] == names["shared_gpu"]
    assert whole["predicted"]["gpu_resource"] == names["whole_gpu"] == _pool_names.WHOLE_GPU
