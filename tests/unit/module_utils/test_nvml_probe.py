"""The probe: every NVML code by name, lost GPUs beside healthy ones, size, time limit, 3.9."""

from __future__ import annotations

import ast
import ctypes
import http.server
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import nvml_probe as probe

SOURCE = Path(probe.__file__).read_text(encoding="utf-8")
MIB = 1024 * 1024


class FakeNvml:
    """A CDLL: healthy GPUs of the given sizes; `codes` {(function, index or None): NVML code}."""

    def __init__(self, gpus=((15360, 450, 0),), codes=None, missing=(), name=b"Tesla T4"):
        self.gpus, self.codes, self.missing, self.name = gpus, codes or {}, missing, name
        self.shut = 0

    def __getattr__(self, function):
        if function in self.missing or not hasattr(type(self), f"do_{function}"):
            raise AttributeError(function)

        def call(*args):
            index = getattr(args[0], "value", None) if args else None
            if function.startswith("nvmlDeviceGet") and "Handle" not in function:
                index = (index or 0) - 1
            for key in ((function, None), (function, index)):
                if key in self.codes:
                    return self.codes[key]
            return getattr(self, f"do_{function}")(*args) or 0

        return call

    @staticmethod
    def _set(pointer, value):
        pointer._obj.value = value

    def do_nvmlInit_v2(self):
        pass

    def do_nvmlShutdown(self):
        self.shut += 1

    def do_nvmlSystemGetDriverVersion(self, buffer, size):
        buffer.value = b"580.105.08"

    def do_nvmlSystemGetCudaDriverVersion_v2(self, pointer):
        self._set(pointer, 13000)

    def do_nvmlDeviceGetCount_v2(self, pointer):
        self._set(pointer, len(self.gpus))

    def do_nvmlDeviceGetHandleByIndex_v2(self, index, pointer):
        self._set(pointer, index.value + 1)

    def do_nvmlDeviceGetUUID(self, handle, buffer, size):
        buffer.value = b"GPU-6d2ab28c-0a19-5c5e-8f61-%012x" % handle.value

    def do_nvmlDeviceGetName(self, handle, buffer, size):
        buffer.value = self.name

    def do_nvmlDeviceGetCudaComputeCapability(self, handle, major, minor):
        self._set(major, 7)
        self._set(minor, 5)

    def do_nvmlDeviceGetMigMode(self, handle, current, pending):
        return 3

    def do_nvmlDeviceGetMemoryInfo_v2(self, handle, pointer):
        memory = pointer._obj
        if memory.version != 40 | (2 << 24):
            return 25
        total, reserved, used = self.gpus[handle.value - 1]
        memory.total, memory.reserved, memory.used = total * MIB, reserved * MIB, used * MIB
        return 0

    def do_nvmlDeviceGetMemoryInfo(self, handle, pointer):
        total, reserved, used = self.gpus[handle.value - 1]
        pointer._obj.total, pointer._obj.used = total * MIB, (used + reserved) * MIB


def read(fake):
    return probe.read_nvml("any", load=lambda path: fake)


def test_a_healthy_gpu():
    fake = FakeNvml()
    answer = read(fake)
    assert answer["error"] is None
    assert (answer["driver"], answer["cuda"]) == ("580.105.08", "13.0")
    assert answer["gpus"] == [
        {
            "index": 0,
            "uuid": "GPU-6d2ab28c-0a19-5c5e-8f61-000000000001",
            "name": "Tesla T4",
            "cc": "7.5",
            "total_mib": 15360,
            "reserved_mib": 450,
            "used_mib": 0,
            "mig": False,
            "error": None,
        }
    ]
    assert fake.shut == 1


def test_partial_mebibytes_never_make_more():
    class Odd(FakeNvml):
        def do_nvmlDeviceGetMemoryInfo_v2(self, handle, pointer):
            memory = pointer._obj
            memory.total, memory.reserved, memory.used = 100 * MIB + 7, 10 * MIB + 1, 1

    gpu = read(Odd())["gpus"][0]
    assert (gpu["total_mib"], gpu["reserved_mib"], gpu["used_mib"]) == (100, 11, 1)


