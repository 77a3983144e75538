"""Pods of a stock Python really run: files, token, restarts and ends, on a real API server."""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from lab_helpers import eventually

from lab import nvml
from lab.doors import Doors
from lab.machine import Machines
from lab.nvml import nodes
from lab.pods import PodRunner
from lab.podstate import Slots
from lab.processes import start_time

MERGE = "application/merge-patch+json"
PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
G4DN = {"node.kubernetes.io/instance-type": "g4dn.xlarge"}
SLEEP = "import time; print('up', flush=True); time.sleep(600)"
# Says all that a container can find, then waits; ends well at SIGTERM.
TELL = """
import json, os, signal, sys, time, urllib.request, ssl
signal.signal(signal.SIGTERM, lambda *_: (print("bye", flush=True), sys.exit(0)))
token = open(os.environ["GPUSHARE_TOKEN_FILE"]).read()
trust = ssl.create_default_context(cafile=os.environ["GPUSHARE_CA_FILE"])
base = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
ask = urllib.request.Request(
    base + "/apis/authentication.k8s.io/v1/selfsubjectreviews", json.dumps(body).encode(),
    {"Authorization": "Bearer " + token, "Content-Type": "application/json"})
who = json.load(urllib.request.urlopen(ask, context=trust))["status"]["userInfo"]
print(json.dumps({"who": who, "env": dict(os.environ), "argv": sys.argv,
    "file": open(sys.argv[1]).read(), "boot": open(os.environ["GPUSHARE_BOOT_ID_FILE"]).read()}),
    flush=True)
while True: time.sleep(1)
"""


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nodes")
    return Machines(folder, nvml.build(out_dir=folder / "build"))


class Cluster:
    """A runner, and what a test asks of it."""

    def __init__(self, plane, machines, slots):
        self.plane = plane
        self.dead: set[str] = set()
        self.runner = PodRunner(
            plane, machines, self._nodes, slots=Slots(slots), instances=self._instances
        )
        self.runner.start()

    def _nodes(self):
        items = self.plane.request("GET", "/api/v1/nodes")[1]["items"]
        return {node["metadata"]["name"]: node for node in items}

    def _instances(self):
        return {f"i-{name}" for name in self._nodes()} - self.dead

    def pod(self, name, code, node, **spec):
        container = {
            "name": "main",
            "image": "public.ecr.aws/docker/library/python:3.13-slim",
            "command": ["python3", "-c", code],
            **spec.pop("container", {}),
        }
        spec = {"nodeName": node, "containers": [container], **spec}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        status, answer = self.plane.request("POST", PODS, body)
        assert status == 201, answer

    def doors(self):
        plane = SimpleNamespace(pods=self.runner)
        cluster = SimpleNamespace(name=self.plane.name, control_plane=plane)
        return Doors(SimpleNamespace(clusters={self.plane.name: cluster}), None)

    def row(self, name):
        return next((row for row in self.runner.rows() if row["name"] == name), None)

    def pid(self, name):
        return (self.row(name) or {}).get("pid")

    def said(self, name):
        path = Path(self.row(name)["log"]) if self.row(name) else None
        return path.read_text() if path and path.exists() else ""

    def shown(self, name):
        """(Ready, restarts, state) as the API server tells it."""
        status = self.plane.request("GET", f"{PODS}/{name}")[1].get("status", {})
        ready = next(
            (c["status"] for c in status.get("conditions", []) if c["type"] == "Ready"), ""
        )
        row = (status.get("containerStatuses") or [{}])[0]
        return ready, row.get("restartCount"), next(iter(row.get("state", {"": 0})))

    def delete(self, name, **options):
        self.plane.request("DELETE", f"{PODS}/{name}", options or None)

    def exists(self, name):
        return self.plane.request("GET", f"{PODS}/{name}")[0] == 200


@pytest.fixture
def cluster(plane, machines, make_node):
    made = Cluster(plane, machines, slots=3)
    yield made
    for row in made.runner.rows():
        made.delete(row["name"], gracePeriodSeconds=0)
    made.runner.stop()
    assert made.runner.rows() == []


