"""The lab's own doors for tests: nodes, pods and clusters; ValueError tells what is wrong."""

from __future__ import annotations

from typing import Any

from lab.aws import ssm
from lab.aws.eks_state import Cluster, Registry
from lab.joiner import Joiner, extended
from lab.nvml import nodes
from lab.pods import PodRunner

_NODE_KEYS = {
    *("instance_id", "node", "cluster", "outcome", "nvml", "figures"),
    *("reboot", "zero", "replace_node", "stale"),
}
_CLUSTER_KEYS = {"cluster", "kill", "pause", "program"}
_POD_KEYS = {"pod", "namespace", "cluster", "signal", "renew_token"}


class Doors:
    """What tests do to the parts of a cluster; the joiner knows which instance is which Node."""

    def __init__(self, registry: Registry, joiner: Joiner) -> None:
        self._registry, self._joiner = registry, joiner

    # -- nodes ----------------------------------------------------------------------------------

    def nodes(self, payload: dict[str, Any]) -> dict[str, Any]:
        """POST /_lab/nodes: {"instance_id" or "node" (and "cluster" where two have the name), and
        any of "outcome": name or null, "nvml": {fault} or null, "figures": {..} or null, "reboot":
        true, "zero": true, "replace_node": true, "stale": true}.

        `outcome` is how Run Command ends there, `nvml` takes nodes.set_fault's arguments, `figures`
        those of nodes.set_figures; null heals. `zero`: after the reboot the kubelet shows every
        extended resource as 0 (kubernetes pull request 77699). `stale`: the Node that is made anew
        has the extended resources of the old one (kubernetes issue 126943).
        """
        _check(payload, _NODE_KEYS, ("instance_id", "node"))
        instance_id = payload.get("instance_id") or self._joiner.find(
            payload["node"], payload.get("cluster")
        )
        if "outcome" in payload:
            ssm.inject(instance_id, payload["outcome"])
        if "figures" in payload:
            nodes.set_figures(instance_id, payload["figures"])
        if "nvml" in payload:
            if payload["nvml"] is None:
                nodes.clear_fault(instance_id)
            else:
                nodes.set_fault(instance_id, **payload["nvml"])
        if payload.get("reboot"):
            self._reboot(instance_id, bool(payload.get("zero")))
        if payload.get("replace_node"):
            self._joiner.replace(instance_id, bool(payload.get("stale")))
        return {
            "instance_id": instance_id,
            "nvml": nodes.faults(instance_id),
            "figures": nodes.figures(instance_id),
            "boot_id": nodes.boot_id(instance_id),
        }

    def _reboot(self, instance_id: str, zero: bool) -> None:
        cluster, name = self._joiner.joined(instance_id)

        def between() -> None:
            # The kubelet's first status after the boot, before it starts any pod.
            path = f"/api/v1/nodes/{name}"
            status: dict[str, Any] = {"nodeInfo": {"bootID": nodes.reboot(instance_id)}}
            if zero:
                old = cluster.kubernetes("GET", path)["status"]
                for part in ("capacity", "allocatable"):
                    status[part] = dict.fromkeys(extended(old.get(part) or {}), "0")
            kind = "application/strategic-merge-patch+json"
            cluster.kubernetes("PATCH", f"{path}/status", {"status": status}, content_type=kind)

        runner = self._runners().get(cluster.name)
        if runner:
            runner.reboot(instance_id, between)
        else:
            between()

    # -- clusters -------------------------------------------------------------------------------

    def clusters(self, payload: dict[str, Any] | None) -> dict[str, Any]:
        """GET /_lab/clusters: {"clusters": {name: {status, endpoint, audit_log, failures,
        programs: {name: {pid, restarts}}}}}. POST: {"cluster": name, "kill": program}, or
        {"cluster": name, "pause": seconds, "program": name, the API server where none is named}.
        """
        found = {c.name: c for c in list(self._registry.clusters.values())}
        if payload is not None:
            _check(payload, _CLUSTER_KEYS, ("cluster",))
            if payload["cluster"] not in found:
                raise ValueError(f"no cluster {payload['cluster']}: one of {', '.join(found)}")
            programs = found[payload["cluster"]].control_plane.programs
            if "kill" in payload:
                programs.kill(payload["kill"])
            if "pause" in payload:
                name = payload.get("program", "kube-apiserver")
                programs.pause(name, float(payload["pause"]))
        return {"clusters": {name: _described(cluster) for name, cluster in found.items()}}

    # -- pods -----------------------------------------------------------------------------------

    def pods(self, payload: dict[str, Any] | None) -> dict[str, Any]:
        """GET /_lab/pods: {"pods": [{cluster, namespace, name, container, node, pid, restarts,
        log, files}]} of what really runs. POST: {"pod": name, "signal": KILL, TERM, STOP or CONT},
        or {"pod": name, "renew_token": true}; "namespace" and "cluster" where two have the name.
        """
        runners = self._runners()
        if payload is not None:
            _check(payload, _POD_KEYS, ("pod",))
            found = [
                (runner, uid)
                for cluster, runner in runners.items()
                if payload.get("cluster") in (None, cluster)
                for uid in runner.find(payload["pod"], payload.get("namespace"))
            ]
            if len(found) != 1:
                raise ValueError(
                    f"{len(found)} pods called {payload['pod']} run here; GET /_lab/pods lists all,"
                    " and namespace and cluster tell two apart"
                )
            [(runner, uid)] = found
            if "signal" in payload:
                runner.signal(uid, payload["signal"])
            if payload.get("renew_token"):
                runner.renew_token(uid)
        return {"pods": [row for runner in runners.values() for row in runner.rows()]}

    def _runners(self) -> dict[str, PodRunner]:
        clusters = list(self._registry.clusters.values())
        planes = {cluster.name: cluster.control_plane for cluster in clusters}
        return {name: plane.pods for name, plane in planes.items() if hasattr(plane, "pods")}


def _described(cluster: Cluster) -> dict[str, Any]:
    plane, status = cluster.control_plane, cluster.record["status"]
    if status not in ("ACTIVE", "UPDATING"):
        return {"status": status}
    return {
        "status": status,
        "endpoint": plane.endpoint,
        "audit_log": str(plane.audit_log) if plane.audit_log else None,
        "failures": plane.failures,
        "programs": plane.programs.rows(),
    }


def _check(payload: Any, known: set[str], needed: tuple[str, ...]) -> None:
    """Refuse what has a key too many, or none of the needed ones."""
    if not isinstance(payload, dict) or set(payload) - known or not set(needed) & set(payload):
        raise ValueError(
            f"an object with {' or '.join(needed)}, and any of {', '.join(sorted(known))};"
            f" not {payload!r}"
        )
