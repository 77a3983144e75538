# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A managed node group as data for the engine."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._aws import given, own_tags
from ansible_collections.gpushare.eks.plugins.module_utils._eks_base import (
    Call,
    Resource,
    View,
    issues,
)
from ansible_collections.gpushare.eks.plugins.module_utils._errors import InvalidInput
from ansible_collections.gpushare.eks.plugins.module_utils._pool_names import CLUSTER_TAG

# The API's taint effects and Kubernetes' own, which the options use.
EFFECTS = {
    "NoSchedule": "NO_SCHEDULE",
    "NoExecute": "NO_EXECUTE",
    "PreferNoSchedule": "PREFER_NO_SCHEDULE",
}
_KUBERNETES = {api: kubernetes for kubernetes, api in EFFECTS.items()}
_REPLACE = (
    "make a node group with another name and the new value, move the pods, then remove this one; "
    "or keep the value it has"
)


def desired(option: dict[str, Any], cluster_name: str) -> View:
    """The view that one item of the option `nodegroups` asks for."""
    wanted = given({k: v for k, v in option.items() if k not in ("name", "asg_tags")})
    name = option["name"]
    if "subnet_ids" in wanted:
        wanted["subnet_ids"] = sorted(set(wanted["subnet_ids"]))
    if "labels" in wanted:
        wanted["labels"] = {key: str(value) for key, value in wanted["labels"].items()}
    if "taints" in wanted:
        wanted["taints"] = _sorted(
            {"key": t["key"], "value": t.get("value") or "", "effect": t["effect"]}
            for t in wanted["taints"]
        )
    if "scaling" in wanted:
        _check_scaling(name, wanted["scaling"])
    if "launch_template" in wanted:
        template = wanted["launch_template"]
        if template.get("version", "1").startswith("$"):
            raise InvalidInput(
                f"Node group {name}: launch_template.version {template['version']} names no "
                "version: nobody could tell whether the nodes run it",
                remedy="give the number of the version",
                field="launch_template.version",
                allowed="a number",
            )
    # What is listed is ours: purge and destroy find it by this tag.
    wanted["tags"] = {**own_tags(wanted.get("tags")), CLUSTER_TAG: cluster_name}
    return wanted


def _check_scaling(name: str, scaling: dict[str, int]) -> None:
    low, high = scaling["min_size"], scaling["max_size"]
    size = scaling.get("desired_size", low)
    if not (0 <= low <= size <= high and high >= 1):
        raise InvalidInput(
            f"Node group {name}: scaling {scaling} needs 0 <= min_size <= desired_size <= max_size "
            "and max_size >= 1",
            remedy="correct the sizes",
            field="scaling",
            value=scaling,
        )


def _sorted(taints: Any) -> list[dict[str, str]]:
    return sorted(taints, key=lambda taint: (taint["key"], taint["effect"], taint["value"]))


def view(raw: dict[str, Any]) -> View:
    scaling = raw.get("scalingConfig") or {}
    update = raw.get("updateConfig") or {}
    sizes = {"min_size": "minSize", "max_size": "maxSize", "desired_size": "desiredSize"}
    limits = {
        "max_unavailable": "maxUnavailable",
        "max_unavailable_percentage": "maxUnavailablePercentage",
    }
    return {
        "node_role_arn": raw.get("nodeRole", ""),
        "subnet_ids": sorted(raw.get("subnets") or []),
        "launch_template": dict(raw.get("launchTemplate") or {}),
        "ami_type": raw.get("amiType") or "",
        "version": raw.get("version") or "",
        "release_version": raw.get("releaseVersion") or "",
        "instance_types": list(raw.get("instanceTypes") or []),
        "capacity_type": (raw.get("capacityType") or "").lower(),
        "scaling": {key: scaling[api] for key, api in sizes.items() if api in scaling},
        "labels": dict(raw.get("labels") or {}),
        "taints": _sorted(
            {
                "key": taint["key"],
                "value": taint.get("value") or "",
                "effect": _KUBERNETES.get(taint["effect"], taint["effect"]),
            }
            for taint in raw.get("taints") or []
        ),
        "update_config": {key: update[api] for key, api in limits.items() if update.get(api)},
        "node_repair": bool((raw.get("nodeRepairConfig") or {}).get("enabled")),
        "tags": own_tags(raw.get("tags")),
    }


def facts(raw: dict[str, Any]) -> dict[str, Any]:
    groups = (raw.get("resources") or {}).get("autoScalingGroups") or []
    return {
        "exists": True,
        "name": raw["nodegroupName"],
        "cluster_name": raw["clusterName"],
        "arn": raw["nodegroupArn"],
        "status": raw["status"],
        "asg_names": [group["name"] for group in groups],
        "health_issues": issues(raw),
        **view(raw),
    }


def placeholder(name: str, cluster_name: str, wanted: View) -> dict[str, Any]:
    absent = {
        "nodegroupName": name,
        "clusterName": cluster_name,
        "nodegroupArn": "",
        "status": "ABSENT",
    }
    return {**facts(absent), **wanted, "exists": False}


def defaults(wanted: View) -> View:
    for key in ("node_role_arn", "subnet_ids", "scaling"):
        if not wanted.get(key):
            raise InvalidInput(
                f"A new node group needs {key}",
                remedy=f"give {key}",
                field=key,
                allowed="not empty",
            )
    scaling = wanted["scaling"]
    return {**wanted, "scaling": {"desired_size": scaling["min_size"], **scaling}}


