"""moto 5.2.5 where the roles' own modules meet it and AWS answers otherwise; applied at the start.

- images: tags on the snapshot too, and no second image of one name; keys: deletion by ARN;
- a presigned URL (an EKS token) is routed by the credential in its query, not to S3.

moto_patches, autoscaling_patches, quota_patches and those that are applied here hold the rest.
`apply` extends what is there, so its place among them is free.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.kms.models import KmsBackend
from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from moto.servicequotas.models import ServiceQuotasBackend

from lab.aws import elb_patches, endpoint_patches, network_patches, quota_patches

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
    _extend(ServiceQuotasBackend, "get_service_quota", quota_patches.get)
    _extend(ServiceQuotasBackend, "list_aws_default_service_quotas", quota_patches.defaults)
