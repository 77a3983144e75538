# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The names of this collection, and what of a pool carries them: labels, taints, tags, configs.

Pure. Only _pools.py uses the functions; whoever needs a name gets it from derive().
"""

from __future__ import annotations

import copy
import re
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._names import (
    POOL_LABEL,
    RESOURCE,
    STARTUP_TAINT,
)
from ansible_collections.gpushare.eks.plugins.module_utils._pool_fields import Problems

__all__ = ["CLUSTER_TAG", "POOL_LABEL", "RESOURCE", "SHARED_GPU", "STARTUP_TAINT", "WHOLE_GPU"]

SHARED_TAINT = "gpushare.eks/shared"
EXCLUSIVE_TAINT = "nvidia.com/gpu"
CONFIG_LABEL = "nvidia.com/device-plugin.config"
ACCELERATOR_LABEL = "k8s.amazonaws.com/accelerator"
CLUSTER_TAG = "gpushare.eks/cluster"
WHOLE_GPU = "nvidia.com/gpu"
SHARED_GPU = "nvidia.com/gpu.shared"
AUTOSCALER_TAG = "k8s.io/cluster-autoscaler"
# AWS takes 50 tags of 128 and 256 characters; EKS and the group itself set some of the 50.
MAX_TAGS, MAX_TAG_KEY, MAX_TAG_VALUE = 40, 128, 256


def labels(pool: dict[str, Any], kind: str, model: str | None) -> dict[str, str]:
    labels = {**pool["labels"], POOL_LABEL: pool["name"]}
    if kind != "general":
        labels[CONFIG_LABEL] = pool["name"]
    if kind == "exclusive" and model and pool["autoscaler"] == "cluster_autoscaler":
        # Cluster Autoscaler then waits for nvidia.com/gpu, which only such a pool ever shows.
        labels[ACCELERATOR_LABEL] = re.sub(r"[^A-Za-z0-9]+", "-", model).lower()
    return labels


def taints(pool: dict[str, Any], kind: str) -> list[dict[str, str]]:
    own = {
        "shared": [{"key": SHARED_TAINT, "value": pool["name"], "effect": "NoSchedule"}],
        "exclusive": [{"key": EXCLUSIVE_TAINT, "value": "present", "effect": "NoSchedule"}],
    }
    return own.get(kind, []) + pool["taints"]


def startup_taints(wanted: bool) -> list[dict[str, str]]:
    return [{"key": STARTUP_TAINT, "value": "true", "effect": "NoSchedule"}] if wanted else []


def asg_tags(built: dict[str, Any], cluster_name: str, resource: str) -> dict[str, str]:
    """What Cluster Autoscaler reads of a group without nodes: `<value>:<Effect>` for a taint.

    No startup taint: a node loses it as soon as its number stands, so planning must not see it.
    """
    tags: dict[str, str] = {}
    if built["autoscaler"] == "cluster_autoscaler":
        tags[f"{AUTOSCALER_TAG}/enabled"] = "true"
        tags[f"{AUTOSCALER_TAG}/{cluster_name}"] = "owned"
    template = f"{AUTOSCALER_TAG}/node-template"
    for key, value in built["labels"].items():
        tags[f"{template}/label/{key}"] = value
    for taint in built["taints"]:
        tags[f"{template}/taint/{taint['key']}"] = f"{taint['value']}:{taint['effect']}"
    predicted = built["predicted"]
    if predicted["gpu_resource"]:
        tags[f"{template}/resources/{predicted['gpu_resource']}"] = str(predicted["gpu_count"])
    if predicted["gpu_resource"] == SHARED_GPU:
        # Otherwise it takes the whole GPU from EC2's answer, which a shared node never offers.
        tags[f"{template}/resources/{WHOLE_GPU}"] = "0"
    if predicted["gpu_memory_mib"]:
        tags[f"{template}/resources/{resource}"] = f"{predicted['gpu_memory_mib']}Mi"
    return tags


def plugin_configs(
    read: list[dict[str, Any]], built: list[dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """NVIDIA's v1 config per GPU pool, and `default` (whole GPUs) for any other node."""
    configs: dict[str, dict[str, Any]] = {
        "default": {"version": "v1", "flags": {"migStrategy": "none"}}
    }
    for source, pool in zip(read, built, strict=True):
        sharing = pool["sharing"]
        if sharing is None:
            continue
        config: dict[str, Any] = {
            "version": "v1",
            "flags": {"migStrategy": "none", **copy.deepcopy(source["sharing"]["flags"])},
        }
        if sharing["strategy"] != "exclusive":
            key = "timeSlicing" if sharing["strategy"] == "time_slicing" else "mps"
            config["sharing"] = {
                key: {
                    "renameByDefault": sharing["rename"],
                    "failRequestsGreaterThanOne": True,
                    "resources": [{"name": WHOLE_GPU, "replicas": sharing["replicas"]}],
                }
            }
        configs[pool["name"]] = config
    return configs


def tolerations(built: list[dict[str, Any]]) -> list[dict[str, str]]:
    """What NVIDIA's DaemonSets tolerate: every taint of every GPU pool, and the startup taint."""
    gpu_pools = [pool for pool in built if pool["accelerated"]]
    pairs = [(taint["key"], taint["effect"]) for pool in gpu_pools for taint in pool["taints"]]
    if gpu_pools:
        pairs.append((STARTUP_TAINT, "NoSchedule"))
    return [
        {"key": key, "operator": "Exists", "effect": effect} for key, effect in dict.fromkeys(pairs)
    ]


def affinity(gpu_pools: list[str]) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": POOL_LABEL, "operator": "In", "values": gpu_pools}]}
    if not gpu_pools:
        # `In` with no values is refused by the API server; this matches no node.
        term["matchExpressions"] = [{"key": CONFIG_LABEL, "operator": "Exists"}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"nodeAffinity": required}


def check_groups(problems: Problems, built: list[dict[str, Any]]) -> None:
    owner: dict[str, str] = {}
    for index, pool in enumerate(built):
        for group in pool["node_groups"]:
            if len(group["name"]) > 63:
                problems.add(
                    f"gpushare_pools[{index}].name",
                    pool["name"],
                    f"makes the group name {group['name']}, longer than EKS takes",
                    "a group name of at most 63 characters",
                )
            if group["name"] in owner:
                problems.add(
                    f"gpushare_pools[{index}].name",
                    pool["name"],
                    f"makes the group {group['name']}, which pool {owner[group['name']]} makes too",
                )
            owner[group["name"]] = pool["name"]


def check_asg_tags(problems: Problems, field: str, tags: dict[str, str]) -> None:
    """A label or taint of the user's own can be longer than the tag that has to carry it."""
    if len(tags) > MAX_TAGS:
        problems.add(f"{field}.labels", len(tags), "makes too many tags", f"at most {MAX_TAGS}")
    for key, value in tags.items():
        if len(key) > MAX_TAG_KEY or len(value) > MAX_TAG_VALUE:
            problems.add(
                f"{field}.labels",
                key,
                "makes a tag longer than AWS takes",
                f"{MAX_TAG_KEY} and {MAX_TAG_VALUE} characters",
            )
