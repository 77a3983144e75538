"""moto's networks where AWS refuses a delete, or takes a moment for it; applied at the start.

- what is in use stays: a security group by interfaces, endpoints and other groups' rules, a subnet
  by interfaces, an internet gateway by mapped addresses, an address by its interface, an interface
  by its instance or its service, a VPC by whatever is in it;
- a deleted NAT gateway is told as deleting for a moment, and keeps its interface and its address
  until then; an ended instance lets its interface go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moto.ec2.exceptions import DependencyViolationError, EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.elastic_network_interfaces import NetworkInterface
from moto.ec2.models.instances import Instance

from lab.aws import passing

_EXTENDED = (
    "create_nat_gateway",
    "delete_nat_gateway",
    "delete_network_interface",
    "delete_subnet",
    "delete_vpc",
    "describe_addresses",
    "describe_nat_gateways",
    "detach_internet_gateway",
    "get_all_network_interfaces",
    "release_address",
)
_plain = {name: getattr(EC2Backend, name) for name in _EXTENDED}
_plain_terminate = Instance.terminate


def _settled(name: str) -> Callable[..., Any]:
    """moto's own, once what is due has ended."""

    def call(self: EC2Backend, *given: Any, **more: Any) -> Any:
        passing.settle(self)
        return _plain[name](self, *given, **more)

    return call


def _refuse(what: str, users: list[Any]) -> None:
    if users:
        raise DependencyViolationError(f"The {what} has dependencies and cannot be deleted.")


def _sources(rules: list[Any]) -> set[str]:
    return {rule.source_group["GroupId"] for rule in rules if "GroupId" in rule.source_group}


def _delete_group(self: EC2Backend, vpc_id: str | None, group_id: str) -> Any:
    passing.settle(self)
    users = [e.id for e in self.enis.values() if group_id in {g.id for g in e.group_set or []}]
    users += [
        e.id
        for e in self.vpc_end_points.values()
        if e.state not in ("deleted", "deleting") and group_id in e.security_group_ids
    ]
    for group in [g for groups in self.groups.values() for g in groups.values()]:
        rules = [*group.ingress_rules, *group.egress_rules]
        if group.id != group_id and group_id in _sources(rules):
            users.append(group.id)
    if users:
        raise DependencyViolationError(f"resource {group_id} has a dependent object")
    return self.groups[vpc_id or self.default_vpc.id].pop(group_id)


def _terminate(self: Instance) -> Any:
    # What EC2 does with the interface that it made together with the instance.
    if 0 in self.nics:
        self.nics[0].delete_on_termination = self.nics[0].id in self.ec2_backend.enis
    return _plain_terminate(self)


def _delete_subnet(self: EC2Backend, subnet_id: str) -> Any:
    passing.settle(self)
    enis = [e.id for e in self.enis.values() if e.subnet and e.subnet.id == subnet_id]
    _refuse(f"subnet '{subnet_id}'", enis)
    return _plain["delete_subnet"](self, subnet_id)


def _delete_vpc(self: EC2Backend, vpc_id: str) -> Any:
    passing.settle(self)
    users = [g.id for g in self.internet_gateways.values() if g.vpc and g.vpc.id == vpc_id]
    users += [g.id for g in self.groups.get(vpc_id, {}).values() if g.name != "default"]
    for kept in (self.vpc_end_points, self.nat_gateways):
        users += [
            one.id for one in kept.values() if one.vpc_id == vpc_id and one.state != "deleted"
        ]
    _refuse(f"vpc '{vpc_id}'", users)
    return _plain["delete_vpc"](self, vpc_id)


def _detach_gateway(self: EC2Backend, internet_gateway_id: str, vpc_id: str) -> Any:
    passing.settle(self)
    held = {address.eni.id for address in self.addresses if address.eni}
    if any(
        eni.subnet and eni.subnet.vpc_id == vpc_id and (eni.public_ip or eni.id in held)
        for eni in self.enis.values()
    ):
        raise DependencyViolationError(
            f"Network {vpc_id} has some mapped public address(es). Please unmap those public"
            " address(es) before detaching the gateway."
        )
    return _plain["detach_internet_gateway"](self, internet_gateway_id, vpc_id)


def _create_nat(self: EC2Backend, *given: Any, **more: Any) -> Any:
    gateway = _plain["create_nat_gateway"](self, *given, **more)
    passing.mark(gateway._eni, f"Interface for NAT Gateway {gateway.id}", kind="nat_gateway")
    return gateway


def _delete_nat(self: EC2Backend, nat_gateway_id: str) -> Any:
    gateway = self.nat_gateways.get(nat_gateway_id)
    if gateway is None:
        raise EC2ClientError(
            "NatGatewayNotFound", f"The Nat Gateway {nat_gateway_id} was not found"
        )
    if gateway.state in ("deleting", "deleted"):
        return gateway
    gateway.state = "deleting"

    def end() -> None:
        gateway.state = "deleted"
        for address in self.addresses:
            if address.eni is gateway._eni:
                address.eni = address.association_id = None
        passing.drop(self, [gateway._eni.id])

    passing.later(self, end)
    return gateway


def _release_address(
    self: EC2Backend, address: str | None = None, allocation_id: str | None = None
) -> Any:
    passing.settle(self)
    for known in self.addresses:
        if known.allocation_id == allocation_id and allocation_id and known.eni:
            raise EC2ClientError("InvalidIPAddress.InUse", f"Address {known.public_ip} is in use.")
    return _plain["release_address"](self, address=address, allocation_id=allocation_id)


def _delete_interface(self: EC2Backend, eni_id: str) -> None:
    passing.settle(self)
    eni = self.enis.get(eni_id)
    if eni is not None and (eni.instance or eni.requester_managed):
        raise EC2ClientError(
            "InvalidParameterValue", f"Network interface '{eni_id}' is currently in use."
        )
    _plain["delete_network_interface"](self, eni_id)


def _end_interface(self: NetworkInterface, *_given: Any) -> None:
    """The end of an instance takes its interface along, attached as it is."""
    passing.drop(self.ec2_backend, [self.id])


def apply() -> None:
    """Put all of it in place; a second call changes nothing."""
    for name in ("describe_addresses", "describe_nat_gateways", "get_all_network_interfaces"):
        setattr(EC2Backend, name, _settled(name))
    EC2Backend._delete_security_group = _delete_group
    EC2Backend.delete_subnet = _delete_subnet
    EC2Backend.delete_vpc = _delete_vpc
    EC2Backend.detach_internet_gateway = _detach_gateway
    EC2Backend.create_nat_gateway = _create_nat
    EC2Backend.delete_nat_gateway = _delete_nat
    EC2Backend.release_address = _release_address
    EC2Backend.delete_network_interface = _delete_interface
    NetworkInterface.delete = _end_interface
    Instance.terminate = _terminate
