"""Managed node groups: a launch template and an Auto Scaling group each, as EKS makes them."""

from __future__ import annotations

import copy
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from botocore.exceptions import ClientError

from lab.aws import Context, ServiceError
from lab.aws import eks_access as access
from lab.aws import eks_templates as templates
from lab.aws.eks_draining import drain, is_ready, wait_gone
from lab.aws.eks_group_rules import check_labels, check_scaling, invalid
from lab.aws.eks_state import (
    Cluster,
    Registry,
    arn,
    checked,
    log,
    require_free,
    require_role,
    spawn,
)

_NODEGROUP_LABEL = "eks.amazonaws.com/nodegroup"


class Nodegroups:
    """The operations on node groups."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def create(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster = self.registry.find_active(params["clusterName"], context)
        name = params["nodegroupName"]
        labels, taints = params.get("labels", {}), params.get("taints", [])
        scaling = {"minSize": 1, "maxSize": 2, "desiredSize": 2, **params.get("scalingConfig", {})}
        check_scaling(cluster, scaling)
        check_labels(cluster, labels, taints)
        require_role(self.registry, params["nodeRole"], context.region)
        ec2 = self.registry.aws("ec2", context.region)
        subnets = checked(ec2.describe_subnets, SubnetIds=params["subnets"])["Subnets"]
        if {s["VpcId"] for s in subnets} != {cluster.record["resourcesVpcConfig"]["vpcId"]}:
            raise invalid("The subnets are not in the cluster's VPC", cluster, name)
        chosen = templates.choose(self.registry, cluster, params)
        record = {
            "nodegroupName": name,
            "nodegroupArn": arn(context, f"nodegroup/{cluster.name}/{name}/{uuid.uuid4()}"),
            "clusterName": cluster.name,
            "version": params.get("version", cluster.record["version"]),
            "releaseVersion": chosen["release"],
            "createdAt": time.time(),
            "modifiedAt": time.time(),
            "status": "CREATING",
            "capacityType": params.get("capacityType", "ON_DEMAND"),
            "scalingConfig": scaling,
            "instanceTypes": None if chosen["type_in_template"] else chosen["types"],
            "subnets": params["subnets"],
            "amiType": chosen["ami_type"],
            "nodeRole": params["nodeRole"],
            "labels": dict(labels),
            "taints": list(taints),
            "resources": {"autoScalingGroups": []},
            "diskSize": None if chosen["source"] else params.get("diskSize", 20),
            "health": {"issues": []},
            "updateConfig": params.get("updateConfig") or {"maxUnavailable": 1},
            "nodeRepairConfig": params.get("nodeRepairConfig"),
            "launchTemplate": chosen["source"],
            "tags": params.get("tags", {}),
        }
        with cluster.lock:
            if name in cluster.nodegroups:
                raise ServiceError(
                    "ResourceInUseException",
                    f"NodeGroup already exists with name {name} and cluster name {cluster.name}",
                    clusterName=cluster.name,
                    nodegroupName=name,
                )
            cluster.nodegroups[name] = record
        answer = copy.deepcopy(record)
        spawn(lambda: self._bring_up(cluster, record, chosen))
        return {"nodegroup": answer}

    def _bring_up(self, cluster: Cluster, record: dict[str, Any], chosen: dict[str, Any]) -> None:
        try:
            if record["nodeRole"] not in cluster.access_entries:
                access.new_entry(cluster, record["nodeRole"], type="EC2_LINUX")
            template = templates.make(self.registry, cluster, record, chosen)
            record["resources"]["autoScalingGroups"] = [
                {"name": self._scaling_group(cluster, record, template, chosen["types"])}
            ]
        except Exception as error:
            log.exception("node group %s did not come up", record["nodegroupName"])
            self._fail(record, "AsgInstanceLaunchFailures", str(error))

    def _scaling_group(
        self, cluster: Cluster, record: dict[str, Any], template: dict[str, str], types: list[str]
    ) -> str:
        number = template["LaunchTemplateName"].removeprefix("eks-")
        name = f"eks-{record['nodegroupName']}-{number}"
        spot = record["capacityType"] == "SPOT"
        scaling = record["scalingConfig"]
        tags = {
            "eks:cluster-name": cluster.name,
            "eks:nodegroup-name": record["nodegroupName"],
            "k8s.io/cluster-autoscaler/enabled": "true",
            f"k8s.io/cluster-autoscaler/{cluster.name}": "owned",
            f"kubernetes.io/cluster/{cluster.name}": "owned",
        }
        self.registry.aws("autoscaling", cluster.region).create_auto_scaling_group(
            AutoScalingGroupName=name,
            MinSize=scaling["minSize"],
            MaxSize=scaling["maxSize"],
            DesiredCapacity=scaling["desiredSize"],
            VPCZoneIdentifier=",".join(record["subnets"]),
            CapacityRebalance=spot,
            MixedInstancesPolicy={
                "LaunchTemplate": {
                    "LaunchTemplateSpecification": template,
                    "Overrides": [{"InstanceType": kind} for kind in types],
                },
                "InstancesDistribution": {
                    "OnDemandAllocationStrategy": "prioritized",
                    "OnDemandBaseCapacity": 0,
                    "OnDemandPercentageAboveBaseCapacity": 0 if spot else 100,
                    "SpotAllocationStrategy": "price-capacity-optimized",
                },
            },
            Tags=[{"Key": k, "Value": v, "PropagateAtLaunch": True} for k, v in tags.items()],
        )
        return name

    def _fail(self, record: dict[str, Any], code: str, message: str) -> None:
        record["status"] = "CREATE_FAILED"
        issue = {"code": code, "message": message, "resourceIds": []}
        record["health"] = {"issues": [issue]}

    def nodes(self, cluster: Cluster, name: str) -> list[dict[str, Any]]:
        """The group's Nodes in the API server."""
        if cluster.control_plane is None:
            return []
        selector = {"labelSelector": f"{_NODEGROUP_LABEL}={name}"}
        return cluster.kubernetes("GET", "/api/v1/nodes", params=selector)["items"]

    def refresh(self, cluster: Cluster, record: dict[str, Any]) -> None:
        """The group is ACTIVE once all wanted Nodes are Ready, and failed after a bounded time."""
        groups = record["resources"]["autoScalingGroups"]
        if not groups or record["status"] in ("DELETING", "CREATE_FAILED"):
            return
        scaling = self.registry.aws("autoscaling", cluster.region)
        names = [groups[0]["name"]]
        found = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=names)
        if not found["AutoScalingGroups"]:
            issue = {"code": "AutoScalingGroupNotFound", "message": names[0], "resourceIds": names}
            record["status"], record["health"] = "DEGRADED", {"issues": [issue]}
            return
        group = found["AutoScalingGroups"][0]
        # An autoscaler moves the group itself; EKS answers what the group says.
        record["scalingConfig"] = {
            "minSize": group["MinSize"],
            "maxSize": group["MaxSize"],
            "desiredSize": group["DesiredCapacity"],
        }
        if record["status"] != "CREATING":
            return
        age = time.time() - record["createdAt"]
        ready = sum(is_ready(node) for node in self.nodes(cluster, record["nodegroupName"]))
        wanted = group["DesiredCapacity"]
        if ready >= wanted and age >= self.registry.latencies["CreateNodegroup"]:
            record["status"] = "ACTIVE"
        elif age > self.registry.latencies["NodegroupTimeout"]:
            rows = scaling.describe_scaling_activities(AutoScalingGroupName=names[0])["Activities"]
            failed = next((row for row in rows if row["StatusCode"] == "Failed"), None)
            if failed:
                self._fail(record, "AsgInstanceLaunchFailures", failed["StatusMessage"])
            else:
                text = f"Instances failed to join the kubernetes cluster: {ready} of {wanted} Ready"
                self._fail(record, "NodeCreationFailure", text)

    def find(self, params: dict[str, Any], context: Context) -> tuple[Cluster, dict[str, Any]]:
        cluster = self.registry.find(params["clusterName"], context)
        record = cluster.nodegroups.get(params["nodegroupName"])
        if record is None:
            raise ServiceError(
                "ResourceNotFoundException",
                f"No node group found for name: {params['nodegroupName']}.",
                clusterName=cluster.name,
                nodegroupName=params["nodegroupName"],
            )
        self.refresh(cluster, record)
        return cluster, record

    def describe(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        return {"nodegroup": copy.deepcopy(self.find(params, context)[1])}

    def list(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        return {"nodegroups": sorted(self.registry.find(params["clusterName"], context).nodegroups)}

    def delete(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster, record = self.find(params, context)
        allowed = ("ACTIVE", "DEGRADED", "CREATE_FAILED", "CREATING", "DELETE_FAILED")
        require_free(record, f"Nodegroup {record['nodegroupName']}", allowed)
        record["status"] = "DELETING"
        spawn(lambda: self._take_down(cluster, record))
        return {"nodegroup": copy.deepcopy(record)}

    def _take_down(self, cluster: Cluster, record: dict[str, Any]) -> None:
        name = record["nodegroupName"]
        try:
            names = [node["metadata"]["name"] for node in self.nodes(cluster, name)]
            with ThreadPoolExecutor(16) as pool:
                list(pool.map(lambda node: drain(cluster, node), names))
            scaling = self.registry.aws("autoscaling", cluster.region)
            for group in record["resources"]["autoScalingGroups"]:
                try:
                    scaling.delete_auto_scaling_group(
                        AutoScalingGroupName=group["name"], ForceDelete=True
                    )
                except ClientError as error:
                    log.warning("%s: %s", group["name"], error)
            wait_gone(lambda: self.nodes(cluster, name))
            templates.remove(self.registry, cluster, record)
            self.registry.pause("DeleteNodegroup")
            cluster.nodegroups.pop(name, None)
            roles = {other["nodeRole"] for other in cluster.nodegroups.values()}
            entry = cluster.access_entries.get(record["nodeRole"], {}).get("entry", {})
            if record["nodeRole"] not in roles and entry.get("type") == "EC2_LINUX":
                cluster.access_entries.pop(record["nodeRole"], None)
        except Exception as error:
            log.exception("node group %s did not go", name)
            record["status"] = "DELETE_FAILED"
            issue = {"code": "InternalFailure", "message": str(error), "resourceIds": []}
            record["health"] = {"issues": [issue]}
