"""moto's VPC endpoints where they do not answer as AWS does; applied before the first request.

- a second endpoint of one service with private DNS is refused, and private DNS where the VPC has no
  DNS hostnames, and two subnets of one zone;
- an interface endpoint's network interfaces have its security groups;
- a deleted endpoint is told as deleting for a moment, then never again, and keeps its service's
  private DNS and its interfaces until then; moto tells it as deleted for ever.
"""

from __future__ import annotations

from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend

from lab.aws import passing

_plain_create = EC2Backend.create_vpc_endpoint
_plain_delete = EC2Backend.delete_vpc_endpoints
_plain_describe = EC2Backend.describe_vpc_endpoints


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
    passing.settle(self)
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
    endpoint = _plain_create(self, vpc_id=vpc_id, service_name=service_name, **more)
    groups = [self.get_security_group_from_id(one) for one in more.get("security_group_ids") or []]
    for eni_id in endpoint.network_interface_ids or []:
        text = f"VPC Endpoint Interface {endpoint.id}"
        eni = passing.mark(self.enis[eni_id], text, kind="vpc_endpoint")
        eni._group_set = groups or eni._group_set
    return endpoint


def _delete(self: EC2Backend, vpce_ids: list[str] | None = None) -> None:
    doomed = [
        self.vpc_end_points[one]
        for one in vpce_ids or []
        if one in self.vpc_end_points and self.vpc_end_points[one].state != "deleting"
    ]
    ids = [endpoint.id for endpoint in doomed]
    held = {one: self.enis[one] for e in doomed for one in e.network_interface_ids or []}
    _plain_delete(self, ids)
    self.enis.update(held)
    for endpoint in doomed:
        endpoint.state = "deleting"

    def end() -> None:
        passing.drop(self, held)
        for one in ids:
            self.vpc_end_points.pop(one, None)

    passing.later(self, end)


def _describe(self: EC2Backend, *given: Any, **more: Any) -> Any:
    passing.settle(self)
    return _plain_describe(self, *given, **more)


def apply() -> None:
    """Put all of it in place; a second call changes nothing."""
    EC2Backend.create_vpc_endpoint = _create
    EC2Backend.delete_vpc_endpoints = _delete
    EC2Backend.describe_vpc_endpoints = _describe
