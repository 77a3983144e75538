"""A cluster for a benchmark: made through the lab's AWS endpoint alone, and taken away again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import boto3

ROOT = Path(__file__).resolve().parents[2]
GROUP, TYPE = "shared", "g4dn.xlarge"
HEAD = """
- hosts: localhost
  connection: local
  gather_facts: false
  vars:
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
"""


def guard() -> None:
    """Refuse to run against anything but a lab; SIGTERM, too, takes the cluster away."""
    place = urlsplit(os.environ.get("AWS_ENDPOINT_URL", "")).hostname
    if place not in ("127.0.0.1", "localhost", "::1"):
        raise SystemExit("AWS_ENDPOINT_URL is no loopback address: `make lab`, then `. .lab/env`")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))


def wait(what: str, ready: Callable[[], bool], limit_s: float = 300) -> None:
    """Until `ready()`; ends the benchmark after limit_s."""
    deadline = time.monotonic() + limit_s
    while not ready():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} took more than {limit_s:g} s: see .lab/logs")
        time.sleep(0.5)


@dataclass
class Cluster:
    """One EKS cluster with one node group; `nodes` is its desired size."""

    name: str
    nodes: int
    cidr: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    most: int = 0

    def build(self) -> None:
        """Everything, until the node group is active."""
        ec2, eks, iam = (boto3.client(service) for service in ("ec2", "eks", "iam"))
        vpc = ec2.create_vpc(CidrBlock=self.cidr)["Vpc"]["VpcId"]
        zones = [z["ZoneName"] for z in ec2.describe_availability_zones()["AvailabilityZones"]]
        start = self.cidr.split(".0.0/")[0]
        ids = [
            ec2.create_subnet(
                VpcId=vpc, CidrBlock=f"{start}.{i * 128}.0/17", AvailabilityZone=zones[i]
            )["Subnet"]["SubnetId"]
            for i in range(2)
        ]
        statement = {
            "Effect": "Allow",
            "Action": "sts:AssumeRole",
            "Principal": {"Service": ["eks.amazonaws.com", "ec2.amazonaws.com"]},
        }
        trust = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        made = iam.create_role(RoleName=self.name, AssumeRolePolicyDocument=trust)
        arn = made["Role"]["Arn"]
        eks.create_cluster(
            name=self.name,
            roleArn=arn,
            resourcesVpcConfig={"subnetIds": ids},
            accessConfig={
                "authenticationMode": "API",
                "bootstrapClusterCreatorAdminPermissions": True,
            },
        )
        eks.get_waiter("cluster_active").wait(name=self.name, WaiterConfig={"Delay": 1})
        eks.create_nodegroup(
            clusterName=self.name,
            nodegroupName=GROUP,
            scalingConfig={
                "minSize": 0,
                "maxSize": max(self.nodes, self.most, 1),
                "desiredSize": self.nodes,
            },
            subnets=ids,
            nodeRole=arn,
            instanceTypes=[TYPE],
            amiType="AL2023_x86_64_NVIDIA",
            labels=dict(self.labels),
            taints=list(self.taints),
        )
        wait("the node group", lambda: self._group(eks)["status"] == "ACTIVE")

    def _group(self, eks) -> dict:
        return eks.describe_nodegroup(clusterName=self.name, nodegroupName=GROUP)["nodegroup"]

    def instance_ids(self) -> list[str]:
        """Of the instances that run."""
        filters = [
            {"Name": "tag:eks:cluster-name", "Values": [self.name]},
            {"Name": "instance-state-name", "Values": ["running"]},
        ]
        pages = boto3.client("ec2").get_paginator("describe_instances").paginate(Filters=filters)
        return sorted(
            one["InstanceId"]
            for page in pages
            for reservation in page["Reservations"]
            for one in reservation["Instances"]
        )

    def scale(self, nodes: int) -> None:
        """The Auto Scaling group's desired size, as an autoscaler sets it."""
        group = self._group(boto3.client("eks"))["resources"]["autoScalingGroups"][0]["name"]
        boto3.client("autoscaling").set_desired_capacity(
            AutoScalingGroupName=group, DesiredCapacity=nodes
        )

    def remove(self) -> None:
        """Take all of it away, also what an earlier, killed run left."""
        ec2, eks, iam = (boto3.client(service) for service in ("ec2", "eks", "iam"))
        try:
            for group in eks.list_nodegroups(clusterName=self.name)["nodegroups"]:
                eks.delete_nodegroup(clusterName=self.name, nodegroupName=group)
                eks.get_waiter("nodegroup_deleted").wait(
                    clusterName=self.name, nodegroupName=group, WaiterConfig={"Delay": 1}
                )
            eks.delete_cluster(name=self.name)
            eks.get_waiter("cluster_deleted").wait(name=self.name, WaiterConfig={"Delay": 1})
        except eks.exceptions.ResourceNotFoundException:
            pass
        for vpc in ec2.describe_vpcs(Filters=[{"Name": "cidr", "Values": [self.cidr]}])["Vpcs"]:
            inside = [{"Name": "vpc-id", "Values": [vpc["VpcId"]]}]
            for subnet in ec2.describe_subnets(Filters=inside)["Subnets"]:
                ec2.delete_subnet(SubnetId=subnet["SubnetId"])
            for group in ec2.describe_security_groups(Filters=inside)["SecurityGroups"]:
                if group["GroupName"] != "default":
                    ec2.delete_security_group(GroupId=group["GroupId"])
            ec2.delete_vpc(VpcId=vpc["VpcId"])
        try:
            found = iam.list_attached_role_policies(RoleName=self.name)["AttachedPolicies"]
            for policy in found:
                iam.detach_role_policy(RoleName=self.name, PolicyArn=policy["PolicyArn"])
            iam.delete_role(RoleName=self.name)
        except iam.exceptions.NoSuchEntityException:
            pass


def play(folder: Path, text: str, **variables: object) -> tuple[float, dict]:
    """Wall seconds of one whole ansible-playbook, and the figures that it printed."""
    book = folder / "book.yml"
    book.write_text("---" + text)
    began = time.monotonic()
    done = subprocess.run(
        ["ansible-playbook", "-i", "localhost,", str(book), "-e", json.dumps(variables)],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - began
    if done.returncode:
        raise SystemExit(done.stdout[-4000:])
    found = re.search(r'"msg": ("FIGURES .*")', done.stdout)
    return seconds, json.loads(json.loads(found[1]).removeprefix("FIGURES ")) if found else {}
