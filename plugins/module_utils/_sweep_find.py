# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Finds what EKS and its controllers left of a cluster: by their tags, inside the cluster's VPC."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._aws import pages, tags_of
from ansible_collections.gpushare.eks.plugins.module_utils._errors import aws_errors
from ansible_collections.gpushare.eks.plugins.module_utils._ours import BALANCER, OUR_TAG, is_left

_TAGS_A_CALL = 20  # Elastic Load Balancing API: names or ARNs in one DescribeTags


@dataclass(frozen=True, eq=False)
class Left:
    """One object: how to delete it, and which code says that it is gone already."""

    kind: str
    id: str
    name: str
    service: str
    operation: str
    params: Mapping[str, Any]
    gone: str = "NotFound"

    @property
    def title(self) -> str:
        return f"{self.kind} {self.id}" + (f" ({self.name})" if self.name else "")

    def as_dict(self) -> dict[str, str]:
        return {"kind": self.kind, "id": self.id, "name": self.name}


def vpc_of(ec2: Any, eks: Any, cluster_name: str, vpc_id: str, subnet_ids: list[str]) -> str:
    """The cluster's VPC, or "" where nobody can tell any more."""
    if vpc_id:
        return vpc_id
    with aws_errors(f"VPC of cluster {cluster_name}"):
        if subnet_ids:
            found = ec2.describe_subnets(Filters=[_filter("subnet-id", subnet_ids)])["Subnets"]
            return found[0]["VpcId"] if found else ""
        try:
            described = eks.describe_cluster(name=cluster_name)["cluster"]
            return (described.get("resourcesVpcConfig") or {}).get("vpcId") or ""
        except eks.exceptions.ResourceNotFoundException:
            found = ec2.describe_vpcs(Filters=[_filter(f"tag:{OUR_TAG}", [cluster_name])])["Vpcs"]
    return found[0]["VpcId"] if len(found) == 1 else ""


def find(
    client: Callable[[str], Any], cluster_name: str, vpc_id: str
) -> tuple[list[Left], list[dict[str, Any]]]:
    """What is left, in the order in which it can go; and all security groups of the VPC."""
    with aws_errors(f"what is left of cluster {cluster_name}"):
        found: list[Left] = []
        groups: list[dict[str, Any]] = []
        if vpc_id:
            filters = [_filter("vpc-id", [vpc_id])]
            listed = pages(
                client("ec2"), "describe_security_groups", "SecurityGroups", Filters=filters
            )
            groups = list(listed)
            found += _balancers(client("elb"), client("elbv2"), cluster_name, vpc_id)
            found += _scaling(client("autoscaling"), client("ec2"), cluster_name, vpc_id)
        found += _templates(client("ec2"), cluster_name)
        found += _volumes(client("ec2"), cluster_name)
        if vpc_id:
            found += _interfaces(client("ec2"), cluster_name, vpc_id)
            found += _groups(groups, cluster_name)
        return found, groups


def orphans(client: Callable[[str], Any], vpc_id: str) -> list[str]:
    """The interfaces in the VPC of load balancers that are gone: AWS ends them within minutes."""
    with aws_errors(f"network interfaces of VPC {vpc_id}"):
        filters = [_filter("vpc-id", [vpc_id]), _filter("description", ["ELB *"])]
        listed = pages(
            client("ec2"), "describe_network_interfaces", "NetworkInterfaces", Filters=filters
        )
        held = {one["NetworkInterfaceId"]: BALANCER.match(one["Description"]) for one in listed}
        if not held:
            return []
        classic = pages(client("elb"), "describe_load_balancers", "LoadBalancerDescriptions")
        others = pages(client("elbv2"), "describe_load_balancers", "LoadBalancers")
        alive = {one["LoadBalancerName"] for one in [*classic, *others]}
    return sorted(eni for eni, name in held.items() if name and name[1] not in alive)


def _balancers(elb: Any, elbv2: Any, cluster_name: str, vpc_id: str) -> Iterator[Left]:
    there = pages(elb, "describe_load_balancers", "LoadBalancerDescriptions")
    classic = [one["LoadBalancerName"] for one in there if one.get("VPCId") == vpc_id]
    for batch in _batches(classic):
        for row in elb.describe_tags(LoadBalancerNames=batch)["TagDescriptions"]:
            name = row["LoadBalancerName"]
            if is_left(_tags(row), cluster_name):
                yield Left("classic load balancer", name, "", "elb", "delete_load_balancer",
                           {"LoadBalancerName": name})  # fmt: skip
    for operation, member, part, kind in (
        ("describe_load_balancers", "LoadBalancers", "LoadBalancer", "load balancer"),
        ("describe_target_groups", "TargetGroups", "TargetGroup", "target group"),
    ):
        arns = {
            one[f"{part}Arn"]: one[f"{part}Name"]
            for one in pages(elbv2, operation, member)
            if one.get("VpcId") == vpc_id
        }
        for batch in _batches(list(arns)):
            for row in elbv2.describe_tags(ResourceArns=batch)["TagDescriptions"]:
                arn = row["ResourceArn"]
                if is_left(_tags(row), cluster_name):
                    yield Left(kind, arn, arns[arn], "elbv2", operation.replace(
                        "describe", "delete").removesuffix("s"), {f"{part}Arn": arn})  # fmt: skip


