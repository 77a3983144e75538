"""The calls of AWS: throttled, refused, not there yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest

from ..support import doors, engine
from ..support.fleet import INSTANCE_TYPE, TRUTH_MIB
from .judge import CLUSTER, FOREVER, TRIO, converged, typed

_SSM = {"service": "ssm"}
_PAGES = {**_SSM, "operation": "ListCommandInvocations"}
_SEND = {**_SSM, "operation": "SendCommand"}
# Name: (rules of the lab's faults, the type of the task's error, or None where it converges)
CALLS: dict[str, tuple[list[dict[str, Any]], str | None]] = {
    "InvocationDoesNotExist right after the send": (
        [{**_PAGES, "error": "InvocationDoesNotExist", "times": 3}],
        None,
    ),
    "the command is not known yet": (
        [{**_PAGES, "error": "InvalidCommandId", "times": 2}],
        None,
    ),
    "SendCommand throttled": (
        [{**_SEND, "error": "ThrottlingException", "times": 2}],
        None,
    ),
    "SSM answers 500": (
        [{**_SSM, "error": "InternalServerError", "status": 500, "times": 3}],
        None,
    ),
    "EC2 throttled": (
        [{"service": "ec2", "error": "RequestLimitExceeded", "status": 503, "times": 1}],
        None,
    ),
    "EKS throttled": (
        [{"service": "eks", "error": "TooManyRequestsException", "status": 429, "times": 1}],
        None,
    ),
    "SendCommand denied": (
        [{**_SEND, "error": "AccessDeniedException", "times": 1}],
        "AccessDenied",
    ),
    "the document is gone": (
        [{**_SEND, "error": "InvalidDocument", "times": 1}],
        "NotFound",
    ),
    "AWS credentials expired": (
        [{"service": "*", "error": "ExpiredTokenException", "times": FOREVER}],
        "NoCredentials",
    ),
}


@pytest.fixture
def lab_faults() -> Iterator[Callable[[list[dict[str, Any]]], None]]:
    doors.faults(None)
    yield doors.faults
    doors.faults(None)


@pytest.mark.parametrize("case", CALLS)
def test_calls_of_aws(
    case: str,
    ids: list[str],
    nothing_published: None,
    lab_faults: Callable[[list[dict[str, Any]]], None],
) -> None:
    rules, kind = CALLS[case]
    lab_faults(rules)
    read = engine.read(instance_ids=ids[:TRIO])
    if kind is not None:
        assert read.failed
        typed(read.error, kind)
        doors.faults(None)
        read = engine.read(instance_ids=ids[:TRIO])
    assert not read.failed, read.result
    converged(read.result["readings"])


@pytest.fixture(scope="module")
def crowd() -> Iterator[list[str]]:
    """So many instances that reading them takes several sends and pages."""
    ec2 = boto3.client("ec2")
    tags = [{"Key": f"kubernetes.io/cluster/{CLUSTER}", "Value": "owned"}]
    made = ec2.run_instances(
        ImageId=ec2.describe_images(Filters=[{"Name": "name", "Values": ["*nvidia*"]}])["Images"][
            0
        ]["ImageId"],
        InstanceType=INSTANCE_TYPE,
        MinCount=110,
        MaxCount=110,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )["Instances"]
    found = [one["InstanceId"] for one in made]
    yield found
    ec2.terminate_instances(InstanceIds=found)


def test_throttled_at_5_calls_a_second_with_30_percent_of_pages_refused(
    crowd: list[str], lab_faults: Callable[[list[dict[str, Any]]], None]
) -> None:
    throttled = {"error": "ThrottlingException"}
    lab_faults(
        [
            {**_SSM, "rate": 5, "burst": 1},
            {**_PAGES, "probability": 0.3, **throttled},
        ]
    )
    read = engine.read(instance_ids=crowd, timeout=60)
    assert not read.failed, read.result
    assert read.result["counts"] == {"instances": 110, "readings": 110, "errors": 0}
    assert read.result["calls"]["throttled"] > 0
    assert read.result["calls"]["send_command"] < 3 * 10
    assert {row["gpus"][0]["usable_mib"] for row in read.result["readings"]} == {TRUTH_MIB}
