# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Read the GPUs of this machine by NVML, and put them on one compact line of JSON.

Runs ON the node (AL2023: Python 3.9, standard library only), as the first part of the scripts that
SSM sends (_scripts.py), or imported by the agent.
It never guesses: a figure that NVML did not give is null and the GPU's `error` says why.
Codes, structures and their meaning: NVML API reference, nvml.h (docs.nvidia.com/deploy/nvml-api).
"""

from __future__ import annotations

import ctypes
import json
import os

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
GPU_KEYS = (
    "index",
    "uuid",
    "name",
    "cc",
    "total_mib",
    "reserved_mib",
    "used_mib",
    "ecc",  # null where the GPU has no ECC
    "ecc_uncorrected",  # errors since the driver was loaded
    "mig",
    "slices",  # null unless MIG is on
    "error",
)
MOST_ROWS = 64


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
    gpu = dict.fromkeys(GPU_KEYS)
    gpu["index"] = index
    handle = ctypes.c_void_p()
    try:
        nvml.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
    except NvmlError as exc:
        gpu["error"] = exc.type
        return gpu
    for read in (_identity, _memory, _mig, _ecc):
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


def _memory(nvml, handle, gpu):
    """Fill *_mib: total rounds down, reserved and used round up, so the rest is never too large."""
    try:
        memory = _memory_v2(nvml, handle)
    except NvmlError as exc:
        if exc.code not in (3, 13, 25):
            raise
        old = MemoryV1()
        nvml.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(old))
        gpu["total_mib"], gpu["used_mib"] = old.total // MIB, -(-old.used // MIB)
        raise  # version 1 does not tell the reserve apart: usable stays unknown, with this error
    gpu["total_mib"], gpu["used_mib"] = memory.total // MIB, -(-memory.used // MIB)
    gpu["reserved_mib"] = -(-memory.reserved // MIB)


def _memory_v2(nvml, handle):
    memory = MemoryV2()
    memory.version = ctypes.sizeof(MemoryV2) | (2 << 24)  # NVML_STRUCT_VERSION(Memory, 2)
    nvml.call("nvmlDeviceGetMemoryInfo_v2", handle, ctypes.byref(memory))
    return memory


def _mig(nvml, handle, gpu):
    try:
        gpu["mig"] = nvml.numbers("nvmlDeviceGetMigMode", 2, handle)[0] == 1
    except NvmlError as exc:
        if exc.code not in (3, 13):
            raise
        gpu["mig"] = False  # a GPU or a driver without MIG
    if gpu["mig"]:
        gpu["slices"] = _slices(nvml, handle)


def _slices(nvml, handle):
    """The MIG devices of a GPU, to which its memory belongs."""
    found = []
    for number in range(nvml.numbers("nvmlDeviceGetMaxMigDeviceCount", 1, handle)[0]):
        part = ctypes.c_void_p()
        try:
            number = ctypes.c_uint(number)
            nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, number, ctypes.byref(part))
        except NvmlError as exc:
            if exc.code != 6:
                raise
            continue  # slices are numbered with gaps
        # "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
        profile = nvml.text("nvmlDeviceGetName", part).partition("MIG ")[2]
        found.append(
            {
                "uuid": nvml.text("nvmlDeviceGetUUID", part),
                "total_mib": _memory_v2(nvml, part).total // MIB,
                "profile": profile or None,
            }
        )
    return found


def _ecc(nvml, handle, gpu):
    """Fill ecc*: told where NVML tells them; only what says that the GPU is ill counts as error."""
    uncorrected, volatile, count = ctypes.c_uint(1), ctypes.c_uint(0), ctypes.c_ulonglong()
    try:
        gpu["ecc"] = nvml.numbers("nvmlDeviceGetEccMode", 2, handle)[0] == 1
        if gpu["ecc"]:
            name = "nvmlDeviceGetTotalEccErrors"
            nvml.call(name, handle, uncorrected, volatile, ctypes.byref(count))
            gpu["ecc_uncorrected"] = count.value
    except NvmlError as exc:
        if exc.code in (10, 15, 16):
            raise


def system(nvml):
    """{"driver", "cuda"} of an NVML that was initialised; raises NvmlError."""
    driver = nvml.text("nvmlSystemGetDriverVersion")
    cuda = nvml.numbers("nvmlSystemGetCudaDriverVersion_v2", 1)[0]
    return {"driver": driver, "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}"}


def each_gpu(one, library=None, load=ctypes.CDLL):
    """one(nvml, index) for every GPU -> {"driver", "cuda", "error"}; raises nothing NVML-made."""
    answer = {"driver": None, "cuda": None, "error": None}
    path = library or os.environ.get("GPUSHARE_NVML_LIBRARY") or "libnvidia-ml.so.1"
    try:
        nvml = Nvml(path, load)
        nvml.call("nvmlInit_v2")
        try:
            answer.update(system(nvml))
            for index in range(nvml.numbers("nvmlDeviceGetCount_v2", 1)[0]):
                one(nvml, index)
        finally:
            nvml.call("nvmlShutdown")
    except NvmlError as exc:
        answer["error"] = {"type": exc.type, "code": exc.code, "message": str(exc)[:200]}
    return answer


def read_nvml(library=None, load=ctypes.CDLL):
    """Read all GPUs in this process -> {"driver", "cuda", "gpus", "error"}; raises nothing."""
    gpus = []
    answer = each_gpu(lambda nvml, index: gpus.append(read_gpu(nvml, index)), library, load)
    return dict(answer, gpus=gpus)


def failure(kind, code, message):
    """What read_nvml answers where NVML could not be asked."""
    error = {"type": kind, "code": code, "message": message[:200]}
    return {"driver": None, "cuda": None, "gpus": [], "error": error}


def boot_id():
    """This boot's ID, or None where the kernel does not tell."""
    path = os.environ.get("GPUSHARE_BOOT_ID_FILE") or "/proc/sys/kernel/random/boot_id"
    try:
        with open(path, encoding="ascii") as handle:
            return handle.read().strip()
    except OSError:
        return None


