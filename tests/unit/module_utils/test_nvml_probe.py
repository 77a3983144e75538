"""Reading NVML: every code by name, lost GPUs beside healthy ones, MIG, ECC, the size of a line."""

from __future__ import annotations

import ctypes
import json

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import nvml_probe as probe

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
            "ecc": None,
            "ecc_uncorrected": None,
            "mig": False,
            "slices": None,
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


class Mig(FakeNvml):
    """Each GPU is cut into `slices`: profiles, None for a gap in their numbers."""

    mode, slices = 1, ("1g.10gb",) * 7

    def do_nvmlDeviceGetMigMode(self, handle, current, pending):
        self._set(current, self.mode)
        self._set(pending, 1)

    def do_nvmlDeviceGetMaxMigDeviceCount(self, handle, pointer):
        self._set(pointer, 7)

    def do_nvmlDeviceGetMigDeviceHandleByIndex(self, handle, index, pointer):
        if index.value >= len(self.slices) or self.slices[index.value] is None:
            return 6
        return self._set(pointer, 1000 * handle.value + index.value)

    def _slice(self, handle):
        return self.slices[handle.value % 1000] if handle.value >= 1000 else None

    def do_nvmlDeviceGetName(self, handle, buffer, size):
        profile = self._slice(handle)
        # An older driver calls a slice by the name of its GPU.
        named = profile and profile != "0.16gb"
        buffer.value = f"NVIDIA H100 80GB HBM3{f' MIG {profile}' if named else ''}".encode()

    def do_nvmlDeviceGetUUID(self, handle, buffer, size):
        kind = b"MIG" if self._slice(handle) else b"GPU"
        buffer.value = kind + b"-6d2ab28c-0a19-5c5e-8f61-%012x" % handle.value

    def do_nvmlDeviceGetMemoryInfo_v2(self, handle, pointer):
        profile = self._slice(handle)
        if profile is None:
            return super().do_nvmlDeviceGetMemoryInfo_v2(handle, pointer)
        pointer._obj.total = int(profile.partition(".")[2].rstrip("gb")) * 1000 * MIB
        return 0


def test_mig_off_is_no_mig():
    class Off(Mig):
        mode = 0

    gpu = read(Off())["gpus"][0]
    assert (gpu["mig"], gpu["slices"], gpu["error"]) == (False, None, None)


def test_with_mig_on_the_memory_belongs_to_the_slices():
    class Cut(Mig):
        slices = ("1g.10gb", None, "3g.40gb", None, "0.16gb")

    gpu = read(Cut([(81559, 548, 0)]))["gpus"][0]
    assert (gpu["mig"], gpu["total_mib"], gpu["error"]) == (True, 81559, None)
    assert gpu["slices"] == [
        {"uuid": f"MIG-6d2ab28c-0a19-5c5e-8f61-{1000 + n:012x}", "total_mib": t, "profile": p}
        for n, t, p in ((0, 10000, "1g.10gb"), (2, 40000, "3g.40gb"), (4, 16000, None))
    ]


def test_a_gpu_with_mig_on_and_no_slice():
    class Empty(Mig):
        slices = ()

    gpu = read(Empty())["gpus"][0]
    assert (gpu["mig"], gpu["slices"]) == (True, [])


@pytest.mark.parametrize("code", [2, 4, 15, 999])
def test_slices_that_cannot_be_listed_are_the_gpus_error(code):
    gpu = read(Mig(codes={("nvmlDeviceGetMaxMigDeviceCount", None): code}))["gpus"][0]
    assert (gpu["mig"], gpu["slices"], gpu["error"]) == (True, None, probe.NVML_CODES[code])


class Ecc(FakeNvml):
    mode, count = 1, 3

    def do_nvmlDeviceGetEccMode(self, handle, current, pending):
        self._set(current, self.mode)
        self._set(pending, 1)

    def do_nvmlDeviceGetTotalEccErrors(self, handle, kind, counter, pointer):
        assert (kind.value, counter.value) == (1, 0), "uncorrected, volatile"
        pointer._obj.value = self.count


def test_ecc():
    class Off(Ecc):
        mode = 0

    on, off, none = (read(fake())["gpus"][0] for fake in (Ecc, Off, FakeNvml))
    assert (on["ecc"], on["ecc_uncorrected"]) == (True, 3)
    assert (off["ecc"], off["ecc_uncorrected"]) == (False, None)
    assert (none["ecc"], none["ecc_uncorrected"]) == (None, None)


@pytest.mark.parametrize("code", sorted(probe.NVML_CODES))
@pytest.mark.parametrize("function", ["nvmlDeviceGetEccMode", "nvmlDeviceGetTotalEccErrors"])
def test_only_an_ill_gpu_makes_ecc_an_error(function, code):
    gpu = read(Ecc(codes={(function, None): code}))["gpus"][0]
    assert gpu["error"] == (probe.NVML_CODES[code] if code in (10, 15, 16) else None)
    assert (gpu["total_mib"], gpu["reserved_mib"]) == (15360, 450)
    assert gpu["ecc_uncorrected"] is None


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