def _scaling(scaling: Any, ec2: Any, cluster_name: str, vpc_id: str) -> Iterator[Left]:
    subnets = pages(ec2, "describe_subnets", "Subnets", Filters=[_filter("vpc-id", [vpc_id])])
    ids = {one["SubnetId"] for one in subnets}
    for group in pages(scaling, "describe_auto_scaling_groups", "AutoScalingGroups"):
        name, places = group["AutoScalingGroupName"], group.get("VPCZoneIdentifier") or ""
        if is_left(_tags(group), cluster_name) and ids & set(places.split(",")):
            yield Left("Auto Scaling group", name, "", "autoscaling", "delete_auto_scaling_group",
                       {"AutoScalingGroupName": name, "ForceDelete": True},
                       gone="ValidationError")  # fmt: skip
    running = _filter("instance-state-name", ["pending", "running", "stopping", "stopped"])
    filters = [_filter("vpc-id", [vpc_id]), running]
    for reservation in pages(ec2, "describe_instances", "Reservations", Filters=filters):
        for one in reservation["Instances"]:
            if is_left(_tags(one), cluster_name):
                name = _tags(one).get("Name", "")
                yield Left("instance", one["InstanceId"], name, "ec2", "terminate_instances",
                           {"InstanceIds": [one["InstanceId"]]})  # fmt: skip


def _templates(ec2: Any, cluster_name: str) -> Iterator[Left]:
    """EKS's own, of its node groups."""
    filters = [_filter("tag:eks:cluster-name", [cluster_name])]
    for one in pages(ec2, "describe_launch_templates", "LaunchTemplates", Filters=filters):
        yield Left("launch template", one["LaunchTemplateId"], one["LaunchTemplateName"], "ec2",
                   "delete_launch_template",
                   {"LaunchTemplateId": one["LaunchTemplateId"]})  # fmt: skip


def _volumes(ec2: Any, cluster_name: str) -> Iterator[Left]:
    filters = [_filter(f"tag:kubernetes.io/cluster/{cluster_name}", ["owned"])]
    for one in pages(ec2, "describe_volumes", "Volumes", Filters=filters):
        tags = _tags(one)
        claim = tags.get("kubernetes.io/created-for/pvc/name")
        where = tags.get("kubernetes.io/created-for/pvc/namespace")
        name = f"claim {where}/{claim}" if claim else tags.get("Name", "")
        yield Left("volume", one["VolumeId"], name, "ec2", "delete_volume",
                   {"VolumeId": one["VolumeId"]})  # fmt: skip


def _interfaces(ec2: Any, cluster_name: str, vpc_id: str) -> Iterator[Left]:
    filters = [_filter("vpc-id", [vpc_id])]
    for one in pages(ec2, "describe_network_interfaces", "NetworkInterfaces", Filters=filters):
        if is_left(tags_of(one.get("TagSet")), cluster_name):
            yield Left("network interface", one["NetworkInterfaceId"], one.get("Description", ""),
                       "ec2", "delete_network_interface",
                       {"NetworkInterfaceId": one["NetworkInterfaceId"]})  # fmt: skip


def _groups(groups: list[dict[str, Any]], cluster_name: str) -> Iterator[Left]:
    for one in groups:
        if is_left(_tags(one), cluster_name) and one["GroupName"] != "default":
            yield Left("security group", one["GroupId"], one["GroupName"], "ec2",
                       "delete_security_group", {"GroupId": one["GroupId"]})  # fmt: skip


def _tags(item: Mapping[str, Any]) -> dict[str, str]:
    return tags_of(item.get("Tags"))


def _filter(name: str, values: list[str]) -> dict[str, Any]:
    return {"Name": name, "Values": values}


def _batches(items: list[str]) -> Iterable[list[str]]:
    return [items[start : start + _TAGS_A_CALL] for start in range(0, len(items), _TAGS_A_CALL)]
