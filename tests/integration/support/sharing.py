"""A cluster of two GPU nodes with NVIDIA's chart, whose sharing a test changes; without roles."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.gpushare.eks.plugins.module_utils import (
    _sharing_configs,
)
from ansible_collections.gpushare.eks.plugins.module_utils._names import POOL_LABEL
from ansible_collections.gpushare.eks.plugins.module_utils._pool_names import CONFIG_LABEL
from ansible_collections.gpushare.eks.plugins.module_utils._pools import derive

from . import cluster, engine
from .fleet import INSTANCE_TYPE, Fleet, documents, running, wait

CLUSTER, NAMESPACE = "changing", "nvidia-device-plugin"
SHARED = "nvidia.com/gpu.shared"
MERGE = {"Content-Type": "application/merge-patch+json"}


def derived(strategy: str, replicas: int) -> dict[str, Any]:
    sharing = {"strategy": strategy, "replicas": replicas, "gpu_memory": True}
    pool = {"name": "shared", "instance_types": [INSTANCE_TYPE], "max_size": 4, "sharing": sharing}
    return derive([pool], cluster_name=CLUSTER)


SLICED, MPS = derived("time_slicing", 10), derived("mps", 4)
BODIES = [one["device_plugin_configs"]["shared"] for one in (SLICED, MPS)]
CONFIGS = {
    "default": {"version": "v1"},
    "shared": BODIES[0],
    **{_sharing_configs.name_of("shared", body): body for body in BODIES},
}


@contextlib.contextmanager
def changing(home: Path) -> Iterator[Fleet]:
    """Two nodes that share by time-slicing and publish their memory."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(documents(CLUSTER))
        fleet = stack.enter_context(running(CLUSTER, 2))
        for name in fleet.nodes.values():
            label(name, {POOL_LABEL: "shared", CONFIG_LABEL: "shared"})
        _install(home)
        wait("the plugin", lambda: all(offers(name) == "10" for name in fleet.nodes.values()))
        read = engine.read(instance_ids=sorted(fleet.nodes))
        made = engine.publish(CLUSTER, readings=read.result["readings"], pools=SLICED["pools"])
        assert not made.failed, made.result
        yield fleet


def _install(home: Path) -> None:
    """NVIDIA's chart as the role installs it, by helm alone."""
    values = {
        "config": {
            "map": {name: yaml.safe_dump(body) for name, body in CONFIGS.items()},
            "default": "default",
        },
        "gfd": {"enabled": True},
        "affinity": SLICED["affinity"],
        "tolerations": SLICED["gpu_tolerations"],
    }
    path = home / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    endpoint, ca = cluster._connection(CLUSTER)
    environ = {
        **os.environ,
        "HOME": str(home),
        "HELM_KUBEAPISERVER": endpoint,
        "HELM_KUBECAFILE": ca,
        "HELM_KUBETOKEN": cluster.token(CLUSTER),
        "KUBECONFIG": os.devnull,
    }
    line = ["helm", "install", "nvidia-device-plugin", os.environ["GPUSHARE_LAB_CHART"]]
    line += ["-n", NAMESPACE, "--create-namespace", "-f", str(path)]
    done = subprocess.run(line, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def label(node_name: str, labels: dict[str, str | None]) -> None:
    patch = {"metadata": {"labels": labels}}
    path = f"/api/v1/nodes/{node_name}"
    answer = cluster.request(CLUSTER, "PATCH", path, json=patch, headers=MERGE)
    answer.raise_for_status()


def offers(node_name: str) -> str | None:
    return cluster.node(CLUSTER, node_name)["status"]["allocatable"].get(SHARED)


def config(node_name: str) -> str:
    return cluster.node(CLUSTER, node_name)["metadata"]["labels"][CONFIG_LABEL]


def standing(node_name: str) -> dict[str, Any]:
    """What of a Node is its own: labels, annotations, spec, resources; not times and versions."""
    found = cluster.node(CLUSTER, node_name)
    meta, status = found["metadata"], found["status"]
    return {
        "labels": meta["labels"],
        "annotations": meta.get("annotations"),
        "spec": found["spec"],
        "offered": (status["capacity"], status["allocatable"]),
    }


def pod(name: str, node_name: str, seconds: float | None) -> str:
    """A pod with 3Gi of the node's GPU that ends by itself, or never; its UID, once it runs."""
    limits = {"gpushare.eks/gpu-memory": "3Gi", SHARED: 1}
    code = f"import time; time.sleep({seconds or 10**6})"
    container = {
        "name": "c",
        "image": "public.ecr.aws/docker/library/python:3.13-slim",
        "command": ["python3", "-c", code],
        "resources": {"limits": limits},
    }
    body = {
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"kubernetes.io/hostname": node_name},
            "containers": [container],
        },
    }
    pods = "/api/v1/namespaces/default/pods"
    answer = cluster.request(CLUSTER, "POST", pods, json=body)
    assert answer.ok, answer.text
    wait(f"pod {name}", lambda: read_pod(name)["status"]["phase"] == "Running")
    return answer.json()["metadata"]["uid"]


def read_pod(name: str) -> dict[str, Any]:
    return cluster.request(CLUSTER, "GET", f"/api/v1/namespaces/default/pods/{name}").json()


def delete_pod(name: str) -> None:
    path = f"/api/v1/namespaces/default/pods/{name}"
    cluster.request(CLUSTER, "DELETE", path, json={"gracePeriodSeconds": 0})
    wait(f"the end of pod {name}", lambda: read_pod(name).get("code") == 404)
