# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pure: which zones a VPC spans, and the private and public block of each of them."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

# AWS allows IPv4 blocks from /16 to /28, for a VPC as for a subnet, and keeps 5 addresses of each
# subnet (https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html).
LARGEST_PREFIX = 16
SMALLEST_PREFIX = 28
RESERVED_BY_AWS = 5
# Zones in which EKS places no control plane: it refuses a cluster with a subnet there
# (https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html, read 2026-11).
REFUSED_BY_EKS = frozenset({"use1-az3", "usw1-az2", "cac1-az3"})


class CidrError(ValueError):
    """Blocks that cannot be used; the message names the block, the cause and the remedy."""


def _network(value: str, what: str) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(value)
    except ValueError as problem:
        raise CidrError(
            f"{what} {value!r} is not an IPv4 block ({problem}); write it like 10.0.0.0/16"
        ) from problem


def lets_in(blocks: Sequence[str], address: str) -> bool:
    """Whether an address lies in one of the blocks; CidrError for what is no address or block."""
    try:
        caller = ipaddress.ip_address(address.strip())
    except ValueError as problem:
        raise CidrError(f"{address!r} is not an address ({problem})") from problem
    for block in blocks:
        try:
            network = ipaddress.ip_network(block)
        except ValueError as problem:
            raise CidrError(
                f"{block!r} is not a block ({problem}); write it like 203.0.113.0/24"
            ) from problem
        if caller in network:
            return True
    return False


def _block(
    vpc: ipaddress.IPv4Network, prefix: int, index: int, *, from_end: bool
) -> ipaddress.IPv4Network:
    """The index-th block of that size, counted from the start or from the end of the VPC."""
    step = 1 << (32 - prefix)
    if from_end:
        start = int(vpc.broadcast_address) + 1 - step * (index + 1)
    else:
        start = int(vpc.network_address) + step * index
    return ipaddress.IPv4Network((start, prefix))


def _refuse_size(vpc: ipaddress.IPv4Network, prefixes: dict[str, int], zones: int) -> None:
    if not LARGEST_PREFIX <= vpc.prefixlen <= SMALLEST_PREFIX:
        raise CidrError(f"{vpc}: AWS takes a VPC from /{LARGEST_PREFIX} to /{SMALLEST_PREFIX}")
    for name, prefix in prefixes.items():
        if not max(vpc.prefixlen, LARGEST_PREFIX) <= prefix <= SMALLEST_PREFIX:
            raise CidrError(
                f"{name} subnets of /{prefix} do not fit {vpc}: choose /{vpc.prefixlen} to"
                f" /{SMALLEST_PREFIX}"
            )
    # Counted from both ends, blocks that fit together never overlap.
    wanted = sum(zones * (1 << (32 - prefix)) for prefix in prefixes.values())
    if wanted > vpc.num_addresses:
        raise CidrError(
            f"{vpc} has {vpc.num_addresses} addresses, {zones} zones with"
            f" /{prefixes['private']} and /{prefixes['public']} need {wanted}:"
            " take a larger VPC, fewer zones or longer prefixes"
        )


def _refuse_moves(
    layout: Mapping[str, Any], zones: Sequence[str], existing: Sequence[Mapping[str, Any]]
) -> None:
    """A subnet cannot change its zone or block: a layout that would want it to is refused."""
    laid = {
        ipaddress.IPv4Network(subnet["cidr"]): subnet["zone"]
        for subnet in (*layout["private"], *layout["public"])
    }
    for subnet in existing:
        block, zone = ipaddress.IPv4Network(subnet["cidr_block"]), subnet["availability_zone"]
        name = f"subnet {subnet['subnet_id']} ({block}, {zone})"
        if block in laid:
            if laid[block] != zone:
                raise CidrError(
                    f"{name} cannot move to {laid[block]}: set network_zones to the zones of the"
                    f" subnets that are there, in the order of their blocks, not {', '.join(zones)}"
                )
            continue
        over = sorted(str(other) for other in laid if other.overlaps(block))
        if over:
            raise CidrError(
                f"{name} overlaps {', '.join(over)} of the wanted layout: a subnet cannot change"
                " its size; set network_private_prefix and network_public_prefix back"
            )


