"""The kubelets' part for pods that really run: those whose image is a stock Python.

KWOK shows every pod as running. For a pod with a container of such an image this thread starts the
container's command as a process on this machine, starts it again when it exits, and ends it with
the pod, its Node or its instance. Init containers and probes are left to KWOK.
"""

from __future__ import annotations

import logging
import shutil
import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

from lab import LabError
from lab.controlplane import ControlPlane
from lab.machine import Machines
from lab.podfiles import ConfigMaps, PodFiles, message_path
from lab.podrequests import PodRequests
from lab.podstate import Container, Pod, Slots, grace_s, is_ours
from lab.processes import signal_group

log = logging.getLogger("lab.pods")
GRACE_S = 2.0
# How long a changed ConfigMap takes to its files; a kubelet takes up to a minute.
CONFIG_MAP_DELAY_S = 0.5
SIGNALS = ("KILL", "STOP", "CONT", "TERM")
_TICK_S = 0.2
# A Node that is made anew under its name is gone for less than this.
_GONE_S = 1.0
_INSTANCE_TYPE = "node.kubernetes.io/instance-type"


class PodRunner:
    """One per cluster: start() once the control plane runs, stop() before it ends.

    nodes: the cluster's Nodes by name, None while unknown. instances: the IDs of those that run.
    """

    def __init__(
        self,
        plane: ControlPlane,
        machines: Machines,
        nodes: Callable[[], Mapping[str, dict] | None],
        *,
        slots: Slots | None = None,
        instances: Callable[[], Collection[str]] | None = None,
    ) -> None:
        self._plane, self._machines = plane, machines
        self._nodes, self._instances = nodes, instances
        self._slots = slots or Slots()
        self._wanted: dict[str, dict] = {}
        self._pods: dict[str, Pod] = {}
        # Node -> since when it is missing; pod UID and container -> restarts before it was lost.
        self._missing: dict[str, float] = {}
        self._lost: dict[tuple[str, str], int] = {}
        self._changed = threading.Condition(threading.RLock())
        self._stopped = self._news = False
        self._requests = PodRequests(plane, self._changed, self._wake)

    def start(self) -> None:
        """Begin to follow pods."""
        self._config_maps = ConfigMaps(self._plane.client, self._config_map_changed)
        address = urlsplit(self._plane.endpoint)
        self._api = {
            "KUBERNETES_SERVICE_HOST": str(address.hostname),
            "KUBERNETES_SERVICE_PORT": str(address.port),
        }
        for target in (self._follow, self._work):
            name = f"lab-pods-{self._plane.name}"
            threading.Thread(target=target, name=name, daemon=True).start()

    def stop(self) -> None:
        """End every process at once."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            for pod in self._pods.values():
                pod.end(0.0)
            deadline = time.monotonic() + 5.0
            for pod in list(self._pods.values()):
                while not pod.ended():
                    if time.monotonic() > deadline:
                        log.error("cluster %s: %s does not end", self._plane.name, pod.name)
                        break
                    time.sleep(0.01)
                self._drop(pod)
        self._requests.stop()

    # -- doors ----------------------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        """What runs: one row for each container."""
        with self._changed:
            return [
                {
                    "cluster": self._plane.name,
                    "namespace": pod.files.namespace,
                    "name": pod.name,
                    "container": container.name,
                    "node": pod.node,
                    "pid": container.child.pid if container.child else None,
                    "restarts": container.restarts,
                    "log": str(container.log),
                    "files": str(pod.root),
                }
                for pod in self._pods.values()
                for container in pod.containers
            ]

    def find(self, name: str, namespace: str | None = None) -> list[str]:
        """The UIDs of the pods of this name that run here."""
        with self._changed:
            return [
                uid
                for uid, pod in self._pods.items()
                if pod.name == name and namespace in (None, pod.files.namespace)
            ]

    def signal(self, uid: str, name: str) -> None:
        """Signal all processes of a pod: one of SIGNALS."""
        if name not in SIGNALS:
            raise ValueError(f"signal {name!r}: one of {', '.join(SIGNALS)}")
        with self._changed:
            for container in self._pods[uid].containers:
                if container.child:
                    signal_group(container.child, getattr(signal, f"SIG{name}"))

    def renew_token(self, uid: str) -> None:
        """Bring a new token to the pod's files now."""
        with self._changed:
            self._pods[uid].files.renew_due = 0.0
            self._wake()

    def reboot(self, instance_id: str, between: Callable[[], None]) -> None:
        """Kill all processes of the instance, do `between`, and start them again."""
        with self._changed:
            pods = [pod for pod in self._pods.values() if pod.instance_id == instance_id]
            for pod in pods:
                pod.down = pod.down or "reboot"
                pod.end(0.0)
        try:
            between()
        finally:
            with self._changed:
                for pod in pods:
                    if pod.down == "reboot":
                        pod.down = ""
                    for container in pod.containers:
                        container.start_due = container.back_off_s = 0.0
                self._wake()

    # -- what is --------------------------------------------------------------------------------

    def _follow(self) -> None:
        bound = {"fieldSelector": "spec.nodeName!="}
        for event in self._plane.client.follow("/api/v1/pods", bound):
            with self._changed:
                if self._stopped:
                    return
                if event["type"] == "SYNC":
                    found = [pod for pod in event["items"] if _runs_here(pod)]
                    self._wanted = {pod["metadata"]["uid"]: pod for pod in found}
                elif not _runs_here(event["object"]):
                    continue
                elif event["type"] == "DELETED":
                    self._wanted.pop(event["object"]["metadata"]["uid"], None)
                else:
                    self._wanted[event["object"]["metadata"]["uid"]] = event["object"]
                self._wake()

    def _config_map_changed(self) -> None:
        with self._changed:
            due = time.monotonic() + CONFIG_MAP_DELAY_S
            for pod in self._pods.values():
                if pod.write_due is None:
                    pod.write_due = due
            self._wake()

    def _wake(self) -> None:
        self._news = True
        self._changed.notify_all()

    # -- what follows from it ---------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._news:
                    self._changed.wait(_TICK_S if self._wanted or self._pods else None)
                if self._stopped:
                    return
                self._news = False
                try:
                    self._tick(time.monotonic())
                except Exception:
                    # One odd pod must not end the kubelets of all others.
                    log.exception("cluster %s: pods", self._plane.name)

    def _tick(self, now: float) -> None:
        nodes = self._nodes()
        if nodes is None:
            return
        running = self._instances() if self._instances else None
        hosts = {body["spec"]["nodeName"] for body in self._wanted.values()}
        self._missing = {host: self._missing.get(host, now) for host in hosts if host not in nodes}
        for uid, body in self._wanted.items():
            if uid in self._pods:
                self._pods[uid].body = body
                continue
            node = nodes.get(body["spec"]["nodeName"])
            if node is None:
                # Without a kubelet nothing happens to a pod; the garbage collector takes it.
                continue
            if body["metadata"].get("deletionTimestamp"):
                self._requests.finish(body, now)
            elif (body.get("status") or {}).get("phase") == "Running":
                self._adopt(body, node, running)
        for uid, pod in list(self._pods.items()):
            try:
                self._step(pod, now, running)
            except (LabError, OSError):
                log.exception("pod %s", pod.name)
            if pod.down in ("deleted", "lost") and pod.ended() and not pod.busy:
                self._drop(pod)
                if pod.down == "deleted" and uid in self._wanted:
                    self._requests.finish(pod.body, now)

    def _adopt(self, body: dict, node: dict, running: Collection[str] | None) -> None:
        instance_id = node["spec"].get("providerID", "").rsplit("/", 1)[-1]
        if (running is not None and instance_id not in running) or not self._slots.take():
            return
        meta, state = body["metadata"], self._plane.state_dir
        addresses = (node.get("status") or {}).get("addresses") or []
        host_ip = next((a["address"] for a in addresses if a["type"] == "InternalIP"), "")
        root = state / "pods" / meta["uid"]
        (root / "home").mkdir(parents=True, exist_ok=True)
        files = PodFiles(self._plane.client, self._config_maps, body, host_ip, root)
        kind = (node["metadata"].get("labels") or {}).get(_INSTANCE_TYPE, "")
        pod = Pod(body, instance_id, kind, files, root)
        for spec in filter(is_ours, body["spec"]["containers"]):
            name = f"{meta['namespace']}_{meta['name']}_{spec['name']}"
            record = state / "run" / f"pod-{meta['uid']}-{spec['name']}.json"
            message = root / "root" / spec["name"] / message_path(spec).lstrip("/")
            container = Container(spec, state / "logs" / "pods" / f"{name}.log", record, message)
            if (meta["uid"], spec["name"]) in self._lost:
                # What a kubelet says of a container whose end it did not see.
                container.restarts = self._lost.pop((meta["uid"], spec["name"]))
                container.last = {"exitCode": 255, "reason": "Unknown"}
            pod.containers.append(container)
        self._pods[meta["uid"]] = pod

    def _step(self, pod: Pod, now: float, running: Collection[str] | None) -> None:
        """Bring one pod's processes to where they should be, and ask for what is to be asked."""
        before = [(c.child, c.waits_for) for c in pod.containers]
        body = self._wanted.get(pod.uid)
        if body is None or body["metadata"].get("deletionTimestamp"):
            pod.down = "deleted"
            pod.end(grace_s(pod.body, GRACE_S))
        if running is not None and pod.instance_id not in running:
            pod.down = pod.down or "lost"
            pod.end(0.0)
        elif now - self._missing.get(pod.node, now) > _GONE_S:
            pod.down = pod.down or "lost"
            pod.end(grace_s(pod.body, GRACE_S))
        for container in pod.containers:
            had = container.child is not None
            if container.ended() and had and not pod.down:
                container.next(pod.body["spec"].get("restartPolicy", "Always"))
        if pod.down:
            return
        for container in pod.containers if pod.prepared else ():
            if container.child is None and not container.done and now >= container.start_due:
                given = self._machines.container(
                    pod.instance_id, pod.instance_type, container.spec, pod.root / "home"
                )
                container.start(pod.files, {**given, **self._api, "HOSTNAME": pod.name}, pod.name)
        if before != [(c.child, c.waits_for) for c in pod.containers]:
            first = all(c.child and c.last is None for c in pod.containers)
            # KWOK has told already that it runs.
            if not first or any(waited for _, waited in before):
                pod.status_due = now
        self._requests.due(pod, now)

    def _drop(self, pod: Pod) -> None:
        del self._pods[pod.uid]
        self._lost = {key: n for key, n in self._lost.items() if key[0] in self._wanted}
        if pod.down == "lost":
            self._lost |= {(pod.uid, c.name): c.restarts for c in pod.containers}
        shutil.rmtree(pod.root, ignore_errors=True)
        self._slots.give()


def _runs_here(pod: Mapping[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName")) and any(map(is_ours, pod["spec"]["containers"]))
