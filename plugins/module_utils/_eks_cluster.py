# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An EKS cluster as data for the engine: its shape, what changes how, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._aws import own_tags
from ansible_collections.gpushare.eks.plugins.module_utils._eks_base import (
    Call,
    Resource,
    View,
    issues,
)
from ansible_collections.gpushare.eks.plugins.module_utils._eks_upgrade import Upgrade, check_step
from ansible_collections.gpushare.eks.plugins.module_utils._errors import Conflict, InvalidInput

LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")
# authenticationMode goes one way only.
_MODES = ("CONFIG_MAP", "API_AND_CONFIG_MAP", "API")
_REPLACE = "delete the cluster with everything in it and create it anew, or keep the value it has"
_UNPROTECTED = ("CREATING", "FAILED", "DELETING")
_ENDPOINT = ("endpoint_private_access", "endpoint_public_access", "public_access_cidrs")
_SETS = ("subnet_ids", "security_group_ids", "public_access_cidrs", "logging")


def desired(params: dict[str, Any]) -> View:
    """The view that the module's options ask for; lists that are sets are sorted."""
    fields = set(_OPTIONS) & set(params)
    wanted = {key: params[key] for key in fields if params[key] is not None}
    for key in _SETS:
        if key in wanted:
            wanted[key] = sorted(set(wanted[key]))
    if "tags" in wanted:
        wanted["tags"] = own_tags(wanted["tags"])
    if params.get("ignore_insights") and "version" in wanted:
        wanted["ignore_insights"] = True
    return wanted


def view(raw: dict[str, Any]) -> View:
    vpc = raw.get("resourcesVpcConfig") or {}
    enabled = [
        kind
        for setup in (raw.get("logging") or {}).get("clusterLogging") or []
        if setup.get("enabled")
        for kind in setup.get("types") or []
    ]
    keys = [config["provider"]["keyArn"] for config in raw.get("encryptionConfig") or []]
    return {
        "version": raw.get("version", ""),
        "role_arn": raw.get("roleArn", ""),
        "subnet_ids": sorted(vpc.get("subnetIds") or []),
        "security_group_ids": sorted(vpc.get("securityGroupIds") or []),
        "endpoint_private_access": bool(vpc.get("endpointPrivateAccess")),
        "endpoint_public_access": bool(vpc.get("endpointPublicAccess")),
        "public_access_cidrs": sorted(vpc.get("publicAccessCidrs") or []),
        "encryption_key_arn": keys[0] if keys else "",
        "service_ipv4_cidr": (raw.get("kubernetesNetworkConfig") or {}).get("serviceIpv4Cidr", ""),
        "logging": sorted(enabled),
        "authentication_mode": (raw.get("accessConfig") or {}).get("authenticationMode", ""),
        "deletion_protection": bool(raw.get("deletionProtection")),
        "support_type": (raw.get("upgradePolicy") or {}).get("supportType", "").lower(),
        "tags": own_tags(raw.get("tags")),
    }


def facts(raw: dict[str, Any]) -> dict[str, Any]:
    vpc = raw.get("resourcesVpcConfig") or {}
    return {
        "exists": True,
        "name": raw["name"],
        "arn": raw["arn"],
        "status": raw["status"],
        # Empty while the cluster is CREATING.
        "endpoint": raw.get("endpoint") or "",
        "ca_data": (raw.get("certificateAuthority") or {}).get("data") or "",
        "oidc_issuer": ((raw.get("identity") or {}).get("oidc") or {}).get("issuer") or "",
        "security_group_id": vpc.get("clusterSecurityGroupId") or "",
        "vpc_id": vpc.get("vpcId") or "",
        "platform_version": raw.get("platformVersion") or "",
        "health_issues": issues(raw),
        **view(raw),
    }


def placeholder(name: str, _cluster: str, wanted: View) -> dict[str, Any]:
    """The shape of `facts` for a cluster that is not there, so that later templates still work."""
    # No partition of AWS is guessed for what is not there.
    role_arn = wanted.get("role_arn") or "arn:absent:iam::000000000000:role/none"
    partition, account = role_arn.split(":")[1], (role_arn.split(":") + [""] * 5)[4]
    return {
        **facts(
            {
                "name": name,
                "arn": f"arn:{partition}:eks:none:{account}:cluster/{name}",
                "status": "ABSENT",
                "endpoint": "https://absent.invalid",
                "certificateAuthority": {"data": "YWJzZW50"},
                "identity": {"oidc": {"issuer": "https://absent.invalid/id/ABSENT"}},
                "resourcesVpcConfig": {
                    "clusterSecurityGroupId": "sg-00000000000000000",
                    "vpcId": "vpc-00000000000000000",
                },
                "kubernetesNetworkConfig": {"serviceIpv4Cidr": "10.100.0.0/16"},
            }
        ),
        **{key: value for key, value in wanted.items() if key not in RESOURCE.unseen},
        "exists": False,
    }


