# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pure: whether a VPC that somebody else made can take the cluster; all findings at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._cidr import REFUSED_BY_EKS
from ansible_collections.gpushare.eks.plugins.module_utils._endpoints import GOOD, short_name

# EKS puts network interfaces of the control plane into the subnets and wants this many addresses
# free in each (https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html).
FREE_FOR_EKS = 6
ANYWHERE = "0.0.0.0/0"


class ExistingNetworkError(ValueError):
    """A network that cannot take the cluster; the message lists every finding with its remedy."""


def existing_network(
    vpcs: Sequence[Mapping[str, Any]],
    subnets: Sequence[Mapping[str, Any]],
    route_tables: Sequence[Mapping[str, Any]],
    endpoints: Sequence[Mapping[str, Any]],
    *,
    pools: Sequence[Mapping[str, Any]],
    offerings: Mapping[str, Sequence[str]],
    services: Sequence[str],
    s3: str,
    subnet_ids: Sequence[str] = (),
) -> dict[str, Any]:
    """What the role network publishes of a VPC that is there.

    Nodes live in the subnets that are named, or in all that have no route to an internet gateway.

    :param vpcs: the VPC in a list, or nothing where it was not found.
    :param subnets: all subnets of the VPC; route_tables and endpoints as well, as the info modules
        of amazon.aws return them.
    :param services: endpoint services that nodes without a way out need; s3: that of S3.
    :param subnet_ids: the nodes' subnets; empty takes the private ones.
    :raises ExistingNetworkError: with all findings.
    """
    if not vpcs:
        raise ExistingNetworkError(
            "the VPC, or the VPC of the subnets, is not in this region and account: correct"
            " network_vpc_id and network_subnet_ids"
        )
    vpc = vpcs[0]
    routes = {subnet["subnet_id"]: _table(subnet["subnet_id"], route_tables) for subnet in subnets}
    public = [one for one in subnets if _way_out(routes[one["subnet_id"]])[0] == "internet"]
    chosen = [
        subnet
        for subnet in subnets
        if (subnet["subnet_id"] in subnet_ids if subnet_ids else subnet not in public)
    ]
    findings = [
        *_of_vpc(vpc),
        *_of_subnets(vpc, chosen, subnet_ids),
        *_of_pools(chosen, pools, offerings),
    ]
    for subnet in chosen:
        table = routes[subnet["subnet_id"]]
        findings += _of_routes(subnet, table, endpoints, services, s3)
    if findings:
        raise ExistingNetworkError(
            f"VPC {vpc['vpc_id']} cannot take the cluster: "
            + " ".join(f"({number}) {found}." for number, found in enumerate(findings, 1))
        )
    roomiest = sorted(chosen, key=lambda subnet: subnet["available_ip_address_count"])
    by_zone = {subnet["availability_zone"]: subnet["subnet_id"] for subnet in roomiest}
    return {
        "vpc_id": vpc["vpc_id"],
        "vpc_cidr": vpc["cidr_block"],
        "zones": sorted(by_zone),
        "private_subnet_ids": sorted(subnet["subnet_id"] for subnet in chosen),
        "public_subnet_ids": sorted(one["subnet_id"] for one in public if one not in chosen),
        "subnets_by_zone": {zone: by_zone[zone] for zone in sorted(by_zone)},
        "security_group_ids": [],
    }


def _of_vpc(vpc: Mapping[str, Any]) -> Iterator[str]:
    for attribute in ("enable_dns_support", "enable_dns_hostnames"):
        if not vpc[attribute]:
            yield (
                f"{attribute} is off, so nodes do not find the API server: switch it on with"
                " aws ec2 modify-vpc-attribute"
            )


