"""derive(): names, tags, predictions, refusals; and what holds for any pools (hypothesis)."""

from __future__ import annotations

import copy
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.gpushare.eks.plugins.module_utils import _names, _policy
from ansible_collections.gpushare.eks.plugins.module_utils._catalog import CATALOG
from ansible_collections.gpushare.eks.plugins.module_utils._node_config import node_config
from ansible_collections.gpushare.eks.plugins.module_utils._pools import PoolError, derive

RESOURCE = "gpushare.eks/gpu-memory"
TEMPLATE = "k8s.io/cluster-autoscaler/node-template"
SYSTEM = {"name": "system", "instance_types": ["m6i.large"], "min_size": 1, "max_size": 3}


def shared(**changes):
    pool = {
        "name": "shared",
        "instance_types": ["g4dn.xlarge"],
        "capacity_type": ["spot"],
        "max_size": 10,
        "autoscaler": "cluster_autoscaler",
        "sharing": {"strategy": "time_slicing", "replicas": 10, "gpu_memory": True},
    }
    return {**pool, **changes}


def exclusive(**changes):
    pool = {"name": "whole", "instance_types": ["g6.xlarge"], "max_size": 2}
    return {**pool, "sharing": {"strategy": "exclusive"}, **changes}


def mps(replicas=4, **changes):
    sharing = {"strategy": "mps", "replicas": replicas, "gpu_memory": True}
    return shared(name="mps", sharing=sharing, **changes)


def sharing(**changes):
    return {"strategy": "time_slicing", "replicas": 4, "gpu_memory": True, **changes}


def run(*pools, **options):
    return derive(list(pools), cluster_name="demo", **options)


def by_name(derived):
    return {pool["name"]: pool for pool in derived["pools"]}


def refused(*pools, **options):
    with pytest.raises(PoolError) as raised:
        run(*pools, **options)
    return {problem["field"]: problem for problem in raised.value.problems}


# ---------------------------------------------------------------- names and tags


def test_a_general_pool_has_no_gpu_label_and_no_taint():
    pool = by_name(run(SYSTEM))["system"]
    assert pool["kind"] == "general"
    assert pool["labels"] == {"gpushare.eks/pool": "system"}
    assert pool["taints"] == []
    assert pool["accelerated"] is False
    assert pool["predicted"]["gpu_memory_mib"] is None
    assert pool["desired_size"] == 1


def test_a_shared_pool():
    derived = run(SYSTEM, shared())
    pool = by_name(derived)["shared"]
    assert pool["kind"] == "shared"
    assert pool["labels"] == {
        "gpushare.eks/pool": "shared",
        "nvidia.com/device-plugin.config": "shared",
    }
    assert pool["taints"] == [
        {"key": "gpushare.eks/shared", "value": "shared", "effect": "NoSchedule"}
    ]
    assert pool["predicted"]["gpu_memory_mib"] == 14848
    assert pool["predicted"]["gpu_resource"] == "nvidia.com/gpu.shared"
    assert pool["predicted"]["gpu_count"] == 10
    assert pool["tags"] == {"gpushare.eks/cluster": "demo"}
    assert derived["gpu_pools"] == ["shared"]
    assert derived["warnings"] == []


def test_the_tags_of_a_shared_pool():
    tags = by_name(run(SYSTEM, shared()))["shared"]["node_groups"][0]["asg_tags"]
    assert tags == {
        "k8s.io/cluster-autoscaler/enabled": "true",
        "k8s.io/cluster-autoscaler/demo": "owned",
        f"{TEMPLATE}/label/gpushare.eks/pool": "shared",
        f"{TEMPLATE}/label/nvidia.com/device-plugin.config": "shared",
        f"{TEMPLATE}/taint/gpushare.eks/shared": "shared:NoSchedule",
        f"{TEMPLATE}/resources/{RESOURCE}": "14848Mi",
        f"{TEMPLATE}/resources/nvidia.com/gpu.shared": "10",
        f"{TEMPLATE}/resources/nvidia.com/gpu": "0",
    }