def defaults(wanted: View) -> View:
    """The wanted view of a cluster to be made, with our safe defaults; refused where it is not.

    EKS's own defaults would open the endpoint to 0.0.0.0/0 and leave the private one off.
    """
    full = {
        "endpoint_private_access": True,
        "endpoint_public_access": False,
        "authentication_mode": "API",
        **wanted,
    }
    for key in ("role_arn", "subnet_ids"):
        if not full.get(key):
            raise InvalidInput(
                f"A new cluster needs {key}", remedy=f"give {key}", field=key, allowed="not empty"
            )
    _check_endpoint(full)
    _check_open(full)
    return full


def _check_open(full: View) -> None:
    if full["endpoint_public_access"] and not full.get("public_access_cidrs"):
        raise InvalidInput(
            "endpoint_public_access is true without public_access_cidrs: EKS would open the "
            "endpoint to the whole internet",
            remedy="name the networks in public_access_cidrs; 0.0.0.0/0 only if you mean it",
            field="public_access_cidrs",
            allowed="a list of CIDRs",
        )


def _check_endpoint(endpoint: View) -> None:
    if not (endpoint["endpoint_private_access"] or endpoint["endpoint_public_access"]):
        raise InvalidInput(
            "endpoint_private_access and endpoint_public_access are both false: nobody could reach "
            "the API server",
            remedy="set one of them to true",
            field="endpoint_private_access",
            allowed=[True],
        )


def request(full: View) -> dict[str, Any]:
    vpc = {
        "subnetIds": full["subnet_ids"],
        "securityGroupIds": full.get("security_group_ids", []),
        **_endpoint(full),
    }
    access: dict[str, Any] = {"authenticationMode": full["authentication_mode"]}
    if "bootstrap_cluster_creator_admin" in full:
        access["bootstrapClusterCreatorAdminPermissions"] = full["bootstrap_cluster_creator_admin"]
    optional = {
        "version": full.get("version"),
        "encryptionConfig": _encryption(full.get("encryption_key_arn")),
        "kubernetesNetworkConfig": {"serviceIpv4Cidr": full["service_ipv4_cidr"]}
        if full.get("service_ipv4_cidr")
        else None,
        "logging": _logging(full["logging"]) if full.get("logging") else None,
        "upgradePolicy": {"supportType": full["support_type"].upper()}
        if full.get("support_type")
        else None,
        "deletionProtection": full.get("deletion_protection"),
        "tags": full.get("tags"),
    }
    return {
        "roleArn": full["role_arn"],
        "resourcesVpcConfig": vpc,
        "accessConfig": access,
        **{key: value for key, value in optional.items() if value is not None},
    }


def updates(before: View, changes: View, desired: View) -> list[Call]:
    """One call per kind of change: EKS takes only one kind at a time. The version comes last."""
    after = {**before, **changes}
    calls = []

    def config(**params: Any) -> None:
        calls.append(Call("update_cluster_config", params))

    if {"subnet_ids", "security_group_ids"} & set(changes):
        config(
            resourcesVpcConfig={
                "subnetIds": after["subnet_ids"],
                "securityGroupIds": after["security_group_ids"],
            }
        )
    if set(_ENDPOINT) & set(changes):
        config(resourcesVpcConfig=_endpoint(after))
    if "logging" in changes:
        config(logging=_logging(after["logging"]))
    if "authentication_mode" in changes:
        config(accessConfig={"authenticationMode": after["authentication_mode"]})
    if "support_type" in changes:
        config(upgradePolicy={"supportType": after["support_type"].upper()})
    if "deletion_protection" in changes:
        config(deletionProtection=after["deletion_protection"])
    if "encryption_key_arn" in changes:
        calls.append(
            Call(
                "associate_encryption_config",
                {"encryptionConfig": _encryption(after["encryption_key_arn"])},
                cluster_param="clusterName",
            )
        )
    if "version" in changes:
        # Without force EKS looks at its insights itself, too.
        force = {"force": True} if desired.get("ignore_insights") else {}
        calls.append(Call("update_cluster_version", {"version": after["version"], **force}))
    return calls


