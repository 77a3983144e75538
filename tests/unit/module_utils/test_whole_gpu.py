"""What a pod with whole GPUs needs."""

from __future__ import annotations

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils._pools import derive
from ansible_collections.gpushare.eks.plugins.module_utils._shares import ShareError
from ansible_collections.gpushare.eks.plugins.module_utils._whole_gpu import whole_gpu


def pool(name, kind, strategy="exclusive", **more):
    base = {"name": name, "instance_types": [kind], "max_size": 1}
    sharing = {"strategy": strategy, **({"replicas": 4} if strategy != "exclusive" else {})}
    return {**base, "sharing": sharing, **more}


TAINT = {"key": "team", "value": "x", "effect": "NoExecute"}
DERIVED = derive(
    [
        pool("one", "g4dn.xlarge"),
        pool("four", "g4dn.12xlarge", taints=[TAINT]),
        pool("shared", "g5.xlarge", "time_slicing"),
    ],
    cluster_name="c",
)
WHOLE = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def terms(found):
    required = found["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return required["nodeSelectorTerms"][0]["matchExpressions"]


def test_any_exclusive_pool_and_no_shared_one():
    found = whole_gpu(DERIVED)
    assert found["resources"]["limits"] == found["resources"]["requests"] == {"nvidia.com/gpu": 1}
    assert found["pools"] == ["one", "four"]
    assert terms(found) == [
        {"key": "gpushare.eks/pool", "operator": "In", "values": ["one", "four"]}
    ]
    assert found["tolerations"] == [
        WHOLE, {"key": "team", "operator": "Exists", "effect": "NoExecute"},
    ]  # fmt: skip


def test_a_named_pool_and_several_gpus():
    assert whole_gpu(DERIVED, pool="one")["tolerations"] == [WHOLE]
    assert whole_gpu(DERIVED, gpus=2)["pools"] == ["four"]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"pool": "shared"}, "shared does not offer whole GPUs; exclusive pools: one, four"),
        ({"pool": "one", "gpus": 2}, "2 are more than a node has; 1 would fit"),
        ({"gpus": 5}, "5 are more than a node has; 4 would fit"),
        ({"gpus": 0}, "gpus: 0 is not a whole number from 1"),
        ({"gpus": True}, "gpus: True is not"),
    ],
)
def test_what_cannot_be_had_is_refused_with_what_can(more, told):
    with pytest.raises(ShareError, match=told):
        whole_gpu(DERIVED, **more)


def test_without_an_exclusive_pool():
    shared = derive([pool("shared", "g5.xlarge", "time_slicing")], cluster_name="c")
    with pytest.raises(ShareError, match=r"no pool offers whole GPUs; .*strategy: exclusive"):
        whole_gpu(shared)