def test_an_exclusive_pool_carries_the_accelerator_label_and_whole_gpus():
    pool = by_name(run(SYSTEM, exclusive(autoscaler="cluster_autoscaler")))["whole"]
    assert pool["kind"] == "exclusive"
    assert pool["labels"]["k8s.amazonaws.com/accelerator"] == "l4"
    assert pool["taints"] == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    tags = pool["node_groups"][0]["asg_tags"]
    assert tags[f"{TEMPLATE}/resources/nvidia.com/gpu"] == "1"
    assert f"{TEMPLATE}/resources/{RESOURCE}" not in tags


@pytest.mark.parametrize("autoscaler", ["none", "karpenter"])
def test_without_cluster_autoscaler_nothing_enables_it(autoscaler):
    tags = by_name(run(shared(autoscaler=autoscaler)))["shared"]["node_groups"][0]["asg_tags"]
    assert not [key for key in tags if "node-template" not in key]
    assert f"{TEMPLATE}/resources/{RESOURCE}" in tags


def test_the_plugin_configs_are_nvidias_v1():
    configs = run(SYSTEM, shared(), exclusive(), mps())["device_plugin_configs"]
    assert list(configs) == ["default", "shared", "whole", "mps"]
    assert configs["default"] == {"version": "v1", "flags": {"migStrategy": "none"}}
    assert configs["whole"] == configs["default"]
    assert configs["shared"]["sharing"] == {
        "timeSlicing": {
            "renameByDefault": True,
            "failRequestsGreaterThanOne": True,
            "resources": [{"name": "nvidia.com/gpu", "replicas": 10}],
        }
    }
    assert list(configs["mps"]["sharing"]) == ["mps"]


def test_flags_go_into_the_config_of_their_pool_alone():
    pool = shared(sharing=sharing(flags={"failOnInitError": False}))
    configs = run(SYSTEM, pool)["device_plugin_configs"]
    assert configs["shared"]["flags"] == {"migStrategy": "none", "failOnInitError": False}
    assert configs["default"]["flags"] == {"migStrategy": "none"}


def test_one_group_per_zone():
    pool = shared(zones="one_group_per_zone")
    groups = by_name(run(SYSTEM, pool, zones=["us-east-1a", "us-east-1b"]))["shared"]["node_groups"]
    assert [(group["name"], group["zone"]) for group in groups] == [
        ("shared-us-east-1a", "us-east-1a"),
        ("shared-us-east-1b", "us-east-1b"),
    ]


def test_a_zone_without_the_type_gets_no_group():
    catalog = {**CATALOG, "offerings": {"m6i.large": ["us-east-1a"], "g4dn.xlarge": ["us-east-1a"]}}
    pool = shared(zones="one_group_per_zone")
    derived = run(SYSTEM, pool, zones=["us-east-1a", "us-east-1e"], catalog=catalog)
    groups = by_name(derived)["shared"]["node_groups"]
    assert [group["zone"] for group in groups] == ["us-east-1a"]
    assert any("us-east-1e" in warning for warning in derived["warnings"])
    problems = refused(SYSTEM, pool, zones=["us-east-1e"], catalog=catalog)
    assert "gpushare_pools[1].instance_types" in problems


def test_unknown_zones_are_said():
    derived = run(SYSTEM, shared(zones="one_group_per_zone"))
    assert by_name(derived)["shared"]["node_groups"] == []
    assert any("zones" in warning for warning in derived["warnings"])


def test_replicas_default_to_the_pods_of_the_node():
    pool = shared(sharing={"strategy": "time_slicing", "gpu_memory": True})
    built = by_name(run(SYSTEM, pool))["shared"]
    assert built["sharing"]["replicas"] == built["max_pods"] == 29
    built = by_name(run(SYSTEM, pool, prefix_delegation=True))["shared"]
    assert built["sharing"]["replicas"] == 110


def test_max_pods_stay_within_what_eks_allows():
    assert by_name(run({**SYSTEM, "instance_types": ["m6i.8xlarge"]}))["system"]["max_pods"] == 234
    small = by_name(run({**SYSTEM, "instance_types": ["m6i.4xlarge"]}))["system"]
    assert small["max_pods"] == 110


