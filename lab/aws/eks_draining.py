"""How EKS empties nodes before it ends their instances."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from lab.aws.eks_state import Cluster

_WAIT_S = 60.0


def wait_gone(read: Callable[[], list[Any]], timeout_s: float = _WAIT_S) -> None:
    """Until `read` answers an empty list; an error with what is left after the time."""
    deadline = time.monotonic() + timeout_s
    while left := read():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(left)} still there after {timeout_s:.0f} s")
        time.sleep(0.1)


def drain(cluster: Cluster, node: str, timeout_s: float = 5.0) -> None:
    """Cordon and evict; a budget that allows no eviction is waited for, but not for ever."""
    cluster.kubernetes(
        "PATCH",
        f"/api/v1/nodes/{node}",
        {"spec": {"unschedulable": True}},
        ok=(404,),
        content_type="application/merge-patch+json",
    )
    deadline = time.monotonic() + timeout_s
    selector = {"fieldSelector": f"spec.nodeName={node}"}
    pods = cluster.kubernetes("GET", "/api/v1/pods", params=selector)["items"]
    while pods := [pod for pod in pods if not _of_daemon(pod)]:
        pods = [pod for pod in pods if not _evicted(cluster, pod)]
        if pods and time.monotonic() > deadline:
            return
        time.sleep(0.1 if pods else 0)


def _of_daemon(pod: dict[str, Any]) -> bool:
    return any(o["kind"] == "DaemonSet" for o in pod["metadata"].get("ownerReferences", []))


def _evicted(cluster: Cluster, pod: dict[str, Any]) -> bool:
    meta = {key: pod["metadata"][key] for key in ("name", "namespace")}
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    status, _ = cluster.control_plane.request("POST", path, body)
    return status != 429


def is_ready(node: dict[str, Any]) -> bool:
    """Whether the Node says that it is Ready."""
    conditions = node.get("status", {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