def test_a_container_finds_what_its_pod_says(cluster, make_node, plane):
    make_node("finds", G4DN)
    data = {"policy.json": "{}", "code": "print(1)"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data}
    assert plane.request("POST", MAPS, body)[0] == 201
    items = [{"key": "policy.json", "path": "deep/er/policy.json"}]
    cluster.pod(
        "finds",
        TELL,
        "finds",
        volumes=[
            {"name": "v", "configMap": {"name": "m", "items": items}},
            {"name": "all", "configMap": {"name": "m"}},
        ],
        container={
            "args": ["/opt/there/deep/er/policy.json"],
            "volumeMounts": [
                {"name": "v", "mountPath": "/opt/there"},
                {"name": "all", "mountPath": "/etc/all"},
            ],
            "env": [
                {"name": "PYTHONPATH", "value": "/opt/there:/usr/lib/x"},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                {"name": "HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
                {"name": "CODE", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "code"}}},
                {"name": "BOTH", "value": "$(NODE)-$(HOST) /etc"},
                {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            ],
        },
    )
    eventually(lambda: cluster.said("finds").endswith("}\n"), True)
    said = json.loads(cluster.said("finds"))
    env, extra = said["env"], said["who"]["extra"]
    assert said["who"]["username"] == "system:serviceaccount:default:default"
    claim = "authentication.kubernetes.io/"
    assert extra[f"{claim}node-name"] == ["finds"]
    assert extra[f"{claim}pod-name"] == ["finds"]
    node = plane.request("GET", "/api/v1/nodes/finds")[1]
    assert extra[f"{claim}node-uid"] == [node["metadata"]["uid"]]
    assert (said["file"], said["boot"].strip()) == ("{}", nodes.boot_id("i-finds"))
    assert env["PYTHONPATH"].endswith("/opt/there:/usr/lib/x")
    assert env["PYTHONPATH"] != "/opt/there:/usr/lib/x"
    assert (env["NODE"], env["HOST"], env["CODE"]) == ("finds", "10.0.0.7", "print(1)")
    assert env["BOTH"] == "finds-10.0.0.7 /etc"
    assert Path(env["GPUSHARE_NVML_LIBRARY"]).stat().st_size > 0
    assert not {"VIRTUAL_ENV", "SSH_AUTH_SOCK", "AWS_ACCESS_KEY_ID"} & set(env)

    # A changed ConfigMap comes to the files; a key that went takes its file along.
    there = Path(said["argv"][1])
    everything = there.parents[4] / "etc" / "all"
    assert sorted(path.name for path in everything.iterdir()) == ["code", "policy.json"]
    change = {"data": {"policy.json": '{"a": 1}', "code": None}}
    began = time.monotonic()
    plane.request("PATCH", f"{MAPS}/m", change, MERGE)
    eventually(there.read_text, '{"a": 1}')
    eventually(lambda: [path.name for path in everything.iterdir()], ["policy.json"])
    assert time.monotonic() - began < 2

    # On request the token is another one.
    token = Path(env["GPUSHARE_TOKEN_FILE"])
    before = token.read_text()
    payload = before.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["kubernetes.io"]["pod"]["name"] == "finds"
    time.sleep(1.1)  # a token of the same second is the same token
    [uid] = cluster.runner.find("finds")
    cluster.runner.renew_token(uid)
    eventually(lambda: token.read_text() != before, True)

    # It is asked to end, and its object goes only when it has.
    log, pid = Path(cluster.row("finds")["log"]), cluster.pid("finds")
    cluster.delete("finds")
    eventually(lambda: cluster.exists("finds"), False)
    assert start_time(pid) is None
    assert log.read_text().endswith("bye\n")
    assert not there.exists()
    plane.request("DELETE", f"{MAPS}/m")


