"""What an agent that fell into wrong hands would try with its token: each refused, by whom is said.

A case: name, refused by (`fence`, `rbac`, or `api` where the API server itself never takes it),
whose token, and the request. `own` is the agent's node, `other` another one, `odd` one of a type
that no pool names.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._names import (
    ANNOTATION,
    CONDITION,
    RESOURCE,
)

from .fence import (
    ALLOCATABLE,
    APPLY,
    CAPACITY,
    FOREIGN,
    JSON,
    JSON_PATCH,
    MERGE,
    NAMESPACE,
    SHARED,
    STARTUP,
    STRATEGIC,
    pointer,
)

OWN, OTHER, ODD = (f"/api/v1/nodes/{name}" for name in ("own", "other", "odd"))
Case = tuple[str, str, str, str, str, Any, str]


def _status(name: str, *operations: dict, by: str = "fence", node: str = OWN) -> Case:
    return name, by, "own", "PATCH", f"{node}/status", list(operations), JSON_PATCH


def _main(name: str, *operations: dict, by: str = "fence", node: str = OWN) -> Case:
    return name, by, "own", "PATCH", node, list(operations), JSON_PATCH


def _request(
    name: str, by: str, method: str, path: str, body: Any = None, kind: str = JSON
) -> Case:
    return name, by, "own", method, path, body, kind


def _capacity(name: str, key: str, value: str) -> Case:
    return _status(name, add(pointer("status", "capacity", key), value))


def add(path: str, value: Any) -> dict:
    return {"op": "add", "path": path, "value": value}


def remove(path: str) -> dict:
    return {"op": "remove", "path": path}


def event(kind: str, name: str, namespace: str = "default") -> dict:
    about = {"apiVersion": "v1", "kind": kind, "name": name}
    return {
        "metadata": {"generateName": "hostile.", "namespace": namespace},
        "involvedObject": about,
        "reason": "AgentPublished",
        "message": "all is well",
        "type": "Normal",
    }


_HONEST = (add(CAPACITY, "14848Mi"), add(ALLOCATABLE, "14848Mi"))
_OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "0"}
_CONDITION = {"type": CONDITION, "status": "True", "reason": "AgentPublished"}
_APPLIED = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "own"}}
_EVENTS = "/api/v1/namespaces/default/events"

CASES: list[Case] = [
    # Other nodes, and tokens that are not of this node's pod.
    _status("status of another node", *_HONEST, node=OTHER),
    _main("startup taint of another node", remove("/spec/taints/0"), node=OTHER),
    (
        "token of another node's pod",
        "fence",
        "other",
        "PATCH",
        f"{OWN}/status",
        list(_HONEST),
        JSON_PATCH,
    ),
    (
        "token that is bound to no pod",
        "fence",
        "",
        "PATCH",
        f"{OWN}/status",
        list(_HONEST),
        JSON_PATCH,
    ),
    # Resources that are not ours.
    _capacity("cpu", "cpu", "400"),
    _status("cpu in allocatable alone", add("/status/allocatable/cpu", "400")),
    _capacity("memory", "memory", "1Ti"),
    _capacity("pods", "pods", "1000"),
    _capacity("whole GPUs", "nvidia.com/gpu", "8"),
    _capacity("shared GPUs", "nvidia.com/gpu.shared", "290"),
    _capacity("another domain's resource", "veriff.com/gpu-memory", "15079Mi"),
    _status("foreign key removed from capacity", remove(pointer("status", "capacity", FOREIGN))),
    _status(
        "foreign key removed from allocatable", remove(pointer("status", "allocatable", FOREIGN))
    ),
    _status("capacity replaced by ours alone", add("/status/capacity", {RESOURCE: "14848Mi"})),
    _status("foreign beside an honest number", *_HONEST, add("/status/capacity/cpu", "400")),
    # Our own resource, but not what the hardware has.
    _status("more than the hardware", add(CAPACITY, "16385Mi"), add(ALLOCATABLE, "16385Mi")),
    _status("more than the hardware in allocatable alone", add(ALLOCATABLE, "16385Mi")),
    _status("one byte more than the hardware", add(CAPACITY, str(16384 * 1048576 + 1))),
    _status("10^18 MiB", add(CAPACITY, "953674316406Ti")),
    _status("zero", add(CAPACITY, "0"), add(ALLOCATABLE, "0")),
    _status("negative", add(CAPACITY, "-1Mi"), by="api"),
    (
        "a type that no pool names",
        "fence",
        "odd",
        "PATCH",
        f"{ODD}/status",
        list(_HONEST),
        JSON_PATCH,
    ),
    # Metadata, which a status patch changes, too.
    _status("label added with the status", add("/metadata/labels/x", "y")),
    _status("label changed with the status", add("/metadata/labels/own", "y")),
    _status("label removed with the status", remove("/metadata/labels/own")),
    _main("label added", add("/metadata/labels/x", "y")),
    _status(
        "type label, to be bounded by larger hardware",
        add(pointer("metadata", "labels", "node.kubernetes.io/instance-type"), "p5.48xlarge"),
    ),
    _status("annotation added with the status", add("/metadata/annotations/x", "y")),
    _status("annotation removed with the status", remove("/metadata/annotations/own")),
    _status("all annotations replaced by ours", add("/metadata/annotations", {ANNOTATION: "{}"})),
    _main("annotation added", add("/metadata/annotations/x", "y")),
    _main(
        "our annotation on the node itself",
        add(pointer("metadata", "annotations", ANNOTATION), "{}"),
    ),
    _status("finalizer added with the status", add("/metadata/finalizers/-", "example.com/x")),
    _status("finalizer removed with the status", remove("/metadata/finalizers/0")),
    _main("finalizer added", add("/metadata/finalizers/-", "example.com/x")),
    _status("owner added with the status", add("/metadata/ownerReferences", [_OWNER])),
    _main("owner added", add("/metadata/ownerReferences", [_OWNER])),
    # The rest of the status.
    _status("condition Ready", add("/status/conditions/0/status", "False")),
    _status("another condition removed", remove("/status/conditions/1")),
    _status(
        "another condition added", add("/status/conditions/-", {"type": "Ready2", "status": "True"})
    ),
    _status(
        "our condition twice",
        add("/status/conditions/-", _CONDITION),
        add("/status/conditions/-", _CONDITION),
    ),
    _status("address", add("/status/addresses/0/address", "10.6.6.6")),
    _status("nodeInfo", add("/status/nodeInfo/bootID", "another")),
    _status("images", add("/status/images", [])),
    _status("volumes", add("/status/volumesAttached", [{"name": "v", "devicePath": "/dev/x"}])),
    _status("kubelet's port", add("/status/daemonEndpoints/kubeletEndpoint/Port", 6666)),
    # The spec.
    _main("unschedulable", add("/spec/unschedulable", True)),
    _main("another taint removed", remove("/spec/taints/1")),
    _main("all taints removed", remove("/spec/taints")),
    _main("taint added", add("/spec/taints/-", {"key": "x", "effect": "NoExecute"})),
    _main(
        "startup taint added a second time",
        add("/spec/taints/-", {**STARTUP, "effect": "NoExecute"}),
    ),
    _main("startup taint with another value", add("/spec/taints/0/value", "later")),
    _main("taints in another order", add("/spec/taints/0", SHARED), remove("/spec/taints/2")),
    _main(
        "startup taint removed and unschedulable",
        remove("/spec/taints/0"),
        add("/spec/unschedulable", True),
    ),
    _main("podCIDR", add("/spec/podCIDR", "10.6.0.0/24"), add("/spec/podCIDRs", ["10.6.0.0/24"])),
    _main("providerID", add("/spec/providerID", "aws:///us-east-1a/i-mine"), by="api"),
    # Other ways to write.
    _request(
        "merge patch",
        "fence",
        "PATCH",
        f"{OWN}/status",
        {"status": {"capacity": {FOREIGN: None}}},
        MERGE,
    ),
    _request(
        "strategic merge patch",
        "fence",
        "PATCH",
        f"{OWN}/status",
        {"metadata": {"labels": {"x": "y"}}},
        STRATEGIC,
    ),
    _request(
        "server-side apply",
        "fence",
        "PATCH",
        f"{OWN}/status",
        {**_APPLIED, "status": {"capacity": {"example.com/x": "1"}}},
        APPLY,
    ),
    _request("PUT of the node", "rbac", "PUT", OWN, _APPLIED),
    _request("PUT of the status", "rbac", "PUT", f"{OWN}/status", _APPLIED),
    _request("node deleted", "rbac", "DELETE", OWN),
    _request("another node deleted", "rbac", "DELETE", OTHER),
    _request("node created", "rbac", "POST", "/api/v1/nodes", {"metadata": {"name": "made"}}),
    _request(
        "node created by server-side apply",
        "rbac",
        "PATCH",
        "/api/v1/nodes/made",
        {**_APPLIED, "metadata": {"name": "made"}},
        APPLY,
    ),
    # Events, and whatever else a token may open.
    _request("event about another node", "fence", "POST", _EVENTS, event("Node", "other")),
    _request("event about a pod", "fence", "POST", _EVENTS, event("Pod", "own")),
    _request(
        "event in kube-system",
        "rbac",
        "POST",
        "/api/v1/namespaces/kube-system/events",
        event("Node", "own", "kube-system"),
    ),
    _request("kubelet's API of its node", "rbac", "GET", f"{OWN}/proxy/pods"),
    _request("secrets", "rbac", "GET", f"/api/v1/namespaces/{NAMESPACE}/secrets"),
    _request("pods of the cluster", "rbac", "GET", "/api/v1/pods"),
    _request(
        "the policy",
        "rbac",
        "PATCH",
        f"/api/v1/namespaces/{NAMESPACE}/configmaps/gpushare-policy",
        {"data": {"hardware.g4dn.xlarge": "1Ti"}},
        MERGE,
    ),
    _request(
        "the fence",
        "rbac",
        "DELETE",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/gpushare-agent-fence",
    ),
    _request(
        "a token for itself",
        "rbac",
        "POST",
        f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/gpushare-agent/token",
        {"spec": {}},
    ),
]