@pytest.mark.parametrize(("code", "name"), sorted(probe.NVML_CODES.items()))
def test_every_code_of_init_by_name(code, name):
    answer = read(FakeNvml(codes={("nvmlInit_v2", None): code}))
    assert answer["error"]["type"] == name
    assert answer["error"]["code"] == code
    assert answer["gpus"] == []


@pytest.mark.parametrize(("code", "name"), sorted(probe.NVML_CODES.items()))
@pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"])
def test_every_code_of_one_gpu_leaves_its_neighbours(function, code, name):
    gpus = ((15360, 450, 0),) * 4
    answer = read(FakeNvml(gpus, codes={(function, 2): code}))
    assert answer["error"] is None
    assert [gpu["error"] for gpu in answer["gpus"]] == [None, None, name, None]
    assert [gpu["total_mib"] for gpu in answer["gpus"] if not gpu["error"]] == [15360] * 3


@pytest.mark.parametrize("code", [3, 13, 25])
def test_version_1_gives_no_reserve_and_says_so(code):
    answer = read(FakeNvml(codes={("nvmlDeviceGetMemoryInfo_v2", None): code}))
    gpu = answer["gpus"][0]
    assert gpu["error"] == probe.NVML_CODES[code]
    assert (gpu["total_mib"], gpu["reserved_mib"], gpu["used_mib"]) == (15360, None, 450)


def test_a_driver_without_version_2():
    gpu = read(FakeNvml(missing=("nvmlDeviceGetMemoryInfo_v2",)))["gpus"][0]
    assert (gpu["error"], gpu["reserved_mib"]) == ("FUNCTION_NOT_FOUND", None)


def test_other_memory_errors_do_not_fall_back():
    gpu = read(FakeNvml(codes={("nvmlDeviceGetMemoryInfo_v2", None): 15}))["gpus"][0]
    assert (gpu["error"], gpu["total_mib"]) == ("GPU_IS_LOST", None)


@pytest.mark.parametrize(("mode", "expected"), [(0, False), (1, True)])
def test_mig(mode, expected):
    class Mig(FakeNvml):
        def do_nvmlDeviceGetMigMode(self, handle, current, pending):
            self._set(current, mode)
            self._set(pending, mode)

    assert read(Mig())["gpus"][0]["mig"] is expected


def test_an_unknown_mig_mode_is_an_error():
    gpu = read(FakeNvml(codes={("nvmlDeviceGetMigMode", None): 999}))["gpus"][0]
    assert (gpu["mig"], gpu["error"]) == (None, "UNKNOWN")


def test_no_library():
    answer = probe.read_nvml("/does/not/exist/libnvidia-ml.so.1")
    assert (answer["error"]["type"], answer["error"]["code"]) == ("LIBRARY_NOT_FOUND", 12)


def test_an_unknown_code_keeps_its_number():
    answer = read(FakeNvml(codes={("nvmlInit_v2", None): 4711}))
    assert answer["error"]["type"] == "CODE_4711"


def whole(gpus):
    return {
        "schema": 1,
        "boot_id": "8b354476-d11d-44f7-b4e4-24c6b9891daf",
        "instance_id": "i-0123456789abcdef0",
        "time": "2026-11-21T09:15:54Z",
        **read(gpus),
    }


def test_sixteen_gpus_in_one_line():
    sizes = [(196608, 900 + i, 100000 + i) for i in range(16)]
    reading = whole(FakeNvml(sizes, name=b"NVIDIA RTX PRO 6000 Blackwell Server Edition"))
    line = probe.compact(reading)
    assert len(line.encode()) < 2400
    assert "\n" not in line
    assert probe.expand(json.loads(line)) == reading


