"""Manifests of an article that shared GPUs by hand, on a cluster of ours with its resource's name.

The workload that asks for memory runs as it stands. The DaemonSet that types the number in and the
workload that takes every GPU without asking are refused, each with the remedy.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils._names import POOL_LABEL, TYPE_LABEL

from .support import fence, rights
from .support.fence import JSON_PATCH, World, eventually

RESOURCE = "veriff.com/gpu-memory"
POINTER = fence.pointer("status", "capacity", RESOURCE)
APPS = "/apis/apps/v1/namespaces"
NODES = ("shared-1", "shared-2")
EVERY_GPU = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
# Where it shall run: by the instance type's label, without a word about taints.
BY_TYPE = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": TYPE_LABEL, "operator": "In", "values": ["g4dn.xlarge"]}
                    ]
                }
            ]
        }
    }
}


def template(name: str, container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": name, **container}], **spec},
        },
    }


def deployment(name: str, replicas: int, container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    container = {"image": "eritikass/gpu-load-test", "env": EVERY_GPU, **container}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, **template(name, container, **spec)},
    }


SHARE = {RESOURCE: "104Mi"}
COUNTED = deployment("gpu-example", 6, {"resources": {"requests": SHARE, "limits": SHARE}})
UNCOUNTED = deployment("gpu-taker", 5, {}, affinity=BY_TYPE)
PUBLISHER = "add-gpu-memory"
DAEMON_SET = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": PUBLISHER},
    "spec": template(
        PUBLISHER,
        {"image": "bitnami/kubectl", "command": ["bash", "/app.sh"]},
        affinity=BY_TYPE,
        tolerations=[{"key": "special", "operator": "Exists"}],
        serviceAccountName=PUBLISHER,
        priorityClassName="system-node-critical",
    ),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two nodes of the shared pool, whose agents published what NVML shows."""
    state = tmp_path_factory.mktemp("foreign") / "state"
    with fence.world(state, "1.36", "-e", f"gpushare_resource={RESOURCE}") as made:
        for name in NODES:
            join(made, name)
        yield made


def join(world: World, name: str) -> None:
    """A node joins, and its agent does what it does: the number, then the startup taint."""
    sizes = {"cpu": "4", "memory": "16Gi", "pods": "29", "nvidia.com/gpu.shared": "29"}
    node = {
        "metadata": {"name": name, "labels": {POOL_LABEL: "shared", TYPE_LABEL: fence.TYPE}},
        "spec": {
            "providerID": f"aws:///us-east-1a/i-{name}",
            "taints": [fence.STARTUP, fence.SHARED],
        },
        "status": {"capacity": sizes, "allocatable": sizes, "nodeInfo": fence.NODE_INFO},
    }
    world.admin("POST", "/api/v1/nodes", node)
    agent = world.agent(name)
    eventually(lambda: world.node(name)["status"].get("conditions"))
    plan = rights.planned(world, name)
    status, said = rights.write(agent, name, *plan.status)
    assert status == 200, said
    status, said = agent.send("PATCH", f"/api/v1/nodes/{name}", plan.spec, JSON_PATCH)
    assert status == 200, said
    eventually(lambda: world.node(name)["status"]["allocatable"].get(RESOURCE))
    eventually(lambda: "not-ready" not in str(world.node(name)["spec"]["taints"]))


def pods(world: World, app: str) -> list[dict[str, Any]]:
    path = f"/api/v1/namespaces/default/pods?labelSelector=app%3D{app}"
    return world.admin("GET", path)["items"]


