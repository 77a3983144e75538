# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Flow logs to CloudWatch Logs: one for each resource and log group. Only their tags can change."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._aws import (
    client,
    given,
    own_tags,
    pages,
    tag_list,
    tags_of,
)
from ansible_collections.gpushare.eks.plugins.module_utils._errors import (
    GpushareError,
    InvalidInput,
    PartialFailure,
    aws_errors,
    translate,
)
from ansible_collections.gpushare.eks.plugins.module_utils._pool_names import CLUSTER_TAG
from ansible_collections.gpushare.eks.plugins.module_utils._ssm import code
from ansible_collections.gpushare.eks.plugins.module_utils._sync import Outcome, merge, sync
from ansible_collections.gpushare.eks.plugins.module_utils._wait import wait_for

try:
    from botocore.exceptions import ClientError
except ImportError:  # the modules' door reports a missing boto3 itself
    ClientError = Exception

_TYPES = {"vpc": "VPC", "subnet": "Subnet", "eni": "NetworkInterface"}
# A role that was just made is not known everywhere at once.
_ROLE_TIMEOUT_S = 120
_NOT_YET = "assume given iam role"


def keep(module: Any, wait: Callable[..., Any] = wait_for) -> dict[str, Any]:
    """What the module ec2_flow_log returns."""
    params = module.params
    wanted = _wanted(params)
    logs = FlowLogs(client(module, "ec2"), params["cluster_name"], params["purge_tags"], wait)
    listed = {key: (params["state"], option) for key, option in wanted.items()}
    if params["purge"] and params["state"] == "present":
        listed |= {key: ("absent", {}) for key in logs.ours() if key not in wanted}
    outcomes: dict[str, Outcome] = {}
    errors: dict[str, GpushareError] = {}
    for key, (state, option) in listed.items():
        try:
            outcomes[title(key)] = logs.sync(key, option, state, module.check_mode)
        except GpushareError as error:
            errors[title(key)] = error
    there = [outcomes[title(key)].after for key in wanted if title(key) in outcomes]
    results = {
        **merge(outcomes),
        "flow_logs": [one for one in there if one],
        "removed": sorted(name for name, one in outcomes.items() if one.changed and not one.after),
    }
    for name, one in outcomes.items():
        if one.value and one.value.get("DeliverLogsStatus") == "FAILED":
            module.warn(
                f"{name}: AWS delivers nothing ({one.value.get('DeliverLogsErrorMessage')}): see "
                "that the log group is there and that the role may write to it"
            )
    if errors:
        error = next(iter(errors.values()))
        if len(listed) > 1:
            error = PartialFailure.of("flow logs", errors, len(listed))
        raise error.with_partial(**results)
    return results


def title(key: tuple[str, str]) -> str:
    return f"flow log of {key[0]} to {key[1]}"


