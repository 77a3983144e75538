"""Access entries and policies, and what they are in the real API server: RBAC.

EKS authorises by policies of its own; here every associated policy is a binding of one group per
entry, which the authenticator puts on the caller. A role's username holds the session's name, so
no binding could name the user itself.
"""

from __future__ import annotations

import copy
import hashlib
import re
import time
from typing import Any

from lab.aws import Context, ServiceError
from lab.aws.eks_identity import canonical, group_of
from lab.aws.eks_state import Cluster, Registry, arn

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
# EKS's policies and the ClusterRoles that grant the same; admin-view is made by `prepare`.
POLICIES = {
    "AmazonEKSClusterAdminPolicy": "cluster-admin",
    "AmazonEKSAdminPolicy": "admin",
    "AmazonEKSAdminViewPolicy": "eks:admin-view",
    "AmazonEKSEditPolicy": "edit",
    "AmazonEKSViewPolicy": "view",
}
_NODE_TYPES = ("EC2_LINUX", "EC2_WINDOWS", "FARGATE_LINUX", "EC2", "HYBRID_LINUX", "HYPERPOD_LINUX")
_PRINCIPAL = re.compile(r"arn:aws[\w-]*:iam::(\d{12}):(user|role)/(.+)")


def policy_arn(name: str, partition: str = "aws") -> str:
    return f"arn:{partition}:eks::aws:cluster-access-policy/{name}"


def prepare(cluster: Cluster) -> None:
    """The one ClusterRole that Kubernetes does not bring along."""
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}
    cluster.apply(
        f"{_RBAC}/clusterroles",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "eks:admin-view"},
            "rules": [rule],
        },
    )


def new_entry(cluster: Cluster, principal: str, **given: Any) -> dict[str, Any]:
    """Store an entry with EKS's own username where none is given."""
    match = _PRINCIPAL.fullmatch(principal)
    if match is None:
        raise ServiceError(
            "InvalidParameterException",
            f"The specified principalArn is invalid: {principal}",
            clusterName=cluster.name,
        )
    kind = given.get("type", "STANDARD")
    node, groups = kind in _NODE_TYPES, given.get("kubernetesGroups") or []
    if node and (groups or given.get("username")):
        raise ServiceError(
            "InvalidParameterException", f"an entry of type {kind} takes no groups and no username"
        )
    if any(group.startswith(("system:", "eks:", "aws:", "amazon:", "iam:")) for group in groups):
        raise ServiceError(
            "InvalidParameterException", "The kubernetes group name uses a reserved prefix"
        )
    if node:
        username, groups = "system:node:{{EC2PrivateDNSName}}", ["system:nodes"]
    elif match[2] == "role":
        role = match[3].rsplit("/", 1)[-1]
        partition = principal.split(":")[1]
        username = f"arn:{partition}:sts::{match[1]}:assumed-role/{role}/{{{{SessionName}}}}"
    else:
        username = principal
    number = hashlib.sha256(f"{cluster.name}{principal}".encode()).hexdigest()[:32]
    name = match[3].rsplit("/", 1)[-1]
    path = f"access-entry/{cluster.name}/{match[2]}/{match[1]}/{name}/{number}"
    entry = {
        "clusterName": cluster.name,
        "principalArn": principal,
        "kubernetesGroups": groups,
        "accessEntryArn": arn(cluster.context, path),
        "createdAt": time.time(),
        "modifiedAt": time.time(),
        "tags": given.get("tags", {}),
        "username": given.get("username") or username,
        "type": kind,
    }
    with cluster.lock:
        if principal in cluster.access_entries:
            raise ServiceError(
                "ResourceInUseException",
                "The specified access entry resource is already in use on this cluster.",
                clusterName=cluster.name,
            )
        cluster.access_entries[principal] = {"entry": entry, "policies": {}}
    return entry


def bootstrap(cluster: Cluster, creator: str) -> None:
    """The creator's entry, with cluster-admin."""
    principal = canonical(creator)
    new_entry(cluster, principal)
    _associate(
        cluster,
        principal,
        policy_arn("AmazonEKSClusterAdminPolicy", cluster.context.partition),
        {"type": "cluster", "namespaces": []},
    )


def _binding_name(principal: str, policy: str) -> str:
    return "eks-access-" + hashlib.sha256(f"{principal} {policy}".encode()).hexdigest()[:16]


def bind_waiting(cluster: Cluster) -> None:
    """Bind what waited for its namespace: EKS's own policies hold for namespaces to come, too."""
    for principal, stored in list(cluster.access_entries.items()):
        for policy, namespace in list(stored.get("waiting", ())):
            with cluster.lock:
                if _bind(cluster, principal, policy, namespace):
                    stored["waiting"].discard((policy, namespace))


def _bind(cluster: Cluster, principal: str, policy: str, namespace: str) -> bool:
    """Whether the binding is there: not yet, where its namespace is not."""
    there = f"/api/v1/namespaces/{namespace}"
    if namespace and cluster.kubernetes("GET", there, ok=(404,)) is None:
        return False
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    where = f"{_RBAC}/namespaces/{namespace}/rolebindings" if namespace else None
    role = POLICIES[policy.rsplit("/", 1)[-1]]
    rbac = "rbac.authorization.k8s.io"
    cluster.apply(
        where or f"{_RBAC}/clusterrolebindings",
        {
            "apiVersion": f"{rbac}/v1",
            "kind": kind,
            "metadata": {
                "name": _binding_name(principal, policy),
                "annotations": {"eks.amazonaws.com/principal": principal},
            },
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": rbac, "kind": "Group", "name": group_of(principal)}],
        },
    )
    return True


