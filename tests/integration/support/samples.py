"""A control plane with GPU nodes on which stock Pythons run, and the role sample_app on it."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils import _pools
from ansible_collections.gpushare.eks.plugins.module_utils._names import RESOURCE, TYPE_LABEL
from ansible_collections.gpushare.eks.plugins.module_utils._quantity import to_mib
from lab import nvml
from lab.controlplane import ControlPlane
from lab.machine import Machines
from lab.pods import PodRunner

from . import playbook
from .fence import eventually

PLAYBOOK = "tests/integration/support/samples.yml"
NAMESPACE = "gpushare-sample"
POOLS: list[dict[str, Any]] = [
    {"name": "system", "instance_types": ["m6i.large"], "max_size": 1},
    {
        "name": "shared",
        "instance_types": ["g4dn.xlarge"],
        "max_size": 1,
        "sharing": {"strategy": "time_slicing", "gpu_memory": True},
    },
    {
        "name": "mps",
        "instance_types": ["g5.xlarge"],
        "max_size": 1,
        "sharing": {"strategy": "mps", "replicas": 4, "gpu_memory": True},
    },
    {
        "name": "exclusive",
        "instance_types": ["g4dn.2xlarge"],
        "max_size": 1,
        "sharing": {"strategy": "exclusive"},
    },
]
DERIVED = _pools.derive(POOLS, cluster_name="samples")


class World:
    """One control plane with a node of each pool; its pods of a stock Python really run."""

    def __init__(self, tmp: Path) -> None:
        self._tmp = tmp
        # Nobody answers there: only certificates are known.
        self.plane = ControlPlane("samples", "1.36", tmp / "state", "http://127.0.0.1:9/authn")
        self.plane.start()
        (tmp / "nodes").mkdir()
        machines = Machines(tmp / "nodes", nvml.build())
        self.runner = PodRunner(self.plane, machines, self._nodes)
        self.runner.start()
        self.nodes = {pool["name"]: self._join(pool) for pool in DERIVED["pools"]}
        eventually(lambda: all(self._ready(name) for name in self.nodes.values()))

    def stop(self) -> None:
        self.runner.stop()
        self.plane.stop()

    def _nodes(self) -> dict[str, dict]:
        return {one["metadata"]["name"]: one for one in self.get("/api/v1/nodes")["items"]}

    def _join(self, pool: dict[str, Any]) -> str:
        """A node as it is once its kubelet, NVIDIA's plugin and our agent have done their part."""
        predicted, name = pool["predicted"], f"node-{pool['name']}"
        sizes = {"cpu": "16", "memory": "64Gi", "pods": "40"}
        if predicted["gpu_resource"]:
            sizes[predicted["gpu_resource"]] = str(predicted["gpu_count"])
        if predicted["gpu_memory_mib"]:
            sizes[RESOURCE] = f"{predicted['gpu_memory_mib']}Mi"
        labels = {**pool["labels"], TYPE_LABEL: pool["instance_types"][0]}
        labels["kubernetes.io/hostname"] = name
        body = {
            "metadata": {"name": name, "labels": labels},
            "spec": {"providerID": f"aws:///us-east-1a/i-{pool['name']}", "taints": pool["taints"]},
            "status": {"capacity": sizes, "allocatable": sizes},
        }
        status, answer = self.plane.request("POST", "/api/v1/nodes", body)
        assert status == 201, answer
        return name

    def _ready(self, name: str) -> bool:
        node = self.get(f"/api/v1/nodes/{name}")
        return "not-ready" not in str(node["spec"].get("taints")) and bool(
            node["status"].get("conditions")
        )

    def get(self, path: str) -> Any:
        status, answer = self.plane.request("GET", path)
        return answer if status == 200 else None

    def patch(self, path: str, body: Any) -> None:
        status, answer = self.plane.request("PATCH", path, body, "application/merge-patch+json")
        assert status == 200, answer

    def pods(self, name: str) -> list[dict]:
        """The pods of one sample."""
        selector = f"labelSelector=app.kubernetes.io%2Fname%3D{name}"
        return self.get(f"/api/v1/namespaces/{NAMESPACE}/pods?{selector}")["items"]

    def deployment(self, name: str = "resnet") -> dict | None:
        return self.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{name}")

    def play(self, *more: str, entry: str = "main", **variables: Any) -> playbook.Run:
        """One entry point of the role, with variables of sample_app without their prefix."""
        given = {f"sample_app_{name}": value for name, value in variables.items()}
        everything = {
            "gpushare_pools": POOLS,
            "gpushare_cluster_name": "samples",
            "gpushare_build_dir": str(self._tmp / "build"),
            "samples_entry": entry,
            # The admin's certificate instead of a token of AWS.
            "__sample_app_kubeconfig": str(self.plane.kubeconfig),
            "__sample_app_token": "",
            "sample_app_wait_timeout": 60,
            **given,
        }
        path = self._tmp / "vars.json"
        path.write_text(json.dumps(everything))
        return playbook.run(PLAYBOOK, *more, "-e", f"@{path}")

    def built(self, name: str) -> str:
        """A report that the role wrote."""
        return (self._tmp / "build" / name).read_text()


@contextlib.contextmanager
def world(tmp: Path) -> Iterator[World]:
    made = World(tmp)
    try:
        yield made
    finally:
        made.stop()


class Watcher:
    """Every pod event of a node's life, in the API server's order: who asks for GPU memory."""

    def __init__(self, made: World, node: str) -> None:
        self._client, self._node = made.plane.client, node
        self._pods: dict[str, dict] = {}
        self.most_mib = self.most_pods = self.events = 0
        self._synced = threading.Event()
        threading.Thread(target=self._follow, daemon=True, name="watcher").start()
        assert self._synced.wait(10)

    def _follow(self) -> None:
        for event in self._client.follow(f"/api/v1/namespaces/{NAMESPACE}/pods"):
            if event["type"] == "SYNC":
                self._pods = {pod["metadata"]["uid"]: pod for pod in event["items"]}
            elif event["type"] == "DELETED":
                self._pods.pop(event["object"]["metadata"]["uid"], None)
            else:
                self._pods[event["object"]["metadata"]["uid"]] = event["object"]
            self.events += 1
            self._look()
            self._synced.set()

    def _look(self) -> None:
        asking = []
        for pod in self._pods.values():
            status = pod.get("status") or {}
            ended = status.get("phase") in ("Succeeded", "Failed")
            if pod["spec"].get("nodeName") == self._node and not ended:
                asking.append(sum(map(_asks_mib, pod["spec"]["containers"])))
        self.most_mib = max(self.most_mib, sum(asking))
        self.most_pods = max(self.most_pods, len(asking))


def _asks_mib(container: dict[str, Any]) -> int:
    limits = (container.get("resources") or {}).get("limits") or {}
    return to_mib(limits.get(RESOURCE)) or 0


def settled(read: Any, seconds: float = 2.0) -> Any:
    """What `read` gives for a while; it may not change meanwhile."""
    before, deadline = read(), time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert read() == before
        time.sleep(0.2)
    return before
