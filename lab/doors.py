"""The lab's own doors for tests: /_lab/nodes and /_lab/pods; ValueError tells what is wrong."""

from __future__ import annotations

from typing import Any

from lab.aws import ssm
from lab.aws.eks_state import Registry
from lab.joiner import Joiner
from lab.nvml import nodes
from lab.pods import PodRunner

_NODE_KEYS = {"instance_id", "node", "cluster", "outcome", "nvml", "figures"}
_POD_KEYS = {"pod", "namespace", "cluster", "signal", "renew_token"}


class Doors:
    """What tests do to the parts of a cluster; the joiner knows which instance is which Node."""

    def __init__(self, registry: Registry, joiner: Joiner) -> None:
        self._registry, self._joiner = registry, joiner

    # -- nodes ----------------------------------------------------------------------------------

    def nodes(self, payload: dict[str, Any]) -> dict[str, Any]:
        """POST /_lab/nodes: {"instance_id" or "node" (and "cluster" where two have the name), and
        any of "outcome": name or null, "nvml": {fault} or null, "figures": {..} or null}.

        `outcome` is how Run Command ends there, `nvml` takes nodes.set_fault's arguments, `figures`
        those of nodes.set_figures; null heals.
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
        return {
            "instance_id": instance_id,
            "nvml": nodes.faults(instance_id),
            "figures": nodes.figures(instance_id),
            "boot_id": nodes.boot_id(instance_id),
        }

    # -- pods -----------------------------------------------------------------------------------

    def pods(self, payload: dict[str, Any] | None) -> dict[str, Any]:
        """GET /_lab/pods: {"pods": [{cluster, namespace, name, container, node, pid, restarts,
        log}]} of what really runs. POST: {"pod": name, "signal": KILL, TERM, STOP or CONT}, or
        {"pod": name, "renew_token": true}; "namespace" and "cluster" where two have the name.
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


def _check(payload: Any, known: set[str], needed: tuple[str, ...]) -> None:
    """Refuse what has a key too many, or none of the needed ones."""
    if not isinstance(payload, dict) or set(payload) - known or not set(needed) & set(payload):
        raise ValueError(
            f"an object with {' or '.join(needed)}, and any of {', '.join(sorted(known))};"
            f" not {payload!r}"
        )
