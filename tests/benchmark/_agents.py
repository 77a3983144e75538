"""The agent in a benchmark's cluster: installed by the role, watched from outside."""

from __future__ import annotations

import base64
import json
import os
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import requests
from _cluster import HEAD, TYPE, Cluster, play

from ansible_collections.gpushare.eks.plugins.module_utils import _agent_plan, _token
from ansible_collections.gpushare.eks.plugins.module_utils._names import RESOURCE, STARTUP_TAINT
from ansible_collections.gpushare.eks.plugins.module_utils._pools import derive

NAMESPACE = "gpushare-system"
POOLS = [
    {
        "name": "shared",
        "instance_types": [TYPE],
        "max_size": 200,
        "sharing": {"strategy": "time_slicing", "gpu_memory": True},
    }
]
INSTALL = (
    HEAD
    + """
    eks_result: {exists: true, name: "{{ gpushare_cluster_name }}", endpoint: none, ca_data: none}
  module_defaults:
    group/kubernetes.core.k8s: {context: "{{ gpushare_cluster_name }}"}
  tasks:
    - ansible.builtin.include_role: {name: gpushare.eks.device_plugin, tasks_from: look}
    - ansible.builtin.include_role: {name: gpushare.eks.device_plugin, tasks_from: agent}
"""
)


def cluster(name: str, nodes: int, cidr: str, most: int) -> Cluster:
    """A cluster whose node group is as gpu_nodes makes it of POOLS, startup taint included."""
    (pool,) = derive(POOLS, cluster_name=name, agent=True)["pools"]
    effects = {"NoSchedule": "NO_SCHEDULE"}
    taints = [
        {"key": one["key"], "value": one["value"], "effect": effects[one["effect"]]}
        for one in [*pool["taints"], *pool["startup_taints"]]
    ]
    return Cluster(name, nodes, cidr, labels=pool["labels"], taints=taints, most=most)


def policy(name: str) -> dict[str, Any]:
    """The policy document that the role puts into the cluster."""
    return derive(POOLS, cluster_name=name, agent=True)["publish_policy"]


def install(name: str) -> None:
    """Agent, fence and guard, by the role's own tasks."""
    with tempfile.TemporaryDirectory() as folder:
        play(
            Path(folder),
            INSTALL,
            gpushare_cluster_name=name,
            gpushare_region=os.environ["AWS_REGION"],
            gpushare_pools=POOLS,
        )


def door(path: str, payload: dict[str, Any] | None = None) -> dict[str, Any]:
    """One of the lab's own doors: /_lab/<path>."""
    data = None if payload is None else json.dumps(payload).encode()
    url = f"{os.environ['AWS_ENDPOINT_URL']}/_lab/{path}"
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=60) as answer:
        return json.load(answer)


class Admin:
    """The cluster's administrator, as any caller of EKS is one; the CA lies in a file."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        found = boto3.client("eks").describe_cluster(name=name)["cluster"]
        self.endpoint, self.ca = found["endpoint"], folder / f"{name}.pem"
        self.ca.write_bytes(base64.b64decode(found["certificateAuthority"]["data"]))
        self._session, self._minted, self._token = boto3.Session(), 0.0, ""

    def token(self) -> str:
        if time.time() - self._minted > 300:
            self._token, self._minted = _token.mint(self._session, self.name), time.time()
        return self._token

    def request(self, method: str, path: str, **more: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.token()}", **more.pop("headers", {})}
        more = {"timeout": 30, **more}
        return requests.request(
            method, self.endpoint + path, headers=headers, verify=str(self.ca), **more
        )

    def patch_status(self, node: str, operations: list[dict[str, Any]]) -> requests.Response:
        kind = {"Content-Type": "application/json-patch+json"}
        path = f"/api/v1/nodes/{node}/status"
        return self.request("PATCH", path, headers=kind, data=json.dumps(operations))


@dataclass(frozen=True)
class Seen:
    """One state of one Node at the moment in which the watch showed it (time.monotonic)."""

    at: float
    name: str
    uid: str
    ready: bool
    allocatable_mib: int | None
    capacity_mib: int | None
    tainted: bool
    deleted: bool
    node: dict[str, Any]


class Watch(threading.Thread):
    """Every state of every Node, until stop(); goes on after the API server was away."""

    def __init__(self, admin: Admin, tell: Callable[[Seen], Any] | None = None) -> None:
        super().__init__(daemon=True)
        self.admin, self.tell = admin, tell
        self.history: list[Seen] = []
        self.now: dict[str, Seen] = {}
        self.gaps = 0
        self._stopping = False

    def run(self) -> None:
        while not self._stopping:
            try:
                self._follow()
            except (requests.RequestException, ValueError, KeyError):
                self.gaps += 1
                time.sleep(0.2)

    def _follow(self) -> None:
        listed = self.admin.request("GET", "/api/v1/nodes").json()
        names = {one["metadata"]["name"] for one in listed["items"]}
        for gone in set(self.now) - names:
            self._see("DELETED", self.now[gone].node)
        for one in listed["items"]:
            self._see("ADDED", one)
        version = listed["metadata"]["resourceVersion"]
        path = f"/api/v1/nodes?watch=true&resourceVersion={version}"
        with self.admin.request("GET", path, stream=True, timeout=(5, 600)) as answer:
            for line in answer.iter_lines(chunk_size=None):
                if self._stopping:
                    return
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                self._see(event["type"], event["object"])

    def _see(self, kind: str, node: dict[str, Any]) -> None:
        status, name = node["status"], node["metadata"]["name"]
        seen = Seen(
            at=time.monotonic(),
            name=name,
            uid=node["metadata"]["uid"],
            ready=any(
                one["type"] == "Ready" and one["status"] == "True"
                for one in status.get("conditions") or []
            ),
            allocatable_mib=_agent_plan.stands(node, RESOURCE),
            capacity_mib=_agent_plan.stands(
                {"status": {"allocatable": status.get("capacity")}}, RESOURCE
            ),
            tainted=any(one["key"] == STARTUP_TAINT for one in node["spec"].get("taints") or []),
            deleted=kind == "DELETED",
            node=node,
        )
        self.history.append(seen)
        self.now[name] = seen
        if seen.deleted:
            del self.now[name]
        if self.tell:
            self.tell(seen)

    def stop(self) -> None:
        self._stopping = True


def delays(history: list[Seen]) -> dict[str, float]:
    """{node UID: seconds from Ready to allocatable}, of nodes that came to both while watched."""
    ready: dict[str, float] = {}
    found: dict[str, float] = {}
    for seen in list(history):
        if seen.ready:
            ready.setdefault(seen.uid, seen.at)
        if seen.uid in ready and seen.allocatable_mib and seen.uid not in found:
            found[seen.uid] = max(0.0, seen.at - ready[seen.uid])
    return found
