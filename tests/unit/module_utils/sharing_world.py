"""A cluster of GPU nodes in memory for gpu_sharing_change: API, plugin, agent and clock."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils import _sharing_plan
from ansible_collections.gpushare.eks.plugins.module_utils._names import RESOURCE
from ansible_collections.gpushare.eks.plugins.module_utils._pools import derive
from ansible_collections.gpushare.eks.plugins.module_utils._sharing_configs import name_of
from ansible_collections.gpushare.eks.plugins.module_utils._sharing_roll import Roll

LABEL, SHARED = "nvidia.com/device-plugin.config", "nvidia.com/gpu.shared"
SLICED = {"strategy": "time_slicing", "replicas": 10, "gpu_memory": True}
MPS = {"strategy": "mps", "replicas": 4, "gpu_memory": True}


def derived(sharing: dict[str, Any], name: str = "shared") -> dict[str, Any]:
    pool = {"name": name, "instance_types": ["g4dn.xlarge"], "max_size": 9, "sharing": sharing}
    return derive([pool], cluster_name="demo", resource=RESOURCE)


OLD, NEW = derived(SLICED), derived(MPS)
MOVED = name_of("shared", NEW["device_plugin_configs"]["shared"])
CONFIGS = {**OLD["device_plugin_configs"], MOVED: NEW["device_plugin_configs"]["shared"]}


def node(name: str, config: str = "shared", **spec: Any) -> dict[str, Any]:
    amounts = {"cpu": "4", SHARED: "10", RESOURCE: "14848Mi"}
    labels = {"gpushare.eks/pool": "shared", "node.kubernetes.io/instance-type": "g4dn.xlarge"}
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "labels": {**labels, LABEL: config},
            "annotations": {"kept": "yes"},
        },
        "spec": {"providerID": f"aws:///us-east-1a/i-{name}", **spec},
        "status": {
            "capacity": dict(amounts),
            "allocatable": dict(amounts),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, where: str, memory: str = "3Gi", phase: str = "Running") -> dict[str, Any]:
    limits = {RESOURCE: memory, SHARED: "1"}
    return {
        "metadata": {"namespace": "default", "name": name, "uid": f"uid-{name}"},
        "spec": {"nodeName": where, "containers": [{"name": "c", "resources": {"limits": limits}}]},
        "status": {"phase": phase},
    }


class Killed(BaseException):
    """kill -9 of the run."""


class World:
    """The cluster as Roll and the module see it. Nodes and pods are Kubernetes JSON.

    ends: {pod name: second at which it ends}; users: {instance: {"process ...": second of its
    end}}; plugin_s: how long the plugin takes after a relabel, None: it never comes; kill: (number
    of the patch, "before" or "after" it).
    """

    def __init__(self, *nodes: dict[str, Any], pods: list[dict[str, Any]] | None = None) -> None:
        self.all = {one["metadata"]["name"]: one for one in nodes}
        self.live, self.ends, self.users_of = list(pods or []), {}, {}
        self.now, self.plugin_s, self.kill, self.patches = 0.0, 2.0, None, 0
        self.name, self.counts, self.calls = "demo", Counter(), Counter()
        self.labelled: dict[str, float] = {}
        self.on_patch: list[Any] = []
        self.log: list[str] = []
        self.configs = {name: dict(body) for name, body in CONFIGS.items()}

    # -- time ---------------------------------------------------------------------------------

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.live = [
            one for one in self.live if self.ends.get(one["metadata"]["name"], 1e9) > self.now
        ]
        for name, since in list(self.labelled.items()):
            if self.plugin_s is not None and self.now - since >= self.plugin_s:
                self.serve(name)

    def serve(self, name: str) -> None:
        """What the plugin does with the config that the label names."""
        body = self.configs[self.all[name]["metadata"]["labels"][LABEL]]
        (sharing,) = body["sharing"].values()
        for part in ("capacity", "allocatable"):
            self.all[name]["status"][part][SHARED] = str(sharing["resources"][0]["replicas"])
        self.all[name]["metadata"]["resourceVersion"] += "s"
        del self.labelled[name]

    # -- Kubernetes -----------------------------------------------------------------------------

    def extend(self) -> None:
        pass

    def nodes(self) -> list[dict[str, Any]]:
        self.counts["list"] += 1
        return copy.deepcopy(list(self.all.values()))

    def pods(self) -> list[dict[str, Any]]:
        return copy.deepcopy([p for p in self.live if p["status"]["phase"] == "Running"])

    def pods_of(self, name: str) -> list[dict[str, Any]]:
        return copy.deepcopy([p for p in self.live if p["spec"]["nodeName"] == name])

    def node(self, name: str) -> dict[str, Any] | None:
        return copy.deepcopy(self.all.get(name))

    def patch_node(self, name: str, patch: dict[str, Any]) -> bool:
        self.patches += 1
        if self.kill == (self.patches, "before"):
            raise Killed
        if self.on_patch:
            self.on_patch.pop(0)(self)
        found = self.all.get(name)
        fence = {key: patch["metadata"][key] for key in ("uid", "resourceVersion")}
        if found is None or any(found["metadata"][key] != value for key, value in fence.items()):
            return False
        for key in ("labels", "annotations"):
            _merge(found["metadata"][key], patch["metadata"].get(key, {}))
        _merge(found["spec"], patch.get("spec", {}))
        found["metadata"]["resourceVersion"] += "p"
        if LABEL in patch["metadata"].get("labels", {}):
            for part in ("capacity", "allocatable"):
                found["status"][part][SHARED] = "0"
            self.labelled[name] = self.now
        if self.kill == (self.patches, "after"):
            raise Killed
        return True

    # -- SSM ------------------------------------------------------------------------------------

    def users(self, instance_id: str, names: dict[str, str]) -> list[str]:
        found = self.users_of.get(instance_id, {})
        if isinstance(found, Exception):
            raise found
        return [who for who, end in found.items() if end > self.now]

    # -- the run --------------------------------------------------------------------------------

    def roll(self, wanted: dict[str, Any] = NEW, wait_s: float = 60, ready_s: float = 30) -> Roll:
        plan = _sharing_plan.Plan(wanted, self.configs, ("shared",))
        limits = {"drain": wait_s, "ready": ready_s, "back": ready_s}
        return Roll(self, self, plan, limits, self.log.append, self.clock, self.sleep)

    def standing(self, name: str) -> dict[str, Any]:
        """A node without what every write changes."""
        found = copy.deepcopy(self.all[name])
        del found["metadata"]["resourceVersion"]
        return found


def _merge(into: dict[str, Any], patch: dict[str, Any]) -> None:
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        else:
            into[key] = value
