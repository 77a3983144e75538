"""A small Go program of ours, built once per version of its sources into the cache.

Needed by tests/unit/lab/test_plugin_configs.py, which has NVIDIA's own parser read what we make.
"""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
from pathlib import Path

from lab import LabError, build, cache_dir, toolchain
from lab.toolchain import Progress, say


def built(module: Path, progress: Progress = say) -> Path:
    """The program of the Go module in this folder. LabError when it cannot be built."""
    sources = sorted([*module.glob("*.go"), module / "go.mod", module / "go.sum"])
    key = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    program = cache_dir() / "go" / f"{module.name}-{key}"
    with toolchain.locked(program.with_name(f".{program.name}.lock"), module.name, progress):
        if program.exists():
            return program
        progress(f"{module.name}: building, once for this version")
        temporary = program.with_name(f".{program.name}.part")
        done = subprocess.run(
            [toolchain.go(progress), "build", "-trimpath", "-o", str(temporary), "."],
            cwd=module,
            env=build.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
            raise LabError(
                f"{module} does not build: {done.stderr.strip()[-800:]}\n"
                "its modules come from GOPROXY (`go env GOPROXY`); make it reachable"
            )
        temporary.rename(program)
    return program
