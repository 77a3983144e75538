"""Up, down and status for real, in two checkouts at once, and after a SIGKILL."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_helpers import eventually

from lab import LabError, build, lifecycle, processes

ROOT = Path(__file__).resolve().parents[3]


def door(checkout: Path, *arguments: str) -> subprocess.CompletedProcess:
    """python -m lab ... in that checkout."""
    return subprocess.run(
        [sys.executable, "-m", "lab", *arguments],
        cwd=checkout,
        capture_output=True,
        text=True,
        timeout=120,
    )


def records(checkout: Path) -> list[dict]:
    return list(processes.read_records(checkout / ".lab"))


def marked(checkout: Path) -> list[dict]:
    return lifecycle._marked(checkout / ".lab")


@pytest.fixture
def checkouts(tmp_path: Path) -> Iterator[list[Path]]:
    """Two checkouts with our lab in them."""
    try:
        build.binaries(), build.chart()
    except LabError as error:
        pytest.skip(str(error))
    made = [tmp_path / name for name in ("one", "two")]
    for checkout in made:
        for part in ("lab", "plugins"):
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / part, checkout / part, ignore=ignore)
        link = checkout / "collections" / "ansible_collections" / "gpushare" / "eks"
        link.parent.mkdir(parents=True)
        link.symlink_to("../../..")
    yield made
    for checkout in made:
        door(checkout, "down")


def exports(checkout: Path) -> dict[str, str]:
    """The environment after sourcing .lab/env in a shell that was set up for a real account."""
    poison = {
        "AWS_PROFILE": "production",
        "AWS_SESSION_TOKEN": "of-another-account",
        "AWS_ENDPOINT_URL_EKS": "https://eks.us-east-1.amazonaws.com",
        "PATH": os.environ["PATH"],
        "NO_PROXY": "internal.example",
    }
    answer = subprocess.run(
        ["sh", "-c", ". ./.lab/env && env"],
        cwd=checkout,
        env=poison,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split("=", 1) for line in answer.stdout.splitlines() if "=" in line)


def test_two_labs_side_by_side_one_killed_both_gone_without_a_trace(checkouts):
    one, two = checkouts
    for checkout in checkouts:
        up = door(checkout, "up")
        assert up.returncode == 0, up.stderr
        assert up.stdout.startswith("The lab is up at http://127.0.0.1:")
    assert "is up already" in door(one, "up").stdout

    first, second = exports(one), exports(two)
    assert first["AWS_ENDPOINT_URL"] != second["AWS_ENDPOINT_URL"]
    scratch = "MOLECULE_EPHEMERAL_DIRECTORY"
    assert first[scratch] != second[scratch]
    assert first["KUBECONFIG"] == str(one / ".lab" / "kubeconfig")
    assert first["NO_PROXY"] == "127.0.0.1,localhost,internal.example"
    assert Path(first["GPUSHARE_LAB_CHART"], "Chart.yaml").exists()
    assert not {"AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_EKS"} & first.keys()
    assert (one / ".lab" / "env").stat().st_mode & 0o077 == 0
    status = door(one, "status")
    assert status.returncode == 0
    assert "daemon" in status.stdout

    # A daemon that was killed: its notes stay, its processes do not, and down clears the rest.
    was = records(one)
    stray = subprocess.Popen(
        ["sleep", "600"], env={lifecycle.MARKER: str(one / ".lab")}, start_new_session=True
    )
    daemon = next(record for record in was if record["name"] == "daemon")
    os.kill(daemon["pid"], signal.SIGKILL)
    eventually(lambda: any(map(processes.alive, was)), False)
    status = door(one, "status")
    assert status.returncode == 1
    assert "does not answer" in status.stdout
    down = door(one, "down")
    assert down.returncode == 0, down.stderr
    assert stray.wait(5) == -signal.SIGKILL
    assert not (one / ".lab").exists()
    assert door(one, "down").stdout == "No lab runs here.\n"

    # The neighbour has not noticed, and goes as cleanly when asked.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{second['AWS_ENDPOINT_URL']}/_lab/health", timeout=5) as answer:
        assert answer.status == 200
    was = records(two)
    assert door(two, "down").returncode == 0
    assert not any(map(processes.alive, was))
    assert not (two / ".lab").exists()
    assert marked(one) == marked(two) == []


def test_a_daemon_that_cannot_start_is_an_error_with_its_log_and_leaves_no_process(checkouts):
    one, _ = checkouts
    (one / "lab" / "server.py").write_text("raise SystemExit('no room on the device')\n")
    up = door(one, "up")
    assert up.returncode == 1
    assert up.stderr.startswith("lab: the lab's daemon ended with code 1; its log is ")
    assert "no room on the device" in up.stderr
    assert "Traceback" not in up.stderr
    assert marked(one) == []
    assert not (one / ".lab" / "env").exists()


def test_a_note_about_a_stranger_does_no_harm(checkouts):
    one, _ = checkouts
    note = one / ".lab" / "run" / "daemon.json"
    note.parent.mkdir(parents=True)
    mine = {"name": "daemon", "pid": os.getpid(), "start_time": 1, "endpoint": "http://127.0.0.1:9"}
    note.write_text(json.dumps(mine))
    down = door(one, "down")
    assert (down.returncode, down.stdout) == (0, "The lab is gone (0 processes ended).\n")


def test_the_doors_refuse_without_a_lab(checkouts):
    one, _ = checkouts
    env = door(one, "env")
    assert (env.returncode, env.stdout) == (1, "")
    assert env.stderr.startswith("lab: no lab runs here; `python -m lab up`")
    assert door(one, "status").returncode == 1
