"""moto 5.2.5 where the roles' own modules meet it and AWS answers otherwise; applied at the start.

- images: tags on the snapshot too, and no second image of one name; keys: deletion by ARN;
- a presigned URL (an EKS token) is routed by the credential in its query, not to S3;
- the EC2 vCPU quotas.

moto_patches, autoscaling_patches and those that are applied here hold the rest. `apply` extends
what is there, so its place among them is free.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.kms.models import KmsBackend
from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from moto.servicequotas.exceptions import NoSuchResource
from moto.servicequotas.models import ServiceQuotasBackend

from lab.aws import elb_patches, endpoint_patches, network_patches

# Code -> (name, vCPUs): running on-demand and spot requests, for GPU families and for all others.
# Names and codes: "Amazon EC2 endpoints and quotas" in the AWS General Reference. Values: room for
# the lab's fleets; a new account has less.
EC2_QUOTAS = {
    "L-DB2E81BA": ("Running On-Demand G and VT instances", 768.0),
    "L-3819A6DF": ("All G and VT Spot Instance Requests", 768.0),
    "L-1216C47A": (
        "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
        1152.0,
    ),
    "L-34B43A08": ("All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", 1152.0),
    "L-417A185B": ("Running On-Demand P instances", 192.0),
    "L-7212CCBC": ("All P4, P3 and P2 Spot Instance Requests", 192.0),
}
_applied = False


def _extend(owner: type, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]):
    setattr(owner, name, make(getattr(owner, name)))


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


def _get_quota(plain: Callable[..., Any]) -> Callable[..., Any]:
    def get(self: ServiceQuotasBackend, service_code: str, quota_code: str) -> dict[str, Any]:
        if service_code != "ec2":
            return plain(self, service_code, quota_code)
        if quota_code not in EC2_QUOTAS:
            raise NoSuchResource
        return _quota(self, quota_code)

    return get


def _default_quotas(plain: Callable[..., Any]) -> Callable[..., Any]:
    def defaults(self: ServiceQuotasBackend, service_code: str) -> list[dict[str, Any]]:
        if service_code != "ec2":
            return plain(self, service_code)
        return [_quota(self, code) for code in EC2_QUOTAS]

    return defaults


def _quota(backend: ServiceQuotasBackend, code: str) -> dict[str, Any]:
    name, value = EC2_QUOTAS[code]
    where = f"{backend.region_name}:{backend.account_id}"
    return {
        "ServiceCode": "ec2",
        "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
        "QuotaArn": f"arn:{backend.partition}:servicequotas:{where}:ec2/{code}",
        "QuotaCode": code,
        "QuotaName": name,
        "Value": value,
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }


def apply() -> None:
    """Put all of it in place, before the first request; a second call changes nothing."""
    global _applied
    if _applied:
        return
    _applied = True
    network_patches.apply()
    endpoint_patches.apply()
    elb_patches.apply()
    _extend(EC2Backend, "create_image", _create_image)
    _extend(KmsBackend, "schedule_key_deletion", _schedule_key_deletion)
    for operation in ("cancel_key_deletion", "enable_key", "disable_key"):
        _extend(KmsBackend, operation, _by_any_id)
    _extend(DomainDispatcherApplication, "infer_service_region_host", _infer_host)
    _extend(ServiceQuotasBackend, "get_service_quota", _get_quota)
    _extend(ServiceQuotasBackend, "list_aws_default_service_quotas", _default_quotas)
