"""The lab's NVML library, called as a probe calls it: through ctypes, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from lab import nvml
from lab.nvml import nodes

READ = """
import ctypes, json, sys
n = ctypes.CDLL("libnvidia-ml.so.1")
class V1(ctypes.Structure):
    _fields_ = [(k, ctypes.c_ulonglong) for k in ("total", "free", "used")]
class V2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [
        (k, ctypes.c_ulonglong) for k in ("total", "reserved", "free", "used")]
class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong),
                ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]
out = {"init": n.nvmlInit_v2()}
count = ctypes.c_uint()
out["count_code"] = n.nvmlDeviceGetCount_v2(ctypes.byref(count))
out["gpus"] = []
for index in range(count.value):
    d = ctypes.c_void_p()
    gpu = {"handle": n.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(d))}
    if d:
        text = ctypes.create_string_buffer(96)
        gpu["uuid_code"] = n.nvmlDeviceGetUUID(d, text, 96)
        gpu["uuid"] = text.value.decode()
        n.nvmlDeviceGetName(d, text, 96)
        gpu["name"] = text.value.decode()
        gpu["short"] = n.nvmlDeviceGetName(d, text, 4)
        one, two = V1(), V2()
        gpu["v1_code"] = n.nvmlDeviceGetMemoryInfo(d, ctypes.byref(one))
        gpu["v1"] = [one.total >> 20, one.free >> 20, one.used >> 20]
        gpu["v2_bad"] = n.nvmlDeviceGetMemoryInfo_v2(d, ctypes.byref(two))
        two.version = ctypes.sizeof(two) | 2 << 24
        gpu["v2_code"] = n.nvmlDeviceGetMemoryInfo_v2(d, ctypes.byref(two))
        gpu["v2"] = [x >> 20 for x in (two.total, two.reserved, two.free, two.used)]
        a, b = ctypes.c_uint(), ctypes.c_uint()
        gpu["mig"] = n.nvmlDeviceGetMigMode(d, ctypes.byref(a), ctypes.byref(b))
        number = ctypes.c_uint(0)
        gpu["room"] = n.nvmlDeviceGetComputeRunningProcesses_v3(d, ctypes.byref(number), None)
        rows = (Process * 8)()
        number = ctypes.c_uint(8)
        n.nvmlDeviceGetComputeRunningProcesses_v3(d, ctypes.byref(number), rows)
        gpu["processes"] = [[r.pid, r.used >> 20] for r in rows[:number.value]]
        slice_ = ctypes.c_void_p()
        gpu["slice"] = n.nvmlDeviceGetMigDeviceHandleByIndex(d, 0, ctypes.byref(slice_))
        if slice_:
            n.nvmlDeviceGetMemoryInfo_v2(slice_, ctypes.byref(two))
            gpu["slice_total"] = two.total >> 20
    out["gpus"].append(gpu)
