"""Which instances have an SSM agent that answers, and which of them a command goes to."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from moto.ec2.models import ec2_backends

from lab.aws import ACCOUNT_ID, ServiceError
from lab.aws.ssm_node import Node

MAX_INSTANCE_IDS, MAX_TARGETS = 50, 5
_EKS_TAG = "kubernetes.io/cluster/"


def targets(body: dict[str, Any], nodes: dict[str, Node]) -> list[Node]:
    """The nodes that InstanceIds or Targets name. Raises as SendCommand does."""
    ids, targets = body.get("InstanceIds") or [], body.get("Targets") or []
    if len(ids) > MAX_INSTANCE_IDS:
        # Misleading, and what AWS says: no rate is exceeded, the list is too long.
        raise ServiceError("ThrottlingException", "Rate exceeded")
    if bool(ids) == bool(targets) or len(targets) > MAX_TARGETS:
        raise ServiceError("ValidationException", "give InstanceIds, or 1 to 5 Targets")
    bad = [instance_id for instance_id in ids if instance_id not in nodes]
    if bad:
        raise ServiceError(
            "InvalidInstanceId",
            f"Instances [[{', '.join(bad)}]] not in a valid state for account {ACCOUNT_ID}",
        )
    if ids:
        return [nodes[instance_id] for instance_id in dict.fromkeys(ids)]
    for target in targets:
        if target["Key"] != "InstanceIds" and not target["Key"].startswith("tag:"):
            raise ServiceError("ValidationException", f"{target['Key']}: use tag:KEY, InstanceIds")
    return [n for n in nodes.values() if all(matches(n, t["Key"], t["Values"]) for t in targets)]


def matches(node: Node, key: str, values: list[str]) -> bool:
    """Whether the node passes a target or filter."""
    if key.startswith("tag:"):
        return node.tags.get(key[4:]) in values
    facts = {
        "InstanceIds": node.instance_id,
        "PingStatus": "Online",
        "PlatformTypes": "Linux",
        "ResourceType": "EC2Instance",
    }
    if key == "tag-key":
        return bool(set(values) & set(node.tags))
    if key not in facts:
        raise ServiceError("InvalidInstanceInformationFilterValue", f"{key} is no filter")
    return facts[key] in values


def share(text: str, count: int, name: str) -> int:
    """`10` or `10%` of count nodes, rounded up as SSM does."""
    number = text.removesuffix("%")
    if not number.isdigit():
        raise ServiceError("ValidationException", f"{name} {text!r} is no number or percentage")
    return math.ceil(count * int(number) / 100) if text.endswith("%") else int(number)


def online(region: str) -> dict[str, Node]:
    """Running instances with an instance profile, or of one of our clusters, by ID."""
    found = (_node(instance, region) for instance in _instances(region))
    return {node.instance_id: node for node in found if node}


def find(instance_id: str) -> Node | None:
    """The node of this ID in any region; None where it is not online."""
    for region in list(ec2_backends[ACCOUNT_ID]):
        for instance in _instances(region):
            if instance.id == instance_id:
                return _node(instance, region)
    return None


def _node(instance: Any, region: str) -> Node | None:
    # By its own dict: moto's get_tags walks over the tags of everything in the region.
    tags = dict(ec2_backends[ACCOUNT_ID][region].tags.get(instance.id) or {})
    profile = bool(instance.iam_instance_profile)
    ours = profile or "eks:cluster-name" in tags or any(k.startswith(_EKS_TAG) for k in tags)
    if instance.state != "running" or not ours:
        return None
    return Node(
        instance_id=instance.id,
        instance_type=instance.instance_type,
        region=region,
        zone=instance.placement.zone,
        tags=tags,
        ip_address=instance.private_ip or "",
        name=instance.private_dns_name or "",
    )


def _instances(region: str) -> Iterator[Any]:
    for reservation in list(ec2_backends[ACCOUNT_ID][region].reservations.values()):
        yield from list(reservation.instances)
