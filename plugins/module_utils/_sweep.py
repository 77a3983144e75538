# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Deletes what EKS and its controllers left of a cluster, in an order that AWS takes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._errors import (
    Conflict,
    GpushareError,
    PartialFailure,
    WaitTimeout,
    aws_errors,
    translate,
)
from ansible_collections.gpushare.eks.plugins.module_utils._sweep_find import (
    Left,
    find,
    orphans,
    vpc_of,
)
from ansible_collections.gpushare.eks.plugins.module_utils._sync import Outcome, merge
from ansible_collections.gpushare.eks.plugins.module_utils._wait import wait_for

try:
    from botocore.exceptions import ClientError
except ImportError:  # the modules' door reports a missing boto3 itself
    ClientError = Exception

# Something that is on its way out still holds it: the next try may pass.
_HELD = re.compile(r"DependencyViolation|InUse|IncorrectState|ScalingActivityInProgress")
_IN_USE = re.compile(r"currently in use|in use")
_PROTECTED = "OperationNotPermitted"


class Sweep:
    """One run. client(service) is a boto3 client; volumes: whether data may go, too."""

    def __init__(
        self,
        client: Callable[[str], Any],
        cluster_name: str,
        *,
        volumes: bool,
        check_mode: bool,
        timeout: float,
        progress: Callable[[str], Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Any] = time.sleep,
    ) -> None:
        self.client, self.cluster_name = client, cluster_name
        self.volumes, self.check_mode, self.timeout = volumes, check_mode, timeout
        self._progress, self._timing = progress, {"clock": clock, "sleep": sleep}
        self._outcomes: dict[str, Outcome] = {}
        self._deleted: list[Left] = []
        self._kept: list[dict[str, str]] = []
        self._errors: dict[str, GpushareError] = {}

    def run(self, vpc_id: str = "", subnet_ids: list[str] | None = None) -> dict[str, Any]:
        """{"changed", "diff", "deleted", "kept", "vpc_id"}."""
        ec2, eks = self.client("ec2"), self.client("eks")
        vpc_id = vpc_of(ec2, eks, self.cluster_name, vpc_id, subnet_ids or [])
        if not self.check_mode:
            self._refuse_a_living_cluster(eks)
        found, groups = find(self.client, self.cluster_name, vpc_id)
        doomed = [one for one in found if self.volumes or one.kind != "volume"]
        for one in found:
            if one not in doomed:
                self._keep(one, "it holds data, and nobody said that it may go")
        if self.check_mode:
            for one in doomed:
                self._gone(one)
        else:
            self._untie(groups, {one.id for one in doomed if one.kind == "security group"})
            self._delete(doomed)
            if vpc_id:
                self._wait(
                    lambda: orphans(self.client, vpc_id),
                    f"end of the load balancers' network interfaces in {vpc_id}",
                    ", ".join,
                )
        return self._results(vpc_id, len(found))

    def _refuse_a_living_cluster(self, eks: Any) -> None:
        what = f"EKS cluster {self.cluster_name}"
        with aws_errors(what):
            try:
                status = eks.describe_cluster(name=self.cluster_name)["cluster"]["status"]
            except eks.exceptions.ResourceNotFoundException:
                return
        raise Conflict(
            f"{what} is {status}: what belongs to it is not left over",
            object=what,
            cause=f"the cluster is {status}",
            remedy="delete the cluster first (eks_cluster, state=absent)",
        )

    def _untie(self, groups: list[dict[str, Any]], ours: set[str]) -> None:
        """Take the rules away by which the doomed groups name each other: AWS deletes none else."""
        for group in groups:
            if group["GroupId"] not in ours:
                continue
            others = ours - {group["GroupId"]}
            for member, operation in (
                ("IpPermissions", "revoke_security_group_ingress"),
                ("IpPermissionsEgress", "revoke_security_group_egress"),
            ):
                rules = [_naming(rule, others) for rule in group.get(member) or []]
                if rules := [rule for rule in rules if rule["UserIdGroupPairs"]]:
                    with aws_errors(f"rules of security group {group['GroupId']}"):
                        getattr(self.client("ec2"), operation)(
                            GroupId=group["GroupId"], IpPermissions=rules
                        )

    def _delete(self, doomed: list[Left]) -> None:
        waiting: dict[Left, str] = dict.fromkeys(doomed, "")

        def attempt() -> dict[Left, str]:
            for one in list(waiting):
                reason = self._try(one)
                if reason is None:
                    del waiting[one]
                elif (stays := self._stays(one)) != "":
                    del waiting[one]
                    self._keep(one, stays)
                else:
                    waiting[one] = reason
            return waiting

        self._wait(
            attempt,
            f"deletion of what is left of cluster {self.cluster_name}",
            lambda left: "; ".join(f"{one.title}: {reason}" for one, reason in left.items()),
        )

    def _wait(self, read: Callable[[], Any], what: str, describe: Callable[[Any], str]) -> None:
        try:
            wait_for(
                read,
                lambda left: not left,
                timeout=self.timeout,
                interval=0.5,
                what=what,
                progress=self._progress,
                describe=describe,
                **self._timing,
            )
        except WaitTimeout as error:
            raise error.with_partial(**self._done()) from None

    def _try(self, one: Left) -> str | None:
        """None when it is deleted, or was gone, or cannot go; else what holds it."""
        try:
            getattr(self.client(one.service), one.operation)(**one.params)
        except ClientError as error:
            answer = error.response.get("Error", {})
            code, text = str(answer.get("Code", "")), str(answer.get("Message", ""))
            if one.gone in code:
                return None
            if _HELD.search(code) or (code == "InvalidParameterValue" and _IN_USE.search(text)):
                return f"{code}: {text}"
            if code == _PROTECTED:
                self._keep(one, f"{code}: {text}")
            else:
                self._errors[one.title] = translate(error, one.title)
            return None
        self._gone(one)
        return None

    def _stays(self, one: Left) -> str:
        """Who holds a security group and will not let go, or ""."""
        if one.kind != "security group":
            return ""
        ec2, by = self.client("ec2"), {"Values": [one.id]}
        holders = []
        with aws_errors(one.title):
            for eni in ec2.describe_network_interfaces(Filters=[{"Name": "group-id", **by}])[
                "NetworkInterfaces"
            ]:
                attached = (eni.get("Attachment") or {}).get("InstanceId")
                if attached or not (eni.get("RequesterManaged") or eni["Status"] == "in-use"):
                    holders.append(f"network interface {eni['NetworkInterfaceId']}")
            for name in ("ip-permission.group-id", "egress.ip-permission.group-id"):
                groups = ec2.describe_security_groups(Filters=[{"Name": name, **by}])
                holders += [
                    f"a rule of security group {group['GroupId']}"
                    for group in groups["SecurityGroups"]
                    if group["GroupId"] != one.id
                ]
        return "held by " + ", ".join(sorted(set(holders))) if holders else ""

    def _gone(self, one: Left) -> None:
        self._deleted.append(one)
        self._outcomes[one.title] = Outcome(True, one.as_dict(), {}, None)

    def _keep(self, one: Left, reason: str) -> None:
        self._kept.append({**one.as_dict(), "reason": reason})

    def _done(self) -> dict[str, Any]:
        deleted = [one.as_dict() for one in self._deleted]
        return {**merge(self._outcomes), "deleted": deleted, "kept": self._kept}

    def _results(self, vpc_id: str, total: int) -> dict[str, Any]:
        results = self._done()
        if self._errors:
            what = f"objects that cluster {self.cluster_name} left"
            raise PartialFailure.of(what, self._errors, total).with_partial(**results)
        return {**results, "vpc_id": vpc_id}


def _naming(rule: dict[str, Any], groups: set[str]) -> dict[str, Any]:
    """The part of a rule that names one of these groups."""
    pairs = [
        {key: pair[key] for key in ("GroupId", "UserId") if key in pair}
        for pair in rule.get("UserIdGroupPairs") or []
        if pair.get("GroupId") in groups
    ]
    ports = {key: rule[key] for key in ("IpProtocol", "FromPort", "ToPort") if key in rule}
    return {**ports, "UserIdGroupPairs": pairs}
