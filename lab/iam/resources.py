"""The ARN of what a call names, and its tags, as moto and our EKS know them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moto.autoscaling.models import autoscaling_backends
from moto.ec2.models import ec2_backends
from moto.ec2.utils import EC2_PREFIX_TO_RESOURCE, get_prefix
from moto.elb.models import elb_backends
from moto.elbv2.models import elbv2_backends
from moto.iam.models import iam_backends
from moto.kms.models import kms_backends
from moto.logs.models import logs_backends
from moto.ssm.models import ssm_backends

from lab import LabError
from lab.aws import Context
from lab.aws.eks_state import Registry

# EC2's words for what moto calls otherwise; what is Amazon's carries no account in its ARN.
_EC2_KINDS = {
    "vpc-elastic-ip": "elastic-ip",
    "nat-gateway": "natgateway",
    "flow-logs": "vpc-flow-log",
}
_WITHOUT_ACCOUNT = ("image", "snapshot")


def find_role(iam: Any, name: str) -> Any | None:
    """moto's role of this name; its own look-up raises."""
    return next((role for role in list(iam.roles.values()) if role.name == name), None)


class Resources:
    """Where one call looks: its account, region and partition."""

    def __init__(self, context: Context, registry: Registry | None = None) -> None:
        self.context, self.registry = context, registry

    def arn(self, service: str, path: str, *, region: bool = True, account: bool = True) -> str:
        where = self.context.region if region else ""
        owner = self.context.account_id if account else ""
        return f"arn:{self.context.partition}:{service}:{where}:{owner}:{path}"

    # -- EC2 ------------------------------------------------------------------------------------

    def ec2(self, kind: str, identity: str) -> str:
        return self.arn("ec2", f"{kind}/{identity}", account=kind not in _WITHOUT_ACCOUNT)

    def ec2_kind(self, identity: str) -> str:
        """The kind that the prefix of an ID tells."""
        kind = EC2_PREFIX_TO_RESOURCE.get(get_prefix(identity), "")
        if not kind:
            raise LabError(f"the lab does not know what {identity} is")
        return _EC2_KINDS.get(kind, kind)

    @property
    def _ec2(self) -> Any:
        return ec2_backends[self.context.account_id][self.context.region]

    def ec2_tags(self, identity: str) -> dict[str, str]:
        return dict(self._ec2.tags.get(identity) or {})

    def template(self, given: Mapping[str, str]) -> Any | None:
        """moto's launch template by {"id"} or {"name"}."""
        identity = given.get("id") or self._ec2.launch_template_name_to_ids.get(given.get("name"))
        return self._ec2.launch_templates.get(identity)

    def route_tables_of(self, association: str) -> list[tuple[str, str]]:
        """(kind, ID) of the route table and subnet that an association joins."""
        for table in list(self._ec2.route_tables.values()):
            if subnet := table._associations.get(association):
                return [("route-table", table.id), ("subnet", subnet)]
        return []

    # -- IAM ------------------------------------------------------------------------------------

    def role(self, name: str, path: str = "/") -> tuple[str, Any | None]:
        """(ARN, moto's role); one that is not there has the path that the call names."""
        role = find_role(iam_backends[self.context.account_id][self.context.partition], name)
        path = role.path if role else path
        return self.arn("iam", f"role{path}{name}", region=False), role

    def provider_tags(self, arn: str) -> dict[str, str]:
        """The tags of an OIDC provider."""
        iam = iam_backends[self.context.account_id][self.context.partition]
        found = iam.open_id_providers.get(arn)
        return {tag["Key"]: tag["Value"] for tag in found.tags.values()} if found else {}

    # -- the others -----------------------------------------------------------------------------

    def key(self, identity: str) -> tuple[str, dict[str, str]]:
        """(ARN, tags) of a key by its ID, ARN or alias."""
        backend = kms_backends[self.context.account_id][self.context.region]
        name = backend.get_alias_name(identity)
        number = backend.get_key_id_from_alias(name) if name.startswith("alias/") else name
        # An alias of nothing: KMS itself says so to whoever may ask for any key.
        number = backend.get_key_id(number) if number else "*"
        tags = backend.tagger.get_tag_dict_for_resource(number) if number in backend.keys else {}
        return self.arn("kms", f"key/{number}"), tags

    def log_group(self, name: str) -> tuple[str, dict[str, str]]:
        backend = logs_backends[self.context.account_id][self.context.region]
        arn = self.arn("logs", f"log-group:{name}")
        return arn, backend.tagger.get_tag_dict_for_resource(arn)

    def document(self, name: str) -> tuple[str, dict[str, str]]:
        """Amazon's own documents have no account in their ARN."""
        backend = ssm_backends[self.context.account_id][self.context.region]
        arn = self.arn("ssm", f"document/{name}", account=not name.startswith(("AWS-", "Amazon")))
        return arn, dict(backend._resource_tags["Document"].get(name) or {})

    def parameter(self, name: str) -> str:
        public = name.startswith("/aws/service/")
        return self.arn("ssm", f"parameter/{name.removeprefix('/')}", account=not public)

    def group(self, name: str) -> tuple[str, dict[str, str]]:
        """(ARN, tags) of an Auto Scaling group."""
        backend = autoscaling_backends[self.context.account_id][self.context.region]
        group = backend.autoscaling_groups.get(name)
        tags = {tag["Key"]: tag.get("Value") or "" for tag in (group.tags if group else [])}
        tail = f"autoScalingGroupName/{name}"
        return group.arn if group else self.arn("autoscaling", f"autoScalingGroup:*:{tail}"), tags

    def balancer(self, arn: str, name: str = "") -> tuple[str, dict[str, str]]:
        """(ARN, tags) of a load balancer or target group by its ARN, or a classic one by name."""
        where = self.context.account_id, self.context.region
        if not arn:
            found = elb_backends[where[0]][where[1]].load_balancers.get(name)
            return self.arn("elasticloadbalancing", f"loadbalancer/{name}"), dict(
                found.tags if found else {}
            )
        tags = elbv2_backends[where[0]][where[1]].tagging_service.get_tag_dict_for_resource(arn)
        return arn, tags

    # -- EKS ------------------------------------------------------------------------------------

    def eks(self, kind: str, cluster_name: str, name: str = "") -> tuple[str, dict[str, str]]:
        """(ARN, tags); of what is not there the ARN ends in *, for only EKS numbers it."""
        cluster = self.registry.clusters.get(cluster_name) if self.registry else None
        if kind == "cluster":
            tags = cluster.record.get("tags", {}) if cluster else {}
            return self.arn("eks", f"cluster/{cluster_name}"), tags
        found: Mapping[str, Any] | None = None
        if cluster and kind == "access-entry":
            found = (cluster.access_entries.get(name) or {}).get("entry")
        elif cluster:
            rows = {
                "nodegroup": cluster.nodegroups,
                "addon": cluster.addons,
                "podidentityassociation": cluster.associations,
            }[kind]
            found = rows.get(name)
        if found:
            members = ("nodegroupArn", "addonArn", "accessEntryArn", "associationArn")
            arn = next(found[member] for member in members if member in found)
            return arn, found.get("tags", {})
        if kind == "access-entry" and name.startswith("arn:"):
            of, _, tail = name.split(":", 5)[5].partition("/")
            name = f"{of}/{name.split(':')[4]}/{tail.rsplit('/', 1)[-1]}"
        tail = name if kind == "podidentityassociation" else f"{name}/*"
        return self.arn("eks", f"{kind}/{cluster_name}/{tail}"), {}

    def eks_tags(self, arn: str) -> dict[str, str]:
        """The tags of any EKS object by its ARN."""
        from lab.aws.eks import tagged

        for cluster in list(self.registry.clusters.values()) if self.registry else []:
            if (record := tagged(cluster, arn)) is not None:
                return record.get("tags", {})
        return {}
