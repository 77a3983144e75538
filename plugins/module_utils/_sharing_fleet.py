# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A fleet changes its sharing: which nodes, one after the other, and where it ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils import _sharing_plan as _plan
from ansible_collections.gpushare.eks.plugins.module_utils._errors import (
    GpushareError,
    InvalidInput,
    PartialFailure,
)
from ansible_collections.gpushare.eks.plugins.module_utils._nodes import Cluster
from ansible_collections.gpushare.eks.plugins.module_utils._pool_names import CONFIG_LABEL
from ansible_collections.gpushare.eks.plugins.module_utils._sharing_change import (
    BACK,
    DRAIN,
    READY,
)
from ansible_collections.gpushare.eks.plugins.module_utils._sharing_roll import Roll, row

LIMITS = ("wait_timeout", "ready_timeout", "probe_timeout", "timeout")


def plan(params: Mapping[str, Any]) -> _plan.Plan:
    """The module's options as the planner takes them. Raises InvalidInput."""
    for name in LIMITS:
        if params[name] < 1:
            raise InvalidInput(
                f"{name}: {params[name]} is no time limit", field=name, remedy="seconds from 1"
            )
    pools = _plan.check(params["derived"], params["pools"])
    return _plan.Plan(params["derived"], params["configs"], pools)


def limits(params: Mapping[str, Any]) -> dict[str, float]:
    """{step: seconds}."""
    ready = params["ready_timeout"]
    return {DRAIN: params["wait_timeout"], READY: ready, BACK: ready}


def tell(cluster: Cluster, plan: _plan.Plan) -> dict[str, Any]:
    """What a run would do, node by node, and what it would wait for."""
    listed, due = _look(cluster, plan)
    pods = cluster.pods()
    rows = [row(one, plan, "none", "") for one in _others(plan, listed, due)]
    for node in due:
        held = [_plan.label(pod) for pod in _plan.holders(plan, node, pods)]
        told = f"waits for the end of {', '.join(sorted(held))}" if held else ""
        rows.append(row(node, plan, "would_change", told))
    return _result(cluster, rows, {}, listed)


def _look(cluster: Cluster, plan: _plan.Plan) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All nodes, and those to change, in order; refuses what cannot be."""
    cluster.extend()
    listed, pods = cluster.nodes(), cluster.pods()
    due = _plan.order(plan, [node for node in listed if plan.is_due(node)], pods)
    _plan.refuse_impossible(plan, due, pods)
    return listed, due


def _others(
    plan: _plan.Plan, listed: list[dict[str, Any]], due: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The nodes of the pools that have nothing to change."""
    names = {node["metadata"]["name"] for node in due}
    mine = [node for node in listed if _plan.in_pools(plan, node)]
    return [node for node in mine if node["metadata"]["name"] not in names]


def roll(roll: Roll) -> dict[str, Any]:
    """Change node after node; the first that cannot be changed ends the run, with what is told."""
    listed, due = _look(roll.cluster, roll.plan)
    rows = [row(one, roll.plan, "none", "") for one in _others(roll.plan, listed, due)]
    try:
        while due:
            rows.append(roll.change(due[0]["metadata"]["name"]))
            if rows[-1]["action"] in ("rolled_back", "refused"):
                raise _stopped(rows, due[1:])
            due = due[1:]
            if not due:  # a node that joined meanwhile has the old sharing, too
                listed, due = _look(roll.cluster, roll.plan)
    except GpushareError as error:
        told = {one["name"] for one in rows}
        left = [node for node in due if node["metadata"]["name"] not in told]
        rows += [row(node, roll.plan, "not_begun", "") for node in left]
        partial = _result(roll.cluster, rows, roll.gpus.calls, listed)
        raise error.with_partial(**partial) from None
    return _result(roll.cluster, rows, roll.gpus.calls, listed)


def _stopped(rows: list[dict[str, Any]], left: list[dict[str, Any]]) -> GpushareError:
    """Where the run ended: the node, why, what is done and what is not begun."""
    ended, names = rows[-1], [node["metadata"]["name"] for node in left]
    done = [one["name"] for one in rows if one["action"] == "changed"]
    what = "is as it was before" if ended["action"] == "rolled_back" else "was left alone"
    return PartialFailure(
        f"node {ended['name']} of pool {ended['pool']} keeps its sharing and {what}: "
        f"{ended['reason']}. Changed before it: {', '.join(done) or 'none'}; "
        f"not begun: {', '.join(names) or 'none'}",
        items=[{"object": ended["name"], "reason": ended["reason"]}],
        object=f"node {ended['name']}",
        remedy=ended["remedy"] or "mend or replace the node, and run again",
    )


def _result(
    cluster: Cluster, rows: list[dict[str, Any]], calls: Any, listed: list[dict[str, Any]]
) -> dict[str, Any]:
    labels = [(node["metadata"].get("labels") or {}).get(CONFIG_LABEL) for node in listed]
    diffs = [
        {
            "before_header": one["name"],
            "after_header": one["name"],
            "before": {CONFIG_LABEL: one["before"]},
            "after": {CONFIG_LABEL: one["after"]},
        }
        for one in rows
        if one["action"] in ("changed", "would_change")
    ]
    return {
        "changed": bool(diffs),
        "diff": diffs,
        "nodes": rows,
        "in_use": sorted({label for label in labels if label}),
        "counts": dict(cluster.counts),
        "calls": dict(calls),
    }
