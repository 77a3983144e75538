"""Helpers of this folder's tests: waiting, AWS's refusals, and a Node as the joiner makes one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

REGION = "us-east-1"


def eventually(read: Callable[[], Any], wanted: Any, timeout: float = 20.0) -> None:
    """Assert that `read()` comes to equal `wanted`, or to satisfy it when it is callable."""
    deadline = time.monotonic() + timeout
    while True:
        seen = read()
        if wanted(seen) if callable(wanted) else seen == wanted:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"still {seen!r} after {timeout} s, wanted {wanted!r}")
        time.sleep(0.05)


def refusal(call: Callable[..., Any], **params: Any) -> tuple[str, str]:
    """(code, message) with which AWS refuses the call."""
    with pytest.raises(ClientError) as error:
        call(**params)
    answer = error.value.response["Error"]
    return answer["Code"], answer["Message"]


def code(call: Callable[..., Any], **params: Any) -> str:
    """The code with which AWS refuses the call."""
    return refusal(call, **params)[0]


def node_body(name: str, labels: dict[str, str] | None = None) -> dict:
    """A Node as the joiner makes one."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"providerID": f"aws:///us-east-1a/i-{name}"},
        "status": {
            "capacity": {"cpu": "4", "memory": "16Gi", "pods": "29", "ephemeral-storage": "80Gi"},
            "allocatable": {"cpu": "3920m", "memory": "15Gi", "pods": "29"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}],
        },
    }
