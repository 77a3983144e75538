"""The agent's child that keeps NVML open: news only, hangs and crashes told, no orphan."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import _agent_reader, _nvml_watch
from ansible_collections.gpushare.eks.plugins.module_utils.nvml_probe import NvmlError


class FakeNvml:
    """Stands where Nvml stands: what read_gpu and the watch call, from a script of answers."""

    opened = 0

    def __init__(self, path, load):
        type(self).opened += 1

    def call(self, name, *args):
        if name == "nvmlInit_v2" and script["init"]:
            raise NvmlError(script["init"], name)

    def numbers(self, name, count, *args):
        return [1]


script = {}


@pytest.fixture
def watch(monkeypatch):
    script.update(init=0, gpu={"index": 0, "error": None, "total_mib": 1, "used_mib": 0}, now=0.0)
    FakeNvml.opened = 0
    monkeypatch.setattr(_nvml_watch.nvml_probe, "Nvml", FakeNvml)
    monkeypatch.setattr(_nvml_watch.nvml_probe, "system", lambda nvml: {"driver": "1", "cuda": "2"})
    monkeypatch.setattr(_nvml_watch.nvml_probe, "read_gpu", lambda nvml, i: dict(script["gpu"]))
    return _nvml_watch.Watch(clock=lambda: script["now"])


def test_nvml_is_opened_once_while_all_is_well(watch):
    for _dummy in range(5):
        assert watch.look()["error"] is None
    assert FakeNvml.opened == 1


def test_after_a_failure_it_is_opened_anew_but_not_at_every_look(watch):
    watch.look()
    script["gpu"]["error"] = "GPU_IS_LOST"
    for step in range(10):
        script["now"] = step * _nvml_watch.REOPEN_S / 5
        assert watch.look()["gpus"][0]["error"] == "GPU_IS_LOST"
    assert FakeNvml.opened == 3  # at once, and after REOPEN_S
    script["gpu"]["error"] = None
    script["now"] = 20.0
    assert watch.look()["gpus"][0]["error"] is None


def test_a_driver_that_is_not_there_is_an_answer(watch):
    script["init"] = 9
    assert watch.look()["error"]["type"] == "DRIVER_NOT_LOADED"
    script["init"] = 0
    script["now"] = _nvml_watch.REOPEN_S
    assert watch.look()["error"] is None


def test_memory_in_use_is_no_news(watch, monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(_nvml_watch, "Watch", lambda: watch)
    used = iter([0, 5, 9, 9])

    def sleep(seconds):
        try:
            script["gpu"]["used_mib"] = next(used)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(_nvml_watch.time, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        _nvml_watch.main()
    lines = out.getvalue().split("\n")
    assert json.loads(lines[0])["gpus"] == [{"index": 0, "error": None, "total_mib": 1}]
    assert lines[1:] == [""] * 5


def listen(code, hang_s=5.0, until=1):
    """Run a Reader over a child with this Python code -> the readings told."""
    told, enough = [], threading.Event()

    def tell(reading):
        told.append(reading)
        if len(told) >= until:
            enough.set()

    command = [sys.executable, "-S", "-c", textwrap.dedent(code)]
    reader = _agent_reader.Reader(tell, command=command, hang_s=hang_s)
    reader.start()
    assert enough.wait(15)
    reader.stop()
    reader.join(5)
    assert not reader.is_alive()
    return told


ANSWER = '{"driver":"1","cuda":"2","gpus":[],"error":null}'


def test_a_line_becomes_a_reading():
    (told, *_more) = listen(f"import time; print('{ANSWER}', flush=True); time.sleep(60)")
    assert told["schema"] == 1
    assert told["driver"] == "1"
    assert told["boot_id"]
    assert told["instance_id"] is None


def test_silence_is_a_hanging_driver():
    (told, *_more) = listen("import time; time.sleep(60)", hang_s=0.5)
    assert told["error"]["type"] == "TIMEOUT"


def test_a_crash_is_told_and_the_child_started_again():
    told = listen(f"print('{ANSWER}', flush=True); import os; os.abort()", until=3)
    kinds = [one["error"] and one["error"]["type"] for one in told[:3]]
    assert kinds == [None, "PROBE_CRASHED", None]
    assert "-6" in told[1]["error"]["message"]


def test_what_is_no_json_is_a_crash():
    (told, *_more) = listen("print('Traceback', flush=True); import time; time.sleep(60)")
    assert told["error"]["type"] == "PROBE_CRASHED"


def test_the_real_child_runs_from_a_path_of_its_own_and_ends_with_its_reader():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment["GPUSHARE_NVML_LIBRARY"] = "/nowhere/libnvidia-ml.so.1"
    command = [sys.executable, "-S", "-B", "-m", _agent_reader.CHILD]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    line = json.loads(child.stdout.readline())
    assert line["error"]["type"] == "LIBRARY_NOT_FOUND"
    child.stdout.close()
    began = time.monotonic()
    assert child.wait(10) == 0
    assert time.monotonic() - began < 5
