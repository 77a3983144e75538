"""NVML for the lab's nodes: our libnvidia-ml.so.1 and the GPU models; nodes.py has their state."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path

from moto.ec2.models.instance_types import INSTANCE_TYPES

SOURCE = Path(__file__).with_name("nvml.c")
LIBRARY = "libnvidia-ml.so.1"
# The driver branch of the EKS AMIs of late 2026; R580 is CUDA 13.0.
DRIVER, CUDA = "580.105.08", 13000
NAMESPACE = uuid.UUID("6f1b2a44-6c0f-5b1e-9f0e-6c61622d6770")


class NvmlBuildError(Exception):
    """The library could not be built; the message holds the compiler's own words."""


@dataclass(frozen=True)
class Model:
    """One GPU model as nvidia-smi shows it; `mig` and `ecc` are `-` (no such thing), 0 or 1."""

    name: str
    total_mib: int
    reserved_mib: int
    capability: str
    mig: str = "-"
    ecc: str = "1"


# EC2's name and size in MiB -> NVML's figures. Totals: `nvidia-smi` on each type (aws-cli #8970,
# NVIDIA's vGPU and MIG guides). Reserves: R580 keeps about 450 MiB on a T4 (KAI-Scheduler #2212),
# more on larger GPUs; always below the 3 % that the collection's catalog sets aside.
_MODELS = {
    ("T4", 16384): Model("Tesla T4", 15360, 450, "7.5"),
    ("T4g", 16384): Model("NVIDIA T4G", 15360, 450, "7.5"),
    ("V100", 32768): Model("Tesla V100-SXM2-32GB", 32768, 490, "7.0"),
    ("A10G", 22888): Model("NVIDIA A10G", 23028, 512, "8.6"),
    ("L4", 22888): Model("NVIDIA L4", 23034, 469, "8.9"),
    ("L40S", 45776): Model("NVIDIA L40S", 46068, 598, "8.9"),
    ("A100", 40960): Model("NVIDIA A100-SXM4-40GB", 40960, 569, "8.0", mig="0"),
    ("A100", 81920): Model("NVIDIA A100-SXM4-80GB", 81920, 634, "8.0", mig="0"),
    ("H100", 81920): Model("NVIDIA H100 80GB HBM3", 81559, 548, "9.0", mig="0"),
    ("H200", 144384): Model("NVIDIA H200", 143771, 628, "9.0", mig="0"),
    ("B200", 183359): Model("NVIDIA B200", 183359, 740, "10.0", mig="0"),
    ("RTX PRO Server 6000", 98304): Model(
        "NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, 638, "12.0", mig="0"
    ),
}


def build(cc: list[str] | None = None, out_dir: Path | None = None) -> Path:
    """The library's path; compiled once for each version of its source and each compiler.

    `cc` is a compiler command (default: the lab's toolchain), `out_dir` the cache that keeps it.
    """
    cc = cc or _compiler()
    key = hashlib.sha256(SOURCE.read_bytes() + " ".join(cc).encode()).hexdigest()[:12]
    folder = (out_dir or _cache() / "nvml") / key
    target = folder / LIBRARY
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    # A name of our own and a rename: a killed build leaves nothing half-made.
    descriptor, temporary = tempfile.mkstemp(dir=folder, suffix=".so")
    os.close(descriptor)
    command = [*cc, "-shared", "-fPIC", "-O2", "-std=gnu11", "-o", temporary, str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        Path(temporary).unlink(missing_ok=True)
        raise NvmlBuildError(f"{' '.join(cc)} could not build {SOURCE.name}: {done.stderr.strip()}")
    Path(temporary).chmod(0o755)
    Path(temporary).replace(target)
    return target


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("GPUSHARE_CACHE") or Path(home) / "gpushare-eks")


def _compiler() -> list[str]:
    try:
        from lab import toolchain
    except ImportError:
        found = shutil.which("gcc") or shutil.which("cc")
        if not found:
            raise NvmlBuildError("no C compiler: install gcc, or ziglang from PyPI") from None
        return [found]
    return toolchain.c_compiler()


def gpus(instance_type: str) -> list[Model]:
    """The GPUs of an EC2 instance type, by EC2's own DescribeInstanceTypes; empty without any."""
    found: list[Model] = []
    for gpu in INSTANCE_TYPES.get(instance_type, {}).get("GpuInfo", {}).get("Gpus", []):
        model = _MODELS.get((gpu["Name"], gpu["MemoryInfo"]["SizeInMiB"]))
        if model is None:
            raise KeyError(
                f"{instance_type} has a {gpu['Name']}, whose NVML figures lab/nvml does not know"
            )
        found += [model] * gpu["Count"]
    return found


def gpu_uuid(instance_id: str, index: int) -> str:
    """The UUID of one GPU, the same for the life of the instance."""
    return f"GPU-{uuid.uuid5(NAMESPACE, f'{instance_id}/gpu/{index}')}"
