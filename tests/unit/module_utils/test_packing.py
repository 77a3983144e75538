"""How many shares the pools hold at their max_size, and what is told of more."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpushare.eks.plugins.module_utils._packing import most_shares, refusal
from ansible_collections.gpushare.eks.plugins.module_utils._pools import derive
from ansible_collections.gpushare.eks.plugins.module_utils._shares import ShareError, workload


def pool(name="shared", replicas=10, max_size=2, types=("g4dn.xlarge",), **changes):
    sharing = {"strategy": "time_slicing", "replicas": replicas, "gpu_memory": True}
    sharing.update(changes.pop("sharing", {}))
    return {
        "name": name,
        "instance_types": list(types),
        "max_size": max_size,
        "sharing": sharing,
        **changes,
    }


def built(*pools, **options):
    return derive(list(pools), cluster_name="demo", **options)


def shares(size, *pools, **options):
    return [most_shares(size, one) for one in built(*pools, **options)["pools"]]


def test_memory_replicas_and_pods_limit():
    assert shares(3072, pool()) == [8]
    assert shares(100, pool()) == [20], "by replicas"
    assert shares(100, pool(replicas=200)) == [58], "by pods"
    assert shares(14849, pool()) == [0]


def test_a_share_lies_on_one_gpu():
    several = pool(types=["g4dn.12xlarge"], max_size=1, sharing={"multi_gpu": "sum"})
    assert shares(8000, several) == [4]


def test_the_largest_type_counts():
    assert shares(11000, pool(types=["g4dn.xlarge", "g6.xlarge"])) == [4]


def test_zones_multiply_and_are_not_guessed():
    zonal = pool(zones="one_group_per_zone")
    assert shares(3072, zonal, zones=["us-east-1a", "us-east-1b"]) == [16]
    assert shares(3072, zonal) == [None]
    assert workload("3Gi", derived=built(zonal), replicas=1000)


def test_what_fits_is_let_through():
    assert workload("3Gi", derived=built(pool()), replicas=8)["gpu_memory_mib"] == 3072
    assert workload("3Gi", derived=built(pool()), replicas=0)


def test_more_is_refused_with_the_numbers_that_would_fit():
    with pytest.raises(ShareError) as raised:
        workload("3Gi", derived=built(pool()), replicas=9)
    assert str(raised.value) == (
        "gpu_memory: 9 times 3072Mi is more than there is: pool shared holds 8 at "
        "max_size 2; replicas: 8 would fit, or gpu_memory: 2969Mi would fit, or max_size: 3 of "
        "pool shared would fit"
    )


def test_several_pools_add_up():
    two = built(pool("a"), pool("b", max_size=1))
    assert workload("3Gi", derived=two, replicas=12)
    with pytest.raises(ShareError, match="pool a holds 8 at max_size 2; pool b holds 4 at"):
        workload("3Gi", derived=two, replicas=13)
    # Named, the other pool does not count.
    with pytest.raises(ShareError, match="replicas: 4 would fit"):
        workload("3Gi", derived=two, pool="b", replicas=5)


@pytest.mark.parametrize("replicas", [-1, 1.5, "3", True])
def test_replicas_are_a_number(replicas):
    with pytest.raises(ShareError, match="not a whole number"):
        workload("3Gi", derived=built(pool()), replicas=replicas)


@given(st.integers(1, 14848), st.integers(1, 200), st.integers(1, 5), st.integers(2, 60))
def test_what_is_said_to_fit_does_and_a_little_more_does_not(size, count, nodes, replicas):
    pools = built(pool(max_size=nodes, replicas=replicas))["pools"]
    told = refusal(size, count, pools)
    if told is None:
        assert most_shares(size, pools[0]) >= count
        return
    assert most_shares(size, pools[0]) < count
    found = {key: int(number) for key, number in re.findall(r"(\w+): (\d+)", told)}
    assert refusal(size, found["replicas"], pools) is None
    assert refusal(size, found["replicas"] + 1, pools) is not None
    if "gpu_memory" in found:
        assert refusal(found["gpu_memory"], count, pools) is None
        assert refusal(found["gpu_memory"] + 1, count, pools) is not None
    else:
        assert refusal(1, count, pools) is not None, "memory is not what runs out"
    larger = built(pool(max_size=found["max_size"], replicas=replicas))["pools"]
    assert refusal(size, count, larger) is None
    smaller = built(pool(max_size=found["max_size"] - 1, replicas=replicas))["pools"]
    assert refusal(size, count, smaller) is not None
