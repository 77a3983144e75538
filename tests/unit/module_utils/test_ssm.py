"""One document on a fleet: exact call counts, typed outcomes, throttling, bounded waits."""

from __future__ import annotations

from collections import Counter

import pytest
from botocore.exceptions import ClientError, HTTPClientError

from ansible_collections.gpushare.eks.plugins.module_utils import _ssm
from ansible_collections.gpushare.eks.plugins.module_utils._errors import NotFound


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self):
        self.now, self.slept = 0.0, []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


class FakeSsm:
    """SSM with answers by instance; `late` rows appear with the n-th list of their command."""

    def __init__(self, status=None, late=0, unmanaged=(), fail=(), lost=(), registers=None):
        """registers: with which DescribeInstanceInformation SSM manages the unmanaged ones."""
        self.status, self.late, self.lost = status or {}, late, lost
        self.registers = registers
        self.unmanaged, self.fail = set(unmanaged), list(fail)
        self.commands, self.lists, self.calls, self.sent = {}, Counter(), Counter(), []

    def _begin(self, operation):
        self.calls[operation] += 1
        for i, (name, error_code) in enumerate(self.fail):
            if name == operation:
                del self.fail[i]
                raise error(error_code, operation)

    def send_command(self, **arguments):
        self._begin("send_command")
        ids = arguments["InstanceIds"]
        if len(ids) > 50 or self.unmanaged & set(ids):
            raise error("InvalidInstanceId", "SendCommand")
        command = f"command-{len(self.commands)}"
        self.commands[command] = ids
        self.sent.append(arguments)
        return {"Command": {"CommandId": command}}

    def list_command_invocations(self, CommandId, Details, MaxResults, NextToken="0"):
        self._begin("list_command_invocations")
        assert Details is True
        self.lists[CommandId] += 1
        ids = self.commands[CommandId]
        if self.lists[CommandId] <= self.late:
            return {"CommandInvocations": []}
        start = int(NextToken)
        rows = [self._row(one) for one in ids[start : start + MaxResults]]
        more = {"NextToken": str(start + MaxResults)} if start + MaxResults < len(ids) else {}
        return {"CommandInvocations": rows, **more}

    def _row(self, instance_id):
        status, details, output = self.status.get(instance_id, ("Success", "Success", "{}"))
        plugin = {"Output": output, "ResponseCode": 0 if status == "Success" else 1}
        return {
            "InstanceId": instance_id,
            "Status": status,
            "StatusDetails": details,
            "CommandPlugins": [plugin],
        }

    def describe_instance_information(self, Filters, MaxResults, NextToken=None):
        self._begin("describe_instance_information")
        if self.calls["describe_instance_information"] == self.registers:
            self.unmanaged = set()
        managed = [one for one in Filters[0]["Values"] if one not in self.unmanaged]
        status = {one: "ConnectionLost" if one in self.lost else "Online" for one in managed}
        rows = [{"InstanceId": one, "PingStatus": status[one]} for one in managed]
        return {"InstanceInformationList": rows}


def error(error_code, operation):
    """operation: a name, or the HTTP status of the answer."""
    answer = {"Error": {"Code": error_code, "Message": error_code}}
    if isinstance(operation, int):
        answer["ResponseMetadata"] = {"HTTPStatusCode": operation}
    return ClientError(answer, str(operation))


def ids(count):
    return [f"i-{number:017x}" for number in range(count)]


def run(client, instance_ids, timeout=90):
    clock = Clock()
    fleet = _ssm.run_on_fleet(
        client, "document", instance_ids, timeout=timeout, clock=clock, sleep=clock.sleep
    )
    return fleet, clock


@pytest.mark.parametrize(
    ("nodes", "sends"), [(0, 0), (1, 1), (50, 1), (51, 2), (200, 4), (1000, 20)]
)
def test_exact_calls(nodes, sends):
    client = FakeSsm()
    fleet, _ = run(client, ids(nodes))
    assert Counter(one.outcome for one in fleet.outcomes.values()) == Counter(
        {"Success": nodes} if nodes else {}
    )
    assert client.calls == {"send_command": sends, "list_command_invocations": sends} or not nodes
    assert fleet.calls == client.calls
    assert sum(client.calls.values()) <= 80


