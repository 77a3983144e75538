"""What NVIDIA's plugin 0.19.1, GFD and NFD do with a config and GPUs: rules without I/O.

Rules were read from github.com/NVIDIA/k8s-device-plugin v0.19.1: cmd/config-manager (choice of the
config), api/config/v1 (sharing), cmd/mps-control-daemon (limits), internal/lm (labels).
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

GPU = "nvidia.com/gpu"
CONFIG_LABEL = "nvidia.com/device-plugin.config"
PCI_LABEL = "feature.node.kubernetes.io/pci-10de.present"
# Command of the container -> what the pod does on its node.
_ROLES = {
    "nvidia-device-plugin": "plugin",
    "gpu-feature-discovery": "gfd",
    "mps-control-daemon": "mps",
    "nfd-worker": "nfd-worker",
    "nfd-master": "nfd-master",
}
_CONFIG_MANAGER = "config-manager"
# cmd/mps-control-daemon/mps/device.go: clients of one MPS server, from Volta on and before.
_MPS_CLIENTS, _MPS_CLIENTS_BEFORE_7_5 = 48, 16


class PluginError(Exception):
    """The program would exit with this message; `container` is the one that shows it."""

    def __init__(self, message: str, container: str) -> None:
        super().__init__(message)
        self.container = container


@dataclass(frozen=True)
class ConfigSource:
    """Where a pod's config-manager looks: its ConfigMap and its way to choose from it."""

    namespace: str
    config_map: str
    node_label: str
    default: str
    fallbacks: tuple[str, ...]
    container: str


@dataclass(frozen=True)
class Sharing:
    """One node's sharing of nvidia.com/gpu: strategy none, time-slicing or mps."""

    strategy: str = "none"
    replicas: int = 1
    resource: str = GPU

    @property
    def renamed(self) -> bool:
        return self.resource != GPU


def role(pod: Mapping[str, Any]) -> str | None:
    """plugin, gfd, mps, nfd-worker or nfd-master; None for a pod that is nothing of NVIDIA's."""
    for container in pod["spec"].get("containers") or []:
        command = (container.get("command") or [""])[0].rpartition("/")[2]
        if command in _ROLES:
            return _ROLES[command]
    return None


def config_source(pod: Mapping[str, Any]) -> ConfigSource | None:
    """How this pod gets its config; None when the chart was installed without any config."""
    containers = pod["spec"].get("initContainers") or []
    manager = next((c for c in containers if _CONFIG_MANAGER in (c.get("command") or [])), None)
    if manager is None:
        return None
    env = {item["name"]: item.get("value") or "" for item in manager.get("env") or []}
    folder = env.get("CONFIG_FILE_SRCDIR")
    volume = next(
        (m["name"] for m in manager.get("volumeMounts") or [] if m["mountPath"] == folder), None
    )
    for each in pod["spec"].get("volumes") or []:
        if each["name"] == volume and each.get("configMap"):
            return ConfigSource(
                namespace=pod["metadata"]["namespace"],
                config_map=each["configMap"]["name"],
                node_label=env.get("NODE_LABEL") or CONFIG_LABEL,
                default=env.get("DEFAULT_CONFIG", ""),
                fallbacks=tuple(filter(None, env.get("FALLBACK_STRATEGIES", "").split(","))),
                container=manager["name"],
            )
    return None


def choose(source: ConfigSource, label: str, names: Collection[str]) -> str:
    """The name of the config for a node with this label value, "" for the empty one."""

    def refuse(message: str) -> PluginError:
        return PluginError(f"error: {message}", source.container)

    if not names:
        raise refuse("no configuration files available")
    wanted = label or source.default
    if wanted:
        if wanted not in names:
            raise refuse(f"specified config {wanted} does not exist")
        return wanted
    for fallback in source.fallbacks:
        if fallback == "named" and "default" in names:
            return "default"
        if fallback == "single" and len(names) == 1:
            return next(iter(names))
        if fallback == "empty":
            return ""
    raise refuse("no config was set, no default was provided, and all fallbacks failed")


