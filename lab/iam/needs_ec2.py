"""What EC2 authorizes a call on: what it makes, and what it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lab import LabError
from lab.iam.parameters import listed, tags_of, values
from lab.iam.policies import Need
from lab.iam.resources import Resources

# +kind: the call makes one; kind=Parameter: it works on these, where the call names them.
RESOURCES = {
    "AllocateAddress": "+elastic-ip",
    "AssociateRouteTable": "route-table=RouteTableId subnet=SubnetId internet-gateway=GatewayId",
    "AttachInternetGateway": "internet-gateway=InternetGatewayId vpc=VpcId",
    "AuthorizeSecurityGroupEgress": "security-group=GroupId",
    "AuthorizeSecurityGroupIngress": "security-group=GroupId",
    "CreateFlowLogs": "+vpc-flow-log vpc=ResourceId",
    "CreateInternetGateway": "+internet-gateway",
    "CreateLaunchTemplate": "+launch-template",
    "CreateLaunchTemplateVersion": "launch-template=LaunchTemplateId",
    "CreateNatGateway": "+natgateway subnet=SubnetId elastic-ip=AllocationId",
    "CreateRoute": "route-table=RouteTableId",
    "CreateRouteTable": "+route-table vpc=VpcId",
    "CreateSecurityGroup": "+security-group vpc=VpcId",
    "CreateSubnet": "+subnet vpc=VpcId",
    "CreateVpc": "+vpc",
    "CreateVpcEndpoint": (
        "+vpc-endpoint vpc=VpcId subnet=SubnetId security-group=SecurityGroupId"
        " route-table=RouteTableId"
    ),
    "DeleteFlowLogs": "vpc-flow-log=FlowLogId",
    "DeleteInternetGateway": "internet-gateway=InternetGatewayId",
    "DeleteLaunchTemplate": "launch-template=LaunchTemplateId",
    "DeleteLaunchTemplateVersions": "launch-template=LaunchTemplateId",
    "DeleteNatGateway": "natgateway=NatGatewayId",
    "DeleteNetworkInterface": "network-interface=NetworkInterfaceId",
    "DeleteRoute": "route-table=RouteTableId",
    "DeleteRouteTable": "route-table=RouteTableId",
    "DeleteSecurityGroup": "security-group=GroupId",
    "DeleteSnapshot": "snapshot=SnapshotId",
    "DeleteSubnet": "subnet=SubnetId",
    "DeleteVpc": "vpc=VpcId",
    "DeleteVpcEndpoints": "vpc-endpoint=VpcEndpointId",
    "DeregisterImage": "image=ImageId",
    "DeleteVolume": "volume=VolumeId",
    "DescribeVpcAttribute": "vpc=VpcId",
    "DetachInternetGateway": "internet-gateway=InternetGatewayId vpc=VpcId",
    "DisassociateRouteTable": "association=AssociationId",
    "ModifyLaunchTemplate": "launch-template=LaunchTemplateId",
    "ModifySubnetAttribute": "subnet=SubnetId",
    "ModifyVpcAttribute": "vpc=VpcId",
    "ModifyVpcEndpoint": (
        "vpc-endpoint=VpcEndpointId subnet=AddSubnetId subnet=RemoveSubnetId"
        " security-group=AddSecurityGroupId security-group=RemoveSecurityGroupId"
        " route-table=AddRouteTableId route-table=RemoveRouteTableId"
    ),
    "ReleaseAddress": "elastic-ip=AllocationId",
    "ReplaceRoute": "route-table=RouteTableId",
    "RevokeSecurityGroupEgress": "security-group=GroupId",
    "RevokeSecurityGroupIngress": "security-group=GroupId",
    "TerminateInstances": "instance=InstanceId",
    "UpdateSecurityGroupRuleDescriptionsIngress": "security-group=GroupId",
}
# What RunInstances makes beside the instance.
_LAUNCHED = ("instance", "volume", "network-interface")


def _of(kind: str, identity: str, at: Resources) -> dict[str, str]:
    tags = at.ec2_tags(identity)
    seen = {"ec2:Region": at.context.region}
    for key, value in tags.items():
        seen[f"aws:ResourceTag/{key}"] = seen[f"ec2:ResourceTag/{key}"] = value
    return seen


def _asked(tags: Mapping[str, str], at: Resources) -> dict[str, Any]:
    seen: dict[str, Any] = {f"aws:RequestTag/{key}": value for key, value in tags.items()}
    if tags:
        seen["aws:TagKeys"] = list(tags)
    return {**seen, "ec2:Region": at.context.region}


def needs(operation: str, params: Mapping[str, Any], at: Resources) -> Iterator[Need]:
    """The permissions that one call of EC2 wants."""
    if operation in ("CreateTags", "DeleteTags"):
        yield from _tagging(operation, params, at)
        return
    if operation not in RESOURCES:
        if not operation.startswith(("Describe", "Get")):
            raise LabError(f"the lab does not know the resources of ec2:{operation}")
        yield Need(f"ec2:{operation}", "*", {"ec2:Region": at.context.region})
        return
    by_kind: dict[str, dict[str, str]] = {}
    for row in listed(params, "TagSpecification"):
        by_kind[row["ResourceType"]] = tags_of(row, "Tag")
    for word in RESOURCES[operation].split():
        if word.startswith("+"):
            kind = word[1:]
            asked = _asked(by_kind.get(kind, {}), at)
            yield Need(f"ec2:{operation}", at.ec2(kind, "*"), asked)
            if by_kind.get(kind):
                asked = {**asked, "ec2:CreateAction": operation}
                yield Need("ec2:CreateTags", at.ec2(kind, "*"), asked)
            continue
        for kind, identity in _named(word, params, at):
            yield Need(f"ec2:{operation}", at.ec2(kind, identity), _of(kind, identity, at))
    if operation == "CreateVpcEndpoint":
        yield from _endpoint(params, at)
    if operation == "CreateFlowLogs" and "DeliverLogsPermissionArn" in params:
        to = {"iam:PassedToService": "vpc-flow-logs.amazonaws.com"}
        yield Need("iam:PassRole", params["DeliverLogsPermissionArn"], to)


def _named(word: str, params: Mapping[str, Any], at: Resources) -> Iterator[tuple[str, str]]:
    kind, _, parameter = word.partition("=")
    given = values(params, parameter)
    if parameter == "LaunchTemplateId" and not given and "LaunchTemplateName" in params:
        template = at.template({"name": params["LaunchTemplateName"]})
        given = [template.id if template else "*"]
    if kind == "association":
        for one in given:
            yield from at.route_tables_of(one)
        return
    for one in given:
        # A route's gateway may be one of several kinds.
        if parameter != "GatewayId" or one.startswith("igw-"):
            yield kind, one


def _tagging(operation: str, params: Mapping[str, Any], at: Resources) -> Iterator[Need]:
    tags = tags_of(params, "Tag")
    for identity in values(params, "ResourceId"):
        kind = at.ec2_kind(identity)
        seen = {**_of(kind, identity, at), "aws:TagKeys": list(tags)}
        if operation == "CreateTags":
            seen |= _asked(tags, at)
        yield Need(f"ec2:{operation}", at.ec2(kind, identity), seen)


def _endpoint(params: Mapping[str, Any], at: Resources) -> Iterator[Need]:
    """EC2 reads the network with the caller's rights, and joins the VPC to the service's zone."""
    yield Need("ec2:DescribeVpcs")
    if values(params, "SubnetId"):
        yield Need("ec2:DescribeSubnets")
        yield Need("ec2:DescribeSecurityGroups")
    interface = params.get("VpcEndpointType") == "Interface"
    if interface and params.get("PrivateDnsEnabled", "true") == "true":
        zones = at.arn("route53", "hostedzone/*", region=False, account=False)
        yield Need("route53:AssociateVPCWithHostedZone", zones)


def launch(given: Mapping[str, str], subnets: list[str], at: Resources) -> Iterator[Need]:
    """RunInstances from a launch template, as EKS tries it with the caller's rights."""
    template = at.template(given)
    if template is None:
        return
    data = template.get_version(given.get("version") or "$Default").data
    named = [("launch-template", template.id), *(("subnet", one) for one in subnets)]
    if data.get("ImageId"):
        named.append(("image", data["ImageId"]))
    named += [("security-group", one) for one in data.get("SecurityGroupIds", [])]
    for kind, identity in named:
        yield Need("ec2:RunInstances", at.ec2(kind, identity), _of(kind, identity, at))
    by_kind: dict[str, dict[str, str]] = {}
    for row in data.get("TagSpecifications", []):
        by_kind[row["ResourceType"]] = {t["Key"]: t["Value"] for t in row["Tags"]}
    for kind in _LAUNCHED:
        asked = _asked(by_kind.get(kind, {}), at)
        asked["ec2:LaunchTemplate"] = at.ec2("launch-template", template.id)
        yield Need("ec2:RunInstances", at.ec2(kind, "*"), asked)
        if by_kind.get(kind):
            tagging = {**asked, "ec2:CreateAction": "RunInstances"}
            yield Need("ec2:CreateTags", at.ec2(kind, "*"), tagging)
