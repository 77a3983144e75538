"""Fence and guard against a real API server, with real tokens: what is refused, and what is not."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import _agent, _agent_plan
from ansible_collections.gpushare.eks.plugins.module_utils._names import (
    AGENT_NAME,
    ANNOTATION,
    CONDITION,
    RESOURCE,
)

from .support import fence, hostile, rights
from .support.fence import ALLOCATABLE, CAPACITY, JSON_PATCH, MERGE, World, eventually
from .support.hostile import add, remove
from .support.rights import EVENTS, READING, bind, planned, write

# The DaemonSet of the article that typed its number in had these rights.
TYPED_IN = "add-gpu-memory"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with fence.world(tmp_path_factory.mktemp("fence") / "state") as made:
        yield made


@pytest.fixture(scope="module")
def tokens(world: World) -> dict[str, fence.Caller]:
    """The agents of three nodes, and the agent's account with a token that is bound to nothing."""
    callers = {"": world.bearer(world.token(AGENT_NAME, fence.NAMESPACE))}
    for name, kind in (("own", fence.TYPE), ("other", fence.TYPE), ("odd", "p9.unknown")):
        callers[name] = world.agent(world.make_node(name, kind))
    return callers


@pytest.fixture
def node(world: World) -> Iterator[Callable[..., str]]:
    """node(name, **status): a node of one test."""
    names: list[str] = []

    def make(name: str, **status: Any) -> str:
        names.append(world.make_node(name, **status))
        return name

    yield make
    for name in names:
        world.delete_node(name)


def stands(world: World, name: str) -> tuple[str | None, str | None]:
    status = world.node(name)["status"]
    return status["capacity"].get(RESOURCE), status["allocatable"].get(RESOURCE)


# -- hostile writes ---------------------------------------------------------------------------


@pytest.mark.parametrize("case", hostile.CASES, ids=lambda case: case[0])
def test_a_stolen_token_cannot_change(world: World, tokens: dict, case: hostile.Case) -> None:
    _name, refused_by, caller, method, path, body, kind = case
    before = [world.seen(name) for name in ("own", "other", "odd")]
    status, said = tokens[caller].send(method, path, body, kind)
    assert status == {"fence": 403, "rbac": 403, "api": 422}[refused_by], said
    if refused_by == "fence":
        assert "gpushare-agent-fence" in said
        assert "Remedy: " in said
    assert [world.seen(name) for name in ("own", "other", "odd")] == before
    assert world.plane.request("GET", "/api/v1/nodes/made")[0] == 404


def test_the_token_ends_with_its_pod(world: World, node: Callable[..., str]) -> None:
    agent = world.agent(node("ended"))
    meta = world.agent_pod("ended")["metadata"]
    path = f"/api/v1/namespaces/{fence.NAMESPACE}/pods/{meta['name']}"
    world.admin("DELETE", path, {"gracePeriodSeconds": 0})
    assert write(agent, "ended", add(CAPACITY, "1Gi"))[0] == 401


# -- what the agent does ----------------------------------------------------------------------


def test_the_agent_publishes_and_takes_its_taint_away(
    world: World, node: Callable[..., str]
) -> None:
    agent, path = world.agent(node("joins")), "/api/v1/nodes/joins"
    first = planned(world, "joins")
    assert first.spec
    status, said = write(agent, "joins", *first.status)
    assert status == 200, said
    status, said = agent.send("PATCH", path, first.spec, JSON_PATCH)
    assert status == 200, said
    assert said["spec"]["taints"] == [fence.SHARED, fence.WHOLE]
    again = planned(world, "joins")
    assert (again.status, again.spec, again.reason) == ([], [], _agent_plan.PUBLISHED)
    event = _agent.event(world.node("joins"), again, "joins")
    status, said = agent.send("POST", EVENTS, event)
    assert status == 201, said


