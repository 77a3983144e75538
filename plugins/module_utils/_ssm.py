# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run one SSM document on a fleet and collect one typed outcome for each node.

Limits and defaults: AWS Systems Manager API reference, SendCommand and ListCommandInvocations.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._errors import NotFound

try:
    from botocore.exceptions import ClientError, HTTPClientError
    from botocore.exceptions import ConnectionError as Unconnected
except ImportError:  # the modules' door reports a missing boto3 itself
    ClientError = HTTPClientError = Unconnected = Exception

BATCH = 50  # InstanceIds of one SendCommand, and rows of one page
FIRST_PAUSE_S, LONGEST_PAUSE_S, GROWTH = 0.2, 5.0, 1.3
# AWS publishes no rate. A first look at each command of 1,000 nodes may go out at once; what comes
# after is held to a pace, because polling for long is what has throttled AWS's own tools.
POLLS_AT_ONCE, POLLS_A_SECOND = 20, 5
TRIES = 4  # of a call that fails for another reason than throttling
DELIVERY_S = 30  # the least that SendCommand takes for the delivery to a node
THROTTLED = {
    "RateExceeded",
    "RequestLimitExceeded",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
}
UNFINISHED = {"Pending", "InProgress", "Delayed", "Cancelling"}
OUTCOMES = {
    "Success": "Success",
    "TimedOut": "TimedOut",
    "ExecutionTimedOut": "TimedOut",
    "DeliveryTimedOut": "DeliveryTimedOut",
    "Undeliverable": "Undeliverable",
    "Terminated": "Terminated",
    "Cancelled": "Cancelled",
    "Canceled": "Cancelled",
}
REMEDIES = {
    "Failed": "look at the command's output in SSM; the node needs python3 3.9 or newer",
    "TimedOut": "the node is overloaded or its driver hangs: look at it, or reboot it",
    "DeliveryTimedOut": "the node's SSM agent is gone: check its network, its role and its agent",
    "Undeliverable": "give the node's role what AmazonSSMManagedInstanceCore grants, and a way to "
    "the ssm, ssmmessages and ec2messages endpoints; EKS Auto Mode nodes allow no SSM",
    "Terminated": "run again: the send was ended before it reached the node",
    "Cancelled": "run again: somebody cancelled the command",
    "NoAnswer": "wait and run again, or raise timeout; then check the node's SSM agent",
}


@dataclass(frozen=True)
class Outcome:
    """One node: `outcome` is Success, Failed, TimedOut, ...; `output` as SSM gave it."""

    outcome: str
    output: str = ""
    message: str = ""

    @property
    def error(self) -> dict[str, str] | None:
        """{"type", "message", "remedy"}, or None after a Success."""
        if self.outcome == "Success":
            return None
        return {
            "type": self.outcome,
            "message": self.message,
            "remedy": REMEDIES[self.outcome],
        }


