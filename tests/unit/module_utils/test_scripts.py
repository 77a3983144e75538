"""Our SSM documents: fixed, small, without parameters, and they run as a shell script."""

from __future__ import annotations

import hashlib
import json
import subprocess

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import _scripts

DOCUMENTS = _scripts.documents()


@pytest.mark.parametrize("document", DOCUMENTS, ids=["probe", "processes"])
def test_a_document_is_fixed_small_and_without_parameters(document):
    text = json.dumps(document["content"], separators=(",", ":"))
    assert document["text"] == text
    assert document["hash"] == hashlib.sha256(text.encode()).hexdigest()
    assert document["name"] == f"gpushare-probe-{document['hash'][:8]}"
    assert len(text) < 65536
    assert "parameters" not in document["content"]
    assert "{{" not in text


def test_each_has_a_name_of_its_own_and_always_the_same():
    assert len({document["name"] for document in DOCUMENTS}) == 2
    assert _scripts.documents() == DOCUMENTS
    assert DOCUMENTS[0] == _scripts.probe_document()


@pytest.mark.parametrize("document", DOCUMENTS, ids=["probe", "processes"])
def test_its_script_runs(document):
    step = document["content"]["mainSteps"][0]
    assert step["action"] == "aws:runShellScript"
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "GPUSHARE_NVML_LIBRARY": "/does/not/exist",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1",
    }
    done = subprocess.run(
        ["sh", "-c", "\n".join(step["inputs"]["runCommand"])],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
    assert json.loads(done.stdout)["error"]["type"] == "LIBRARY_NOT_FOUND"
