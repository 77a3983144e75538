"""The three strategies of a pool: what derive() makes of their settings, and what it refuses."""

from __future__ import annotations

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils._pools import PoolError, derive

TEMPLATE = "k8s.io/cluster-autoscaler/node-template/resources"
SYSTEM = {"name": "system", "instance_types": ["m6i.large"], "max_size": 3}


def pool(strategy="time_slicing", kind="g4dn.xlarge", **sharing):
    given = {"strategy": strategy, **sharing}
    return {"name": "gpu", "instance_types": [kind], "max_size": 2, "sharing": given}


def mps(replicas=4, **sharing):
    return pool("mps", replicas=replicas, gpu_memory=True, **sharing)


def run(given):
    derived = derive([SYSTEM, given], cluster_name="demo")
    return derived, derived["pools"][1]


def test_a_pool_that_wants_it_keeps_the_plain_name():
    derived, built = run(pool(replicas=10, rename=False))
    (config,) = derived["device_plugin_configs"]["gpu"]["sharing"].values()
    assert config["renameByDefault"] is False
    assert built["predicted"]["gpu_resource"] == "nvidia.com/gpu"
    assert built["predicted"]["gpu_count"] == 10
    tags = built["node_groups"][0]["asg_tags"]
    assert tags[f"{TEMPLATE}/nvidia.com/gpu"] == "10"
    assert f"{TEMPLATE}/nvidia.com/gpu.shared" not in tags
    # Its shares are no whole GPUs: nothing that looks for one may take it for an exclusive pool.
    assert "k8s.amazonaws.com/accelerator" not in built["labels"]
    assert built["taints"][0]["key"] == "gpushare.eks/shared"


@pytest.mark.parametrize("given", [pool(replicas=10), mps(), pool(gpu_memory=True)])
def test_a_shared_pool_renames_when_nothing_is_said(given):
    derived, built = run(given)
    (config,) = derived["device_plugin_configs"]["gpu"]["sharing"].values()
    assert config["renameByDefault"] is True
    assert built["predicted"]["gpu_resource"] == "nvidia.com/gpu.shared"


def test_the_chart_is_told_what_no_pool_says():
    both = {"migStrategy": "none", "deviceListStrategy": "envvar"}
    assert run(mps())[0]["chart_values"] == both
    sliced = pool("exclusive", "p4d.24xlarge", flags={"migStrategy": "single"})
    derived, _built = run(sliced)
    assert derived["chart_values"] == {"deviceListStrategy": "envvar"}
    assert any("MIG slices" in warning for warning in derived["warnings"])


@pytest.mark.parametrize(
    ("given", "all_taken"),
    [
        (mps(48), True),
        (mps(48, cuda_version="13.0"), True),
        (mps(48, cuda_version="13.1"), False),
        (mps(47), False),
        (pool("mps", "p3dn.24xlarge", replicas=16), False),
    ],
)
def test_replicas_that_leave_no_client_of_mps_are_warned_of(given, all_taken):
    assert any("MPS clients" in text for text in run(given)[0]["warnings"]) is all_taken


def test_the_drivers_cuda_version_is_the_images_when_nothing_is_said():
    assert run(mps())[1]["sharing"]["cuda_version"] == "13.0"
    assert run(pool(replicas=4))[1]["sharing"]["cuda_version"] is None


@pytest.mark.parametrize(
    ("given", "field", "told"),
    [
        (mps(flags={"migStrategy": "single"}), "flags.migStrategy", "MPS and MIG exclude each"),
        (mps(flags={"migStrategy": "mixed"}), "flags.migStrategy", "allowed: none"),
        (
            pool("exclusive", flags={"migStrategy": "single"}),
            "flags.migStrategy",
            "no GPU of g4dn.xlarge has MIG",
        ),
        (mps(49), "replicas", "2 to 48"),
        (mps(60, cuda_version="13.1"), "replicas", "whatever the driver serves"),
        (pool("mps", "p3dn.24xlarge", replicas=17), "replicas", "2 to 16"),
        (mps(cuda_version=13.1), "cuda_version", "in quotes"),
        (mps(cuda_version="580"), "cuda_version", "nvidia-smi"),
        (pool(replicas=4, cuda_version="13.1"), "cuda_version", "leave it out"),
        (
            pool(["time_slicing", "mps"], replicas=4),
            "strategy",
            "one of exclusive, time_slicing, mps, and a pool of its own for the other",
        ),
        (
            {**mps(), "sharing": [{"strategy": "mps"}, {"strategy": "time_slicing"}]},
            "",
            "gives one pool several strategies",
        ),
        (mps(timeSlicing={"replicas": 4}), "timeSlicing", "unknown key"),
        (pool(gpu_memory=True, rename=False), "rename", "gpu_memory: false"),
        (pool(replicas=4, rename="no"), "rename", "true, false"),
        (pool("exclusive", rename=True), "rename", "needs a shared strategy"),
        (pool(replicas=4, flags={"deviceListStrategy": "envvar"}), "flags.deviceListStrategy",
         "plugin: {deviceListStrategy: ...}"),
    ],
)  # fmt: skip
def test_refused_with_what_would_fit(given, field, told):
    with pytest.raises(PoolError) as raised:
        run(given)
    at = "gpushare_pools[1].sharing" + (f".{field}" if field else "")
    lines = [line for line in str(raised.value).splitlines() if line.startswith(f"{at}: ")]
    assert any(told in line for line in lines), str(raised.value)
