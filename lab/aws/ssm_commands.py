"""Commands and their invocations: dispatch under MaxConcurrency and MaxErrors, and typed ends.

Up to SHARE_ABOVE nodes in flight for one document each get a process of their own. Above, one real
execution for each instance type answers for its healthy nodes, every node under its own names:
two cores do not start 200 interpreters in the time that 200 machines do.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from lab.aws.ssm_node import Agent, Node, Result, Step
from lab.nvml import nodes

# Outcomes that can be asked for: (Status, StatusDetails). Status has fewer words than the details
# (CommandInvocationStatus in the API model): tell ends apart by StatusDetails.
OUTCOMES = {
    "Failed": ("Failed", "Failed"),
    "TimedOut": ("TimedOut", "Execution Timed Out"),
    "DeliveryTimedOut": ("TimedOut", "Delivery Timed Out"),
    "Undeliverable": ("Failed", "Undeliverable"),
    "Terminated": ("Cancelled", "Terminated"),
    "Cancelled": ("Cancelled", "Cancelled"),
    # The agent is silent: Pending until TimeoutSeconds, then Delivery Timed Out.
    "NoAnswer": ("Pending", "Pending"),
}
# Only these count against MaxErrors: SSM user guide, "Understanding command statuses".
_COUNTED = {"Failed", "Execution Timed Out"}
UNFINISHED = ("Pending", "InProgress")


@dataclass
class Settings:
    """How the service behaves; seconds."""

    # Right after the send an invocation does not exist yet.
    visible_after_s: float = 0.1
    share_above: int = 50
    # A shared answer comes no sooner than this after its start.
    share_latency_s: float = 0.3
    # An answer of another node is used again for so long.
    share_age_s: float = 3.0
    workers: int = 4


@dataclass
class Invocation:
    """One command on one node."""

    node: Node
    status: str = "Pending"
    details: str = "Pending"
    requested: float = field(default_factory=time.time)
    started: float | None = None
    ended: float | None = None
    result: Result | None = None

    def end(self, status: str, details: str, result: Result | None = None) -> None:
        """The end, once: what comes later changes nothing."""
        if self.ended is None:
            self.result, self.status, self.details = result, status, details
            self.ended = time.time()


@dataclass
class Command:
    """One SendCommand."""

    document: str
    document_version: str
    steps: list[Step]
    request: dict[str, Any]
    max_concurrency: int
    max_errors: int
    timeout_s: int
    invocations: dict[str, Invocation]
    command_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    requested: float = field(default_factory=time.time)
    cancelled: set[str] = field(default_factory=set)

    @property
    def unfinished(self) -> int:
        """Invocations without an end."""
        return sum(i.ended is None for i in list(self.invocations.values()))

    def status(self) -> tuple[str, str]:
        """(Status, StatusDetails) of the whole."""
        seen = Counter(i.details for i in self.invocations.values())
        states = {i.status for i in self.invocations.values()}
        if not self.invocations:
            return "Success", "NoInstancesInTag"
        if states <= {"Pending"}:
            return "Pending", "Pending"
        if states & set(UNFINISHED):
            return "InProgress", "InProgress"
        for details in ("Failed", "Execution Timed Out"):
            if seen[details] > self.max_errors:
                return ("Failed", "Failed") if details == "Failed" else ("TimedOut", details)
        if seen["Cancelled"]:
            return "Cancelled", "Cancelled"
        if seen["Delivery Timed Out"] == len(self.invocations):
            return "TimedOut", "Delivery Timed Out"
        if set(seen) - {"Success", "Undeliverable"}:
            return "Failed", "Incomplete"
        return "Success", "Success"


class Dispatcher:
    """Carries commands out in threads of its own."""

    def __init__(self, agent: Agent, settings: Settings, alive: Callable[[str], bool]) -> None:
        self._agent, self._settings, self._alive = agent, settings, alive
        self._outcomes: dict[str, str] = {}
        self._commands: list[Command] = []
        self._machine = threading.Semaphore(settings.workers)
        self._pool = ThreadPoolExecutor(max_workers=128, thread_name_prefix="ssm-node")
        self._shared: dict[tuple[Any, ...], tuple[float, list[str], Future[Result]]] = {}
        self._lock = threading.Lock()

    def inject(self, instance_id: str, outcome: str | None) -> None:
        """From the next command on this node ends so (a key of OUTCOMES); None: as it does."""
        if outcome is None:
            self._outcomes.pop(instance_id, None)
        elif outcome in OUTCOMES:
            self._outcomes[instance_id] = outcome
        else:
            raise ValueError(f"{outcome!r} is no outcome; use one of {', '.join(OUTCOMES)}")

    def start(self, command: Command) -> None:
        """Dispatch in the background; returns at once."""
        with self._lock:
            self._commands = [c for c in self._commands if c.unfinished] + [command]
        threading.Thread(
            target=self._dispatch, args=(command,), daemon=True, name=f"ssm-{command.command_id}"
        ).start()

    def _dispatch(self, command: Command) -> None:
        waiting = list(command.invocations.values())
        running: set[Future[None]] = set()
        shared: list[tuple[float, Invocation]] = []  # by the time at which they answer
        while waiting or running or shared:
            errors = sum(i.details in _COUNTED for i in command.invocations.values())
            for invocation in list(waiting):
                if invocation.node.instance_id in command.cancelled:
                    invocation.end("Cancelled", "Cancelled")
                elif errors > command.max_errors:
                    invocation.end(*OUTCOMES["Terminated"])
                elif len(running) + len(shared) >= command.max_concurrency:
                    continue
                elif self._shares(command, invocation.node):
                    # No thread of its own: a thousand nodes answer at the same time.
                    _begin(invocation)
                    shared.append((time.monotonic() + self._settings.share_latency_s, invocation))
                else:
                    running.add(self._pool.submit(self._invoke, command, invocation))
                waiting.remove(invocation)
            pause = max(0.0, shared[0][0] - time.monotonic()) if shared else 0.5
            if running:
                _, running = wait(running, timeout=pause, return_when=FIRST_COMPLETED)
            else:
                time.sleep(pause)
            while shared and shared[0][0] <= time.monotonic():
                invocation = shared.pop(0)[1]
                self._end(invocation, lambda i=invocation: self._shared_answer(command, i.node))

    def _invoke(self, command: Command, invocation: Invocation) -> None:
        node = invocation.node
        outcome = self._outcomes.get(node.instance_id)
        if outcome == "NoAnswer":
            self._silence(command, invocation)
            return
        _begin(invocation)
        if outcome:
            time.sleep(self._settings.share_latency_s)
            status, details = OUTCOMES[outcome]
            code = 1 if outcome == "Failed" else -1
            invocation.end(status, details, Result(status, details, code))
            return
        self._end(invocation, lambda: self._execute(command, node))

    def _end(self, invocation: Invocation, answer: Callable[[], Result]) -> None:
        try:
            result = answer()
        except (OSError, KeyError, ValueError) as error:
            result = Result("Failed", "Failed", -1, stderr=f"the lab's agent: {error}")
        if not self._alive(invocation.node.instance_id):
            invocation.end(*OUTCOMES["Undeliverable"])
        invocation.end(result.status, result.details, result)

    def _silence(self, command: Command, invocation: Invocation) -> None:
        until = command.requested + command.timeout_s
        while time.time() < until and invocation.node.instance_id not in command.cancelled:
            time.sleep(0.1)
        if time.time() < until:
            invocation.end("Cancelled", "Cancelled")
        else:
            invocation.end("TimedOut", "Delivery Timed Out")

    def _shares(self, command: Command, node: Node) -> bool:
        """Whether one node of the type answers for this one."""
        name = command.document
        in_flight = sum(c.unfinished for c in list(self._commands) if c.document == name)
        usual = nodes.is_usual(node.instance_id)
        asked_for = self._outcomes.get(node.instance_id)
        return in_flight > self._settings.share_above and usual and not asked_for

    def _execute(self, command: Command, node: Node) -> Result:
        # The first command of a large fleet is alone for a moment: look again while it queues.
        while not self._machine.acquire(timeout=0.05):
            if self._shares(command, node):
                return self._shared_answer(command, node)
        try:
            return self._agent.run(node, command.steps)
        finally:
            self._machine.release()

    def _shared_answer(self, command: Command, node: Node) -> Result:
        began = time.monotonic()
        key = (command.document, tuple(command.steps), node.instance_type, node.region)
        with self._lock:
            at, names, answer = self._shared.get(key, (0.0, [], Future()))
            mine = began - at > self._settings.share_age_s
            if mine:
                names, answer = node.identity(), Future()
                self._shared[key] = (began, names, answer)
        if mine:
            try:
                answer.set_result(self._agent.run(node, command.steps))
            except BaseException as error:
                answer.set_exception(error)
                raise
        return answer.result().of(names, node.identity())


def _begin(invocation: Invocation) -> None:
    invocation.started = time.time()
    invocation.status = invocation.details = "InProgress"
