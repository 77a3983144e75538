"""A pod's files without an API server: which paths are rewritten, and what is refused."""

from __future__ import annotations

import base64
import time
from pathlib import Path

import pytest

from lab import LabError
from lab.podfiles import ACCOUNT, TOKEN_RENEW_AT, ConfigMaps, PodFiles
from lab.podstate import Container, Slots, grace_s, is_ours

MAPS = {
    "m": {"data": {"a": "A", "b": "B"}, "binaryData": {"c": base64.b64encode(b"\xff").decode()}}
}


class Client:
    """Lists MAPS once, and hands out numbered tokens."""

    def __init__(self):
        self.asked: list[dict] = []

    def follow(self, path):
        assert path == "/api/v1/namespaces/ns/configmaps"
        yield {
            "type": "SYNC",
            "items": [{"metadata": {"name": name}, **body} for name, body in MAPS.items()],
        }

    def request(self, method, path, body):
        assert (method, path) == ("POST", "/api/v1/namespaces/ns/serviceaccounts/sa/token")
        self.asked.append(body["spec"])
        return 201, {"status": {"token": f"token-{len(self.asked)}"}}


@pytest.fixture
def files(tmp_path):
    """files(volumes) of a pod `p` of namespace `ns`, below tmp_path."""
    client = Client()

    def make(*volumes):
        spec = {"nodeName": "n", "serviceAccountName": "sa", "volumes": list(volumes)}
        labels = {"app": "x"}
        meta = {"name": "p", "namespace": "ns", "uid": "u", "labels": labels}
        config_maps = ConfigMaps(client, lambda: None)
        made = PodFiles(client, config_maps, {"metadata": meta, "spec": spec}, "10.0.0.9", tmp_path)
        made.asked = client.asked
        return made

    return make


def volume(name, **source):
    return {"name": name, **source}


def held(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_every_kind_of_volume(files, tmp_path):
    items = [{"key": "a", "path": "x/y/a"}]
    down = {"items": [{"path": "app", "fieldRef": {"fieldPath": "metadata.labels['app']"}}]}
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 600, "audience": "aud"}},
        {"configMap": {"name": "m", "items": items}},
        {"downwardAPI": down},
    ]
    made = files(
        volume("whole", configMap={"name": "m"}),
        volume("none", configMap={"name": "gone", "optional": True}),
        volume("mixed", projected={"sources": sources}),
        volume("empty", emptyDir={}),
    )
    made.renew_tokens()
    left = made.renew_due - time.monotonic()
    assert TOKEN_RENEW_AT * 600 - 5 < left <= TOKEN_RENEW_AT * 600
    made.write()
    folder = tmp_path / "volumes"
    assert held(folder / "whole") == {"a": b"A", "b": b"B", "c": b"\xff"}
    assert held(folder / "none") == {}
    assert held(folder / "mixed") == {"token": b"token-1", "x/y/a": b"A", "app": b"x"}
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    assert made.asked == [{"audiences": ["aud"], "expirationSeconds": 600, "boundObjectRef": bound}]
    # What the container wrote into its emptyDir stays; what agrees is not written again.
    (folder / "empty" / "mine").touch()
    before = (folder / "whole" / "a").stat().st_ino
    made.renew_tokens()
    made.write()
    assert (folder / "empty" / "mine").exists()
    assert (folder / "whole" / "a").stat().st_ino == before
    assert held(folder / "mixed")["token"] == b"token-2"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"hostPath": {"path": "/"}}, "volume v is a hostPath"),
        ({"configMap": {"name": "gone"}}, 'configmap "gone" not found'),
        ({"configMap": {"name": "m", "items": [{"key": "z", "path": "z"}]}}, "has no key z"),
        ({"configMap": {"name": "m", "items": [{"key": "a", "path": "../a"}]}}, "no path inside"),
        ({"projected": {"sources": [{"secret": {"name": "s"}}]}}, "projects no secret"),
        (
            {"downwardAPI": {"items": [{"path": "f", "fieldRef": {"fieldPath": "spec.x"}}]}},
            "know no field spec.x",
        ),
    ],
)
def test_what_a_pod_has_to_wait_for(files, source, said):
    with pytest.raises(LabError, match=said):
        files(volume("v", **source)).write()


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("/opt/a/b", ["/opt/a/b"]),
        ("/opt/a", ["/opt/a"]),
        ("/opt/a/b/lib:/usr/lib:/opt/a/b", ["/opt/a/b/lib", "/opt/a/b"]),
        ("--policy=/etc/p/f.json", ["/etc/p/f.json"]),
        ("open('/etc/p/f')", ["/etc/p/f"]),
        ("/opt", []),
        ("/etc", []),
        ("/etc/passwd", []),
        ("/opt/a/bc", []),
        ("https://x/opt/a/b", []),
        ("//opt/a/b", []),
        ("x/opt/a/b", []),
    ],
)
def test_paths_below_and_above_a_mount_are_rewritten_and_no_others(files, tmp_path, text, moved):
    mounts = [{"name": "v", "mountPath": "/opt/a/b"}, {"name": "w", "mountPath": "/etc/p/"}]
    made = files(volume("v", emptyDir={}), volume("w", emptyDir={}))
    made.write()
    [found] = made.command({"name": "c", "volumeMounts": mounts, "command": [text]}, {})
    for path in moved:
        found = found.replace(f"{tmp_path}/root/c{path}", path, 1)
    assert found == text
    assert str(tmp_path) not in found
    assert (tmp_path / "root/c/opt/a/b").resolve() == tmp_path / "volumes/v"


