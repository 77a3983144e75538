"""Runs playbooks as a user does, and reads what came of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
COUNTING_PYTHON = Path(__file__).with_name("counting_python.sh")
RECAP = re.compile(
    r"^(?P<host>\S+)\s+: ok=(?P<ok>\d+)\s+changed=(?P<changed>\d+)\s+"
    r"unreachable=(?P<unreachable>\d+)\s+failed=(?P<failed>\d+)\s+skipped=(?P<skipped>\d+)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Run:
    """One playbook run: exit status, text, recap counts, module processes and wall time."""

    rc: int
    output: str
    recap: dict[str, int]
    module_processes: int
    seconds: float

    def __str__(self) -> str:
        return self.output


def arguments(playbook: str, *more: str, extra_vars: dict | None = None) -> list[str]:
    """The command line of a run of ``playbook``."""
    line = [str(Path(sys.executable).with_name("ansible-playbook")), playbook, *more]
    for name, value in (extra_vars or {}).items():
        line += ["-e", f"{name}={value}"]
    return line


def run(
    playbook: str,
    *more: str,
    extra_vars: dict | None = None,
    env: dict[str, str] | None = None,
    timeout: float = 600,
    tmp: Path | None = None,
) -> Run:
    """Runs ``playbook`` to its end; with ``tmp`` its module processes are counted exactly."""
    environ = {**os.environ, "ANSIBLE_NOCOLOR": "1", **(env or {})}
    variables = dict(extra_vars or {})
    count_file = None
    if tmp is not None:
        count_file = tmp / f"count-{time.monotonic_ns()}"
        count_file.touch()
        environ["GPUSHARE_COUNT_FILE"] = str(count_file)
        environ["GPUSHARE_REAL_PYTHON"] = sys.executable
        variables["ansible_python_interpreter"] = str(COUNTING_PYTHON)
    began = time.monotonic()
    done = subprocess.run(
        arguments(playbook, *more, extra_vars=variables),
        cwd=ROOT,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    recap = RECAP.search(done.stdout)
    return Run(
        rc=done.returncode,
        output=done.stdout,
        recap={k: int(v) for k, v in recap.groupdict().items() if k != "host"} if recap else {},
        module_processes=len(count_file.read_text().splitlines()) if count_file else -1,
        seconds=time.monotonic() - began,
    )
