# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Read the GPUs of this machine by NVML and print them as one compact JSON line.

Runs ON the node (AL2023: Python 3.9, standard library only), sent by SSM or imported by the agent.
It never guesses: a figure that NVML did not give is null and the GPU's `error` says why.
Codes, structures and their meaning: NVML API reference, nvml.h (docs.nvidia.com/deploy/nvml-api).
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
import time

SCHEMA = 1
LINE_LIMIT_BYTES = 2400  # ListCommandInvocations cuts each plugin's output at 2,500 characters
MIB = 1024 * 1024
NVML_CODES = {
    1: "UNINITIALIZED",
    2: "INVALID_ARGUMENT",
    3: "NOT_SUPPORTED",
    4: "NO_PERMISSION",
    5: "ALREADY_INITIALIZED",
    6: "NOT_FOUND",
    7: "INSUFFICIENT_SIZE",
    8: "INSUFFICIENT_POWER",
    9: "DRIVER_NOT_LOADED",
    10: "TIMEOUT",
    11: "IRQ_ISSUE",
    12: "LIBRARY_NOT_FOUND",
    13: "FUNCTION_NOT_FOUND",
    14: "CORRUPTED_INFOROM",
    15: "GPU_IS_LOST",
    16: "RESET_REQUIRED",
    17: "OPERATING_SYSTEM",
    18: "LIB_RM_VERSION_MISMATCH",
    19: "IN_USE",
    20: "MEMORY",
    21: "NO_DATA",
    22: "VGPU_ECC_NOT_SUPPORTED",
    23: "INSUFFICIENT_RESOURCES",
    24: "FREQ_NOT_SUPPORTED",
    25: "ARGUMENT_VERSION_MISMATCH",
    26: "DEPRECATED",
    27: "NOT_READY",
    28: "GPU_NOT_FOUND",
    29: "INVALID_STATE",
    30: "RESET_TYPE_NOT_SUPPORTED",
    999: "UNKNOWN",
}
# Values that all GPUs of one machine usually share stand once in `common`.
SHARED_KEYS = ("name", "cc", "total_mib", "reserved_mib", "used_mib", "mig", "error")


class NvmlError(Exception):
    """One NVML call failed: `.type` is the name of the code, `.code` the number."""

    def __init__(self, code, call):
        self.code = code
        self.type = NVML_CODES.get(code, f"CODE_{code}")
        super().__init__(f"{call} answered {self.type} ({code})")


