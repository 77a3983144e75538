# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who runs a playbook: a process of a machine, and whether that process is still there."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROC = Path("/proc")
# The extra variables in which AWX and its ancestor tell a job its number.
JOB_VARIABLES = ("awx_job_id", "tower_job_id")


def owner(pid: int, variables: Mapping[str, Any], proc: Path = PROC) -> dict[str, str]:
    """{"id", "who", "job"} of the run whose ansible-playbook is process `pid` of this machine.

    id: "MACHINE/PID/START". It is another one for every run: a process ID that is used again has
    another start.
    """
    job = next((str(variables[name]) for name in JOB_VARIABLES if variables.get(name)), "")
    start = _start(pid, proc) or "unknown"
    return {
        "id": f"{_machine(proc)}/{pid}/{start}",
        "who": f"{_user()}@{socket.gethostname()}, process {pid}",
        "job": job,
    }


def ended(owner_id: str, proc: Path = PROC) -> bool:
    """Whether that run is certain to have ended: it ran on this machine, and its process is gone.

    False of another machine, or another container of this one: they cannot be looked into.
    """
    machine, _slash, rest = owner_id.rpartition("/")[0].rpartition("/")
    start = owner_id.rpartition("/")[2]
    if machine != _machine(proc) or start == "unknown" or not rest.isdigit():
        return False
    return _start(int(rest), proc) != start


def _machine(proc: Path) -> str:
    """This boot of this machine and its process namespace; the host's name where Linux is not."""
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{os.readlink(proc / 'self/ns/pid')}"
    except OSError:
        return f"host:{socket.gethostname()}"


def _start(pid: int, proc: Path) -> str | None:
    """When a process began, in ticks since the boot; None when there is no such process."""
    try:
        # The name in parentheses may hold anything, so count from behind it; zombies have ended.
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without an entry in its passwd
        return f"user {os.getuid()}"