def test_usable_and_headroom_are_the_pools():
    pool = shared(sharing=sharing(usable_mib=15000, headroom_mib=500))
    assert by_name(run(SYSTEM, pool))["shared"]["predicted"]["gpu_memory_mib"] == 14500


def test_the_sum_over_gpus_is_warned_of():
    pool = shared(instance_types=["g4dn.12xlarge"], sharing=sharing(multi_gpu="sum"))
    derived = run(SYSTEM, pool)
    predicted = by_name(derived)["shared"]["predicted"]
    assert (predicted["gpu_memory_mib"], predicted["gpu_count"]) == (4 * 14848, 16)
    assert any("sum" in warning for warning in derived["warnings"])


def test_the_smallest_type_counts_for_a_mixed_pool():
    derived = run(SYSTEM, shared(instance_types=["g6.xlarge", "g4dn.xlarge"]))
    pool = by_name(derived)["shared"]
    assert pool["predicted"]["gpu_memory_mib"] == 14848
    assert pool["predicted"]["gpu_model"] is None
    assert pool["predicted_by_type"]["g6.xlarge"]["gpu_memory_mib"] == 22016
    assert any("different GPU memory" in warning for warning in derived["warnings"])


def test_the_startup_taint_is_set_only_where_somebody_removes_it():
    assert by_name(run(SYSTEM, shared()))["shared"]["startup_taints"] == []
    derived = run(SYSTEM, shared(), exclusive(), agent=True)
    key = "startup-taint.cluster-autoscaler.kubernetes.io/gpushare"
    assert [taint["key"] for taint in by_name(derived)["shared"]["startup_taints"]] == [key]
    assert by_name(derived)["whole"]["startup_taints"] == []
    assert key in [item["key"] for item in run(SYSTEM, shared())["gpu_tolerations"]]


def test_what_stands_on_nodes_is_handed_on_with_its_bounds():
    derived = run(SYSTEM, shared(), exclusive())
    assert derived["publish_bounds"] == {"g4dn.xlarge": "16384Mi"}
    assert derived["publish_bounds"] == _policy.bounds(derived["publish_policy"])
    (taint,) = by_name(run(SYSTEM, shared(), agent=True))["shared"]["startup_taints"]
    assert derived["names"] == {
        "annotation": _names.ANNOTATION,
        "condition": _names.CONDITION,
        "pool_label": _names.POOL_LABEL,
        "config_label": "nvidia.com/device-plugin.config",
        "change_annotation": _names.CHANGE_ANNOTATION,
        "compute_annotation": _names.COMPUTE_ANNOTATION,
        "shared_taint": "gpushare.eks/shared",
        "shared_gpu": "nvidia.com/gpu.shared",
        "whole_gpu": "nvidia.com/gpu",
        "type_label": _names.TYPE_LABEL,
        "startup_taint": taint,
        "agent": _names.AGENT_NAME,
    }


def test_the_affinity_names_the_gpu_pools():
    affinity = run(SYSTEM, shared(), exclusive())["affinity"]
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    expression = terms["nodeSelectorTerms"][0]["matchExpressions"][0]
    assert expression == {
        "key": "gpushare.eks/pool",
        "operator": "In",
        "values": ["shared", "whole"],
    }


def test_requirements_select_from_the_catalog():
    wanted = {"cpu": "2-4", "memory_gib": "8-16", "architecture": "arm64", "generation_min": 7}
    pool = {"name": "arm", "requirements": wanted, "max_size": 3}
    built = by_name(run(pool))["arm"]
    assert built["architecture"] == "arm64"
    assert "m7g.large" in built["instance_types"]
    for name in built["instance_types"]:
        data = CATALOG["instance_types"][name]
        assert 2 <= data["vcpus"] <= 4
        assert 8 * 1024 <= data["memory_mib"] <= 16 * 1024
        assert not data["gpus"]
        assert name[1] in "789"


