"""The lab's programs and NVIDIA's chart, built once per version into the cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from lab import LabError, cache_dir, processes, toolchain
from lab.toolchain import Progress, say

GO_MODULE = Path(__file__).parent / "go"
# Program -> Go package. etcd's main is its module's root, so Go calls the result `server`.
PROGRAMS = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
}
_BUILT_AS = {"etcd": "server"}
# Without its version the API server reports v0.0.0, and clients misbehave.
_VERSION = "k8s.io/component-base/version."
_LDFLAGS = f"-s -w -X {_VERSION}gitVersion=v1.36.3 -X {_VERSION}gitMajor=1 -X {_VERSION}gitMinor=36"

CHART_VERSION = "v0.19.1"
_CHART_MODULE = f"github.com/NVIDIA/k8s-device-plugin@{CHART_VERSION}"
_CHART_SUM = "h1:JD3tbmFHCgAwu7+tw7A0PdQ75MYWvL+frgGkv7N5Nqo="
_CHART_PATH = "deployments/helm/nvidia-device-plugin"
_SAY_EVERY = 10.0


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


def chart() -> Path:
    """The folder of NVIDIA's chart; LabError when it was not fetched yet."""
    folder = cache_dir() / "chart" / CHART_VERSION / "nvidia-device-plugin"
    if not (folder / "Chart.yaml").exists():
        raise LabError(f"{folder} is missing; `python -m lab build` fetches NVIDIA's chart")
    return folder


def ensure(progress: Progress = say) -> None:
    """Build and fetch what the cache lacks; a killed build leaves nothing half-made."""
    with contextlib.suppress(LabError):
        binaries(), chart()
        return
    base = cache_dir()
    with toolchain.locked(base / "bin" / f".{key()}.lock", "building the lab", progress):
        _ensure_binaries(base / "bin" / key(), progress)
        _ensure_chart(base / "chart" / CHART_VERSION, progress)


def _ensure_binaries(folder: Path, progress: Progress) -> None:
    with contextlib.suppress(LabError):
        binaries()
        return
    go = toolchain.go(progress)
    temporary = folder.with_name(f".{folder.name}.part")
    # Under the lock nobody else builds here: what lies there comes from a killed build.
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    began = time.monotonic()
    packages = list(PROGRAMS.values())
    progress("lab programs: fetching Go modules (0.7 GB the first time)")
    total = sum(1 for _ in _run([go, "list", "-deps", *packages], "fetching modules", progress))
    progress(f"lab programs: building {', '.join(PROGRAMS)} ({total} packages)")
    command = [go, "build", "-v", "-trimpath", "-ldflags", _LDFLAGS, "-o", f"{temporary}/"]
    said = time.monotonic()
    for done, _ in enumerate(_run([*command, *packages], "building", progress), 1):
        if time.monotonic() - said >= _SAY_EVERY:
            said = time.monotonic()
            progress(f"lab programs: {done} of {total} packages, {said - began:.0f} s")
    for name, built_as in _BUILT_AS.items():
        (temporary / built_as).rename(temporary / name)
    shutil.rmtree(folder, ignore_errors=True)
    temporary.rename(folder)
    progress(f"lab programs: built in {time.monotonic() - began:.0f} s")


def _ensure_chart(folder: Path, progress: Progress) -> None:
    with contextlib.suppress(LabError):
        chart()
        return
    go = toolchain.go(progress)
    progress(f"NVIDIA's chart: fetching {_CHART_MODULE}")
    with tempfile.TemporaryDirectory(dir=cache_dir()) as outside_any_module:
        answer = subprocess.run(
            [go, "mod", "download", "-json", _CHART_MODULE],
            cwd=outside_any_module,
            env=environment(),
            capture_output=True,
            text=True,
        )
    try:
        fetched = json.loads(answer.stdout)
    except ValueError:
        fetched = {"Error": answer.stderr.strip()}
    if fetched.get("Error"):
        raise LabError(
            f"cannot fetch {_CHART_MODULE}: {fetched['Error']}\n"
            "`go env GOPROXY` says from where; make it reachable and run the same again"
        )
    if fetched["Sum"] != _CHART_SUM:
        raise LabError(
            f"{_CHART_MODULE} has the checksum {fetched['Sum']}, not {_CHART_SUM}: it was changed "
            "on the way; ask the module proxy's owner"
        )
    temporary = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    # Go keeps its modules read-only; a cache must be removable.
    shutil.copytree(
        Path(fetched["Dir"]) / _CHART_PATH,
        temporary / "nvidia-device-plugin",
        copy_function=shutil.copyfile,
    )
    for path in (temporary, *temporary.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    shutil.rmtree(folder, ignore_errors=True)
    temporary.rename(folder)


def environment() -> dict[str, str]:
    """The caller's environment (proxies, Go's own settings) without what would change the build."""
    return {
        **os.environ,
        "GOFLAGS": "-buildvcs=false -mod=readonly",
        "GOWORK": "off",
        "GOTOOLCHAIN": "local",
        "CGO_ENABLED": "0",
    }


def _run(command: list[str], what: str, progress: Progress) -> Iterator[str]:
    """The lines a Go command prints; says that it is alive when it prints none for a while."""
    child = subprocess.Popen(
        # A Go that outlived its killed builder would write where the next one builds.
        processes.bound(command),
        cwd=GO_MODULE,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert child.stdout is not None
    lines: queue.Queue[str | None] = queue.Queue()

    def pump() -> None:
        for line in child.stdout or ():
            lines.put(line.rstrip("\n"))
        lines.put(None)

    threading.Thread(target=pump, daemon=True).start()
    began, last = time.monotonic(), []
    try:
        while True:
            try:
                line = lines.get(timeout=2 * _SAY_EVERY)
            except queue.Empty:
                progress(f"lab programs: {what}, {time.monotonic() - began:.0f} s")
                continue
            if line is None:
                break
            last = [*last[-19:], line]
            if not line.startswith("go: downloading"):
                yield line
        if child.wait():
            raise LabError(
                f"`{' '.join(command[:2])}` failed with code {child.returncode}:\n"
                + "\n".join(last)
                + "\nits modules come from GOPROXY (`go env GOPROXY`); run the same again"
            )
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
