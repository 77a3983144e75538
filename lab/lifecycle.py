"""Up, down and status of this checkout's lab."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import shutil
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from lab import CHECKOUT, LabError, build, processes, state_dir
from lab.toolchain import Progress, say

# Marks the daemon and whatever inherits its environment, so that `down` finds strays.
MARKER = "GPUSHARE_LAB_STATE"
_START_TIMEOUT = 60.0
_STOP_GRACE = 15.0


def daemon_record() -> dict | None:
    """What the living daemon wrote when it was ready: pid, start_time, endpoint, env; else None."""
    try:
        record = json.loads((state_dir() / "run" / "daemon.json").read_text())
    except (OSError, ValueError):
        return None
    return record if processes.alive(record) else None


def healthy(record: Mapping) -> bool:
    """Whether the daemon answers on its loopback port; a proxy of the shell is not asked."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{record['endpoint']}/_lab/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def up(progress: Progress = say) -> str:
    """Start the lab unless it runs; the line that says how to go on."""
    _check_platform()
    state = state_dir()
    build.ensure(progress)
    state.mkdir(parents=True, exist_ok=True)
    with (state / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LabError(
                f"another `python -m lab up` is starting the lab in {CHECKOUT}: wait for it"
            ) from None
        record = daemon_record()
        if record and healthy(record):
            write_env(record)
            return f"The lab is up already at {record['endpoint']}. Go on with: . .lab/env"
        # What a killed lab left behind must not meet the new one.
        _end_all(state)
        began = time.monotonic()
        record = _start(state)
        write_env(record)
    return (
        f"The lab is up at {record['endpoint']} ({time.monotonic() - began:.1f} s). "
        "Go on with: . .lab/env && ansible-playbook site.yml"
    )


def _start(state: Path) -> dict:
    for stale in state.iterdir():
        # Everything but the lock we hold, and the logs of the lab that may have been killed.
        if stale.is_dir() and stale.name != "logs":
            shutil.rmtree(stale, ignore_errors=True)
        elif stale.name in ("env", "kubeconfig"):
            stale.unlink()
    (state / "tmp").mkdir(parents=True)
    # Keys of a real account in the shell are none of the daemon's business.
    env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    env |= {
        "PYTHONPATH": os.pathsep.join(
            part for part in (str(CHECKOUT), env.get("PYTHONPATH", "")) if part
        ),
        "TMPDIR": str(state / "tmp"),
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        MARKER: str(state),
    }
    log = state / "logs" / "daemon.log"
    child = processes.start_detached(
        [sys.executable, "-m", "lab", "serve"], log=log, env=env, cwd=CHECKOUT
    )
    try:
        processes.write_record(state / "run" / "serve.json", child.pid, "serve")
        deadline = time.monotonic() + _START_TIMEOUT
        while True:
            record = daemon_record()
            if record and healthy(record):
                return record
            processes.check_running(child, "the lab's daemon", log)
            if time.monotonic() > deadline:
                raise LabError(
                    f"the lab's daemon does not answer after {_START_TIMEOUT:.0f} s; "
                    f"its log is {log}:\n{processes.tail(log)}"
                )
            time.sleep(0.05)
    except BaseException:
        _end_all(state)
        raise


def write_env(record: Mapping) -> Path:
    """Write .lab/env, to be sourced by a POSIX shell, from the daemon's exports and our own."""
    state = state_dir()
    # The merged file is there from the start, so that KUBECONFIG never names a missing one.
    merged = state / "kubeconfig"
    if not merged.exists():
        from lab.kubeclient import write_merged_kubeconfig

        write_merged_kubeconfig(merged, [])
    exports = {
        **record["env"],
        "KUBECONFIG": str(merged),
        "GPUSHARE_LAB_CHART": str(build.chart()),
        "AWS_EC2_METADATA_DISABLED": "true",
        # A person's own files must not send a call anywhere else.
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        # Molecule names its own by the checkout's folder name: two checkouts would share it.
        "MOLECULE_EPHEMERAL_DIRECTORY": str(state / "molecule" / "scratch"),
    }
    programs = shlex.quote(str(Path(sys.executable).parent))
    lines = [
        "# Where this checkout's lab is. Source it: . .lab/env",
        # A session token or a service's own endpoint of the shell would outrank what follows.
        "unset AWS_PROFILE AWS_DEFAULT_PROFILE AWS_SESSION_TOKEN AWS_SECURITY_TOKEN",
        "unset AWS_ROLE_ARN AWS_WEB_IDENTITY_TOKEN_FILE AWS_CA_BUNDLE",
        "unset AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
        'for name in $(env | sed -n "s/^\\(AWS_ENDPOINT_URL_[A-Z0-9_]*\\)=.*/\\1/p"); do',
        '  unset "$name"',
        "done",
        *(f"export {name}={shlex.quote(str(value))}" for name, value in exports.items()),
        'export NO_PROXY="127.0.0.1,localhost${NO_PROXY:+,$NO_PROXY}"',
        'export no_proxy="$NO_PROXY"',
        f'export PATH={programs}:"$PATH"',
    ]
    path = state / "env"
    processes.write_atomically(path, "\n".join(lines) + "\n")
    return path


def down() -> str:
    """End the lab, a half-dead one too, and remove every trace; what was done, in one line."""
    _check_platform()
    state = state_dir()
    if not state.exists():
        return "No lab runs here."
    ended = _end_all(state)
    _remove(state)
    return f"The lab is gone ({ended} processes ended)."


def _end_all(state: Path) -> int:
    records = list(processes.read_records(state))
    # The daemon first and gently: it ends its clusters itself; then whatever is left.
    records.sort(key=lambda record: record.get("name") not in ("serve", "daemon"))
    ended = 0
    for record in records:
        grace = _STOP_GRACE if record.get("name") in ("serve", "daemon") else 0.0
        ended += processes.end(record, grace=grace)
    for record in _marked(state):
        ended += processes.end(record)
    return ended


def _marked(state: Path) -> list[dict]:
    """Processes whose environment carries our mark: children of a killed daemon's own children."""
    mark = f"{MARKER}={state}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                pid = int(entry.name)
                found.append({"name": "stray", "pid": pid, "start_time": processes.start_time(pid)})
    return found


def _remove(state: Path) -> None:
    # A program that was just killed may still have written a file, so once more if need be.
    for _ in range(20):
        shutil.rmtree(state, ignore_errors=True)
        if not state.exists():
            return
        time.sleep(0.1)
    raise LabError(f"{state} cannot be removed; see who owns its files, then run down again")


def status() -> tuple[bool, str]:
    """(whether the lab answers, a table of its parts with pids and resident memory)."""
    state = state_dir()
    record = daemon_record()
    rows, total, seen = [], 0.0, set()
    for part in processes.read_records(state):
        if part["pid"] in seen:
            continue
        seen.add(part["pid"])
        running = processes.alive(part)
        rss = processes.rss_mib(part["pid"]) if running else 0.0
        total += rss
        owner = Path(part["path"]).parent.parent
        where = "" if owner == state else owner.name
        name = "daemon" if part["name"] == "serve" else part["name"]
        rows.append((where, name, str(part["pid"]), f"{rss:.0f}" if running else "gone"))
    ok = bool(record and healthy(record))
    if not rows:
        return False, "No lab runs here; `python -m lab up` starts one."
    table = [("CLUSTER", "PART", "PID", "RSS_MIB"), *sorted(rows), ("", "all", "", f"{total:.0f}")]
    widths = [max(len(row[column]) for row in table) for column in range(4)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    head = (
        f"The lab answers at {record['endpoint']}."
        if ok and record
        else ("The lab does not answer (see .lab/logs/daemon.log); `python -m lab down` clears it.")
    )
    return ok, "\n".join([head, *lines])


def _check_platform() -> None:
    if not sys.platform.startswith("linux") or not hasattr(os, "pidfd_open"):
        raise LabError("the lab needs Linux 5.3 or newer: it starts real Linux programs")