def test_requirements_of_a_memory_pool_take_single_gpus_only():
    pool = shared(requirements={"cpu": "-64"})
    del pool["instance_types"]
    for name in by_name(run(SYSTEM, pool))["shared"]["instance_types"]:
        assert CATALOG["instance_types"][name]["gpus"][0]["count"] == 1


def test_a_gpu_without_sharing_and_no_general_pool_are_warned_of():
    warnings = run({**SYSTEM, "instance_types": ["g6.xlarge"]}, agent=False)["warnings"]
    assert any("nobody can ask for" in warning for warning in warnings)
    assert any("coredns" in warning for warning in run(shared())["warnings"])


# ---------------------------------------------------------------- refusals

REFUSALS = [
    (shared(sharing=sharing(strategy="mpss")), "sharing.strategy", "exclusive, time_slicing, mps"),
    (shared(sharing={"replicas": 4}), "sharing.strategy", "exclusive, time_slicing, mps"),
    (mps(49), "sharing.replicas", "2 to 48"),
    (mps(1), "sharing.replicas", "2 to 48"),
    (mps(17, instance_types=["p3dn.24xlarge"]), "sharing.replicas", "2 to 16"),
    (mps(None), "sharing.replicas", "2 to 48"),
    (shared(sharing=sharing(replicas=1)), "sharing.replicas", "from 2"),
    (shared(sharing=sharing(replicas=2.5)), "sharing.replicas", "a whole number"),
    (shared(sharing=sharing(replicas="10")), "sharing.replicas", "a whole number"),
    (shared(sharing=sharing(replicas=True)), "sharing.replicas", "a whole number"),
    (
        shared(sharing={"strategy": "time_slicing", "gpu_memory": False}),
        "sharing.replicas",
        "a whole number",
    ),
    (shared(sharing=sharing(gpu_memory="yes")), "sharing.gpu_memory", "true, false"),
    (shared(sharing=sharing(headroom_mib=-1)), "sharing.headroom_mib", "from 0"),
    (shared(sharing=sharing(headroom_mib=0.3)), "sharing.headroom_mib", "a whole number"),
    (shared(sharing=sharing(headroom_mib=14848)), "sharing.headroom_mib", "0 to 14847"),
    (shared(sharing=sharing(usable_mib=16385)), "sharing.usable_mib", "1 to 16384"),
    (shared(sharing=sharing(replica=4)), "sharing.replica", "did you mean replicas?"),
    (shared(sharing=sharing(flags={"migStrategi": "x"})), "sharing.flags.migStrategi", "migStrat"),
    (
        shared(sharing=sharing(flags={"migStrategy": "mixed"})),
        "sharing.flags.migStrategy",
        "none",
    ),
    (exclusive(sharing={"strategy": "exclusive", "gpu_memory": True}), "sharing.gpu_memory", "mps"),
    (exclusive(sharing={"strategy": "exclusive", "replicas": 2}), "sharing.replicas", "mps"),
    (shared(name=None), "name", "DNS label"),
    (shared(name="Shared"), "name", "DNS label"),
    (shared(name="x" * 41), "name", "DNS label"),
    (shared(name="default"), "name", "default config"),
    (shared(min_size=11), "min_size", "0-10"),
    (shared(max_size=0), "max_size", "from 1"),
    (shared(max_size=None), "max_size", "missing"),
    (shared(desired_size=11), "desired_size", "0-10"),
    (shared(instance_types=["g4dn.xlarg"]), "instance_types[0]", "ec2_catalog_info"),
    (shared(instance_types=["g4dn.xlarg"]), "instance_types[0]", "did you mean g4dn.xlarge?"),
    (shared(instance_types=["m6i.large"]), "instance_types", "a type with a GPU"),
    (shared(instance_types=["g4dn.12xlarge"]), "instance_types", "multi_gpu: sum"),
    (shared(instance_types=["g4dn.xlarge", "g5g.xlarge"]), "instance_types", "one architecture"),
    (shared(instance_types=[]), "instance_types", "instance types"),
    (shared(instance_types="g4dn.xlarge"), "instance_types", "a list"),
    (shared(instance_types=["g4dn.xlarge"] * 2), "instance_types[1]", "twice"),
    (shared(requirements={"cpu": "2-4"}), "instance_types", "beside requirements"),
    (shared(capacity_type=["cheap"]), "capacity_type", "on_demand, spot"),
    (shared(on_demand_base=1), "on_demand_base", "spot, on_demand"),
    (shared(zones="all"), "zones", "spread"),
    (shared(autoscaler="hpa"), "autoscaler", "karpenter"),
    (shared(labels={"gpushare.eks/pool": "x"}), "labels.gpushare.eks/pool", "sets itself"),
    (shared(labels={"kubernetes.io/role": "x"}), "labels.kubernetes.io/role", "NodeRestriction"),
    (
        shared(labels={"node-role.kubernetes.io/gpu": ""}),
        "labels.node-role.kubernetes.io/gpu",
        "NodeRestriction",
    ),
    (shared(labels={"x": True}), "labels.x", "in quotes"),
    (shared(labels={"a" * 63: "b", "c.d/" + "e" * 63: "f" * 64}), "labels.c.d/" + "e" * 63, "63"),
    (shared(taints=[{"key": "nvidia.com/gpu"}]), "taints[0].key", "sets itself"),
    (shared(taints=[{"key": "a", "effect": "Never"}]), "taints[0].effect", "NoSchedule"),
    (shared(taints=[{}]), "taints[0]", "empty"),
    (shared(tags={"aws:x": "y"}), "tags.aws:x", "aws:"),
    (shared(tags={"x": 1}), "tags.x", "text"),
    (shared(disk_gib=1), "disk_gib", "from 20"),
    (shared(image="gpu"), "image", "ami-"),
    (shared(instance_type=["g4dn.xlarge"]), "instance_type", "did you mean instance_types?"),
    ("shared", "", "a mapping"),
]


