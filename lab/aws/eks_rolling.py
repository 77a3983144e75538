"""Changes of a running node group: its configuration, and new instances one after the other."""

from __future__ import annotations

import time
from typing import Any

from lab.aws import Context, ServiceError
from lab.aws import eks_templates as templates
from lab.aws.eks_draining import drain, is_ready, wait_gone
from lab.aws.eks_group_rules import EFFECTS, check_labels, check_scaling
from lab.aws.eks_nodegroups import Nodegroups
from lab.aws.eks_state import Cluster, Registry, require_free


class Rolling:
    """UpdateNodegroupConfig and UpdateNodegroupVersion."""

    def __init__(self, registry: Registry, nodegroups: Nodegroups) -> None:
        self.registry = registry
        self.nodegroups = nodegroups

    def _busy_checked(
        self, params: dict[str, Any], context: Context
    ) -> tuple[Cluster, dict[str, Any]]:
        cluster, record = self.nodegroups.find(params, context)
        require_free(record, f"Nodegroup {record['nodegroupName']}", ("ACTIVE", "DEGRADED"))
        return cluster, record

    def update_config(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster, record = self._busy_checked(params, context)
        labels, taints = params.get("labels", {}), params.get("taints", {})
        scaling = {**record["scalingConfig"], **params.get("scalingConfig", {})}
        if "desiredSize" not in params.get("scalingConfig", {}):
            # EKS pulls the size into new bounds where the caller names none.
            low, high = scaling["minSize"], scaling["maxSize"]
            scaling["desiredSize"] = min(max(scaling["desiredSize"], low), high)
        check_scaling(cluster, scaling)
        new_labels = {**record["labels"], **labels.get("addOrUpdateLabels", {})}
        for key in labels.get("removeLabels", []):
            new_labels.pop(key, None)
        gone = {(t["key"], t["effect"]) for t in taints.get("removeTaints", [])}
        changed = {(t["key"], t["effect"]): t for t in taints.get("addOrUpdateTaints", [])}
        new_taints = [
            t for t in record["taints"] if (t["key"], t["effect"]) not in gone | changed.keys()
        ] + list(changed.values())
        check_labels(cluster, new_labels, new_taints)
        removed = sorted(set(record["labels"]) - set(new_labels))

        def work() -> None:
            if params.get("scalingConfig"):
                self.registry.aws("autoscaling", cluster.region).update_auto_scaling_group(
                    AutoScalingGroupName=record["resources"]["autoScalingGroups"][0]["name"],
                    MinSize=scaling["minSize"],
                    MaxSize=scaling["maxSize"],
                    DesiredCapacity=scaling["desiredSize"],
                )
            touched = gone | changed.keys()
            record["labels"], record["taints"] = new_labels, new_taints
            record["scalingConfig"], record["modifiedAt"] = scaling, time.time()
            for key in ("updateConfig", "nodeRepairConfig"):
                if params.get(key):
                    record[key] = params[key]
            if labels or taints:
                for node in self.nodegroups.nodes(cluster, record["nodegroupName"]):
                    self._relabel(cluster, node, record, removed, touched)

        names = {f"{k[0].upper()}{k[1:]}": v for k, v in params.get("scalingConfig", {}).items()}
        of = ("nodegroup", record["nodegroupName"])
        return self.registry.start_update(
            cluster, record, "ConfigUpdate", names, work, of=of, latency="UpdateNodegroup"
        )

    def _relabel(
        self,
        cluster: Cluster,
        node: dict[str, Any],
        record: dict[str, Any],
        removed: list[str],
        touched: set[tuple[str, str]],
    ) -> None:
        """The group's labels and taints on a Node that is there; foreign ones stay."""
        ours = {(t["key"], EFFECTS[t["effect"]]) for t in record["taints"]}
        ours |= {(key, EFFECTS[effect]) for key, effect in touched}
        kept = [t for t in node["spec"].get("taints", []) if (t["key"], t["effect"]) not in ours]
        taints = [{**t, "effect": EFFECTS[t["effect"]]} for t in record["taints"]]
        patch = {
            "metadata": {
                "labels": {**record["labels"], **dict.fromkeys(removed)},
                "resourceVersion": node["metadata"]["resourceVersion"],
            },
            "spec": {"taints": kept + taints},
        }
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        for _ in range(10):
            answer = cluster.kubernetes(
                "PATCH", path, patch, ok=(404, 409), content_type="application/merge-patch+json"
            )
            fresh = answer or cluster.kubernetes("GET", path, ok=(404,))
            if answer or fresh is None:
                return
            # Somebody else wrote in between (a heartbeat): look again at what there is.
            patch["metadata"]["resourceVersion"] = fresh["metadata"]["resourceVersion"]
            kept = [
                t for t in fresh["spec"].get("taints", []) if (t["key"], t["effect"]) not in ours
            ]
            patch["spec"]["taints"] = kept + taints
        raise ServiceError("ServerException", f"node {path} changed ten times under the update")

    def update_version(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster, record = self._busy_checked(params, context)
        given = dict(params.get("launchTemplate") or record["launchTemplate"] or {})
        if given.get("id") and given.get("name"):
            given.pop("name")
        wanted: dict[str, Any] = {
            "launchTemplate": given,
            "instanceTypes": record["instanceTypes"],
            "amiType": None if record["amiType"] == "CUSTOM" else record["amiType"],
            "version": params.get("version"),
            "releaseVersion": params.get("releaseVersion"),
        }
        old = record["launchTemplate"]
        chosen = templates.choose(self.registry, cluster, wanted)
        if bool(old) != bool(chosen["source"]):
            raise ServiceError(
                "InvalidParameterException",
                "a node group made without a launch template cannot get one, nor lose its own",
            )
        if old and old["id"] != chosen["source"]["id"]:
            raise ServiceError(
                "InvalidParameterException", "the launch template cannot be another one"
            )

        def work() -> None:
            version = templates.new_version(self.registry, cluster, record, chosen)
            if chosen["ami_type"] != "CUSTOM":
                record["version"] = params.get("version") or cluster.record["version"]
            record["launchTemplate"], record["releaseVersion"] = chosen["source"], chosen["release"]
            record["modifiedAt"] = time.time()
            self._roll(cluster, record, version)

        kind = "VersionUpdate"
        names = {"Version": wanted["version"] or record["version"]}
        if chosen["source"]:
            names["LaunchTemplateVersion"] = chosen["source"]["version"]
        of = ("nodegroup", record["nodegroupName"])
        return self.registry.start_update(
            cluster, record, kind, names, work, of=of, latency="UpdateNodegroup"
        )

    def _roll(self, cluster: Cluster, record: dict[str, Any], version: str) -> None:
        """One instance at a time: drain, end it, wait for its successor to be Ready."""
        scaling = self.registry.aws("autoscaling", cluster.region)
        group = record["resources"]["autoScalingGroups"][0]["name"]
        template = {"LaunchTemplateName": templates.template_name(record), "Version": version}
        scaling.update_auto_scaling_group(
            AutoScalingGroupName=group,
            MixedInstancesPolicy={"LaunchTemplate": {"LaunchTemplateSpecification": template}},
        )
        name = record["nodegroupName"]
        for node in self.nodegroups.nodes(cluster, name):
            drain(cluster, node["metadata"]["name"])
            scaling.terminate_instance_in_auto_scaling_group(
                InstanceId=node["spec"]["providerID"].rsplit("/", 1)[-1],
                ShouldDecrementDesiredCapacity=False,
            )
            uid = node["metadata"]["uid"]
            wait_gone(lambda uid=uid: self._not_yet(cluster, name, uid))

    def _not_yet(self, cluster: Cluster, name: str, old_uid: str) -> list[Any]:
        """What still stands in the way: the old Node, or Nodes missing or not Ready."""
        nodes = self.nodegroups.nodes(cluster, name)
        ready = [n for n in nodes if is_ready(n) and n["metadata"]["uid"] != old_uid]
        wanted = cluster.nodegroups[name]["scalingConfig"]["desiredSize"]
        old = [n for n in nodes if n["metadata"]["uid"] == old_uid]
        return old + [None] * max(0, wanted - len(ready))