@dataclass
class Fleet:
    """outcomes: {instance ID: Outcome}; calls: {operation: count, "throttled": count}."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)


class Pace:
    """A token bucket: `at_once` calls without a wait, then `a_second`."""

    def __init__(self, at_once: int, a_second: float, clock: Any, sleep: Any) -> None:
        self._most, self._rate, self._clock, self._sleep = at_once, a_second, clock, sleep
        self._tokens, self._since = float(at_once), clock()

    def wait(self) -> None:
        """Return when the next call may go out."""
        while True:
            now = self._clock()
            self._tokens = min(self._most, self._tokens + (now - self._since) * self._rate)
            self._since = now
            if self._tokens >= 1:
                self._tokens -= 1
                return
            self._sleep((1 - self._tokens) / self._rate + 1e-3)


class Calls:
    """Client calls with a backoff of our own, counted; ends at the deadline.

    A throttled call is tried again until then, another passing failure TRIES times in all. The
    client is to try once only, or the counts do not tell who was throttled.
    """

    def __init__(
        self, client: Any, counts: Counter[str], deadline: float, clock: Any, sleep: Any
    ) -> None:
        self.client, self.counts, self.deadline = client, counts, deadline
        self.clock, self.sleep = clock, sleep

    def __call__(self, operation: str, **arguments: Any) -> dict[str, Any]:
        pause, failures = FIRST_PAUSE_S, 0
        while True:
            self.counts[operation] += 1
            try:
                return getattr(self.client, operation)(**arguments)
            except (ClientError, HTTPClientError, Unconnected) as error:
                throttled = code(error) in THROTTLED
                failures += not throttled
                passing = throttled or (_passing(error) and failures < TRIES)
                if not passing or self.clock() >= self.deadline:
                    raise
            self.counts["throttled"] += throttled
            self.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE_S)


def _passing(error: Any) -> bool:
    """Whether AWS or the way to it failed, and not the request."""
    answer = getattr(error, "response", None)
    if answer is None:
        return True
    return int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) >= 500


def code(error: Any) -> str:
    """The error code of a botocore ClientError; "" of what is none."""
    answer = getattr(error, "response", None) or {}
    return str(answer.get("Error", {}).get("Code", ""))


def run_on_fleet(
    client: Any,
    document: str,
    instance_ids: list[str],
    *,
    timeout: float = 90,
    comment: str = "gpushare.eks: read GPU memory",
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Any] = time.sleep,
) -> Fleet:
    """Run `document` on all nodes; every ID gets an Outcome after at most `timeout` seconds.

    Costs ceil(N/50) sends and as many pages for each poll. An instance that SSM does not manage
    yet is asked for again until the time is up, and is Undeliverable only then. Raises NotFound
    when there is no such document; other errors of AWS pass through for `aws_errors`.
    """
    fleet = Fleet()
    call = Calls(client, fleet.calls, clock() + timeout, clock, sleep)
    wanted = list(dict.fromkeys(instance_ids))
    commands: dict[str, set[str]] = {}
    unknown: list[str] = []  # a young instance registers with SSM minutes after EC2 runs it
    for start in range(0, len(wanted), BATCH):
        batch = wanted[start : start + BATCH]
        if not _send(call, document, batch, comment, fleet, commands):
            unknown += _send_managed(call, document, batch, comment, fleet, commands)
    pace, pause = Pace(POLLS_AT_ONCE, POLLS_A_SECOND, clock, sleep), FIRST_PAUSE_S
    while (unknown or any(commands.values())) and clock() < call.deadline:
        sleep(min(pause * random.uniform(0.8, 1.0), max(0.0, call.deadline - clock())))
        pause = min(pause * GROWTH, LONGEST_PAUSE_S)
        for command, open_ids in commands.items():
            if open_ids and clock() < call.deadline:
                pace.wait()
                _collect(call, command, open_ids, fleet.outcomes)
        asked, unknown = unknown, []
        for start in range(0, len(asked), BATCH):
            batch = asked[start : start + BATCH]
            unknown += _send_managed(call, document, batch, comment, fleet, commands)
    message = f"SSM did not manage this instance within {timeout:g} s, or it is not running"
    fleet.outcomes.update(dict.fromkeys(unknown, Outcome("Undeliverable", message=message)))
    for instance_id in wanted:
        if instance_id not in fleet.outcomes:
            message = f"no answer within {timeout:g} s"
            fleet.outcomes[instance_id] = Outcome("NoAnswer", message=message)
    return fleet


def _send(
    call: Calls,
    document: str,
    batch: list[str],
    comment: str,
    fleet: Fleet,
    commands: dict[str, set[str]],
) -> bool:
    """One send; False when SSM refuses the batch for an instance that it does not know."""
    try:
        answer = call(
            "send_command",
            InstanceIds=batch,
            DocumentName=document,
            Comment=comment,
            TimeoutSeconds=DELIVERY_S,
            MaxConcurrency="50",
            MaxErrors="100%",  # the default 0 stops the dispatch at the first failure
        )
    except ClientError as error:
        if code(error) in ("InvalidDocument", "InvalidDocumentVersion"):
            raise NotFound(
                f"SSM document {document} does not exist in this region",
                object=f"SSM document {document}",
                cause=str(error),
                remedy="create it with gpushare.eks.ssm_document, or name another one",
            ) from error
        if code(error) in THROTTLED:
            message = "SSM throttled the send until the time was up"
            fleet.outcomes.update(dict.fromkeys(batch, Outcome("NoAnswer", message=message)))
            return True
        if code(error) != "InvalidInstanceId":
            raise
        return False
    commands[answer["Command"]["CommandId"]] = set(batch)
    return True


def _send_managed(
    call: Calls,
    document: str,
    batch: list[str],
    comment: str,
    fleet: Fleet,
    commands: dict[str, set[str]],
) -> list[str]:
    """Send to those of the batch that SSM manages by now; the others, to be asked again."""
    try:
        managed = _managed(call, batch)
    except ClientError as error:
        if code(error) not in THROTTLED:
            raise
        return batch
    ready = [instance_id for instance_id in batch if instance_id in managed]
    if ready and not _send(call, document, ready, comment, fleet, commands):
        return batch
    return [instance_id for instance_id in batch if instance_id not in managed]


def _managed(call: Calls, batch: list[str]) -> set[str]:
    """Those of the batch that SSM manages and sees online."""
    chosen = [{"Key": "InstanceIds", "Values": batch}]
    pages = paged(
        call,
        "describe_instance_information",
        "InstanceInformationList",
        Filters=chosen,
        MaxResults=50,
    )
    # Only a lost connection is certain to fail; an Inactive one is SSM's to judge.
    return {row["InstanceId"] for row in pages if row.get("PingStatus") != "ConnectionLost"}


def paged(call: Any, operation: str, key: str, **arguments: Any) -> Iterator[dict[str, Any]]:
    """All rows of all pages."""
    token: dict[str, str] = {}
    while True:
        answer = call(operation, **arguments, **token)
        yield from answer.get(key, [])
        if not answer.get("NextToken"):
            return
        token = {"NextToken": answer["NextToken"]}


def _collect(call: Calls, command: str, open_ids: set[str], outcomes: dict[str, Outcome]) -> None:
    """One round of pages: what has ended leaves open_ids; missing rows are awaited."""
    try:
        pages = paged(
            call,
            "list_command_invocations",
            "CommandInvocations",
            CommandId=command,
            Details=True,
            MaxResults=BATCH,
        )
        for row in pages:
            if row["InstanceId"] in open_ids and row["Status"] not in UNFINISHED:
                outcomes[row["InstanceId"]] = _outcome(row)
                open_ids.discard(row["InstanceId"])
    except ClientError as error:
        # Right after the send SSM may not know the command yet; throttled to the end: no answer.
        if code(error) not in {"InvocationDoesNotExist", "InvalidCommandId", *THROTTLED}:
            raise


def _outcome(row: dict[str, Any]) -> Outcome:
    plugins = row.get("CommandPlugins") or [{}]
    output, _dummy, errors = str(plugins[0].get("Output") or "").partition(
        "\n----------ERROR-------\n"
    )
    detail = str(row.get("StatusDetails") or row["Status"]).replace(" ", "")
    outcome = OUTCOMES.get(detail) or OUTCOMES.get(row["Status"], "Failed")
    if outcome == "Success":
        return Outcome(outcome, output.strip())
    exit_code = plugins[0].get("ResponseCode")
    told = "".join(c if 32 <= ord(c) < 127 else " " for c in errors or output)
    said = f": {' '.join(told.split())[:200]}" if told.strip() else ""
    ended = f" with exit code {exit_code}" if outcome == "Failed" and exit_code is not None else ""
    return Outcome(outcome, output.strip(), f"SSM reports {detail}{ended}{said}")
