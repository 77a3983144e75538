#!/usr/bin/python
# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: node_capacity
version_added: 0.1.0
short_description: Publish GPU memory as an extended resource on the status of a fleet's Nodes
description:
  - Joins readings of M(gpushare.eks.gpu_capacity_info) to the Nodes of a cluster by instance ID and
    patches C(status.capacity) and C(status.allocatable) where the number differs. A fleet costs one
    paged LIST and one patch for each node that differs, sent in parallel.
  - What is published is the smaller of the pool's prediction and what NVML leaves usable; a node
    whose NVML shows less than predicted is refused with both numbers. 0 is never published.
  - Every patch tests the node's UID, so that a node that took another's name never gets its number.
    An annotation on the node tells where its number comes from.
  - A node with several GPUs is refused, because a sum over GPUs places pods where no single GPU can
    hold them; O(policy.multi_gpu=sum) is the way around.
  - Where an agent in the cluster keeps a node (condition C(GPUMemoryPublished), and the agent's pod
    is ready), the module only audits it, unless O(force=true). What differs there is given 10
    seconds, because the agent mends it within two.
  - It needs C(eks:DescribeCluster) and, in Kubernetes, C(nodes) list and get, C(nodes/status)
    patch, C(pods) list (used only when a number shrinks, or where an agent keeps nodes), and with
    O(policy_config_map) C(configmaps) get and patch.
author:
  - gpushare.eks contributors (@gpushare)