def test_a_send_is_bounded_and_goes_to_all():
    client = FakeSsm()
    run(client, ids(60))
    for sent in client.sent:
        assert sent["MaxErrors"] == "100%"
        assert sent["MaxConcurrency"] == "50"
        assert sent["TimeoutSeconds"] >= 30
        assert "Parameters" not in sent
    assert [len(sent["InstanceIds"]) for sent in client.sent] == [50, 10]


@pytest.mark.parametrize(
    ("status", "details", "outcome"),
    [
        ("Failed", "Failed", "Failed"),
        ("TimedOut", "Execution Timed Out", "TimedOut"),
        ("TimedOut", "ExecutionTimedOut", "TimedOut"),
        ("TimedOut", "Delivery Timed Out", "DeliveryTimedOut"),
        ("TimedOut", "DeliveryTimedOut", "DeliveryTimedOut"),
        ("Failed", "Undeliverable", "Undeliverable"),
        ("Failed", "Terminated", "Terminated"),
        ("Cancelled", "Cancelled", "Cancelled"),
        ("Cancelled", "Canceled", "Cancelled"),
        ("Failed", "AccessDenied", "Failed"),
    ],
)
def test_outcomes(status, details, outcome):
    one, other = ids(2)
    fleet, _ = run(
        FakeSsm({one: (status, details, "\n----------ERROR-------\nwhy\x1b[2J")}), ids(2)
    )
    assert fleet.outcomes[one].outcome == outcome
    told = fleet.outcomes[one].error
    assert told["type"] == outcome
    assert told["remedy"]
    assert "\x1b" not in told["message"]
    assert fleet.outcomes[other].error is None


def test_stderr_is_not_part_of_the_output():
    one = ids(1)[0]
    text = '{"a":1}\n\n----------ERROR-------\nwarning'
    fleet, _ = run(FakeSsm({one: ("Success", "Success", text)}), [one])
    assert fleet.outcomes[one].output == '{"a":1}'


def test_no_answer_after_a_bounded_wait():
    one, other = ids(2)
    client = FakeSsm({one: ("InProgress", "InProgress", "")})
    fleet, clock = run(client, [one, other], timeout=30)
    assert fleet.outcomes[one].outcome == "NoAnswer"
    assert fleet.outcomes[other].outcome == "Success"
    assert 30 <= clock.now < 31
    assert client.calls["list_command_invocations"] < 20
    assert max(clock.slept) <= 5


def test_rows_that_come_late_are_awaited():
    fleet, clock = run(FakeSsm(late=3), ids(60))
    assert {one.outcome for one in fleet.outcomes.values()} == {"Success"}
    assert clock.now < 5


@pytest.mark.parametrize("code", ["InvocationDoesNotExist", "InvalidCommandId"])
def test_a_command_that_ssm_does_not_know_yet(code):
    client = FakeSsm(fail=[("list_command_invocations", code)] * 2)
    fleet, _ = run(client, ids(3))
    assert {one.outcome for one in fleet.outcomes.values()} == {"Success"}


@pytest.mark.parametrize("operation", ["send_command", "list_command_invocations"])
def test_throttling_is_ridden_out(operation):
    client = FakeSsm(fail=[(operation, "ThrottlingException")] * 6)
    fleet, _ = run(client, ids(200))
    assert {one.outcome for one in fleet.outcomes.values()} == {"Success"}
    assert fleet.calls["throttled"] == 6
    assert fleet.calls[operation] == client.calls[operation] == 4 + 6


def test_throttling_without_end_is_no_answer():
    client = FakeSsm(fail=[("send_command", "ThrottlingException")] * 1000)
    fleet, clock = run(client, ids(3), timeout=20)
    assert {one.outcome for one in fleet.outcomes.values()} == {"NoAnswer"}
    assert "throttled" in fleet.outcomes[ids(1)[0]].message
    assert clock.now < 30


class Reset(HTTPClientError):
    fmt = "the connection was reset"