@pytest.mark.parametrize(
    ("pool", "field", "told"), REFUSALS, ids=[f"{n}-{row[1]}" for n, row in enumerate(REFUSALS)]
)
def test_refused_with_field_and_what_is_allowed(pool, field, told):
    path = f"gpushare_pools[1].{field}" if field else "gpushare_pools[1]"
    with pytest.raises(PoolError) as raised:
        run(SYSTEM, pool)
    lines = [line for line in str(raised.value).splitlines() if line.startswith(f"{path}: ")]
    assert lines, str(raised.value)
    assert any(told in line for line in lines), lines


def test_all_problems_come_at_once():
    problems = refused(
        {**SYSTEM, "min_size": 4},
        mps(49, zones="none"),
        shared(name="mps", instance_types=["m6i.large"]),
        tags={"aws:x": "y"},
    )
    assert set(problems) == {
        "gpushare_tags.aws:x",
        "gpushare_pools[0].min_size",
        "gpushare_pools[1].sharing.replicas",
        "gpushare_pools[1].zones",
        "gpushare_pools[2].name",
        "gpushare_pools[2].instance_types",
    }


def test_two_pools_may_not_make_one_group():
    one = shared(name="a", zones="one_group_per_zone")
    problems = refused(SYSTEM, one, shared(name="a-us-east-1a"), zones=["us-east-1a"])
    assert "a-us-east-1a" in problems["gpushare_pools[2].name"]["problem"]


def test_an_unknown_gpu_needs_its_usable_memory():
    catalog = copy.deepcopy(CATALOG)
    catalog["instance_types"]["g4dn.xlarge"]["gpus"][0]["name"] = "X1"
    assert "gpushare_pools[1].sharing.usable_mib" in refused(SYSTEM, shared(), catalog=catalog)
    built = run(SYSTEM, shared(sharing=sharing(usable_mib=9000)), catalog=catalog)
    assert by_name(built)["shared"]["predicted"]["gpu_memory_mib"] == 9000


def test_a_fraction_of_a_gpu_is_none():
    catalog = copy.deepcopy(CATALOG)
    catalog["instance_types"]["g4dn.xlarge"]["gpus"][0]["count"] = 0
    assert "gpushare_pools[1].instance_types" in refused(SYSTEM, shared(), catalog=catalog)


