"""One account and one cluster without what differs from run to run: IDs, times, addresses.

Two runs that ended in the same state have equal values here, down to rules and policies. Every ID
becomes the kind and name of its object; an object without a name of its own is told by its content.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import boto3

from . import aws_state, cluster

# Times, counters and what AWS, moto or Kubernetes choose by chance.
VOLATILE = re.compile(
    r"(Time|Timestamp|Date|At|_at)$|^(time|since|creationTimestamp|uid|resourceVersion|generation|selfLink|"
    r"managedFields|status|clusterIPs?|endpoint|issuer|certificateAuthority|ca\.crt|ResponseMetadata|"
    r"AllocationId|AssociationId|PublicIp|PrivateIp.*|PrivateDnsName.*|PublicDnsName|"
    r"CarrierIp|MacAddress|AttachmentId|RequesterId|RoleId|InstanceProfileId|PolicyId|"
    r"CreationToken|ClientToken|LaunchIndex|AmiLaunchIndex|ReservationId|StateTransitionReason|"
    r"storedBytes|Instances|Version|VersionNumber|.*VersionNumber|DefaultVersionId|"
    r"AssociatedVPCs|DnsEntries|SecurityGroupRuleId)$"
)
IDENTITY = re.compile(
    r"\b(?:vpc|subnet|igw|nat|rtb|rtbassoc|sg|sgr|vpce|lt|eni|eipalloc|eipassoc|i|acl|dopt|vol)"
    r"-[0-9a-f]{8,17}\b|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
)
OF_ONE_CONTROL_PLANE = re.compile(
    r"(\"?(?:apiServerEndpoint|certificateAuthority)\"?:\s*)\"?[^\",\s]+\"?"
)
# What a run makes as a whole; interfaces and volumes come and go with nodes and pods.
EC2 = {k: v for k, v in aws_state.EC2.items() if k not in ("network interface", "volume")}
KUBERNETES = (
    "/api/v1/namespaces",
    "/api/v1/configmaps",
    "/api/v1/services",
    "/api/v1/serviceaccounts",
    "/apis/apps/v1/daemonsets",
    "/apis/apps/v1/deployments",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/roles",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "/apis/storage.k8s.io/v1/storageclasses",
)


def account(cluster_name: str) -> dict[str, list[str]]:
    """{kind: sorted normalized objects} of the cluster's AWS objects and of what it holds."""
    raw = {**_ec2(), **_iam(cluster_name), **_eks(cluster_name), **_others(cluster_name)}
    names: dict[str, str] = {}
    for kind, (_operation, _key, identity) in EC2.items():
        for one in raw[kind]:
            # EKS puts an ID of its own into the names of what it makes.
            names[one[identity]] = f"<{kind} {IDENTITY.sub('<id>', _name(one))}>"
    for one in raw["key"]:
        names[one["KeyId"]] = f"<key {sorted(one['Aliases'])}>"
    return {
        kind: sorted(json.dumps(_plain(one, names), sort_keys=True) for one in found)
        for kind, found in raw.items()
    }


def kubernetes(cluster_name: str) -> dict[str, list[str]]:
    """{path: sorted normalized objects} of what the roles install in the cluster."""
    found = {}
    for path in KUBERNETES:
        answer = cluster.request(cluster_name, "GET", path)
        answer.raise_for_status()
        items = [one for one in answer.json()["items"] if _ours(one)]
        found[path] = sorted(json.dumps(_plain(one, {}), sort_keys=True) for one in items)
    return found


def differences(one: dict[str, list[str]], other: dict[str, list[str]]) -> list[str]:
    """What only one of two states has, a line each."""
    lines = []
    for kind in sorted({*one, *other}):
        left, right = list(one.get(kind, [])), list(other.get(kind, []))
        for text in list(left):
            if text in right:
                left.remove(text)
                right.remove(text)
        lines += [f"- {kind} {text}" for text in left] + [f"+ {kind} {text}" for text in right]
    return lines


def _ours(one: dict[str, Any]) -> bool:
    place = one["metadata"].get("namespace") or one["metadata"]["name"]
    return not place.startswith(("system:", "kube-", "default")) and place not in _BUILT_IN


_BUILT_IN = {"admin", "edit", "view", "cluster-admin"}


def _name(one: dict[str, Any]) -> str:
    tags = aws_state.tags_of(one)
    fallback = one.get("LaunchTemplateName") or one.get("GroupName") or one.get("ServiceName") or ""
    return tags.get("Name") or fallback


def _ours_or_untagged(one: dict[str, Any], cluster_name: str) -> bool:
    return aws_state.tags_of(one).get(aws_state.TAG, cluster_name) == cluster_name


