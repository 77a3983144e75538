"""The report of schema 1 and its table."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpushare.eks.plugins.module_utils._pod_requests import request_of
from ansible_collections.gpushare.eks.plugins.module_utils._pools import derive
from ansible_collections.gpushare.eks.plugins.module_utils._report import report, table

RESOURCE = "gpushare.eks/gpu-memory"
SHARED = "nvidia.com/gpu.shared"
MIB = 1048576
DERIVED = derive(
    [
        {"name": "system", "instance_types": ["m6i.large"], "max_size": 1},
        {
            "name": "shared",
            "instance_types": ["g4dn.xlarge"],
            "max_size": 2,
            "sharing": {"strategy": "time_slicing", "replicas": 10, "gpu_memory": True},
        },
        {
            "name": "exclusive",
            "instance_types": ["g6.xlarge"],
            "max_size": 2,
            "sharing": {"strategy": "exclusive"},
        },
    ],
    cluster_name="demo",
)


def node(name, pool, kind, memory=None):
    amounts = {"cpu": "4", **({RESOURCE: memory} if memory else {})}
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": {
                "gpushare.eks/pool": pool,
                "node.kubernetes.io/instance-type": kind,
                "topology.kubernetes.io/zone": "us-east-1a",
            },
        },
        "spec": {"providerID": f"aws:///us-east-1a/i-{name}"},
        "status": {"capacity": dict(amounts), "allocatable": dict(amounts)},
    }


def container(memory=None, part="limits", **amounts):
    amounts = {**({RESOURCE: memory} if memory else {}), **amounts}
    return {"name": "c", "resources": {part: amounts} if amounts else {}}


def pod(name, where=None, phase="Running", containers=None, **spec):
    made = {
        "metadata": {"namespace": "default", "name": name},
        "spec": {"containers": containers or [container("3Gi", **{SHARED: "1"})], **spec},
        "status": {"phase": phase},
    }
    if where:
        made["spec"]["nodeName"] = where
    return made


def waiting(name, message=None, **options):
    made = pod(name, phase="Pending", **options)
    if message:
        condition = {"type": "PodScheduled", "status": "False", "message": message}
        made["status"]["conditions"] = [{"type": "Ready", "status": "False"}, condition]
    return made


READINGS = [
    {
        "instance_id": "i-b",
        "outcome": "Success",
        "gpus": [
            {
                "uuid": "GPU-1",
                "name": "Tesla T4",
                "total_mib": 15360,
                "reserved_mib": 450,
                "used_mib": 9000,
                "index": 0,
            }
        ],
    },
    {"instance_id": "i-c", "outcome": "TimedOut", "gpus": None, "error": {"type": "TimedOut"}},
]
NODES = [
    node("d", "elsewhere", "c7i.large"),
    node("c", "exclusive", "g6.xlarge"),
    node("b", "shared", "g4dn.xlarge", "14848Mi"),
    node("a", "system", "m6i.large"),
]


def made(pods, nodes=NODES, readings=READINGS):
    return report("demo", RESOURCE, DERIVED, nodes, pods, readings)


def test_the_whole_shape():
    data = made([pod("r-2", "b"), pod("r-1", "b"), waiting("r-5", "0/4 nodes: Insufficient")])
    assert [row["name"] for row in data["nodes"]] == ["a", "b", "c", "d"], "in the pools' order"
    assert data["nodes"][1] == {
        "name": "b",
        "pool": "shared",
        "instance_id": "i-b",
        "instance_type": "g4dn.xlarge",
        "zone": "us-east-1a",
        "gpus": [
            {
                "uuid": "GPU-1",
                "name": "Tesla T4",
                "total_mib": 15360,
                "reserved_mib": 450,
                "usable_mib": 14910,
                "used_mib": 9000,
                "index": 0,
                "mig": None,
            }
        ],
        "driver": None,
        "cuda": None,
        "processes": None,
        "capacity_mib": 14848,
        "allocatable_mib": 14848,
        "requested_mib": 6144,
        "free_mib": 8704,
        "price_per_hour": None,
        "pods": [
            {
                "namespace": "default",
                "name": name,
                "phase": "Running",
                "gpu_memory_mib": 3072,
                "used_mib": None,
                "above": None,
            }
            for name in ("r-1", "r-2")
        ],
        "gpu_resources": {},
        "predicted": {"gpu_memory_mib": 14848, "gpu_resource": SHARED, "gpu_count": 10},
    }
    assert data["pending"] == [
        {
            "namespace": "default",
            "name": "r-5",
            "gpu_memory_mib": 3072,
            "reason": "0/4 nodes: Insufficient",
        }
    ]
    assert {key: data[key] for key in ("schema", "cluster", "resource")} == {
        "schema": 1,
        "cluster": "demo",
        "resource": RESOURCE,
    }
    json.dumps(data)


def test_what_a_node_offers_stands_beside_what_its_pool_predicts():
    sliced, whole = (
        node("b", "shared", "g4dn.xlarge", "14848Mi"),
        node("c", "exclusive", "g6.xlarge"),
    )
    sliced["status"]["allocatable"] |= {SHARED: "10", "nvidia.com/gpu": "0"}
    whole["status"]["allocatable"]["nvidia.com/gpu"] = "1"
    foreign = [node("d", "elsewhere", "c7i.large"), node("e", "shared", "g5.xlarge")]
    rows = {row["name"]: row for row in made([], [sliced, whole, *foreign])["nodes"]}
    for name in "bc":
        told = rows[name]["predicted"]
        assert rows[name]["gpu_resources"] == {told["gpu_resource"]: told["gpu_count"]}
        assert rows[name]["allocatable_mib"] == told["gpu_memory_mib"]
    assert rows["d"]["predicted"] is None, "no pool of ours"
    assert rows["e"]["predicted"] is None, "no type of its pool"


def test_what_is_unknown_is_none_and_never_zero():
    rows = {row["name"]: row for row in made([])["nodes"]}
    assert rows["a"]["capacity_mib"] is None
    assert rows["a"]["free_mib"] is None
    assert rows["c"]["gpus"] == []
    lost = [{"instance_id": "i-b", "gpus": [{"uuid": "GPU-1", "name": None, "total_mib": None}]}]
    seen = {row["name"]: row for row in made([], readings=lost)["nodes"]}["b"]["gpus"]
    assert seen[0]["usable_mib"] is None


def test_finished_pods_do_not_count():
    data = made([pod("a", "b", "Succeeded"), pod("c", "b", "Failed"), pod("d", phase="Failed")])
    assert data["nodes"][1]["requested_mib"] == 0
    assert data["pending"] == []


def test_pods_that_ask_for_nothing_are_not_listed():
    plain = pod("plain", "b", containers=[container()])
    whole = pod("whole", "c", containers=[container(**{"nvidia.com/gpu": "1"})])
    rows = {row["name"]: row for row in made([plain, whole])["nodes"]}
    assert rows["b"]["pods"] == []
    assert rows["c"]["pods"][0]["gpu_memory_mib"] is None
    assert rows["c"]["requested_mib"] == 0


def test_the_reason_of_a_pod_without_a_node():
    gated = waiting("gated", schedulingGates=[{"name": "x/y"}])
    reasons = {item["name"]: item["reason"] for item in made([waiting("new"), gated])["pending"]}
    assert reasons == {
        "gated": "held by the scheduling gates x/y",
        "new": "the scheduler has not looked at it yet",
    }


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        ({"containers": [container("3Gi"), container("1Gi")]}, 4096),
        ({"containers": [container("3Gi", part="requests")]}, 3072),
        ({"containers": [container("3Gi")], "initContainers": [container("5Gi")]}, 5120),
        ({"containers": [container("3Gi")], "initContainers": [container("1Gi")]}, 3072),
        (
            {
                "containers": [container("3Gi")],
                "initContainers": [{**container("1Gi"), "restartPolicy": "Always"}],
            },
            4096,
        ),
        (
            {
                "containers": [container("3Gi")],
                "initContainers": [
                    {**container("1Gi"), "restartPolicy": "Always"},
                    container("4Gi"),
                ],
            },
            5120,
        ),
        ({"containers": [container("3Gi")], "overhead": {RESOURCE: "1Mi"}}, 3073),
        ({"containers": []}, 0),
        ({}, 0),
    ],
)
def test_the_effective_request_is_the_schedulers(spec, size):
    assert request_of({"spec": spec}, RESOURCE) == size * MIB


@given(st.lists(st.integers(1, 5000), max_size=6))
def test_requested_and_free_add_up(sizes):
    pods = [
        pod(f"p{number}", "b", containers=[container(f"{size}Mi")])
        for number, size in enumerate(sizes)
    ]
    row = made(pods)["nodes"][1]
    assert row["requested_mib"] == sum(sizes)
    assert row["free_mib"] + row["requested_mib"] == row["allocatable_mib"]
    assert sum(item["gpu_memory_mib"] for item in row["pods"]) == row["requested_mib"]


def test_the_table_is_for_a_person():
    pods = [pod("r-1", "b"), pod("r-20", "b"), waiting("r-5", "0/4 nodes: Insufficient memory")]
    assert table(made(pods)) == "\n".join(
        [
            "demo: gpushare.eks/gpu-memory in MiB",
            "NODE  POOL       TYPE         GPU       USABLE  PUBLISHED  ALLOCATABLE  REQUESTED"
            "  FREE",
            "a     system     m6i.large    -              -          -            -          -"
            "     -",
            "b     shared     g4dn.xlarge  Tesla T4   14910      14848        14848       6144"
            "  8704",
            "    default/r-1   3072  Running",
            "    default/r-20  3072  Running",
            "c     exclusive  g6.xlarge    -              -          -            -          -"
            "     -",
            "d     elsewhere  c7i.large    -              -          -            -          -"
            "     -",
            "PENDING",
            "  default/r-5  3072  0/4 nodes: Insufficient memory",
        ]
    )


def test_the_table_of_nothing():
    assert table(made([], nodes=[])).splitlines()[-1] == "no nodes"


def test_several_gpus_are_counted_in_the_table():
    several = [{**READINGS[0], "gpus": READINGS[0]["gpus"] * 4}]
    line = table(made([], readings=several)).splitlines()[3]
    assert "4 x Tesla T4" in line
    assert str(4 * 14910) in line
