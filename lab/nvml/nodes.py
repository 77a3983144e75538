"""What becomes of each instance's GPUs: faults, figures and boots, and the files that tell of them.

The files of an instance lie in one folder, which `machine.py` gives to every program on the node:
`nvml` (read by nvml.c, its format stands there), `boot-id`, `proc/<pid>/cgroup` of processes that
belong to pods, and `lib/libnvidia-ml.so.1`. Whatever
changes here is written to the files at once, so that a program which runs already sees it.
"""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab import nvml
from lab.processes import write_atomically

BOOT_ID_FILE, STATE_FILE, PROC = "boot-id", "nvml", "proc"
_GPU_KEYS = {"total_mib", "reserved_mib", "used_mib", "mig", "slices", "processes", "missing"}
_SLICE_KEYS = {"name", "total_mib", "reserved_mib", "used_mib"}

_faults: dict[str, list[str]] = {}
_absent: set[str] = set()
_figures: dict[str, dict[str, Any]] = {}
_boots: dict[str, int] = {}
# Instance -> (its folder, its type, the real library): who was written once is written again.
_written: dict[str, tuple[Path, str, Path]] = {}
_lock = threading.RLock()


# -- files --------------------------------------------------------------------------------------


def write(folder: Path, instance_type: str, instance_id: str, library: Path) -> None:
    """Write all files of an instance, each whole: a reader sees the old or the new one."""
    with _lock:
        _written[instance_id] = (folder, instance_type, library)
        write_atomically(folder / STATE_FILE, state_text(instance_type, instance_id))
        write_atomically(folder / BOOT_ID_FILE, boot_id(instance_id) + "\n")
        _write_owners(folder / PROC, _figures.get(instance_id, {}).get("gpus", {}))
        link = folder / "lib" / nvml.LIBRARY
        link.parent.mkdir(exist_ok=True)
        if instance_id in _absent or not nvml.gpus(instance_type):
            # An empty file, not none: the loader must not go on to find this machine's own.
            library = folder / "lib" / "none"
            library.touch()
        temporary = link.with_name(f".{nvml.LIBRARY}.{threading.get_ident()}")
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(library)
        os.replace(temporary, link)


def _write_owners(proc: Path, gpus: Mapping[str, Any]) -> None:
    """The cgroups of the processes that belong to pods, as the kubelet names them."""
    shutil.rmtree(proc, ignore_errors=True)
    for gpu in gpus.values():
        for each in gpu.get("processes", []):
            if each.get("pod"):
                home = proc / str(each["pid"])
                home.mkdir(parents=True)
                container = f"{each['pid']:064x}"
                text = f"0::/kubepods/burstable/pod{each['pod']}/{container}\n"
                (home / "cgroup").write_text(text)


def _rewrite(instance_id: str) -> None:
    if instance_id in _written:
        folder, instance_type, library = _written[instance_id]
        write(folder, instance_type, instance_id, library)


def state_text(instance_type: str, instance_id: str) -> str:
    """The state file of one instance."""
    figures = _figures.get(instance_id, {})
    lines = [
        f"driver {figures.get('driver') or nvml.DRIVER}",
        f"cuda {figures.get('cuda') or nvml.CUDA}",
    ]
    given = figures.get("gpus", {})
    more: list[str] = []
    number = 0
    for index, model in enumerate(nvml.gpus(instance_type)):
        gpu = {**given.get("*", {}), **given.get(str(index), {})}
        if gpu.get("missing"):
            continue
        mig = model.mig if gpu.get("mig") is None else str(int(gpu["mig"]))
        lines.append(
            f"gpu {nvml.gpu_uuid(instance_id, index)} {gpu.get('total_mib', model.total_mib)}"
            f" {gpu.get('reserved_mib', model.reserved_mib)} {gpu.get('used_mib', 0)}"
            f" {model.capability} {mig} {model.ecc} {model.name}"
        )
        for place, part in enumerate(gpu.get("slices", [])):
            name = uuid.uuid5(nvml.NAMESPACE, f"{instance_id}/gpu/{index}/slice/{place}")
            more.append(
                f"slice {number} MIG-{name} {part['total_mib']} {part.get('reserved_mib', 0)}"
                f" {part.get('used_mib', 0)} {part.get('name', 'MIG')}"
            )
        for each in gpu.get("processes", []):
            more.append(f"process {number} {each['pid']} {each['used_mib']}")
        number += 1
    lines += more
    lines += [f"fault {fault}" for fault in _faults.get(instance_id, ())]
    return "\n".join(lines) + "\n"


