# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pure: what the pools and the network take of an account's quotas, and what that leaves short.

EC2 counts the vCPUs of running instances by family, on-demand and spot apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

# Names, codes and services: "Amazon EC2 endpoints and quotas" and "Amazon VPC quotas".
_STANDARD = {"on_demand": "L-1216C47A", "spot": "L-34B43A08"}
_G = {"on_demand": "L-DB2E81BA", "spot": "L-3819A6DF"}
_BY_FAMILY = {
    **dict.fromkeys((*"acdhimrtz", "im", "is"), _STANDARD),
    **dict.fromkeys(("g", "vt"), _G),
    "p": {"on_demand": "L-417A185B", "spot": "L-7212CCBC"},
}
# P5 has a spot quota of its own; that of P2 to P4 does not count for it.
_BY_GENERATION = {"p5": {"on_demand": "L-417A185B", "spot": "L-C4BD4855"}}
ELASTIC_IPS, VPCS, NAT_GATEWAYS = "L-0263D0A3", "L-F678F1CE", "L-FE5A380F"
SERVICES = {ELASTIC_IPS: "ec2", VPCS: "vpc", NAT_GATEWAYS: "vpc"}
UNITS = {ELASTIC_IPS: "addresses", VPCS: "VPCs", NAT_GATEWAYS: "NAT gateways in a zone"}
_FAMILY = re.compile(r"([a-z]+)(\d*)")


def codes(instance_type: str) -> dict[str, str]:
    """{"on_demand": quota code, "spot": quota code} of a type; {} where we know none."""
    family = _FAMILY.match(instance_type)
    if not family:
        return {}
    found = _BY_GENERATION.get(family.group()) or _BY_FAMILY.get(family.group(1))
    return dict(found or {})


def judge(
    quotas: Mapping[str, Mapping[str, Any]],
    pools: Iterable[Mapping[str, Any]],
    instance_types: Mapping[str, Mapping[str, Any]],
    offerings: Mapping[str, Iterable[str]],
    *,
    region: str,
    network: Mapping[str, Any] | None = None,
) -> dict[str, list[str]]:
    """{"refusals", "warnings"}: what does not fit at once, and what would not at max_size.

    :param quotas: {code: {"name", "service", "unit", "value", "used", "ours"}}, the last two in the
        same unit; of NAT gateways "zones" with used and ours of each. A quota that is not there
        was not read and is not judged.
    :param pools: derived pools. :param network: {"nat", "zones", "zone_count"} of a network that is
        made; None or {} where none is.
    """
    network = network or {}
    zones = list(network.get("zones") or [])
    needs: dict[str, _Need] = {}
    for pool in pools:
        groups = _groups(pool, offerings, zones, network)
        for code, least, most in _vcpus(pool, instance_types):
            need = needs.setdefault(code, _Need())
            need.at_once += least * groups * max(pool["min_size"], pool["desired_size"])
            need.at_most += most * groups * pool["max_size"]
            need.users.append(f"pool {pool['name']}")
    nat_zones = {"none": [], "single": zones[:1]}.get(network.get("nat", "none"), zones)
    for code, number in _of_network(network, zones).items():
        needs[code] = _Need(number, number, ["the network"])
    found: dict[str, list[str]] = {"refusals": [], "warnings": []}
    for code, need in needs.items():
        quota = quotas.get(code)
        if quota is None:
            continue
        rows = [(quota, region)]
        if code == NAT_GATEWAYS:
            none = {"used": 0, "ours": 0}
            rows = [({**quota, **quota["zones"].get(zone, none)}, zone) for zone in nat_zones]
        for row, where in rows:
            kind, text = _judge(code, row, need, where, region)
            if kind:
                found[kind].append(text)
    return found


class _Need:
    """What is needed of one quota: when the run is over, at the pools' max_size, and by whom."""

    def __init__(self, at_once: int = 0, at_most: int = 0, users: list[str] | None = None) -> None:
        self.at_once, self.at_most, self.users = at_once, at_most, users or []


def _groups(
    pool: Mapping[str, Any],
    offerings: Mapping[str, Iterable[str]],
    zones: list[str],
    network: Mapping[str, Any],
) -> int:
    """How many node groups the pool has or will have; sizes are those of one group."""
    if pool["zones"] == "spread":
        return 1
    if pool["node_groups"]:
        return len(pool["node_groups"])
    offered = {zone for name in pool["instance_types"] for zone in offerings.get(name, ())}
    if zones:
        return len(offered & set(zones))
    return min(len(offered), int(network.get("zone_count") or 1))


def _vcpus(
    pool: Mapping[str, Any], instance_types: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, int, int]]:
    """(quota code, least, most) vCPUs of a node; least is 0 where another quota can serve, too."""
    # A managed node group has one capacity type, the first; Karpenter takes any of them.
    several = pool["autoscaler"] == "karpenter"
    capacity = pool["capacity_type"] if several else pool["capacity_type"][:1]
    sizes: dict[str, list[int]] = {}
    for name in pool["instance_types"]:
        for kind in capacity:
            if kind in codes(name):
                sizes.setdefault(codes(name)[kind], []).append(instance_types[name]["vcpus"])
    only = len(sizes) == 1 and all(codes(name) for name in pool["instance_types"])
    return [(code, min(found) if only else 0, max(found)) for code, found in sizes.items()]


def _of_network(network: Mapping[str, Any], zones: list[str]) -> dict[str, int]:
    """{quota code: number} that a network takes; NAT gateways are counted in each zone."""
    if not network:
        return {}
    count = len(zones) or int(network.get("zone_count") or 1)
    addresses = {"none": 0, "single": 1, "per_zone": count}[network["nat"]]
    needs = {VPCS: 1, ELASTIC_IPS: addresses, NAT_GATEWAYS: 1 if addresses else 0}
    return {code: number for code, number in needs.items() if number}


def _judge(
    code: str, quota: Mapping[str, Any], need: _Need, where: str, region: str
) -> tuple[str, str]:
    """("refusals" or "warnings", text), or ("", "") where it fits."""
    others = quota["used"] - quota["ours"]
    unit, value = quota["unit"], quota["value"]
    # What runs already is not asked for again.
    short_now = quota["ours"] < need.at_once and others + need.at_once > value
    if not short_now and others + need.at_most <= value:
        return "", ""
    ask = others + max(need.at_most, need.at_once)
    needed = f"{need.at_once} {unit} at once" if short_now else f"{need.at_most} {unit} at max_size"
    what = ", ".join(dict.fromkeys(need.users))
    remedy = (
        f"ask AWS for {ask}: aws service-quotas request-service-quota-increase "
        f"--service-code {quota['service']} --quota-code {code} --desired-value {ask} "
        f"--region {region}"
    )
    lower = {
        **dict.fromkeys((ELASTIC_IPS, NAT_GATEWAYS), "network_nat: none"),
        VPCS: "take a VPC that is there (network_vpc_id)",
    }.get(code, "smaller " + ("min_size and desired_size" if short_now else "max_size"))
    text = (
        f"quota {quota['name']!r} ({code}) in {where} is {value} {unit}; others use {others}, and "
        f"{what} need {needed}. Remedy: {remedy}; or {lower}"
    )
    return ("refusals" if short_now else "warnings"), text
