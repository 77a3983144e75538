"""What the pods of the proof run: CUDA's calls against a driver of our own, and what is said."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import _cuda, _proof_pod

ROOT = Path(__file__).resolve().parents[3]
UUID = bytes(range(16))
NAME = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
ENVIRONMENT = {
    "JOB_COMPLETION_INDEX": "1",
    "GPUSHARE_PROOF_SECONDS": "9",
    "GPUSHARE_PROOF_SHARE_MIB": "256",
}


class Driver:
    """libcuda.so.1 with so much memory for this process, as MPS limits it."""

    def __init__(self, limit_mib=10_000, fails=None):
        self.limit, self.fails = limit_mib * _cuda.MIB, fails or {}
        self.blocks, self.calls = {}, []

    def __getattr__(self, name):
        if name.startswith("_") or name == "missing":
            raise AttributeError(name)

        def call(*arguments):
            self.calls.append(name)
            if name in self.fails:
                return self.fails[name]
            return getattr(self, f"_do_{name}", lambda *_any: 0)(*arguments)

        return call

    def _do_cuDeviceGetUuid_v2(self, name, _device):
        ctypes.memmove(name, UUID, 16)
        return 0

    def _do_cuMemAlloc_v2(self, block, size):
        if sum(map(len, self.blocks.values())) + size.value > self.limit:
            return 2
        # A gap between the blocks, so that an address names one of them.
        block._obj.value = address = (len(self.blocks) + 1) << 40
        self.blocks[address] = bytearray(size.value)
        return 0

    def _do_cuMemsetD8_v2(self, block, byte, size):
        self.blocks[block.value][:] = bytes([byte.value]) * size.value
        return 0

    def _do_cuMemcpyDtoH_v2(self, buffer, start, size):
        base = start.value >> 40 << 40
        part = self.blocks[base][start.value - base : start.value - base + size.value]
        ctypes.memmove(buffer, bytes(part), size.value)
        return 0


def opened(driver):
    return lambda: _cuda.Cuda(load=lambda _name: driver)


def absent(_name):
    raise OSError("libcuda.so.1: cannot open shared object file")


@pytest.fixture
def said(monkeypatch):
    """said(driver, **environment): what the pod says, and when it slept until."""
    answer = {"error": None, "driver": "580", "cuda": "13.0"}

    def run(driver, visible=(NAME,), **environment):
        def each(read):
            for index, _gpu in enumerate(visible):
                read(None, index)
            return answer

        monkeypatch.setattr(_proof_pod.nvml_probe, "each_gpu", each)
        monkeypatch.setattr(
            _proof_pod.nvml_probe, "read_gpu", lambda _nvml, index: {"uuid": visible[index]}
        )
        clock = [1000.0]
        open_cuda = driver if callable(driver) else opened(driver)
        return _proof_pod.run(
            {**ENVIRONMENT, **environment},
            clock=lambda: clock[0],
            sleep=lambda seconds: clock.__setitem__(0, clock[0] + seconds),
            open_cuda=open_cuda,
        )

    return run


def test_a_holder_keeps_half_its_share_and_finds_it_as_it_was(said):
    driver = Driver()
    found = said(driver)
    assert found == {
        "schema": 1,
        "index": 1,
        "role": "holder",
        "began": 1000.0,
        "ended": 1009.0,
        "gpus": [NAME],
        "nvml_error": None,
        "cuda": {"uuid": NAME, "error": None, "held_mib": 128, "intact": True},
    }
    assert [len(block) for block in driver.blocks.values()] == [128 * _cuda.MIB]
    opening = "cuInit cuDeviceGet cuDeviceGetUuid_v2 cuDevicePrimaryCtxRetain cuCtxSetCurrent"
    assert driver.calls[:5] == opening.split()
    assert _proof_pod.exit_code(found) == 0


def test_memory_that_somebody_else_wrote_is_noticed():
    driver = Driver()
    cuda = opened(driver)()

    def meanwhile():
        next(iter(driver.blocks.values()))[-1] ^= 1

    assert _proof_pod.hold(cuda, 0, 4, meanwhile) == {"held_mib": 2, "intact": False}


def test_the_over_allocator_is_refused_above_its_share_and_dies(said):
    found = said(Driver(limit_mib=256), GPUSHARE_PROOF_OVER_INDEX="1")
    assert (found["role"], found["ended"]) == ("over_allocator", 1003.0)
    assert found["cuda"]["held_mib"] == 256
    assert found["cuda"]["refused"] == "OUT_OF_MEMORY"
    assert _proof_pod.exit_code(found) == 1


def test_the_over_allocator_stops_by_itself_where_nothing_refuses(said):
    found = said(Driver(), GPUSHARE_PROOF_OVER_INDEX="1")
    assert found["cuda"]["held_mib"] == 384
    assert found["cuda"]["refused"] is None
    assert _proof_pod.exit_code(found) == 0


def test_a_missing_library_is_said_and_no_failure(said):
    found = said(lambda: _cuda.Cuda(load=absent))
    assert found["cuda"]["error"]["type"] == "LIBRARY_NOT_FOUND"
    assert found["ended"] == 1009.0
    assert _proof_pod.exit_code(found) == 0


@pytest.mark.parametrize(
    ("fails", "kind"),
    [
        ({"cuInit": 100}, "NO_DEVICE"),
        ({"cuMemAlloc_v2": 2}, "OUT_OF_MEMORY"),
        ({"cuMemcpyDtoH_v2": 12345}, "CODE_12345"),
    ],
)
def test_a_call_that_fails_ends_badly_with_its_name(said, fails, kind):
    found = said(Driver(fails=fails))
    assert found["cuda"]["error"]["type"] == kind
    assert next(iter(fails)) in found["cuda"]["error"]["message"]
    assert _proof_pod.exit_code(found) == 1


def test_a_driver_without_a_function():
    class Old:
        def cuInit(self, _flags):
            return 0

    with pytest.raises(_cuda.CudaError, match="has no cuDeviceGet"):
        _cuda.Cuda(load=lambda _name: Old())


def test_the_gpu_that_the_plugin_named_counts(said):
    both = said(Driver(), visible=("GPU-a", "GPU-b"))
    assert both["gpus"] == ["GPU-a", "GPU-b"]
    one = said(Driver(), visible=("GPU-a", "GPU-b"), NVIDIA_VISIBLE_DEVICES="GPU-b")
    assert one["gpus"] == ["GPU-b"]
    assert said(Driver(), NVIDIA_VISIBLE_DEVICES="all")["gpus"] == [NAME]


def test_as_a_program_it_says_the_same_on_standard_output_and_as_last_words(tmp_path):
    message = tmp_path / "message"
    environment = {
        **ENVIRONMENT,
        "GPUSHARE_PROOF_SECONDS": "0.1",
        "GPUSHARE_PROOF_MESSAGE_FILE": str(message),
        "GPUSHARE_NVML_LIBRARY": str(tmp_path / "none"),
        # An empty file is what the loader finds first: no CUDA, wherever this runs.
        "LD_LIBRARY_PATH": str(tmp_path),
        "PYTHONPATH": str(ROOT / "collections"),
    }
    (tmp_path / _cuda.LIBRARY).touch()
    module = "ansible_collections.gpushare.eks.plugins.module_utils._proof_pod"
    done = subprocess.run(
        [sys.executable, "-m", module], env=environment, capture_output=True, text=True, check=False
    )
    found = json.loads(done.stdout)
    assert message.read_text() == done.stdout.strip()
    assert found["nvml_error"]["type"] == "LIBRARY_NOT_FOUND"
    assert found["cuda"]["error"]["type"] == "LIBRARY_NOT_FOUND"
    # Without NVML nobody knows which GPU it was.
    assert done.returncode == 1