LONG = b"NVIDIA RTX PRO 6000 Blackwell Server Edition"


@pytest.mark.parametrize(
    "codes",
    [
        {},
        {("nvmlDeviceGetHandleByIndex_v2", 3): 15},
        {("nvmlDeviceGetMemoryInfo_v2", n): 25 for n in range(0, 16, 2)},
        {
            (function, n): code
            for n in range(12)
            for function, code in (
                ("nvmlDeviceGetUUID", 16),
                ("nvmlDeviceGetMemoryInfo_v2", (25, 18, 30, 24)[n % 4]),
            )[n % 2 :]
        },
        {("nvmlDeviceGetMigMode", n): 24 - n for n in range(16)},
    ],
    ids=["healthy", "one lost", "half without a reserve", "twelve ill", "all with another error"],
)
def test_sixteen_gpus_in_one_line(codes):
    class Worn(Ecc):
        count = 10**6

        def do_nvmlDeviceGetTotalEccErrors(self, handle, kind, counter, pointer):
            pointer._obj.value = self.count + handle.value

    sizes = [(196608, 900 + i, 100000 + i) for i in range(16)]
    reading = whole(Worn(sizes, codes=codes, name=LONG))
    assert [gpu["error"] for gpu in reading["gpus"]].count(None) < 16 or not codes
    line = probe.compact(reading)
    assert len(line.encode()) < 2400
    assert "\n" not in line
    assert probe.expand(json.loads(line)) == reading


def test_one_gpu_stands_in_clear():
    reading = whole(FakeNvml())
    line = json.loads(probe.compact(reading))
    assert line == reading
    assert probe.expand(line) == reading


def test_a_reading_with_lost_gpus_survives_the_line():
    reading = whole(FakeNvml([(81920, 634, 5)] * 8, codes={("nvmlDeviceGetUUID", 3): 15}))
    assert probe.expand(json.loads(probe.compact(reading))) == reading


@pytest.mark.parametrize("gpus", [1, 2])
def test_slices_come_with_their_uuids_where_there_is_room(gpus):
    reading = whole(Mig([(81559, 548, 0)] * gpus))
    assert probe.expand(json.loads(probe.compact(reading))) == reading


@pytest.mark.parametrize("profiles", [("1g.10gb",) * 7, ("1g.10gb", "1g.20gb") * 3])
def test_slices_of_eight_gpus_come_without_their_uuids(profiles):
    class Many(Mig):
        slices = profiles

    reading = whole(Many([(81559, 548, i) for i in range(8)]))
    line = probe.compact(reading)
    assert len(line.encode()) < 2400
    for gpu in reading["gpus"]:
        gpu["slices"] = [{**one, "uuid": None} for one in gpu["slices"]]
    assert probe.expand(json.loads(line)) == reading


@pytest.mark.parametrize("kind", [FakeNvml, Mig])
def test_a_line_that_grows_too_long_becomes_an_error(kind):
    fake = kind([(81920 + i, 634 + i, 5 + i) for i in range(64)])
    answer = json.loads(probe.compact(whole(fake)))
    assert answer["error"]["type"] == "OUTPUT_TOO_LARGE"
    assert answer["instance_id"] == "i-0123456789abcdef0"
    assert answer["gpus"] == []


def test_rows_as_columns_and_back():
    rows = [{"a": 1, "b": None, "c": [n]} for n in range(3)]
    packed = probe.pack(rows)
    assert packed == {"count": 3, "a": 1, "b": None, "c": [[0], [1], [2]]}
    assert probe.unpack(packed) == rows
    rows = [{"a": "a long name", "b": n} for n in range(20)]
    rows[7]["a"] = None
    packed = probe.pack(rows)
    assert packed["a"] == {"most": "a long name", "others": {"7": None}}
    assert packed["b"] == list(range(20))
    assert probe.unpack(packed) == rows


@pytest.mark.parametrize(
    "packed",
    [
        {},
        {"count": 0},
        {"count": -1},
        {"count": 65},
        {"count": 10**18},
        {"count": True},
        {"count": 2.0},
        {"count": "2"},
        {"count": 2, "a": [1]},
        {"count": 2, "a": [1, 2, 3]},
        {"count": 2, "a": {"most": 1}},
        {"count": 2, "a": {"most": 1, "others": [2]}},
    ],
    ids=str,
)
def test_columns_that_are_none(packed):
    with pytest.raises(ValueError, match=r"count|column"):
        probe.unpack(packed)


def test_the_memory_structures_are_nvmls():
    assert ctypes.sizeof(probe.MemoryV1) == 24
    assert ctypes.sizeof(probe.MemoryV2) == 40