class MemoryV1(ctypes.Structure):
    """nvmlMemory_t, bytes; its `used` includes the driver's reserve."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class MemoryV2(ctypes.Structure):
    """nvmlMemory_v2_t, bytes; `reserved` apart from `used`."""

    _fields_ = [("version", ctypes.c_uint)] + [
        (name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")
    ]


class Nvml:
    """The few NVML calls of the probe, each raising NvmlError by name."""

    def __init__(self, path, load=ctypes.CDLL):
        try:
            self._library = load(path)
        except OSError as exc:
            error = NvmlError(12, "dlopen")
            error.args = (str(exc)[:160],)
            raise error from None

    def call(self, name, *args):
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise NvmlError(13, name) from None  # an older driver lacks newer functions
        code = function(*args)
        if code:
            raise NvmlError(code, name)

    def text(self, name, *args):
        buffer = ctypes.create_string_buffer(96)  # NVML_DEVICE_NAME_V2_BUFFER_SIZE
        self.call(name, *args, buffer, ctypes.c_uint(len(buffer)))
        return buffer.value.decode("utf-8", "replace")[:64]

    def numbers(self, name, count, *args):
        values = [ctypes.c_int() for _dummy in range(count)]
        self.call(name, *args, *[ctypes.byref(value) for value in values])
        return [value.value for value in values]


def read_gpu(nvml, index):
    """One GPU as a dict; what could be read is kept beside the `error` that stopped the rest."""
    gpu = dict.fromkeys(("index", "uuid", *SHARED_KEYS))
    gpu["index"] = index
    handle = ctypes.c_void_p()
    try:
        nvml.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
    except NvmlError as exc:
        gpu["error"] = exc.type
        return gpu
    for read in (_identity, _mig, _memory):
        try:
            read(nvml, handle, gpu)
        except NvmlError as exc:
            gpu["error"] = gpu["error"] or exc.type
    return gpu


def _identity(nvml, handle, gpu):
    gpu["uuid"] = nvml.text("nvmlDeviceGetUUID", handle)
    gpu["name"] = nvml.text("nvmlDeviceGetName", handle)
    major_minor = nvml.numbers("nvmlDeviceGetCudaComputeCapability", 2, handle)
    gpu["cc"] = ".".join(str(number) for number in major_minor)


def _mig(nvml, handle, gpu):
    try:
        gpu["mig"] = nvml.numbers("nvmlDeviceGetMigMode", 2, handle)[0] == 1
    except NvmlError as exc:
        if exc.code not in (3, 13):
            raise
        gpu["mig"] = False  # a GPU or a driver without MIG


def _memory(nvml, handle, gpu):
    """Fill *_mib: total rounds down, reserved and used round up, so the rest is never too large."""
    memory = MemoryV2()
    memory.version = ctypes.sizeof(MemoryV2) | (2 << 24)  # NVML_STRUCT_VERSION(Memory, 2)
    try:
        nvml.call("nvmlDeviceGetMemoryInfo_v2", handle, ctypes.byref(memory))
    except NvmlError as exc:
        if exc.code not in (3, 13, 25):
            raise
        old = MemoryV1()
        nvml.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(old))
        gpu["total_mib"], gpu["used_mib"] = old.total // MIB, -(-old.used // MIB)
        raise  # version 1 does not tell the reserve apart: usable stays unknown, with this error
    gpu["total_mib"], gpu["used_mib"] = memory.total // MIB, -(-memory.used // MIB)
    gpu["reserved_mib"] = -(-memory.reserved // MIB)


def system(nvml):
    """{"driver", "cuda"} of an NVML that was initialised; raises NvmlError."""
    driver = nvml.text("nvmlSystemGetDriverVersion")
    cuda = nvml.numbers("nvmlSystemGetCudaDriverVersion_v2", 1)[0]
    return {"driver": driver, "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}"}


def read_nvml(library=None, load=ctypes.CDLL):
    """Read all GPUs in this process -> {"driver", "cuda", "gpus", "error"}; raises nothing."""
    answer = {"driver": None, "cuda": None, "gpus": [], "error": None}
    path = library or os.environ.get("GPUSHARE_NVML_LIBRARY") or "libnvidia-ml.so.1"
    try:
        nvml = Nvml(path, load)
        nvml.call("nvmlInit_v2")
        try:
            answer.update(system(nvml))
            count = nvml.numbers("nvmlDeviceGetCount_v2", 1)[0]
            answer["gpus"] = [read_gpu(nvml, index) for index in range(count)]
        finally:
            nvml.call("nvmlShutdown")
    except NvmlError as exc:
        answer["error"] = {"type": exc.type, "code": exc.code, "message": str(exc)[:200]}
    return answer


def _failure(kind, code, message):
    error = {"type": kind, "code": code, "message": message[:200]}
    return {"driver": None, "cuda": None, "gpus": [], "error": error}


def read_in_child(read, timeout_s):
    """Run `read` in a child of our own, ended after timeout_s: a hung driver cannot hold us.

    A process stuck in the driver may survive SIGKILL for a while, so its end is not waited for.
    """
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):  # whatever the driver's library prints stays out of our line
                os.dup2(nothing, stream)
            os.write(sending, json.dumps(read()).encode()[:65536])
        finally:
            os._exit(0)
    os.close(sending)
    try:
        text, end = _drain(receiving, time.monotonic() + timeout_s)
    finally:
        os.close(receiving)
    if not end:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, os.WNOHANG)
        message = f"NVML did not answer within {timeout_s:g} s: the driver hangs"
        return _failure("TIMEOUT", 10, message)
    _dummy, status = os.waitpid(child, 0)
    try:
        return json.loads(text)
    except ValueError:
        ended = f"the process that reads NVML ended with wait status {status}"
        return _failure("PROBE_CRASHED", None, ended)


def _drain(descriptor, deadline):
    """All bytes until the other side closes -> (text, True); at the deadline (text, False)."""
    text = b""
    while True:
        ready, _dummy, _dummy = select.select(
            [descriptor], [], [], max(0.0, deadline - time.monotonic())
        )
        if not ready:
            return text, False
        chunk = os.read(descriptor, 65536)
        if not chunk:
            return text, True
        text += chunk


def boot_id():
    """This boot's ID, or None where the kernel does not tell."""
    path = os.environ.get("GPUSHARE_BOOT_ID_FILE") or "/proc/sys/kernel/random/boot_id"
    try:
        with open(path, encoding="ascii") as handle:
            return handle.read().strip()
    except OSError:
        return None


