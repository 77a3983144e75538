"""The effect of NVIDIA's deployed chart on the lab's Nodes: plugin, GFD, MPS daemon and NFD.

The pods come from the real chart and are only shown as running by KWOK; this thread does to the
Node what the programs in them, together with the kubelet, would do. Simplified in one point: when
a plugin goes away the kubelet sets allocatable to 0 at once and capacity after five minutes; here
both are 0 at once, because the lab's kubelet copies capacity into allocatable.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from lab import LabError, nvidia
from lab.controlplane import ControlPlane
from lab.due import Due

log = logging.getLogger("lab.deviceplugin")
HOLD = "lab.gpushare.eks/hold"
_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
# How soon a program that exits with an error is tried again; a kubelet starts with 10 s.
_RETRY = 2.0
GpusOf = Callable[[str], Sequence[Mapping[str, Any]]]


def nvml_gpus(instance_type: str) -> list[dict[str, Any]]:
    """The GPUs that the lab's NVML shows on this instance type; empty for one without."""
    from lab import nvml

    return [
        {"name": gpu.name, "memory_mib": gpu.total_mib, "capability": gpu.capability}
        for gpu in nvml.gpus(instance_type)
    ]


class DevicePluginEffect:
    """One per cluster: start() once the control plane runs, stop() before or after it ends."""

    def __init__(self, control_plane: ControlPlane, gpus_of: GpusOf = nvml_gpus) -> None:
        self._plane = control_plane
        self._gpus_of = gpus_of
        self._nodes: dict[str, dict] = {}
        self._listed = False
        self._pods: dict[str, tuple[str, dict]] = {}
        self._due: Due[str] = Due()
        # Pod UID -> (label value, config body): a program reads its config when it starts and when
        # the node's label changes, not when the ConfigMap does.
        self._loaded: dict[str, tuple[str, dict]] = {}
        # Node UID -> resources that a plugin has registered there since the Node was made.
        self._published: dict[str, set[str]] = {}
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin to follow nodes and pods."""
        for target in (self._follow_nodes, self._follow_pods, self._work):
            thread = threading.Thread(
                target=target, name=f"lab-nvidia-{self._plane.name}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End the worker; the watches end with the control plane's client."""
        self._due.stop()

    def nodes(self) -> dict[str, dict] | None:
        """The cluster's Nodes by name; None as long as nobody knows."""
        with self._due.changed:
            return dict(self._nodes) if self._listed else None

    # -- what is --------------------------------------------------------------------------------

    def _follow_nodes(self) -> None:
        for event in self._plane.client.follow("/api/v1/nodes"):
            with self._due.changed:
                if self._due.stopped:
                    return
                if event["type"] == "SYNC":
                    self._nodes = {node["metadata"]["name"]: node for node in event["items"]}
                    self._listed = True
                    self._due.mark(*self._nodes)
                    continue
                node = event["object"]
                name = node["metadata"]["name"]
                if event["type"] == "DELETED":
                    self._nodes.pop(name, None)
                    self._published.pop(node["metadata"]["uid"], None)
                    continue
                before = self._nodes.get(name)
                self._nodes[name] = node
                # Heartbeats and taints change nothing for us; labels do, and a new Node does.
                if before is None or _seen(before) != _seen(node):
                    self._due.mark(name)

    def _follow_pods(self) -> None:
        for event in self._plane.client.follow("/api/v1/pods"):
            with self._due.changed:
                if self._due.stopped:
                    return
                if event["type"] == "SYNC":
                    self._pods = {}
                    for pod in event["items"]:
                        self._remember(pod)
                    self._due.mark(*self._nodes)
                elif event["type"] == "DELETED":
                    uid = event["object"]["metadata"]["uid"]
                    known = self._pods.pop(uid, None)
                    self._loaded.pop(uid, None)
                    if known:
                        self._mark_for(*known)
                else:
                    self._remember(event["object"])

    def _remember(self, pod: dict) -> None:
        role = nvidia.role(pod)
        if role and pod["spec"].get("nodeName"):
            self._pods[pod["metadata"]["uid"]] = (role, pod)
            self._mark_for(role, pod)

    def _mark_for(self, role: str, pod: dict) -> None:
        # The NFD master labels every node, all others only the one they run on.
        self._due.mark(*(self._nodes if role == "nfd-master" else [pod["spec"]["nodeName"]]))

    # -- what follows from it ---------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._due.changed:
                name = self._due.take()
                if name is None:
                    return
                node = self._nodes.get(name)
                here: dict[str, dict] = {}
                for role, pod in self._pods.values():
                    acts = role == "nfd-master" or pod["spec"]["nodeName"] == name
                    # Of two (a rolling update) the one that works counts.
                    if acts and (role not in here or _running(pod)):
                        here[role] = pod
            if node is None:
                continue
            try:
                again = self._reconcile(node, here)
            except LabError as error:
                again = not self._due.stopped
                log.warning("node %s: %s", name, error)
            except Exception:
                # One odd node or config must not end the effect for all others.
                again = True
                log.exception("node %s", name)
            if again:
                self._due.mark(name, after=_RETRY)

    def _reconcile(self, node: dict, here: Mapping[str, dict]) -> bool:
        """Bring one Node to where its pods would; True when some program fails and tries again."""
        meta = node["metadata"]
        gpus = self._gpus_of((meta.get("labels") or {}).get(_INSTANCE_TYPE, ""))
        if not gpus:
            return False
        labels: dict[str, str | None] = {}
        again = False
        master = _running(here.get("nfd-master"))
        if master and _running(here.get("nfd-worker")):
            labels[nvidia.PCI_LABEL] = "true"
        elif nvidia.PCI_LABEL in (meta.get("labels") or {}) and not self._deployed("nfd-worker"):
            # NFD's chart removes its labels by a job after it was uninstalled.
            labels[nvidia.PCI_LABEL] = None
        gfd = here.get("gfd")
        if gfd:
            shared, failed = self._start_program(gfd, node)
            again |= failed
            if shared and master and _running(gfd):
                labels |= nvidia.labels(shared, gpus)
        elif not self._deployed("gfd"):
            # GFD's NodeFeature objects belong to its DaemonSet, and their labels go with it.
            labels |= {key: None for key in nvidia.LABELS if key in (meta.get("labels") or {})}
        plugin = here.get("plugin")
        served: dict[str, int] = {}
        if plugin:
            mps = _running(here.get("mps"))
            shared, failed = self._start_program(plugin, node, gpus=gpus, mps_daemon=mps)
            again |= failed
            # With a failure in a container beside it, the plugin itself goes on with what it has.
            if shared and (_running(plugin) or failed):
                served = {shared.resource: len(gpus) * shared.replicas}
        self._write_labels(node, labels)
        self._write_capacity(node, served)
        return again

    def _start_program(
        self,
        pod: dict,
        node: dict,
        *,
        gpus: Sequence[Mapping[str, Any]] = (),
        mps_daemon: bool = False,
    ) -> tuple[nvidia.Sharing | None, bool]:
        """(what the pod's program works with or None, whether something in it fails)."""
        containers = [c["name"] for c in pod["spec"]["containers"]]
        main = next((c for c in containers if c.endswith("-ctr")), containers[-1])
        try:
            failure = None
            config = self._config(pod, node)
        except nvidia.PluginError as error:
            failure, config = error, self._loaded.get(pod["metadata"]["uid"], (None, None))[1]
            if config is not None:
                # The main program goes on with its old config; only the config-manager beside it,
                # which watches the label, exits.
                beside = [c for c in containers if c != main]
                failure = nvidia.PluginError(str(error), beside[0] if beside else main)
        shared = None
        if config is not None:
            try:
                shared = nvidia.sharing(config, main)
                if gpus:
                    nvidia.capacity(shared, gpus, mps_daemon=mps_daemon, container=main)
            except nvidia.PluginError as error:
                shared, failure = None, error
        self._show(pod, failure)
        return shared, failure is not None

    def _config(self, pod: dict, node: dict) -> dict:
        """The config body that the pod's program has loaded, read anew when the label changed."""
        source = nvidia.config_source(pod)
        if source is None:
            return {}
        uid = pod["metadata"]["uid"]
        label = (node["metadata"].get("labels") or {}).get(source.node_label, "")
        if uid in self._loaded and self._loaded[uid][0] == label:
            return self._loaded[uid][1]
        path = f"/api/v1/namespaces/{source.namespace}/configmaps/{source.config_map}"
        status, found = self._plane.request("GET", path)
        files = (found or {}).get("data") or {} if status == 200 else {}
        name = nvidia.choose(source, label, files)
        try:
            body = (yaml.safe_load(files[name]) or {}) if name else {}
        except yaml.YAMLError as error:
            raise nvidia.PluginError(f"unable to parse {name}: {error}", source.container) from None
        self._loaded[uid] = (label, body)
        return body

    def _deployed(self, role: str) -> bool:
        status, found = self._plane.request("GET", "/apis/apps/v1/daemonsets")
        return status != 200 or any(
            nvidia.role(item["spec"]["template"]) == role for item in found["items"]
        )

    # -- writes ---------------------------------------------------------------------------------

    def _write_labels(self, node: dict, labels: Mapping[str, str | None]) -> None:
        current = node["metadata"].get("labels") or {}
        differ = {key: value for key, value in labels.items() if current.get(key) != value}
        if differ:
            self._patch(node, "", {"metadata": {"labels": differ}})

    def _write_capacity(self, node: dict, served: Mapping[str, int]) -> None:
        published = self._published.setdefault(node["metadata"]["uid"], set())
        published.update(served)
        # A resource that was registered once stays with 0, as the kubelet leaves it.
        wanted = {key: str(served.get(key, 0)) for key in published}
        status = node.get("status") or {}
        differ = {
            key: value
            for key, value in wanted.items()
            if (status.get("capacity") or {}).get(key) != value
            or (status.get("allocatable") or {}).get(key) != value
        }
        if differ:
            self._patch(node, "/status", {"status": {"capacity": differ, "allocatable": differ}})
            log.info("node %s: %s", node["metadata"]["name"], differ)

    def _patch(self, node: dict, subresource: str, body: dict) -> None:
        meta = node["metadata"]
        # The UID makes the server refuse (409) when another Node took over the name meanwhile.
        body = {**body, "metadata": {**body.get("metadata", {}), "uid": meta["uid"]}}
        path = f"/api/v1/nodes/{meta['name']}{subresource}"
        status, answer = self._plane.request("PATCH", path, body, _MERGE)
        if status not in (200, 404, 409):
            raise LabError(f"{path}: {status} {(answer or {}).get('message')}")

    def _show(self, pod: dict, failure: nvidia.PluginError | None) -> None:
        """Show a program's failure on its pod as the kubelet does, until it is over."""
        said = _annotations(pod).get(HOLD)
        wanted = f"{failure.container}: {failure}" if failure else None
        if said == wanted:
            return
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        self._plane.request("PATCH", path, {"metadata": {"annotations": {HOLD: wanted}}}, _MERGE)
        status = nvidia.crashing(pod, failure) if failure else {"phase": "Pending"}
        self._plane.request("PATCH", f"{path}/status", {"status": status}, _STRATEGIC)
        if failure:
            log.warning("pod %s: %s", pod["metadata"]["name"], wanted)


def _seen(node: Mapping) -> tuple:
    """The parts of a Node that the effect depends on."""
    status = node.get("status") or {}
    ours = {
        key: (value, (status.get("allocatable") or {}).get(key))
        for key, value in (status.get("capacity") or {}).items()
        if key.startswith("nvidia.com/")
    }
    return node["metadata"]["uid"], node["metadata"].get("labels"), ours


def _annotations(pod: Mapping) -> dict[str, str]:
    return pod["metadata"].get("annotations") or {}


def _running(pod: Mapping | None) -> bool:
    """Whether the pod's programs all run."""
    if pod is None or HOLD in _annotations(pod):
        return False
    return (pod.get("status") or {}).get("phase") == "Running"