def test_variables(files):
    made = files()
    entries = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)$(NO)"},
        {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "b"}}},
        {
            "name": "D",
            "valueFrom": {"configMapKeyRef": {"name": "m", "key": "z", "optional": True}},
        },
        {"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
    ]
    env = made.environment({"name": "c", "env": entries}, {"PATH": "/bin"})
    assert env == {"PATH": "/bin", "A": "1", "B": "1$(NO)", "C": "B", "E": "ns"}
    assert made.command({"name": "c", "args": ["$(A)"]}, env) == ["1"]
    assert made.command({"name": "c"}, env) == ["python3"]
    account = [{"name": "t", "mountPath": ACCOUNT}]
    env = made.environment({"name": "c", "volumeMounts": account}, {})
    assert env["GPUSHARE_TOKEN_FILE"].endswith(f"/root/c{ACCOUNT}/token")
    for source in ("secretKeyRef", "resourceFieldRef"):
        bad = [{"name": "X", "valueFrom": {source: {}}}]
        with pytest.raises(LabError, match=f"variable X: the lab knows no {source}"):
            made.environment({"name": "c", "env": bad}, {})


@pytest.mark.parametrize(
    ("image", "ours"),
    [
        ("python", True),
        ("python:3.13-slim", True),
        ("public.ecr.aws/docker/library/python:3.13-slim", True),
        ("1.dkr.ecr.eu-west-1.amazonaws.com/hub/python@sha256:0", True),
        ("registry:5000/python", True),
        ("cpython:3", False),
        ("python/app:1", False),
        ("python-tools", False),
        ("", False),
    ],
)
def test_which_images_are_a_stock_python(image, ours):
    assert is_ours({"image": image}) is ours


def test_back_off_doubles_up_to_its_limit_and_begins_anew_after_a_good_while(tmp_path):
    container = Container({"name": "c", "image": "python"}, tmp_path, tmp_path, tmp_path)
    seen = []
    for _ in range(6):
        container.started_at, container.last = time.time(), {"exitCode": 1}
        container.next("Always")
        seen.append(container.back_off_s)
    assert seen == [1, 2, 4, 8, 10, 10]
    container.started_at -= 61
    container.next("OnFailure")
    assert container.back_off_s == 1
    assert not container.done
    container.last = {"exitCode": 0}
    container.next("OnFailure")
    assert container.done


def test_slots_and_grace(monkeypatch):
    monkeypatch.setenv("GPUSHARE_LAB_PODS", "1")
    slots = Slots()
    assert [slots.take(), slots.take()] == [True, False]
    slots.give()
    assert slots.take()
    body = {"metadata": {}, "spec": {"terminationGracePeriodSeconds": 30}}
    assert grace_s(body, 2.0) == 2.0
    body["metadata"]["deletionGracePeriodSeconds"] = 0
    assert grace_s(body, 2.0) == 0.0
