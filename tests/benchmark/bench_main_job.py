"""The main job from a fresh clone: wall time of `make demo`, a second site.yml, the lab's size.

Warm means binaries and wheels cached and no virtual environment; with GPUSHARE_BENCH_COLD=1 a
second demo runs in an empty HOME, where everything is downloaded and compiled.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import _bench

ROOT = Path(__file__).resolve().parents[2]
COUNTING = ROOT / "tests" / "integration" / "support" / "counting_python.sh"


def _clean_environment(home: Path | None = None) -> dict[str, str]:
    """Without the lab that `make bench` itself stands in; with ``home``, without any cache."""
    ours = ("AWS_", "KUBECONFIG", "GPUSHARE_LAB", "GPUSHARE_CACHE", "VIRTUAL_ENV")
    env = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    if home is not None:
        caches = ("XDG_", "GOPATH", "GOMODCACHE", "GOCACHE", "UV_CACHE_DIR", "PIP_CACHE_DIR")
        env = {k: v for k, v in env.items() if not k.startswith(caches)}
        env["HOME"] = str(home)
    return env


def _demo(clone: Path, env: dict[str, str]) -> float:
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    began = time.monotonic()
    subprocess.run(["make", "demo"], cwd=clone, env=env, check=True)
    return time.monotonic() - began


def _second_run(clone: Path, env: dict[str, str]) -> tuple[int, int, float]:
    """(changed, module processes, seconds) of a site.yml on the built cluster."""
    count = clone / "count"
    count.touch()
    script = (
        ". ./.lab/env && exec ansible-playbook site.yml "
        "-e sample_app_replicas=5 -e sample_app_wait=false "
        f"-e ansible_python_interpreter={COUNTING}"
    )
    began = time.monotonic()
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=clone,
        env={
            **env,
            "GPUSHARE_COUNT_FILE": str(count),
            "GPUSHARE_REAL_PYTHON": str(clone / ".venv" / "bin" / "python"),
            "ANSIBLE_NOCOLOR": "1",
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds = time.monotonic() - began
    changed = int(re.search(r"changed=(\d+)", done.stdout.rpartition("PLAY RECAP")[2])[1])
    return changed, len(count.read_text().splitlines()), seconds


def _status(clone: Path, env: dict[str, str]) -> dict:
    shown = subprocess.run(
        [".venv/bin/python", "-m", "lab", "status", "--json"],
        cwd=clone,
        env=env,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(shown.stdout)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="gpushare-bench-") as tmp:
        clone, env = Path(tmp) / "warm", _clean_environment()
        try:
            _bench.record("demo_warm", _demo(clone, env), "s", at_most=180)
            changed, processes, seconds = _second_run(clone, env)
            _bench.record("second_site_changed", changed, "tasks", at_most=0)
            _bench.record("second_site_module_processes", processes, "processes", at_most=60)
            _bench.record("second_site_wall", seconds, "s", at_most=50)
            _bench.record("lab_resident", _status(clone, env)["rss_mib"], "MiB", at_most=1536)
        finally:
            subprocess.run(["make", "lab-stop"], cwd=clone, env=env, check=False)
        if os.environ.get("GPUSHARE_BENCH_COLD"):
            clone, home = Path(tmp) / "cold", Path(tmp) / "home"
            home.mkdir()
            env = _clean_environment(home)
            try:
                _bench.record("demo_cold", _demo(clone, env), "s", at_most=720)
            finally:
                subprocess.run(["make", "lab-stop"], cwd=clone, env=env, check=False)
                # The Go module cache is read-only, which a plain removal of the folder trips over.
                subprocess.run(["chmod", "-R", "u+w", str(home)], check=False)


if __name__ == "__main__":
    main()
