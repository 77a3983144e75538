"""Flags of NVIDIA's plugin that a pool may set, and what they ask of the chart."""

from __future__ import annotations

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils._plugin_flags import (
    UNPRIVILEGED,
    chart_values,
    read_flags,
)
from ansible_collections.gpushare.eks.plugins.module_utils._pool_fields import Problems

BOTH = {"migStrategy": "none", "deviceListStrategy": "envvar"}


def read(flags, strategy="time_slicing", gpu_memory=False):
    problems = Problems()
    return read_flags(problems, "flags", flags, strategy, gpu_memory), problems


@pytest.mark.parametrize(
    "flags",
    [
        None,
        {},
        {"migStrategy": "single", "failOnInitError": False},
        {"plugin": {"deviceListStrategy": "volume-mounts", "deviceIDStrategy": "index"}},
        {"plugin": {"deviceListStrategy": ["envvar", "cdi-cri"], "passDeviceSpecs": True}},
        {"gfd": {"sleepInterval": "1h30m", "noTimestamp": True}},
        {"gfd": {"sleepInterval": "infinite"}},
        {"nvidiaDriverRoot": "/run/nvidia/driver", "deviceDiscoveryStrategy": "nvml"},
    ],
)
def test_good_flags_come_back_as_they_are(flags):
    found, problems = read(flags)
    assert problems == []
    assert found == (flags or {})


@pytest.mark.parametrize(
    ("flags", "field", "told"),
    [
        ({"failOnInitErrors": True}, "failOnInitErrors", "did you mean failOnInitError?"),
        ({"failOnInitError": "yes"}, "failOnInitError", "not true or false"),
        ({"migStrategy": "all"}, "migStrategy", "not one of the allowed values"),
        ({"migStrategy": ["none"]}, "migStrategy", "not one of the allowed values"),
        ({"deviceListStrategy": "envvar"}, "deviceListStrategy", "stands in plugin"),
        ({"sleepInterval": "5s"}, "sleepInterval", "stands in gfd"),
        ({"plugin": "envvar"}, "plugin", "not a mapping"),
        ({"plugin": {"deviceListStrategy": "envvar,cdi-cri"}}, "plugin.deviceListStrategy", "one"),
        ({"plugin": {"deviceListStrategy": ["env"]}}, "plugin.deviceListStrategy", "one of the"),
        ({"plugin": {"deviceListStrategy": []}}, "plugin.deviceListStrategy", "names none"),
        ({"plugin": {"deviceListStrategy": 1}}, "plugin.deviceListStrategy", "not a list"),
        ({"plugin": {"deviceIDStrategy": "name"}}, "plugin.deviceIDStrategy", "one of the"),
        ({"plugin": {"nvidiaCTKPath": "ctk"}}, "plugin.nvidiaCTKPath", "absolute path"),
        ({"plugin": {"cdiAnnotationPrefix": ""}}, "plugin.cdiAnnotationPrefix", "not a text"),
        ({"gfd": {"sleepInterval": 60}}, "gfd.sleepInterval", "not a duration"),
        ({"gfd": {"sleepInterval": "0s"}}, "gfd.sleepInterval", "not a duration"),
        ({"gfd": {"sleepInterval": "1 minute"}}, "gfd.sleepInterval", "not a duration"),
        ({"mpsRoot": "/run/mps"}, "mpsRoot", "no effect for one pool"),
    ],
)
def test_refused_with_the_field(flags, field, told):
    _found, problems = read(flags)
    assert [problem["field"] for problem in problems] == [f"flags.{field}"] or any(
        problem["field"].startswith(f"flags.{field}") for problem in problems
    )
    assert told in problems[0]["problem"]


def test_mps_needs_the_labels_of_gfd():
    _found, problems = read({"useNodeFeatureAPI": False}, strategy="mps")
    assert "mps.capable" in problems[0]["problem"]
    assert read({"useNodeFeatureAPI": False})[1] == []


@pytest.mark.parametrize(
    ("flags", "values"),
    [
        ([], BOTH),
        ([{}, {"migStrategy": "none"}], BOTH),
        ([{}, {"migStrategy": "mixed"}], {"deviceListStrategy": "envvar"}),
        (
            [{}, {"plugin": {"deviceListStrategy": "cdi-cri"}}],
            {"migStrategy": "none", "securityContext": UNPRIVILEGED},
        ),
        # Without a context of its own the chart adds SYS_ADMIN, which these two need.
        ([{"plugin": {"deviceListStrategy": "volume-mounts"}}], {"migStrategy": "none"}),
        (
            [{"plugin": {"deviceListStrategy": ["envvar", "volume-mounts"]}}],
            {"migStrategy": "none"},
        ),
        ([{"plugin": {"deviceListStrategy": "envvar"}}, {"migStrategy": "single"}], {}),
        (
            [{"plugin": {"passDeviceSpecs": True}}],
            {**BOTH, "securityContext": {"privileged": True}},
        ),
        ([{"plugin": {"passDeviceSpecs": False}}], BOTH),
    ],
)
def test_what_the_chart_is_told(flags, values):
    assert chart_values(flags) == values
