"""Attributes of AWS objects: how each is read, and how somebody changes it behind our back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .place import Place, client, tags

_ELSE = "changed-behind-our-back"
_SSM_POLICY, _CNI_POLICY = "ssm-agent", "arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy"
_CLUSTER_POLICY = "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"


@dataclass(frozen=True)
class Drift:
    """One attribute: its part of site.yml, what tells it, who changes it, what --check names."""

    part: str
    read: Callable[[Place], Any]
    spoil: Callable[[Place], Any]
    seen: str
    """A regular expression for the changed task, its item and its diff."""


def _retag(resource: str, key: str) -> None:
    client("ec2").create_tags(Resources=[resource], Tags=[{"Key": key, "Value": _ELSE}])


def _log_group(place: Place) -> dict[str, Any]:
    name = f"/aws/eks/{place.name}/cluster"
    return client("logs").describe_log_groups(logGroupNamePrefix=name)["logGroups"][0]


def _policy(place: Place, purpose: str) -> Any:
    return json.loads(
        client("kms").get_key_policy(KeyId=place.key(purpose), PolicyName="default")["Policy"]
    )


def _open_policy(place: Place, purpose: str) -> None:
    policy = _policy(place, purpose)
    policy["Statement"] = policy["Statement"][:1]
    client("kms").put_key_policy(
        KeyId=place.key(purpose), PolicyName="default", Policy=json.dumps(policy)
    )


def _aliases(place: Place, purpose: str) -> list[str]:
    found = client("kms").list_aliases(KeyId=place.key(purpose))["Aliases"]
    return [one["AliasName"] for one in found]


def _associated(place: Place) -> int:
    return sum("SubnetId" in one for one in place.table("private")["Associations"])


def _vpc_dns(place: Place) -> bool:
    given = {"VpcId": place.vpc["VpcId"], "Attribute": "enableDnsHostnames"}
    return client("ec2").describe_vpc_attribute(**given)["EnableDnsHostnames"]["Value"]


def _no_route(place: Place, end: str) -> None:
    table = place.table(end)["RouteTableId"]
    client("ec2").delete_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0")


def _no_association(place: Place) -> None:
    rows = [one for one in place.table("private")["Associations"] if "SubnetId" in one]
    client("ec2").disassociate_route_table(AssociationId=rows[0]["RouteTableAssociationId"])


def _cluster_config(place: Place, **given: Any) -> None:
    client("eks").update_cluster_config(name=place.name, **given)
    place.settled()


def _group_config(place: Place, **given: Any) -> None:
    client("eks").update_nodegroup_config(
        clusterName=place.name, nodegroupName="exclusive", **given
    )
    place.settled("exclusive")


def _role_tags(place: Place, end: str) -> dict[str, str]:
    found = client("iam").list_role_tags(RoleName=place.role(end))["Tags"]
    return {one["Key"]: one["Value"] for one in found}


def _attached(place: Place, end: str) -> list[str]:
    found = client("iam").list_attached_role_policies(RoleName=place.role(end))
    return sorted(one["PolicyName"] for one in found["AttachedPolicies"])


def _trust(place: Place, end: str) -> Any:
    return client("iam").get_role(RoleName=place.role(end))["Role"]["AssumeRolePolicyDocument"]


def _distrust(place: Place, end: str) -> None:
    trust = _trust(place, end)
    trust["Statement"][0]["Principal"] = {"Service": "lambda.amazonaws.com"}
    client("iam").update_assume_role_policy(
        RoleName=place.role(end), PolicyDocument=json.dumps(trust)
    )


def _weak_template(place: Place) -> None:
    client("ec2").create_launch_template_version(
        LaunchTemplateName=f"{place.name}-exclusive",
        SourceVersion="$Latest",
        LaunchTemplateData={"MetadataOptions": {"HttpTokens": "optional"}},
    )


def _addon_gone(place: Place) -> None:
    client("eks").delete_addon(clusterName=place.name, addonName="metrics-server")
    while "metrics-server" in client("eks").list_addons(clusterName=place.name)["addons"]:
        pass


NETWORK = {
    "VPC: DNS host names": Drift(
        "network",
        _vpc_dns,
        lambda p: client("ec2").modify_vpc_attribute(
            VpcId=p.vpc["VpcId"], EnableDnsHostnames={"Value": False}
        ),
        "Create the VPC",
    ),
    "VPC: tag": Drift(
        "network",
        lambda p: tags(p.vpc)["Name"],
        lambda p: _retag(p.vpc["VpcId"], "Name"),
        "Create the VPC",
    ),
    "subnet: tag for Karpenter": Drift(
        "network",
        lambda p: tags(p.subnets("internal-elb")[0])["karpenter.sh/discovery"],
        lambda p: _retag(p.subnets("internal-elb")[0]["SubnetId"], "karpenter.sh/discovery"),
        "private subnets",
    ),
    "subnet: public addresses": Drift(
        "network",
        lambda p: p.subnets("elb")[0]["MapPublicIpOnLaunch"],
        lambda p: client("ec2").modify_subnet_attribute(
            SubnetId=p.subnets("elb")[0]["SubnetId"], MapPublicIpOnLaunch={"Value": True}
        ),
        "public subnets",
    ),
    "route table: default route to NAT": Drift(
        "network",
        lambda p: p.default_route("private"),
        lambda p: _no_route(p, "private"),
        "Route the private subnets",
    ),
    "route table: default route to the internet": Drift(
        "network",
        lambda p: p.default_route("public"),
        lambda p: _no_route(p, "public"),
        "Route the public subnets",
    ),
    "route table: association": Drift(
        "network", _associated, _no_association, "Route the private subnets"
    ),
    "internet gateway: tag": Drift(
        "network",
        lambda p: tags(p.one("describe_internet_gateways", "InternetGateways"))["Name"],
        lambda p: _retag(
            p.one("describe_internet_gateways", "InternetGateways")["InternetGatewayId"], "Name"
        ),
        "Create the internet gateway",
    ),
    "endpoint of S3: tag": Drift(
        "network",
        lambda p: tags(p.s3()[0])["Name"],
        lambda p: _retag(p.s3()[0]["VpcEndpointId"], "Name"),
        "Tag the endpoints",
    ),
    "NAT gateway: gone": Drift(
        "network",
        lambda p: len(p.nats()),
        lambda p: client("ec2").delete_nat_gateway(NatGatewayId=p.nats()[0]["NatGatewayId"]),
        "missing NAT gateways",
    ),
}

KMS = {
    "key: rotation": Drift(
        "kms",
        lambda p: client("kms").get_key_rotation_status(KeyId=p.key("ebs"))["KeyRotationEnabled"],
        lambda p: client("kms").disable_key_rotation(KeyId=p.key("ebs")),
        "Create the keys",
    ),
    "key: alias": Drift(
        "kms",
        lambda p: _aliases(p, "secrets"),
        lambda p: client("kms").delete_alias(AliasName=f"alias/{p.name}-secrets"),
        "Create the keys",
    ),
    "key: policy": Drift(
        "kms", lambda p: _policy(p, "ebs"), lambda p: _open_policy(p, "ebs"), "Create the keys"
    ),
    "key: description": Drift(
        "kms",
        lambda p: client("kms").describe_key(KeyId=p.key("ebs"))["KeyMetadata"]["Description"],
        lambda p: client("kms").update_key_description(KeyId=p.key("ebs"), Description=_ELSE),
        "Create the keys",
    ),
    "key: switched off": Drift(
        "kms",
        lambda p: client("kms").describe_key(KeyId=p.key("secrets"))["KeyMetadata"]["KeyState"],
        lambda p: client("kms").disable_key(KeyId=p.key("secrets")),
        "Create the keys",
    ),
}

EKS = {
    "cluster: logs": Drift(
        "eks",
        lambda p: p.cluster()["logging"],
        lambda p: _cluster_config(
            p, logging={"clusterLogging": [{"types": ["audit"], "enabled": False}]}
        ),
        "(?s)Create the cluster.*audit",
    ),
    "cluster: public endpoint": Drift(
        "eks",
        lambda p: p.cluster()["resourcesVpcConfig"]["endpointPublicAccess"],
        lambda p: _cluster_config(p, resourcesVpcConfig={"endpointPublicAccess": True}),
        "(?s)Create the cluster.*endpoint_public_access",
    ),
    "cluster: tag": Drift(
        "eks",
        lambda p: p.cluster()["tags"],
        lambda p: client("eks").tag_resource(resourceArn=p.cluster()["arn"], tags={"team": _ELSE}),
        f"(?s)Create the cluster.*{_ELSE}",
    ),
    "cluster: deletion protection": Drift(
        "eks",
        lambda p: p.cluster()["deletionProtection"],
        lambda p: _cluster_config(p, deletionProtection=True),
        "(?s)Create the cluster.*deletion_protection",
    ),
    "cluster: support": Drift(
        "eks",
        lambda p: p.cluster()["upgradePolicy"],
        lambda p: _cluster_config(p, upgradePolicy={"supportType": "EXTENDED"}),
        "(?s)Create the cluster.*support_type",
    ),
    "role of the control plane: trust": Drift(
        "eks",
        lambda p: _trust(p, "cluster"),
        lambda p: _distrust(p, "cluster"),
        "Create the role of the control plane",
    ),
    "role of the control plane: policy": Drift(
        "eks",
        lambda p: _attached(p, "cluster"),
        lambda p: client("iam").detach_role_policy(
            RoleName=p.role("cluster"), PolicyArn=_CLUSTER_POLICY
        ),
        "Create the role of the control plane",
    ),
    "role of the control plane: tag": Drift(
        "eks",
        lambda p: _role_tags(p, "cluster"),
        lambda p: client("iam").tag_role(
            RoleName=p.role("cluster"), Tags=[{"Key": "team", "Value": _ELSE}]
        ),
        "Create the role of the control plane",
    ),
    "log group: retention": Drift(
        "eks",
        lambda p: _log_group(p)["retentionInDays"],
        lambda p: client("logs").put_retention_policy(
            logGroupName=_log_group(p)["logGroupName"], retentionInDays=1
        ),
        "Create the log group",
    ),
    "add-on: gone": Drift(
        "addons",
        lambda p: "metrics-server" in client("eks").list_addons(clusterName=p.name)["addons"],
        _addon_gone,
        "(?s)Install the add-ons.*metrics-server",
    ),
}

NODES = {
    "node role: inline policy": Drift(
        "gpu_nodes",
        lambda p: client("iam").list_role_policies(RoleName=p.role("node"))["PolicyNames"],
        lambda p: client("iam").delete_role_policy(RoleName=p.role("node"), PolicyName=_SSM_POLICY),
        "Let SSM Agent work",
    ),
    "node role: managed policy": Drift(
        "gpu_nodes",
        lambda p: _attached(p, "node"),
        lambda p: client("iam").detach_role_policy(RoleName=p.role("node"), PolicyArn=_CNI_POLICY),
        "Create the node role",
    ),
    "launch template: metadata options": Drift(
        "gpu_nodes",
        lambda p: p.template("exclusive")["MetadataOptions"]["HttpTokens"],
        _weak_template,
        "Create a launch template",
    ),
    "node group: labels": Drift(
        "gpu_nodes",
        lambda p: p.nodegroup("exclusive")["labels"],
        lambda p: _group_config(p, labels={"addOrUpdateLabels": {"gpushare.eks/pool": _ELSE}}),
        f"(?s)Create the node groups.*{_ELSE}",
    ),
    "node group: taints": Drift(
        "gpu_nodes",
        lambda p: p.nodegroup("exclusive")["taints"],
        lambda p: _group_config(p, taints={"removeTaints": p.nodegroup("exclusive")["taints"][:1]}),
        "(?s)Create the node groups.*taints",
    ),
    "node group: size": Drift(
        "gpu_nodes",
        lambda p: p.nodegroup("exclusive")["scalingConfig"]["maxSize"],
        lambda p: _group_config(p, scalingConfig={"maxSize": 7}),
        "(?s)Create the node groups.*max_size",
    ),
    "node group: tag": Drift(
        "gpu_nodes",
        lambda p: p.nodegroup("exclusive")["tags"],
        lambda p: client("eks").tag_resource(
            resourceArn=p.nodegroup("exclusive")["nodegroupArn"], tags={"team": _ELSE}
        ),
        f"(?s)Create the node groups.*{_ELSE}",
    ),
}
