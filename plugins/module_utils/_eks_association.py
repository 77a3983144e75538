# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An EKS Pod Identity association as data for the engine.

EKS numbers them; to people one is a service account in a namespace: "namespace/service_account".
"""

from __future__ import annotations

import json
import re
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._aws import given, own_tags
from ansible_collections.gpushare.eks.plugins.module_utils._eks_base import Call, Resource, View
from ansible_collections.gpushare.eks.plugins.module_utils._errors import Conflict, InvalidInput
from ansible_collections.gpushare.eks.plugins.module_utils._pool_names import CLUSTER_TAG

_ROLE = re.compile(r"arn:[\w-]+:iam::\d{12}:role/\S+")
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_NAMESPACE = re.compile(_LABEL)
_ACCOUNT = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")
# Our option, and EKS's word for it in CreateX and UpdateX alike.
_API = {
    "role_arn": "roleArn",
    "target_role_arn": "targetRoleArn",
    "disable_session_tags": "disableSessionTags",
    "policy": "policy",
}


def name_of(option: dict[str, Any]) -> str:
    return f"{option['namespace']}/{option['service_account']}"


def desired(option: dict[str, Any], cluster_name: str) -> View:
    """The view that one item of the option `associations` asks for."""
    name = name_of(option)
    for field, rule in (("namespace", _NAMESPACE), ("service_account", _ACCOUNT)):
        if not rule.fullmatch(option[field]):
            raise _invalid(
                f"Association {name}: {option[field]!r} is no name of a "
                f"{field.replace('_', ' ')} in Kubernetes",
                field,
                option[field],
                "write it in lower-case letters, digits and dashes",
            )
    if not option.get("role_arn"):
        raise _invalid(
            f"Association {name} has no role_arn", "role_arn", "", "give the IAM role of its pods"
        )
    for field in ("role_arn", "target_role_arn"):
        if option.get(field) and not _ROLE.fullmatch(option[field]):
            raise _invalid(
                f"Association {name}: {field} {option[field]!r} is no IAM role",
                field,
                option[field],
                "give the ARN of an IAM role: arn:<partition>:iam::<account>:role/<name>",
            )
    hidden = ("name", "namespace", "service_account", "policy")
    wanted = given({k: v for k, v in option.items() if k not in hidden})
    if option.get("policy") is not None:
        # As the API will give it back: what is in the policy keeps its types.
        wanted["policy"] = json.loads(json.dumps(option["policy"]))
    wanted["tags"] = {**own_tags(wanted.get("tags")), CLUSTER_TAG: cluster_name}
    return wanted


def _invalid(message: str, field: str, value: Any, remedy: str) -> InvalidInput:
    return InvalidInput(message, remedy=remedy, field=field, value=value)


def locate(client: Any, cluster_name: str, name: str) -> str | None:
    """EKS's number of the association of a service account, or None where it has none."""
    namespace, _slash, account = name.partition("/")
    pages = client.get_paginator("list_pod_identity_associations").paginate(
        clusterName=cluster_name, namespace=namespace, serviceAccount=account
    )
    found = [row["associationId"] for page in pages for row in page["associations"]]
    return found[0] if found else None


def list_name(row: dict[str, Any]) -> str:
    return f"{row['namespace']}/{row['serviceAccount']}"


def create_identity(name: str) -> dict[str, str]:
    namespace, _slash, account = name.partition("/")
    return {"namespace": namespace, "serviceAccount": account}


def view(raw: dict[str, Any]) -> View:
    return {
        "role_arn": raw.get("roleArn") or "",
        "target_role_arn": raw.get("targetRoleArn") or "",
        "disable_session_tags": bool(raw.get("disableSessionTags")),
        "policy": json.loads(raw["policy"]) if raw.get("policy") else {},
        # The add-on whose association it is; empty for one of our own.
        "owner_arn": raw.get("ownerArn") or "",
        "tags": own_tags(raw.get("tags")),
    }


def facts(raw: dict[str, Any]) -> dict[str, Any]:
    return {
        "exists": True,
        "namespace": raw["namespace"],
        "service_account": raw["serviceAccount"],
        "cluster_name": raw["clusterName"],
        "arn": raw["associationArn"],
        "id": raw["associationId"],
        "external_id": raw.get("externalId") or "",
        **view(raw),
    }


def placeholder(name: str, cluster_name: str, wanted: View) -> dict[str, Any]:
    absent = {"clusterName": cluster_name, "associationArn": "", "associationId": ""}
    return {**facts({**absent, **create_identity(name)}), **wanted, "exists": False}


def _params(values: View) -> dict[str, Any]:
    """EKS's parameters of these values; the policy goes as text."""
    shown = dict(values)
    if "policy" in shown:
        shown["policy"] = json.dumps(shown["policy"], sort_keys=True, separators=(",", ":"))
    return {api: shown[ours] for ours, api in _API.items() if ours in shown}


def request(full: View) -> dict[str, Any]:
    return {**_params({k: v for k, v in full.items() if v}), "tags": full["tags"]}


def defaults(wanted: View) -> View:
    _check_policy(wanted)
    return wanted


def updates(_before: View, changes: View, _wanted: View) -> list[Call]:
    params = _params(changes)
    return [Call("update_pod_identity_association", params)] if params else []


def refuse(before: View, changes: View, _wanted: View) -> None:
    if before["owner_arn"] and set(_API) & set(changes):
        raise _owned(before["owner_arn"])
    _check_policy({**before, **changes})
    for field in ("target_role_arn", "policy"):
        if field in changes and not changes[field]:
            raise InvalidInput(
                f"{field} cannot be taken away from an association",
                cause="EKS has a call that replaces it, and none that removes it",
                remedy="remove the association with state: absent and make it anew without it",
                field=field,
                before=before[field],
                wanted=changes[field],
            )


def _check_policy(after: View) -> None:
    if after.get("policy") and not after.get("disable_session_tags"):
        raise _invalid(
            "policy needs disable_session_tags: true, because EKS takes no policy beside its tags",
            "disable_session_tags",
            after.get("disable_session_tags"),
            "set disable_session_tags to true, or leave policy out",
        )


def _owned(owner: str) -> Conflict:
    return Conflict(
        f"The association belongs to the add-on {owner}",
        object=owner,
        cause="EKS changes and deletes it with its add-on only",
        remedy="change it at the add-on, or leave it out here",
    )


def guard_delete(raw: dict[str, Any]) -> None:
    if raw.get("ownerArn"):
        raise _owned(raw["ownerArn"])


RESOURCE = Resource(
    kind="pod identity association",
    member="pod_identity_association",
    answer_member="association",
    name_param="associationId",
    list_operation="list_pod_identity_associations",
    list_member="associations",
    list_name=list_name,
    locate=locate,
    create_identity=create_identity,
    view=view,
    facts=facts,
    placeholder=placeholder,
    request=request,
    defaults=defaults,
    updates=updates,
    refuse=refuse,
    guard_delete=guard_delete,
    arn_member="associationArn",
    has_states=False,
)
