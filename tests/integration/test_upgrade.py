"""The role eks takes a real cluster from 1.34 over 1.35 to 1.36, and keeps what is in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import boto3
import pytest

from .support import cluster, playbook

NAME = "it-upgrade"
PLAY = "tests/integration/support/upgrade.yml"
MAPS = "/api/v1/namespaces/default/configmaps"
Go = Callable[..., playbook.Run]


@pytest.fixture
def go() -> Iterator[Go]:
    """go(version, ...) runs the role on a network of its own; at the end nothing is left."""
    ec2, eks, iam = (boto3.client(service) for service in ("ec2", "eks", "iam"))
    vpc = ec2.create_vpc(CidrBlock="10.77.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(
            VpcId=vpc, CidrBlock=f"10.77.{number}.0/24", AvailabilityZone=f"us-east-1{zone}"
        )["Subnet"]["SubnetId"]
        for number, zone in enumerate("ab")
    ]

    def run(version: str, *more: str, **extra: str) -> playbook.Run:
        names = {"gpushare_cluster_name": NAME, "upgrade_subnets": ",".join(subnets)}
        return playbook.run(PLAY, *more, extra_vars={**names, "eks_version": version, **extra})

    yield run
    if NAME in eks.list_clusters()["clusters"]:
        eks.delete_cluster(name=NAME)
        eks.get_waiter("cluster_deleted").wait(
            name=NAME, WaiterConfig={"Delay": 1, "MaxAttempts": 60}
        )
    role = f"{NAME}-us-east-1-cluster"
    for policy in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
        iam.detach_role_policy(RoleName=role, PolicyArn=policy["PolicyArn"])
    iam.delete_role(RoleName=role)
    for subnet in subnets:
        ec2.delete_subnet(SubnetId=subnet)
    ec2.delete_vpc(VpcId=vpc)


def served() -> str:
    """The minor version that the API server itself says it serves."""
    version = cluster.request(NAME, "GET", "/version").json()
    return f"1.{version.get('emulationMinor', version['minor'])}"


def test_one_minor_version_a_run_with_everything_kept(go: Go) -> None:
    made = go("1.34")
    assert made.rc == 0, made
    assert served() == "1.34"
    kept = {"metadata": {"name": "kept"}, "data": {"a": "b"}}
    answer = cluster.request(NAME, "POST", MAPS, json=kept)
    answer.raise_for_status()
    uid = answer.json()["metadata"]["uid"]

    skipped = go("1.36", "--check")
    assert skipped.rc != 0
    assert "possible are 1.34 (as it is) and 1.35" in skipped.output

    for version in ("1.35", "1.36"):
        done = go(version, "--diff")
        assert done.rc == 0, done
        assert re.search(rf"^\+ +\"?version\"?: ['\"]{version}['\"]", done.output, re.MULTILINE), (
            done
        )
        assert boto3.client("eks").describe_cluster(name=NAME)["cluster"]["version"] == version
        assert served() == version
        found = cluster.request(NAME, "GET", f"{MAPS}/kept").json()
        assert (found["metadata"]["uid"], found["data"]) == (uid, {"a": "b"})
    again = go("1.36")
    assert (again.rc, again.recap["changed"]) == (0, 0), again