def test_a_process_that_exits_is_started_again_and_is_not_ready_meanwhile(cluster, make_node):
    make_node("exits")
    code = "import os, sys, time; n = os.environ['HOME'] + '/n'; open(n, 'a').write('x');"
    code += "sys.exit(3) if os.path.getsize(n) < 3 else time.sleep(600)"
    cluster.pod("exits", code, "exits")
    eventually(lambda: cluster.shown("exits"), ("False", 0, "waiting"))
    eventually(lambda: cluster.shown("exits"), ("False", 1, "waiting"))
    eventually(lambda: cluster.shown("exits"), ("True", 2, "running"))
    # A killed one as well.
    pid = cluster.pid("exits")
    doors = cluster.doors()
    [row] = doors.pods(None)["pods"]
    assert (row["cluster"], row["namespace"], row["node"]) == ("unit", "default", "exits")
    assert (row["pid"], row["restarts"]) == (pid, 2)
    doors.pods({"pod": "exits", "signal": "KILL"})
    eventually(lambda: cluster.shown("exits"), ("False", 2, "waiting"))
    eventually(lambda: cluster.shown("exits"), ("True", 3, "running"))
    assert cluster.pid("exits") != pid
    for bad, said in [
        ({"pod": "none"}, "0 pods called none"),
        ({"pod": "exits", "signal": "HUP"}, "one of KILL"),
        ({"pod": "exits", "namespace": "x"}, "0 pods"),
        ({"signal": "KILL"}, "an object with pod"),
    ]:
        with pytest.raises(ValueError, match=said):
            doors.pods(bad)


def test_what_a_process_started_ends_with_it_and_one_that_is_deaf_is_killed(cluster, make_node):
    make_node("family")
    code = "import signal, subprocess, time; signal.signal(15, signal.SIG_IGN);"
    code += "print(subprocess.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)"
    cluster.pod("family", code, "family")
    eventually(lambda: cluster.said("family").strip().isdigit(), True)
    child = int(cluster.said("family"))
    parent = cluster.pid("family")
    [uid] = cluster.runner.find("family")
    cluster.runner.signal(uid, "STOP")
    eventually(lambda: Path(f"/proc/{child}/stat").read_text().split()[2], "T")
    cluster.runner.signal(uid, "CONT")
    began = time.monotonic()
    cluster.delete("family")
    eventually(lambda: cluster.exists("family"), False)
    assert 1.5 < time.monotonic() - began < 6
    assert start_time(parent) is None
    eventually(lambda: start_time(child), None)


def test_with_its_instance_a_process_ends_at_once_and_comes_back_with_it(cluster, make_node):
    make_node("ends")
    cluster.pod("ends", SLEEP, "ends")
    eventually(lambda: bool(cluster.pid("ends")), True)
    pid = cluster.pid("ends")
    cluster.dead.add("i-ends")
    eventually(lambda: start_time(pid), None, timeout=2)
    time.sleep(0.5)
    assert cluster.row("ends") is None
    cluster.dead.clear()
    eventually(lambda: cluster.shown("ends"), ("True", 1, "running"))


def test_with_its_node_a_process_ends_but_not_when_the_node_is_made_anew(cluster, make_node, plane):
    make_node("gone")
    cluster.pod("gone", SLEEP, "gone")
    eventually(lambda: bool(cluster.pid("gone")), True)
    pid = cluster.pid("gone")
    plane.request("DELETE", "/api/v1/nodes/gone")
    make_node("gone")
    time.sleep(1.5)
    assert cluster.pid("gone") == pid
    plane.request("DELETE", "/api/v1/nodes/gone")
    cluster.dead.add("none")
    eventually(lambda: start_time(pid), None)


def test_a_reboot_ends_processes_and_starts_them_again(cluster, make_node):
    make_node("boots")
    cluster.pod("boots", SLEEP, "boots")
    eventually(lambda: bool(cluster.pid("boots")), True)
    pid = cluster.pid("boots")
    seen = []
    cluster.runner.reboot("i-boots", lambda: seen.append(start_time(pid)))
    eventually(lambda: cluster.shown("boots"), ("True", 1, "running"))
    assert len(seen) == 1
    assert start_time(pid) is None


def test_more_than_the_limit_are_only_shown(cluster, make_node, caplog):
    make_node("many")
    for n in range(5):
        cluster.pod(f"many-{n}", SLEEP, "many")
    eventually(lambda: len(cluster.runner.rows()), 3)
    eventually(lambda: [cluster.shown(f"many-{n}")[0] for n in range(5)], ["True"] * 5)
    time.sleep(0.5)
    assert len(cluster.runner.rows()) == 3
    assert [r.message for r in caplog.records if "GPUSHARE_LAB_PODS" in r.message] != []
    assert len([r for r in caplog.records if "GPUSHARE_LAB_PODS" in r.message]) == 1
    running = {row["name"] for row in cluster.runner.rows()}
    waiting = {f"many-{n}" for n in range(5)} - running
    # One that never ran can be deleted, and one that ends makes room.
    cluster.delete(waiting.pop())
    cluster.delete(min(running))
    eventually(lambda: {row["name"] for row in cluster.runner.rows()} >= waiting, True)


