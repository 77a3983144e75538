"""Errors: every AWS error becomes typed with object, cause and remedy; no traceback ever."""

from __future__ import annotations

import pytest
from botocore import exceptions as boto

from ansible_collections.gpushare.eks.plugins.module_utils import _errors
from ansible_collections.gpushare.eks.plugins.module_utils._errors import (
    GpushareError,
    PartialFailure,
    aws_errors,
    run,
)
from tests.unit.eks_fake import refusal

DENIED = (
    "User: arn:aws:iam::123456789012:user/ann is not authorized to perform: eks:CreateCluster on "
    "resource: arn:aws:eks:us-east-1:123456789012:cluster/demo because no policy allows it"
)
CASES = [
    (boto.NoCredentialsError(), "NoCredentials"),
    (boto.ProfileNotFound(profile="none"), "NoCredentials"),
    (boto.NoRegionError(), "InvalidInput"),
    (boto.EndpointConnectionError(endpoint_url="http://127.0.0.1:1"), "Unreachable"),
    (boto.ConnectTimeoutError(endpoint_url="http://127.0.0.1:1"), "Unreachable"),
    (boto.ReadTimeoutError(endpoint_url="http://127.0.0.1:1"), "Unreachable"),
    (boto.ParamValidationError(report="Missing required parameter"), "InvalidInput"),
    (refusal("ExpiredTokenException", "expired"), "NoCredentials"),
    (refusal("UnrecognizedClientException", "invalid"), "NoCredentials"),
    (refusal("AccessDeniedException", DENIED), "AccessDenied"),
    (refusal("UnauthorizedOperation", "You are not authorized"), "AccessDenied"),
    (refusal("ThrottlingException", "Rate exceeded"), "Throttled"),
    (refusal("ResourceNotFoundException", "No cluster found"), "NotFound"),
    (refusal("InvalidAMIID.NotFound", "no image"), "NotFound"),
    (refusal("ResourceInUseException", "exists"), "Conflict"),
    (refusal("DependencyViolation", "in use"), "Conflict"),
    (refusal("ResourceLimitExceededException", "too many"), "LimitExceeded"),
    (refusal("InvalidParameterException", "bad"), "InvalidInput"),
    (refusal("UnsupportedAvailabilityZoneException", "bad"), "InvalidInput"),
    (refusal("ServerException", "sorry"), "GpushareError"),
]


@pytest.mark.parametrize(("error", "expected"), CASES, ids=lambda value: str(value)[:40])
def test_every_aws_error_is_typed_with_a_remedy(error, expected):
    with pytest.raises(GpushareError) as caught, aws_errors("EKS cluster demo"):
        raise error
    told = caught.value.as_dict()
    assert told["type"] == expected
    assert told["object"] == "EKS cluster demo"
    assert told["cause"]
    assert told["remedy"]
    assert "demo" in str(caught.value)


def test_denied_names_who_what_and_where():
    error = _errors.translate(refusal("AccessDenied", DENIED, "CreateCluster"), "EKS cluster demo")
    assert error.facts["action"] == "eks:CreateCluster"
    assert error.facts["resource"] == "arn:aws:eks:us-east-1:123456789012:cluster/demo"
    assert error.facts["principal"] == "arn:aws:iam::123456789012:user/ann"
    assert "eks:CreateCluster" in error.remedy


def test_other_errors_pass_and_decorators_work():
    @aws_errors("thing")
    def fails():
        raise KeyError("ours")

    with pytest.raises(KeyError):
        fails()
    own = GpushareError("mine")
    with pytest.raises(GpushareError) as caught, aws_errors("thing"):
        raise own
    assert caught.value is own


class Module:
    def __init__(self):
        self.result = None

    def exit_json(self, **result):
        self.result = {"failed": False, **result}

    def fail_json(self, **result):
        self.result = {"failed": True, **result}


def test_door_exits_with_the_result():
    module = Module()
    run(module, lambda: {"changed": True, "cluster": {}})
    assert module.result == {"failed": False, "changed": True, "cluster": {}}


def test_door_fails_typed_and_keeps_what_was_done():
    module = Module()

    def call():
        raise _errors.Conflict("busy", object="x", remedy="wait").with_partial(
            changed=True, nodegroups=["a"]
        )

    run(module, call)
    assert module.result["failed"]
    assert module.result["changed"] is True
    assert module.result["nodegroups"] == ["a"]
    assert module.result["error"]["type"] == "Conflict"
    assert module.result["msg"] == "busy. Remedy: wait."


def test_door_turns_raw_aws_errors_and_bugs_into_messages():
    module = Module()

    def raw():
        raise boto.NoCredentialsError()

    run(module, raw)
    assert module.result["error"]["type"] == "NoCredentials"
    run(module, lambda: {}["missing"])
    assert "Traceback" not in module.result["msg"]
    assert "KeyError" in module.result["msg"]
    assert "Traceback" in module.result["exception"]


def test_partial_failure_lists_every_item_and_reason():
    error = PartialFailure.of(
        "node groups", {"a": GpushareError("no room"), "b": GpushareError("no key")}, 5
    )
    assert "2 of 5 node groups failed" in str(error)
    assert "a: no room" in str(error)
    assert "b: no key" in str(error)
    assert [item["object"] for item in error.as_dict()["items"]] == ["a", "b"]
