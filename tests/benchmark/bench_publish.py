"""Publishing gpu-memory on 200 nodes: one run of ours against a plain task loop over the nodes.

Needs a running lab (`. .lab/env`). It makes a cluster of its own through the lab's AWS endpoint and
removes it again. Both playbooks use the same modules on the same nodes in the same run; the plain
loop calls them once for each node, over SAMPLE nodes, and is scaled to all of them without its
start-up: 200 turns would take many minutes. GPUSHARE_BENCH_LOOP_ALL=1 runs all 200.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import boto3

sys.path.insert(0, str(Path(__file__).parent))
import _bench

ROOT = Path(__file__).resolve().parents[2]
CLUSTER, NODES, SAMPLE = "bench-publish", int(os.environ.get("GPUSHARE_BENCH_NODES", "200")), 10
GROUP, TYPE = "shared", "g4dn.xlarge"
HEAD = """
- hosts: localhost
  connection: local
  gather_facts: false
  vars:
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
  tasks:
"""
DOCUMENT = (
    HEAD
    + """
    - gpushare.eks.ssm_document:
"""
)
OURS = (
    HEAD
    + f"""
    - gpushare.eks.gpu_capacity_info:
        cluster_name: {CLUSTER}
      register: read
    - gpushare.eks.node_capacity:
        cluster_name: {CLUSTER}
        readings: "{{{{ read.readings }}}}"
      register: done
    - ansible.builtin.debug:
        msg: "FIGURES {{{{ {{'calls': read.calls, 'counts': done.counts}} | to_json }}}}"
"""
)
LOOP = (
    HEAD
    + f"""
    - gpushare.eks.gpu_capacity_info:
        instance_ids: ["{{{{ item }}}}"]
      loop: "{{{{ ids }}}}"
      register: read
    - gpushare.eks.node_capacity:
        cluster_name: {CLUSTER}
        readings: "{{{{ item.readings }}}}"
      loop: "{{{{ read.results }}}}"
      loop_control:
        label: "{{{{ item.item }}}}"
"""
)
ABSENT = (
    HEAD
    + f"""
    - gpushare.eks.node_capacity:
        cluster_name: {CLUSTER}
        state: absent