def _endpoint(endpoint: View) -> dict[str, Any]:
    params = {
        "endpointPrivateAccess": endpoint["endpoint_private_access"],
        "endpointPublicAccess": endpoint["endpoint_public_access"],
    }
    if endpoint["endpoint_public_access"]:
        params["publicAccessCidrs"] = endpoint["public_access_cidrs"]
    return params


def _encryption(key_arn: str | None) -> list[dict[str, Any]] | None:
    return [{"resources": ["secrets"], "provider": {"keyArn": key_arn}}] if key_arn else None


def _logging(enabled: list[str]) -> dict[str, Any]:
    disabled = [kind for kind in LOG_TYPES if kind not in enabled]
    rows = [{"types": sorted(enabled), "enabled": True}, {"types": disabled, "enabled": False}]
    return {"clusterLogging": [row for row in rows if row["types"]]}


def refuse(before: View, changes: View, wanted: View) -> None:
    """What EKS would refuse, or should: with the field, both values and the way to go."""
    after = {**before, **changes}
    if set(_ENDPOINT) & set(changes):
        _check_endpoint(after)
        if "endpoint_public_access" in changes or not after["public_access_cidrs"]:
            # What EKS remembers of a closed endpoint is 0.0.0.0/0: opening it needs a new list.
            _check_open({**after, "public_access_cidrs": wanted.get("public_access_cidrs")})
    if "version" in changes:
        check_step(before["version"], changes["version"])
    if "encryption_key_arn" in changes and (
        before["encryption_key_arn"] or not changes["encryption_key_arn"]
    ):
        raise _frozen("encryption_key_arn", before, changes, _REPLACE)
    if "authentication_mode" in changes:
        old, new = before["authentication_mode"], changes["authentication_mode"]
        if old in _MODES and _MODES.index(new) < _MODES.index(old):
            raise _frozen(
                "authentication_mode", before, changes, f"leave it at {old}: EKS never turns back"
            )


def _frozen(field: str, before: View, changes: View, remedy: str) -> InvalidInput:
    return InvalidInput(
        f"{field} cannot change from {before[field]!r} to {changes[field]!r}",
        remedy=remedy,
        field=field,
        before=before[field],
        wanted=changes[field],
    )


def _guard_delete(raw: dict[str, Any]) -> None:
    # AWS deletes a cluster in these states in spite of the protection, and cannot take it off:
    # https://docs.aws.amazon.com/eks/latest/userguide/deletion-protection.html
    if raw.get("deletionProtection") and raw.get("status") not in _UNPROTECTED:
        raise Conflict(
            f"EKS cluster {raw['name']} is protected from deletion",
            object=raw["name"],
            cause="deletion_protection is on",
            remedy="run once with deletion_protection: false, then delete it",
            field="deletion_protection",
        )


def _adjust_cidrs(before: View, wanted: View) -> list[str]:
    # Without a public endpoint the list says nothing, and EKS answers its default.
    public = wanted.get("endpoint_public_access", before["endpoint_public_access"])
    return wanted["public_access_cidrs"] if public else before["public_access_cidrs"]


_OPTIONS = (
    "version", "role_arn", "subnet_ids", "security_group_ids", "endpoint_private_access",
    "endpoint_public_access", "public_access_cidrs", "encryption_key_arn", "service_ipv4_cidr",
    "logging", "authentication_mode", "bootstrap_cluster_creator_admin", "deletion_protection",
    "support_type", "tags",
)  # fmt: skip

RESOURCE = Resource(
    kind="cluster",
    member="cluster",
    name_param="name",
    scope_param=None,
    view=view,
    facts=facts,
    placeholder=placeholder,
    request=request,
    updates=updates,
    arn_member="arn",
    immutable={"role_arn": _REPLACE, "service_ipv4_cidr": _REPLACE},
    unseen=frozenset({"bootstrap_cluster_creator_admin", "ignore_insights"}),
    adjust={"public_access_cidrs": _adjust_cidrs},
    defaults=defaults,
    refuse=refuse,
    guard_delete=_guard_delete,
)


def resource(upgrade: Upgrade) -> Resource:
    """The resource for one run: what stands against an upgrade is read only where one is wanted."""

    def refuse_upgrade(before: View, changes: View, wanted: View) -> None:
        refuse(before, changes, wanted)
        if "version" in changes:
            upgrade.check(changes["version"])

    return replace(RESOURCE, refuse=refuse_upgrade)