@pytest.mark.parametrize("pools", [None, [], {}, "shared", 3])
def test_no_pools(pools):
    with pytest.raises(PoolError, match="holds no pool"):
        derive(pools, cluster_name="demo")


@pytest.mark.parametrize(
    "resource", ["gpu-memory", "kubernetes.io/x", "a.k8s.io/x", "nvidia.com/gpu", "a/b/c", "A/x", 3]
)
def test_a_bad_resource_name(resource):
    assert "gpushare_resource" in refused(SYSTEM, resource=resource)


def test_the_resource_may_be_another():
    derived = run(SYSTEM, shared(), resource="veriff.com/gpu-memory")
    tags = by_name(derived)["shared"]["node_groups"][0]["asg_tags"]
    assert tags[f"{TEMPLATE}/resources/veriff.com/gpu-memory"] == "14848Mi"


@pytest.mark.parametrize("name", ["", "a b", "-a", "x" * 101, None])
def test_a_bad_cluster_name(name):
    with pytest.raises(PoolError, match="gpushare_cluster_name"):
        derive([SYSTEM], cluster_name=name)


def test_a_label_too_long_for_a_tag():
    label = "a" * 60 + "." + "b" * 40 + "/c"
    with pytest.raises(PoolError, match="longer than AWS takes"):
        run(SYSTEM, shared(labels={label: "x"}))


# ---------------------------------------------------------------- user data

CLUSTER = {
    "name": "demo",
    "endpoint": "https://example.eks.amazonaws.com",
    "ca_data": "LS0tCg==",
    "service_ipv4_cidr": "10.100.0.0/16",
}


def test_node_config_carries_labels_taints_and_pods():
    text = node_config(by_name(run(SYSTEM, shared(), agent=True))["shared"], CLUSTER)
    assert text.startswith("MIME-Version: 1.0\n")
    body = json.loads(text.split("application/node.eks.aws\n\n")[1].rpartition("\n\n--")[0])
    assert body["apiVersion"] == "node.eks.aws/v1alpha1"
    assert body["spec"]["cluster"]["cidr"] == "10.100.0.0/16"
    assert body["spec"]["kubelet"] == {
        "config": {"maxPods": 29},
        "flags": [
            "--node-labels=gpushare.eks/pool=shared,nvidia.com/device-plugin.config=shared",
            "--register-with-taints=gpushare.eks/shared=shared:NoSchedule,"
            "startup-taint.cluster-autoscaler.kubernetes.io/gpushare=true:NoSchedule",
        ],
    }


def test_node_config_without_taints_has_no_flag_for_them():
    text = node_config(by_name(run(SYSTEM))["system"], CLUSTER)
    assert "register-with-taints" not in text


def test_node_config_names_what_the_cluster_lacks():
    with pytest.raises(ValueError, match="endpoint"):
        node_config(by_name(run(SYSTEM))["system"], {**CLUSTER, "endpoint": ""})


# ---------------------------------------------------------------- properties

GPU_TYPES = sorted(name for name, data in CATALOG["instance_types"].items() if data["gpus"])
PLAIN_TYPES = sorted(name for name, data in CATALOG["instance_types"].items() if not data["gpus"])


@st.composite
def a_pool(draw, name):
    kind = draw(st.sampled_from(["general", "exclusive", "time_slicing", "mps"]))
    pool = {
        "name": name,
        "instance_types": [draw(st.sampled_from(PLAIN_TYPES if kind == "general" else GPU_TYPES))],
        "max_size": draw(st.integers(1, 50)),
        "zones": draw(st.sampled_from(["spread", "one_group_per_zone"])),
        "autoscaler": draw(st.sampled_from(["none", "cluster_autoscaler", "karpenter"])),
        "taints": draw(
            st.lists(st.just({"key": "team", "value": "a", "effect": "NoExecute"}), max_size=1)
        ),
    }
    if kind != "general":
        pool["sharing"] = {"strategy": kind}
    if kind in ("time_slicing", "mps"):
        pool["sharing"].update(
            replicas=draw(st.integers(2, 16)),
            gpu_memory=draw(st.booleans()),
            headroom_mib=draw(st.integers(0, 4096)),
            multi_gpu="sum",
        )
    return pool


