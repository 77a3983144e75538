"""Nodes that change behind our back: deleted, replaced, zeroed, written by others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils._names import ANNOTATION, RESOURCE

from ..support import engine
from ..support.engine import Fault, Run
from ..support.fleet import TRUTH_MIB, Fleet
from .judge import CLUSTER, TRIO, converged, node_of, send, stands, typed


def fresh(node: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """The Node as its kubelet would register it again."""
    meta = {key: node["metadata"][key] for key in ("name", "labels")}
    status = {**node["status"]}
    for part in ("capacity", "allocatable"):
        status[part] = {k: v for k, v in status[part].items() if k != RESOURCE}
    return {"metadata": meta, "spec": {**node["spec"], **spec}, "status": status}


SETTLED_S = 15.0


def replace(path: str, **spec: Any) -> None:
    """Another Node takes the name of the one that the path is of."""
    place = path.removesuffix("/status")
    node = send("GET", place)
    send("DELETE", place)
    seen, now = "", send("POST", "/api/v1/nodes", fresh(node, **spec))
    # Kubelet and controllers complete a young Node: until they are done, they make conflicts, too.
    end = time.monotonic() + SETTLED_S
    while seen != now["metadata"]["resourceVersion"]:
        assert time.monotonic() < end, f"{place} is written all the time"
        seen = now["metadata"]["resourceVersion"]
        time.sleep(0.7)
        now = send("GET", place)


def write(node: dict[str, Any], **parts: str) -> None:
    """By hand on the status: {part: quantity of our resource}."""
    key = RESOURCE.replace("/", "~1")
    patch = [
        {"op": "add", "path": f"/status/{part}/{key}", "value": value}
        for part, value in parts.items()
    ]
    path = f"/api/v1/nodes/{node['metadata']['name']}/status"
    send("PATCH", path, patch, "application/json-patch+json")


def test_a_node_deleted_between_list_and_patch_is_gone_and_no_failure(
    readings: list[dict[str, Any]],
    nothing_published: None,
    fleet: Fleet,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: list[dict[str, Any]] = []

    def delete(path: str) -> None:
        kept.append(send("GET", path.removesuffix("/status")))
        send("DELETE", path.removesuffix("/status"))

    with monkeypatch.context() as during:
        engine.wire(during, Fault(before=delete))
        run = engine.publish(CLUSTER, readings=readings)
    send("POST", "/api/v1/nodes", fresh(kept[0]))
    assert not run.failed, run.result
    rows = run.rows()
    assert rows.pop(kept[0]["metadata"]["name"])["action"] == "gone"
    assert {row["after_mib"] for row in rows.values()} == {TRUTH_MIB}
    converged(readings)


def test_the_same_name_with_a_new_uid_is_decided_anew(
    readings: list[dict[str, Any]],
    nothing_published: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as during:
        engine.wire(during, Fault(before=replace))
        run = engine.publish(CLUSTER, readings=readings)
    assert not run.failed, run.result
    assert run.result["counts"]["patch"] == TRIO + 1
    converged(readings)


def test_the_same_name_for_another_instance_gets_no_number(
    readings: list[dict[str, Any]],
    nothing_published: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []

    def other(path: str) -> None:
        seen.append(path.removesuffix("/status"))
        replace(path, providerID="aws:///us-east-1a/i-0eeeeeeeeeeeeeeee")

    with monkeypatch.context() as during:
        engine.wire(during, Fault(before=other))
        run = engine.publish(CLUSTER, readings=readings)
    node = send("GET", seen[0])
    own = next(row["instance_id"] for row in run.result["nodes"] if row["name"] in seen[0])
    send("DELETE", seen[0])
    send("POST", "/api/v1/nodes", fresh(node, providerID=f"aws:///us-east-1a/{own}"))
    assert run.failed
    typed(run.error, "PartialFailure")
    row = run.rows()[node["metadata"]["name"]]
    assert row["action"] == "refuse"
    assert row["problems"][0]["remedy"]
    assert stands(node) is None
    converged(readings)


ZERO, HAND = {"capacity": "0", "allocatable": "0"}, {"capacity": "99Gi", "allocatable": "99Gi"}
# Name: what becomes of a published node's status behind our back
NODES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "status zeroed": lambda node: write(node, **ZERO),
    "allocatable stale": lambda node: write(node, allocatable="1Gi"),
    "allocatable zeroed": lambda node: write(node, allocatable="0"),
    "a number by hand": lambda node: write(node, **HAND),
    "a new node with the number and the annotation of the old one": lambda node: (
        send("DELETE", f"/api/v1/nodes/{node['metadata']['name']}"),
        send("POST", "/api/v1/nodes", {
            **fresh(node),
            "metadata": {key: node["metadata"][key] for key in ("name", "labels", "annotations")},
            "status": node["status"],
        }),
    ),
    "an annotation that is no JSON": lambda node: send(
        "PATCH",
        f"/api/v1/nodes/{node['metadata']['name']}",
        {"metadata": {"annotations": {ANNOTATION: "{$(reboot)"}}},
        "application/merge-patch+json",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NODES)
def test_a_status_that_became_false_is_repaired(
    case: str, readings: list[dict[str, Any]], fleet: Fleet
) -> None:
    converged(readings)
    NODES[case](node_of(readings[0]["instance_id"], fleet))
    run = engine.publish(CLUSTER, readings=readings)
    assert not run.failed, run.result
    # The kubelet itself copies capacity into allocatable, sooner or later than we look.
    assert run.result["counts"]["patch"] <= 1
    assert run.result["counts"]["patch"] == 1 or case.startswith("allocatable")
    converged(readings)


def test_two_runs_at_once(readings: list[dict[str, Any]], nothing_published: None) -> None:
    runs: list[Run] = []
    both_ready = threading.Barrier(2)

    def publish() -> None:
        both_ready.wait()
        runs.append(engine.publish(CLUSTER, readings=readings))

    threads = [threading.Thread(target=publish) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert [run.failed for run in runs] == [False, False]
    for run in runs:
        assert {row["after_mib"] for row in run.result["nodes"]} == {TRUTH_MIB}
    converged(readings)