def pack(rows):
    """Rows of one kind as columns, each as short as it can be: one value for all rows, one for
    `most` with the others by the row's number, or a list."""
    packed = {"count": len(rows)}
    for key in rows[0]:
        values = [row[key] for row in rows]
        most = max(values, key=values.count)
        others = {str(row): value for row, value in enumerate(values) if value != most}
        if any(isinstance(value, list) for value in values):
            packed[key] = values
        else:
            short = {"most": most, "others": others} if others else most
            packed[key] = min(short, values, key=lambda column: len(to_line(column)))
    return packed


def unpack(packed):
    """The inverse of pack(). Raises ValueError for what pack() did not make."""
    columns = dict(packed)
    count = columns.pop("count", None)
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= MOST_ROWS:
        raise ValueError(f"a count of {MOST_ROWS} at most is expected")
    rows = [{} for _row in range(count)]
    for key, column in columns.items():
        for row, value in zip(rows, _values(column, count)):  # noqa: B905 (Python 3.9 has no strict)
            row[key] = value
    return rows


def _values(column, count):
    if isinstance(column, dict) and "most" in column:
        others = column.get("others")
        if not isinstance(others, dict):
            raise ValueError("a column without its others")
        return [others.get(str(row), column["most"]) for row in range(count)]
    values = column if isinstance(column, list) else [column] * count
    if len(values) != count:
        raise ValueError("a column has not one value for each row")
    return values


def to_line(value):
    """JSON on one line, as short as it can be."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def compact(reading):
    """The reading as one JSON line; MIG slices lose their UUIDs where they make it too long."""
    line = to_line(_packed(reading, {}))
    if len(line) >= LINE_LIMIT_BYTES:
        line = to_line(_packed(reading, {"uuid": None}))
    if len(line) >= LINE_LIMIT_BYTES:
        size = f"the reading takes {len(line)} bytes, more than Run Command hands on"
        line = to_line(dict(reading, **failure("OUTPUT_TOO_LARGE", None, size)))
    return line


def _packed(reading, slice_changes):
    gpus = []
    for gpu in reading["gpus"]:
        slices = [dict(one, **slice_changes) for one in gpu["slices"] or []]
        gpus.append(dict(gpu, slices=pack(slices) if slices else gpu["slices"]))
    return dict(reading, gpus=pack(gpus) if len(gpus) > 1 else gpus)


def expand(reading):
    """The inverse of compact(), on the parsed line. Raises ValueError for a foreign shape."""
    gpus, full = reading["gpus"], []
    if not isinstance(gpus, (list, dict)):
        raise ValueError("gpus are neither rows nor columns")
    for gpu in unpack(gpus) if isinstance(gpus, dict) else gpus:
        slices = gpu.get("slices")
        full.append(dict(gpu, slices=unpack(slices)) if isinstance(slices, dict) else gpu)
    return dict(reading, gpus=full)
