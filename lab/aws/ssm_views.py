"""How Run Command shows commands, invocations and instances: members, filters, pages."""

from __future__ import annotations

import base64
import datetime
from typing import Any

from lab.aws import ServiceError
from lab.aws.ssm_commands import UNFINISHED, Command, Invocation
from lab.aws.ssm_node import Node

# ListCommandInvocations keeps so much of each plugin's output, and says so where it cuts.
DETAIL_LIMIT, CUT = 2500, "\n---Output truncated---"


def describe(command: Command) -> dict[str, Any]:
    """A command as SendCommand and ListCommands show it."""
    status, details = command.status()
    states = [i.details for i in command.invocations.values()]
    request = command.request
    return {
        "CommandId": command.command_id,
        "DocumentName": command.document,
        "DocumentVersion": command.document_version,
        "Comment": request.get("Comment", ""),
        "Parameters": request.get("Parameters") or {},
        "InstanceIds": request.get("InstanceIds") or [],
        "Targets": request.get("Targets") or [],
        "RequestedDateTime": command.requested,
        "ExpiresAfter": command.requested + command.timeout_s,
        "TimeoutSeconds": command.timeout_s,
        "MaxConcurrency": request.get("MaxConcurrency") or "50",
        "MaxErrors": request.get("MaxErrors") or "0",
        "Status": status,
        "StatusDetails": details,
        "TargetCount": len(states),
        "CompletedCount": sum(state not in UNFINISHED for state in states),
        "ErrorCount": sum(state in ("Failed", "Execution Timed Out") for state in states),
        "DeliveryTimedOutCount": states.count("Delivery Timed Out"),
    }


def row(command: Command, invocation: Invocation, details: bool) -> dict[str, Any]:
    """An invocation as ListCommandInvocations shows it; its one plugin with `details`."""
    row: dict[str, Any] = {
        "CommandId": command.command_id,
        "InstanceId": invocation.node.instance_id,
        "InstanceName": invocation.node.name,
        "Comment": command.request.get("Comment", ""),
        "DocumentName": command.document,
        "DocumentVersion": command.document_version,
        "RequestedDateTime": command.requested,
        "Status": invocation.status,
        "StatusDetails": invocation.details,
        "StandardOutputUrl": "",
        "StandardErrorUrl": "",
        "CommandPlugins": [],
    }
    if details:
        result = invocation.result
        output = result.stdout if result else ""
        if result and result.stderr:
            output += "\n----------ERROR-------\n" + result.stderr
        if len(output) > DETAIL_LIMIT:
            output = output[: DETAIL_LIMIT - len(CUT)] + CUT
        plugin = {
            "Name": command.steps[0].name,
            "Status": invocation.status,
            "StatusDetails": invocation.details,
            "ResponseCode": result.code if result else -1,
            "Output": output,
            "ResponseStartDateTime": invocation.started,
            "ResponseFinishDateTime": invocation.ended,
        }
        row["CommandPlugins"] = [{k: v for k, v in plugin.items() if v is not None}]
    return row


def detail(command: Command, invocation: Invocation, plugin: str) -> dict[str, Any]:
    """An invocation as GetCommandInvocation shows it."""
    result = invocation.result
    began, ended = invocation.started, invocation.ended
    return {
        "CommandId": command.command_id,
        "InstanceId": invocation.node.instance_id,
        "Comment": command.request.get("Comment", ""),
        "DocumentName": command.document,
        "DocumentVersion": command.document_version,
        "PluginName": plugin,
        "ResponseCode": result.code if result else -1,
        "ExecutionStartDateTime": _iso(began),
        "ExecutionElapsedTime": f"PT{ended - began:.3f}S" if began and ended else "",
        "ExecutionEndDateTime": _iso(ended),
        "Status": invocation.status,
        "StatusDetails": invocation.details,
        "StandardOutputContent": result.stdout if result else "",
        "StandardOutputUrl": "",
        "StandardErrorContent": result.stderr if result else "",
        "StandardErrorUrl": "",
    }


def information(node: Node) -> dict[str, Any]:
    """A node as DescribeInstanceInformation shows it."""
    return {
        "InstanceId": node.instance_id,
        "PingStatus": "Online",
        "LastPingDateTime": datetime.datetime.now().timestamp(),
        "AgentVersion": "3.3.3050.0",
        "IsLatestVersion": True,
        "PlatformType": "Linux",
        "PlatformName": "Amazon Linux",
        "PlatformVersion": "2023",
        "ResourceType": "EC2Instance",
        "IPAddress": node.ip_address,
        "ComputerName": node.name,
    }


def _iso(moment: float | None) -> str:
    if moment is None:
        return ""
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def filtered(rows: list[dict[str, Any]], body: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows that pass every one of the call's Filters."""
    for given in body.get("Filters") or []:
        key, value = given["key"], given["value"]
        if key == "Status":
            rows = [r for r in rows if value in (r["Status"], r["StatusDetails"].replace(" ", ""))]
        elif key == "DocumentName":
            rows = [r for r in rows if r["DocumentName"] == value]
        elif key in ("InvokedAfter", "InvokedBefore"):
            at = datetime.datetime.fromisoformat(value).timestamp()
            rows = [r for r in rows if (r["RequestedDateTime"] >= at) is (key == "InvokedAfter")]
        elif key == "ExecutionStage":
            done = value == "Complete"
            rows = [r for r in rows if (r["Status"] not in UNFINISHED) is done]
        else:
            raise ServiceError("InvalidFilterKey", f"{key} is no filter")
    return rows


def page(name: str, rows: list[dict[str, Any]], body: dict[str, Any], size: int) -> dict[str, Any]:
    """One page of the rows, with NextToken where more follow."""
    limit = body.get("MaxResults") or size
    if not 1 <= limit <= 50:
        raise ServiceError("ValidationException", f"MaxResults {limit} is not in 1..50")
    try:
        start = int(base64.b64decode(body.get("NextToken") or "") or 0)
    except ValueError:
        raise ServiceError("InvalidNextToken", "The specified token isn't valid.") from None
    page: dict[str, Any] = {name: rows[start : start + limit]}
    if start + limit < len(rows):
        page["NextToken"] = base64.b64encode(str(start + limit).encode()).decode()
    return page