"""
)


def wait(what: str, ready, limit_s: float = 300) -> None:
    deadline = time.monotonic() + limit_s
    while not ready():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} took more than {limit_s:g} s: see .lab/logs")
        time.sleep(0.5)


def build() -> list[str]:
    """A cluster with NODES nodes in one node group; returns their instance IDs."""
    ec2, eks, iam = (boto3.client(service) for service in ("ec2", "eks", "iam"))
    vpc = ec2.create_vpc(CidrBlock="10.77.0.0/16")["Vpc"]["VpcId"]
    zones = [zone["ZoneName"] for zone in ec2.describe_availability_zones()["AvailabilityZones"]]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.77.{i * 16}.0/20", AvailabilityZone=zones[i])
        for i in range(2)
    ]
    ids = [subnet["Subnet"]["SubnetId"] for subnet in subnets]
    policy = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": "sts:AssumeRole",
                "Principal": {"Service": ["eks.amazonaws.com", "ec2.amazonaws.com"]},
            }
        ],
    }
    arn = iam.create_role(RoleName=CLUSTER, AssumeRolePolicyDocument=json.dumps(policy))
    arn = arn["Role"]["Arn"]
    eks.create_cluster(
        name=CLUSTER,
        roleArn=arn,
        resourcesVpcConfig={"subnetIds": ids},
        accessConfig={
            "authenticationMode": "API",
            "bootstrapClusterCreatorAdminPermissions": True,
        },
    )
    eks.get_waiter("cluster_active").wait(name=CLUSTER, WaiterConfig={"Delay": 1})
    eks.create_nodegroup(
        clusterName=CLUSTER,
        nodegroupName=GROUP,
        scalingConfig={"minSize": 0, "maxSize": NODES, "desiredSize": NODES},
        subnets=ids,
        nodeRole=arn,
        instanceTypes=[TYPE],
        amiType="AL2023_x86_64_NVIDIA",
    )
    wait("the node group", lambda: status(eks) == "ACTIVE")
    filters = [
        {"Name": "tag:eks:cluster-name", "Values": [CLUSTER]},
        {"Name": "instance-state-name", "Values": ["running"]},
    ]
    pages = ec2.get_paginator("describe_instances").paginate(Filters=filters)
    found = [
        one["InstanceId"] for page in pages for r in page["Reservations"] for one in r["Instances"]
    ]
    if len(found) != NODES:
        raise SystemExit(f"the node group has {len(found)} instances instead of {NODES}")
    return sorted(found)


def status(eks) -> str:
    return eks.describe_nodegroup(clusterName=CLUSTER, nodegroupName=GROUP)["nodegroup"]["status"]


def remove() -> None:
    """Take the cluster and all around it away, also what an earlier, killed run left."""
    ec2, eks, iam = (boto3.client(service) for service in ("ec2", "eks", "iam"))
    try:
        for group in eks.list_nodegroups(clusterName=CLUSTER)["nodegroups"]:
            eks.delete_nodegroup(clusterName=CLUSTER, nodegroupName=group)
            eks.get_waiter("nodegroup_deleted").wait(
                clusterName=CLUSTER, nodegroupName=group, WaiterConfig={"Delay": 1}
            )
        eks.delete_cluster(name=CLUSTER)
        eks.get_waiter("cluster_deleted").wait(name=CLUSTER, WaiterConfig={"Delay": 1})
    except eks.exceptions.ResourceNotFoundException:
        pass
    mine = [{"Name": "cidr", "Values": ["10.77.0.0/16"]}]
    for vpc in ec2.describe_vpcs(Filters=mine)["Vpcs"]:
        inside = [{"Name": "vpc-id", "Values": [vpc["VpcId"]]}]
        for subnet in ec2.describe_subnets(Filters=inside)["Subnets"]:
            ec2.delete_subnet(SubnetId=subnet["SubnetId"])
        for group in ec2.describe_security_groups(Filters=inside)["SecurityGroups"]:
            if group["GroupName"] != "default":
                ec2.delete_security_group(GroupId=group["GroupId"])
        ec2.delete_vpc(VpcId=vpc["VpcId"])
    try:
        for policy in iam.list_attached_role_policies(RoleName=CLUSTER)["AttachedPolicies"]:
            iam.detach_role_policy(RoleName=CLUSTER, PolicyArn=policy["PolicyArn"])
        iam.delete_role(RoleName=CLUSTER)
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


def measure(ids: list[str], folder: Path) -> None:
    play(folder, DOCUMENT)  # made once for both; publishing itself only runs it
    first, figures = play(folder, OURS)
    again, second = play(folder, OURS)
    play(folder, ABSENT)
    sample = ids if os.environ.get("GPUSHARE_BENCH_LOOP_ALL") else ids[:SAMPLE]
    start_up, _ = play(folder, LOOP, ids=[])
    looped, _ = play(folder, LOOP, ids=sample)
    plain = start_up + (looped - start_up) / len(sample) * len(ids)
    print(f"one run of ours on {len(ids)} nodes: {first:.1f} s; calls {figures['calls']}")
    print(f"requests to the API server: {figures['counts']}")
    how = "measured" if len(sample) == len(ids) else f"measured {looped:.1f} s on {len(sample)}"
    how = f"{how} nodes, start-up {start_up:.1f} s"
    print(f"plain task loop on {len(ids)} nodes: {plain:.1f} s ({how})")
    calls, counts = figures["calls"], figures["counts"]
    count = len(ids)
    _bench.record("publish_200_wall", first, "s")
    _bench.record("publish_200_plain_loop", plain, "s")
    _bench.record("publish_200_ratio", plain / first, "times", at_least=20)
    sends = math.ceil(count / 50)
    _bench.record("publish_200_sends", calls["send_command"], "calls", at_most=sends)
    _bench.record("publish_200_pages", calls["list_command_invocations"], "calls", at_most=80)
    _bench.record("publish_200_lists", counts["list"], "requests", at_most=1)
    _bench.record("publish_200_patches", counts["patch"], "requests", at_most=count, at_least=count)
    _bench.record("publish_200_again_wall", again, "s")
    _bench.record("publish_200_again_patches", second["counts"]["patch"], "requests", at_most=0)


def main() -> None:
    place = urlsplit(os.environ.get("AWS_ENDPOINT_URL", "")).hostname
    if place not in ("127.0.0.1", "localhost", "::1"):
        raise SystemExit("AWS_ENDPOINT_URL is no loopback address: `make lab`, then `. .lab/env`")
    # A time limit from outside ends the run by SIGTERM: then, too, the cluster is taken away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    remove()
    try:
        began = time.monotonic()
        ids = build()
        print(f"{len(ids)} instances after {time.monotonic() - began:.0f} s", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            measure(ids, Path(folder))
    finally:
        remove()


if __name__ == "__main__":
    main()
