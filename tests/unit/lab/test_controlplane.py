"""The control plane as it really runs: versions, stages, death of a child, no trace at the end."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import urllib3
import yaml
from lab_helpers import eventually, node_body

from lab import LabError, processes
from lab.controlplane import ControlPlane
from lab.doors import Doors
from lab.kubeclient import write_merged_kubeconfig
from lab.supervisor import RESTARTS, STABLE_S, Supervisor

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
PODS = "/api/v1/namespaces/default/pods"


def pod(name: str, limits: dict | None = None, **spec: object) -> dict:
    container = {"name": "main", "image": "example/main", "resources": {"limits": limits or {}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], **spec},
    }


def create(plane: ControlPlane, body: dict) -> Callable[[], dict]:
    """Create a pod; a reader of its status."""
    status, answer = plane.request("POST", PODS, body)
    assert status == 201, answer
    path = f"{PODS}/{body['metadata']['name']}"
    return lambda: (plane.request("GET", path)[1] or {}).get("status", {})


def condition(status: dict, kind: str) -> str | None:
    return next((c["status"] for c in status.get("conditions", []) if c["type"] == kind), None)


def test_an_unknown_version_is_refused_before_anything_starts(tmp_path):
    with pytest.raises(LabError, match=r"no Kubernetes 1\.20; it serves 1\.34, 1\.35, 1\.36"):
        ControlPlane("c", "1.20", tmp_path / "c", "http://127.0.0.1:9/")
    assert not (tmp_path / "c").exists()


def test_it_answers_as_admin_and_refuses_an_unknown_token(plane):
    assert plane.healthy
    assert plane.request("GET", "/version")[1]["gitVersion"] == "v1.36.3"
    assert plane.request("GET", "/api/v1/nodes/none")[0] == 404
    stranger = urllib3.PoolManager(cert_reqs="CERT_NONE", assert_hostname=False, retries=False)
    with pytest.warns(urllib3.exceptions.InsecureRequestWarning):
        answer = stranger.request(
            "GET", f"{plane.endpoint}/api/v1/nodes", headers={"Authorization": "Bearer nobody"}
        )
    assert answer.status == 401


def test_a_node_becomes_ready_and_a_pod_runs_on_it(plane, make_node):
    make_node("runs")
    status = create(plane, pod("runs"))
    eventually(lambda: status().get("phase"), "Running")
    assert condition(status(), "Ready") == "True"
    assert status()["podIP"].startswith("100.64.")
    assert status()["hostIP"] == "10.0.0.7"
    plane.request("DELETE", f"{PODS}/runs")
    eventually(lambda: plane.request("GET", f"{PODS}/runs")[0], 404)


def test_capacity_becomes_allocatable_and_the_scheduler_counts_it(plane, make_node):
    key = "gpushare.eks/gpu-memory"
    make_node("counts")

    def patch(operation: dict) -> None:
        path = "/api/v1/nodes/counts/status"
        assert plane.request("PATCH", path, [operation], JSON_PATCH)[0] == 200

    def allocatable() -> dict:
        return plane.request("GET", "/api/v1/nodes/counts")[1]["status"]["allocatable"]

    pointer = f"/status/capacity/{key.replace('/', '~1')}"
    patch({"op": "add", "path": pointer, "value": "14900Mi"})
    eventually(lambda: allocatable().get(key), "14900Mi")
    # What the node keeps for itself is not touched, and what was missing is filled in.
    assert allocatable()["cpu"] == "3920m"
    assert allocatable()["ephemeral-storage"] == "80Gi"

    pods = [create(plane, pod(f"counts-{n}", {key: "5Gi"})) for n in range(3)]
    phases = lambda: sorted(status().get("phase") for status in pods)  # noqa: E731
    eventually(phases, ["Pending", "Running", "Running"])
    waiting = next(status() for status in pods if status()["phase"] == "Pending")
    assert any(key in c.get("message", "") for c in waiting["conditions"])

    patch({"op": "remove", "path": pointer})
    eventually(lambda: key in allocatable(), False)


def test_a_job_ends_and_a_daemon_set_becomes_ready(plane, make_node):
    make_node("works")
    template = {"metadata": {"labels": {"app": "works"}}, "spec": pod("works")["spec"]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "works"},
        "spec": {"template": {"spec": {**template["spec"], "restartPolicy": "Never"}}},
    }
    daemons = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "works"},
        "spec": {"selector": {"matchLabels": {"app": "works"}}, "template": template},
    }
    jobs, sets = (
        "/apis/batch/v1/namespaces/default/jobs",
        "/apis/apps/v1/namespaces/default/daemonsets",
    )
    assert plane.request("POST", jobs, job)[0] == 201
    assert plane.request("POST", sets, daemons)[0] == 201
    eventually(lambda: plane.request("GET", f"{sets}/works")[1]["status"].get("numberReady"), 1)
    eventually(lambda: plane.request("GET", f"{jobs}/works")[1]["status"].get("succeeded"), 1)
    plane.request("DELETE", f"{sets}/works")
    plane.request("DELETE", f"{jobs}/works", {"propagationPolicy": "Background"})


def test_readiness_gates_and_the_hold_annotation_are_respected(plane, make_node):
    make_node("gated")
    gated = create(plane, pod("gated", readinessGates=[{"conditionType": "lab/gate"}]))
    eventually(lambda: gated().get("phase"), "Running")
    assert condition(gated(), "Ready") == "False"
    met = {"status": {"conditions": [{"type": "lab/gate", "status": "True"}]}}
    plane.request("PATCH", f"{PODS}/gated/status", met, "application/strategic-merge-patch+json")
    eventually(lambda: condition(gated(), "Ready"), "True")

    body = pod("held")
    body["metadata"]["annotations"] = {"lab.gpushare.eks/hold": "a test"}
    held = create(plane, body)
    eventually(lambda: condition(held(), "PodScheduled"), "True")
    assert held()["phase"] == "Pending"
    release = {"metadata": {"annotations": {"lab.gpushare.eks/hold": None}}}
    plane.request("PATCH", f"{PODS}/held", release, MERGE)
    eventually(lambda: held().get("phase"), "Running")


def test_a_watch_shows_what_happens_and_a_merged_kubeconfig_names_the_cluster(
    plane, make_node, tmp_path
):
    seen: list[str] = []
    ready = threading.Event()

    def follow() -> None:
        for event in plane.client.follow("/api/v1/nodes"):
            if event["type"] == "SYNC":
                ready.set()
            else:
                seen.append(f"{event['type']} {event['object']['metadata']['name']}")
            if "DELETED watched" in seen:
                return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    assert ready.wait(10)
    make_node("watched")
    plane.request("DELETE", "/api/v1/nodes/watched")
    thread.join(10)
    assert not thread.is_alive()
    assert seen[0] == "ADDED watched"

    merged = tmp_path / "kubeconfig"
    write_merged_kubeconfig(merged, [plane.kubeconfig])
    config = yaml.safe_load(merged.read_text())
    assert config["current-context"] == "unit"
    assert config["clusters"][0]["cluster"]["server"] == plane.endpoint
    assert merged.stat().st_mode & 0o077 == 0


def test_everything_listens_on_loopback_only(plane):
    ours = {str(record["pid"]) for record in processes.read_records(plane.state_dir)}
    assert len(ours) == 5
    sockets = {
        os.readlink(link).removeprefix("socket:[").rstrip("]")
        for pid in ours
        for link in Path(f"/proc/{pid}/fd").iterdir()
        if os.readlink(link).startswith("socket:[")
    }
    addresses = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in sockets:
                addresses.add(fields[1].rpartition(":")[0])
    # 127.0.0.1 in the kernel's own spelling.
    assert addresses == {"0100007F"}


def test_programs_are_killed_and_paused_on_request_as_often_as_one_likes(plane, tmp_path):
    """One cluster with an audit log: what it says, and what its programs do under the doors."""
    state = tmp_path / "doors"
    broken = ControlPlane("doors", "1.36", state, "http://127.0.0.1:9/authn", audit=True)
    broken.start()
    cluster = SimpleNamespace(name="doors", control_plane=broken, record={"status": "ACTIVE"})
    door = Doors(SimpleNamespace(clusters={"doors": cluster}), None).clusters

    def pid(program: str) -> int | None:
        return door(None)["clusters"]["doors"]["programs"][program]["pid"]

    try:
        for _ in range(RESTARTS + 1):
            before = pid("kube-scheduler")
            door({"cluster": "doors", "kill": "kube-scheduler"})
            eventually(lambda before=before: pid("kube-scheduler") not in (None, before), True)
        assert door(None)["clusters"]["doors"]["programs"]["kube-scheduler"]["restarts"] == 0
        assert broken.failures == []

        seen = []
        follower = broken.client.follow("/api/v1/nodes")
        seen.append(next(follower)["type"])
        door({"cluster": "doors", "kill": "kube-apiserver"})
        eventually(lambda: ready(broken), 200)
        assert broken.request("POST", "/api/v1/nodes", node_body("audited"))[0] == 201
        # The watch of before goes on with a list, or resumes where it was.
        event = next(follower)
        items = event.get("items") or [event["object"]]
        assert [item["metadata"]["name"] for item in items] == ["audited"]

        began = time.monotonic()
        door({"cluster": "doors", "pause": 1.5})
        assert broken.request("GET", "/api/v1/nodes/audited")[0] == 200
        assert time.monotonic() - began >= 1.4
        for bad in ({"kill": "nothing"}, {"pause": 1, "program": "nothing"}):
            with pytest.raises(ValueError, match="one of etcd"):
                door({"cluster": "doors", **bad})

        rows = [json.loads(line) for line in broken.audit_log.read_text().splitlines()]
        writes = [r for r in rows if r["verb"] == "create" and r["objectRef"]["name"] == "audited"]
        assert writes[0]["requestObject"]["spec"]["providerID"] == "aws:///us-east-1a/i-audited"
        assert "managedFields" not in writes[0]["responseObject"]["metadata"]
        assert {r["level"] for r in rows if r["verb"] == "watch"} == {"Metadata"}
        assert str(broken.audit_log) == door(None)["clusters"]["doors"]["audit_log"]
    finally:
        broken.stop()
    assert not state.exists()


def ready(plane: ControlPlane) -> int:
    try:
        return plane.request("GET", "/readyz")[0]
    except LabError:
        return 0


def test_a_program_that_dies_again_and_again_is_left_but_not_one_that_ran_long(tmp_path):
    (port,) = processes.free_ports(1)
    commands = {"false": ([], port), "sleep": (["600"], port)}
    run = Supervisor("unit", tmp_path, Path("/bin"), commands)
    run.start("false")
    run.start("sleep")
    run.watch()
    try:
        eventually(lambda: len(run.failures), RESTARTS + 1)
        assert run.rows()["false"] == {"pid": None, "restarts": RESTARTS + 1}
        with pytest.raises(ValueError, match="does not run at this moment"):
            run.kill("false")
        sleeper = run.programs["sleep"]
        sleeper.started_at -= STABLE_S + 1
        child = sleeper.child
        child.kill()
        eventually(lambda: sleeper.child not in (None, child), True)
        assert sleeper.restarts == 0
        assert len(run.failures) == RESTARTS + 2
    finally:
        run.stop_watching()
        for record in processes.read_records(tmp_path):
            processes.end(record)


def test_a_second_cluster_of_an_older_version_survives_a_child_and_leaves_nothing(plane, tmp_path):
    state = tmp_path / "old"
    old = ControlPlane("old", "1.34", state, "http://127.0.0.1:9/authn")
    old.start()
    try:
        assert old.endpoint != plane.endpoint
        version = old.request("GET", "/version")[1]
        assert (version["emulationMajor"], version["emulationMinor"]) == ("1", "34")
        assert old.request("POST", "/api/v1/nodes", node_body("n"))[0] == 201
        records = list(processes.read_records(state))
        scheduler = next(r for r in records if r["name"] == "kube-scheduler")
        os.kill(scheduler["pid"], signal.SIGKILL)
        eventually(lambda: bool(old.failures) and old.healthy, True)
        assert "kube-scheduler ended with code -9" in old.failures[0]
        status = create(old, pod("after"))
        eventually(lambda: status().get("phase"), "Running")
        records = list(processes.read_records(state))
    finally:
        old.stop()
    assert not any(processes.alive(record) for record in records)
    assert not state.exists()