@pytest.mark.parametrize("lie", ["0", "99Gi"], ids=["zeroed by the kubelet", "a lie"])
def test_the_agent_puts_right_what_others_wrote(
    world: World, node: Callable[..., str], lie: str
) -> None:
    agent = world.agent(node("mended"))
    assert write(agent, "mended", *planned(world, "mended").status)[0] == 200
    path = "/api/v1/nodes/mended/status"
    world.admin("PATCH", path, [add(CAPACITY, lie), add(ALLOCATABLE, lie)], JSON_PATCH)
    # It may say what it sees before it can mend it.
    said = {"type": CONDITION, "status": "False", "reason": "AgentImplausible"}
    index = next(
        i
        for i, c in enumerate(world.node("mended")["status"]["conditions"])
        if c["type"] == CONDITION
    )
    assert (
        write(agent, "mended", {**add(f"/status/conditions/{index}", said), "op": "replace"})[0]
        == 200
    )
    assert write(agent, "mended", *planned(world, "mended").status)[0] == 200
    assert stands(world, "mended") == ("14848Mi", "14848Mi")


def test_the_agent_withdraws(world: World, node: Callable[..., str]) -> None:
    agent = world.agent(node("lost"))
    assert write(agent, "lost", *planned(world, "lost").status)[0] == 200
    lost = {**READING, "error": {"type": "GPU_IS_LOST", "code": 15, "message": "lost"}, "gpus": []}
    status, said = write(agent, "lost", *planned(world, "lost", lost).status)
    assert status == 200, said
    assert stands(world, "lost") == (None, None)
    assert ANNOTATION not in said["metadata"]["annotations"]


def test_all_of_the_hardware_may_be_published(world: World, node: Callable[..., str]) -> None:
    agent = world.agent(node("whole"))
    assert write(agent, "whole", add(CAPACITY, "16Gi"), add(ALLOCATABLE, "16Gi"))[0] == 200


def test_a_type_without_a_bound_can_still_say_why(world: World, tokens: dict) -> None:
    assert "p9.unknown" in planned(world, "odd").message
    assert write(tokens["odd"], "odd", *planned(world, "odd").status)[0] == 200


def test_a_large_node_is_within_the_cost_that_an_api_server_grants(
    world: World, node: Callable[..., str]
) -> None:
    names = [f"registry.example.com/{'a' * 60}/image" + ":" + "b" * 60 for _ in range(5)]
    images = [{"names": names, "sizeBytes": n} for n in range(100)]
    foreign = {f"other-{n}.example/resource": "1" for n in range(100)}
    sizes = {"cpu": "192", "memory": "2Ti", "pods": "250", **foreign}
    agent = world.agent(node("large", images=images, capacity=sizes, allocatable=sizes))
    many = {f"example.com/{n}": "x" * 60 for n in range(150)}
    metadata = {"labels": many, "annotations": dict.fromkeys(many, "x" * 1000)}
    world.admin("PATCH", "/api/v1/nodes/large", {"metadata": metadata}, MERGE)
    volumes = [{"name": f"v{n}", "devicePath": f"/dev/{n}"} for n in range(100)]
    world.admin(
        "PATCH", "/api/v1/nodes/large/status", {"status": {"volumesAttached": volumes}}, MERGE
    )
    status, said = write(agent, "large", *planned(world, "large").status)
    assert status == 200, said
    status, said = write(agent, "large", add("/status/capacity/cpu", "400"))
    assert status == 403, said
    assert "change resources of Node large" in said


# -- who else may write the number ------------------------------------------------------------


@pytest.fixture(scope="module")
def typed_in(world: World) -> fence.Caller:
    """The account of a DaemonSet that types its number in, with the rights that it asks for."""
    account = {"metadata": {"name": TYPED_IN}}
    world.admin("POST", "/api/v1/namespaces/kube-system/serviceaccounts", account)
    rules = [
        {"apiGroups": ["*"], "resources": ["nodes"], "verbs": ["get", "list", "create"]},
        {"apiGroups": ["*"], "resources": ["nodes/status"], "verbs": ["patch"]},
    ]
    world.admin("POST", f"{fence.RBAC}/clusterroles", {**account, "rules": rules})
    bind(world, TYPED_IN, TYPED_IN, "ServiceAccount", TYPED_IN, namespace="kube-system")
    return world.bearer(world.token(TYPED_IN, "kube-system"))