def request(full: View) -> dict[str, Any]:
    template = full.get("launch_template")
    types = full.get("ami_type")
    optional = {
        "launchTemplate": template,
        # CUSTOM is what EKS answers for an image of our own; it takes no such value.
        "amiType": None if types == "CUSTOM" else types,
        "version": full.get("version"),
        "releaseVersion": full.get("release_version"),
        "instanceTypes": full.get("instance_types"),
        "capacityType": full["capacity_type"].upper() if "capacity_type" in full else None,
        "labels": full.get("labels"),
        "taints": [_api_taint(taint) for taint in full.get("taints", [])] or None,
        "tags": full.get("tags"),
        "updateConfig": _api_update(full["update_config"]) if full.get("update_config") else None,
        "nodeRepairConfig": {"enabled": full["node_repair"]} if "node_repair" in full else None,
    }
    return {
        "nodeRole": full["node_role_arn"],
        "subnets": full["subnet_ids"],
        "scalingConfig": _api_scaling(full["scaling"]),
        **{key: value for key, value in optional.items() if value},
    }


def updates(before: View, changes: View, _desired: View) -> list[Call]:
    """At most one config call and one version call (a rolling replacement of the nodes)."""
    config: dict[str, Any] = {}
    if "labels" in changes:
        old, new = before["labels"], changes["labels"]
        changed = {key: value for key, value in new.items() if old.get(key) != value}
        config["labels"] = _filled(
            addOrUpdateLabels=changed, removeLabels=sorted(set(old) - set(new))
        )
    if "taints" in changes:
        old, new = before["taints"], changes["taints"]
        kept = {(taint["key"], taint["effect"]) for taint in new}
        config["taints"] = _filled(
            addOrUpdateTaints=[_api_taint(taint) for taint in new if taint not in old],
            removeTaints=[_api_taint(t) for t in old if (t["key"], t["effect"]) not in kept],
        )
    if "scaling" in changes:
        config["scalingConfig"] = _api_scaling(changes["scaling"])
    if "update_config" in changes:
        config["updateConfig"] = _api_update(changes["update_config"])
    if "node_repair" in changes:
        config["nodeRepairConfig"] = {"enabled": changes["node_repair"]}
    roll: dict[str, Any] = {}
    if "launch_template" in changes:
        template = changes["launch_template"]
        # The API takes the id or the name, not both.
        which = "id" if template.get("id") else "name"
        roll["launchTemplate"] = {which: template[which], "version": template["version"]}
    if "version" in changes:
        roll["version"] = changes["version"]
    if "release_version" in changes:
        roll["releaseVersion"] = changes["release_version"]
    calls = [Call("update_nodegroup_config", config)] if config else []
    return calls + ([Call("update_nodegroup_version", roll)] if roll else [])


def _filled(**params: Any) -> dict[str, Any]:
    return {key: value for key, value in params.items() if value}


def _api_taint(taint: dict[str, str]) -> dict[str, str]:
    return _filled(
        key=taint["key"],
        value=taint["value"],
        effect=EFFECTS.get(taint["effect"], taint["effect"]),
    )


def _api_scaling(scaling: dict[str, int]) -> dict[str, int]:
    return {
        "minSize": scaling["min_size"],
        "maxSize": scaling["max_size"],
        "desiredSize": scaling["desired_size"],
    }


def _api_update(config: dict[str, int]) -> dict[str, int]:
    if "max_unavailable_percentage" in config:
        return {"maxUnavailablePercentage": config["max_unavailable_percentage"]}
    return {"maxUnavailable": config["max_unavailable"]}


def _adjust_scaling(before: View, wanted: View) -> dict[str, int]:
    """desired_size belongs to the autoscaler after creation: only the new bounds move it."""
    low, high = wanted["scaling"]["min_size"], wanted["scaling"]["max_size"]
    size = min(max(before["scaling"].get("desired_size", low), low), high)
    return {"min_size": low, "max_size": high, "desired_size": size}


def _adjust_template(before: View, wanted: View) -> dict[str, str]:
    return {**before["launch_template"], **wanted["launch_template"]}


def refuse(before: View, changes: View, _wanted: View) -> None:
    """A group keeps its launch template for life; only the template's version moves."""
    old, new = before["launch_template"], changes.get("launch_template")
    if new is None:
        return
    if any(old.get(key) != new.get(key) for key in ("id", "name")):
        raise InvalidInput(
            f"launch_template cannot change from {old!r} to {new!r}",
            cause="EKS takes another version of the same launch template only",
            remedy=_REPLACE,
            field="launch_template",
            before=old,
            wanted=new,
        )


RESOURCE = Resource(
    kind="node group",
    member="nodegroup",
    name_param="nodegroupName",
    list_operation="list_nodegroups",
    list_member="nodegroups",
    view=view,
    facts=facts,
    placeholder=placeholder,
    defaults=defaults,
    request=request,
    updates=updates,
    arn_member="nodegroupArn",
    immutable=dict.fromkeys(
        ("node_role_arn", "subnet_ids", "instance_types", "capacity_type", "ami_type"), _REPLACE
    ),
    adjust={"scaling": _adjust_scaling, "launch_template": _adjust_template},
    refuse=refuse,
)