def test_a_reading_with_lost_gpus_survives_the_line():
    reading = whole(FakeNvml([(81920, 634, 5)] * 8, codes={("nvmlDeviceGetUUID", 3): 15}))
    assert probe.expand(json.loads(probe.compact(reading))) == reading


def test_a_line_that_grows_too_long_becomes_an_error():
    reading = whole(FakeNvml([(81920, 634, 5)] * 40))
    answer = json.loads(probe.compact(reading))
    assert answer["error"]["type"] == "OUTPUT_TOO_LARGE"
    assert answer["instance_id"] == "i-0123456789abcdef0"
    assert answer["gpus"] == []


def test_a_hung_driver_ends_in_the_time_limit():
    start = time.monotonic()
    answer = probe.read_in_child(lambda: time.sleep(60), 0.2)
    assert (answer["error"]["type"], answer["error"]["code"]) == ("TIMEOUT", 10)
    assert time.monotonic() - start < 5


def test_a_crash_inside_the_driver_is_an_error():
    answer = probe.read_in_child(lambda: os.kill(os.getpid(), 9), 5)
    assert answer["error"]["type"] == "PROBE_CRASHED"


def run_probe(**environment):
    command = [sys.executable, "-I", "-S", "-"]
    given = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(
        command, input=SOURCE, env=given, capture_output=True, text=True, timeout=30, check=False
    )


class Metadata(http.server.BaseHTTPRequestHandler):
    """IMDSv2: without its token it answers 401."""

    def log_message(self, *args):
        pass

    def _answer(self, status, text=""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_PUT(self):
        ttl = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
        self._answer(200, "secret-token") if ttl else self._answer(400)

    def do_GET(self):
        good = self.headers.get("X-aws-ec2-metadata-token") == "secret-token"
        place = self.path == "/some/path/latest/meta-data/instance-id"
        self._answer(200, "i-0123456789abcdef0") if good and place else self._answer(401)


@pytest.fixture
def metadata():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/some/path/"
    server.shutdown()
    server.server_close()


def test_as_the_node_runs_it(metadata):
    done = run_probe(
        GPUSHARE_NVML_LIBRARY="/does/not/exist", AWS_EC2_METADATA_SERVICE_ENDPOINT=metadata
    )
    assert (done.returncode, done.stderr) == (0, "")
    reading = json.loads(done.stdout)
    assert reading["instance_id"] == "i-0123456789abcdef0"
    assert reading["error"]["type"] == "LIBRARY_NOT_FOUND"
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize(
    "endpoint", ["http://127.0.0.1:1", "http://[::1]:1", "nonsense", "http://x:y"]
)
def test_without_metadata_the_instance_id_is_null(endpoint):
    done = run_probe(
        GPUSHARE_NVML_LIBRARY="/does/not/exist", AWS_EC2_METADATA_SERVICE_ENDPOINT=endpoint
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["instance_id"] is None


def test_a_silent_metadata_service_costs_two_seconds_at_most(monkeypatch):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", place)
        start = time.monotonic()
        assert probe.instance_id(limit_s=0.3) is None
        assert time.monotonic() - start < 2


def test_never_a_traceback(monkeypatch, capsys):
    monkeypatch.setattr(probe, "read", lambda: 1 / 0)
    probe.main()
    out = capsys.readouterr()
    assert json.loads(out.out)["error"]["type"] == "PROBE_FAILED"
    assert out.err == ""


def test_python_3_9_and_standard_library_only():
    tree = ast.parse(SOURCE, feature_version=(3, 9))
    imported = {
        alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {n.module.partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert imported <= set(sys.stdlib_module_names)


def test_ssm_finds_no_parameter_in_it():
    assert "{{" not in SOURCE


def test_the_memory_structures_are_nvmls():
    assert ctypes.sizeof(probe.MemoryV1) == 24
    assert ctypes.sizeof(probe.MemoryV2) == 40
