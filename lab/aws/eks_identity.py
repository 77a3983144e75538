"""Who a caller of AWS is to the API server, by the cluster's access entries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def group_of(principal: str) -> str:
    """The Kubernetes group that an access entry's policies are bound to."""
    return f"eks-access-entry:{principal}"


def canonical(principal: str) -> str:
    """The IAM ARN of a caller: a session of a role counts as the role."""
    match = re.fullmatch(r"arn:(aws[\w-]*):sts::(\d{12}):assumed-role/([^/]+)/.+", principal)
    return f"arn:{match[1]}:iam::{match[2]}:role/{match[3]}" if match else principal


def _same(entry_arn: str, principal: str) -> bool:
    """STS leaves a role's path out of a session's ARN, so roles compare by their last part."""
    if entry_arn == principal:
        return True
    head, _, name = entry_arn.partition(":role/")
    return bool(name) and f"{head}:role/{name.rsplit('/', 1)[-1]}" == principal


def identify(entries: Mapping[str, Any], principal_arn: str) -> dict[str, Any] | None:
    """{"username", "groups"} for the API server, or None where the principal has no entry."""
    principal = canonical(principal_arn)
    session = principal_arn.rsplit("/", 1)[-1]
    for entry_arn, stored in list(entries.items()):
        if _same(entry_arn, principal):
            entry = stored["entry"]
            username = entry["username"].replace("{{SessionName}}", session.replace("@", "-"))
            username = username.replace("{{EC2PrivateDNSName}}", session)
            return {
                "username": username,
                "groups": [*entry["kubernetesGroups"], group_of(entry_arn)],
            }
    return None
