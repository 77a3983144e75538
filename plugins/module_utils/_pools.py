# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From `gpushare_pools` to everything that is made of them: the one place that writes our names.

Pure: no I/O, no clock; the same input gives the same output. Memory is whole MiB (`_mib`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils import _names, _policy
from ansible_collections.gpushare.eks.plugins.module_utils._catalog import CATALOG, gpu_model
from ansible_collections.gpushare.eks.plugins.module_utils._plugin_flags import chart_values
from ansible_collections.gpushare.eks.plugins.module_utils._pool_fields import (
    SUBDOMAIN,
    PoolError,
    Problems,
    check_tags,
    qualified,
)
from ansible_collections.gpushare.eks.plugins.module_utils._pool_hardware import gpu_count, gpus_of
from ansible_collections.gpushare.eks.plugins.module_utils._pool_names import (
    CLUSTER_TAG,
    CONFIG_LABEL,
    RESOURCE,
    SHARED_GPU,
    SHARED_TAINT,
    WHOLE_GPU,
    affinity,
    asg_tags,
    check_asg_tags,
    check_groups,
    labels,
    plugin_configs,
    startup_taints,
    taints,
    tolerations,
)
from ansible_collections.gpushare.eks.plugins.module_utils._pool_rules import read_pools

__all__ = ["PoolError", "derive"]

# EKS holds max pods to these two (the second above 30 vCPUs), with prefix delegation or without.
MAX_PODS, MAX_PODS_LARGE = 110, 250


def derive(
    pools: Any,
    catalog: Mapping[str, Any] | None = None,
    *,
    cluster_name: str,
    resource: str = RESOURCE,
    zones: Iterable[str] = (),
    tags: Mapping[str, str] | None = None,
    prefix_delegation: bool = False,
    agent: bool = False,
) -> dict[str, Any]:
    """Labels, taints, tags, plugin configs and predicted capacity of every pool.

    pools: the fields of _pool_fields; catalog: CATALOG or what ec2_catalog_info returns.
    zones: the cluster's zones; without them a pool of one group per zone has no groups yet.
    agent: whether something in the cluster takes the startup taint away again; without it the
    taint is tolerated but not set. Raises PoolError with everything that is wrong.
    """
    catalog = CATALOG if catalog is None else catalog
    problems, warnings = Problems(), []
    _check_cluster(problems, cluster_name, resource)
    common = check_tags(problems, "gpushare_tags", tags)
    zones = problems.texts("zones", list(zones))
    read = read_pools(pools, catalog, problems, warnings)
    if not problems:
        built = [
            _pool(pool, catalog, cluster_name, resource, zones, common, prefix_delegation, agent,
                  problems, warnings)
            for pool in read
        ]  # fmt: skip
        check_groups(problems, built)
    if problems:
        raise PoolError(problems)
    gpu_pools = [pool["name"] for pool in built if pool["accelerated"]]
    policy = _policy.document(resource, built)
    _warn(built, zones, warnings)
    return {
        "schema": 1,
        "resource": resource,
        "cluster_name": cluster_name,
        "pools": built,
        "gpu_pools": gpu_pools,
        "device_plugin_configs": plugin_configs(read, built),
        "chart_values": chart_values(
            pool["sharing"]["flags"] for pool in read if pool["sharing"] is not None
        ),
        "publish_policy": policy,
        "publish_bounds": _policy.bounds(policy),
        "names": {
            "annotation": _names.ANNOTATION,
            "condition": _names.CONDITION,
            "pool_label": _names.POOL_LABEL,
            "config_label": CONFIG_LABEL,
            "change_annotation": _names.CHANGE_ANNOTATION,
            "compute_annotation": _names.COMPUTE_ANNOTATION,
            "shared_taint": SHARED_TAINT,
            "shared_gpu": SHARED_GPU,
            "whole_gpu": WHOLE_GPU,
            "type_label": _names.TYPE_LABEL,
            "startup_taint": startup_taints(True)[0],
            "agent": _names.AGENT_NAME,
        },
        "gpu_tolerations": tolerations(built),
        "affinity": affinity(gpu_pools),
        "warnings": warnings,
    }


def _check_cluster(problems: Problems, cluster_name: Any, resource: Any) -> None:
    if not isinstance(cluster_name, str) or not re.match(
        r"^[0-9A-Za-z][-0-9A-Za-z_]{0,99}\Z", cluster_name
    ):
        problems.add(
            "gpushare_cluster_name",
            cluster_name,
            "is not a cluster name",
            "1-100 of A-Z a-z 0-9 - _",
        )
    domain = resource.rpartition("/")[0] if isinstance(resource, str) else ""
    foreign = ("kubernetes.io", "k8s.io", "nvidia.com")
    if not domain or not SUBDOMAIN.match(domain) or not qualified(resource):
        problems.add("gpushare_resource", resource, "is not a resource name", "<domain>/<name>")
    elif any(domain == name or domain.endswith(f".{name}") for name in foreign):
        problems.add(
            "gpushare_resource",
            resource,
            f"lies in a domain of others ({domain})",
            "your own domain",
        )


def _pool(
    pool: dict[str, Any],
    catalog: Mapping[str, Any],
    cluster_name: str,
    resource: str,
    zones: list[str],
    common: Mapping[str, str],
    prefix_delegation: bool,
    agent: bool,
    problems: Problems,
    warnings: list[str],
) -> dict[str, Any]:
    types, sharing = pool["instance_types"], _public_sharing(pool["sharing"])
    max_pods = min(_max_pods(catalog["instance_types"][name], prefix_delegation) for name in types)
    if sharing and sharing["strategy"] == "time_slicing" and sharing["replicas"] is None:
        # As many slots as pods fit on the node: memory binds first.
        sharing["replicas"] = max_pods
    by_type = {name: _predict(pool, sharing, catalog, name) for name in types}
    predicted = min(by_type.values(), key=_size)
    predicted = {**predicted, "gpu_model": _only(p["gpu_model"] for p in by_type.values())}
    kind = _kind(sharing)
    built = {
        "name": pool["name"],
        "kind": kind,
        **{key: pool[key] for key in (
            "instance_types", "capacity_type", "on_demand_base", "on_demand_percentage",
            "min_size", "max_size", "desired_size", "zones", "autoscaler", "disk_gib", "image",
        )},
        "architecture": catalog["instance_types"][types[0]]["architecture"],
        "accelerated": kind != "general",
        "sharing": sharing,
        "labels": labels(pool, kind, predicted["gpu_model"]),
        "taints": taints(pool, kind),
        "startup_taints": startup_taints(agent and bool(sharing and sharing["gpu_memory"])),
        "tags": {**common, **pool["tags"], CLUSTER_TAG: cluster_name},
        "max_pods": max_pods,
        "predicted": predicted,
        "predicted_by_type": by_type,
    }  # fmt: skip
    template = asg_tags(built, cluster_name, resource)
    check_asg_tags(problems, pool["field"], template)
    built["node_groups"] = _node_groups(
        pool, built, zones, catalog.get("offerings"), template, problems, warnings
    )
    return built


def _public_sharing(sharing: dict[str, Any] | None) -> dict[str, Any] | None:
    if sharing is None:
        return None
    keys = ("strategy", "replicas", "gpu_memory", "headroom_mib", "usable_mib", "multi_gpu",
            "rename", "cuda_version")  # fmt: skip
    return {key: sharing[key] for key in keys}


def _kind(sharing: dict[str, Any] | None) -> str:
    if sharing is None:
        return "general"
    return "exclusive" if sharing["strategy"] == "exclusive" else "shared"


def _max_pods(data: Mapping[str, Any], prefix_delegation: bool) -> int:
    ceiling = MAX_PODS if data["vcpus"] < 30 else MAX_PODS_LARGE
    return ceiling if prefix_delegation else min(data["max_pods"], ceiling)


def _predict(
    pool: dict[str, Any],
    sharing: dict[str, Any] | None,
    catalog: Mapping[str, Any],
    name: str,
) -> dict[str, Any]:
    """What a node of this type will show. `gpu_count` counts `gpu_resource`, `gpus` the hardware.

    `gpu_total_mib`, `gpu_usable_mib` and `hardware_mib` (EC2's size, the bound on what a node may
    claim) are of one GPU; `gpu_memory_mib` is the node's. `mps_share_mib` is the daemon's limit.
    """
    gpus, count = gpus_of(catalog, name), gpu_count(catalog, name)
    if sharing is None:
        return dict.fromkeys(
            ("gpu_memory_mib", "gpu_resource", "gpu_model", "gpu_usable_mib", "gpu_total_mib",
             "hardware_mib", "mps_share_mib")
        ) | {"gpu_count": 0, "gpus": 0}  # fmt: skip
    hardware = min(gpu["memory_mib"] for gpu in gpus)
    models = [gpu_model(catalog, gpu) for gpu in gpus]
    known = [model for model in models if model is not None]
    total = min((model["total_mib"] for model in known), default=hardware)
    usable = sharing["usable_mib"] or min((model["usable_mib"] for model in known), default=None)
    memory = None
    if sharing["gpu_memory"]:
        memory = (usable - sharing["headroom_mib"]) * count
    shared = sharing["strategy"] != "exclusive"
    return {
        "gpu_memory_mib": memory,
        "gpu_resource": SHARED_GPU if sharing["rename"] else WHOLE_GPU,
        "gpu_count": count * (sharing["replicas"] if shared else 1),
        "gpu_model": _only(gpu["name"] for gpu in gpus),
        "gpu_usable_mib": usable,
        "gpu_total_mib": total,
        "gpus": count,
        "hardware_mib": hardware,
        "mps_share_mib": total // sharing["replicas"] if sharing["strategy"] == "mps" else None,
    }


def _size(predicted: dict[str, Any]) -> tuple[int, int]:
    return predicted["gpu_memory_mib"] or 0, predicted["gpu_count"]


def _only(values: Iterable[Any]) -> Any:
    """The one value that all share, else None."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _node_groups(
    pool: dict[str, Any],
    built: dict[str, Any],
    zones: list[str],
    offerings: Mapping[str, Any] | None,
    template: dict[str, str],
    problems: Problems,
    warnings: list[str],
) -> list[dict[str, Any]]:
    """One group, or one for each zone that offers one of the pool's types."""
    name, types = pool["name"], built["instance_types"]
    if pool["zones"] == "spread":
        return [{"name": name, "zone": None, "instance_types": types, "asg_tags": template}]
    groups = []
    for zone in zones:
        offered = [t for t in types if offerings is None or zone in (offerings.get(t) or [])]
        if offered:
            groups.append({
                "name": f"{name}-{zone}", "zone": zone, "instance_types": offered,
                "asg_tags": dict(template),
            })  # fmt: skip
        else:
            warnings.append(f"pool {name}: zone {zone} offers none of {', '.join(types)}")
    if zones and not groups:
        problems.add(
            f"{pool['field']}.instance_types", types, "is offered in no zone of the cluster", zones
        )
    return groups


def _warn(built: list[dict[str, Any]], zones: list[str], warnings: list[str]) -> None:
    if not any(pool["kind"] == "general" and not pool["taints"] for pool in built):
        warnings.append(
            "no general pool without taints: coredns, metrics-server and other add-ons find no "
            "node; add a pool without `sharing`"
        )
    for pool in built:
        name = pool["name"]
        if pool["zones"] == "one_group_per_zone" and not zones:
            warnings.append(f"pool {name}: its groups are known once the cluster's zones are given")
        if len(pool["capacity_type"]) > 1 and pool["autoscaler"] != "karpenter":
            warnings.append(
                f"pool {name}: a managed node group has one capacity type; "
                f"{pool['capacity_type'][0]}, the first, is used"
            )
        sizes = {predicted["gpu_memory_mib"] for predicted in pool["predicted_by_type"].values()}
        if len(sizes) > 1:
            warnings.append(
                f"pool {name}: its instance types have different GPU memory; the autoscaler plans "
                f"with the least, {pool['predicted']['gpu_memory_mib']} MiB"
            )
