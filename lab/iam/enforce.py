"""The answer to a call that its caller's policies do not allow, worded as each service words it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.aws import ACCOUNT_ID, Context
from lab.aws.eks_state import Registry
from lab.aws.routes import Request
from lab.iam import principals
from lab.iam.needs import needs_of
from lab.iam.policies import Need, verdict
from lab.iam.resources import Resources

# Services that answer a denial with 403 and another code than AccessDenied.
_CODES = {
    "ec2": ("UnauthorizedOperation", 403),
    "eks": ("AccessDeniedException", 403),
    "kms": ("AccessDeniedException", 400),
    "logs": ("AccessDeniedException", 400),
    "ssm": ("AccessDeniedException", 400),
}
_LAUNCHES = ("CreateNodegroup", "UpdateNodegroupVersion")


@dataclass(frozen=True)
class Decision:
    """What a call wanted, for the record, and the error (code, status, message) or None."""

    needs: Sequence[Need]
    error: tuple[str, int, str] | None = None

    def recorded(self) -> list[dict[str, Any]]:
        return [
            {"action": n.action, "resource": n.resource, "context": dict(n.context)}
            for n in self.needs
        ]


def decide(request: Request, context: Context, registry: Registry | None) -> Decision | None:
    """None where nothing is enforced: no such principal, or an administrator without bounds."""
    caller = principals.find(request.access_key, context.partition)
    if caller is None or caller.grants.everything:
        return None
    needs = needs_of(request, context, registry)
    keys = {**caller.keys, "aws:RequestedRegion": context.region}
    if (request.service, request.operation) == ("sts", "AssumeRole"):
        trust = _trust(request.params["RoleArn"], caller, context)
        if trust == "named":
            return Decision(needs)
        if trust == "refused":
            said = f"User: {caller.arn} is not authorized to perform: sts:AssumeRole on resource: "
            return Decision(needs, ("AccessDenied", 403, said + request.params["RoleArn"]))
    for need in needs:
        if reason := verdict(need, caller.grants, keys):
            return Decision(needs, _error(request, caller.arn, need, reason))
    return Decision(needs)


def _error(request: Request, who: str, need: Need, reason: str) -> tuple[str, int, str]:
    resource = need.resource
    if request.service == "iam" and request.operation != "CreateRole":
        # IAM names the role, not its ARN.
        resource = f"role {request.params.get('RoleName', resource)}"
    on = f" on resource: {resource}" if need.resource != "*" else ""
    said = f"User: {who} is not authorized to perform: {need.action}{on} {reason}"
    if request.operation in _LAUNCHES and need.action in ("ec2:RunInstances", "ec2:CreateTags"):
        encoded = f"Encoded authorization failure message: {said.encode().hex()}"
        said = f"You are not authorized to launch instances with this launch template. {encoded}"
        return "InvalidRequestException", 400, said
    code, status = _CODES.get(request.service, ("AccessDenied", 403))
    if request.service == "ec2":
        said = f"You are not authorized to perform this operation. {said}"
    return code, status, said


def _trust(role_arn: str, caller: principals.Principal, context: Context) -> str:
    """named: the role's trust policy names the caller; account: it leaves it to the account."""
    role = Resources(context).role(role_arn.rsplit("/", 1)[-1])[1]
    document = json.loads(role.assume_role_policy_document) if role else {}
    account = {ACCOUNT_ID, f"arn:{context.partition}:iam::{ACCOUNT_ID}:root"}
    found = "refused"
    for statement in document.get("Statement", []):
        principal = statement.get("Principal")
        named = principal.get("AWS", []) if isinstance(principal, Mapping) else []
        names = {named} if isinstance(named, str) else set(named)
        if statement["Effect"] != "Allow" or "Condition" in statement:
            continue
        if names & {caller.arn, caller.keys["aws:PrincipalArn"]}:
            return "named"
        if names & account:
            found = "account"
    return found