print(json.dumps(out))
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return nvml.build(out_dir=tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def ask(library, tmp_path):
    def ask(instance_type="g4dn.xlarge", faults=(), more=""):
        nodes.write(tmp_path, instance_type, "i-0123", library)
        state = tmp_path / nodes.STATE_FILE
        lines = "".join(f"fault {fault}\n" for fault in faults)
        state.write_text(state.read_text() + lines + more)
        env = {"LD_LIBRARY_PATH": str(library.parent), "LAB_NVML_STATE": str(state)}
        env["PATH"] = os.environ["PATH"]
        done = subprocess.run(
            [sys.executable, "-c", READ], env=env, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    return ask


def test_a_t4_with_both_memory_structures(ask):
    gpu = ask()["gpus"][0]
    assert gpu["name"] == "Tesla T4"
    assert gpu["uuid"] == nvml.gpu_uuid("i-0123", 0)
    assert gpu["v2"] == [15360, 450, 14910, 0]
    assert gpu["v1"] == [15360, 14910, 450], "version 1 counts the reserve as used"
    assert gpu["v2_bad"] == 25
    assert gpu["mig"] == 3
    assert gpu["short"] == 7


def test_four_gpus_have_four_uuids(ask):
    gpus = ask("g6.12xlarge")["gpus"]
    assert len({gpu["uuid"] for gpu in gpus}) == 4
    assert {gpu["v2"][0] for gpu in gpus} == {23034}


def test_processes_count_as_used_memory(ask):
    gpu = ask(more="process 0 4242 3000\n")["gpus"][0]
    assert gpu["room"] == 7
    assert gpu["processes"] == [[4242, 3000]]
    assert gpu["v2"] == [15360, 450, 11910, 3000]


def test_a_mig_slice_has_memory_of_its_own(ask):
    state = "gpu GPU-x 40960 569 0 8.0 1 1 NVIDIA A100\nslice 0 MIG-x 4864 12 0 MIG 1g.5gb\n"
    gpu = ask("m6i.large", more=state)["gpus"][0]
    assert (gpu["mig"], gpu["slice"], gpu["slice_total"]) == (0, 0, 4864)


def test_a_lost_gpu_leaves_its_neighbours_alone(ask):
    gpus = ask("g4dn.12xlarge", ["* 1 15"])["gpus"]
    assert [gpu["handle"] for gpu in gpus] == [0, 15, 0, 0]


def test_a_fault_of_one_function_on_one_gpu(ask):
    gpus = ask("g4dn.12xlarge", ["nvmlDeviceGetMemoryInfo_v2 2 16"])["gpus"]
    assert [gpu["v2_code"] for gpu in gpus] == [0, 0, 16, 0]
    assert [gpu["v1_code"] for gpu in gpus] == [0, 0, 0, 0]


def test_a_driver_that_is_not_loaded(ask):
    out = ask(faults=["nvmlInit_v2 * 9"])
    assert (out["init"], out["count_code"]) == (9, 1)


def test_a_call_that_hangs(ask):
    before = time.monotonic()
    ask(faults=["nvmlDeviceGetUUID 0 hang 1"])
    assert time.monotonic() - before >= 1


def test_the_build_is_kept(tmp_path):
    first = nvml.build(out_dir=tmp_path)
    stamp = first.stat().st_mtime_ns
    assert nvml.build(out_dir=tmp_path).stat().st_mtime_ns == stamp


def test_a_compiler_that_fails_says_why(tmp_path):
    with pytest.raises(nvml.NvmlBuildError, match="false could not build"):
        nvml.build(["false"], tmp_path)


def test_figures_of_every_known_model_stay_inside_what_ec2_allows():
    for (_, ec2_mib), model in nvml._MODELS.items():
        assert model.total_mib <= 1.02 * ec2_mib
        assert model.total_mib - model.reserved_mib <= ec2_mib
        assert model.reserved_mib <= 0.03 * model.total_mib


def test_faults_are_kept_by_instance():
    nodes.set_fault("i-a", device=0, code=15)
    nodes.set_fault("i-b", absent=True)
    assert nodes.faults("i-a") == ["* 0 15"]
    assert nodes.is_absent("i-b")
    for instance in ("i-a", "i-b"):
        nodes.clear_fault(instance)
    assert nodes.faults("i-a") == []
    assert not nodes.is_absent("i-b")
    with pytest.raises(ValueError, match="either a code or"):
        nodes.set_fault("i-a", code=1, hang=2)


# -- a process that keeps NVML open ---------------------------------------------------------------

# For each line that it reads, one look at GPU 0: code, total, reserved, free, used, driver.
KEEP = """
import ctypes, sys, time
n = ctypes.CDLL("libnvidia-ml.so.1")
class V2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [
        (k, ctypes.c_ulonglong) for k in ("total", "reserved", "free", "used")]
n.nvmlInit_v2()
d = ctypes.c_void_p()
n.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(d))
for line in sys.stdin:
    m = V2()
    m.version = ctypes.sizeof(m) | 2 << 24
    code = n.nvmlDeviceGetMemoryInfo_v2(d, ctypes.byref(m))
    text = ctypes.create_string_buffer(96)
    n.nvmlSystemGetDriverVersion(text, 96)
    print(code, m.total >> 20, m.reserved >> 20, m.free >> 20, m.used >> 20, text.value.decode(),
          flush=True)
"""


@pytest.fixture
def keeper(library, tmp_path):
    """look() of a process that opened NVML once; instance i-kept, a g4dn.xlarge."""
    nodes.write(tmp_path, "g4dn.xlarge", "i-kept", library)
    env = {
        "LD_LIBRARY_PATH": str(tmp_path / "lib"),
        "LAB_NVML_STATE": str(tmp_path / nodes.STATE_FILE),
        "PATH": os.environ["PATH"],
    }
    child = subprocess.Popen(
        [sys.executable, "-c", KEEP],
        env=env,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    class Keeper:
        def ask(self):
            child.stdin.write("\n")
            child.stdin.flush()

        def answer(self):
            return child.stdout.readline().split()

        def look(self):
            self.ask()
            return self.answer()

    yield Keeper()
    child.kill()
    child.communicate()
    nodes.clear_fault("i-kept")
    nodes.set_figures("i-kept", None)


HEALTHY = ["0", "15360", "450", "14910", "0", nvml.DRIVER]


def test_a_fault_and_its_end_are_seen_by_who_keeps_nvml_open(keeper):
    assert keeper.look() == HEALTHY
    nodes.set_fault("i-kept", device=0, code=15)
    assert keeper.look()[:2] == ["15", "0"]
    nodes.clear_fault("i-kept")
    assert keeper.look() == HEALTHY


def test_a_hang_begins_and_ends_while_nvml_is_open(keeper):
    assert keeper.look() == HEALTHY
    nodes.set_fault("i-kept", function="nvmlDeviceGetMemoryInfo_v2", hang=600)
    keeper.ask()
    time.sleep(0.3)
    began = time.monotonic()
    nodes.clear_fault("i-kept")
    assert keeper.answer() == HEALTHY
    assert time.monotonic() - began < 5


def test_other_figures_are_seen_and_go_again(keeper):
    gpu = {"total_mib": 8192, "reserved_mib": 300, "processes": [{"pid": 7, "used_mib": 9000}]}
    nodes.set_figures("i-kept", {"driver": "570.1", "gpus": {"*": gpu}})
    assert keeper.look() == ["0", "8192", "300", "0", "9000", "570.1"]
    assert not nodes.is_usual("i-kept")
    nodes.set_figures("i-kept", None)
    assert keeper.look() == HEALTHY
    assert nodes.is_usual("i-kept")


def test_mig_slices_and_a_gpu_that_fell_off_the_bus(ask, tmp_path):
    part = {"name": "MIG 1g.5gb", "total_mib": 4864, "reserved_mib": 12}
    given = {"0": {"missing": True}, "1": {"mig": True, "slices": [part], "used_mib": 77}}
    nodes.set_figures("i-0123", {"gpus": given})
    try:
        gpus = ask("p4d.24xlarge")["gpus"]
    finally:
        nodes.set_figures("i-0123", None)
    assert len(gpus) == 7
    assert gpus[0]["uuid"] == nvml.gpu_uuid("i-0123", 1)
    assert (gpus[0]["mig"], gpus[0]["slice"], gpus[0]["slice_total"]) == (0, 0, 4864)
    assert gpus[0]["v2"][3] == 77
    assert gpus[1]["slice"] == 6


@pytest.mark.parametrize(
    "given",
    [
        {"gpu": {}},
        {"gpus": {"x": {}}},
        {"gpus": {"0": {"total": 1}}},
        {"gpus": {"0": {"total_mib": "1"}}},
        {"gpus": {"0": {"used_mib": -1}}},
        {"gpus": {"0": {"slices": [{"name": "a"}]}}},
        {"gpus": {"0": {"processes": [{"pid": 1}]}}},
        {"driver": 5},
    ],
)
def test_figures_that_mean_nothing_are_refused(given):
    with pytest.raises(ValueError, match="figures"):
        nodes.set_figures("i-x", given)
    assert nodes.figures("i-x") is None


def test_a_boot_changes_the_boot_id_in_the_file(library, tmp_path):
    nodes.write(tmp_path, "g4dn.xlarge", "i-boots", library)
    first = (tmp_path / nodes.BOOT_ID_FILE).read_text().strip()
    assert first == nodes.boot_id("i-boots")
    second = nodes.reboot("i-boots")
    assert second != first
    assert (tmp_path / nodes.BOOT_ID_FILE).read_text().strip() == second


def test_a_library_that_is_absent_comes_back_under_its_path(library, tmp_path):
    nodes.write(tmp_path, "g4dn.xlarge", "i-lib", library)
    path = tmp_path / "lib" / nvml.LIBRARY
    assert path.resolve() == library
    nodes.set_fault("i-lib", absent=True)
    assert path.stat().st_size == 0
    nodes.clear_fault("i-lib")
    assert path.resolve() == library
    assert os.listdir(path.parent).count(nvml.LIBRARY) == 1
