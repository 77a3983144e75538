"""Used memory by process: cgroup paths as kubelets write them, the line's limit, what is true."""

from __future__ import annotations

import ctypes
import json

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import (
    _node_processes,
    _process_readings,
    _readings,
    nvml_probe,
)
from ansible_collections.gpushare.eks.plugins.module_utils._ssm import Outcome

ME = "i-0123456789abcdef0"
T4 = {"gpu_count": 1, "gpu_memory_mib": 16384}
UID = "5f0a1b2c-3d4e-4f5a-8b6c-7d8e9f0a1b2c"
LINED = UID.replace("-", "_")
STATIC = "3c7b4a8be2a1f6b0d9e8c7f6a5b4c3d2"
ID = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
MIB = 1024 * 1024

# /proc/<pid>/cgroup, read from the host's cgroup namespace. v2 has one line, v1 one for each
# controller. systemd driver: *.slice and *.scope (AL2023); cgroupfs driver: plain folders.
CGROUPS = {
    "systemd, burstable": (
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{LINED}.slice"
        f"/cri-containerd-{ID}.scope\n",
        (UID, ID),
    ),
    "systemd, best effort": (
        f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{LINED}.slice"
        f"/cri-containerd-{ID}.scope\n",
        (UID, ID),
    ),
    "systemd, guaranteed": (
        f"0::/kubepods.slice/kubepods-pod{LINED}.slice/cri-containerd-{ID}.scope\n",
        (UID, ID),
    ),
    "systemd, below the container": (
        f"0::/kubepods.slice/kubepods-pod{LINED}.slice/cri-containerd-{ID}.scope/init.scope\n",
        (UID, ID),
    ),
    "systemd, CRI-O": (
        f"0::/kubepods.slice/kubepods-pod{LINED}.slice/crio-{ID}.scope/container\n",
        (UID, ID),
    ),
    "systemd, below a slice of the kubelet's": (
        "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice"
        f"/kubelet-kubepods-burstable-pod{LINED}.slice/cri-containerd-{ID}.scope\n",
        (UID, ID),
    ),
    "cgroupfs, best effort": (f"0::/kubepods/besteffort/pod{UID}/{ID}\n", (UID, ID)),
    "cgroupfs, burstable": (f"0::/kubepods/burstable/pod{UID}/{ID}\n", (UID, ID)),
    "cgroupfs, guaranteed": (f"0::/kubepods/pod{UID}/{ID}\n", (UID, ID)),
    "from another cgroup namespace": (f"0::/../../kubepods/pod{UID}/{ID}\n", (UID, ID)),
    "a static pod": (f"0::/kubepods/burstable/pod{STATIC}/{ID}\n", (STATIC, ID)),
    "the pod itself": (f"0::/kubepods/pod{UID}\n", (UID, None)),
    "v1, cgroupfs": (
        f"12:memory:/kubepods/burstable/pod{UID}/{ID}\n"
        f"11:devices:/kubepods/burstable/pod{UID}/{ID}\n"
        f"1:name=systemd:/kubepods/burstable/pod{UID}/{ID}\n",
        (UID, ID),
    ),
    "v1, systemd by containerd": (
        f"9:cpuset:/system.slice/containerd.service/kubepods-burstable-pod{LINED}.slice:"
        f"cri-containerd:{ID}\n0::/system.slice/containerd.service\n",
        (UID, ID),
    ),
    "a service of the node": ("0::/system.slice/nvidia-persistenced.service\n", (None, None)),
    "a container of docker": (f"0::/system.slice/docker-{ID}.scope\n", (None, None)),
    "a login": ("0::/user.slice/user-1000.slice/session-1.scope\n", (None, None)),
    "a unit that only looks like a pod": (f"0::/system.slice/pod{UID}.service\n", (None, None)),
    "nothing": ("", (None, None)),
}


@pytest.mark.parametrize("case", CGROUPS)
def test_whose_a_process_is(case):
    text, expected = CGROUPS[case]
    assert _node_processes.owner(text) == expected


def test_a_process_that_ended_meanwhile_has_no_owner(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUSHARE_PROC_ROOT", str(tmp_path))
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "cgroup").write_text(CGROUPS["systemd, guaranteed"][0])
    assert _node_processes.owner_of(42) == (UID, ID)
    assert _node_processes.owner_of(43) == (None, None)