def _ec2() -> dict[str, list[dict[str, Any]]]:
    client = boto3.client("ec2")
    found = {kind: getattr(client, how[0])()[how[1]] for kind, how in EC2.items()}
    found["nat gateway"] = [n for n in found["nat gateway"] if n["State"] != "deleted"]
    found["endpoint"] = [e for e in found["endpoint"] if e["State"] != "deleted"]
    for one in found["launch template"]:
        chosen = {"LaunchTemplateId": one["LaunchTemplateId"], "Versions": ["$Default"]}
        versions = client.describe_launch_template_versions(**chosen)["LaunchTemplateVersions"]
        one["Data"] = versions[0]["LaunchTemplateData"]
        if user_data := one["Data"].get("UserData"):
            # It names the API server and its CA, which every control plane has of its own.
            text = base64.b64decode(user_data).decode()
            one["Data"]["UserData"] = OF_ONE_CONTROL_PLANE.sub(r"\1", text)
    return found


def _iam(cluster_name: str) -> dict[str, list[dict[str, Any]]]:
    client = boto3.client("iam")
    roles = []
    for one in client.get_paginator("list_roles").paginate().build_full_result()["Roles"]:
        name = one["RoleName"]
        tags = client.list_role_tags(RoleName=name)["Tags"]
        if not _ours_or_untagged({"Tags": tags}, cluster_name):
            continue
        attached = client.list_attached_role_policies(RoleName=name)["AttachedPolicies"]
        inline = {
            policy: client.get_role_policy(RoleName=name, PolicyName=policy)["PolicyDocument"]
            for policy in client.list_role_policies(RoleName=name)["PolicyNames"]
        }
        roles.append({**one, "Tags": tags, "Attached": attached, "Inline": inline})
    profiles = client.list_instance_profiles()["InstanceProfiles"]
    policies = client.list_policies(Scope="Local")["Policies"]
    return {"role": roles, "instance profile": profiles, "policy": policies}


def _eks(cluster_name: str) -> dict[str, list[dict[str, Any]]]:
    client = boto3.client("eks")
    found: dict[str, list[dict[str, Any]]] = {"cluster": [], "node group": [], "add-on": []}
    found |= {"access entry": [], "association": []}
    if cluster_name not in client.list_clusters()["clusters"]:
        return found
    of = {"clusterName": cluster_name}
    found["cluster"] = [client.describe_cluster(name=cluster_name)["cluster"]]
    for name in client.list_nodegroups(**of)["nodegroups"]:
        found["node group"].append(client.describe_nodegroup(**of, nodegroupName=name)["nodegroup"])
    for name in client.list_addons(**of)["addons"]:
        found["add-on"].append(client.describe_addon(**of, addonName=name)["addon"])
    for arn in client.list_access_entries(**of)["accessEntries"]:
        entry = client.describe_access_entry(**of, principalArn=arn)["accessEntry"]
        policies = client.list_associated_access_policies(**of, principalArn=arn)
        found["access entry"].append({**entry, "p": policies["associatedAccessPolicies"]})
    for one in client.list_pod_identity_associations(**of)["associations"]:
        found["association"].append(
            client.describe_pod_identity_association(**of, associationId=one["associationId"])
        )
    return found


def _others(cluster_name: str) -> dict[str, list[dict[str, Any]]]:
    groups = boto3.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    logs = boto3.client("logs").describe_log_groups()["logGroups"]
    ssm = boto3.client("ssm")
    chosen = [{"Key": "Owner", "Values": ["Self"]}]
    documents = ssm.list_documents(Filters=chosen)["DocumentIdentifiers"]
    parameters = ssm.describe_parameters()["Parameters"]
    kms = boto3.client("kms")
    aliases = kms.list_aliases()["Aliases"]
    keys = []
    for key in kms.list_keys()["Keys"]:
        tags = kms.list_resource_tags(KeyId=key["KeyId"])["Tags"]
        if {"TagKey": aws_state.TAG, "TagValue": cluster_name} not in tags:
            continue
        told = kms.describe_key(KeyId=key["KeyId"])["KeyMetadata"]
        if told["KeyState"] == "PendingDeletion":
            continue  # stays by its nature, one for every build
        policy = json.loads(kms.get_key_policy(KeyId=key["KeyId"], PolicyName="default")["Policy"])
        mine = [a["AliasName"] for a in aliases if a.get("TargetKeyId") == key["KeyId"]]
        keys.append({**told, "Tags": tags, "Policy": policy, "Aliases": mine})
    return {
        "auto scaling group": groups,
        "log group": logs,
        "document": documents,
        "parameter": [p for p in parameters if not p["Name"].startswith("/aws/")],
        "key": keys,
    }


def _plain(value: Any, names: dict[str, str]) -> Any:
    """The value without what differs, every ID by its object's name; lists of objects sorted."""
    if isinstance(value, dict):
        kept = {k: _plain(v, names) for k, v in value.items() if not VOLATILE.search(k)}
        return {k: v for k, v in kept.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return sorted(
            (_plain(one, names) for one in value),
            key=lambda o: json.dumps(o, default=str, sort_keys=True),
        )
    if isinstance(value, str) and value.startswith("subnet-") and "," in value:
        # An Auto Scaling group's subnets are one text, in the order of their IDs.
        return _plain(value.split(","), names)
    if isinstance(value, str):
        return IDENTITY.sub(lambda found: names.get(found[0], "<id>"), value)
    return value if isinstance(value, (int, float, bool)) else str(value)