def _http(address, request, deadline):
    """One HTTP/1.0 exchange by a plain socket (http.client costs more to import than all else)."""
    with socket.create_connection(address, timeout=max(0.01, deadline - time.monotonic())) as link:
        link.sendall(request.encode("ascii"))
        answer = b""
        while len(answer) < 8192:
            link.settimeout(max(0.01, deadline - time.monotonic()))
            chunk = link.recv(4096)
            if not chunk:
                break
            answer += chunk
    head, _dummy, body = answer.partition(b"\r\n\r\n")
    return body.decode("ascii").strip() if b" 200 " in head.split(b"\r\n")[0] + b" " else None


def instance_id(limit_s=2.0):
    """This instance's ID by IMDSv2, or None where the metadata service does not answer in time."""
    base = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or "http://169.254.169.254"
    place, _dummy, path = base.partition("://")[2].partition("/")
    host, _dummy, port = (
        place.rpartition(":") if ":" in place.rpartition("]")[2] else (place, "", "80")
    )
    address, root = (host.strip("[]"), int(port)), ("/" + path).rstrip("/")
    deadline = time.monotonic() + limit_s
    line = "%s " + root + "/latest/%s HTTP/1.0\r\nHost: " + place + "\r\n%s\r\n"
    life = "X-aws-ec2-metadata-token-ttl-seconds: 60\r\n"
    try:
        token = _http(address, line % ("PUT", "api/token", life), deadline)
        if not token:
            return None
        header = f"X-aws-ec2-metadata-token: {token}\r\n"
        return _http(address, line % ("GET", "meta-data/instance-id", header), deadline)
    except (OSError, ValueError):
        return None


def read(library=None, timeout_s=10.0, identity=instance_id):
    """The whole reading as a dict (the probe JSON, not compacted); raises nothing NVML-made."""
    reading = {"schema": SCHEMA, "boot_id": boot_id(), "instance_id": identity()}
    reading["time"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    reading.update(read_in_child(lambda: read_nvml(library), timeout_s))
    return reading


def compact(reading):
    """The reading as one JSON line; what most GPUs share stands once, in `common`."""
    gpus, common = reading["gpus"], {}
    if len(gpus) > 1:
        for key in SHARED_KEYS:
            values = [gpu[key] for gpu in gpus]
            common[key] = max(values, key=values.count)
        kept = [{k: v for k, v in g.items() if k not in common or v != common[k]} for g in gpus]
        reading = dict(reading, common=common, gpus=kept)
    line = json.dumps(reading, separators=(",", ":"), sort_keys=True)
    if len(line) >= LINE_LIMIT_BYTES:
        size = f"the reading takes {len(line)} bytes, more than Run Command hands on"
        cut = dict(reading, **_failure("OUTPUT_TOO_LARGE", None, size))
        cut.pop("common", None)
        line = json.dumps(cut, separators=(",", ":"), sort_keys=True)
    return line


def expand(reading):
    """The inverse of compact(), on the parsed line: every GPU with all its keys again."""
    full = dict(reading)
    common = full.pop("common", {})
    full["gpus"] = [dict(common, **gpu) for gpu in reading["gpus"]]
    return full


def main():
    """Print one line; the exit code is 0 whenever a line was printed, also one with an error."""
    try:
        line = compact(read())
    except Exception as exc:
        reading = dict(_failure("PROBE_FAILED", None, repr(exc)), schema=SCHEMA)
        reading.update(boot_id=boot_id(), instance_id=None, time=None)
        line = json.dumps(reading, separators=(",", ":"), sort_keys=True)
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
