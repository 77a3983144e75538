"""What a node claims: honest GPUs pass, hostile output is refused with its type."""

from __future__ import annotations

import copy
import json

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import _readings, nvml_probe

ME = "i-0123456789abcdef0"
T4 = {"gpu_count": 1, "gpu_memory_mib": 16384}


def gpu(index=0, **changes):
    return {
        "index": index,
        "uuid": f"GPU-6d2ab28c-0a19-5c5e-8f61-{index or 0:012x}",
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
        **changes,
    }


def reading(*gpus, **changes):
    return {
        "schema": 1,
        "boot_id": "8b354476-d11d-44f7-b4e4-24c6b9891daf",
        "instance_id": ME,
        "time": "2026-11-21T09:15:54Z",
        "driver": "580.105.08",
        "cuda": "13.0",
        "gpus": list(gpus) or [gpu()],
        "error": None,
        **changes,
    }


def parse(value, hardware=T4):
    text = value if isinstance(value, str) else json.dumps(value)
    return _readings.parse(text, instance_id=ME, hardware=hardware)


def refused(value, hardware=T4):
    with pytest.raises(_readings.Refused) as caught:
        parse(value, hardware)
    return caught.value.type


# nvidia-smi's total and the reserve by driver 580; size by EC2 (facts: aws-cli #8970).
@pytest.mark.parametrize(
    ("total", "reserved", "size"),
    [
        (15360, 450, 16384),
        (23028, 512, 22888),
        (23034, 469, 22888),
        (46068, 598, 45776),
        (81559, 548, 81920),
    ],
    ids=["T4", "A10G", "L4", "L40S", "H100"],
)
def test_honest_gpus_pass(total, reserved, size):
    one = gpu(total_mib=total, reserved_mib=reserved)
    got = parse(reading(one), {"gpu_count": 1, "gpu_memory_mib": size})
    assert got["gpus"][0]["usable_mib"] == total - reserved
    assert _readings.row_error(got, {"gpu_count": 1, "gpu_memory_mib": size}) is None


def test_a_compacted_line_reads_the_same():
    given = reading(*[gpu(i, used_mib=i) for i in range(4)])
    line = nvml_probe.compact(copy.deepcopy(given))
    got = parse(line, {"gpu_count": 4, "gpu_memory_mib": 16384})
    assert [g["used_mib"] for g in got["gpus"]] == [0, 1, 2, 3]
    assert {g["usable_mib"] for g in got["gpus"]} == {14910}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "garbage",
        "$(reboot); `id`",
        "null",
        "[]",
        "3",
        '"text"',
        "{}",
        '{"schema":1}',
        '{"schema":true,"gpus":[]}',
        '{"schema":1,"gpus":{}}',
        '{"schema":1,"gpus":[1]}',
        '{"schema":1,"schema":1,"gpus":[]}',
        '{"schema":1,"gpus":[],"error":NaN}',
        '{"schema":1,"gpus":[]}{"schema":1,"gpus":[]}',
        '{"schema":1,"gpus":[]}\nroot:x:0:0',
        "[" * 2000,
        '{"schema":1,"gpus":""}',
        '{"schema":1,"gpus":7}',
        '{"schema":1,"gpus":["x"]}',
        '{"schema":1,"gpus":{"count":2,"index":[0]}}',
        '{"schema":1,"gpus":{"count":65,"index":0}}',
        '{"schema":1,"gpus":{"count":1000000000000000000,"index":0}}',
        '{"schema":1,"gpus":{"count":2,"index":0}}',
        '{"schema":1,"gpus":[{"index":0,"slices":7}]}',
        '{"schema":1,"gpus":[{"index":0,"mig":true,"slices":[7]}]}',
        '{"schema":1,"gpus":[{"index":0,"mig":true,"slices":{"count":9}}]} x',
        '{"schema":1,"gpus":[{"index":0,"mig":false,"slices":[{}]}]}',
        "x" * 3000,
        json.dumps(reading()) + " " * 2500,
    ],
)
def test_garbage_is_malformed(text):
    assert refused(text) == "MALFORMED"


def test_truncated_output_says_so():
    line = json.dumps(reading(*[gpu(i) for i in range(16)]))[:2500]
    assert refused(line) == "TRUNCATED"
    assert refused(line[:300] + "\n---Output truncated---") == "TRUNCATED"


@pytest.mark.parametrize(
    "change",
    [
        {"total_mib": 10**18},
        {"total_mib": -1},
        {"total_mib": 15360.0},
        {"total_mib": "15360"},
        {"total_mib": True},
        {"reserved_mib": -5},
        {"uuid": "GPU-; rm -rf /"},
        {"uuid": 7},
        {"name": "Tesla\nT4"},
        {"name": "x" * 65},
        {"cc": "seven"},
        {"mig": 0},
        {"ecc": 1},
        {"ecc_uncorrected": -1},
        {"ecc_uncorrected": 10**30},
        {"slices": "all"},
        {"mig": "no"},
        {"index": None},
        {"index": -1},
        {"error": "ALL_IS_WELL\x1b[2J"},
        {"error": {"type": "GPU_IS_LOST"}},
    ],
    ids=str,
)
def test_a_gpu_that_is_no_gpu_is_malformed(change):
    assert refused(reading(gpu(**change))) == "MALFORMED"


