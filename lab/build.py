"""The lab's programs and NVIDIA's chart, built once per version into the cache."""

from __future__ import annotations

import hashlib
from pathlib import Path

from lab import LabError, cache_dir

GO_MODULE = Path(__file__).parent / "go"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")


def key() -> str:
    """The cache key of the programs: the same go.mod and go.sum give the same binaries."""
    content = (GO_MODULE / "go.mod").read_bytes() + (GO_MODULE / "go.sum").read_bytes()
    return hashlib.sha256(content).hexdigest()[:16]


def binaries() -> Path:
    """The folder of the built programs; LabError when they are not built yet."""
    folder = cache_dir() / "bin" / key()
    missing = [name for name in PROGRAMS if not (folder / name).exists()]
    if missing:
        raise LabError(
            f"{folder} lacks {', '.join(missing)}; `python -m lab build` builds them (minutes)"
        )
    return folder