def test_a_pod_that_lacks_something_waits_for_it(cluster, make_node, plane):
    make_node("lacks")
    volumes = [{"name": "v", "configMap": {"name": "later"}}]
    mounts = [{"name": "v", "mountPath": "/etc/later"}]
    container = {"volumeMounts": mounts, "args": ["/etc/later/x"]}
    code = "import sys, time; print(open(sys.argv[1]).read(), flush=True); time.sleep(600)"
    cluster.pod("lacks", code, "lacks", volumes=volumes, container=container)
    eventually(lambda: cluster.shown("lacks")[::2], ("False", "waiting"))
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "later"}}
    plane.request("POST", MAPS, {**body, "data": {"x": "here"}})
    eventually(lambda: cluster.shown("lacks"), ("True", 0, "running"))
    eventually(lambda: cluster.said("lacks"), "here\n")


def test_a_pod_that_is_not_to_be_restarted_ends(cluster, make_node, plane):
    make_node("once")
    cluster.pod("once", "print('done')", "once", restartPolicy="Never")
    phase = lambda: plane.request("GET", f"{PODS}/once")[1]["status"]["phase"]  # noqa: E731
    eventually(phase, "Succeeded")
    assert cluster.said("once") == "done\n"
    assert cluster.shown("once")[2] == "terminated"


@pytest.mark.parametrize("path", [None, "/var/run/last/words"])
def test_the_last_words_of_a_container_stand_in_its_status(cluster, make_node, plane, path):
    name = "words" if path else "default"
    make_node(name)
    where = path or "/dev/termination-log"
    code = "import os, sys; open(sys.argv[1], 'w').write('x' * 5000 + os.environ['W']); sys.exit(3)"
    container = {"args": [where], "env": [{"name": "W", "value": where}]}
    container |= {"terminationMessagePath": path} if path else {}
    cluster.pod(name, code, name, restartPolicy="Never", container=container)
    eventually(lambda: cluster.shown(name)[2], "terminated")
    status = plane.request("GET", f"{PODS}/{name}")[1]["status"]
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 3
    assert len(ended["message"]) == 4096
    assert ended["message"].endswith(where)


def test_other_images_are_left_to_kwok(cluster, make_node):
    make_node("other")
    for n, image in enumerate(("nvcr.io/python-tools:1", "pythons", "x/python/y")):
        cluster.pod(f"other-{n}", "x", "other", container={"image": image})
    eventually(lambda: cluster.shown("other-2")[0], "True")
    time.sleep(0.5)
    assert cluster.runner.rows() == []
    for n in range(3):
        cluster.delete(f"other-{n}")
        eventually(lambda n=n: cluster.exists(f"other-{n}"), False)


def test_nvml_is_open_in_a_pod_that_asks_for_it_only(cluster, make_node):
    make_node("gpu", G4DN)
    code = "import ctypes, os; print(ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2());"
    code += "print(ctypes.CDLL(os.environ['GPUSHARE_NVML_LIBRARY']).nvmlInit_v2(), flush=True);"
    code += "import time; time.sleep(600)"
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    cluster.pod("gpu", code, "gpu", container={"env": env})
    cluster.pod("none", code, "gpu")
    # As NVIDIA's plugin does it for whom asks by its resource.
    share = {"limits": {"nvidia.com/gpu.shared": "1"}}
    named = "import os; print(os.environ['NVIDIA_VISIBLE_DEVICES'], flush=True);"
    cluster.pod("share", named + code, "gpu", container={"resources": share})
    eventually(lambda: cluster.said("gpu"), "0\n0\n")
    eventually(lambda: cluster.said("share"), f"{nvml.gpu_uuid('i-gpu', 0)}\n0\n0\n")
    eventually(lambda: "OSError" in cluster.said("none"), True)
    assert os.environ.get("GPUSHARE_NVML_LIBRARY") is None
