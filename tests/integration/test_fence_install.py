"""Installed on an older API server, removed and installed again, without parts, switched off."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils._names import RESOURCE

from .support import admission, fence, playbook
from .support.fence import CAPACITY, JSON_PATCH, World, eventually
from .support.hostile import add
from .support.rights import POLICY, planned, write

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
CPU = add("/status/capacity/cpu", "400")


DIGEST = "sha256:" + "0123456789abcdef" * 4


def _container(world: World) -> dict[str, Any]:
    """The agent's container as its DaemonSet has it."""
    path = f"/apis/apps/v1/namespaces/{fence.NAMESPACE}/daemonsets/gpushare-agent"
    (container,) = world.admin("GET", path)["spec"]["template"]["spec"]["containers"]
    return container


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The oldest Kubernetes that is served."""
    with fence.world(tmp_path_factory.mktemp("old") / "state", "1.34") as made:
        yield made


def test_an_older_api_server_enforces_the_same(old: World) -> None:
    agent = old.agent(old.make_node("own"))
    assert write(agent, "own", *planned(old, "own").status)[0] == 200
    assert write(agent, "own", CPU)[0] == 403
    assert write(agent, "own", add(CAPACITY, "17Gi"))[0] == 403


def test_the_type_checker_has_nothing_to_say(old: World) -> None:
    names = [item["metadata"]["name"] for item in old.admin("GET", f"{POLICIES}ies")["items"]]
    assert {"gpushare-agent-fence", "gpushare-resource-guard", "gpushare-request-size"} < {*names}
    for name in names:
        path = f"{POLICIES}ies/{name}"
        status = eventually(lambda path=path: old.admin("GET", path).get("status"))
        assert status["typeChecking"] == {}, status


def test_an_older_api_server_looks_at_pods(old: World) -> None:
    made = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    path = "/api/v1/namespaces/default/pods?dryRun=All"
    made["spec"]["hostPID"] = True
    status, said = old.plane.request("POST", path, made)
    assert status == 403
    assert "gpushare-host-access" in said["message"]
    del made["spec"]["hostPID"]
    resources = {"limits": {RESOURCE: "1Gi"}, "requests": {RESOURCE: "1Gi"}}
    made["spec"]["containers"][0]["resources"] = resources
    status, said = old.plane.request("POST", path, made)
    assert status == 201
    assert said["spec"]["containers"][0]["resources"] == resources  # nobody wrote the rest


def test_a_cluster_without_its_version_is_asked_what_it_serves(old: World) -> None:
    asked = old.install("-e", json.dumps({"eks_result": admission.GIVEN}))
    assert asked.recap["changed"] == 0
    told = " ".join(asked.output.split())
    assert "(Kubernetes before 1.36) serves no MutatingAdmissionPolicy" in told


def test_a_second_run_changes_nothing(old: World) -> None:
    again = old.install()
    assert again.recap["changed"] == 0
    told = " ".join(again.output.split())
    assert "(Kubernetes 1.34) serves no MutatingAdmissionPolicy: only the filter" in told
    assert old.install("--check").recap["changed"] == 0


def test_the_code_in_the_cluster_is_whole(old: World, tmp_path: Path) -> None:
    """Run as the container runs it, from nothing but what its volumes hold."""
    path = f"/api/v1/namespaces/{fence.NAMESPACE}/configmaps/gpushare-agent-code"
    files = old.admin("GET", path)["data"]
    container = _container(old)
    assert container["image"] == "public.ecr.aws/docker/library/python:3.13-slim"
    (mount,) = [one for one in container["volumeMounts"] if one["name"] == "code"]
    root = {one["name"]: one.get("value") for one in container["env"]}["PYTHONPATH"]
    folder = tmp_path / Path(mount["mountPath"]).relative_to(root)
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
        original = playbook.ROOT / "plugins/module_utils" / name
        assert text == original.read_text()
    # Without site packages: the image is a stock one. Without NODE_NAME it says so and ends.
    line = [sys.executable, "-S", *container["command"][1:]]
    done = subprocess.run(
        line, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("not set: NODE_NAME")


@pytest.mark.parametrize(
    ("variables", "image"),
    [
        (
            {
                "gpushare_image_registry": "mirror.example:5000/all/",
                "gpushare_image_digests": {"public.ecr.aws/docker/library/python": DIGEST},
            },
            f"mirror.example:5000/all/docker/library/python:3.13-slim@{DIGEST}",
        ),
        (
            {"device_plugin_agent_image": f"registry.example:5000/python@{DIGEST}"},
            f"registry.example:5000/python@{DIGEST}",
        ),
    ],
    ids=["mirror and digest", "an image of one's own"],
)
def test_the_image_comes_from_where_it_shall(
    old: World, variables: dict[str, Any], image: str
) -> None:
    old.install("-e", json.dumps(variables))
    assert _container(old)["image"] == image


def test_the_policies_work_after_removal_and_return(old: World) -> None:
    """A policy with parameters would not: it never reads them again (kubernetes#130887)."""
    for kind in ("ybindings", "ies"):
        for item in old.admin("GET", POLICIES + kind)["items"]:
            if item["metadata"]["name"].startswith("gpushare-"):
                old.admin("DELETE", f"{POLICIES}{kind}/{item['metadata']['name']}")
    old.admin("DELETE", POLICY)
    agent = old.agent("own")
    time.sleep(2)  # what is removed is forgotten within the second
    assert old.install().recap["changed"] == 1
    numbers = iter(range(400, 1000))
    eventually(lambda: write(agent, "own", {**CPU, "value": str(next(numbers))})[0] == 403)
    assert write(agent, "own", add(CAPACITY, "1Gi"))[0] == 200


def test_without_the_policy_a_cluster_goes_on(old: World) -> None:
    """Nothing that somebody deletes by hand may keep a kubelet from its node, or a node out."""
    old.admin("DELETE", POLICY)
    time.sleep(1)
    path = "/api/v1/nodes/own/status"
    old.admin("PATCH", path, [add("/status/capacity/cpu", "8")], JSON_PATCH)
    old.admin("POST", "/api/v1/nodes", {"metadata": {"name": "joins"}})
    old.delete_node("own")
    old.delete_node("joins")


def test_switched_off_the_agent_goes_and_the_guard_stays(old: World) -> None:
    # Taken away; and the policy, which the test before deleted, is back.
    assert old.install("-e", "gpushare_agent=false").recap["changed"] == 2
    names = {item["metadata"]["name"] for item in old.admin("GET", f"{POLICIES}ies")["items"]}
    assert "gpushare-agent-fence" not in names
    assert {"gpushare-resource-guard", "gpushare-request-size"} <= names
    apps = f"/apis/apps/v1/namespaces/{fence.NAMESPACE}/daemonsets"
    assert old.admin("GET", apps)["items"] == []
    roles = old.admin("GET", f"{fence.RBAC}/clusterroles")["items"]
    ours = {item["metadata"]["name"] for item in roles} & {"gpushare-agent", "gpushare-publisher"}
    assert ours == {"gpushare-publisher"}
    assert old.install("-e", "gpushare_agent=false").recap["changed"] == 0
