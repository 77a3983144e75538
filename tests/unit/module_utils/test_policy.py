"""One policy document of the pools: what it holds, what a node gets of it, its upper bounds."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import _policy
from ansible_collections.gpushare.eks.plugins.module_utils._names import RESOURCE
from ansible_collections.gpushare.eks.plugins.module_utils._pools import derive
from ansible_collections.gpushare.eks.plugins.module_utils._refusals import Refusal

POOLS = [
    {"name": "system", "instance_types": ["m6i.large"], "max_size": 3},
    {
        "name": "shared",
        "instance_types": ["g4dn.xlarge", "g6.xlarge"],
        "max_size": 10,
        "sharing": {"strategy": "time_slicing", "gpu_memory": True, "headroom_mib": 256},
    },
    {
        "name": "wide",
        "instance_types": ["g4dn.12xlarge"],
        "max_size": 2,
        "sharing": {"strategy": "time_slicing", "gpu_memory": True, "multi_gpu": "sum"},
    },
    {
        "name": "whole",
        "instance_types": ["g4dn.xlarge"],
        "max_size": 2,
        "sharing": {"strategy": "exclusive"},
    },
]
POLICY = derive(POOLS, cluster_name="demo")["publish_policy"]


def node(pool, kind):
    labels = {"gpushare.eks/pool": pool, "node.kubernetes.io/instance-type": kind}
    return {"metadata": {"name": "n", "labels": {k: v for k, v in labels.items() if v}}}


def test_only_pools_that_publish_are_in_it_and_it_survives_json():
    assert sorted(POLICY["pools"]) == ["shared", "wide"]
    assert json.loads(json.dumps(POLICY)) == POLICY
    assert POLICY["resource"] == RESOURCE


def test_a_node_gets_what_its_pool_and_type_say():
    found = _policy.for_node(node("shared", "g4dn.xlarge"), POLICY)
    assert found["predicted_mib"] == 14848 - 256
    assert found["hardware_mib"] == 16384
    assert found["headroom_mib"] == 256
    assert found["multi_gpu"] == "refuse"
    assert _policy.for_node(node("wide", "g4dn.12xlarge"), POLICY)["multi_gpu"] == "sum"


@pytest.mark.parametrize(
    ("pool", "kind", "code"),
    [
        ("whole", "g4dn.xlarge", "POOL"),
        (None, "g4dn.xlarge", "POOL"),
        ("shared", "p5.48xlarge", "TYPE"),
        ("shared", None, "TYPE"),
    ],
)
def test_a_node_that_may_not_publish_is_refused_with_a_remedy(pool, kind, code):
    with pytest.raises(Refusal) as caught:
        _policy.for_node(node(pool, kind), POLICY)
    assert caught.value.problem["code"] == code
    assert caught.value.problem["remedy"]


def test_bounds_are_of_one_gpu_unless_the_sum_was_asked_for():
    assert _policy.bounds(POLICY) == {
        "g4dn.12xlarge": "65536Mi",
        "g4dn.xlarge": "16384Mi",
        "g6.xlarge": "22888Mi",
    }
