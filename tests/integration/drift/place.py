"""The cluster under test as AWS and Kubernetes show it: what drifts read and spoil."""

from __future__ import annotations

import functools
import json
import time
from typing import Any

import boto3

from ..support import cluster as kube
from ..support.aws_state import TAG

_LIMIT_S = 60
_PATCH = {"Content-Type": "application/merge-patch+json"}


@functools.cache
def client(service: str) -> Any:
    """One client a service: a session costs 0.1 s to make."""
    return boto3.client(service)


def tags(item: dict) -> dict[str, str]:
    return {t["Key"]: t["Value"] for t in item.get("Tags") or []}


class Place:
    """One cluster by its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ours = [{"Name": f"tag:{TAG}", "Values": [name]}]

    # -- AWS ------------------------------------------------------------------------------------

    def one(self, operation: str, member: str, **given: Any) -> dict[str, Any]:
        """The one object of ours that an EC2 describe call answers."""
        (found,) = self.some(operation, member, **given)
        return found

    def some(self, operation: str, member: str, **given: Any) -> list[dict[str, Any]]:
        filters = [*self.ours, *({"Name": k, "Values": v} for k, v in given.items())]
        return getattr(client("ec2"), operation)(Filters=filters)[member]

    @property
    def vpc(self) -> dict[str, Any]:
        return self.one("describe_vpcs", "Vpcs")

    def subnets(self, role: str) -> list[dict[str, Any]]:
        found = self.some(
            "describe_subnets", "Subnets", **{"tag-key": [f"kubernetes.io/role/{role}"]}
        )
        return sorted(found, key=lambda one: one["AvailabilityZone"])

    def table(self, end: str) -> dict[str, Any]:
        """The route table called <cluster>-<end>."""
        return self.one(
            "describe_route_tables", "RouteTables", **{"tag:Name": [f"{self.name}-{end}"]}
        )

    def default_route(self, end: str) -> str:
        routes = [
            one
            for one in self.table(end)["Routes"]
            if one.get("DestinationCidrBlock") == "0.0.0.0/0"
        ]
        return str(len(routes))

    def nats(self) -> list[dict[str, Any]]:
        return [
            one
            for one in self.some("describe_nat_gateways", "NatGateways")
            if one["State"] == "available"
        ]

    def s3(self) -> list[dict[str, Any]]:
        found = self.some("describe_vpc_endpoints", "VpcEndpoints")
        return [one for one in found if one["State"] == "available"]

    def key(self, purpose: str) -> str:
        """The ID of the key with this purpose that is not on its way out; by its Name tag."""
        kms = client("kms")
        for row in kms.list_keys()["Keys"]:
            found = kms.list_resource_tags(KeyId=row["KeyId"])["Tags"]
            names = {one["TagKey"]: one["TagValue"] for one in found}
            if names.get(TAG) == self.name and names.get("Name") == f"{self.name}-{purpose}":
                state = kms.describe_key(KeyId=row["KeyId"])["KeyMetadata"]["KeyState"]
                if state != "PendingDeletion":
                    return str(row["KeyId"])
        raise AssertionError(f"no key {purpose}")

    def cluster(self) -> dict[str, Any]:
        return client("eks").describe_cluster(name=self.name)["cluster"]

    def nodegroup(self, name: str) -> dict[str, Any]:
        return client("eks").describe_nodegroup(clusterName=self.name, nodegroupName=name)[
            "nodegroup"
        ]

    def settled(self, name: str | None = None) -> None:
        """Wait until the cluster, or one of its node groups, has no change under way."""
        deadline = time.monotonic() + _LIMIT_S
        while (self.nodegroup(name) if name else self.cluster())["status"] != "ACTIVE":
            assert time.monotonic() < deadline, "it does not settle"
            time.sleep(0.1)

    def role(self, end: str) -> str:
        """The name of our IAM role, as the roles name it."""
        return f"{self.name}-{boto3.Session().region_name}-{end}"

    def template(self, pool: str) -> dict[str, Any]:
        """The data of the newest version of a pool's launch template."""
        found = client("ec2").describe_launch_template_versions(
            LaunchTemplateName=f"{self.name}-{pool}", Versions=["$Latest"]
        )
        return found["LaunchTemplateVersions"][0]["LaunchTemplateData"]

    # -- Kubernetes -----------------------------------------------------------------------------

    def get(self, path: str) -> dict[str, Any]:
        """An object, {} where there is none."""
        answer = kube.request(self.name, "GET", path)
        assert answer.status_code in (200, 404), answer.text
        return answer.json() if answer.ok else {}

    def patch(self, path: str, body: dict[str, Any]) -> None:
        kube.request(
            self.name, "PATCH", path, data=json.dumps(body), headers=_PATCH
        ).raise_for_status()

    def delete(self, path: str) -> None:
        kube.request(self.name, "DELETE", path).raise_for_status()

    # -- what the parts take from each other ----------------------------------------------------

    def results(self) -> dict[str, Any]:
        """network_result and kms_result, as their roles publish them."""
        private = self.subnets("internal-elb")
        ids = [one["SubnetId"] for one in private]
        zones = [one["AvailabilityZone"] for one in private]
        arn = {
            purpose: client("kms").describe_key(KeyId=self.key(purpose))["KeyMetadata"]["Arn"]
            for purpose in ("secrets", "ebs")
        }
        return {
            "network_result": {
                "vpc_id": self.vpc["VpcId"],
                "vpc_cidr": self.vpc["CidrBlock"],
                "zones": zones,
                "private_subnet_ids": ids,
                "public_subnet_ids": [one["SubnetId"] for one in self.subnets("elb")],
                "subnets_by_zone": dict(zip(zones, ids, strict=True)),
                "security_group_ids": [],
            },
            "kms_result": {"secrets_key_arn": arn["secrets"], "ebs_key_arn": arn["ebs"]},
        }
