"""A control plane with agent, fence and guard as the role installs them, and its callers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from ansible_collections.gpushare.eks.plugins.module_utils._names import (
    AGENT_NAME,
    POOL_LABEL,
    RESOURCE,
    STARTUP_TAINT,
    TYPE_LABEL,
)
from lab.controlplane import ControlPlane

from . import playbook

PLAYBOOK = "tests/integration/support/fence.yml"
NAMESPACE = "gpushare-system"
JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
TYPE, HARDWARE_MIB, PREDICTED_MIB = "g4dn.xlarge", 16384, 14848
STARTUP = {"key": STARTUP_TAINT, "value": "true", "effect": "NoSchedule"}
SHARED = {"key": "gpushare.eks/shared", "value": "shared", "effect": "NoSchedule"}
WHOLE = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
FOREIGN = "other.example/resource"
# What changes by itself: the kubelet's heartbeats.
MOVING = ("lastHeartbeatTime", "lastTransitionTime")


def pointer(*keys: str) -> str:
    """A JSON pointer of these keys."""
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)


CAPACITY = pointer("status", "capacity", RESOURCE)
ALLOCATABLE = pointer("status", "allocatable", RESOURCE)


@dataclass(frozen=True)
class Caller:
    """Somebody with a bearer token, or whom the admin impersonates."""

    endpoint: str
    ca: str
    headers: dict[str, str]
    cert: tuple[str, str] | None = None

    def send(self, method: str, path: str, body: Any = None, kind: str = JSON) -> tuple[int, Any]:
        """(status, object or message)."""
        query = "?fieldManager=test" if kind == APPLY else ""
        answer = requests.request(
            method,
            self.endpoint + path + query,
            headers={**self.headers, "Content-Type": kind},
            json=body,
            verify=self.ca,
            cert=self.cert,
            timeout=30,
        )
        try:
            found = answer.json()
        except ValueError:
            return answer.status_code, answer.text
        return answer.status_code, found if answer.ok else found.get("message")


@dataclass
class World:
    """One control plane with the role's manifests on it."""

    plane: ControlPlane
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def _ca(self) -> str:
        return str(self.plane.state_dir / "pki" / "ca.crt")

    def admin(self, method: str, path: str, body: Any = None, kind: str = JSON) -> Any:
        """What the admin does succeeds."""
        status, answer = self.plane.request(method, path, body, kind)
        assert status in (200, 201, 202), (method, path, answer)
        return answer

    def bearer(self, token: str) -> Caller:
        return Caller(self.plane.endpoint, self._ca, {"Authorization": f"Bearer {token}"})

    def as_user(self, user: str, *groups: str) -> Caller:
        """Whom the admin impersonates: the API server authorises and admits as that user."""
        pki = self.plane.state_dir / "pki"
        headers = {"Impersonate-User": user, "Impersonate-Group": ",".join(groups)}
        assert len(groups) == 1, "requests sends a header once"
        return Caller(
            self.plane.endpoint, self._ca, headers, (str(pki / "admin.crt"), str(pki / "admin.key"))
        )

    def agent(self, node: str) -> Caller:
        """The agent of this node, with the token that its kubelet would mount into its pod."""
        return self.bearer(self.token(AGENT_NAME, NAMESPACE, self.agent_pod(node)))

    def token(self, account: str, namespace: str, pod: dict[str, Any] | None = None) -> str:
        """A ServiceAccount's token by TokenRequest, bound to a pod or to nothing."""
        spec: dict[str, Any] = {"expirationSeconds": 3600}
        if pod is not None:
            meta = pod["metadata"]
            bound = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
            spec["boundObjectRef"] = bound
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        return self.admin("POST", path, {"spec": spec})["status"]["token"]

    def agent_pod(self, node: str) -> dict[str, Any]:
        """The pod that the DaemonSet has on this node."""

        def read() -> dict[str, Any] | None:
            pods = self.admin("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
            on = [p for p in pods if p["spec"].get("nodeName") == node]
            return next((p for p in on if p["status"].get("phase") == "Running"), None)

        return eventually(read)

    def node(self, name: str) -> dict[str, Any]:
        return self.admin("GET", f"/api/v1/nodes/{name}")

    def make_node(self, name: str, kind: str = TYPE, **status: Any) -> str:
        """A node of the shared pool as it joins, with something to spoil in each of its fields."""
        labels = {POOL_LABEL: "shared", TYPE_LABEL: kind, "own": "label"}
        meta = {"name": name, "labels": labels, "annotations": {"own": "annotation"}}
        meta["finalizers"] = ["example.com/kept"]
        taints = [STARTUP, SHARED, WHOLE]
        sizes = {"cpu": "4", "memory": "16Gi", "pods": "29", "nvidia.com/gpu.shared": "29"}
        made = {
            "capacity": {**sizes, FOREIGN: "3"},
            "allocatable": {**sizes, "cpu": "3920m", "memory": "15Gi", FOREIGN: "3"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}],
            "images": [{"names": [f"example.com/image:{n}"], "sizeBytes": n} for n in range(50)],
            "nodeInfo": NODE_INFO,
            **status,
        }
        spec = {"providerID": f"aws:///us-east-1a/i-{name}", "taints": taints}
        self.admin("POST", "/api/v1/nodes", {"metadata": meta, "spec": spec, "status": made})
        eventually(lambda: self.node(name)["status"].get("conditions"))
        eventually(lambda: "not-ready" not in str(self.node(name)["spec"]["taints"]))
        return name

    def delete_node(self, name: str) -> None:
        path = f"/api/v1/nodes/{name}"
        self.admin("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
        self.admin("DELETE", path)

    def seen(self, name: str) -> dict[str, Any]:
        """The node without what changes by itself."""
        node = self.node(name)
        for key in ("managedFields", "resourceVersion"):
            node["metadata"].pop(key, None)
        for condition in node["status"]["conditions"]:
            for key in MOVING:
                condition.pop(key, None)
        return node

    def install(self, *more: str) -> playbook.Run:
        """What the role applies, by the role."""
        # Of the inventory only its pools matter here: nothing of this speaks to AWS.
        variables = {
            "fence_kubeconfig": str(self.plane.kubeconfig),
            "fence_version": self.plane.version,
        }
        done = playbook.run(PLAYBOOK, *more, extra_vars=variables)
        assert done.rc == 0, done
        return done


NODE_INFO = {
    "bootID": "b9e4c2b6-0000-4000-8000-000000000001",
    "machineID": "m",
    "systemUUID": "u",
    "kernelVersion": "6.12",
    "osImage": "Amazon Linux 2023",
    "containerRuntimeVersion": "containerd://2.1",
    "kubeletVersion": "v1.36.0",
    "kubeProxyVersion": "",
    "operatingSystem": "linux",
    "architecture": "amd64",
}


def eventually(read: Callable[[], Any], timeout_s: float = 20.0) -> Any:
    """What `read` gives once that is true."""
    deadline = time.monotonic() + timeout_s
    while not (found := read()):
        assert time.monotonic() < deadline, f"still {found!r} after {timeout_s} s"
        time.sleep(0.05)
    return found


@contextlib.contextmanager
def world(state_dir: Path, version: str = "1.36", *more: str) -> Iterator[World]:
    """A control plane with the role's manifests, once fence and guard are in force.

    more: arguments of ansible-playbook, such as another resource.
    """
    # Nobody answers there: only ServiceAccounts and certificates are known.
    plane = ControlPlane("fence", version, state_dir, "http://127.0.0.1:9/authn", audit=True)
    plane.start()
    try:
        made = World(plane)
        made.install(*more)
        made.make_node("probe")
        agent = made.agent("probe")
        path = "/api/v1/nodes/probe/status"

        def refused() -> bool:
            patch = [{"op": "add", "path": "/metadata/labels/x", "value": str(time.time_ns())}]
            return agent.send("PATCH", path, patch, JSON_PATCH)[0] == 403

        eventually(refused)  # a policy is in force within a second or two of its creation
        made.delete_node("probe")
        yield made
    finally:
        plane.stop()
