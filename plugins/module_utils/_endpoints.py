# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pure: which interface endpoints private nodes need, and what has to be done to have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._ours import OUR_TAG

# What a node without a way out calls: to join (ec2, eks), for images (ecr), credentials (sts,
# eks-auth), the SSM agent (ssm, ssmmessages, ec2messages), logs, encrypted disks, Auto Scaling.
ALWAYS = (
    "ec2", "ecr.api", "ecr.dkr", "sts", "ssm", "ssmmessages", "ec2messages", "logs", "eks",
    "eks-auth", "kms", "autoscaling",
)  # fmt: skip
# In China these begin with "cn.com.amazonaws", the others with "com.amazonaws" as everywhere
# (aws ec2 describe-vpc-endpoint-services in cn-north-1).
PREFIXED_IN_CHINA = frozenset(
    {"autoscaling", "ec2", "ecr.api", "ecr.dkr", "eks", "eks-auth", "monitoring", "sqs", "sts"}
)
GONE = ("deleting", "deleted")
GOOD = ("available", "pending", "partial")


class EndpointError(ValueError):
    """Endpoints that cannot be made; the message names the service, the cause and the remedy."""


def services(
    region: str,
    pools: Sequence[Mapping[str, Any]] = (),
    *,
    load_balancers: bool = False,
    monitoring: bool = False,
    more: Sequence[str] = (),
    fewer: Sequence[str] = (),
) -> list[str]:
    """The names of the endpoint services that the nodes of a network without NAT call.

    :param pools: derived pools, each with "autoscaler": Karpenter reads interruptions from SQS.
    :param load_balancers: the load balancer controller runs in the cluster.
    :param monitoring: something in the cluster sends metrics to CloudWatch.
    :param more: further services by their short names, as "secretsmanager".
    :param fewer: services that something else provides, or that the region lacks.
    """
    wanted = {*ALWAYS, *more}
    if any(pool.get("autoscaler") == "karpenter" for pool in pools):
        wanted.add("sqs")
    if load_balancers:
        wanted.add("elasticloadbalancing")
    if monitoring:
        wanted.add("monitoring")
    unknown = sorted(set(fewer) - wanted)
    if unknown:
        raise EndpointError(
            f"{', '.join(unknown)}: not among the services that are wanted"
            f" ({', '.join(sorted(wanted))}); take them out of network_fewer_endpoints"
        )
    return sorted(_full_name(region, service) for service in wanted.difference(fewer))


def _full_name(region: str, service: str) -> str:
    prefix = "cn." if region.startswith("cn-") and service in PREFIXED_IN_CHINA else ""
    return f"{prefix}com.amazonaws.{region}.{service}"


def short_name(service: str) -> str:
    """ "ecr.api" of "com.amazonaws.us-east-1.ecr.api"."""
    return service.partition("com.amazonaws.")[2].partition(".")[2]


def plan(
    endpoints: Sequence[Mapping[str, Any]],
    wanted: Sequence[str],
    cluster_name: str,
    *,
    name: str,
    tags: Mapping[str, str],
    group_id: str = "",
) -> dict[str, list[Any]]:
    """What to do so that the VPC has one good endpoint of each wanted service.

    An endpoint of ours in a bad state, without private DNS or without our security group serves
    nobody: its module cannot change it, so it is replaced. Another's endpoint with private DNS
    serves as well, and AWS takes no second one.

    :param endpoints: all of the VPC, as amazon.aws.ec2_vpc_endpoint_info returns them.
    :param name: head of the Name tags.
    :returns: {"broken": [ids], "missing": [{"service", "tags"}], "retag": [{"id", "service",
        "tags"}], "surplus": [ids], "groups": [ids of the security groups of the surplus]}.
    :raises EndpointError: where another's endpoint without private DNS stands in the way.
    """
    served: set[str] = set()
    result: dict[str, list[Any]] = {
        kind: [] for kind in ("broken", "missing", "retag", "surplus", "groups")
    }
    blocking = []
    for endpoint in endpoints:
        if endpoint["vpc_endpoint_type"] != "Interface" or endpoint["state"].lower() in GONE:
            continue
        service, found = endpoint["service_name"], endpoint["vpc_endpoint_id"]
        its_tags = {tag["key"]: tag["value"] for tag in endpoint["tags"]}
        groups = [group["group_id"] for group in endpoint.get("groups", ())]
        good = endpoint["state"].lower() in GOOD and endpoint.get("private_dns_enabled")
        if its_tags.get(OUR_TAG) != cluster_name:
            if good:
                served.add(service)
            elif service in wanted:
                blocking.append(f"{found} ({service}, {endpoint['state']})")
        elif service not in wanted:
            result["surplus"].append(found)
            result["groups"] += [one for one in groups if one not in result["groups"]]
        elif not good or group_id not in groups:
            result["broken"].append(found)
        elif service in served:
            result["surplus"].append(found)
        else:
            served.add(service)
            if its_tags != (now := _tags(service, name, tags)):
                result["retag"].append({"id": found, "service": service, "tags": now})
    if blocking:
        raise EndpointError(
            f"endpoints {', '.join(sorted(blocking))} are not of cluster {cluster_name} and have no"
            " private DNS, so they serve no node, and ec2_vpc_endpoint would take them up: delete"
            " them, or give them private DNS"
        )
    result["missing"] = [
        {"service": service, "tags": _tags(service, name, tags)}
        for service in wanted
        if service not in served
    ]
    return result


def _tags(service: str, name: str, tags: Mapping[str, str]) -> dict[str, str]:
    return {**tags, "Name": f"{name}-{short_name(service)}"}


def place(
    missing: Sequence[Mapping[str, Any]],
    offered: Sequence[Mapping[str, Any]],
    subnets: Mapping[str, str],
) -> list[dict[str, Any]]:
    """The missing endpoints, each with "subnet_ids": the subnets whose zone offers the service.

    :param offered: service_details of amazon.aws.ec2_vpc_endpoint_service_info.
    :param subnets: the private subnet by zone.
    :raises EndpointError: for a service that the region or all those zones lack.
    """
    zones = {detail["service_name"]: detail["availability_zones"] for detail in offered}
    placed = [
        {**one, "subnet_ids": [subnets[zone] for zone in subnets if zone in here]}
        for one in missing
        for here in [zones.get(one["service"], ())]
    ]
    lacking = [one["service"] for one in placed if not one["subnet_ids"]]
    if lacking:
        raise EndpointError(
            f"{', '.join(lacking)}: no endpoint service in {', '.join(subnets)}. Use"
            " network_nat: single, or, where no node needs it, name"
            f" {', '.join(short_name(one) for one in lacking)} in network_fewer_endpoints"
        )
    return placed
