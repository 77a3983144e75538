"""A real control plane goes from 1.34 over 1.35 to 1.36, and keeps what it holds."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from lab_helpers import eventually, node_body

from lab import LabError, build
from lab.controlplane import ControlPlane

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def plane(tmp_path: Path):
    """A control plane of its own, in the oldest version; skipped where none was ever built."""
    try:
        build.binaries()
    except LabError as error:
        pytest.skip(str(error))
    made = ControlPlane("old", "1.34", tmp_path / "state", "http://127.0.0.1:9/authn")
    made.start()
    yield made
    made.stop()


def emulated(plane: ControlPlane) -> str:
    version = plane.request("GET", "/version")[1]
    minor = version.get("emulationMinor", version["minor"])
    return f"{version.get('emulationMajor', version['major'])}.{minor}"


def uid(plane: ControlPlane, path: str) -> str:
    status, found = plane.request("GET", path)
    assert status == 200, found
    return found["metadata"]["uid"]


def test_one_minor_after_the_other_with_everything_kept(plane):
    assert plane.request("POST", "/api/v1/nodes", node_body("n"))[0] == 201
    kept = {"metadata": {"name": "kept"}, "data": {"a": "b"}}
    assert plane.request("POST", MAPS, kept)[0] == 201
    # It waits for more CPU than any node has, so that it is the same pod at the end.
    wants = {"requests": {"cpu": "64"}}
    containers = [{"name": "main", "image": "example/main", "resources": wants}]
    pod = {"metadata": {"name": "waits"}, "spec": {"containers": containers}}
    assert plane.request("POST", PODS, pod)[0] == 201
    paths = ("/api/v1/nodes/n", f"{MAPS}/kept", f"{PODS}/waits")
    before = {path: uid(plane, path) for path in paths}
    endpoint, ca = plane.endpoint, plane.ca_data
    seen: list[str] = []

    def follow() -> None:
        for event in plane.client.follow(MAPS):
            seen.append(event.get("object", {}).get("metadata", {}).get("name", event["type"]))
            if seen[-1] == "of-1.36":
                return

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    eventually(lambda: bool(seen), True)
    assert emulated(plane) == "1.34"
    for version in ("1.35", "1.36"):
        etcd = plane.programs.rows()["etcd"]["pid"]
        plane.upgrade(version)
        assert (plane.version, emulated(plane)) == (version, version)
        for program in ("kube-controller-manager", "kube-scheduler"):
            flags = " ".join(plane.programs.programs[program].arguments)
            assert ("--emulated-version" in flags) is (version == "1.35")
        assert plane.programs.rows()["etcd"]["pid"] == etcd
        assert {path: uid(plane, path) for path in paths} == before
        assert plane.request("POST", MAPS, {"metadata": {"name": f"of-{version}"}})[0] == 201
        # Scheduler and controllers work on: an account in a new namespace, a pod on the node.
        name = f"ns-{version.replace('.', '-')}"
        assert plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})[0] == 201
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        eventually(lambda account=account: plane.request("GET", account)[0], 200)
        where = f"/api/v1/namespaces/{name}/pods"
        runs = {"metadata": {"name": "runs"}, "spec": {"containers": [{"name": "m", "image": "m"}]}}
        assert plane.request("POST", where, runs)[0] == 201
        eventually(
            lambda where=where: plane.request("GET", f"{where}/runs")[1]["status"].get("phase"),
            "Running",
        )
    follower.join(10)
    assert not follower.is_alive()
    assert (plane.endpoint, plane.ca_data) == (endpoint, ca)
    # What was ended on purpose is no failure, and nothing counts as a restart.
    assert plane.healthy
    assert plane.failures == []
    assert {row["restarts"] for row in plane.programs.rows().values()} == {0}


def test_a_version_that_the_lab_does_not_have_changes_nothing(plane):
    with pytest.raises(LabError, match=r"no Kubernetes 1\.37; it serves 1\.34, 1\.35, 1\.36"):
        plane.upgrade("1.37")
    assert plane.version == emulated(plane) == "1.34"