class FakeNvml:
    """GPUs with processes [(PID, bytes)]; `codes` {(function, GPU): NVML code}."""

    def __init__(self, gpus, codes=None):
        self.gpus, self.codes, self.asked = gpus, codes or {}, []

    def __getattr__(self, function):
        def call(*args):
            gpu = getattr(args[0], "value", None) if args else None
            if function == "nvmlDeviceGetComputeRunningProcesses_v3":
                gpu -= 1
            code = self.codes.get((function, gpu)) or self.codes.get((function, None))
            answer = getattr(type(self), f"do_{function}", lambda *args: 0)
            return code or answer(self, *args) or 0

        return call

    def do_nvmlDeviceGetCount_v2(self, pointer):
        pointer._obj.value = len(self.gpus)

    def do_nvmlDeviceGetHandleByIndex_v2(self, index, pointer):
        pointer._obj.value = index.value + 1

    def do_nvmlDeviceGetComputeRunningProcesses_v3(self, handle, count, infos):
        rows = self.gpus[handle.value - 1]
        self.asked.append(room := count._obj.value)
        count._obj.value = len(rows)
        if len(rows) > room:
            return 7
        for info, (pid, used) in zip(infos, rows, strict=False):
            info.pid, info.used = pid, used
        return 0


def ask(gpus, codes=None):
    fake = FakeNvml(gpus, codes)
    return _node_processes.read_processes(load=lambda path: fake), fake


def test_the_structure_is_nvmls():
    assert ctypes.sizeof(_node_processes.ProcessInfo) == 24


def test_processes_of_every_gpu():
    answer, _ = ask([[(11, 3000 * MIB), (12, 1)], [(11, 2**64 - 1)], []])
    assert answer == {
        "rows": [
            {"gpu": 0, "pid": 11, "used_mib": 3000},
            {"gpu": 0, "pid": 12, "used_mib": 1},
            {"gpu": 1, "pid": 11, "used_mib": None},
        ],
        "gpu_errors": [],
        "error": None,
    }


def test_more_processes_than_there_was_room_for():
    answer, fake = ask([[(pid, MIB) for pid in range(3000)]])
    assert len(answer["rows"]) == 3000
    assert fake.asked == [256, 1024, 4096]


@pytest.mark.parametrize("code", sorted(nvml_probe.NVML_CODES))
@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetComputeRunningProcesses_v3"]
)
def test_a_gpu_that_does_not_tell_leaves_its_neighbours(function, code):
    answer, _ = ask([[(11, MIB)], [(12, MIB)]], {(function, 1): code})
    assert [row["pid"] for row in answer["rows"]] == [11]
    assert answer["gpu_errors"] == [{"gpu": 1, "error": nvml_probe.NVML_CODES[code]}]
    assert answer["error"] is None


@pytest.mark.parametrize("code", [4, 9, 12, 18, 999])
def test_nvml_as_a_whole(code):
    answer, _ = ask([[(11, MIB)]], {("nvmlInit_v2", None): code})
    assert answer["rows"] == []
    assert answer["error"]["type"] == nvml_probe.NVML_CODES[code]


def line(rows, **changes):
    reading = {"schema": 1, "boot_id": None, "instance_id": ME, "time": "2026-11-21T09:15:54Z"}
    reading.update({"gpu_errors": [], "error": None, **changes})
    return _node_processes.short(reading, rows)


def rows(count, **changes):
    return [
        {
            "gpu": 0,
            "pid": 4_000_000 + n,
            "used_mib": 1000 + n,
            "pod": f"5f0a1b2c-3d4e-4f5a-8b6c-{n:012x}",
            "container": f"{n:064x}",
            **changes,
        }
        for n in range(count)
    ]


def parse(text, hardware=T4):
    return _process_readings.parse(text, instance_id=ME, hardware=hardware)


@pytest.mark.parametrize(
    ("count", "told", "characters"), [(0, 0, 0), (1, 1, 64), (12, 12, 64), (20, 20, 13)]
)
def test_a_line_holds_all_of_them(count, told, characters):
    got = parse(line(rows(count)))
    assert (got["count"], got["truncated"], len(got["entries"])) == (count, False, told)
    assert got["used_mib"] == sum(1000 + n for n in range(count))
    assert {len(one["container_id"]) for one in got["entries"]} == ({characters} if told else set())


@pytest.mark.parametrize("count", [60, 200, 5000])
def test_more_than_a_line_holds_are_counted_and_the_largest_told(count):
    text = line(rows(count))
    assert len(text) < 2400
    got = parse(text)
    assert (got["count"], got["truncated"]) == (count, True)
    assert got["used_mib"] == sum(1000 + n for n in range(count))
    assert 35 <= len(got["entries"]) < 45
    used = [one["used_mib"] for one in got["entries"]]
    assert used == [999 + count - n for n in range(len(used))]


