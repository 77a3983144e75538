"""Start and stop processes so that none outlives its lab and no stranger is ever signalled."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from lab import LabError

# Becomes the program after asking the kernel to end it together with the daemon (prctl(2),
# PR_SET_PDEATHSIG = 1, SIGKILL = 9); the check afterwards covers a parent that died meanwhile.
_BOUND_EXEC = (
    "import ctypes,os,sys;ctypes.CDLL(None).prctl(1,9,0,0,0);"
    "os.getppid()==int(sys.argv[1]) or os._exit(1);os.execv(sys.argv[2],sys.argv[2:])"
)


def free_ports(count: int) -> list[int]:
    """Different ports that are free on 127.0.0.1 right now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def start_time(pid: int) -> int | None:
    """The start of the process in clock ticks since boot; None when there is no such process.

    Pid and start time together name one process for ever; a pid alone is given out again.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command name in field 2 may hold blanks and brackets, so count behind its last bracket.
    fields = stat.rpartition(")")[2].split()
    if fields[0] in ("Z", "X"):
        return None
    return int(fields[19])


def rss_mib(pid: int) -> float:
    """Resident memory of one process in MiB; 0 when it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class _Spawner(threading.Thread):
    """The one thread that forks.

    The kernel sends the parent-death signal when the forking *thread* ends, so children must come
    from a thread that lives as long as the process and not from a request's worker.
    """

    def __init__(self) -> None:
        super().__init__(name="lab-spawner", daemon=True)
        self.orders: queue.Queue[tuple[Future, list[str], dict]] = queue.Queue()
        self.pid = os.getpid()

    def run(self) -> None:
        while True:
            future, command, options = self.orders.get()
            try:
                future.set_result(subprocess.Popen(command, **options))
            except BaseException as error:
                future.set_exception(error)


_spawner: _Spawner | None = None
_spawner_lock = threading.Lock()


def _spawn(command: list[str], options: dict) -> subprocess.Popen:
    global _spawner
    with _spawner_lock:
        if _spawner is None or _spawner.pid != os.getpid() or not _spawner.is_alive():
            _spawner = _Spawner()
            _spawner.start()
        spawner = _spawner
    future: Future[subprocess.Popen] = Future()
    spawner.orders.put((future, command, options))
    return future.result()


def bound(command: Sequence[str]) -> list[str]:
    """The command, started so that it dies with the thread that forks it."""
    return [sys.executable, "-I", "-S", "-c", _BOUND_EXEC, str(os.getpid()), *command]


def start_bound(
    command: Sequence[str],
    *,
    log: Path,
    record: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    name: str | None = None,
    leads_group: bool = False,
) -> subprocess.Popen:
    """Start a child that dies with this process; its output goes to `log`, its pid to `record`.

    leads_group: a session of its own, so that signal_group() reaches whatever it starts.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = _spawn(
            bound(command),
            {
                "stdin": subprocess.DEVNULL,
                "stdout": output,
                "stderr": output,
                "env": dict(env) if env is not None else None,
                "cwd": cwd,
                "start_new_session": leads_group,
            },
        )
    write_record(record, child.pid, name or Path(command[0]).name)
    return child


def signal_group(child: subprocess.Popen, number: int) -> None:
    """Signal a child that leads a group, and all that it started, unless it was reaped."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)


def group_code(child: subprocess.Popen) -> int | None:
    """The exit code of a child that leads a group, or None; what it left behind is ended too."""
    if child.returncode is None:
        # A zombie still holds its number, so the group cannot be a stranger's by now.
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        with contextlib.suppress(ChildProcessError):
            if os.waitid(os.P_PID, child.pid, options) is None:
                return None
        signal_group(child, signal.SIGKILL)
    return child.poll()


def start_detached(
    command: Sequence[str], *, log: Path, env: Mapping[str, str], cwd: Path
) -> subprocess.Popen:
    """Start a process in a session of its own, which lives on when the terminal closes."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
        )


def write_atomically(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file that readers see whole or not at all; readable by its owner only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
    os.replace(temporary, path)


def write_record(path: Path, pid: int, name: str, **more: object) -> None:
    """Note one process of ours: {"name", "pid", "start_time", ...}."""
    record = {"name": name, "pid": pid, "start_time": start_time(pid), **more}
    write_atomically(path, json.dumps(record))


def read_records(state: Path) -> Iterator[dict]:
    """Every process noted in a `run` folder below `state`, living or not, and the note's path."""
    for path in sorted(state.rglob("run/*.json")):
        try:
            record = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        if isinstance(record, dict) and isinstance(record.get("pid"), int):
            yield {**record, "path": str(path)}


def alive(record: Mapping) -> bool:
    """Whether the noted process runs still; another process under the same pid does not count."""
    started = start_time(record["pid"])
    return started is not None and started == record.get("start_time")


def end(record: Mapping, *, grace: float = 0.0) -> bool:
    """SIGTERM and `grace` seconds, then SIGKILL; True if the noted process had been alive."""
    try:
        # A pidfd stays with this very process, so no check-then-kill race can hit another one.
        descriptor = os.pidfd_open(record["pid"])
    except ProcessLookupError:
        return False
    try:
        if not alive(record):
            return False
        if grace:
            _signal(descriptor, signal.SIGTERM)
            if _gone(descriptor, grace):
                return True
        _signal(descriptor, signal.SIGKILL)
        if not _gone(descriptor, 10):
            raise LabError(
                f"process {record['pid']} ({record.get('name', '?')}) does not end after SIGKILL; "
                "it hangs in the kernel: look at it with `ps`, then run `python -m lab down` again"
            )
        return True
    finally:
        os.close(descriptor)


def _signal(descriptor: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(descriptor, number)


def _gone(descriptor: int, timeout: float) -> bool:
    """Whether the process behind the pidfd ended within `timeout` seconds."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(timeout * 1000))


def wait_port(port: int, child: subprocess.Popen, timeout: float, what: str, log: Path) -> None:
    """Wait until `child` accepts connections on the port; LabError when it dies or is late."""
    deadline = time.monotonic() + timeout
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        check_running(child, what, log)
        if time.monotonic() > deadline:
            raise LabError(
                f"{what} does not listen on 127.0.0.1:{port} after {timeout:.0f} s; "
                f"its log is {log}:\n{tail(log)}"
            )
        time.sleep(0.02)


def check_running(child: subprocess.Popen, what: str, log: Path) -> None:
    """LabError with the end of the log when the child has ended."""
    code = child.poll()
    if code is not None:
        raise LabError(f"{what} ended with code {code}; its log is {log}:\n{tail(log)}")


def tail(log: Path, lines: int = 12) -> str:
    """The last lines of a log, for an error message."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return "(no log)"
