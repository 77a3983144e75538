"""One pod that the lab really runs: its processes, their ends, and the status that tells so."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import LabError
from lab.podfiles import PodFiles
from lab.processes import group_code, signal_group, start_bound

log = logging.getLogger("lab.pods")
# A kubelet begins with 10 s and goes up to five minutes; after ten good minutes it begins anew.
BACK_OFF_S, BACK_OFF_MAX_S, STABLE_S = 1.0, 10.0, 60.0
_LIMIT = 40
# The kubelet cuts what a container leaves as its last words.
MESSAGE_BYTES = 4096
_PYTHON = re.compile(r"(^|/)python(:|@|$)")


def is_ours(container: Mapping[str, Any]) -> bool:
    """Whether the container's image is a stock Python, which the lab has."""
    return bool(_PYTHON.search(container.get("image", "")))


@dataclass
class Container:
    """One container's process, the one before it, and when there is to be another."""

    spec: dict[str, Any]
    log: Path
    record: Path
    # What the container sees as its terminationMessagePath.
    message: Path
    restarts: int = 0
    child: subprocess.Popen | None = None
    started_at: float = 0.0
    start_due: float = 0.0
    back_off_s: float = 0.0
    last: dict[str, Any] | None = None
    waits_for: tuple[str, str] | None = None
    kill_due: float | None = None
    done: bool = False

    @property
    def name(self) -> str:
        return self.spec["name"]

    def start(self, files: PodFiles, given: Mapping[str, str], pod_name: str) -> None:
        """Start the process; what is missing is told by `waits_for` and tried again later."""
        try:
            env = files.environment(self.spec, given)
            command = files.command(self.spec, env)
            program = shutil.which(command[0], path=env["PATH"])
            if program is None:
                raise LabError(f'exec: "{command[0]}": executable file not found in $PATH')
        except LabError as error:
            self.wait("CreateContainerConfigError", str(error))
            return
        if self.last is not None:
            self.restarts += 1
        self.message.parent.mkdir(parents=True, exist_ok=True)
        self.message.write_bytes(b"")
        self.child = start_bound(
            [program, *command[1:]],
            log=self.log,
            record=self.record,
            env=env,
            cwd=Path(env["HOME"]),
            name=pod_name,
            leads_group=True,
        )
        self.started_at, self.waits_for, self.kill_due = time.time(), None, None

    def wait(self, reason: str, message: str, delay_s: float = BACK_OFF_S) -> None:
        """Nothing runs for now, and why."""
        self.waits_for = (reason, message)
        self.start_due = time.monotonic() + delay_s

    def ended(self) -> bool:
        """Whether no process runs (any more); notes how it ended."""
        if self.child is None:
            return True
        code = group_code(self.child)
        if code is None:
            if self.kill_due is not None and time.monotonic() >= self.kill_due:
                signal_group(self.child, signal.SIGKILL)
            return False
        self.child = None
        self.record.unlink(missing_ok=True)
        self.last = {
            # The shell's way of telling a signal, as container runtimes do.
            "exitCode": code if code >= 0 else 128 - code,
            "reason": "Error" if code else "Completed",
            "startedAt": stamp(self.started_at),
            "finishedAt": stamp(),
        }
        said = self.message.read_bytes()[-MESSAGE_BYTES:] if self.message.exists() else b""
        if said:
            self.last["message"] = said.decode("utf-8", "replace")
        return True

    def next(self, policy: str) -> None:
        """What the restart policy makes of the end."""
        assert self.last is not None
        if policy == "Never" or (policy == "OnFailure" and self.last["exitCode"] == 0):
            self.done = True
            return
        if time.time() - self.started_at > STABLE_S:
            self.back_off_s = 0.0
        self.back_off_s = min(BACK_OFF_MAX_S, 2 * self.back_off_s or BACK_OFF_S)
        said = f"back-off {self.back_off_s:.0f}s restarting failed container={self.name}"
        self.wait("CrashLoopBackOff", said, self.back_off_s)

    def end(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL when the grace is over; without a grace SIGKILL at once."""
        if self.child is None or (self.kill_due is not None and grace_s):
            return
        self.kill_due = time.monotonic() + grace_s
        signal_group(self.child, signal.SIGTERM if grace_s else signal.SIGKILL)

    def status(self) -> dict[str, Any]:
        """The container's entry in containerStatuses."""
        running = self.child is not None
        shown: dict[str, Any] = {
            "name": self.name,
            "image": self.spec["image"],
            "imageID": self.spec["image"],
            "ready": running,
            "started": running,
            "restartCount": self.restarts,
        }
        if running:
            shown["state"] = {"running": {"startedAt": stamp(self.started_at)}}
        elif self.waits_for:
            reason, message = self.waits_for
            shown["state"] = {"waiting": {"reason": reason, "message": message}}
        elif self.last:
            return {**shown, "state": {"terminated": self.last}}
        else:
            shown["state"] = {"waiting": {"reason": "ContainerCreating"}}
        if self.last:
            shown["lastState"] = {"terminated": self.last}
        return shown


@dataclass
class Pod:
    """A pod on its node, as the kubelet holds it."""

    body: dict[str, Any]
    instance_id: str
    instance_type: str
    files: PodFiles
    root: Path
    containers: list[Container] = field(default_factory=list)
    prepared: bool = False
    # A request about this pod is under way.
    busy: bool = False
    status_due: float | None = None
    write_due: float | None = None
    prepare_due: float = 0.0
    # Why nothing is to be started: "deleted", "lost" (instance or Node), "reboot"; "" otherwise.
    down: str = ""

    @property
    def uid(self) -> str:
        return self.body["metadata"]["uid"]

    @property
    def name(self) -> str:
        return self.body["metadata"]["name"]

    @property
    def node(self) -> str:
        return self.body["spec"]["nodeName"]

    def end(self, grace_s: float) -> None:
        """End all processes."""
        for container in self.containers:
            container.end(grace_s)

    def ended(self) -> bool:
        """Whether no process of the pod runs."""
        running = [container for container in self.containers if not container.ended()]
        return not running

    def status(self) -> dict[str, Any]:
        """A patch of the pod's status from what its processes do."""
        ours = {container.name: container.status() for container in self.containers}
        seen = (self.body.get("status") or {}).get("containerStatuses") or []
        rows = [ours.get(row["name"], row) for row in seen]
        if not rows:
            rows = list(ours.values())
        ready = all(row.get("ready") for row in rows)
        done = [c for c in self.containers if c.done]
        phase = "Running"
        if len(done) == len(rows):
            phase = "Failed" if any(c.last and c.last["exitCode"] for c in done) else "Succeeded"
        more = {} if ready else {"reason": "ContainersNotReady"}
        if phase == "Succeeded":
            more = {"reason": "PodCompleted"}
        conditions = [
            {"type": kind, "status": str(ready), "lastTransitionTime": stamp(), **more}
            for kind in ("Ready", "ContainersReady")
        ]
        return {"status": {"phase": phase, "conditions": conditions, "containerStatuses": rows}}


class Slots:
    """How many pods may run at once in the whole lab: GPUSHARE_LAB_PODS."""

    def __init__(self, limit: int | None = None) -> None:
        if limit is None:
            limit = int(os.environ.get("GPUSHARE_LAB_PODS") or _LIMIT)
        self._limit = self._free = limit
        self._told, self._lock = False, threading.Lock()

    def take(self) -> bool:
        """Whether one more may run; the first refusal is logged."""
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return True
            if not self._told:
                self._told = True
                log.warning(
                    "%d pods run; further ones are only shown as running: raise GPUSHARE_LAB_PODS"
                    " to run more",
                    self._limit,
                )
            return False

    def give(self) -> None:
        """One runs no more."""
        with self._lock:
            self._free += 1


def pod_path(body: Mapping[str, Any]) -> str:
    meta = body["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"


def grace_s(body: Mapping[str, Any], limit_s: float) -> float:
    """How long the pod's processes may take to end."""
    given = body["metadata"].get("deletionGracePeriodSeconds")
    if given is None:
        given = body["spec"].get("terminationGracePeriodSeconds", 30)
    return min(float(given), limit_s)


def stamp(seconds: float | None = None) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
