"""What a program on a node finds of its machine, whether Run Command or a pod starts it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab import nvml
from lab.lifecycle import MARKER
from lab.nvidia import GPU
from lab.nvml import nodes

# What NVIDIA's device plugin injects a GPU for.
_PLUGIN = {GPU, f"{GPU}.shared"}


class Machines:
    """The folders of all instances below `state_dir`; `library` is our libnvidia-ml.so.1."""

    def __init__(self, state_dir: Path, library: Path) -> None:
        self._state_dir, self._library = state_dir, library
        self._bin = state_dir / "bin"
        self._bin.mkdir(parents=True, exist_ok=True)
        # The interpreter itself: what `python3` is on this machine's PATH may be a dead shim.
        for name in ("python3", "python"):
            link = self._bin / name
            if not link.exists():
                link.unlink(missing_ok=True)
                link.symlink_to(Path(sys.executable).resolve())
        # An empty file, not none: the loader must not go on to find this machine's own.
        self._no_library = state_dir / "no-library"
        self._no_library.mkdir(exist_ok=True)
        (self._no_library / nvml.LIBRARY).touch()

    def base(self) -> dict[str, str]:
        """What every program gets, and nothing of the daemon's."""
        return {"LANG": "C.UTF-8", "PATH": f"{self._bin}:/usr/local/bin:/usr/bin:/bin"}

    def environment(self, instance_id: str, instance_type: str) -> dict[str, str]:
        """base(), and the files by which the machine itself is known, written anew."""
        folder = self._state_dir / instance_id
        folder.mkdir(exist_ok=True)
        nodes.write(folder, instance_type, instance_id, self._library)
        return {
            **self.base(),
            "GPUSHARE_BOOT_ID_FILE": str(folder / nodes.BOOT_ID_FILE),
            "GPUSHARE_PROC_ROOT": str(folder / nodes.PROC),
            "LAB_NVML_STATE": str(folder / nodes.STATE_FILE),
            "LD_LIBRARY_PATH": str(folder / "lib"),
        }

    def container(
        self, instance_id: str, instance_type: str, spec: Mapping[str, Any], home: Path
    ) -> dict[str, str]:
        """environment() as a pod's container on the node has it: NVML only if it asks for it.

        It asks by a resource of NVIDIA's plugin, which names the GPU, or by the variable itself.
        """
        env = self.environment(instance_id, instance_type)
        env |= {
            "HOME": str(home),
            "TMPDIR": str(home),
            # The metadata service of the machine underneath is none of a pod's business.
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9",
        }
        limits = (spec.get("resources") or {}).get("limits") or {}
        if _PLUGIN & set(limits) and len(nvml.gpus(instance_type)) == 1:
            # Of several GPUs nobody here knows which ones the plugin would choose: none.
            env["NVIDIA_VISIBLE_DEVICES"] = nvml.gpu_uuid(instance_id, 0)
        own = {entry["name"]: entry.get("value", "") for entry in spec.get("env") or []}
        given = {**env, **own}
        wanted = given.get("NVIDIA_VISIBLE_DEVICES", "") not in ("", "void", "none")
        able = given.get("NVIDIA_DRIVER_CAPABILITIES") or "compute,utility"
        if wanted and {"utility", "all"} & set(able.split(",")):
            env["GPUSHARE_NVML_LIBRARY"] = str(Path(env["LD_LIBRARY_PATH"], nvml.LIBRARY))
        else:
            # NVIDIA's runtime leaves a container without it.
            env["LD_LIBRARY_PATH"] = str(self._no_library)
        if MARKER in os.environ:
            # By this mark `lab down` finds what a killed daemon leaves behind.
            env[MARKER] = os.environ[MARKER]
        return env
