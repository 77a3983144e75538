"""Runs a module's main() in this process against the fakes, and returns its JSON result."""

from __future__ import annotations

import functools
import importlib
import json

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.amazon.aws.plugins.module_utils.modules import AnsibleAWSModule

from ansible_collections.gpushare.eks.plugins.module_utils import _eks_run
from ansible_collections.gpushare.eks.plugins.module_utils._eks import Engine
from tests.unit.eks_fake import Clock, FakeAutoscaling, FakeEks

MODULES = "ansible_collections.gpushare.eks.plugins.modules"


@pytest.fixture
def eks():
    return FakeEks()


@pytest.fixture
def autoscaling():
    return FakeAutoscaling()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def run_module(monkeypatch, capsys, eks, autoscaling, clock):
    """run_module("eks_cluster", check=False, clients={...}, **options) -> result."""
    services = {"eks": eks, "autoscaling": autoscaling}
    timed = functools.partial(Engine, clock=clock, sleep=clock.sleep)
    monkeypatch.setattr(_eks_run, "Engine", timed)
    monkeypatch.setattr(AnsibleAWSModule, "client", lambda _self, name, **_: services[name])

    def go(module, /, *, check=False, clients=None, **options):
        services.update(clients or {})
        warnings = []
        monkeypatch.setattr(AnsibleAWSModule, "warn", lambda _self, text: warnings.append(text))
        arguments = {"region": "us-east-1", **options, "_ansible_check_mode": check}
        with patch_module_args(arguments), pytest.raises(SystemExit):
            importlib.import_module(f"{MODULES}.{module}").main()
        # ansible-core collects warnings for the whole process: ours are taken per call.
        return {**json.loads(capsys.readouterr().out), "warnings": warnings}

    return go
