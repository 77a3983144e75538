"""Who runs a playbook: told apart from every other run, and known dead only when it is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ansible_collections.gpushare.eks.plugins.plugin_utils import run_owner

BOOT, OTHER_BOOT = "11111111-2222", "33333333-4444"
STAT = "{pid} (py (x) y) {state} 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 0"


@pytest.fixture
def proc(tmp_path):
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[4026531836]")
    boot(tmp_path, BOOT)
    return tmp_path


def boot(proc, boot_id):
    (proc / "sys/kernel/random/boot_id").write_text(boot_id + "\n")


def process(proc, pid, start, state="S"):
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "stat").write_text(STAT.format(pid=pid, state=state, start=start))


def test_a_living_run_has_not_ended(proc):
    process(proc, 42, 777)
    one = run_owner.owner(42, {}, proc)
    assert one["id"] == f"{BOOT}:pid:[4026531836]/42/777"
    assert one["who"].endswith(", process 42")
    assert one["job"] == ""
    assert run_owner.ended(one["id"], proc) is False


def test_a_killed_run_has_ended(proc):
    process(proc, 42, 777)
    held = run_owner.owner(42, {}, proc)["id"]
    (proc / "42/stat").unlink()
    assert run_owner.ended(held, proc) is True


def test_a_zombie_has_ended(proc):
    process(proc, 42, 777)
    held = run_owner.owner(42, {}, proc)["id"]
    process(proc, 42, 777, state="Z")
    assert run_owner.ended(held, proc) is True


def test_another_process_of_the_same_number_is_not_that_run(proc):
    process(proc, 42, 777)
    held = run_owner.owner(42, {}, proc)["id"]
    process(proc, 42, 999)
    assert run_owner.ended(held, proc) is True


def test_nobody_knows_of_another_machine_or_container(proc):
    process(proc, 42, 777)
    held = run_owner.owner(42, {}, proc)["id"]
    (proc / "42/stat").unlink()
    boot(proc, OTHER_BOOT)
    assert run_owner.ended(held, proc) is False
    boot(proc, BOOT)
    (proc / "self/ns/pid").unlink()
    (proc / "self/ns/pid").symlink_to("pid:[4026532999]")
    assert run_owner.ended(held, proc) is False


@pytest.mark.parametrize("text", ["", "x", "a/b", "by hand/1/2", f"{BOOT}/x/1"])
def test_what_is_no_id_of_ours_has_not_ended(proc, text):
    assert run_owner.ended(text, proc) is False


def test_the_job_of_awx_is_named(proc):
    process(proc, 42, 777)
    assert run_owner.owner(42, {"awx_job_id": 17}, proc)["job"] == "17"
    assert run_owner.owner(42, {"tower_job_id": "18"}, proc)["job"] == "18"


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs Linux's /proc")
def test_on_this_machine():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    held = run_owner.owner(child.pid, {})["id"]
    assert run_owner.ended(held) is False
    child.communicate(b"\n")
    assert run_owner.ended(held) is True