@pytest.mark.parametrize(
    "operation",
    [add(CAPACITY, "15079Mi"), add(ALLOCATABLE, "15079Mi"), remove(CAPACITY)],
    ids=["typed in", "typed into allocatable", "removed"],
)
def test_a_number_that_is_typed_in_is_refused_with_the_remedy(
    world: World, typed_in: fence.Caller, node: Callable[..., str], operation: dict
) -> None:
    node("guarded")
    if operation["op"] == "remove":
        world.admin("PATCH", "/api/v1/nodes/guarded/status", [add(CAPACITY, "1Gi")], JSON_PATCH)
    status, said = write(typed_in, "guarded", operation)
    assert status == 403
    for part in (
        f"kube-system:{TYPED_IN}",
        RESOURCE,
        "node guarded",
        AGENT_NAME,
        "gpushare:publishers",
    ):
        assert part in said
    # The guard is about our resource: whatever else they may by RBAC is theirs.
    assert (
        write(typed_in, "guarded", add(fence.pointer("status", "capacity", "x.example/y"), "1"))[0]
        == 200
    )


def test_a_node_cannot_join_with_a_number(world: World, typed_in: fence.Caller) -> None:
    made = {"metadata": {"name": "made"}, "status": {"capacity": {RESOURCE: "15079Mi"}}}
    status, said = typed_in.send("POST", "/api/v1/nodes", made)
    assert status == 403
    assert "node made" in said
    without = {**made, "status": {"capacity": {"cpu": "4"}}}
    assert typed_in.send("POST", "/api/v1/nodes", without)[0] == 201
    world.delete_node("made")


def test_a_kubelet_writes_its_own_node_and_no_other(world: World, node: Callable[..., str]) -> None:
    # EKS authorises kubelets by their node; here RBAC lets them, and the guard alone tells which.
    bind(world, "kubelets", "system:node", "Group", "system:nodes")
    user = f"system:node:{node('kept')}"
    assert (
        eventually(
            lambda: write(world.as_user(user, "system:nodes"), "kept", add(CAPACITY, "0"))[0]
        )
        == 200
    )
    assert write(world.as_user(user, "system:nodes"), "kept", remove(CAPACITY))[0] == 200
    node("elsewhere")
    status, said = write(world.as_user(user, "system:nodes"), "elsewhere", add(CAPACITY, "1Gi"))
    assert status == 403
    assert f"{user} may not write" in said
    joins = {"metadata": {"name": "kubelet"}, "status": {"capacity": {RESOURCE: "1Gi"}}}
    assert (
        world.as_user("system:node:kubelet", "system:nodes").send("POST", "/api/v1/nodes", joins)[0]
        == 201
    )
    world.delete_node("kubelet")


def test_an_administrator_writes_it(world: World, node: Callable[..., str]) -> None:
    node("admin")
    bind(world, "alice", "cluster-admin", "User", "alice")
    alice = world.as_user("alice", "people")
    assert eventually(lambda: write(alice, "admin", add(CAPACITY, "1Gi"))[0] == 200)


# -- every right is needed --------------------------------------------------------------------


def test_each_right_is_needed_and_no_other_is_given(world: World, node: Callable[..., str]) -> None:
    acts, granted = rights.honest(world, node("rights")), rights.granted(world)
    assert granted.keys() == acts.keys()
    for (path, resource, verb), rule in granted.items():
        act = acts[path, resource, verb]
        assert act()[0] in (200, 201), (resource, verb)
        with rights.without(world, path, rule, verb):
            # The authorizer hears of it a moment later.
            assert eventually(lambda act=act: act()[0] == 403), (path, resource, verb)
        assert eventually(lambda act=act: act()[0] in (200, 201)), (path, resource, verb)


# -- nobody else ------------------------------------------------------------------------------


def test_no_kubelet_and_no_controller_was_refused(world: World) -> None:
    """All that the API server refused here by our policies was refused to whom this file tried."""
    refused: dict[str, int] = {}
    seen = set()
    for line in (world.plane.state_dir / "audit.log").read_text().splitlines():
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            user = (entry.get("impersonatedUser") or entry["user"]).get("username")
            seen.add(user)
            if "ValidatingAdmissionPolicy" in str(entry.get("responseStatus", {}).get("message")):
                refused[user] = refused.get(user, 0) + 1
    assert {
        "system:kube-controller-manager",
        "system:serviceaccount:kube-system:node-controller",
    } & seen
    agent = f"system:serviceaccount:{fence.NAMESPACE}:{AGENT_NAME}"
    tried = {
        agent,
        f"system:serviceaccount:kube-system:{TYPED_IN}",
        "system:node:kept",
        "ci",
        "alice",
    }
    assert refused.keys() <= tried
    assert refused[agent] >= sum(case[1] == "fence" for case in hostile.CASES)