def _unbind(cluster: Cluster, principal: str, policy: str, scope: dict[str, Any]) -> None:
    name = _binding_name(principal, policy)
    if scope["type"] == "cluster":
        cluster.kubernetes("DELETE", f"{_RBAC}/clusterrolebindings/{name}", ok=(404,))
    for namespace in scope["namespaces"]:
        path = f"{_RBAC}/namespaces/{namespace}/rolebindings/{name}"
        cluster.kubernetes("DELETE", path, ok=(404,))


def _associate(cluster: Cluster, principal: str, policy: str, scope: dict[str, Any]) -> dict:
    policies = cluster.access_entries[principal]["policies"]
    if policy in policies:
        _unbind(cluster, principal, policy, policies[policy]["accessScope"])
    waiting = cluster.access_entries[principal].setdefault("waiting", set())
    waiting.difference_update({pair for pair in waiting if pair[0] == policy})
    for namespace in scope["namespaces"] or [""]:
        if not _bind(cluster, principal, policy, namespace):
            waiting.add((policy, namespace))
    now = time.time()
    associated = policies.get(policy, {}).get("associatedAt", now)
    policies[policy] = {
        "policyArn": policy,
        "accessScope": scope,
        "associatedAt": associated,
        "modifiedAt": now,
    }
    return policies[policy]


class AccessEntries:
    """The operations on access entries and their policies."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def _stored(self, params: dict[str, Any], context: Context) -> tuple[Cluster, dict[str, Any]]:
        cluster = self.registry.find_active(params["clusterName"], context)
        if cluster.record["accessConfig"]["authenticationMode"] == "CONFIG_MAP":
            raise ServiceError(
                "InvalidRequestException",
                "The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP]"
                " to perform this operation.",
            )
        stored = cluster.access_entries.get(params.get("principalArn", ""))
        return cluster, stored or {}

    def _existing(self, params: dict[str, Any], context: Context) -> tuple[Cluster, dict[str, Any]]:
        cluster, stored = self._stored(params, context)
        if not stored:
            raise ServiceError(
                "ResourceNotFoundException",
                "The specified principalArn could not be found. You can view your available access"
                " entries with 'list-access-entries'.",
                clusterName=cluster.name,
            )
        return cluster, stored

    def create(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster, _ = self._stored(params, context)
        given = {k: v for k, v in params.items() if k not in ("clusterName", "principalArn")}
        return {"accessEntry": copy.deepcopy(new_entry(cluster, params["principalArn"], **given))}

    def describe(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        return {"accessEntry": copy.deepcopy(self._existing(params, context)[1]["entry"])}

    def list(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster, _ = self._stored(params, context)
        policy = params.get("associatedPolicyArn")
        entries = list(cluster.access_entries.items())
        arns = [a for a, stored in entries if not policy or policy in stored["policies"]]
        return {"accessEntries": sorted(arns)}

    def update(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        _, stored = self._existing(params, context)
        entry = stored["entry"]
        if entry["type"] in _NODE_TYPES:
            raise ServiceError(
                "InvalidParameterException", f"an entry of type {entry['type']} cannot be changed"
            )
        for key in ("kubernetesGroups", "username"):
            if params.get(key) is not None:
                entry[key] = params[key]
        entry["modifiedAt"] = time.time()
        return {"accessEntry": copy.deepcopy(entry)}

    def delete(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster, stored = self._existing(params, context)
        for policy, association in stored["policies"].items():
            _unbind(cluster, params["principalArn"], policy, association["accessScope"])
        cluster.access_entries.pop(params["principalArn"], None)
        return {}

    def associate(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster, stored = self._existing(params, context)
        policy, scope = params["policyArn"], dict(params["accessScope"])
        scope.setdefault("namespaces", [])
        if policy.rsplit("/", 1)[-1] not in POLICIES or ":cluster-access-policy/" not in policy:
            raise ServiceError("InvalidParameterException", f"The policyArn {policy} is not valid")
        if (scope.get("type") == "namespace") != bool(scope["namespaces"]):
            raise ServiceError(
                "InvalidParameterException", "a scope of type namespace names its namespaces"
            )
        if stored["entry"]["type"] in _NODE_TYPES:
            raise ServiceError("InvalidRequestException", "a node's entry takes no policies")
        with cluster.lock:
            association = _associate(cluster, params["principalArn"], policy, scope)
        return {
            "clusterName": cluster.name,
            "principalArn": params["principalArn"],
            "associatedAccessPolicy": copy.deepcopy(association),
        }

    def disassociate(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster, stored = self._existing(params, context)
        association = stored["policies"].pop(params["policyArn"], None)
        waiting = stored.get("waiting", set())
        waiting.difference_update({pair for pair in waiting if pair[0] == params["policyArn"]})
        if association is None:
            raise ServiceError("ResourceNotFoundException", "the policy is not associated")
        scope = association["accessScope"]
        _unbind(cluster, params["principalArn"], params["policyArn"], scope)
        return {}

    def associated(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster, stored = self._existing(params, context)
        return {
            "clusterName": cluster.name,
            "principalArn": params["principalArn"],
            "associatedAccessPolicies": copy.deepcopy(list(stored["policies"].values())),
        }

    def policies(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        rows = [{"name": name, "arn": policy_arn(name, context.partition)} for name in POLICIES]
        return {"accessPolicies": rows}