@pytest.mark.parametrize("what", [("InternalServerError", 500), ("ServiceUnavailable", 503), None])
@pytest.mark.parametrize("operation", ["send_command", "list_command_invocations"])
def test_a_failure_of_aws_passes_a_few_times(operation, what):
    client = FakeSsm()
    inner, failures = getattr(client, operation), [3]

    def fails(**arguments):
        if failures[0]:
            failures[0] -= 1
            raise error(*what) if what else Reset()
        return inner(**arguments)

    setattr(client, operation, fails)
    fleet, _ = run(client, ids(1))
    assert fleet.outcomes[ids(1)[0]].outcome == "Success"
    assert fleet.calls[operation] == 4
    assert fleet.calls["throttled"] == 0
    failures[0] = 4
    with pytest.raises((ClientError, Reset)):
        run(client, ids(1))


def test_unmanaged_instances_are_found_and_do_not_stop_the_rest():
    everybody = ids(120)
    client = FakeSsm(unmanaged=[everybody[7], everybody[60]])
    fleet, clock = run(client, everybody, timeout=20)
    outcomes = Counter(one.outcome for one in fleet.outcomes.values())
    assert outcomes == {"Success": 118, "Undeliverable": 2}
    assert fleet.outcomes[everybody[7]].error["type"] == "Undeliverable"
    assert "20 s" in fleet.outcomes[everybody[7]].message
    assert client.calls["send_command"] == 3 + 2
    assert 20 <= clock.now < 21


@pytest.mark.parametrize("asked", [1, 2, 9])
def test_an_instance_that_registers_late_is_sent_to_as_soon_as_ssm_manages_it(asked):
    everybody = ids(60)
    client = FakeSsm(unmanaged=everybody[50:53], registers=asked)
    fleet, _ = run(client, everybody)
    assert {one.outcome for one in fleet.outcomes.values()} == {"Success"}
    # The first batch, the refused second, and (together or apart) who is managed and who was late.
    sends = 3 if asked == 1 else 4
    assert client.calls["send_command"] == sends
    assert client.calls["describe_instance_information"] == asked
    assert client.calls["list_command_invocations"] == sends - 1
    assert fleet.calls == client.calls
    late = [sent["InstanceIds"] for sent in client.sent][-1]
    assert late == (everybody[50:53] if asked > 1 else everybody[50:])


def test_who_never_registers_costs_a_bounded_number_of_questions():
    client = FakeSsm(unmanaged=ids(2))
    fleet, clock = run(client, ids(2), timeout=120)
    assert {one.outcome for one in fleet.outcomes.values()} == {"Undeliverable"}
    assert client.calls["send_command"] == 1
    assert 20 < client.calls["describe_instance_information"] < 50
    assert 120 <= clock.now < 121
    assert "list_command_invocations" not in client.calls


def test_an_instance_that_is_managed_but_refused_is_tried_again():
    client = FakeSsm(fail=[("send_command", "InvalidInstanceId")] * 3)
    fleet, _ = run(client, ids(2))
    assert {one.outcome for one in fleet.outcomes.values()} == {"Success"}
    assert client.calls == {
        "send_command": 4,
        "describe_instance_information": 3,
        "list_command_invocations": 1,
    }


def test_throttled_questions_for_the_unmanaged_end_with_the_time():
    throttled = [("describe_instance_information", "ThrottlingException")] * 1000
    client = FakeSsm(unmanaged=ids(1), fail=throttled)
    fleet, clock = run(client, ids(1), timeout=20)
    assert fleet.outcomes[ids(1)[0]].outcome == "Undeliverable"
    assert clock.now < 30


def test_a_lost_connection_is_undeliverable_when_a_batch_is_refused():
    everybody = ids(3)
    client = FakeSsm(unmanaged=everybody[:1], lost=everybody[1:2])
    fleet, _ = run(client, everybody, timeout=5)
    got = [fleet.outcomes[one].outcome for one in everybody]
    assert got == ["Undeliverable", "Undeliverable", "Success"]


def test_a_missing_document_is_named_with_the_remedy():
    client = FakeSsm(fail=[("send_command", "InvalidDocument")])
    with pytest.raises(NotFound) as caught:
        run(client, ids(1))
    assert "document" in str(caught.value)
    assert "ssm_document" in caught.value.remedy


def test_other_errors_pass_through():
    with pytest.raises(ClientError):
        run(FakeSsm(fail=[("send_command", "AccessDeniedException")]), ids(1))
