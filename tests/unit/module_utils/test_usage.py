"""Used beside requested: who is above their number, and the view that nvidia-smi gives."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import _usage
from ansible_collections.gpushare.eks.plugins.module_utils._report import table

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_report import READINGS, container, made, pod


def with_uid(name, **more):
    one = pod(name, "b", **more)
    one["metadata"]["uid"] = f"uid-{name}"
    return one


def process(pid, name, used_mib):
    uid = name and f"uid-{name}"
    return {"gpu": 0, "pid": pid, "used_mib": used_mib, "pod_uid": uid, "pod": None}


def read(*entries, count=None, error=None):
    found = {
        "count": len(entries) if count is None else count,
        "used_mib": sum(one["used_mib"] or 0 for one in entries),
        "truncated": count is not None,
        "entries": list(entries),
        "error": error,
    }
    head = {"driver": "580.105.08", "cuda": "13.0"}
    gpu = {**READINGS[0]["gpus"][0], "mig": False}
    return [{**READINGS[0], "reading": head, "gpus": [gpu], "processes": found}]


def of(pods, readings):
    data = made(pods, readings=readings)
    node = next(one for one in data["nodes"] if one["name"] == "b")
    return data, {one["name"]: (one["used_mib"], one["above"]) for one in node["pods"]}


PODS = [with_uid("good"), with_uid("greedy"), with_uid("idle")]


def test_who_is_above_their_number():
    rows = [process(1, "good", 2000), process(2, "good", 1072), process(3, "greedy", 3073)]
    data, used = of(PODS, read(*rows))
    assert used == {"good": (3072, False), "greedy": (3073, True), "idle": (0, False)}
    lines = [line.strip() for line in table(data).splitlines() if "default/" in line]
    assert lines == [
        "default/good    3072  uses 3072  Running",
        "default/greedy  3072  uses 3073  Running  ABOVE by 1",
        "default/idle    3072  uses 0     Running",
    ]


def test_who_asked_for_nothing_and_uses_a_gpu_is_listed():
    sneak = with_uid("sneak", containers=[container()])
    data, used = of([*PODS, sneak], read(process(9, "sneak", 500)))
    assert used["sneak"] == (500, True)
    assert "default/sneak      -  uses 500  Running  ABOVE by 500" in table(data)
    data, used = of([*PODS, sneak], read())
    assert "sneak" not in used


def test_a_pod_of_a_whole_gpu_has_no_number():
    whole = with_uid("whole", containers=[container(**{"nvidia.com/gpu": "1"})])
    _data, used = of([whole], read(process(9, "whole", 9000)))
    assert used == {"whole": (9000, None)}


@pytest.mark.parametrize(
    ("readings", "idle"),
    [
        (READINGS, None),
        (read(process(1, "good", 5), count=3), None),
        (read(error={"type": "GPU_IS_LOST", "message": "GPU 0 GPU_IS_LOST"}), None),
        (read(process(1, "idle", None)), None),
        ([{**READINGS[0], "processes": {"count": None, "used_mib": None, "truncated": None,
           "entries": [], "error": {"type": "NoAnswer", "message": "no answer"}}}], None),
        (read(), 0),
    ],
)  # fmt: skip
def test_what_nobody_knows_is_none_and_marks_nobody(readings, idle):
    _data, used = of(PODS, readings)
    assert used["idle"] == (idle, None if idle is None else False)


def test_the_view_of_nvidia_smi():
    data, _used = of(PODS, read(process(4711, "good", 2705), process(8, None, 450), count=4))
    assert _usage.smi(data).splitlines() == [
        "b (i-b, g4dn.xlarge): driver 580.105.08, CUDA 13.0",
        "  GPU 0  Tesla T4  GPU-1  9000 / 15360 MiB",
        "  GPU   PID   MiB  POD",
        "    0  4711  2705  default/good",
        "    0     8   450  (no pod)",
        "  and 2 more",
    ]
    assert "  no process" in _usage.smi(of(PODS, read())[0])
    lost = {"type": "x", "message": "GPU 0 GPU_IS_LOST"}
    assert "processes cannot be read: GPU 0" in _usage.smi(of(PODS, read(error=lost))[0])
    assert "processes were not read" in _usage.smi(of(PODS, READINGS)[0])
    assert _usage.smi(of([], [])[0]) == "no GPU was read"
