"""Converged, or a typed error with the remedy: how a case is judged."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import Any

import boto3

from ansible_collections.gpushare.eks.plugins.module_utils import _token
from ansible_collections.gpushare.eks.plugins.module_utils._names import ANNOTATION, RESOURCE

from ..support import cluster, engine
from ..support.engine import Run
from ..support.fleet import TRUTH_MIB, Fleet

CLUSTER = "faults"
FOREVER = 10**6
TRIO = 3  # nodes that the cases of the API server work on


@functools.cache
def _tokens() -> _token.TokenSource:
    # A session and a client for each request would cost more than all the requests.
    return _token.TokenSource(boto3.Session().client("sts"), CLUSTER)


def send(method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
    """One request of an administrator to the API server of the fleet."""
    answer = cluster.request(
        CLUSTER,
        method,
        path,
        bearer=_tokens().token(),
        json=body,
        headers={"Content-Type": kind},
    )
    answer.raise_for_status()
    return answer.json()


def node_of(instance_id: str, fleet: Fleet) -> dict[str, Any]:
    return send("GET", f"/api/v1/nodes/{fleet.nodes[instance_id]}")


def stands(node: dict[str, Any]) -> int | None:
    """What is published on the node, in MiB. Half a number or one that nobody vouches for fails."""
    status = node["status"]
    found = [status[part].get(RESOURCE) for part in ("capacity", "allocatable")]
    text = node["metadata"].get("annotations", {}).get(ANNOTATION)
    if found == [None, None]:
        assert text is None
        return None
    claim = json.loads(text)
    assert claim["node_uid"] == node["metadata"]["uid"]
    assert claim["instance_id"] == node["spec"]["providerID"].rpartition("/")[2]
    assert [cluster.mib(one) for one in found] == [claim["published_mib"]] * 2
    return claim["published_mib"]


def converged(readings: list[dict[str, Any]], **how: Any) -> None:
    """One more run repairs whatever is left, and after it there is nothing to do."""
    assert not (run := engine.publish(CLUSTER, readings=readings, **how)).failed, run.result
    again = engine.publish(CLUSTER, readings=readings, **how)
    assert not again.failed
    assert again.result["counts"]["patch"] == 0
    assert {row["after_mib"] for row in again.result["nodes"]} == {TRUTH_MIB}
    assert {row["action"] for row in again.result["nodes"]} == {"none"}
    named = {row["name"] for row in again.result["nodes"]}
    for node in send("GET", "/api/v1/nodes")["items"]:
        if node["metadata"]["name"] in named:
            assert stands(node) == TRUTH_MIB


def typed(error: dict[str, Any] | None, kind: str) -> None:
    assert error is not None
    assert error["type"] == kind
    assert error["message"]
    assert error["remedy"]


@dataclasses.dataclass(frozen=True)
class Trial:
    """Which node each case happened on, the readings by instance ID, and what was published."""

    victims: dict[str, str]
    readings: dict[str, dict[str, Any]]
    published: Run


def tried(victims: dict[str, str], *reads: Run) -> Trial:
    """Publish what was read, however many nodes are refused."""
    rows: list[dict[str, Any]] = []
    for read in reads:
        assert not read.failed, read.result
        rows += read.result["readings"]
    published = engine.publish(CLUSTER, readings=rows, max_failures=len(rows))
    assert not published.failed, published.result
    return Trial(victims, {row["instance_id"]: row for row in rows}, published)
