"""What agent and publisher do with each right that the role gives them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils import _agent_plan
from ansible_collections.gpushare.eks.plugins.module_utils._names import AGENT_NAME

from . import hostile
from .fence import CAPACITY, JSON_PATCH, MERGE, NAMESPACE, NODE_INFO, RBAC, STARTUP, Caller, World

READING = {
    "schema": 1,
    "boot_id": NODE_INFO["bootID"],
    "driver": "580.95.05",
    "time": "2026-01-01T00:00:00Z",
    "error": None,
    "gpus": [{"uuid": "GPU-0", "total_mib": 15360, "reserved_mib": 450, "error": None}],
}
NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
EVENTS = "/api/v1/namespaces/default/events"
POLICY = f"/api/v1/namespaces/{NAMESPACE}/configmaps/gpushare-policy"
AGENT_ROLE = f"{RBAC}/clusterroles/{AGENT_NAME}"
EVENT_ROLE = f"{RBAC}/namespaces/default/roles/{AGENT_NAME}"
PUBLISHER_ROLE = f"{RBAC}/clusterroles/gpushare-publisher"
POLICY_ROLE = f"{RBAC}/namespaces/{NAMESPACE}/roles/gpushare-publisher"
ROLES = (AGENT_ROLE, EVENT_ROLE, PUBLISHER_ROLE, POLICY_ROLE)
Act = Callable[[], tuple[int, Any]]


def planned(world: World, node: str, reading: dict[str, Any] = READING) -> _agent_plan.Plan:
    """What the agent's own code would write on this node now, by the policy in the cluster."""
    policy = json.loads(world.admin("GET", POLICY)["data"]["policy.json"])
    now = "2026-01-01T00:00:01Z"
    found = _agent_plan.plan(world.node(node), reading, policy, READING["boot_id"], now)
    assert found is not None
    return found


def write(caller: Caller, node: str, *operations: dict[str, Any]) -> tuple[int, Any]:
    """A JSON Patch of the status."""
    return caller.send("PATCH", f"{NODES}/{node}/status", list(operations), JSON_PATCH)


def honest(world: World, node: str) -> dict[tuple[str, str, str], Act]:
    """{(role, resource, verb): what agent or publisher does with this right}."""
    agent, path = world.agent(node), f"{NODES}/{node}"
    ci = world.as_user("ci", "gpushare:publishers")
    numbers = iter(range(8000, 9000))
    mine = f"{NODES}?fieldSelector=metadata.name={node}"

    def number(caller: Caller) -> tuple[int, Any]:
        return write(caller, node, hostile.add(CAPACITY, f"{next(numbers)}Mi"))

    def untaint() -> tuple[int, Any]:
        taints = world.node(node)["spec"]["taints"]
        if STARTUP not in taints:
            world.admin("PATCH", path, {"spec": {"taints": [STARTUP, *taints]}}, MERGE)
        return agent.send("PATCH", path, [hostile.remove("/spec/taints/0")], JSON_PATCH)

    def tell() -> tuple[int, Any]:
        return agent.send("POST", EVENTS, hostile.event("Node", node))

    return {
        (AGENT_ROLE, "nodes", "get"): lambda: agent.send("GET", path),
        (AGENT_ROLE, "nodes", "list"): lambda: agent.send("GET", mine),
        (AGENT_ROLE, "nodes", "watch"): lambda: agent.send(
            "GET", f"{mine}&watch=1&timeoutSeconds=1"
        ),
        (AGENT_ROLE, "nodes", "patch"): untaint,
        (AGENT_ROLE, "nodes/status", "patch"): lambda: number(agent),
        (EVENT_ROLE, "events", "create"): tell,
        (PUBLISHER_ROLE, "nodes", "get"): lambda: ci.send("GET", path),
        (PUBLISHER_ROLE, "nodes", "list"): lambda: ci.send("GET", f"{NODES}?limit=500"),
        (PUBLISHER_ROLE, "nodes/status", "patch"): lambda: number(ci),
        (PUBLISHER_ROLE, "pods", "list"): lambda: ci.send("GET", f"{PODS}?limit=500"),
        (PUBLISHER_ROLE, "gpumemory", "publish"): lambda: number(ci),
        (POLICY_ROLE, "configmaps", "get"): lambda: ci.send("GET", POLICY),
        (POLICY_ROLE, "configmaps", "patch"): lambda: ci.send("PATCH", POLICY, {"data": {}}, MERGE),
    }


def granted(world: World) -> dict[tuple[str, str, str], int]:
    """{(role, resource, verb): index of its rule} of all that the role gives."""
    found = {}
    for path in ROLES:
        for index, rule in enumerate(world.admin("GET", path)["rules"]):
            for resource in rule["resources"]:
                found |= {(path, resource, verb): index for verb in rule["verbs"]}
    return found


@contextlib.contextmanager
def without(world: World, path: str, rule: int, verb: str) -> Iterator[None]:
    """The RBAC object at `path` without one verb of one rule, for a while."""
    whole = world.admin("GET", path)["rules"]
    less = [dict(one) for one in whole]
    less[rule]["verbs"] = [one for one in less[rule]["verbs"] if one != verb]
    world.admin("PATCH", path, {"rules": [one for one in less if one["verbs"]]}, MERGE)
    try:
        yield
    finally:
        world.admin("PATCH", path, {"rules": whole}, MERGE)


def bind(world: World, name: str, role: str, kind: str, subject: str, **more: str) -> None:
    """A ClusterRoleBinding of `role` to one subject."""
    group = "rbac.authorization.k8s.io"
    who = {"kind": kind, "name": subject, **(more or {"apiGroup": group})}
    ref = {"apiGroup": group, "kind": "ClusterRole", "name": role}
    body = {"metadata": {"name": name}, "roleRef": ref, "subjects": [who]}
    world.admin("POST", f"{RBAC}/clusterrolebindings", body)
