"""A VPC of somebody else: two zones, private subnets with a way out by one NAT gateway."""

from __future__ import annotations

import ipaddress
from typing import Any

import boto3


def make(cidr: str = "10.70.0.0/16") -> str:
    """Its ID. The private subnets are /19, the public ones /24."""
    ec2 = boto3.client("ec2")
    vpc = ec2.create_vpc(CidrBlock=cidr)["Vpc"]["VpcId"]
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})
    zones = [one["ZoneName"] for one in ec2.describe_availability_zones()["AvailabilityZones"]][:2]
    block = ipaddress.ip_network(cidr)
    private = [
        _subnet(ec2, vpc, zone, part)
        for zone, part in zip(zones, block.subnets(new_prefix=19), strict=False)
    ]
    public = [
        _subnet(ec2, vpc, zone, part)
        for zone, part in zip(zones, reversed(list(block.subnets(new_prefix=24))), strict=False)
    ]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    nat = ec2.create_nat_gateway(SubnetId=public[0], AllocationId=address)["NatGateway"]
    ec2.get_waiter("nat_gateway_available").wait(
        NatGatewayIds=[nat["NatGatewayId"]], WaiterConfig={"Delay": 1, "MaxAttempts": 60}
    )
    _routes(ec2, vpc, public, {"GatewayId": gateway})
    _routes(ec2, vpc, private, {"NatGatewayId": nat["NatGatewayId"]})
    return vpc


def _subnet(ec2: Any, vpc: str, zone: str, block: Any) -> str:
    made = ec2.create_subnet(VpcId=vpc, AvailabilityZone=zone, CidrBlock=str(block))
    return made["Subnet"]["SubnetId"]


def _routes(ec2: Any, vpc: str, subnets: list[str], target: dict[str, str]) -> None:
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", **target)
    for subnet in subnets:
        ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)
