# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the EKS engine knows of a kind of object (`Resource`), and how it reads EKS's answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

View = dict[str, Any]

BUSY = frozenset({"CREATING", "UPDATING", "DELETING", "PENDING"})
# Nothing repairs these: the object has to be deleted and made again (_eks_remake says when).
BROKEN = frozenset({"CREATE_FAILED", "DELETE_FAILED", "FAILED"})


@dataclass(frozen=True)
class Call:
    """One API call on an object: boto3's method and what it takes beside the identity.

    cluster_param: where the operation calls the cluster otherwise than describe does.
    """

    operation: str
    params: dict[str, Any]
    cluster_param: str | None = None


def _nothing(*_args: Any) -> list[Call]:
    return []


@dataclass(frozen=True)
class Resource:
    """What the engine has to know of one kind of EKS object.

    member: the answer's member and the end of describe_, create_ and delete_.
    view(raw): the object in the shape of the module's options; facts(raw): the module's result.
    defaults(desired): with what creation needs beside it, or refused; request(of that): CreateX's
    parameters; updates(before, changes, desired): the calls in order.
    adjust[field](before, wanted): the value that counts as wanted, given what is there.
    accepts(raw, desired): why a state other than ACTIVE will do, or "".
    refuse(before, changes, wanted) raises InvalidInput; follow_up(desired): calls after creation.
    list_name(item of ListX): its name. Where EKS numbers the objects, locate(client, cluster, name)
    is the number or None, and create_identity(name) what CreateX takes in place of it.
    immutable[field]: what would have to be replaced. unseen: options that describe does not tell.
    """

    kind: str
    member: str
    name_param: str
    view: Callable[[Any], View]
    facts: Callable[[Any], dict[str, Any]]
    placeholder: Callable[[str, str, View], dict[str, Any]]
    request: Callable[[View], dict[str, Any]]
    updates: Callable[[View, View, View], list[Call]]
    arn_member: str
    list_operation: str = ""
    list_member: str = ""
    list_name: Callable[[Any], str] = str
    answer_member: str = ""
    locate: Callable[[Any, str, str], str | None] | None = None
    create_identity: Callable[[str], dict[str, str]] | None = None
    scope_param: str | None = "clusterName"
    immutable: Mapping[str, str] = field(default_factory=dict)
    unseen: frozenset[str] = frozenset()
    adjust: Mapping[str, Callable[[View, View], Any]] = field(default_factory=dict)
    defaults: Callable[[View], View] = lambda desired: desired
    refuse: Callable[[View, View, View], None] = lambda before, changes, wanted: None
    guard_delete: Callable[[Any], None] = lambda raw: None
    follow_up: Callable[[View], list[Call]] = _nothing
    complete: Callable[[Any, dict[str, Any], Any], Any] = lambda client, identity, raw: raw
    accepts: Callable[[Any, View], str] = lambda raw, desired: ""
    must_be_good: bool = False
    has_states: bool = True


def status(raw: Any) -> str | None:
    return raw.get("status") if raw else None


def issues(raw: Any) -> str:
    """EKS's own reasons: "AsgInstanceLaunchFailures: ... (i-1, i-2)"."""
    issues = ((raw or {}).get("health") or {}).get("issues") or []
    return "; ".join(
        f"{issue.get('code')}: {issue.get('message')}"
        + (f" ({', '.join(issue['resourceIds'])})" if issue.get("resourceIds") else "")
        for issue in issues
    )


def describe(raw: Any) -> str:
    if raw is None:
        return "absent"
    reasons = issues(raw)
    return f"{status(raw)} ({reasons})" if reasons else str(status(raw))


def update_errors(update: dict[str, Any]) -> str:
    errors = "; ".join(
        f"{error.get('errorCode')}: {error.get('errorMessage')}"
        for error in update.get("errors") or []
    )
    return f"{update['status']}: {errors or 'EKS gives no reason'}"


def tag_calls(before: Mapping[str, str], after: Mapping[str, str]) -> list[Call]:
    """Only the tags that differ are written; AWS's own (aws:*) never get here."""
    changed = {key: value for key, value in after.items() if before.get(key) != value}
    gone = sorted(key for key in before if key not in after)
    calls = [Call("tag_resource", {"tags": changed})] if changed else []
    return calls + ([Call("untag_resource", {"tagKeys": gone})] if gone else [])
