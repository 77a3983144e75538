"""The dated table: its shape, its arithmetic, its source."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils._catalog import (
    CATALOG,
    conservative_usable_mib,
    gpu_model,
)

ROOT = Path(__file__).resolve().parents[3]
GPU_TYPES = {name: data for name, data in CATALOG["instance_types"].items() if data["gpus"]}


def test_every_type_has_the_shape_of_ec2_catalog_info():
    for name, data in CATALOG["instance_types"].items():
        assert set(data) == {"vcpus", "memory_mib", "architecture", "max_pods", "gpus"}, name
        assert data["architecture"] in ("x86_64", "arm64")
        assert data["max_pods"] >= 4


def test_it_is_dated_and_names_its_source():
    assert CATALOG["schema"] == 1
    assert CATALOG["as_of"].startswith("2026-")
    assert "DescribeInstanceTypes" in CATALOG["source"]


@pytest.mark.parametrize(
    ("name", "pods", "gpu", "count"),
    [
        ("g4dn.xlarge", 29, "T4", 1),
        ("g4dn.12xlarge", 234, "T4", 4),
        ("g5.48xlarge", 345, "A10G", 8),
        ("g6.xlarge", 58, "L4", 1),
        ("p5.48xlarge", 100, "H100", 8),
        ("p4d.24xlarge", 737, "A100", 8),
    ],
)
def test_known_figures(name, pods, gpu, count):
    """max_pods as in the VPC CNI's eni-max-pods list."""
    data = CATALOG["instance_types"][name]
    assert data["max_pods"] == pods
    assert [(item["name"], item["count"]) for item in data["gpus"]] == [(gpu, count)]


@pytest.mark.parametrize("name", sorted(GPU_TYPES))
def test_every_gpu_has_a_model_within_the_hardware_bound(name):
    for gpu in GPU_TYPES[name]["gpus"]:
        model = gpu_model(CATALOG, gpu)
        assert model is not None
        assert model["usable_mib"] < model["total_mib"] <= gpu["memory_mib"] * 1.02
        assert model["usable_mib"] <= gpu["memory_mib"]
        assert model["usable_mib"] == conservative_usable_mib(model["total_mib"])


def test_t4_stays_below_what_its_driver_leaves():
    """450 MiB of a T4's 15360 are the driver's (KAI-Scheduler issue 2212)."""
    assert CATALOG["gpu_models"]["T4"]["usable_mib"] <= 15360 - 450


def test_one_name_with_two_sizes_is_told_apart():
    small = gpu_model(CATALOG, {"name": "A100", "memory_mib": 40960})
    large = gpu_model(CATALOG, {"name": "A100", "memory_mib": 81920})
    assert (small["total_mib"], large["total_mib"]) == (40960, 81920)


def test_an_unknown_gpu_has_no_model():
    assert gpu_model(CATALOG, {"name": "X1", "memory_mib": 1024}) is None


def test_a_catalog_of_ec2_without_models_uses_the_table():
    assert gpu_model({"instance_types": {}}, {"name": "T4", "memory_mib": 16384})["mig"] is False


def test_the_rows_are_what_the_generator_prints():
    pytest.importorskip("moto")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "catalog.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
