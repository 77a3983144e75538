"""Systems Manager's Run Command: the operations that moto does not have or does not carry out.

`handle(operation, body, context)` serves one JSON 1.1 call of OPERATIONS and raises ServiceError;
documents, parameters and the rest of SSM stay with moto. `inject` makes faults.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

from moto.ssm.exceptions import SSMException
from moto.ssm.models import ssm_backends

from lab import nvml
from lab.aws import Context, ServiceError
from lab.aws import ssm_views as views
from lab.aws.imds import MetadataServer
from lab.aws.ssm_commands import Command, Dispatcher, Invocation, Settings
from lab.aws.ssm_fleet import find, matches, online, share, targets
from lab.aws.ssm_node import RUN_SHELL_SCRIPT, Agent, Step, steps
from lab.machine import Machines

OPERATIONS = frozenset(
    {
        "SendCommand",
        "ListCommands",
        "ListCommandInvocations",
        "GetCommandInvocation",
        "CancelCommand",
        "DescribeInstanceInformation",
    }
)


class RunCommand:
    """The service. `state_dir` holds what its nodes keep; `library` is our libnvidia-ml.so.1."""

    def __init__(self, state_dir: Path, library: Path, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.metadata = MetadataServer(self._metadata)
        self.machines = Machines(state_dir, library)
        agent = Agent(self.machines, self.metadata)
        self.dispatcher = Dispatcher(agent, self.settings, lambda i: find(i) is not None)
        self._commands: dict[str, Command] = {}
        self._lock = threading.Lock()

    def handle(self, operation: str, body: dict[str, Any], context: Context) -> dict[str, Any]:
        """One call; KeyError for an operation that is not in OPERATIONS."""
        return {
            "SendCommand": self.send_command,
            "ListCommands": self.list_commands,
            "ListCommandInvocations": self.list_command_invocations,
            "GetCommandInvocation": self.get_command_invocation,
            "CancelCommand": self.cancel_command,
            "DescribeInstanceInformation": self.describe_instance_information,
        }[operation](body, context)

    def send_command(self, body: dict[str, Any], context: Context) -> dict[str, Any]:
        """Start a command on InstanceIds, or on what Targets finds."""
        nodes = targets(body, online(context.region))
        version, todo = _document(body, context)
        timeout = int(body.get("TimeoutSeconds") or 3600)
        if not 30 <= timeout <= 2592000:
            raise ServiceError("ValidationException", "TimeoutSeconds is not in 30..2592000")
        concurrency, errors = body.get("MaxConcurrency") or "50", body.get("MaxErrors") or "0"
        command = Command(
            document=body["DocumentName"],
            document_version=version,
            steps=todo,
            request=body,
            max_concurrency=max(1, share(concurrency, len(nodes), "MaxConcurrency")),
            max_errors=share(errors, len(nodes), "MaxErrors"),
            timeout_s=timeout,
            invocations={node.instance_id: Invocation(node) for node in nodes},
        )
        answer = {"Command": views.describe(command)}
        with self._lock:
            self._commands[command.command_id] = command
        self.dispatcher.start(command)
        return answer

    def list_commands(self, body: dict[str, Any], context: Context) -> dict[str, Any]:
        """Commands, newest first, by CommandId, InstanceId and Filters."""
        found = [views.describe(command) for command in self._found(body)]
        return views.page("Commands", views.filtered(found, body), body, 50)

    def list_command_invocations(self, body: dict[str, Any], context: Context) -> dict[str, Any]:
        """Invocations that are visible by now; with Details one plugin each."""
        details = body.get("Details") is True
        rows = [
            views.row(command, invocation, details)
            for command in self._found(body)
            if self._visible(command)
            for invocation in command.invocations.values()
            if body.get("InstanceId") in (None, invocation.node.instance_id)
        ]
        return views.page("CommandInvocations", views.filtered(rows, body), body, 50)

    def get_command_invocation(self, body: dict[str, Any], context: Context) -> dict[str, Any]:
        """One invocation with its streams."""
        command = self._command(body["CommandId"])
        invocation = command.invocations.get(body["InstanceId"])
        plugin = body.get("PluginName") or command.steps[0].name
        known = plugin in {"aws:runShellScript", *(step.name for step in command.steps)}
        if invocation is None or not known or not self._visible(command):
            raise ServiceError("InvocationDoesNotExist", "")
        return views.detail(command, invocation, plugin)

    def cancel_command(self, body: dict[str, Any], context: Context) -> dict[str, Any]:
        """What has not started is cancelled; as in AWS there is no promise for the rest."""
        command = self._command(body["CommandId"])
        command.cancelled |= set(body.get("InstanceIds") or command.invocations)
        return {}

    def describe_instance_information(
        self, body: dict[str, Any], context: Context
    ) -> dict[str, Any]:
        """Instances whose agent is online."""
        wanted = [(f["Key"], f["Values"]) for f in body.get("Filters") or []]
        wanted += [
            (f["key"], f["valueSet"]) for f in body.get("InstanceInformationFilterList") or []
        ]
        rows = [
            views.information(node)
            for node in online(context.region).values()
            if all(matches(node, key, values) for key, values in wanted)
        ]
        return views.page("InstanceInformationList", rows, body, 10)

    def _found(self, body: dict[str, Any]) -> list[Command]:
        wanted = body.get("CommandId")
        found = [self._command(wanted)] if wanted else list(self._commands.values())[::-1]
        instance = body.get("InstanceId")
        return [c for c in found if instance is None or instance in c.invocations]

    def _command(self, command_id: str) -> Command:
        try:
            return self._commands[command_id]
        except KeyError:
            raise ServiceError("InvalidCommandId", f"{command_id} is no command") from None

    def _visible(self, command: Command) -> bool:
        age = time.time() - command.requested
        return age >= self.settings.visible_after_s

    def _metadata(self, instance_id: str) -> dict[str, str] | None:
        node = find(instance_id)
        return node.metadata() if node else None


def _document(body: dict[str, Any], context: Context) -> tuple[str, list[Step]]:
    name, parameters = body["DocumentName"], body.get("Parameters") or {}
    if name == "AWS-RunShellScript":
        return "1", steps(RUN_SHELL_SCRIPT, parameters)
    backend = ssm_backends[context.account_id][context.region]
    version = (body.get("DocumentVersion") or "$DEFAULT").removeprefix("$DEFAULT") or None
    try:
        # One version, as SSM chooses it; moto's find() knows $LATEST.
        document = backend._get_documents(name).find(version)
    except SSMException as error:
        raise ServiceError("InvalidDocument", f"Document with name {name}: {error}") from error
    if body.get("DocumentHash") not in (None, document.hash):
        raise ServiceError("InvalidDocument", f"{name}: the document's hash is {document.hash}")
    content = document.content_json
    if document.document_type != "Command" or str(content["schemaVersion"]) != "2.2":
        raise ServiceError("InvalidDocument", f"{name} is no Command document of schema 2.2")
    return document.document_version, steps(content, parameters)


_service: RunCommand | None = None
_service_lock = threading.Lock()


def configure(state_dir: Path, library: Path, settings: Settings | None = None) -> RunCommand:
    """Make the one service of this process; the daemon calls it before it serves a request."""
    global _service
    _service = RunCommand(state_dir, library, settings)
    return _service


def service() -> RunCommand:
    """The service; made with the checkout's `.lab` where nobody has configured another."""
    with _service_lock:
        if _service is None:
            home = Path(os.environ.get("GPUSHARE_LAB_DIR") or Path.cwd() / ".lab")
            return configure(home / "nodes", nvml.build())
        return _service


def handle(operation: str, body: dict[str, Any], context: Context) -> dict[str, Any]:
    """One JSON 1.1 call; the answer's members, timestamps as seconds. Raises ServiceError."""
    return service().handle(operation, body, context)


def inject(instance_id: str, outcome: str | None) -> None:
    """Make commands on this instance end so from now on; see ssm_commands.OUTCOMES."""
    service().dispatcher.inject(instance_id, outcome)