# -- faults -------------------------------------------------------------------------------------


def set_fault(
    instance_id: str,
    *,
    function: str = "*",
    device: int | str = "*",
    code: int | None = None,
    hang: int | None = None,
    absent: bool = False,
) -> None:
    """From the next call on: NVML code `code`, `hang` seconds of silence, or no library at all."""
    with _lock:
        if absent:
            _absent.add(instance_id)
        elif (code is None) == (hang is None):
            raise ValueError("a fault is either a code or a number of seconds to hang")
        else:
            what = str(code) if hang is None else f"hang {hang}"
            _faults.setdefault(instance_id, []).append(f"{function} {device} {what}")
        _rewrite(instance_id)


def clear_fault(instance_id: str) -> None:
    """The instance's NVML is healthy again; figures stay."""
    with _lock:
        _faults.pop(instance_id, None)
        _absent.discard(instance_id)
        _rewrite(instance_id)


def faults(instance_id: str) -> list[str]:
    """The instance's faults, as lines of the state file without the word `fault`."""
    with _lock:
        return list(_faults.get(instance_id, ()))


def is_absent(instance_id: str) -> bool:
    """Whether the instance is to have no NVML library."""
    with _lock:
        return instance_id in _absent


def is_usual(instance_id: str) -> bool:
    """Whether NVML answers as on every other instance of the type."""
    with _lock:
        return not (_faults.get(instance_id) or _figures.get(instance_id) or instance_id in _absent)


# -- figures ------------------------------------------------------------------------------------


def set_figures(instance_id: str, given: Mapping[str, Any] | None) -> None:
    """Other figures than the type's own, all at once; None: the type's own again.

    {"driver": "..", "cuda": 13000, "gpus": {"0" or "*": {total_mib, reserved_mib, used_mib, mig:
    bool, slices: [{name, total_mib, reserved_mib, used_mib}], processes: [{pid, used_mib, pod (its
    UID, may be absent)}], missing: bool}}}; what is not given stays the type's. `missing`: the GPU
    fell off the bus.
    """
    if given is not None:
        _check(given, {"driver", "cuda", "gpus"}, "figures")
        for index, gpu in given.get("gpus", {}).items():
            where = f"figures.gpus.{index}"
            if index != "*" and not index.isdigit():
                raise ValueError(f"{where}: a GPU's index or *")
            _check(gpu, _GPU_KEYS, where)
            for part in gpu.get("slices", []):
                _check(part, _SLICE_KEYS, f"{where}.slices", ("total_mib",))
            for each in gpu.get("processes", []):
                _check(each, {"pid", "used_mib", "pod"}, f"{where}.processes", ("pid", "used_mib"))
    with _lock:
        if given is None:
            _figures.pop(instance_id, None)
        else:
            _figures[instance_id] = dict(given)
        _rewrite(instance_id)


def _check(given: Any, known: set[str], where: str, needed: tuple[str, ...] = ()) -> None:
    if not isinstance(given, Mapping) or set(given) - known or set(needed) - set(given):
        raise ValueError(f"{where}: an object with {', '.join(sorted(known))}, not {given!r}")
    for key, value in given.items():
        if key in ("pid", "cuda") or key.endswith("_mib"):
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"{where}.{key}: a number of 0 or more, not {value!r}")
        elif key in ("name", "driver", "pod") and not isinstance(value, str):
            raise ValueError(f"{where}.{key}: a text, not {value!r}")


def figures(instance_id: str) -> dict[str, Any] | None:
    """What set_figures took."""
    with _lock:
        return _figures.get(instance_id)


# -- boots --------------------------------------------------------------------------------------


def boot_id(instance_id: str) -> str:
    """The boot ID that the instance's kernel tells."""
    boots = _boots.get(instance_id, 0)
    return str(uuid.uuid5(nvml.NAMESPACE, f"{instance_id}/boot" + (f"/{boots}" if boots else "")))


def reboot(instance_id: str) -> str:
    """A new boot of the instance; its boot ID."""
    with _lock:
        _boots[instance_id] = _boots.get(instance_id, 0) + 1
        _rewrite(instance_id)
        return boot_id(instance_id)
