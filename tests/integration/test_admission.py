"""Guards, mutation and team quotas through a real API server: every verdict, and what it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import _shares
from ansible_collections.gpushare.eks.plugins.module_utils._names import (
    POOL_LABEL,
    RESOURCE,
)

from .support import admission
from .support.admission import DERIVED, NUMBERS, OLD, QUOTAS, SHARE, TEAM, Admission, asks, box, pod
from .support.fence import MERGE, eventually
from .support.pods import CASES, Case

POLICIES = "/apis/admissionregistration.k8s.io/v1"
LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
HOST_PID = pod(hostPID=True)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admission]:
    with admission.world(tmp_path_factory.mktemp("admission") / "state") as made:
        yield made


# -- guards ------------------------------------------------------------------------------------


def test_the_table_is_long_enough() -> None:
    assert len(CASES) >= 40
    guards = {"visible-devices", "whole-gpu", "host-access", "privileged", "request-size"}
    assert {case[3] for case in CASES} == {None, "foreign-share", "uncounted-share", *guards}


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case[0]}: {'refused' if case[3] else 'allowed'}"
)
def test_a_pod(world: Admission, case: Case) -> None:
    _name, namespace, tried, guard, remedy = case
    status, said = world.dry(tried, namespace)
    if guard is None:
        assert status == 201, said
        return
    assert status == 403, said
    assert f"ValidatingAdmissionPolicy 'gpushare-{guard}'" in said
    assert "Pod tried" in said
    assert "Remedy: " in said
    assert remedy in said


def test_the_type_checker_has_nothing_to_say(world: Admission) -> None:
    items = world.admin("GET", f"{POLICIES}/validatingadmissionpolicies")["items"]
    names = [item["metadata"]["name"] for item in items]
    assert len(names) == 9, names
    for name in names:
        path = f"{POLICIES}/validatingadmissionpolicies/{name}"
        status = eventually(lambda path=path: world.admin("GET", path).get("status"))
        assert status["typeChecking"] == {}, (name, status)


def test_a_large_pod_is_within_the_cost_that_an_api_server_grants(world: Admission) -> None:
    env = {f"VARIABLE_{n}": "x" * 200 for n in range(100)}
    boxes = [box(f"c{n}", env=env, resources=asks("100Mi")) for n in range(30)]
    mounts = [{"name": f"v{n}", "hostPath": {"path": "/a" * 50}} for n in range(60)]
    tolerations = [{"key": f"k{n}", "operator": "Exists"} for n in range(50)]
    many = {"initContainers": [box("init", env=env)], "volumes": mounts}
    status, said = world.dry(pod(*boxes, tolerations=tolerations, **many))
    assert status == 201, said
    status, said = world.dry(pod(*boxes, tolerations=tolerations, hostPID=True, **many))
    assert status == 403, said


def test_an_ephemeral_container_is_looked_at(world: Admission) -> None:
    for name, resources in (("debugged", {}), ("sharing", asks("1Gi"))):
        status, said = world.make(pod(box(resources=resources), name=name))
        assert status == 201, said

    def adds(name: str, **fields: Any) -> tuple[int, Any]:
        body = {"spec": {"ephemeralContainers": [box("debug", **fields)]}}
        return world.patch(name, body, "/ephemeralcontainers")

    sees, root = {"NVIDIA_VISIBLE_DEVICES": "all"}, {"privileged": True}
    assert adds("debugged") == (200, None)
    status, said = adds("debugged", env=sees)
    assert status == 403
    assert "container debug sets NVIDIA_VISIBLE_DEVICES" in said
    assert adds("sharing", env=sees) == (200, None)
    assert adds("debugged", securityContext=root) == (200, None)
    status, said = adds("sharing", securityContext=root)
    assert status == 403
    assert "gpushare-privileged" in said


def test_a_change_of_a_pod_is_looked_at(world: Admission) -> None:
    privileged = box(securityContext={"privileged": True})
    status, made = world.make(pod(privileged, name="pending"))
    assert status == 201, made
    # Those that are there may not go.
    more = [*made["spec"]["tolerations"], {"key": "harmless", "operator": "Exists"}]
    assert world.patch("pending", {"spec": {"tolerations": more}}) == (200, None)
    more = [*more, {"operator": "Exists"}]
    status, said = world.patch("pending", {"spec": {"tolerations": more}})
    assert status == 403
    assert "tolerates the taint gpushare.eks/shared" in said


def test_a_pod_that_was_there_before_can_be_labelled_and_ended(world: Admission) -> None:
    path = f"/api/v1/namespaces/{OLD}/pods/older"
    world.admin("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, MERGE)
    status, said = world.patch(
        "older", {"spec": {"containers": [box(image="other")]}}, namespace=OLD
    )
    assert status == 403
    assert "Remedy: " in said
    world.admin("DELETE", path, {"gracePeriodSeconds": 0})


def test_a_template_is_warned_of_and_its_pods_are_refused(world: Admission) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments"
    assert world.warnings(path, admission.deployment(pod())) == (201, "")
    status, said = world.warnings(path, admission.deployment(HOST_PID))
    assert status == 201
    assert "Deployment tried: hostPID reaches" in said
    cron = {"schedule": "@daily", "jobTemplate": {"spec": {"template": {"spec": {
        "restartPolicy": "Never", **HOST_PID["spec"]}}}}}  # fmt: skip
    status, said = world.warnings(
        "/apis/batch/v1/namespaces/default/cronjobs", {"metadata": {"name": "c"}, "spec": cron}
    )
    assert status == 201
    assert "CronJob c: hostPID reaches" in said
    world.admin("POST", path, admission.deployment(HOST_PID))

    def told() -> str | None:
        events = world.admin("GET", "/api/v1/namespaces/default/events")["items"]
        return next((e["message"] for e in events if e["reason"] == "FailedCreate"), None)

    assert "Remedy: leave it out" in eventually(told)
    world.admin("DELETE", f"{path}/tried")


# -- mutation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", NUMBERS, ids=lambda case: case[0])
def test_the_mutation_writes_what_the_filter_writes(world: Admission, case: tuple) -> None:
    _name, number, pool, percent = case
    wanted = _shares.workload(number, derived=DERIVED, pool=pool, gpu_compute_percent=percent)
    status, made = world.dry(admission.tried(number, pool, percent))
    assert status == 201, made
    (one,) = made["spec"]["containers"]
    for part in ("limits", "requests"):
        assert admission.plain(one["resources"][part]) == admission.plain(wanted["resources"][part])
    assert one.get("env", []) == wanted["env"]
    assert admission.own(made) == sorted(wanted["tolerations"], key=str)
    assert made["spec"].get("nodeSelector", {}) == wanted["node_selector"]
    # A second time, as after another webhook, or when the filter wrote the template: the same.
    again = pod(**{**made["spec"], "containers": [one]}, annotations=made["metadata"].get(
        "annotations", {}))  # fmt: skip
    again["spec"].pop("serviceAccountName", None)
    status, same = world.dry(again)
    assert status == 201, same
    assert same["spec"] == made["spec"]


@pytest.mark.parametrize("pool", [None, "slices", "mps", "turns", "gone"])
def test_guard_and_filter_refuse_the_same_numbers(world: Admission, pool: str | None) -> None:
    for number in ("1Mi", "1Gi", "3840Mi", "3841Mi", "14848Mi", "14849Mi", "29696Mi", "1Ti"):
        try:
            _shares.workload(number, derived=DERIVED, pool=pool)
            fits = True
        except _shares.ShareError:
            fits = False
        status, said = world.dry(admission.tried(number, pool, None))
        assert (status == 201) is fits, (number, pool, said)


@pytest.mark.parametrize(
    ("there", "then"),
    [
        ("0=9G", "0=3072M"),
        ("0=3073M", "0=3072M"),
        ("0=3072M", "0=3072M"),
        ("0=1G", "0=1G"),
        ("0=512M", "0=512M"),
        ("0=1G;1=9G", "0=3072M"),
        ("", "0=3072M"),
    ],
)
def test_a_limit_that_is_there_may_only_be_tighter(world: Admission, there: str, then: str) -> None:
    env = {"BEFORE": "1", LIMIT: there, "AFTER": "2"}
    status, made = world.dry(admission.tried("3Gi", "mps", None, env=env))
    assert status == 201, made
    (one,) = made["spec"]["containers"]
    assert {e["name"]: e.get("value") for e in one["env"]} == {**env, LIMIT: then}


def test_each_container_gets_its_own_and_the_others_stay(world: Admission) -> None:
    env = [{"name": "TWICE", "value": "1"}, {"name": "TWICE", "value": "2"}]
    ports = [{"containerPort": 80, "name": "a"}, {"containerPort": 80, "name": "b"}]
    plain = box("plain", resources={"limits": {"cpu": "1"}}, ports=ports)
    tried = pod(
        plain,
        {**box("large", resources=asks("2Gi")), "env": env},
        box("request", resources={"requests": {RESOURCE: "1Gi"}}),
        initContainers=[box("warm", resources=asks("512Mi")), box("copies")],
        nodeSelector={POOL_LABEL: "mps"},
    )
    status, made = world.dry(tried)
    assert status == 201, made
    boxes = [*made["spec"]["containers"], *made["spec"]["initContainers"]]
    assert [one["name"] for one in boxes] == ["plain", "large", "request", "warm", "copies"]
    found = {one["name"]: one for one in boxes}
    for name, mib in (("large", 2048), ("request", 1024), ("warm", 512)):
        limits = found[name]["resources"]["limits"]
        assert admission.plain(limits) == {RESOURCE: mib * 1048576, SHARE: 1}
        assert limits == found[name]["resources"]["requests"]
        assert {"name": LIMIT, "value": f"0={mib}M"} in found[name]["env"]
    assert found["large"]["env"][:2] == env
    assert found["plain"]["resources"]["limits"] == {"cpu": "1"}
    assert [port["name"] for port in found["plain"]["ports"]] == ["a", "b"]
    for name in ("plain", "copies"):
        assert "env" not in found[name]
        assert SHARE not in str(found[name])


@pytest.mark.parametrize(
    "resources",
    [{}, asks("0"), asks("1", SHARE), {"limits": {"cpu": "1"}}],
    ids=["no resource", "0 of it", "the plugin's share", "another resource"],
)
def test_a_pod_without_the_resource_stays_as_it_is(world: Admission, resources: dict) -> None:
    status, made = world.dry(admission.tried("", "turns", 20, resources=resources))
    assert status == 201, made
    (one,) = made["spec"]["containers"]
    limits = resources.get("limits", {})
    assert one["resources"] == ({"limits": limits, "requests": limits} if limits else {})
    assert "env" not in one
    assert admission.own(made) == []


# -- quotas of teams ---------------------------------------------------------------------------


def _quotas(world: Admission) -> dict[str, Any]:
    items = world.admin("GET", f"/api/v1/namespaces/{TEAM}/resourcequotas")["items"]
    return {item["metadata"]["name"]: item["spec"]["hard"] for item in items}


def test_a_team_has_so_much_and_no_more(world: Admission) -> None:
    assert _quotas(world) == {"gpushare-gpu-memory": {f"requests.{RESOURCE}": "6Gi"}}
    for name in ("first", "second"):
        share = pod(box(resources=asks("3Gi")), name=name)
        # Until the controller has counted, quota admission asks to try again.
        status, said = eventually(
            lambda share=share: (found := world.make(share, TEAM))[0] != 403 and found
        )
        assert status == 201, said
    status, said = world.make(pod(box(resources=asks("1Mi")), name="third"), TEAM)
    assert status == 403
    assert "exceeded quota: gpushare-gpu-memory" in said
    # No LimitRange: what asks for no GPU is none of the quota's business.
    assert world.make(pod(name="plain"), TEAM)[0] == 201


def test_a_second_run_changes_nothing_also_where_the_version_is_not_told(world: Admission) -> None:
    again = world.guarded(eks_result=admission.GIVEN)
    assert again.recap["changed"] == 0, again
    assert "serves no" not in again.output


def test_what_is_switched_off_goes_and_the_rest_stays(world: Admission) -> None:
    theirs = {"metadata": {"name": "theirs"}, "spec": {"hard": {"pods": "100"}}}
    world.admin("POST", f"/api/v1/namespaces/{TEAM}/resourcequotas", theirs)
    off = {
        "gpushare_guards": {"host_access": False, "request_size": False},
        "device_plugin_mutation": False,
        "gpushare_team_quotas": [],
    }
    run = world.guarded(**off)
    assert run.recap["changed"] > 0
    assert _quotas(world) == {"theirs": {"pods": "100"}}
    world.refuses(HOST_PID, whether=False)
    world.refuses(pod(box(resources=asks("40Gi"))), whether=False)
    share = pod(box(resources=asks("1Gi")))
    eventually(lambda: SHARE not in str(world.dry(share)[1]))
    status, said = world.dry(pod(box(env={"NVIDIA_VISIBLE_DEVICES": "all"})))
    assert status == 403, said
    # A maximum of a team is a rule of its own, whatever the switch of request_size says.
    again = world.guarded(**{**off, "gpushare_team_quotas": QUOTAS})
    assert again.recap["changed"] == 1, again  # applied; there was nothing left to take away
    large = pod(box(resources=asks("5Gi")))
    eventually(lambda: "max_per_pod" in str(world.dry(large, TEAM)[1]))
    assert world.dry(large)[0] == 201
