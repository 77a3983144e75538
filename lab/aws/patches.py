"""moto 5.2.5 where the roles' own modules meet it and AWS answers otherwise; applied at the start.

- deletes that AWS refuses are refused: a group or subnet with a network interface, a VPC with a
  gateway, groups or endpoints, an internet gateway under mapped addresses, an address in use;
- a deleted NAT gateway lets its address and its interface go, an ended instance its interface;
- images: tags on the snapshot too, and no second image of one name; keys: deletion by ARN;
- a presigned URL (an EKS token) is routed by the credential in its query, not to S3.

moto_patches, endpoint_patches, quota_patches and autoscaling_patches hold the rest. `apply` extends
what is there, so its place among them is free.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from moto.ec2.exceptions import DependencyViolationError, EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.instances import Instance
from moto.kms.models import KmsBackend
from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from moto.servicequotas.models import ServiceQuotasBackend

from lab.aws import endpoint_patches, quota_patches

_applied = False


def _extend(owner: type, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]):
    setattr(owner, name, make(getattr(owner, name)))


def _refuse(what: str, users: list[str]) -> None:
    if users:
        raise DependencyViolationError(
            f"The {what} has dependencies and cannot be deleted ({', '.join(sorted(users))})."
        )


def _live(items: dict[str, Any]) -> list[Any]:
    return [item for item in list(items.values()) if item.state not in ("deleted", "deleting")]


def _delete_group(_: Callable[..., Any]) -> Callable[..., Any]:
    def delete(self: EC2Backend, vpc_id: str | None, group_id: str) -> Any:
        users = [e.id for e in self.enis.values() if group_id in {g.id for g in e.group_set or []}]
        users += [e.id for e in _live(self.vpc_end_points) if group_id in e.security_group_ids]
        for group in [g for groups in self.groups.values() for g in groups.values()]:
            rules = [*group.ingress_rules, *group.egress_rules]
            if group.id != group_id and group_id in _sources(rules):
                users.append(group.id)
        _refuse(f"security group '{group_id}'", users)
        return self.groups[vpc_id or self.default_vpc.id].pop(group_id)

    return delete


def _sources(rules: list[Any]) -> set[str]:
    return {rule.source_group["GroupId"] for rule in rules if "GroupId" in rule.source_group}


def _terminate(plain: Callable[..., Any]) -> Callable[..., Any]:
    def terminate(self: Instance) -> Any:
        # What EC2 does with the interface that it made together with the instance.
        if 0 in self.nics:
            self.nics[0].delete_on_termination = self.nics[0].id in self.ec2_backend.enis
        return plain(self)

    return terminate


def _delete_subnet(plain: Callable[..., Any]) -> Callable[..., Any]:
    def delete(self: EC2Backend, subnet_id: str) -> Any:
        enis = [e.id for e in self.enis.values() if e.subnet and e.subnet.id == subnet_id]
        _refuse(f"subnet '{subnet_id}'", enis)
        return plain(self, subnet_id)

    return delete


def _delete_vpc(plain: Callable[..., Any]) -> Callable[..., Any]:
    def delete(self: EC2Backend, vpc_id: str) -> Any:
        users = [g.id for g in self.internet_gateways.values() if g.vpc and g.vpc.id == vpc_id]
        users += [g.id for g in self.groups.get(vpc_id, {}).values() if g.name != "default"]
        users += [e.id for e in _live(self.vpc_end_points) if e.vpc_id == vpc_id]
        _refuse(f"vpc '{vpc_id}'", users)
        return plain(self, vpc_id)

    return delete


def _detach_gateway(plain: Callable[..., Any]) -> Callable[..., Any]:
    def detach(self: EC2Backend, internet_gateway_id: str, vpc_id: str) -> Any:
        mapped = [
            address.public_ip
            for address in self.addresses
            if address.eni and address.eni.subnet and address.eni.subnet.vpc_id == vpc_id
        ]
        if mapped:
            raise DependencyViolationError(
                f"Network {vpc_id} has some mapped public address(es). Please unmap those public"
                " address(es) before detaching the gateway."
            )
        return plain(self, internet_gateway_id, vpc_id)

    return detach


def _delete_nat(plain: Callable[..., Any]) -> Callable[..., Any]:
    def delete(self: EC2Backend, nat_gateway_id: str) -> Any:
        gateway = plain(self, nat_gateway_id)
        for address in self.addresses:
            if address.eni is gateway._eni:
                address.eni = address.association_id = None
        self.enis.pop(gateway._eni.id, None)
        return gateway

    return delete


def _release_address(plain: Callable[..., Any]) -> Callable[..., Any]:
    def release(
        self: EC2Backend, address: str | None = None, allocation_id: str | None = None
    ) -> Any:
        for known in self.addresses:
            if known.allocation_id == allocation_id and allocation_id and known.eni:
                raise EC2ClientError(
                    "InvalidIPAddress.InUse", f"Address {known.public_ip} is in use."
                )
        return plain(self, address=address, allocation_id=allocation_id)

    return release


def _create_image(plain: Callable[..., Any]) -> Callable[..., Any]:
    def create(
        self: EC2Backend,
        instance_id: str,
        name: str,
        description: str,
        tag_specifications: list[dict[str, Any]],
    ) -> Any:
        for image in self.amis.values():
            if image.name == name and image.owner_id == self.account_id:
                raise EC2ClientError(
                    "InvalidAMIName.Duplicate",
                    f"AMI name {name} is already in use by AMI {image.id}",
                )
        by_type = {given["ResourceType"]: given["Tags"] for given in tag_specifications}
        snapshot = by_type.pop("snapshot", [])
        rest = [{"ResourceType": kind, "Tags": tags} for kind, tags in by_type.items()]
        image = plain(self, instance_id, name, description, tag_specifications=rest)
        if snapshot:
            image.ebs_snapshot.add_tags({tag["Key"]: tag["Value"] for tag in snapshot})
        return image

    return create


def _schedule_key_deletion(plain: Callable[..., Any]) -> Callable[..., Any]:
    def schedule(self: KmsBackend, key_id: str, pending_window_in_days: int) -> Any:
        return plain(self, self.any_id_to_key_id(key_id), pending_window_in_days)

    return schedule


def _by_any_id(plain: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, key_id: plain(self, self.any_id_to_key_id(key_id))


def _infer_host(plain: Callable[..., Any]) -> Callable[..., Any]:
    def infer(self: DomainDispatcherApplication, environ: dict[str, Any], path: str) -> str | None:
        query = parse_qs(environ.get("QUERY_STRING", ""))
        scope = query.get("X-Amz-Credential", [""])[0].split("/")
        if not environ.get("HTTP_AUTHORIZATION") and len(scope) == 5 and scope[3] != "s3":
            return f"{scope[3]}.{scope[2]}.amazonaws.com"
        return plain(self, environ, path)

    return infer


def apply() -> None:
    """Put all of it in place, before the first request; a second call changes nothing."""
    global _applied
    if _applied:
        return
    _applied = True
    endpoint_patches.apply()
    _extend(EC2Backend, "_delete_security_group", _delete_group)
    _extend(EC2Backend, "delete_subnet", _delete_subnet)
    _extend(Instance, "terminate", _terminate)
    _extend(EC2Backend, "delete_vpc", _delete_vpc)
    _extend(EC2Backend, "detach_internet_gateway", _detach_gateway)
    _extend(EC2Backend, "delete_nat_gateway", _delete_nat)
    _extend(EC2Backend, "release_address", _release_address)
    _extend(EC2Backend, "create_image", _create_image)
    _extend(KmsBackend, "schedule_key_deletion", _schedule_key_deletion)
    for operation in ("cancel_key_deletion", "enable_key", "disable_key"):
        _extend(KmsBackend, operation, _by_any_id)
    _extend(DomainDispatcherApplication, "infer_service_region_host", _infer_host)
    _extend(ServiceQuotasBackend, "get_service_quota", quota_patches.get)
    _extend(ServiceQuotasBackend, "list_aws_default_service_quotas", quota_patches.defaults)
