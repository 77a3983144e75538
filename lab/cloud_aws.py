"""What the cloud controller manager and the EBS CSI driver make in AWS, as they name and tag it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from lab.aws.eks_state import Cluster

_TYPE = "service.beta.kubernetes.io/aws-load-balancer-type"
_INTERNAL = "service.beta.kubernetes.io/aws-load-balancer-internal"
# A load balancer's name is the Service's UID, cut at this length.
_NAME_LENGTH = 32
_GIB = {"Gi": 1, "Ti": 1024}


def _tag_list(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


class Balancers:
    """Load balancers of the Services of one cluster."""

    def __init__(self, cluster: Cluster, aws: Callable[[str, str], Any]) -> None:
        region, self._vpc = cluster.region, cluster.record["resourcesVpcConfig"]
        self._owned = {f"kubernetes.io/cluster/{cluster.name}": "owned"}
        self._ec2 = aws("ec2", region)
        self._classic, self._v2 = aws("elb", region), aws("elbv2", region)

    def make(self, service: dict[str, Any]) -> str:
        """The load balancer's DNS name; it is made where it is missing."""
        meta = service["metadata"]
        tags = {
            **self._owned,
            "kubernetes.io/service-name": f"{meta['namespace']}/{meta['name']}",
        }
        if _network(service):
            return self._network(service, tags)
        return self._classic_one(service, tags)

    def _subnets(self, service: dict[str, Any]) -> list[str]:
        internal = (service["metadata"].get("annotations") or {}).get(_INTERNAL) == "true"
        role = "internal-elb" if internal else "elb"
        found = self._ec2.describe_subnets(
            Filters=[
                {"Name": "vpc-id", "Values": [self._vpc["vpcId"]]},
                {"Name": "tag-key", "Values": [f"kubernetes.io/role/{role}"]},
            ]
        )["Subnets"]
        return sorted(one["SubnetId"] for one in found) or self._vpc["subnetIds"]

    def _scheme(self, service: dict[str, Any]) -> str:
        internal = (service["metadata"].get("annotations") or {}).get(_INTERNAL) == "true"
        return "internal" if internal else "internet-facing"

    def _classic_one(self, service: dict[str, Any], tags: dict[str, str]) -> str:
        name = _name(service)
        if (there := self._find_classic(name)) is not None:
            return there["DNSName"]
        group = self._group(name) or self._make_group(name, tags)
        more = {"Scheme": "internal"} if self._scheme(service) == "internal" else {}
        return self._classic.create_load_balancer(
            LoadBalancerName=name,
            Listeners=[
                {
                    "Protocol": "TCP",
                    "LoadBalancerPort": port["port"],
                    "InstanceProtocol": "TCP",
                    "InstancePort": port.get("nodePort") or port["port"],
                }
                for port in service["spec"]["ports"]
            ],
            Subnets=self._subnets(service),
            SecurityGroups=[group],
            Tags=_tag_list(tags),
            **more,
        )["DNSName"]

    def _find_classic(self, name: str) -> dict[str, Any] | None:
        found = self._classic.describe_load_balancers()["LoadBalancerDescriptions"]
        return next((one for one in found if one["LoadBalancerName"] == name), None)

    def _group(self, name: str) -> str | None:
        found = self._ec2.describe_security_groups(
            Filters=[
                {"Name": "vpc-id", "Values": [self._vpc["vpcId"]]},
                {"Name": "group-name", "Values": [f"k8s-elb-{name}"]},
            ]
        )["SecurityGroups"]
        return found[0]["GroupId"] if found else None

    def _make_group(self, name: str, tags: dict[str, str]) -> str:
        """The load balancer's own group, let into the nodes' by a rule of theirs."""
        group = self._ec2.create_security_group(
            GroupName=f"k8s-elb-{name}",
            Description=f"Security group for Kubernetes ELB {name}",
            VpcId=self._vpc["vpcId"],
            TagSpecifications=[{"ResourceType": "security-group", "Tags": _tag_list(tags)}],
        )["GroupId"]
        self._ec2.authorize_security_group_ingress(
            GroupId=self._vpc["clusterSecurityGroupId"], IpPermissions=_from(group)
        )
        return str(group)

    def _network(self, service: dict[str, Any], tags: dict[str, str]) -> str:
        name = _name(service)
        if (there := self._find_network(name)) is not None:
            return there["DNSName"]
        made = self._v2.create_load_balancer(
            Name=name,
            Type="network",
            Scheme=self._scheme(service),
            Subnets=self._subnets(service),
            Tags=_tag_list(tags),
        )["LoadBalancers"][0]
        for port in service["spec"]["ports"]:
            target = self._v2.create_target_group(
                Name=f"k8s-{name[:20]}-{port['port']}",
                Protocol="TCP",
                Port=port.get("nodePort") or port["port"],
                VpcId=self._vpc["vpcId"],
                TargetType="instance",
                Tags=_tag_list(tags),
            )["TargetGroups"][0]["TargetGroupArn"]
            self._v2.create_listener(
                LoadBalancerArn=made["LoadBalancerArn"],
                Protocol="TCP",
                Port=port["port"],
                DefaultActions=[{"Type": "forward", "TargetGroupArn": target}],
            )
        return made["DNSName"]

    def _find_network(self, name: str) -> dict[str, Any] | None:
        found = self._v2.describe_load_balancers()["LoadBalancers"]
        return next((one for one in found if one["LoadBalancerName"] == name), None)

    def remove(self, service: dict[str, Any]) -> bool:
        """Delete the load balancer and what belongs to it; False while something still holds on."""
        name = _name(service)
        if (there := self._find_network(name)) is not None:
            arn = there["LoadBalancerArn"]
            groups = self._v2.describe_target_groups(LoadBalancerArn=arn)["TargetGroups"]
            self._v2.delete_load_balancer(LoadBalancerArn=arn)
            for group in groups:
                self._v2.delete_target_group(TargetGroupArn=group["TargetGroupArn"])
        if self._find_classic(name) is not None:
            self._classic.delete_load_balancer(LoadBalancerName=name)
        group = self._group(name)
        if group is None:
            return True
        try:
            self._ec2.revoke_security_group_ingress(
                GroupId=self._vpc["clusterSecurityGroupId"], IpPermissions=_from(group)
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "InvalidPermission.NotFound":
                raise
        try:
            self._ec2.delete_security_group(GroupId=group)
        except ClientError as error:
            if error.response["Error"]["Code"] != "DependencyViolation":
                raise
            return False
        return True


class Volumes:
    """EBS volumes of the claims of one cluster."""

    def __init__(self, cluster: Cluster, aws: Callable[[str, str], Any]) -> None:
        self._cluster, self._ec2 = cluster, aws("ec2", cluster.region)

    def make(self, claim: dict[str, Any], parameters: dict[str, str], zone: str | None) -> str:
        """The volume of a claim; it is made where it is missing."""
        meta = claim["metadata"]
        name = f"pvc-{meta['uid']}"
        found = self._ec2.describe_volumes(
            Filters=[{"Name": "tag:CSIVolumeName", "Values": [name]}]
        )["Volumes"]
        if found:
            return found[0]["VolumeId"]
        if zone is None:
            subnet = self._cluster.record["resourcesVpcConfig"]["subnetIds"][0]
            row = self._ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]
            zone = row["AvailabilityZone"]
        tags = {
            "CSIVolumeName": name,
            "ebs.csi.aws.com/cluster": "true",
            f"kubernetes.io/cluster/{self._cluster.name}": "owned",
            "kubernetes.io/created-for/pvc/name": meta["name"],
            "kubernetes.io/created-for/pvc/namespace": meta["namespace"],
            "kubernetes.io/created-for/pv/name": name,
        }
        return self._ec2.create_volume(
            AvailabilityZone=zone,
            Size=_gib(claim["spec"]["resources"]["requests"]["storage"]),
            VolumeType=parameters.get("type", "gp3"),
            Encrypted=parameters.get("encrypted") == "true",
            TagSpecifications=[{"ResourceType": "volume", "Tags": _tag_list(tags)}],
        )["VolumeId"]

    def remove(self, volume_id: str) -> None:
        try:
            self._ec2.delete_volume(VolumeId=volume_id)
        except ClientError as error:
            if error.response["Error"]["Code"] != "InvalidVolume.NotFound":
                raise


def _network(service: dict[str, Any]) -> bool:
    return (service["metadata"].get("annotations") or {}).get(_TYPE) == "nlb"


def _name(service: dict[str, Any]) -> str:
    return ("a" + service["metadata"]["uid"].replace("-", ""))[:_NAME_LENGTH]


def _from(group: str) -> list[dict[str, Any]]:
    return [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]


def _gib(quantity: str) -> int:
    """Whole GiB of a size such as 4Gi; other units are refused, as nobody needs them here."""
    return int(quantity[:-2]) * _GIB[quantity[-2:]]
