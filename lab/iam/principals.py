"""Who calls, and all policies that bound them, out of moto's IAM and STS."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from moto.iam.models import iam_backends
from moto.sts.models import sts_backends

from lab.aws import ACCOUNT_ID
from lab.iam.policies import Grants, Statement, parse
from lab.iam.resources import find_role


@dataclass(frozen=True)
class Principal:
    """A user, or a session of a role: its ARN, its policies, and what conditions see of it."""

    arn: str
    grants: Grants
    keys: dict[str, Any]


def find(access_key: str, partition: str = "aws") -> Principal | None:
    """The holder of an access key; None for a key that nobody holds."""
    iam = iam_backends[ACCOUNT_ID][partition]
    for user in list(iam.users.values()):
        if any(key.access_key_id == access_key for key in user.access_keys):
            groups = [g for g in list(iam.groups.values()) if user in g.users]
            policies = [one for holder in (user, *groups) for one in _policies(holder)]
            keys = {"aws:PrincipalArn": user.arn, "aws:username": user.name}
            return Principal(user.arn, Grants(policies), {**_account(), **keys})
    for session in list(sts_backends[ACCOUNT_ID][partition].assumed_roles):
        if session.access_key_id == access_key:
            role = find_role(iam, session.role_arn.rsplit("/", 1)[-1])
            own = [parse(session.policy)] if session.policy else None
            grants = Grants(_policies(role), _boundary(iam, role), own) if role else Grants([])
            keys = {"aws:PrincipalArn": session.role_arn}
            for tag in (role.tags or []) if role else []:
                keys[f"aws:PrincipalTag/{tag['Key']}"] = tag["Value"]
            return Principal(session.arn, grants, {**_account(), **keys})
    return None


def _account() -> dict[str, str]:
    return {"aws:PrincipalAccount": ACCOUNT_ID}


def _text(document: Any) -> str:
    return document if isinstance(document, str) else json.dumps(document)


def _policies(holder: Any) -> list[tuple[Statement, ...]]:
    """Its attached and its inline policies."""
    attached = [_default(policy) for policy in list(holder.managed_policies.values())]
    return [parse(_text(text)) for text in [*attached, *list(holder.policies.values())]]


def _default(policy: Any) -> Any:
    """The document of a managed policy's default version."""
    versions = {version.version_id: version for version in policy.versions}
    return versions[policy.default_version_id].document


def _boundary(iam: Any, role: Any) -> tuple[Statement, ...] | None:
    arn = role.permissions_boundary_arn
    if not arn:
        return None
    policy = iam.managed_policies.get(arn)
    # A boundary that is gone leaves nothing.
    return parse(_text(_default(policy))) if policy else ()
