# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Print which processes use this node's GPU memory, and whose pods they are, as one line of JSON.

Runs ON the node as root (Python 3.9, standard library only), behind nvml_probe and _node_probe in
one script: NVML tells PIDs of the host, and /proc/<pid>/cgroup whose they are.
"""

from __future__ import annotations

import ctypes
import os
import re

from ansible_collections.gpushare.eks.plugins.module_utils._node_probe import (
    head,
    instance_id,
    read_in_child,
    say,
)
from ansible_collections.gpushare.eks.plugins.module_utils.nvml_probe import (
    LINE_LIMIT_BYTES,
    MIB,
    MOST_ROWS,
    NvmlError,
    each_gpu,
    pack,
    to_line,
)

SHORT_ID = 13  # characters of a container's ID, as `crictl ps` shows it
# A UID, which the systemd driver writes with _ for -; a static pod's is a hash of its manifest.
_UID = r"[0-9a-f]{8}(?:[_-][0-9a-f]{4}){3}[_-][0-9a-f]{12}"
_POD = re.compile(r"kubepods.*?[/-]pod(" + _UID + r"|[0-9a-f]{32})(?![0-9a-f])")
_CONTAINER = re.compile(r"[/:-]([0-9a-f]{64})(?![0-9a-f])")


class ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_t of nvmlDeviceGetComputeRunningProcesses_v3; memory in bytes."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


def of_gpu(nvml, index, handle):
    """The processes of one GPU as rows; `used_mib` is null where NVML cannot tell it."""
    room = 256
    while True:
        infos, count = (ProcessInfo * room)(), ctypes.c_uint(room)
        try:
            name = "nvmlDeviceGetComputeRunningProcesses_v3"
            nvml.call(name, handle, ctypes.byref(count), infos)
        except NvmlError as exc:
            if exc.code != 7 or room > 65536:
                raise
            room *= 4  # INSUFFICIENT_SIZE
            continue
        rows = []
        for info in infos[: count.value]:
            known = info.used != 2**64 - 1  # NVML_VALUE_NOT_AVAILABLE
            used = -(-info.used // MIB) if known else None
            rows.append({"gpu": index, "pid": info.pid, "used_mib": used})
        return rows


def read_processes(**how):
    """Ask NVML in this process -> {"rows", "gpu_errors", "error"}; raises nothing NVML-made."""
    answer = {"rows": [], "gpu_errors": [], "error": None}

    def one(nvml, index):
        handle = ctypes.c_void_p()
        try:
            number = ctypes.c_uint(index)
            nvml.call("nvmlDeviceGetHandleByIndex_v2", number, ctypes.byref(handle))
            answer["rows"] += of_gpu(nvml, index, handle)
        except NvmlError as exc:
            answer["gpu_errors"].append({"gpu": index, "error": exc.type})

    answer["error"] = each_gpu(one, **how)["error"]
    return answer


def owner(cgroup):
    """(pod UID, container ID) in the text of /proc/<pid>/cgroup; (None, None) outside of pods."""
    pod = _POD.search(cgroup)
    if pod is None:
        return None, None
    container = _CONTAINER.search(cgroup, pod.end())
    return pod.group(1).replace("_", "-"), container.group(1) if container else None


def owner_of(pid):
    """The same by PID; a process that has ended meanwhile has no owner."""
    root = os.environ.get("GPUSHARE_PROC_ROOT") or "/proc"
    try:
        with open(f"{root}/{pid}/cgroup", encoding="utf-8", errors="replace") as handle:
            return owner(handle.read(65536))
    except OSError:
        return None, None


def short(reading, rows):
    """One line with as many of the rows, largest first, as Run Command hands on."""
    rows = sorted(rows, key=lambda row: (-(row["used_mib"] or 0), row["gpu"], row["pid"]))
    used = sum(row["used_mib"] or 0 for row in rows)
    whole = dict(reading, count=len(rows), used_mib=used)
    for most, cut in ((len(rows), None), *((most, SHORT_ID) for most in range(len(rows), -1, -1))):
        if most > MOST_ROWS:
            continue
        kept = [dict(row, container=(row["container"] or "")[:cut] or None) for row in rows[:most]]
        whole.update(processes=pack(kept) if kept else [], truncated=most < len(rows))
        line = to_line(whole)
        if len(line) < LINE_LIMIT_BYTES:
            break
    return line


def main_processes():
    """What the document runs."""
    say(lambda: _line(read_in_child(read_processes, 10.0)))


def _line(answer):
    failed, found = answer
    found = found or {"rows": [], "gpu_errors": [], "error": failed["error"]}
    reading = dict(head(instance_id), gpu_errors=found["gpu_errors"], error=found["error"])
    rows = []
    for row in found["rows"]:
        pod, container = owner_of(row["pid"])
        rows.append(dict(row, pod=pod, container=container))
    return short(reading, rows)
