"""What EKS authorizes a call on, and what it then does with the caller's own rights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lab import LabError
from lab.iam import needs_ec2
from lab.iam.policies import Need
from lab.iam.resources import Resources

WITHOUT_RESOURCE = {
    *("DescribeAddonConfiguration", "DescribeAddonVersions"),
    *("DescribeClusterVersions", "ListAccessPolicies", "ListClusters"),
}
# kind -> the parameter that names one of it within its cluster.
NAMED_BY = {
    "nodegroup": "nodegroupName",
    "addon": "addonName",
    "access-entry": "principalArn",
    "podidentityassociation": "associationId",
}
# Everything else of a cluster is authorized on the cluster.
OWN = {
    **dict.fromkeys(("DescribeNodegroup", "DeleteNodegroup"), "nodegroup"),
    **dict.fromkeys(("UpdateNodegroupConfig", "UpdateNodegroupVersion"), "nodegroup"),
    **dict.fromkeys(("DescribeAddon", "DeleteAddon", "UpdateAddon"), "addon"),
    **dict.fromkeys(
        ("DescribeAccessEntry", "DeleteAccessEntry", "UpdateAccessEntry"), "access-entry"
    ),
    **dict.fromkeys(
        ("AssociateAccessPolicy", "DisassociateAccessPolicy", "ListAssociatedAccessPolicies"),
        "access-entry",
    ),
    **dict.fromkeys(
        (
            "DescribePodIdentityAssociation",
            "DeletePodIdentityAssociation",
            "UpdatePodIdentityAssociation",
        ),
        "podidentityassociation",
    ),
}
_BY_ARN = ("TagResource", "UntagResource", "ListTagsForResource")
# The service-linked roles that the first cluster or node group of an account brings.
LINKED = {
    "eks.amazonaws.com": "AWSServiceRoleForAmazonEKS",
    "eks-nodegroup.amazonaws.com": "AWSServiceRoleForAmazonEKSNodegroup",
    "autoscaling.amazonaws.com": "AWSServiceRoleForAutoScaling",
    "spot.amazonaws.com": "AWSServiceRoleForEC2Spot",
}


def needs(operation: str, params: Mapping[str, Any], at: Resources) -> Iterator[Need]:
    """The permissions that one call of EKS wants."""
    if operation in WITHOUT_RESOURCE:
        yield Need(f"eks:{operation}")
        return
    tags = params.get("tags") or {}
    asked: dict[str, Any] = {f"aws:RequestTag/{key}": value for key, value in tags.items()}
    if names := [*tags, *(params.get("tagKeys") or ())]:
        asked["aws:TagKeys"] = names
    if operation in _BY_ARN:
        arn = params["resourceArn"]
        yield Need(f"eks:{operation}", arn, {**_seen(at.eks_tags(arn)), **asked})
        return
    cluster = params.get("clusterName") or params.get("name")
    if not cluster:
        raise LabError(f"the lab does not know the resources of eks:{operation}")
    kind = OWN.get(operation, "cluster")
    kinds = [kind]
    if operation == "DescribeUpdate":
        kinds += [other for other in ("nodegroup", "addon") if NAMED_BY[other] in params]
    for one in kinds:
        arn, there = at.eks(one, cluster, params.get(NAMED_BY.get(one, ""), ""))
        seen = {**_seen(there), **asked}
        if one == "access-entry":
            seen |= {"eks:clusterName": cluster, "eks:principalArn": params["principalArn"]}
        if "policyArn" in params:
            seen["eks:policyArn"] = params["policyArn"]
        yield Need(f"eks:{operation}", arn, seen)
    if operation in _DEPENDENT:
        yield from _DEPENDENT[operation](params, at)


def _seen(tags: Mapping[str, str]) -> dict[str, str]:
    return {f"aws:ResourceTag/{key}": value for key, value in tags.items()}


def _linked(service: str, at: Resources) -> Need:
    """A fresh account has no service-linked role; the lab's account is always one."""
    path = f"role/aws-service-role/{service}/{LINKED[service]}"
    arn = at.arn("iam", path, region=False)
    return Need("iam:CreateServiceLinkedRole", arn, {"iam:AWSServiceName": service})


