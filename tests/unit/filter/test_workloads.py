"""The filters about whole GPUs and the proof: errors and documentation included."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.gpushare.eks.plugins.filter import gpu, workloads

FILTERS = workloads.FilterModule().filters()
SHARING = {"strategy": "time_slicing", "gpu_memory": True}
POOLS = [
    {"name": "shared", "instance_types": ["g4dn.xlarge"], "max_size": 2, "sharing": SHARING},
    {
        "name": "exclusive",
        "instance_types": ["g4dn.2xlarge"],
        "max_size": 1,
        "sharing": {"strategy": "exclusive"},
    },
]
DERIVED = gpu.FilterModule().filters()["derive"](POOLS, "demo")


def test_whole_gpu():
    assert FILTERS["whole_gpu"](DERIVED)["pools"] == ["exclusive"]
    with pytest.raises(AnsibleFilterError, match="exclusive pools: exclusive"):
        FILTERS["whole_gpu"](DERIVED, pool="shared")


def test_the_proof():
    plan = FILTERS["proof_plan"]("1Gi", DERIVED)
    assert (plan["pool"], plan["total"]) == ("shared", 3)
    with pytest.raises(AnsibleFilterError, match="2 would fit"):
        FILTERS["proof_plan"]("5Gi", DERIVED)
    found = FILTERS["proof_result"]([], plan)
    assert not found["passed"]
    assert found["junit"].startswith("<?xml")
