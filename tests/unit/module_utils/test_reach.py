"""Whether an API server is reached: a connection, a proxy, an error that says what is between."""

from __future__ import annotations

import functools
import socket

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils._errors import Unreachable
from ansible_collections.gpushare.eks.plugins.module_utils._reach import _way, reach
from ansible_collections.gpushare.eks.plugins.module_utils._wait import wait_for
from tests.unit.eks_fake import Clock

FACTS = {"name": "demo", "endpoint_public_access": False, "public_access_cidrs": []}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"https://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def wait():
    clock = Clock()
    return functools.partial(wait_for, clock=clock, sleep=clock.sleep)


def closed():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"https://127.0.0.1:{server.getsockname()[1]}"


def test_one_that_listens_is_reached(listener, wait):
    reach({**FACTS, "endpoint": listener}, 5, wait)


def test_a_private_one_that_is_not_reached_names_both_remedies(wait):
    with pytest.raises(Unreachable) as caught:
        reach({**FACTS, "endpoint": closed()}, 5, wait)
    error = caught.value
    assert "EKS cluster demo" in str(error)
    assert "private only" in error.cause
    assert "inside the VPC" in error.remedy
    assert "allowlist" in error.remedy


def test_the_allowlist_is_told(wait):
    public = {"endpoint_public_access": True, "public_access_cidrs": ["203.0.113.0/24"]}
    with pytest.raises(Unreachable) as caught:
        reach({**FACTS, **public, "endpoint": closed()}, 5, wait)
    assert "public to 203.0.113.0/24" in caught.value.cause


def test_a_proxy_is_the_way_unless_it_is_bypassed(monkeypatch):
    assert _way("https://api.example") == ("api.example", 443)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    assert _way("https://api.example") == ("proxy.example", 3128)
    monkeypatch.setenv("NO_PROXY", ".example")
    assert _way("https://api.example") == ("api.example", 443)