def _passed(role_arn: str) -> Need:
    return Need("iam:PassRole", role_arn, {"iam:PassedToService": "eks.amazonaws.com"})


def _encryption(params: Mapping[str, Any], at: Resources) -> Iterator[Need]:
    """EKS's guide: who encrypts secrets needs DescribeKey and CreateGrant on the key.

    Not with kms:GrantIsForAWSResource, which EKS does not say in this call.
    """
    for one in params.get("encryptionConfig") or []:
        arn, tags = at.key(one["provider"]["keyArn"])
        for action in ("kms:DescribeKey", "kms:CreateGrant"):
            yield Need(action, arn, _seen(tags))


def _create_cluster(params: Mapping[str, Any], at: Resources) -> Iterator[Need]:
    yield _passed(params["roleArn"])
    yield _linked("eks.amazonaws.com", at)
    for action in ("DescribeSubnets", "DescribeSecurityGroups", "DescribeVpcs"):
        yield Need(f"ec2:{action}")
    yield from _encryption(params, at)
    yield from _tagged("cluster", params["name"], "", params, at)


def _create_nodegroup(params: Mapping[str, Any], at: Resources) -> Iterator[Need]:
    """What EKS refuses a caller for: aws-controllers-k8s/community#2164, and for GetRole of the
    linked role terraform-aws-eks#823."""
    yield _passed(params["nodeRole"])
    name = params["nodeRole"].rsplit("/", 1)[-1]
    for action in ("GetRole", "ListAttachedRolePolicies"):
        yield Need(f"iam:{action}", at.role(name)[0])
    spot = ["spot.amazonaws.com"] if params.get("capacityType") == "SPOT" else []
    for service in ["eks-nodegroup.amazonaws.com", "autoscaling.amazonaws.com", *spot]:
        yield _linked(service, at)
    own = _linked("eks-nodegroup.amazonaws.com", at).resource
    yield Need("iam:GetRole", own)
    yield Need("ec2:DescribeSubnets")
    yield from _launch(params, at)
    yield from _tagged("nodegroup", params["clusterName"], params["nodegroupName"], params, at)


def _launch(params: Mapping[str, Any], at: Resources) -> Iterator[Need]:
    """With a template EKS tries RunInstances as the caller ("not authorized to launch instances
    with this launch template")."""
    if params.get("launchTemplate"):
        yield from needs_ec2.launch(params["launchTemplate"], params.get("subnets") or [], at)


def _create_named(kind: str) -> Any:
    def dependent(params: Mapping[str, Any], at: Resources) -> Iterator[Need]:
        name = params.get(NAMED_BY[kind], "*")
        yield from _tagged(kind, params["clusterName"], name, params, at)
        for role in (params.get("serviceAccountRoleArn"), params.get("roleArn")):
            if role:
                yield _passed(role)

    return dependent


def _tagged(
    kind: str, cluster: str, name: str, params: Mapping[str, Any], at: Resources
) -> Iterator[Need]:
    """EKS's guide: tags at creation want TagResource as well."""
    if tags := params.get("tags"):
        asked = {f"aws:RequestTag/{key}": value for key, value in tags.items()}
        arn = at.eks(kind, cluster, name)[0]
        yield Need("eks:TagResource", arn, {**asked, "aws:TagKeys": list(tags)})


_DEPENDENT = {
    "CreateCluster": _create_cluster,
    "AssociateEncryptionConfig": _encryption,
    "CreateNodegroup": _create_nodegroup,
    "UpdateNodegroupVersion": _launch,
    "CreateAddon": _create_named("addon"),
    "UpdateAddon": _create_named("addon"),
    "CreateAccessEntry": _create_named("access-entry"),
    "CreatePodIdentityAssociation": _create_named("podidentityassociation"),
    "UpdatePodIdentityAssociation": _create_named("podidentityassociation"),
}