def subnets(
    cidr: str,
    zones: Sequence[str],
    *,
    private_prefix: int | None = None,
    public_prefix: int | None = None,
    reserved: Sequence[str] = (),
    pools: Sequence[Mapping[str, Any]] = (),
    existing: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Lay out a VPC over zones: private subnets from its start, public ones from its end.

    Counting from both ends keeps every subnet where it is when a zone is appended later.

    :param reserved: blocks the VPC must not overlap (the service range, peers, the office).
    :param pools: derived pools; every pod of their max_size nodes takes an address (VPC CNI).
    :param existing: our subnets that are there, each with "subnet_id", "cidr_block" and
        "availability_zone".
    :returns: {"vpc": cidr, "private": [{"zone", "cidr", "addresses"}], "public": [the same]};
        addresses counts what AWS leaves usable.
    :raises CidrError: for a bad block, an overlap, too little room, or a subnet that is there and
        would have to move.
    """
    if not zones:
        raise CidrError("no zones: name at least two availability zones")
    twice = sorted({zone for zone in zones if list(zones).count(zone) > 1})
    if twice:
        raise CidrError(f"zones named twice: {', '.join(twice)}")
    vpc = _network(cidr, "VPC")
    prefixes = {
        # A /16 gives /19 (8,187 usable addresses) for pods and /24 for load balancers.
        "private": min(vpc.prefixlen + 3, SMALLEST_PREFIX)
        if private_prefix is None
        else private_prefix,
        "public": min(vpc.prefixlen + 8, SMALLEST_PREFIX)
        if public_prefix is None
        else public_prefix,
    }
    _refuse_size(vpc, prefixes, len(zones))
    for other in reserved:
        if vpc.overlaps(_network(other, "reserved block")):
            raise CidrError(f"VPC {vpc} overlaps {other}: choose another network_cidr")
    result: dict[str, Any] = {"vpc": str(vpc)}
    for name, from_end in (("private", False), ("public", True)):
        blocks = [
            _block(vpc, prefixes[name], index, from_end=from_end) for index in range(len(zones))
        ]
        result[name] = [
            {"zone": zone, "cidr": str(block), "addresses": block.num_addresses - RESERVED_BY_AWS}
            for zone, block in zip(zones, blocks, strict=True)
        ]
    _refuse_moves(result, zones, existing)
    room = sum(subnet["addresses"] for subnet in result["private"])
    addresses = sum(pool["max_size"] * pool["max_pods"] for pool in pools)
    if room < addresses:
        raise CidrError(
            f"the private subnets of {vpc} hold {room} addresses, the pools may need {addresses}:"
            " take a larger network_cidr, shorter private prefixes, or smaller max_size"
        )
    return result


def choose_zones(
    pools: Sequence[Mapping[str, Any]],
    offerings: Mapping[str, Sequence[str]],
    count: int,
    *,
    existing: Sequence[Mapping[str, Any]] = (),
    zones: Sequence[Mapping[str, Any]] | None = None,
) -> list[str]:
    """The zones of the subnets that are there, then the first others that offer every pool a type.

    What EC2 offers changes; a subnet's zone and place do not. So zones are only ever appended.

    :param pools: derived pools, each with "name" and "instance_types".
    :param offerings: {instance type: [zones]}, as EC2 tells.
    :param count: how many zones to reach; never fewer than are there.
    :param existing: our private subnets, each with "cidr_block" and "availability_zone".
    :param zones: what may be appended, each with "zone_name" and "zone_id", and where told
        "zone_type" and "state"; None leaves it to the offerings.
    :raises CidrError: where fewer than two zones are left (EKS needs two), or a pool has a type in
        none of them.
    """
    there = [
        subnet["availability_zone"]
        for subnet in sorted(
            existing,
            key=lambda subnet: ipaddress.IPv4Network(subnet["cidr_block"]),
        )
    ]
    by_pool = {
        pool["name"]: {zone for kind in pool["instance_types"] for zone in offerings.get(kind, ())}
        for pool in pools
    }
    common = set.intersection(*by_pool.values()) if by_pool else set()
    if zones is not None:
        common &= {zone["zone_name"] for zone in zones if _takes_a_cluster(zone)}
    more = sorted(common.difference(there))
    chosen = [*there, *more[: max(count - len(there), 0)]]
    told = "; ".join(f"{name}: {', '.join(sorted(at)) or 'none'}" for name, at in by_pool.items())
    if len(chosen) < 2:
        raise CidrError(
            f"EKS needs two zones; all pools are offered in: {', '.join(chosen) or 'none'}"
            f" ({told or 'no pools'}). Name other instance types, or set network_zones"
        )
    homeless = [name for name, at in by_pool.items() if at.isdisjoint(chosen)]
    if homeless:
        raise CidrError(
            f"{', '.join(homeless)}: no instance type is offered in {', '.join(chosen)} ({told})."
            " Name other instance types, or raise network_zone_count to append a zone"
        )
    return chosen


def _takes_a_cluster(zone: Mapping[str, Any]) -> bool:
    """Whether EKS takes a subnet there; it refuses Local Zones, Wavelength Zones and a few more."""
    return (
        zone.get("zone_type", "availability-zone") == "availability-zone"
        and zone.get("state", "available") == "available"
        and zone["zone_id"] not in REFUSED_BY_EKS
    )