def _wanted(params: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for number, option in enumerate(params["flow_logs"]):
        key = option["resource_id"], option["log_group_name"]
        field = f"flow_logs[{number}]"
        if _TYPES.get(key[0].partition("-")[0]) is None:
            raise InvalidInput(
                f"{field}.resource_id {key[0]!r} is no VPC, subnet or network interface",
                field=f"{field}.resource_id",
                value=key[0],
                remedy="give an id that starts with vpc-, subnet- or eni-",
            )
        if key in found:
            raise InvalidInput(
                f"flow_logs lists the {title(key)} more than once",
                field="flow_logs",
                remedy="list it once",
            )
        if params["state"] == "present" and not option["role_arn"]:
            raise InvalidInput(
                f"{field}.role_arn is missing",
                field=f"{field}.role_arn",
                remedy="name the role by which AWS writes to the log group",
            )
        found[key] = given(option)
    return found


class FlowLogs:
    """The flow logs of one account and region. ec2: a boto3 client."""

    def __init__(self, ec2: Any, cluster_name: str, purge_tags: bool, wait: Any = wait_for) -> None:
        self._ec2, self._cluster, self._purge_tags = ec2, cluster_name, purge_tags
        self._wait = wait

    def ours(self) -> list[tuple[str, str]]:
        """(resource, log group) of those that carry our tag."""
        wanted = [{"Name": f"tag:{CLUSTER_TAG}", "Values": [self._cluster]}]
        with aws_errors("flow logs"):
            found = self._list(wanted)
        return [(one["ResourceId"], one.get("LogGroupName", "")) for one in found]

    def sync(
        self, key: tuple[str, str], option: dict[str, Any], state: str, check_mode: bool
    ) -> Outcome:
        """Bring one flow log to what the option says, or away."""
        tags = {**own_tags(option.get("tags")), CLUSTER_TAG: self._cluster}
        desired = {**option, "tags": tags}
        with aws_errors(title(key)):
            return sync(
                state=state,
                current=self._read(key),
                desired=desired,
                differs=partial(self._differs, option),
                create=lambda: self._create(key, desired),
                update=lambda current, changes: self._update(key, current, changes),
                delete=self._delete,
                check_mode=check_mode,
                view=view,
            )

    def _list(self, filters: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return list(pages(self._ec2, "describe_flow_logs", "FlowLogs", Filter=filters))

    def _read(self, key: tuple[str, str]) -> dict[str, Any] | None:
        names = ("resource-id", "log-group-name")
        found = self._list(
            [{"Name": name, "Values": [value]} for name, value in zip(names, key, strict=True)]
        )
        return found[0] if found else None

    def _differs(
        self, option: dict[str, Any], before: dict[str, Any], wanted: dict[str, Any]
    ) -> dict[str, Any]:
        """Without tags in the option, only our own is looked at; purge_tags takes others away."""
        tags = wanted["tags"]
        if not (self._purge_tags and option.get("tags") is not None):
            tags = {**before["tags"], **tags}
        changes = {k: v for k, v in wanted.items() if k != "tags" and before[k] != v}
        return changes if before["tags"] == tags else {**changes, "tags": tags}

    def _create(self, key: tuple[str, str], desired: dict[str, Any]) -> dict[str, Any]:
        more = {
            "MaxAggregationInterval": desired.get("max_aggregation_interval"),
            "LogFormat": desired.get("log_format"),
        }
        request = {
            "ResourceType": _TYPES[key[0].partition("-")[0]],
            "ResourceIds": [key[0]],
            "LogDestinationType": "cloud-watch-logs",
            "LogGroupName": key[1],
            "DeliverLogsPermissionArn": desired["role_arn"],
            "TrafficType": desired["traffic_type"],
            "TagSpecifications": [
                {"ResourceType": "vpc-flow-log", "Tags": tag_list(desired["tags"])}
            ],
            **{name: value for name, value in more.items() if value},
        }
        answer = self._wait(
            partial(self._try, request),
            lambda answer: answer is not None,
            timeout=_ROLE_TIMEOUT_S,
            interval=1.0,
            what=f"role {desired['role_arn']} of the {title(key)}",
            describe=lambda _answer: "the flow logs service may not assume it",
            remedy="let vpc-flow-logs.amazonaws.com assume the role",
        )
        for refused in answer.get("Unsuccessful") or []:
            error = {"Error": refused["Error"]}
            raise translate(ClientError(error, "CreateFlowLogs"), title(key))
        made = self._read(key)
        # Eventual consistency: what was asked for is there, though it does not show yet.
        return made or {"FlowLogId": answer["FlowLogIds"][0], **_raw(desired)}

    def _try(self, request: dict[str, Any]) -> dict[str, Any] | None:
        try:
            return self._ec2.create_flow_logs(**request)
        except ClientError as error:
            if code(error) == "InvalidParameter" and _NOT_YET in str(error).lower():
                return None
            raise

    def _update(
        self, key: tuple[str, str], current: dict[str, Any], changes: dict[str, Any]
    ) -> dict[str, Any]:
        """Everything but tags is fixed: made again, after the old one, which AWS would not join."""
        if set(changes) - {"tags"}:
            self._delete(current)
            return self._create(key, {**view(current), **changes})
        old, new = view(current)["tags"], changes["tags"]
        where = [current["FlowLogId"]]
        if gone := sorted(set(old) - set(new)):
            self._ec2.delete_tags(Resources=where, Tags=[{"Key": name} for name in gone])
        if more := {name: value for name, value in new.items() if old.get(name) != value}:
            self._ec2.create_tags(Resources=where, Tags=tag_list(more))
        return {**current, "Tags": tag_list(new)}

    def _delete(self, current: dict[str, Any]) -> None:
        answer = self._ec2.delete_flow_logs(FlowLogIds=[current["FlowLogId"]])
        for refused in answer.get("Unsuccessful") or []:
            error = ClientError({"Error": refused["Error"]}, "DeleteFlowLogs")
            if "NotFound" not in code(error):
                raise error


def view(raw: dict[str, Any]) -> dict[str, Any]:
    return {
        "resource_id": raw["ResourceId"],
        "log_group_name": raw.get("LogGroupName", ""),
        "role_arn": raw.get("DeliverLogsPermissionArn", ""),
        "traffic_type": raw.get("TrafficType", ""),
        "max_aggregation_interval": raw.get("MaxAggregationInterval", 600),
        "log_format": raw.get("LogFormat", ""),
        "tags": own_tags(tags_of(raw.get("Tags"))),
    }


def _raw(desired: dict[str, Any]) -> dict[str, Any]:
    return {
        "ResourceId": desired["resource_id"],
        "LogGroupName": desired["log_group_name"],
        "DeliverLogsPermissionArn": desired["role_arn"],
        "TrafficType": desired["traffic_type"],
        "MaxAggregationInterval": desired["max_aggregation_interval"],
        "LogFormat": desired.get("log_format", ""),
        "Tags": tag_list(desired["tags"]),
    }
