"""One SSM agent: runs a command document's shell script for real, as one node would.

The script gets a fresh directory, a process group of its own and an environment with nothing of
the daemon's: the node's NVML library and state, its metadata service, a PATH with a python3.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import nvml
from lab.aws import ServiceError
from lab.aws.imds import MetadataServer
from lab.machine import Machines
from lab.nvml import nodes

# What Systems Manager keeps of each stream (GetCommandInvocation).
STDOUT_LIMIT, STDERR_LIMIT = 24000, 8000
DEFAULT_TIMEOUT_S = 3600
RUN_SHELL_SCRIPT = {
    "schemaVersion": "2.2",
    "parameters": {
        "commands": {"type": "StringList"},
        "workingDirectory": {"type": "String", "default": ""},
        "executionTimeout": {"type": "String", "default": str(DEFAULT_TIMEOUT_S)},
    },
    "mainSteps": [
        {
            "action": "aws:runShellScript",
            "name": "runShellScript",
            "inputs": {
                "runCommand": "{{ commands }}",
                "workingDirectory": "{{ workingDirectory }}",
                "timeoutSeconds": "{{ executionTimeout }}",
            },
        }
    ],
}
_PARAMETER = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@dataclass(frozen=True)
class Node:
    """What the agent knows of its instance."""

    instance_id: str
    instance_type: str
    region: str
    zone: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    ip_address: str = ""
    name: str = ""

    def metadata(self) -> dict[str, str]:
        """The instance metadata that scripts ask for."""
        return {
            "instance-id": self.instance_id,
            "instance-type": self.instance_type,
            "local-ipv4": self.ip_address,
            "placement/availability-zone": self.zone,
            "placement/region": self.region,
        }

    def identity(self) -> list[str]:
        """Every name in an output that is this node's own, in one order for all of a type."""
        count = len(nvml.gpus(self.instance_type))
        return [
            self.instance_id,
            nodes.boot_id(self.instance_id),
            *(nvml.gpu_uuid(self.instance_id, index) for index in range(count)),
        ]


@dataclass(frozen=True)
class Step:
    """One aws:runShellScript of a document, its parameters filled in."""

    name: str
    script: str
    directory: str
    timeout_s: int


@dataclass(frozen=True)
class Result:
    """How one execution ended; `status` and `details` as Systems Manager names them."""

    status: str
    details: str
    code: int
    stdout: str = ""
    stderr: str = ""

    def of(self, before: list[str], after: list[str]) -> Result:
        """The same result as another node of the type would give it, under its own names."""
        stdout, stderr = self.stdout, self.stderr
        for old, new in zip(before, after, strict=True):
            stdout, stderr = stdout.replace(old, new), stderr.replace(old, new)
        return Result(self.status, self.details, self.code, stdout, stderr)


def steps(content: dict[str, Any], parameters: dict[str, list[str]]) -> list[Step]:
    """The shell steps of a schema 2.2 command document, with `parameters` of SendCommand.

    Raises InvalidParameters for a parameter that is missing or unknown, InvalidDocument for an
    action that is no shell script.
    """
    declared = content.get("parameters") or {}
    unknown = sorted(set(parameters) - set(declared))
    missing = sorted(k for k, v in declared.items() if k not in parameters and "default" not in v)
    if unknown or missing:
        raise ServiceError("InvalidParameters", f"unknown: {unknown}, missing: {missing}")
    values = {k: parameters.get(k, v.get("default", "")) for k, v in declared.items()}
    found = []
    for step in content.get("mainSteps") or []:
        if step.get("action") != "aws:runShellScript":
            raise ServiceError("InvalidDocument", f"{step.get('action')}: no aws:runShellScript")
        inputs = step["inputs"]
        found.append(
            Step(
                name=step["name"],
                script="\n".join(_fill(inputs["runCommand"], values)) + "\n",
                directory=" ".join(_fill(inputs.get("workingDirectory") or "", values)),
                timeout_s=int(
                    _fill(str(inputs.get("timeoutSeconds") or DEFAULT_TIMEOUT_S), values)[0]
                ),
            )
        )
    if not found:
        raise ServiceError("InvalidDocument", "the document has no step")
    return found


def _fill(given: str | list[str], values: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for line in [given] if isinstance(given, str) else given:
        whole = _PARAMETER.fullmatch(line.strip())
        if whole and isinstance(values.get(whole[1]), list):
            lines += values[whole[1]]
            continue

        def text(match: re.Match[str]) -> str:
            value = values.get(match[1], match[0])
            return "\n".join(value) if isinstance(value, list) else str(value)

        lines.append(_PARAMETER.sub(text, line))
    return lines


class Agent:
    """Runs steps on nodes; one for the whole lab."""

    def __init__(self, machines: Machines, metadata: MetadataServer) -> None:
        self._machines, self._metadata = machines, metadata

    def run(self, node: Node, todo: list[Step]) -> Result:
        """Run the steps one after another, until one fails."""
        stdout = stderr = ""
        result = Result("Failed", "Failed", -1)
        for step in todo:
            result = self._step(node, step)
            stdout, stderr = stdout + result.stdout, stderr + result.stderr
            if result.status != "Success":
                break
        return Result(
            result.status, result.details, result.code, stdout[:STDOUT_LIMIT], stderr[:STDERR_LIMIT]
        )

    def _environment(self, node: Node, home: str) -> dict[str, str]:
        return {
            **self._machines.environment(node.instance_id, node.instance_type),
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": self._metadata.endpoint(node.instance_id),
            "AWS_SSM_INSTANCE_ID": node.instance_id,
            "AWS_SSM_REGION_NAME": node.region,
            "HOME": home,
            "TMPDIR": home,
        }

    def _step(self, node: Node, step: Step) -> Result:
        with tempfile.TemporaryDirectory(prefix=f"{node.instance_id}-") as home:
            script = Path(home, "_script.sh")
            script.write_text(step.script)
            first = step.script.split("\n", 1)[0]
            # Named, not executed: a file just written can be busy in a process with many threads.
            interpreter = shlex.split(first[2:]) if first.startswith("#!") else ["sh"]
            process = subprocess.Popen(
                [*interpreter, str(script)],
                cwd=step.directory or home,
                env=self._environment(node, home),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            late = False
            try:
                out, err = process.communicate(timeout=step.timeout_s)
            except subprocess.TimeoutExpired:
                late = True
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                out, err = process.communicate()
        stdout = _text(out)
        if late:
            return Result("TimedOut", "Execution Timed Out", -1, stdout, _text(err))
        if process.returncode:
            more = f"failed to run commands: exit status {process.returncode}"
            return Result("Failed", "Failed", process.returncode, stdout, _text(err) + more)
        return Result("Success", "Success", 0, stdout, _text(err))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
