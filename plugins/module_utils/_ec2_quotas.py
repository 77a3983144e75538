# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An account's quotas that a cluster meets, and how much of each is in use, ours told apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._aws import pages, tags_of
from ansible_collections.gpushare.eks.plugins.module_utils._errors import NotFound, aws_errors
from ansible_collections.gpushare.eks.plugins.module_utils._ours import is_ours
from ansible_collections.gpushare.eks.plugins.module_utils._quotas import (
    ELASTIC_IPS,
    NAT_GATEWAYS,
    SERVICES,
    UNITS,
    VPCS,
    codes,
)

# What counts: stopped instances and deleted gateways do not.
_RUNNING = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
_STANDING = [{"Name": "state", "Values": ["pending", "available"]}]


def read_quotas(
    service: Any,
    ec2: Any,
    types: Mapping[str, Any],
    cluster_name: str | None,
    more_types: Callable[[list[str]], Mapping[str, Any]],
) -> dict[str, dict[str, Any]]:
    """{code: {"name", "service", "unit", "value", "used", "ours", ...}} of the types and a network.

    service, ec2: boto3 clients; types: the catalog's instance types; ours: of cluster_name.
    more_types(names) tells of the types of instances that run beside them.
    """
    found: dict[str, dict[str, Any]] = {}
    for name in types:
        for capacity_type, code in codes(name).items():
            if code not in found:
                found[code] = _quota(service, code)
                found[code] |= {"capacity_type": capacity_type, "instance_types": []}
            found[code]["instance_types"].append(name)
    with aws_errors("EC2 instances that run"):
        _count_instances(ec2, found, types, cluster_name, more_types)
    for code in SERVICES:
        found[code] = _quota(service, code)
    with aws_errors("VPCs, addresses and NAT gateways"):
        # No page: DescribeAddresses answers all.
        _count(found[ELASTIC_IPS], ec2.describe_addresses()["Addresses"], cluster_name)
        _count(found[VPCS], pages(ec2, "describe_vpcs", "Vpcs"), cluster_name)
        _count_gateways(ec2, found[NAT_GATEWAYS], cluster_name)
    return found


def _quota(service: Any, code: str) -> dict[str, Any]:
    """The account's value, or AWS's default where the account has none of its own."""
    where = {"ServiceCode": SERVICES.get(code, "ec2"), "QuotaCode": code}
    with aws_errors(f"quota {code}"):
        try:
            with aws_errors(f"quota {code}"):
                quota = service.get_service_quota(**where)["Quota"]
        except NotFound:
            quota = service.get_aws_default_service_quota(**where)["Quota"]
    return {
        "name": quota["QuotaName"],
        "service": where["ServiceCode"],
        "unit": UNITS.get(code, "vCPUs"),
        "value": int(quota["Value"]),
        "used": 0,
        "ours": 0,
    }


def _count_instances(
    ec2: Any,
    found: dict[str, dict[str, Any]],
    types: Mapping[str, Any],
    cluster_name: str | None,
    more_types: Callable[[list[str]], Mapping[str, Any]],
) -> None:
    reservations = pages(ec2, "describe_instances", "Reservations", Filters=_RUNNING)
    running = [
        (codes(one["InstanceType"])["spot" if _is_spot(one) else "on_demand"], one)
        for reservation in reservations
        for one in reservation["Instances"]
        # A dedicated host has a quota of its own.
        if codes(one["InstanceType"]) and one.get("Placement", {}).get("Tenancy") != "host"
    ]
    running = [(code, one) for code, one in running if code in found]
    others = sorted({one["InstanceType"] for _code, one in running} - set(types))
    known = {**types, **(more_types(others) if others else {})}
    for code, one in running:
        _count(found[code], [one], cluster_name, known[one["InstanceType"]]["vcpus"])


def _is_spot(instance: Mapping[str, Any]) -> bool:
    return instance.get("InstanceLifecycle") == "spot"


def _count_gateways(ec2: Any, quota: dict[str, Any], cluster_name: str | None) -> None:
    """The quota is of each zone: "zones" has what stands there."""
    gateways = list(pages(ec2, "describe_nat_gateways", "NatGateways", Filter=_STANDING))
    _count(quota, gateways, cluster_name)
    ids = sorted({one["SubnetId"] for one in gateways if one.get("SubnetId")})
    wanted = [{"Name": "subnet-id", "Values": ids}]
    subnets = pages(ec2, "describe_subnets", "Subnets", Filters=wanted) if ids else []
    zones = {subnet["SubnetId"]: subnet["AvailabilityZone"] for subnet in subnets}
    quota["zones"] = {}
    for one in gateways:
        if one.get("SubnetId") in zones:
            at = quota["zones"].setdefault(zones[one["SubnetId"]], {"used": 0, "ours": 0})
            _count(at, [one], cluster_name)


def _count(
    row: dict[str, Any],
    objects: Iterable[Mapping[str, Any]],
    cluster_name: str | None,
    each: int = 1,
) -> None:
    for one in objects:
        tags = tags_of(one.get("Tags"))
        row["used"] += each
        row["ours"] += each if cluster_name and is_ours(tags, cluster_name) else 0
