# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An EKS access entry with its policies as data for the engine."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._aws import given, own_tags
from ansible_collections.gpushare.eks.plugins.module_utils._eks_base import Call, Resource, View
from ansible_collections.gpushare.eks.plugins.module_utils._errors import InvalidInput
from ansible_collections.gpushare.eks.plugins.module_utils._pool_names import CLUSTER_TAG

TYPES = (
    "STANDARD", "EC2_LINUX", "EC2_WINDOWS", "FARGATE_LINUX", "EC2", "HYBRID_LINUX",
    "HYPERPOD_LINUX",
)  # fmt: skip
_PRINCIPAL = re.compile(r"arn:([\w-]+):iam::\d{12}:(role|user)/\S+")


def desired(option: dict[str, Any], cluster_name: str) -> View:
    """The view that one item of the option `entries` asks for; policies become ARNs."""
    principal = option["principal_arn"]
    match = _PRINCIPAL.fullmatch(principal)
    if not match:
        raise InvalidInput(
            f"principal_arn {principal!r} is no IAM role or user",
            remedy="give the ARN of the IAM role (not of a session of it) or user",
            field="principal_arn",
            value=principal,
            allowed="arn:<partition>:iam::<account>:role/<name> or user/<name>",
        )
    wanted = given({k: v for k, v in option.items() if k != "principal_arn"})
    if wanted.get("type", "STANDARD") != "STANDARD":
        surplus = [key for key in ("kubernetes_groups", "username") if wanted.get(key)]
        if surplus:
            raise InvalidInput(
                f"Access entry {principal}: type {wanted['type']} takes no {', '.join(surplus)}",
                remedy="leave them out, or use type STANDARD",
                field=surplus[0],
                value=wanted[surplus[0]],
            )
    if "kubernetes_groups" in wanted:
        wanted["kubernetes_groups"] = sorted(set(wanted["kubernetes_groups"]))
    if "policies" in wanted:
        wanted["policies"] = _sorted(_policy(principal, p, match[1]) for p in wanted["policies"])
    wanted["tags"] = {**own_tags(wanted.get("tags")), CLUSTER_TAG: cluster_name}
    return wanted


def _policy(principal: str, option: dict[str, Any], partition: str) -> dict[str, Any]:
    name, scope = option["policy"], option.get("scope") or "cluster"
    namespaces = sorted(set(option.get("namespaces") or []))
    if (scope == "namespace") != bool(namespaces):
        raise InvalidInput(
            f"Access entry {principal}: policy {name} has scope {scope} and namespaces "
            f"{namespaces}: the scope namespace needs namespaces, the scope cluster takes none",
            remedy="give namespaces exactly with scope: namespace",
            field="policies.namespaces",
            value=namespaces,
        )
    arn = name
    if not name.startswith("arn:"):
        arn = f"arn:{partition}:eks::aws:cluster-access-policy/{name}"
    return {"policy": arn, "scope": scope, "namespaces": namespaces}


def _sorted(policies: Any) -> list[dict[str, Any]]:
    return sorted(policies, key=lambda policy: policy["policy"])


def complete(client: Any, identity: dict[str, Any], raw: dict[str, Any]) -> dict[str, Any]:
    """An entry does not tell its policies: they are a list of their own."""
    pages = client.get_paginator("list_associated_access_policies").paginate(**identity)
    policies = [policy for page in pages for policy in page["associatedAccessPolicies"]]
    return {**raw, "associatedAccessPolicies": policies}


def view(raw: dict[str, Any]) -> View:
    return {
        "type": raw.get("type") or "",
        "kubernetes_groups": sorted(raw.get("kubernetesGroups") or []),
        "username": raw.get("username") or "",
        "policies": _sorted(
            {
                "policy": policy["policyArn"],
                "scope": policy["accessScope"]["type"],
                "namespaces": sorted(policy["accessScope"].get("namespaces") or []),
            }
            for policy in raw.get("associatedAccessPolicies") or []
        ),
        "tags": own_tags(raw.get("tags")),
    }


def facts(raw: dict[str, Any]) -> dict[str, Any]:
    return {
        "exists": True,
        "principal_arn": raw["principalArn"],
        "cluster_name": raw["clusterName"],
        "arn": raw["accessEntryArn"],
        **view(raw),
    }


def placeholder(name: str, cluster_name: str, wanted: View) -> dict[str, Any]:
    absent = {"principalArn": name, "clusterName": cluster_name, "accessEntryArn": ""}
    return {**facts(absent), **wanted, "exists": False}


def defaults(wanted: View) -> View:
    return {"type": "STANDARD", **wanted}


def request(full: View) -> dict[str, Any]:
    optional = {
        "kubernetesGroups": full.get("kubernetes_groups"),
        "username": full.get("username"),
        "tags": full.get("tags"),
    }
    return {"type": full["type"], **{key: value for key, value in optional.items() if value}}


def follow_up(wanted: View) -> list[Call]:
    return _policy_calls([], wanted.get("policies", []))


def updates(before: View, changes: View, _wanted: View) -> list[Call]:
    entry = {}
    if "kubernetes_groups" in changes:
        entry["kubernetesGroups"] = changes["kubernetes_groups"]
    if "username" in changes:
        entry["username"] = changes["username"]
    calls = [Call("update_access_entry", entry)] if entry else []
    if "policies" in changes:
        calls += _policy_calls(before["policies"], changes["policies"])
    return calls


def _policy_calls(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[Call]:
    """Associations first, so that a caller changing its own rights does not lose them between."""
    kept = {policy["policy"] for policy in new}
    calls = []
    for policy in new:
        if policy not in old:
            scope = {"type": policy["scope"]}
            if policy["namespaces"]:
                scope["namespaces"] = policy["namespaces"]
            params = {"policyArn": policy["policy"], "accessScope": scope}
            calls.append(Call("associate_access_policy", params))
    gone = [policy["policy"] for policy in old if policy["policy"] not in kept]
    return calls + [Call("disassociate_access_policy", {"policyArn": arn}) for arn in gone]


RESOURCE = Resource(
    kind="access entry",
    member="access_entry",
    name_param="principalArn",
    list_operation="list_access_entries",
    list_member="accessEntries",
    view=view,
    facts=facts,
    placeholder=placeholder,
    defaults=defaults,
    request=request,
    updates=updates,
    follow_up=follow_up,
    complete=complete,
    arn_member="accessEntryArn",
    immutable={"type": "remove the entry and make it anew with the other type"},
    has_states=False,
)
