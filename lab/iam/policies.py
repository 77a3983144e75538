"""Policy documents, and the verdict on one action: an explicit deny first, then who has to allow.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from lab import LabError
from lab.iam import conditions

_KEYS = {
    *("Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Condition"),
}


@dataclass(frozen=True)
class Need:
    """One permission that a call wants: the action, on what, and what conditions can look at."""

    action: str
    resource: str = "*"
    context: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Statement:
    """One statement with its lists as tuples."""

    allow: bool
    actions: tuple[str, ...]
    but_actions: tuple[str, ...]
    resources: tuple[str, ...]
    but_resources: tuple[str, ...]
    condition: Mapping[str, Mapping[str, Any]]

    def applies(self, need: Need, context: conditions.Context) -> bool:
        """Whether it says anything of this need."""
        if self.actions:
            if not _any_action(self.actions, need.action):
                return False
        elif _any_action(self.but_actions, need.action):
            return False
        if self.resources:
            if not _any_resource(self.resources, need.resource, context):
                return False
        elif _any_resource(self.but_resources, need.resource, context):
            return False
        return conditions.hold(self.condition, context)

    @property
    def everything(self) -> bool:
        """Whether it allows every action on everything."""
        return self.allow and "*" in self.actions and "*" in self.resources and not self.condition


@dataclass(frozen=True)
class Grants:
    """All that decides what a principal may: its policies, its boundary, its session's policies."""

    identity: Sequence[Sequence[Statement]]
    boundary: Sequence[Statement] | None = None
    session: Sequence[Sequence[Statement]] | None = None

    @property
    def everything(self) -> bool:
        """Whether no verdict can be other than yes: an administrator without bounds."""
        if self.boundary is not None or self.session is not None:
            return False
        statements = [one for policy in self.identity for one in policy]
        return all(one.allow for one in statements) and any(one.everything for one in statements)


def _any_action(patterns: Sequence[str], action: str) -> bool:
    return any(conditions.like(pattern, action, any_case=True) for pattern in patterns)


def _any_resource(patterns: Sequence[str], resource: str, context: conditions.Context) -> bool:
    for pattern in patterns:
        filled = conditions.fill(pattern, context)
        if filled is None:
            continue
        # Where an action takes no resource, only * covers it.
        if filled == "*" or (resource != "*" and conditions.arn_like(filled, resource)):
            return True
    return False


def parse(document: str | Mapping[str, Any]) -> tuple[Statement, ...]:
    """The statements of an identity-based policy; LabError for what such a policy cannot say."""
    if isinstance(document, str):
        return _parse_text(document)
    given = document.get("Statement", [])
    return tuple(_statement(one) for one in ([given] if isinstance(given, Mapping) else given))


@lru_cache(maxsize=512)
def _parse_text(text: str) -> tuple[Statement, ...]:
    return parse(json.loads(text))


def _statement(given: Mapping[str, Any]) -> Statement:
    if unknown := set(given) - _KEYS:
        raise LabError(f"an identity-based policy has no {', '.join(sorted(unknown))}")
    if given.get("Effect") not in ("Allow", "Deny"):
        raise LabError(f"the effect {given.get('Effect')!r} is neither Allow nor Deny")
    for one, other in (("Action", "NotAction"), ("Resource", "NotResource")):
        if (one in given) == (other in given):
            raise LabError(f"a statement has either {one} or {other}: {dict(given)}")
    lists = {
        key: tuple(conditions.texts(given.get(key, ())))
        for key in ("Action", "NotAction", "Resource", "NotResource")
    }
    return Statement(
        given["Effect"] == "Allow",
        lists["Action"],
        lists["NotAction"],
        lists["Resource"],
        lists["NotResource"],
        given.get("Condition", {}),
    )


def verdict(need: Need, grants: Grants, caller: Mapping[str, Any]) -> str | None:
    """None where it is allowed, else AWS's reason; `caller` are the keys of the principal."""
    context = {
        key.lower(): conditions.texts(value) if isinstance(value, (list, tuple)) else str(value)
        for key, value in {**caller, **need.context}.items()
    }

    def says(statements: Sequence[Statement], allow: bool) -> bool:
        return any(one.allow == allow and one.applies(need, context) for one in statements)

    layers: list[tuple[str, str, Sequence[Statement]]] = [
        (
            "an identity-based policy",
            "no identity-based policy",
            [one for policy in grants.identity for one in policy],
        )
    ]
    if grants.boundary is not None:
        layers.append(("a permissions boundary", "no permissions boundary", grants.boundary))
    if grants.session is not None:
        own = [one for policy in grants.session for one in policy]
        layers.append(("a session policy", "no session policy", own))
    for what, _, statements in layers:
        if says(statements, allow=False):
            return f"with an explicit deny in {what}"
    for _, none, statements in layers:
        if not says(statements, allow=True):
            return f"because {none} allows the {need.action} action"
    return None