options:
  cluster_name:
    description: The EKS cluster. Its endpoint and CA come from EKS, the bearer token from STS.
    type: str
    required: true
  resource:
    description: The extended resource.
    type: str
    default: gpushare.eks/gpu-memory
  readings:
    description:
      - What M(gpushare.eks.gpu_capacity_info) returned as
        RV(gpushare.eks.gpu_capacity_info#module:readings).
    type: list
    elements: dict
    default: []
  pools:
    description:
      - The derived pools (C(pools) of the filter C(gpushare.eks.derive)). They say which nodes
        share their GPU and how much is predicted for each.
      - Without pools every node with a reading gets what NVML leaves usable.
    type: list
    elements: dict
  nodes:
    description: Names of the only nodes to look at.
    type: list
    elements: str
  policy:
    description: How much is published. What is not given comes from the node's pool.
    type: dict
    default: {}
    suboptions:
      headroom_mib:
        description: MiB of each GPU that are kept back.
        type: int
      multi_gpu:
        description: What becomes of a node with several GPUs.
        type: str
        choices: [refuse, sum]
  policy_config_map:
    description:
      - The ConfigMap from which the agents of the cluster have their policy. Where it exists it is
        brought to this content before the nodes are judged, so that module and agents decide alike.
    type: dict
    suboptions:
      namespace:
        description: Its namespace.
        type: str
        required: true
      name:
        description: Its name.
        type: str
        required: true
      data:
        description: All its keys, each a text.
        type: dict
        required: true
  state:
    description:
      - V(present) publishes; V(absent) takes the resource and the annotation off all nodes (or
        O(nodes)) that have it. V(absent) needs no readings.
    type: str
    choices: [present, absent]
    default: present
  max_failures:
    description: The task fails when more nodes than this cannot be published. What succeeded stays.
    type: int
    default: 0
  force:
    description: Write also where an agent keeps the node.
    type: bool
    default: false
  timeout:
    description: Seconds after which a slow or absent API server is given up.
    type: int
    default: 120
attributes:
  check_mode:
    description: Can run in check mode and tells what would change, without changing it.
    support: full
  diff_mode:
    description: Shows for each node that differs what stands on it and what will stand.
    support: full
seealso:
  - module: gpushare.eks.gpu_capacity_info
extends_documentation_fragment:
  - amazon.aws.common.modules
  - amazon.aws.region.modules
  - amazon.aws.boto3
"""

EXAMPLES = r"""
- name: Read every GPU of the cluster
  gpushare.eks.gpu_capacity_info:
    cluster_name: demo
  register: gpus

- name: Publish what can be used
  gpushare.eks.node_capacity:
    cluster_name: demo
    readings: "{{ gpus.readings }}"
    pools: "{{ fleet_result.derived.pools }}"

- name: Publish without pools, with 256 MiB of every GPU kept back; up to 3 nodes may fail
  gpushare.eks.node_capacity:
    cluster_name: demo
    readings: "{{ gpus.readings }}"
    policy:
      headroom_mib: 256
    max_failures: 3

- name: Take the resource off all nodes
  gpushare.eks.node_capacity:
    cluster_name: demo
    state: absent
"""

RETURN = r"""
nodes:
  description: One row for every node that was looked at, ordered by name; also when the task fails.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: The Node; V(null) for a reading whose instance is no Node.
      type: str
      sample: ip-10-0-1-23.ec2.internal
    instance_id:
      description: Its instance.
      type: str
      sample: i-0123456789abcdef0
    pool:
      description: Its pool.
      type: str
      sample: shared
    before_mib:
      description: What stood on it; V(null) for nothing.
      type: int
      sample: null
    after_mib:
      description: What stands on it now; in check mode what would.
      type: int
      sample: 14848
    action:
      description:
        - V(none), V(patch), V(refuse) (nothing may be published), V(failed) (the write failed) or
          V(gone) (the node was deleted meanwhile).
      type: str
      sample: patch
    reason:
      description: Why.
      type: str
      sample: is missing
    problems:
      description: What is wrong, each with C(code), C(message) and C(remedy).
      type: list
      elements: dict
      sample: []
    surplus_mib:
      description: What NVML leaves usable above the published number.
      type: int
      sample: 62
    over_requested:
      description: After a shrink, what the node's pods request, and the newest that no longer fit.
      type: dict
      returned: when pods no longer fit
      sample: {requested_mib: 15360, pods: [default/resnet-1]}
counts:
  description: Requests to the API server by kind, and nodes by what became of them.
  returned: always
  type: dict
  sample: {list: 1, pages: 1, patch: 200, retry: 0, nodes: 200, published: 200, failures: 0}
"""

import time
from dataclasses import replace
from typing import Any

from ansible_collections.amazon.aws.plugins.module_utils.modules import AnsibleAWSModule

from ansible_collections.gpushare.eks.plugins.module_utils import (
    _nodes,
    _policy,
    _policy_map,
    _publish,
)
from ansible_collections.gpushare.eks.plugins.module_utils._errors import PartialFailure, run

AGENT_GRACE_S = 10.0  # a live agent needs 2 s, after a restart of the API server up to 10 s


def wanted(params: dict[str, Any]) -> _publish.Wanted:
    """The module's options as the pure planner takes them."""
    pools = params["pools"]
    return _publish.Wanted(
        resource=params["resource"],
        state=params["state"],
        readings={row["instance_id"]: row for row in params["readings"]},
        pools=None if pools is None else _policy.document(params["resource"], pools),
        policy=params["policy"],
        nodes=None if params["nodes"] is None else frozenset(params["nodes"]),
        force=params["force"],
    )


def publish(module: Any) -> dict[str, Any]:
    """One run of the module: list, decide, patch, tell."""
    plan = wanted(module.params)
    name, timeout = module.params["cluster_name"], module.params["timeout"]
    cluster = _nodes.connect(
        module.client("eks"), module.client("sts"), name, module.region, timeout=timeout
    )
    shared, policy_diff = module.params["policy_config_map"], None
    if shared:
        policy_diff = _policy_map.keep(cluster, shared, check_mode=module.check_mode)
    listed = cluster.nodes()
    chosen = {node["metadata"]["name"]: node for node in listed if plan.selects(node)}
    if any(_publish.claimed_by_agent(node) for node in chosen.values()):
        plan = replace(plan, agents=_publish.live_agents(cluster.agent_pods()))
    decisions = {key: plan.decide(node) for key, node in sorted(chosen.items())}
    _let_agents_work(cluster, plan, chosen, decisions)
    patches = {key: one for key, one in decisions.items() if one.action == "patch"}
    writes = {} if module.check_mode else cluster.write_all(patches, plan.decide)
    rows, diffs = [], [policy_diff] if policy_diff else []
    for key, decision in decisions.items():
        write = writes.get(key) or _nodes.Write(decision.action, decision.reason, decision)
        made = write.decision or decision
        rows.append(_publish.row(chosen[key], write.action, write.reason, made, write.error))
        if write.action == "patch":
            diffs.append(_publish.diff(chosen[key], made))
    _tell_shrunk(module, cluster, rows)
    rows += _publish.unmatched(plan, listed)
    return _result(module, cluster, rows, diffs)


def _let_agents_work(
    cluster: Any, plan: _publish.Wanted, chosen: dict[str, Any], decisions: dict[str, Any]
) -> None:
    """What an agent keeps it also mends, within seconds; only what it leaves wrong is a finding."""
    end = time.monotonic() + AGENT_GRACE_S
    while time.monotonic() < end:
        kept = [
            name
            for name, one in decisions.items()
            if one.action == "refuse" and one.problems[0]["code"] == "AGENT"
        ]
        if not kept:
            return
        time.sleep(0.5)
        for name in kept:
            chosen[name] = cluster.node(name) or chosen[name]
            decisions[name] = plan.decide(chosen[name])


def _tell_shrunk(module: Any, cluster: Any, rows: list[dict[str, Any]]) -> None:
    """Report the pods that no longer fit; the pods are listed only when a number shrank."""
    shrunk = {
        row["name"]: row["after_mib"] or 0
        for row in rows
        if row["action"] == "patch" and (row["before_mib"] or 0) > (row["after_mib"] or 0)
    }
    if not shrunk or module.params["state"] == "absent":
        return
    over = _publish.over_requested(module.params["resource"], cluster.pods(), shrunk)
    for row in rows:
        if row["name"] in over:
            found = row["over_requested"] = over[row["name"]]
            pods = ", ".join(found["pods"])
            module.warn(
                f"node {row['name']} has {row['after_mib']} MiB, its pods request "
                f"{found['requested_mib']} MiB; too many: {pods}"
            )


def _result(
    module: Any, cluster: Any, rows: list[dict[str, Any]], diffs: list[dict[str, Any]]
) -> dict[str, Any]:
    failures = [row for row in rows if row["action"] in ("refuse", "failed")]
    zero = dict.fromkeys(("list", "pages", "patch", "retry"), 0)
    standing = sum(1 for row in rows if row["action"] in ("none", "patch") and row["after_mib"])
    counts = {**zero, **cluster.counts, "nodes": len(rows)}
    counts |= {"published": standing, "failures": len(failures)}
    result = {"changed": bool(diffs), "diff": diffs, "nodes": rows, "counts": counts}
    if len(failures) <= module.params["max_failures"]:
        for row in failures:
            module.warn(f"not published: {_told(row)}")
        return result
    what = (
        "Nodes have no published number" if module.params["state"] == "present" else "Nodes keep it"
    )
    lines = "\n".join(_told(row) for row in failures)
    raise PartialFailure(
        f"{len(failures)} of {len(rows)} {what} (max_failures "
        f"{module.params['max_failures']}):\n{lines}\n",
        items=[
            {"object": row["name"] or row["instance_id"], "reason": row["reason"],
             "problems": row["problems"]}
            for row in failures
        ],
        object=f"nodes of cluster {cluster.name}",
        remedy="mend the causes above and run again; what succeeded stays done",
    ).with_partial(**result)  # fmt: skip


def _told(row: dict[str, Any]) -> str:
    told = [problem["remedy"] for problem in row["problems"]]
    remedies = "; ".join(remedy for remedy in told if remedy not in row["reason"])
    who = row["name"] or row["instance_id"]
    reason = row["reason"] if who in row["reason"] else f"{who}: {row['reason']}"
    return f"{reason} ({remedies})" if remedies else reason


def main() -> None:
    policy = {"headroom_mib": {"type": "int"}, "multi_gpu": {"type": "str"}}
    policy["multi_gpu"]["choices"] = ["refuse", "sum"]
    text = {"type": "str", "required": True}
    config_map = {"namespace": text, "name": text, "data": {"type": "dict", "required": True}}
    spec = {
        "cluster_name": {"type": "str", "required": True},
        "resource": {"type": "str", "default": "gpushare.eks/gpu-memory"},
        "readings": {"type": "list", "elements": "dict", "default": []},
        "pools": {"type": "list", "elements": "dict"},
        "policy_config_map": {"type": "dict", "options": config_map},
        "nodes": {"type": "list", "elements": "str"},
        "policy": {"type": "dict", "default": {}, "options": policy},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "max_failures": {"type": "int", "default": 0},
        "force": {"type": "bool", "default": False},
        "timeout": {"type": "int", "default": 120},
    }
    module = AnsibleAWSModule(argument_spec=spec, supports_check_mode=True)
    run(module, lambda: publish(module))


if __name__ == "__main__":
    main()