def sharing(config: Mapping[str, Any], container: str) -> Sharing:
    """What the config says about nvidia.com/gpu; with both strategies MPS wins."""
    if config and config.get("version") != "v1":
        raise PluginError(f"unknown version: {config.get('version')!r}", container)
    declared = config.get("sharing") or {}
    for strategy, part in (("mps", "mps"), ("time-slicing", "timeSlicing")):
        chosen = declared.get(part) or {}
        for entry in chosen.get("resources") or []:
            name = str(entry.get("name", ""))
            if (name if "/" in name else f"nvidia.com/{name}") != GPU:
                continue
            replicas = entry.get("replicas")
            if not isinstance(replicas, int) or replicas < 2:
                raise PluginError(f"number of replicas must be >= 2, got {replicas}", container)
            renamed = entry.get("rename") or ""
            if renamed and "/" not in renamed:
                renamed = f"nvidia.com/{renamed}"
            if not renamed and chosen.get("renameByDefault"):
                renamed = f"{GPU}.shared"
            return Sharing(strategy, replicas, renamed or GPU)
    return Sharing()


def capacity(
    shared: Sharing, gpus: Sequence[Mapping[str, Any]], *, mps_daemon: bool, container: str
) -> dict[str, int]:
    """What the plugin registers with the kubelet: {resource: devices}.

    gpus: [{"name", "memory_mib", "capability" (optional, "7.5")}].
    """
    if shared.strategy == "mps":
        limit = min(_mps_clients(gpu.get("capability")) for gpu in gpus)
        if shared.replicas > limit:
            raise PluginError(
                f"invalid MPS config: {shared.replicas} replicas, at most {limit} clients",
                container,
            )
        if not mps_daemon:
            raise PluginError("error waiting for MPS daemon: not healthy", container)
    return {shared.resource: len(gpus) * shared.replicas}


def _mps_clients(capability: str | None) -> int:
    if capability is None:
        return _MPS_CLIENTS
    version = tuple(int(part) for part in capability.split("."))
    return _MPS_CLIENTS if version >= (7, 5) else _MPS_CLIENTS_BEFORE_7_5


def labels(shared: Sharing, gpus: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """GFD's labels of a node, as far as anything in this project reads them."""
    product = re.sub(r"[^A-Za-z0-9-_. ]", "", str(gpus[0]["name"])).strip().replace(" ", "-")
    if shared.replicas > 1 and not shared.renamed:
        product += "-SHARED"
    found = {
        f"{GPU}.product": product,
        f"{GPU}.memory": str(gpus[0]["memory_mib"]),
        f"{GPU}.count": str(len(gpus)),
        f"{GPU}.replicas": str(shared.replicas),
        f"{GPU}.sharing-strategy": shared.strategy if shared.replicas > 1 else "none",
        "nvidia.com/mps.capable": "true" if shared.strategy == "mps" else "false",
    }
    capability = gpus[0].get("capability")
    if capability:
        major, _, minor = capability.partition(".")
        found[f"{GPU}.compute.major"], found[f"{GPU}.compute.minor"] = major, minor
    return found


LABELS = tuple(labels(Sharing(), [{"name": "any", "memory_mib": 0, "capability": "0.0"}]))


def crashing(pod: Mapping, failure: PluginError) -> dict:
    """The status of a pod of which one container exits with an error again and again."""
    init = [c["name"] for c in pod["spec"].get("initContainers") or []]
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": str(failure)}}
    in_init = failure.container in init

    def states(kind: str, idle: dict) -> list[dict]:
        return [
            {
                "name": c["name"],
                "image": c["image"],
                "imageID": "",
                "ready": False,
                "restartCount": 1 if c["name"] == failure.container else 0,
                "state": waiting if c["name"] == failure.container else idle,
            }
            for c in pod["spec"].get(kind) or []
        ]

    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    conditions = [
        {"type": kind, "status": "False", "reason": "ContainersNotReady", "lastTransitionTime": now}
        for kind in ("Ready", "ContainersReady", *(["Initialized"] if in_init else []))
    ]
    status: dict[str, Any] = {
        "phase": "Pending" if in_init else "Running",
        "conditions": conditions,
    }
    if in_init:
        status["initContainerStatuses"] = states("initContainers", {"waiting": {}})
        status["containerStatuses"] = states(
            "containers", {"waiting": {"reason": "PodInitializing"}}
        )
    else:
        status["containerStatuses"] = states("containers", {"running": {"startedAt": now}})
    return status
