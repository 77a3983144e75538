# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Typed errors: object, cause, remedy. Helpers raise them; `run` is the one door out."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

try:
    from botocore import exceptions as botocore_errors
except ImportError:  # the modules' door reports a missing boto3 itself
    botocore_errors = None


class GpushareError(Exception):
    """An error for a person. `facts` join object, cause and remedy in the result's `error` dict.

    `partial` holds module results of what was done before the error: the door passes it on.
    """

    def __init__(
        self,
        message: str,
        *,
        object: str | None = None,
        cause: str | None = None,
        remedy: str | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.object = object
        self.cause = cause
        self.remedy = remedy
        self.facts = facts
        self.partial: dict[str, Any] = {}

    def with_partial(self, **results: Any) -> GpushareError:
        """Remember what stays done (changed, diff, lists): a failed run reports it, too."""
        self.partial.update(results)
        return self

    def as_dict(self) -> dict[str, Any]:
        """{"type", "message", "object", "cause", "remedy", ...facts}."""
        return {
            "type": type(self).__name__,
            "message": self.message,
            "object": self.object,
            "cause": self.cause,
            "remedy": self.remedy,
            **self.facts,
        }

    def __str__(self) -> str:
        parts = [self.message.rstrip()]
        if self.cause and self.cause not in self.message:
            parts.append(f"Cause: {self.cause}")
        if self.remedy and self.remedy not in self.message:
            parts.append(f"Remedy: {self.remedy}")
        return " ".join(part if part.endswith((".", ":", "!")) else f"{part}." for part in parts)


class AccessDenied(GpushareError):
    """The caller may not do this. Facts: action, resource, principal (None if AWS is silent)."""


class NoCredentials(AccessDenied):
    """There are no credentials, or they are expired or unknown to AWS."""


class NotFound(GpushareError):
    """The object does not exist."""


class Conflict(GpushareError):
    """The object exists already, is in use, or another change of it is under way."""


class LimitExceeded(GpushareError):
    """A quota of the account stands in the way."""


class Throttled(GpushareError):
    """AWS still throttled the call after all retries."""


class Unreachable(GpushareError):
    """No answer from the endpoint."""


class InvalidInput(GpushareError):
    """A value that cannot work, refused with the field and what is allowed."""


class WaitTimeout(GpushareError):
    """A bounded wait ran out. Fact: last_state, the last state seen."""

    def __init__(self, message: str, *, last_state: Any = None, **kwargs: Any) -> None:
        super().__init__(message, last_state=last_state, **kwargs)
        self.last_state = last_state


class PartialFailure(GpushareError):
    """Some items of a list failed, the others stay done. Fact: items [{"object", "error"}]."""

    def __init__(self, message: str, *, items: list[dict[str, Any]], **kwargs: Any) -> None:
        super().__init__(message, items=items, **kwargs)
        self.items = items

    @classmethod
    def of(cls, what: str, errors: dict[str, GpushareError], total: int) -> PartialFailure:
        """One error out of {item name: its error}; the message lists every item and its reason."""
        lines = [f"{name}: {error}" for name, error in errors.items()]
        return cls(
            f"{len(errors)} of {total} {what} failed:\n" + "\n".join(lines) + "\n",
            items=[{"object": name, "error": error.as_dict()} for name, error in errors.items()],
            object=", ".join(errors),
            remedy="mend the causes above and run again; what succeeded stays done",
        )


_CREDENTIAL_CODES = {
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
_THROTTLE_CODES = {
    "BandwidthLimitExceeded",
    "PriorRequestNotComplete",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "TooManyRequestsException",
}
_DENIED = re.compile(r"^(Client\.)?(AccessDenied|UnauthorizedOperation|NotAuthorized)")
_NOT_FOUND = re.compile(r"(NotFound|NoSuch|DoesNotExist|UnknownResource)")
_CONFLICT = re.compile(
    r"(AlreadyExist|ResourceInUse|Conflict|DependencyViolation|Duplicate|InvalidState)"
)
_LIMIT = re.compile(r"(LimitExceeded|QuotaExceeded|InsufficientInstanceCapacity|TooMany)")
_INVALID = re.compile(r"^(Invalid|Validation|Malformed|Missing|Unsupported|BadRequest)")

# "User: arn:... is not authorized to perform: eks:CreateCluster on resource: arn:... because ..."
_WHO = re.compile(r"User: (\S+)")
_ACTION = re.compile(r"(?:perform|action)s?:? ?:?\s*([a-z0-9-]+:[A-Za-z*]+)")
# IAM itself names a role by its kind and name, not by its ARN.
_RESOURCE = re.compile(r"on resource:? ((?:role |user |policy )?\S+)")
# EKS tries a node group's launch template with the caller's rights, and encodes what was denied.
_LAUNCH = "not authorized to launch instances with this launch template"


def translate(error: BaseException, service_object: str) -> GpushareError:
    """A typed error out of a botocore error; `service_object` says what was worked on."""
    if isinstance(error, GpushareError):
        return error
    text = str(error)
    name = type(error).__name__
    if botocore_errors and isinstance(error, botocore_errors.ClientError):
        return _from_answer(error, service_object)
    if name in {
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "TokenRetrievalError",
        "UnauthorizedSSOTokenError",
        "SSOTokenLoadError",
        "ProfileNotFound",
        "NoAuthTokenError",
        "InvalidConfigError",
    }:
        return NoCredentials(
            f"No usable AWS credentials for {service_object}",
            object=service_object,
            cause=text,
            remedy="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or the option "
            "profile; for the lab run `. .lab/env`",
        )
    if name == "NoRegionError":
        return InvalidInput(
            f"No AWS region for {service_object}",
            object=service_object,
            cause=text,
            remedy="set the option region or AWS_REGION",
            field="region",
        )
    if name == "ParamValidationError":
        return InvalidInput(
            f"AWS would refuse the request for {service_object}: {text}",
            object=service_object,
            cause=text,
            remedy="correct the value named above",
        )
    if botocore_errors and isinstance(
        error, (botocore_errors.HTTPClientError, botocore_errors.ConnectionError)
    ):
        return Unreachable(
            f"No answer from AWS for {service_object}",
            object=service_object,
            cause=text,
            remedy="check the network, the proxy (HTTPS_PROXY, NO_PROXY), the region and "
            "AWS_ENDPOINT_URL; for the lab run `make lab`",
        )
    return GpushareError(
        f"{service_object}: {text}",
        object=service_object,
        cause=f"{name}: {text}",
        remedy="run again; if it stays, report it with the whole message",
    )


def _from_answer(error: Any, service_object: str) -> GpushareError:
    """From AWS's own error answer: its code decides the type, its message is the cause."""
    answer = error.response.get("Error", {})
    code = str(answer.get("Code", ""))
    text = str(answer.get("Message", "") or error)
    operation = getattr(error, "operation_name", "")
    facts = {"code": code, "operation": operation}
    where = {"object": service_object, "cause": f"{code}: {text}", **facts}
    if code in _CREDENTIAL_CODES:
        return NoCredentials(
            f"AWS does not accept the credentials for {service_object} ({code})",
            remedy="renew the credentials (a session token may have expired) and check the clock",
            **where,
        )
    if _DENIED.match(code) or _LAUNCH in text:
        operation = "ec2:RunInstances" if _LAUNCH in text else operation
        who, action, resource = (_first(rule, text) for rule in (_WHO, _ACTION, _RESOURCE))
        on = f" on {resource}" if resource else ""
        return AccessDenied(
            f"{who or 'The caller'} may not do {action or operation}{on} ({service_object})",
            remedy=f"allow {action or operation}{on} in the caller's IAM policy, permissions "
            "boundary and service control policies",
            action=action or operation,
            resource=resource,
            principal=who,
            **where,
        )
    if code in _THROTTLE_CODES:
        return Throttled(
            f"AWS throttled {operation} for {service_object} until the retries ran out",
            remedy="run again later, or with fewer runs in parallel; what was done stays done",
            **where,
        )
    if _NOT_FOUND.search(code):
        return NotFound(
            f"{service_object}: {text}", remedy="check its name and the region", **where
        )
    if _LIMIT.search(code):
        return LimitExceeded(
            f"{service_object}: {text}",
            remedy="ask AWS for a higher quota (Service Quotas), or remove what is not needed",
            **where,
        )
    if _CONFLICT.search(code):
        return Conflict(
            f"{service_object}: {text}",
            remedy="wait for the change under way to end, or remove what depends on it; "
            "then run again",
            **where,
        )
    if _INVALID.match(code):
        return InvalidInput(
            f"{service_object}: {text}", remedy="correct the value named above", **where
        )
    return GpushareError(
        f"{service_object}: {operation} failed: {code}: {text}",
        remedy="run again; if it stays, ask AWS support with the code above",
        **where,
    )


def _first(rule: re.Pattern[str], text: str) -> str | None:
    found = rule.search(text)
    return found.group(1).rstrip(".,") if found else None


@contextmanager
def aws_errors(service_object: str) -> Iterator[None]:
    """Turn botocore's errors into ours; a context manager and a decorator."""
    try:
        yield
    except GpushareError:
        raise
    except Exception as error:
        if botocore_errors and isinstance(
            error, (botocore_errors.ClientError, botocore_errors.BotoCoreError)
        ):
            raise translate(error, service_object) from error
        raise


def run(module: Any, call: Callable[[], dict[str, Any]]) -> None:
    """The modules' one door: exit with what `call` returns, or fail with a typed error.

    A failure carries `error` (as_dict above) and what stays done.
    """
    try:
        with aws_errors("AWS"):
            results = call()
    except GpushareError as error:
        failure = {"changed": False, **error.partial}
        module.fail_json(msg=str(error), error=error.as_dict(), **failure)
    except Exception as error:
        internal = GpushareError(
            f"Unexpected error: {type(error).__name__}: {error}",
            cause=f"{type(error).__name__}: {error}",
            remedy="this is a fault of gpushare.eks: report it with the output of -vvv",
        )
        module.fail_json(
            msg=str(internal), error=internal.as_dict(), exception=traceback.format_exc()
        )
    else:
        module.exit_json(**results)
