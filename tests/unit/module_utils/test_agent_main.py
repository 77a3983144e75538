"""The DaemonSet's command: what it wants of its environment, and the policy's file."""

from __future__ import annotations

import json
import urllib.request

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import _agent_main
from ansible_collections.gpushare.eks.plugins.module_utils._agent_main import PolicyFile

GOOD = {"schema": 1, "resource": "gpushare.eks/gpu-memory", "pools": {}}


def test_what_is_not_set_is_named_and_ends_the_command(monkeypatch, capsys):
    for key in ("NODE_NAME", "GPUSHARE_POLICY_FILE", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("NODE_NAME", "n")
    assert _agent_main.main() == 2
    said = capsys.readouterr().err
    assert "GPUSHARE_POLICY_FILE, KUBERNETES_SERVICE_HOST" in said
    assert "NODE_NAME" not in said


def test_the_policy_is_read_again_when_its_file_changed(tmp_path):
    path = tmp_path / "policy.json"
    policy = PolicyFile(str(path))
    assert policy() is None
    path.write_text(json.dumps(GOOD))
    assert policy() == GOOD
    new = tmp_path / "new"
    new.write_text(json.dumps({**GOOD, "resource": "other/gpu-memory"}))
    new.replace(path)
    assert policy()["resource"] == "other/gpu-memory"


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 2}'])
def test_a_broken_policy_leaves_the_last_good_one_and_is_said_once(tmp_path, capsys, text):
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(GOOD))
    policy = PolicyFile(str(path))
    assert policy() == GOOD
    path.write_text(text)
    assert [policy(), policy()] == [GOOD, GOOD]
    assert len(capsys.readouterr().err.splitlines()) == 1
    path.unlink()
    assert policy() == GOOD


def test_metrics_are_served_where_asked_for():
    class Figures:
        def metrics(self):
            return "gpushare_gpus 1\n"

    server = _agent_main.serve_metrics(Figures(), 0)
    try:
        base = f"http://127.0.0.1:{server.server_port}"
        assert urllib.request.urlopen(f"{base}/metrics", timeout=5).read() == b"gpushare_gpus 1\n"
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{base}/other", timeout=5)
    finally:
        server.shutdown()
        server.server_close()
