#!/usr/bin/python
# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_sharing_change
version_added: 0.2.0
short_description: Change how live nodes share their GPUs, one at a time, without killing a pod
description:
  - Brings the live nodes of pools to the sharing that the pools have now. Each node is cordoned;
    its pods that hold a part of a GPU are left to end, and NVML is asked until it shows no compute
    process; then the label C(nvidia.com/device-plugin.config) is set to the new configuration, and
    when the device plugin and the agent show what is predicted, the node is as schedulable as
    before. Nodes that join meanwhile are changed, too.
  - No pod is evicted or deleted. A node that is not free, or does not show its new sharing, within
    its time limit is given back as it was (label, cordon), and the run ends there.
  - What is under way stands in the annotation C(gpushare.eks/sharing-change) of the node, and is
    written together with cordon and label. A run that was killed is taken up by the next one.
  - The plugin's ConfigMap must hold the new configurations under the names that the filter
    P(gpushare.eks.plugin_configs#filter) gives them; the role C(device_plugin) sees to it by its
    entry point C(change_sharing).
  - It needs C(eks:DescribeCluster), C(ssm:SendCommand) on the document of
    M(gpushare.eks.ssm_document) for processes and on the instances, C(ssm:ListCommandInvocations),
    C(ssm:DescribeInstanceInformation), and in Kubernetes C(nodes) get, list and patch, C(pods)
    list.
author:
  - gpushare.eks contributors (@gpushare)
options:
  cluster_name:
    description: The EKS cluster. Its endpoint and CA come from EKS, the bearer token from STS.
    type: str
    required: true
  derived:
    description: What the filter P(gpushare.eks.derive#filter) made of the pools as they shall be.
    type: dict
    required: true
  pools:
    description: Names of the pools to change. Empty for all that have GPUs.
    type: list
    elements: str
    default: []
  configs:
    description:
      - The plugin's configurations as they are deployed, by name. A node whose label names one that
        is as its pool wants it is left alone.
    type: dict
    default: {}
  namespace:
    description:
      - Namespace of the device plugin. Processes of its pods, such as the MPS server, are no reason
        to wait.
    type: str
    default: nvidia-device-plugin
  wait_timeout:
    description: Seconds that one node is given until its pods and processes have ended.
    type: int
    default: 3600
  ready_timeout:
    description: Seconds that one node is given until plugin and agent show its new sharing.
    type: int
    default: 300
  probe_timeout:
    description: Seconds to wait for a node's answer about its processes.
    type: int
    default: 90
  timeout:
    description: Seconds after which a slow or absent API server is given up.
    type: int
    default: 120
attributes:
  check_mode:
    description: Can run in check mode; it tells which nodes would change, and what runs on them.
    support: full
  diff_mode:
    description: Shows the configuration of each node before and after.
    support: full
seealso:
  - module: gpushare.eks.gpu_capacity_info
  - plugin: gpushare.eks.plugin_configs
    plugin_type: filter
extends_documentation_fragment:
  - amazon.aws.common.modules
  - amazon.aws.region.modules
  - amazon.aws.boto3
"""

EXAMPLES = r"""
- name: Tell what would change
  gpushare.eks.gpu_sharing_change:
    cluster_name: demo
    derived: "{{ gpushare_pools | gpushare.eks.derive(cluster_name='demo') }}"
  check_mode: true
  diff: true

- name: Change the nodes of one pool; each has two hours to become free
  gpushare.eks.gpu_sharing_change:
    cluster_name: demo
    derived: "{{ gpushare_pools | gpushare.eks.derive(cluster_name='demo') }}"
    pools: [shared]
    wait_timeout: 7200
"""

RETURN = r"""
nodes:
  description: One row for every node of the pools, in the order of the work; also after a failure.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: The Node.
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
    before:
      description: The configuration that its label named.
      type: str
      sample: shared
    after:
      description: The configuration of its pool.
      type: str
      sample: shared.1f0c2a7b
    action:
      description:
        - V(none) (nothing to change), V(changed), V(would_change) (check mode), V(rolled_back)
          (as before, see RV(nodes[].reason)), V(refused) (left alone), V(gone) (deleted meanwhile)
          or V(not_begun) (the run ended at a node before it).
      type: str
      sample: changed
    reason:
      description: Why it was not changed; in check mode what it would wait for.
      type: str
      sample: ""
    remedy:
      description: What to do about it.
      type: str
      sample: ""
    waited_for:
      description: The pods and processes that were seen while the node became free.
      type: list
      elements: str
      sample: [pod default/train-x7x2p]
    seconds:
      description: How long the node took.
      type: float
      sample: 41.7
in_use:
  description: The configurations that live nodes name after the run.
  returned: always
  type: list
  elements: str
  sample: [shared.1f0c2a7b]
counts:
  description: Requests to the API server by kind.
  returned: always
  type: dict
  sample: {list: 1, list_pods: 9, get: 14, patch: 6}
calls:
  description: Calls of SSM by operation.
  returned: always
  type: dict
  sample: {send_command: 3, list_command_invocations: 6}
"""

from typing import Any

from ansible_collections.amazon.aws.plugins.module_utils.modules import AnsibleAWSModule

from ansible_collections.gpushare.eks.plugins.module_utils import _nodes, _sharing_fleet
from ansible_collections.gpushare.eks.plugins.module_utils._errors import run
from ansible_collections.gpushare.eks.plugins.module_utils._sharing_roll import Gpus, Roll


def change(module: Any) -> dict[str, Any]:
    """One run of the module: refuse, look, then node by node."""
    params = module.params
    plan = _sharing_fleet.plan(params)
    cluster = _nodes.connect(
        module.client("eks"),
        module.client("sts"),
        params["cluster_name"],
        module.region,
        timeout=params["timeout"],
    )
    if module.check_mode:
        return _sharing_fleet.tell(cluster, plan)
    ssm = module.client("ssm", config={"retries": {"mode": "adaptive", "total_max_attempts": 1}})
    gpus = Gpus(ssm, params["namespace"], params["probe_timeout"])
    limits = _sharing_fleet.limits(params)
    return _sharing_fleet.roll(Roll(cluster, gpus, plan, limits, module.log))


def main() -> None:
    spec = {
        "cluster_name": {"type": "str", "required": True},
        "derived": {"type": "dict", "required": True},
        "pools": {"type": "list", "elements": "str", "default": []},
        "configs": {"type": "dict", "default": {}},
        "namespace": {"type": "str", "default": "nvidia-device-plugin"},
        "wait_timeout": {"type": "int", "default": 3600},
        "ready_timeout": {"type": "int", "default": 300},
        "probe_timeout": {"type": "int", "default": 90},
        "timeout": {"type": "int", "default": 120},
    }
    module = AnsibleAWSModule(argument_spec=spec, supports_check_mode=True)
    run(module, lambda: change(module))


if __name__ == "__main__":
    main()
