"""What SSM runs on a node: one line whatever happens, a time limit, metadata, joined scripts."""

from __future__ import annotations

import ast
import http.server
import json
import os
import subprocess
import sys
import threading
import time

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import (
    _node_probe,
    _node_processes,
    _scripts,
    nvml_probe,
)

PARTS = [nvml_probe, _node_probe, _node_processes]
SCRIPTS = {
    "main": "\n".join(_scripts.joined(PARTS[:2], "main")),
    "main_processes": "\n".join(_scripts.joined(PARTS, "main_processes")),
}


def test_a_hung_driver_ends_in_the_time_limit():
    start = time.monotonic()
    answer = _node_probe.read_in_child(lambda: time.sleep(60), 0.2)[0]
    assert (answer["error"]["type"], answer["error"]["code"]) == ("TIMEOUT", 10)
    assert time.monotonic() - start < 5


def test_a_crash_inside_the_driver_is_an_error():
    answer = _node_probe.read_in_child(lambda: os.kill(os.getpid(), 9), 5)[0]
    assert answer["error"]["type"] == "PROBE_CRASHED"


def test_more_than_a_pipe_holds_comes_through():
    failed, answer = _node_probe.read_in_child(lambda: ["x" * 10**6], 5)
    assert failed is None
    assert answer == ["x" * 10**6]


def test_what_the_driver_prints_stays_out_of_the_line(capfd):
    _node_probe.read_in_child(lambda: os.system("echo noise; echo noise >&2"), 5)
    assert capfd.readouterr() == ("", "")


def run_probe(script="main", **environment):
    command = [sys.executable, "-I", "-S", "-"]
    given = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(
        command,
        input=SCRIPTS[script],
        env=given,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


class Metadata(http.server.BaseHTTPRequestHandler):
    """IMDSv2: without its token it answers 401."""

    def log_message(self, *args):
        pass

    def _answer(self, status, text=""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_PUT(self):
        ttl = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
        self._answer(200, "secret-token") if ttl else self._answer(400)

    def do_GET(self):
        good = self.headers.get("X-aws-ec2-metadata-token") == "secret-token"
        place = self.path == "/some/path/latest/meta-data/instance-id"
        self._answer(200, "i-0123456789abcdef0") if good and place else self._answer(401)


@pytest.fixture
def metadata():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/some/path/"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("script", SCRIPTS)
def test_as_the_node_runs_it(metadata, script):
    done = run_probe(
        script, GPUSHARE_NVML_LIBRARY="/does/not/exist", AWS_EC2_METADATA_SERVICE_ENDPOINT=metadata
    )
    assert (done.returncode, done.stderr) == (0, "")
    reading = json.loads(done.stdout)
    assert reading["instance_id"] == "i-0123456789abcdef0"
    assert reading["error"]["type"] == "LIBRARY_NOT_FOUND"
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize(
    "endpoint", ["http://127.0.0.1:1", "http://[::1]:1", "nonsense", "http://x:y"]
)
def test_without_metadata_the_instance_id_is_null(endpoint):
    done = run_probe(
        GPUSHARE_NVML_LIBRARY="/does/not/exist", AWS_EC2_METADATA_SERVICE_ENDPOINT=endpoint
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["instance_id"] is None


def test_a_silent_metadata_service_costs_two_seconds_at_most(monkeypatch):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", place)
        start = time.monotonic()
        assert _node_probe.instance_id(limit_s=0.3) is None
        assert time.monotonic() - start < 2


@pytest.mark.parametrize("error", [ZeroDivisionError(), OSError(24, "Too many open files")])
def test_never_a_traceback(monkeypatch, capsys, error):
    def fails():
        raise error

    monkeypatch.setattr(_node_probe, "read", fails)
    _node_probe.main()
    out = capsys.readouterr()
    assert json.loads(out.out)["error"]["type"] == "PROBE_FAILED"
    assert out.err == ""


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_python_3_9_and_standard_library_only(script):
    tree = ast.parse(script, feature_version=(3, 9))
    imported = {
        alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {n.module.partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert imported <= set(sys.stdlib_module_names)


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_no_name_of_one_part_hides_anothers(script):
    names = [
        n.name for n in ast.parse(script).body if isinstance(n, (ast.FunctionDef, ast.ClassDef))
    ]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_ssm_finds_no_parameter_in_it(script):
    assert "{{" not in script
