"""Clients of MPS by architecture and driver, and replicas of NVIDIA's plugin."""

from __future__ import annotations

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils._mps import (
    driver_clients,
    is_cuda_version,
    most_replicas,
)


@pytest.mark.parametrize(
    ("capability", "cuda_version", "clients"),
    [
        ("6.1", "13.0", 16),
        ("6.1", "13.1", 16),
        ("7.0", "13.0", 48),
        ("7.5", "12.8", 48),
        ("10.0", "13.0", 48),
        ("7.5", "13.1", 60),
        ("12.0", "14.0", 60),
    ],
)
def test_clients_of_the_driver(capability, cuda_version, clients):
    assert driver_clients(capability, cuda_version) == clients


@pytest.mark.parametrize("text", ["13", "580.65.06", "", "13.1\n", 13.1, None])
def test_what_is_no_cuda_version(text):
    assert not is_cuda_version(text)
    assert is_cuda_version("13.1")


@pytest.mark.parametrize(
    ("capability", "most"), [("6.1", 16), ("7.0", 16), ("7.5", 48), ("8.0", 48), ("10.0", 48)]
)
def test_replicas_of_the_plugin(capability, most):
    assert most_replicas(capability) == most