@st.composite
def good_pools(draw):
    names = draw(
        st.lists(
            st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True),
            min_size=1,
            max_size=4,
            unique=True,
        ).filter(lambda names: "default" not in names)
    )
    return [draw(a_pool(name)) for name in names]


@settings(max_examples=150, deadline=None)
@given(good_pools())
def test_derive_holds_for_any_good_pools(pools):
    given_pools = copy.deepcopy(pools)
    derived = derive(pools, cluster_name="demo", zones=["us-east-1a", "us-east-1b"])
    assert pools == given_pools, "the input is left alone"
    assert derived == derive(pools, cluster_name="demo", zones=["us-east-1a", "us-east-1b"])
    json.dumps(derived)
    groups = [group["name"] for pool in derived["pools"] for group in pool["node_groups"]]
    assert len(groups) == len(set(groups))
    tolerated = {(item["key"], item["effect"]) for item in derived["gpu_tolerations"]}
    for pool in derived["pools"]:
        assert (
            not pool["labels"].get("k8s.amazonaws.com/accelerator") or pool["kind"] == "exclusive"
        )
        if pool["accelerated"]:
            assert pool["name"] in derived["device_plugin_configs"]
            for taint in [*pool["taints"], *pool["startup_taints"]]:
                assert (taint["key"], taint["effect"]) in tolerated
        for name, predicted in pool["predicted_by_type"].items():
            _never_above_the_catalog(name, predicted)
        for group in pool["node_groups"]:
            assert re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", group["name"])
            _as_cluster_autoscaler_reads(group["asg_tags"], derived["resource"], pool)


def _never_above_the_catalog(name, predicted):
    if predicted["gpu_memory_mib"] is None:
        return
    gpus = CATALOG["instance_types"][name]["gpus"]
    models = CATALOG["gpu_models"]
    usable = 0
    for gpu in gpus:
        model = models.get(f"{gpu['name']}/{gpu['memory_mib']}") or models[gpu["name"]]
        usable += model["usable_mib"] * gpu["count"]
    assert 0 < predicted["gpu_memory_mib"] <= usable


def _as_cluster_autoscaler_reads(tags, resource, pool):
    """The three forms of its AWS provider: label, taint `<value>:<Effect>`, resource quantity."""
    seen = {}
    for key, value in tags.items():
        assert len(key) <= 128
        assert len(value) <= 256
        if key.startswith(f"{TEMPLATE}/taint/"):
            assert re.fullmatch(r"[^:]*:(NoSchedule|NoExecute|PreferNoSchedule)", value)
        elif key.startswith(f"{TEMPLATE}/resources/"):
            assert re.fullmatch(r"\d+(Mi)?", value)
            seen[key.removeprefix(f"{TEMPLATE}/resources/")] = value
        elif not key.startswith(f"{TEMPLATE}/label/"):
            assert key in ("k8s.io/cluster-autoscaler/enabled", "k8s.io/cluster-autoscaler/demo")
    memory = pool["predicted"]["gpu_memory_mib"]
    assert seen.get(resource) == (f"{memory}Mi" if memory else None)


KEYS = ("name", "instance_types", "sharing", "strategy", "taints", "key", "cpu", "labels")
MORE_KEYS = ("requirements", "max_size", "flags", "tags", "capacity_type", "replicas")
SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.text(max_size=5)
GARBAGE = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS + MORE_KEYS) | st.text(max_size=3), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(GARBAGE, st.sampled_from(["sharing", "taints", "labels", "requirements", "capacity_type"]))
def test_garbage_is_refused_and_never_a_traceback(garbage, key):
    for pools in (garbage, [garbage], [{**SYSTEM, key: garbage}]):
        try:
            derive(pools, cluster_name="demo")
        except PoolError as error:
            refusal = error
        else:
            continue
        assert refusal.problems
        assert str(refusal)