def test_the_workload_that_asks_runs_as_it_stands(world: World) -> None:
    made = world.admin("POST", f"{APPS}/default/deployments", copy.deepcopy(COUNTED))
    path = f"{APPS}/default/deployments/gpu-example"
    eventually(lambda: world.admin("GET", path)["status"].get("availableReplicas") == 6)
    running = pods(world, "gpu-example")
    assert [pod["status"]["phase"] for pod in running] == ["Running"] * 6
    assert {pod["spec"]["nodeName"] for pod in running} <= set(NODES)
    # Nobody touched the manifest: what was missing in it stands in its pods.
    (given,) = COUNTED["spec"]["template"]["spec"]["containers"]
    kept = world.admin("GET", path)["spec"]["template"]["spec"]
    assert kept == made["spec"]["template"]["spec"]
    assert "tolerations" not in kept
    assert kept["containers"][0]["resources"] == given["resources"]
    for pod in running:
        (container,) = pod["spec"]["containers"]
        assert container["resources"]["limits"] == {**SHARE, "nvidia.com/gpu.shared": "1"}
        assert container["env"] == EVERY_GPU
        keys = [one.get("key") for one in pod["spec"]["tolerations"]]
        assert fence.SHARED["key"] in keys
    for name in NODES:
        published = world.node(name)["status"]["allocatable"][RESOURCE]
        assert published == f"{fence.PREDICTED_MIB}Mi", "what NVML showed, and no number of theirs"


def test_the_number_that_is_typed_in_is_refused(world: World) -> None:
    system = "/api/v1/namespaces/kube-system/serviceaccounts"
    world.admin("POST", system, {"metadata": {"name": PUBLISHER}})
    rules = [
        {"apiGroups": ["*"], "resources": ["nodes"], "verbs": ["get", "list"]},
        {"apiGroups": ["*"], "resources": ["nodes/status"], "verbs": ["patch"]},
    ]
    role = {"metadata": {"name": PUBLISHER}, "rules": rules}
    world.admin("POST", f"{fence.RBAC}/clusterroles", role)
    rights.bind(world, PUBLISHER, PUBLISHER, "ServiceAccount", PUBLISHER, namespace="kube-system")
    world.admin("POST", f"{APPS}/kube-system/daemonsets", copy.deepcopy(DAEMON_SET))
    path = f"{APPS}/kube-system/daemonsets/{PUBLISHER}"
    eventually(lambda: world.admin("GET", path)["status"].get("observedGeneration"))
    # The pool's taint keeps its pods away; and had it one, this is what it would write.
    assert world.admin("GET", path)["status"]["desiredNumberScheduled"] == 0
    caller = world.bearer(world.token(PUBLISHER, "kube-system"))
    status, said = rights.write(
        caller, NODES[0], {"op": "add", "path": POINTER, "value": "15079Mi"}
    )
    assert status == 403, said
    for part in (
        "gpushare-resource-guard",
        f"kube-system:{PUBLISHER} may not write {RESOURCE} on node {NODES[0]}",
        "Remedy: take this publisher away",
        "gpushare:publishers",
    ):
        assert part in said
    assert world.node(NODES[0])["status"]["capacity"][RESOURCE] == f"{fence.PREDICTED_MIB}Mi"


def test_every_gpu_without_asking_is_refused(world: World) -> None:
    path = f"{APPS}/default/deployments/gpu-taker"
    world.admin("POST", f"{APPS}/default/deployments", copy.deepcopy(UNCOUNTED))

    def failure() -> str | None:
        conditions = world.admin("GET", path)["status"].get("conditions") or []
        return next((c["message"] for c in conditions if c["type"] == "ReplicaFailure"), None)

    said = eventually(failure)
    for part in ("gpushare-visible-devices", "NVIDIA_VISIBLE_DEVICES", "Remedy", RESOURCE):
        assert part in said
    assert pods(world, "gpu-taker") == []
    # The same pod, asking for what it takes, is let in.
    asking = copy.deepcopy(UNCOUNTED["spec"]["template"])
    asking["metadata"]["name"] = "asks"
    asking["spec"]["containers"][0]["resources"] = {"limits": SHARE}
    world.admin("POST", "/api/v1/namespaces/default/pods", asking)
    eventually(lambda: pods(world, "gpu-taker")[0]["status"].get("phase") == "Running")
