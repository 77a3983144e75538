"""moto's VPC endpoints where they do not answer as AWS does; applied before the first request.

- a second endpoint of one service with private DNS is refused, and private DNS where the VPC has no
  DNS hostnames, and two subnets of one zone;
- a deleted endpoint is told as deleting for a moment, then never again, and keeps its service's
  private DNS until then; moto tells it as deleted for ever.
"""

from __future__ import annotations

import time
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend

# AWS takes minutes.
DELETING_SECONDS = 1.0
_plain_create = EC2Backend.create_vpc_endpoint
_plain_delete = EC2Backend.delete_vpc_endpoints
_plain_describe = EC2Backend.describe_vpc_endpoints


def _forget_the_gone(backend: EC2Backend) -> None:
    for endpoint in list(backend.vpc_end_points.values()):
        if endpoint.__dict__.get("gone_at", float("inf")) <= time.monotonic():
            backend.vpc_end_points.pop(endpoint.id, None)


def _refuse_dns(backend: EC2Backend, vpc_id: str, service_name: str) -> None:
    vpc = backend.get_vpc(vpc_id)
    if not (_true(vpc.enable_dns_hostnames) and _true(vpc.enable_dns_support)):
        raise EC2ClientError(
            "InvalidParameter",
            "Enabling private DNS requires both enableDnsSupport and enableDnsHostnames VPC"
            f" attributes set to true for {vpc_id}",
        )
    for endpoint in backend.vpc_end_points.values():
        if (endpoint.vpc_id, endpoint.service_name) == (vpc_id, service_name) and (
            endpoint.private_dns_enabled and endpoint.vpc_endpoint_type == "Interface"
        ):
            raise EC2ClientError(
                "InvalidParameter",
                "private-dns-enabled cannot be set because there is already a conflicting DNS"
                f" domain for {service_name} in the VPC {vpc_id}",
            )


def _true(value: Any) -> bool:
    return str(value).lower() == "true"


def _create(self: EC2Backend, vpc_id: str, service_name: str, **more: Any) -> Any:
    _forget_the_gone(self)
    if str(more.get("endpoint_type")).lower() == "interface":
        zones = [self.get_subnet(one).availability_zone for one in more.get("subnet_ids") or []]
        if len(set(zones)) < len(zones):
            raise EC2ClientError(
                "DuplicateSubnetsInSameZone",
                "Found another VPC endpoint subnet in the availability zone of"
                f" {', '.join(more['subnet_ids'])}",
            )
        if more.get("private_dns_enabled"):
            _refuse_dns(self, vpc_id, service_name)
    return _plain_create(self, vpc_id=vpc_id, service_name=service_name, **more)


def _delete(self: EC2Backend, vpce_ids: list[str] | None = None) -> None:
    doomed = [
        self.vpc_end_points[one]
        for one in vpce_ids or []
        if one in self.vpc_end_points and self.vpc_end_points[one].state != "deleting"
    ]
    _plain_delete(self, [endpoint.id for endpoint in doomed])
    for endpoint in doomed:
        endpoint.state = "deleting"
        endpoint.gone_at = time.monotonic() + DELETING_SECONDS


def _describe(self: EC2Backend, *given: Any, **more: Any) -> Any:
    _forget_the_gone(self)
    return _plain_describe(self, *given, **more)


def apply() -> None:
    """Put all of it in place; a second call changes nothing."""
    EC2Backend.create_vpc_endpoint = _create
    EC2Backend.delete_vpc_endpoints = _delete
    EC2Backend.describe_vpc_endpoints = _describe
