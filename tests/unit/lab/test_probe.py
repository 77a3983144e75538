"""Our SSM scripts against the lab's NVML: the same ctypes calls, in C, as on a node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import _scripts, nvml_probe
from lab import nvml
from lab.nvml import nodes

ME = "i-0123456789abcdef0"
UID = "5f0a1b2c_3d4e_4f5a_8b6c_7d8e9f0a1b2c"
CUT = "gpu GPU-6d2ab28c-0a19-5c5e-8f61-2a1b3c4d5e6f 81559 548 0 9.0 1 1 NVIDIA H100 80GB HBM3\n"
CUT += "".join(
    f"slice 0 MIG-6d2ab28c-0a19-5c5e-8f61-{n:012x} {total} 13 0 NVIDIA H100 MIG {profile}\n"
    for n, (total, profile) in enumerate([(9984, "1g.10gb"), (40448, "3g.40gb")])
)


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return nvml.build(out_dir=tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def ask(library, tmp_path):
    def ask(instance_type="g4dn.xlarge", faults=(), more="", document=0):
        nodes.write(tmp_path, instance_type, ME, library)
        state = tmp_path / nodes.STATE_FILE
        lines = "".join(f"fault {fault}\n" for fault in faults)
        state.write_text(state.read_text() + more + lines)
        env = {
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1",
            "GPUSHARE_PROC_ROOT": str(tmp_path),
            "LAB_NVML_STATE": str(state),
            "LD_LIBRARY_PATH": str(library.parent),
            "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
        }
        step = _scripts.documents()[document]["content"]["mainSteps"][0]
        done = subprocess.run(
            ["sh", "-c", "\n".join(step["inputs"]["runCommand"])],
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        assert len(done.stdout) <= nvml_probe.LINE_LIMIT_BYTES
        return json.loads(done.stdout)

    return ask


def test_a_t4(ask):
    reading = nvml_probe.expand(ask())
    assert reading["error"] is None
    assert (reading["driver"], reading["cuda"]) == ("580.105.08", "13.0")
    assert reading["gpus"] == [
        {
            "index": 0,
            "uuid": nvml.gpu_uuid(ME, 0),
            "name": "Tesla T4",
            "cc": "7.5",
            "total_mib": 15360,
            "reserved_mib": 450,
            "used_mib": 0,
            "ecc": True,
            "ecc_uncorrected": 0,
            "mig": False,
            "slices": None,
            "error": None,
        }
    ]


def test_ecc_errors_are_counted(ask):
    assert ask(more="uncorrected 0 3\n")["gpus"][0]["ecc_uncorrected"] == 3


@pytest.mark.parametrize("instance_type", ["p4d.24xlarge", "p5.48xlarge", "g6.48xlarge"])
def test_eight_gpus(ask, instance_type):
    gpus = nvml_probe.expand(ask(instance_type))["gpus"]
    assert len({gpu["uuid"] for gpu in gpus}) == 8
    assert {gpu["total_mib"] for gpu in gpus} == {nvml.gpus(instance_type)[0].total_mib}


def test_mig(ask):
    gpu = nvml_probe.expand(ask("m6i.large", more=CUT))["gpus"][0]
    assert (gpu["mig"], gpu["error"]) == (True, None)
    assert gpu["slices"] == [
        {"uuid": f"MIG-6d2ab28c-0a19-5c5e-8f61-{n:012x}", "total_mib": total, "profile": profile}
        for n, (total, profile) in enumerate([(9984, "1g.10gb"), (40448, "3g.40gb")])
    ]


@pytest.mark.parametrize("code", sorted(set(nvml_probe.NVML_CODES)))
def test_every_code_of_nvml_is_typed_by_name(ask, code):
    reading = ask(faults=[f"* * {code}"])
    kind = nvml_probe.NVML_CODES[code]
    assert (reading["error"]["type"], reading["error"]["code"]) == (kind, code)
    gpus = nvml_probe.expand(ask("g4dn.12xlarge", [f"* 1 {code}"]))["gpus"]
    assert [gpu["error"] for gpu in gpus] == [None, kind, None, None]


def test_a_hung_driver_ends_in_the_time_limit(ask):
    began = time.monotonic()
    reading = ask(faults=["nvmlDeviceGetMemoryInfo_v2 * hang 60"])
    assert reading["error"]["type"] == "TIMEOUT"
    assert time.monotonic() - began < 15


def test_processes_and_their_pods(ask, tmp_path):
    container = "a" * 64
    for pid in (11, 12):
        (tmp_path / str(pid)).mkdir()
    path = f"/kubepods.slice/kubepods-pod{UID}.slice/cri-containerd-{container}.scope"
    (tmp_path / "11" / "cgroup").write_text(f"0::{path}\n")
    (tmp_path / "12" / "cgroup").write_text("0::/system.slice/dcgm.service\n")
    more = "process 0 11 3155\nprocess 0 12 100\nprocess 2 13 4000\n"
    reading = ask("g4dn.12xlarge", ["* 1 15"], more, document=1)
    assert reading["error"] is None
    assert (reading["count"], reading["used_mib"], reading["truncated"]) == (3, 7255, False)
    assert reading["gpu_errors"] == [{"gpu": 1, "error": "GPU_IS_LOST"}]
    rows = [
        (2, 13, 4000, None, None),
        (0, 11, 3155, UID.replace("_", "-"), container),
        (0, 12, 100, None, None),
    ]
    keys = ("gpu", "pid", "used_mib", "pod", "container")
    assert nvml_probe.unpack(reading["processes"]) == [
        dict(zip(keys, row, strict=True)) for row in rows
    ]