def test_unknown_sizes_come_last():
    got = parse(line([*rows(60, used_mib=None), *rows(1)]))
    assert (got["count"], got["truncated"], got["used_mib"]) == (61, True, 1000)
    assert [one["used_mib"] for one in got["entries"]][:2] == [1000, None]


def told(text, names=None, hardware=T4):
    return _process_readings.of_node(
        Outcome("Success", text), instance_id=ME, hardware=hardware, names=names or {}
    )


def test_names_only_of_the_pods_that_are_given():
    names = _process_readings.pod_names(
        [
            {"metadata": {"namespace": "ml", "name": "one", "uid": UID}},
            {
                "metadata": {
                    "namespace": "kube-system",
                    "name": "static",
                    "uid": "5f0a1b2c-0000-4f5a-8b6c-7d8e9f0a1b2c",
                    "annotations": {"kubernetes.io/config.hash": STATIC},
                }
            },
        ]
    )
    some = rows(4)
    for row, pod in zip(some, (UID, STATIC, None, "0" * 32), strict=True):
        row["pod"] = pod
    entries = {one["pod_uid"]: one["pod"] for one in told(line(some), names)["entries"]}
    assert entries == {UID: "ml/one", STATIC: "kube-system/static", None: None, "0" * 32: None}


def test_a_lost_gpu_is_told_beside_the_others_processes():
    got = told(line(rows(1), gpu_errors=[{"gpu": 2, "error": "GPU_IS_LOST"}]))
    assert len(got["entries"]) == 1
    assert got["error"]["type"] == "GPU_IS_LOST"
    assert "GPU 2" in got["error"]["message"]
    assert got["error"]["remedy"]


def test_nvml_that_does_not_answer_gives_no_zero():
    failed = nvml_probe.failure("TIMEOUT", 10, "the driver hangs")["error"]
    got = told(line([], error=failed))
    assert (got["count"], got["used_mib"], got["entries"]) == (None, None, [])
    assert got["error"]["type"] == "TIMEOUT"


def test_a_node_without_an_answer():
    outcome = Outcome("DeliveryTimedOut", message="SSM reports DeliveryTimedOut")
    got = _process_readings.of_node(outcome, instance_id=ME, hardware=T4, names={})
    assert got["error"] == outcome.error
    assert got["count"] is None


def changed(**changes):
    """The line of two processes, with other values in it or in its columns."""
    whole = json.loads(line(rows(2)))
    columns = changes.pop("columns", {})
    whole["processes"].update(columns)
    return json.dumps({**whole, **changes})


LOST = [{"gpu": 0, "error": "ALL_IS_WELL"}]
HOSTILE = {
    "no JSON": ("$(reboot)", "MALFORMED"),
    "truncated": (line(rows(12))[:900] + "\n---Output truncated---", "TRUNCATED"),
    "too long": ("x" * 2600, "MALFORMED"),
    "the memory's line": ('{"schema":1,"gpus":[]}', "MALFORMED"),
    "another node": (changed(instance_id="i-0aaaaaaaaaaaaaaaa"), "WRONG_INSTANCE"),
    "10^18 MiB": (changed(columns={"used_mib": 10**18}), "MALFORMED"),
    "more than the GPU has": (changed(columns={"used_mib": 20000}), "IMPLAUSIBLE"),
    "a pod of the shell": (changed(columns={"pod": "$(id)"}), "MALFORMED"),
    "a container of the shell": (changed(columns={"container": ";id"}), "MALFORMED"),
    "PID 0.5": (changed(columns={"pid": 0.5}), "MALFORMED"),
    "no PID": (changed(columns={"pid": None}), "MALFORMED"),
    "fewer counted than told": (changed(count=1), "MALFORMED"),
    "more counted than told": (changed(count=3), "MALFORMED"),
    "truncated without a cause": (changed(truncated=True), "MALFORMED"),
    "truncated is no flag": (changed(truncated="no"), "MALFORMED"),
    "rows": (changed(processes=[1]), "MALFORMED"),
    "a number of rows": (changed(columns={"count": 10**9}), "MALFORMED"),
    "an error of its own": (changed(gpu_errors=LOST), "MALFORMED"),
    "errors that are none": (changed(gpu_errors=["all"]), "MALFORMED"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_cannot_be_believed(case):
    text, kind = HOSTILE[case]
    with pytest.raises(_readings.Refused) as refused:
        parse(text)
    assert refused.value.type == kind
    got = told(text)
    assert got["error"]["type"] == kind
    assert got["error"]["remedy"]
    assert got["entries"] == []