def _of_subnets(
    vpc: Mapping[str, Any], chosen: Sequence[Mapping[str, Any]], subnet_ids: Sequence[str]
) -> Iterator[str]:
    lost = sorted(set(subnet_ids) - {subnet["subnet_id"] for subnet in chosen})
    if lost:
        yield f"{', '.join(lost)} not in {vpc['vpc_id']}: name subnets of one VPC"
    zones = sorted({subnet["availability_zone"] for subnet in chosen})
    if len(zones) < 2:
        yield (
            f"its {'named' if subnet_ids else 'private'} subnets lie in"
            f" {', '.join(zones) or 'no zone'}, EKS needs two zones: add a subnet, or name others"
            " in network_subnet_ids"
        )
    for subnet in chosen:
        if subnet["availability_zone_id"] in REFUSED_BY_EKS:
            yield (
                f"{subnet['subnet_id']} lies in {subnet['availability_zone_id']}, where EKS places"
                " no control plane: leave it out of network_subnet_ids"
            )
        if subnet["available_ip_address_count"] < FREE_FOR_EKS:
            yield (
                f"{subnet['subnet_id']} has {subnet['available_ip_address_count']} free addresses,"
                f" EKS wants {FREE_FOR_EKS}: free some, or leave it out of network_subnet_ids"
            )


def _of_pools(
    chosen: Sequence[Mapping[str, Any]],
    pools: Sequence[Mapping[str, Any]],
    offerings: Mapping[str, Sequence[str]],
) -> Iterator[str]:
    free = sum(subnet["available_ip_address_count"] for subnet in chosen)
    needed = sum(pool["max_size"] * pool["max_pods"] for pool in pools)
    if free < needed:
        yield (
            f"its subnets have {free} free addresses, the pools may need {needed}: add subnets, or"
            " lower max_size"
        )
    zones = {subnet["availability_zone"] for subnet in chosen}
    for pool in pools:
        offered = {zone for kind in pool["instance_types"] for zone in offerings.get(kind, ())}
        if zones.isdisjoint(offered):
            yield (
                f"pool {pool['name']}: {', '.join(pool['instance_types'])} is offered in"
                f" {', '.join(sorted(offered)) or 'no zone'}, not in"
                f" {', '.join(sorted(zones)) or 'any of its subnets'}: add a subnet there, or name"
                " other instance types"
            )


def _of_routes(
    subnet: Mapping[str, Any],
    table: Mapping[str, Any],
    endpoints: Sequence[Mapping[str, Any]],
    services: Sequence[str],
    s3: str,
) -> Iterator[str]:
    kind, target = _way_out(table)
    name, table_id = subnet["subnet_id"], table.get("id", "no route table")
    if kind == "internet" and not subnet["map_public_ip_on_launch"]:
        yield (
            f"{name} routes to internet gateway {target}, but its nodes get no public address:"
            " name private subnets in network_subnet_ids"
        )
    elif kind == "blackhole":
        yield (
            f"{name}: the default route in {table_id} leads to {target}, which is gone: route"
            " 0.0.0.0/0 to a NAT gateway"
        )
    elif kind == "none":
        lacking = [one for one in services if not _serves(endpoints, one)]
        if not _serves(endpoints, s3) and not _serves(endpoints, s3, table_id):
            lacking.append(s3)
        if lacking:
            yield (
                f"{name} has no default route in {table_id} and no endpoint with private DNS for"
                f" {', '.join(short_name(one) for one in lacking)}: route 0.0.0.0/0 to a NAT"
                " gateway, or make the endpoints"
            )


def _serves(endpoints: Sequence[Mapping[str, Any]], service: str, table_id: str = "") -> bool:
    """By private DNS, or, for a gateway endpoint, in that route table."""
    for endpoint in endpoints:
        if endpoint["service_name"] == service and endpoint["state"].lower() in GOOD:
            if table_id in endpoint.get("route_table_ids", ()):
                return True
            if not table_id and endpoint.get("private_dns_enabled"):
                return endpoint["vpc_endpoint_type"] == "Interface"
    return False


def _table(subnet_id: str, route_tables: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The subnet's own route table, or else the main one of the VPC."""
    main: Mapping[str, Any] = {}
    for table in route_tables:
        for association in table["associations"]:
            if association.get("subnet_id") == subnet_id:
                return table
            if association.get("main"):
                main = table
    return main


def _way_out(table: Mapping[str, Any]) -> tuple[str, str]:
    """("nat", "internet", "blackhole" or "none") and its target; any other hop counts as a NAT."""
    for route in table.get("routes", ()):
        if route.get("destination_cidr_block") != ANYWHERE:
            continue
        targets = [route[key] for key in sorted(route) if key.endswith("_id") and route[key]]
        target = targets[0] if targets else "nothing"
        if route.get("state", "active") != "active":
            return "blackhole", target
        return ("internet" if target.startswith("igw-") else "nat"), target
    return "none", ""
