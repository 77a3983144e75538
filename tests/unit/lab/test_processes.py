"""Processes of the lab end with it, and nobody else's ever does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from lab_helpers import eventually

from lab import LabError, processes

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def sleeper():
    child = subprocess.Popen(["sleep", "600"])
    yield child
    child.kill()
    child.wait()


def test_a_stranger_under_a_noted_pid_is_never_signalled(sleeper, tmp_path):
    started = processes.start_time(sleeper.pid)
    assert started is not None
    record = {"name": "old", "pid": sleeper.pid, "start_time": started - 1}
    assert not processes.alive(record)
    assert processes.end(record) is False
    assert sleeper.poll() is None


def test_a_noted_process_is_ended_once(sleeper, tmp_path):
    note = tmp_path / "run" / "sleep.json"
    processes.write_record(note, sleeper.pid, "sleep")
    (record,) = processes.read_records(tmp_path)
    assert record["path"] == str(note)
    assert processes.alive(record)
    assert processes.end(record, grace=5) is True
    assert sleeper.wait(5) == -signal.SIGTERM
    assert processes.end(record) is False


def test_one_that_ignores_sigterm_is_killed(tmp_path):
    code = "import signal,time;signal.signal(15,signal.SIG_IGN);print(1,flush=True);time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    processes.write_record(tmp_path / "run" / "deaf.json", child.pid, "deaf")
    (record,) = processes.read_records(tmp_path)
    assert processes.end(record, grace=0.2) is True
    assert child.wait(5) == -signal.SIGKILL
    child.stdout.close()


def test_children_die_with_a_killed_daemon_but_not_with_the_thread_that_asked(tmp_path):
    # The parent starts a child from a thread that ends at once, says its pid and waits.
    code = f"""
import sys, threading, time
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from lab import processes
here = Path({str(tmp_path)!r})
def start():
    note = here / "run" / "c.json"
    child = processes.start_bound(["/bin/sleep", "600"], log=here / "log", record=note)
    print(child.pid, flush=True)
thread = threading.Thread(target=start); thread.start(); thread.join()
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    (record,) = processes.read_records(tmp_path)
    eventually(lambda: Path(f"/proc/{pid}/comm").read_text().strip(), "sleep")
    assert record["pid"] == pid
    assert processes.alive(record)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    eventually(lambda: processes.alive(record), False)


def test_a_child_that_ends_at_once_is_reported_with_the_end_of_its_log(tmp_path):
    log = tmp_path / "log"
    child = processes.start_bound(
        ["/bin/sh", "-c", "echo no such flag; exit 3"], log=log, record=tmp_path / "run" / "x.json"
    )
    (port,) = processes.free_ports(1)
    with pytest.raises(LabError, match=r"it ended with code 3; its log is .*\nno such flag"):
        processes.wait_port(port, child, 10, "it", log)


def test_ports_differ_and_files_are_written_whole_and_privately(tmp_path):
    assert len(set(processes.free_ports(20))) == 20
    target = tmp_path / "env"
    threads = [
        threading.Thread(target=processes.write_atomically, args=(target, str(n) * 5000))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(target.read_text()) == 5000
    assert len(set(target.read_text())) == 1
    assert target.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["env"]
