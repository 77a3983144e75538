"""A small cluster of GPU nodes without any role and without an agent, by AWS's own API."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import boto3

from ansible_collections.gpushare.eks.plugins.module_utils import _documents, _scripts

from . import cluster
from .aws_state import TAG

INSTANCE_TYPE = "g4dn.xlarge"
TRUTH_MIB = 15360 - 450  # what NVML leaves usable of the lab's T4
GROUP = "gpu"


@dataclass(frozen=True)
class Fleet:
    """nodes: {instance ID: Node name}."""

    name: str
    nodes: dict[str, str]


def wait(what: str, ready: Callable[[], Any], limit_s: float = 60) -> Any:
    """What `ready` gives, as soon as it is true."""
    deadline = time.monotonic() + limit_s
    while not (found := ready()):
        assert time.monotonic() < deadline, f"{what} took more than {limit_s:g} s"
        time.sleep(0.1)
    return found


@contextlib.contextmanager
def documents(name: str) -> Iterator[None]:
    """The SSM documents that a runner may send, as cluster ``name``'s."""
    kept = _documents.Documents(boto3.client("ssm"))
    with contextlib.ExitStack() as stack:
        for one in _scripts.documents():
            desired = _documents.wanted(one["name"], one["content"], {TAG: name})
            sync = {"cluster": name, "check_mode": False}
            kept.sync(one["name"], desired, state="present", **sync)
            stack.callback(kept.release, one["name"], **sync)
        yield


@contextlib.contextmanager
def running(name: str, count: int) -> Iterator[Fleet]:
    """A cluster of that name with so many nodes; taken away with all that it needed."""
    ec2, eks, iam = (boto3.client(service) for service in ("ec2", "eks", "iam"))
    tag = {TAG: name}
    tags = [{"Key": key, "Value": value} for key, value in tag.items()]

    def tagged(kind: str) -> dict[str, Any]:
        return {"TagSpecifications": [{"ResourceType": kind, "Tags": tags}]}

    with contextlib.ExitStack() as stack:
        vpc = ec2.create_vpc(CidrBlock="10.78.0.0/16", **tagged("vpc"))["Vpc"]["VpcId"]
        stack.callback(ec2.delete_vpc, VpcId=vpc)
        zones = ec2.describe_availability_zones()["AvailabilityZones"][:2]
        subnets = []
        for number, zone in enumerate(zones):
            made = ec2.create_subnet(
                VpcId=vpc,
                CidrBlock=f"10.78.{number * 16}.0/20",
                AvailabilityZone=zone["ZoneName"],
                **tagged("subnet"),
            )
            subnets.append(made["Subnet"]["SubnetId"])
            stack.callback(ec2.delete_subnet, SubnetId=subnets[-1])
        stack.callback(_delete_groups, ec2, vpc)
        services = {"Service": ["eks.amazonaws.com", "ec2.amazonaws.com"]}
        trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": services}
        role = iam.create_role(
            RoleName=name,
            AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]}),
            Tags=tags,
        )["Role"]["Arn"]
        stack.callback(_delete_role, iam, name)
        eks.create_cluster(
            name=name,
            roleArn=role,
            resourcesVpcConfig={"subnetIds": subnets},
            accessConfig={
                "authenticationMode": "API",
                "bootstrapClusterCreatorAdminPermissions": True,
            },
            tags=tag,
        )
        stack.callback(_delete_cluster, eks, name)
        eks.get_waiter("cluster_active").wait(name=name, WaiterConfig={"Delay": 1})
        eks.create_nodegroup(
            clusterName=name,
            nodegroupName=GROUP,
            scalingConfig={"minSize": 0, "maxSize": count, "desiredSize": count},
            subnets=subnets,
            nodeRole=role,
            instanceTypes=[INSTANCE_TYPE],
            amiType="AL2023_x86_64_NVIDIA",
            tags=tag,
        )
        stack.callback(_delete_nodegroup, eks, ec2, name)
        wait("the nodes", lambda: len(_joined(name)) == count)
        yield Fleet(name, _joined(name))


def _joined(name: str) -> dict[str, str]:
    found = cluster.nodes(name)
    return {one["spec"]["providerID"].rpartition("/")[2]: one["metadata"]["name"] for one in found}


def _delete_nodegroup(eks: Any, ec2: Any, name: str) -> None:
    mine = [{"Name": "tag:eks:cluster-name", "Values": [name]}]
    found = ec2.get_paginator("describe_instances").paginate(Filters=mine).build_full_result()
    attached = [one["InstanceId"] for r in found["Reservations"] for one in r["Instances"]]
    inside = [{"Name": "attachment.instance-id", "Values": attached}]
    volumes = ec2.describe_volumes(Filters=inside)["Volumes"]
    eks.delete_nodegroup(clusterName=name, nodegroupName=GROUP)
    deleted = eks.get_waiter("nodegroup_deleted")
    deleted.wait(clusterName=name, nodegroupName=GROUP, WaiterConfig={"Delay": 1})
    # Without a launch template of the roles nothing says that they go with their instances.
    left = {one["VolumeId"] for one in ec2.describe_volumes()["Volumes"]}
    for volume in volumes:
        if volume["VolumeId"] in left:
            ec2.delete_volume(VolumeId=volume["VolumeId"])


def _delete_cluster(eks: Any, name: str) -> None:
    eks.delete_cluster(name=name)
    eks.get_waiter("cluster_deleted").wait(name=name, WaiterConfig={"Delay": 1})


def _delete_groups(ec2: Any, vpc: str) -> None:
    inside = [{"Name": "vpc-id", "Values": [vpc]}]
    for group in ec2.describe_security_groups(Filters=inside)["SecurityGroups"]:
        if group["GroupName"] != "default":
            ec2.delete_security_group(GroupId=group["GroupId"])


def _delete_role(iam: Any, name: str) -> None:
    for policy in iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]:
        iam.detach_role_policy(RoleName=name, PolicyArn=policy["PolicyArn"])
    iam.delete_role(RoleName=name)