@pytest.mark.parametrize(
    "change",
    [
        {"driver": "580; reboot"},
        {"cuda": "thirteen"},
        {"boot_id": "x"},
        {"time": "yesterday"},
        {"instance_id": "ip-10-0-0-1"},
        {"error": "TIMEOUT"},
        {"error": {"type": "MADE_UP", "code": 1, "message": ""}},
        {"error": {"type": "TIMEOUT", "code": "10", "message": ""}},
        {"schema": 2},
    ],
    ids=str,
)
def test_a_reading_that_is_no_reading_is_malformed(change):
    assert refused(reading(**change)) == "MALFORMED"


@pytest.mark.parametrize(
    ("one", "hardware"),
    [
        (gpu(total_mib=16712, reserved_mib=400), T4),  # total above 1.02 x EC2's size
        (gpu(total_mib=16500, reserved_mib=10), T4),  # usable above EC2's size
        (gpu(reserved_mib=15361), T4),
        (gpu(used_mib=15361), T4),
        (gpu(), {"gpu_count": 0, "gpu_memory_mib": 0}),
    ],
)
def test_more_than_the_type_has_is_implausible(one, hardware):
    assert refused(reading(one), hardware) == "IMPLAUSIBLE"


def test_more_gpus_than_the_type_has_is_implausible():
    assert refused(reading(gpu(0), gpu(1))) == "IMPLAUSIBLE"


def test_another_instance_is_refused():
    assert refused(reading(instance_id="i-0fedcba9876543210")) == "WRONG_INSTANCE"


def test_without_metadata_service_ssm_vouches_for_the_instance():
    assert parse(reading(instance_id=None))["instance_id"] == ME


def test_twins_are_malformed():
    assert (
        refused(reading(gpu(0), gpu(0)), {"gpu_count": 2, "gpu_memory_mib": 16384}) == "MALFORMED"
    )


@pytest.mark.parametrize(
    "change",
    [{"mig": True}, {"mig": None}, {"reserved_mib": None}, {"error": "GPU_IS_LOST"}],
    ids=str,
)
def test_usable_is_never_guessed(change):
    assert parse(reading(gpu(**change)))["gpus"][0]["usable_mib"] is None


def part(number=0, **changes):
    uuid = f"MIG-6d2ab28c-0a19-5c5e-8f61-{number:012x}"
    return {"uuid": uuid, "total_mib": 9984, "profile": "1g.10gb", **changes}


H100 = {"gpu_count": 8, "gpu_memory_mib": 81920}


def cut(*slices):
    return gpu(total_mib=81559, reserved_mib=548, mig=True, slices=list(slices))


@pytest.mark.parametrize("profile", ["1g.10gb", "1g.10gb+me", "1c.3g.40gb", "1g.5gb-me", None])
def test_mig_slices(profile):
    slices = [part(n, profile=profile) for n in range(7)]
    got = parse(reading(cut(*slices)), H100)
    assert got["gpus"][0]["slices"] == slices
    assert got["gpus"][0]["usable_mib"] is None
    assert _readings.row_error(got, {**H100, "gpu_count": 1}) is None


def test_slices_of_a_whole_machine_come_through_the_line():
    gpus = [
        {**cut(*[part(10 * i + n) for n in range(7)]), "index": i, "uuid": None} for i in range(8)
    ]
    got = parse(nvml_probe.compact(reading(*gpus)), H100)
    assert [len(one["slices"]) for one in got["gpus"]] == [7] * 8
    assert {one["uuid"] for g in got["gpus"] for one in g["slices"]} == {None}


@pytest.mark.parametrize(
    ("slices", "kind"),
    [
        ([part(0), part(0)], "MALFORMED"),
        ([part(uuid="GPU-6d2ab28c-0a19-5c5e-8f61-000000000001")], "MALFORMED"),
        ([part(total_mib=10**18)], "MALFORMED"),
        ([part(profile="$(reboot)")], "MALFORMED"),
        ([part(n, total_mib=40000) for n in range(3)], "IMPLAUSIBLE"),
    ],
)
def test_slices_that_cannot_be(slices, kind):
    assert refused(reading(cut(*slices)), H100) == kind


def test_a_lost_gpu_beside_healthy_ones():
    hardware = {"gpu_count": 4, "gpu_memory_mib": 16384}
    gpus = [gpu(i) for i in range(4)]
    gpus[2] = {**dict.fromkeys(gpus[2]), "index": 2, "error": "GPU_IS_LOST"}
    got = parse(reading(*gpus), hardware)
    assert [g["usable_mib"] for g in got["gpus"]] == [14910, 14910, None, 14910]
    error = _readings.row_error(got, hardware)
    assert error["type"] == "GPU_IS_LOST"
    assert "GPU 2" in error["message"]
    assert error["remedy"]


def test_a_gpu_that_vanished_is_missing():
    hardware = {"gpu_count": 4, "gpu_memory_mib": 16384}
    got = parse(reading(gpu(0), gpu(1), gpu(3)), hardware)
    assert _readings.row_error(got, hardware)["type"] == "GPU_MISSING"


@pytest.mark.parametrize("kind", sorted(nvml_probe.NVML_CODES.values()))
def test_every_nvml_error_passes_with_a_remedy(kind):
    error = {"type": kind, "code": 1, "message": "said\x1b[2J so"}
    got = parse(reading(gpus=[], error=error))
    row = _readings.row_error(got, T4)
    assert row["type"] == kind
    assert row["message"] == "said [2J so"
    assert row["remedy"]
