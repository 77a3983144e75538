"""A Go program of ours: built once per version of its sources, and an error that helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import LabError, goprogram, toolchain


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module, and in place of Go a script that notes that it was called."""
    monkeypatch.setenv("GPUSHARE_CACHE", str(tmp_path / "cache"))
    go = tmp_path / "go"
    go.write_text(f'#!/bin/sh\n[ ! -e fails ] || {{ echo "no such module" >&2; exit 1; }}\n'
                  f'echo once >> {tmp_path}/calls\necho "$4" > "$4"\n')  # fmt: skip
    go.chmod(0o755)
    monkeypatch.setattr(toolchain, "go", lambda _progress: str(go))
    made = tmp_path / "program"
    made.mkdir()
    for name in ("go.mod", "go.sum", "main.go"):
        (made / name).write_text(name)
    return made


def test_built_once_for_each_version(module: Path, tmp_path: Path) -> None:
    first = goprogram.built(module, print)
    assert goprogram.built(module, print) == first
    assert (tmp_path / "calls").read_text() == "once\n"
    assert first.read_text().strip().endswith(".part"), "it gets its name when it is whole"
    (module / "main.go").write_text("changed")
    assert goprogram.built(module, print) != first
    assert (tmp_path / "calls").read_text() == "once\nonce\n"


def test_a_build_that_fails_says_what_to_do(module: Path) -> None:
    (module / "fails").touch()
    with pytest.raises(LabError, match=r"(?s)no such module.*GOPROXY"):
        goprogram.built(module, print)
    (module / "fails").unlink()
    assert goprogram.built(module, print).exists()
