#!/usr/bin/python
# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_fleet_info
version_added: 0.2.0
short_description: Tell who has which part of which GPU of a cluster
description:
  - Reads the Nodes and pods of a cluster, page by page, and puts them together with what NVML said
    of each GPU. Returned are the figures, as data and as a table for a person, and not the objects
    themselves, so that a fleet of thousands costs one task and little memory.
  - It needs C(eks:DescribeCluster) and, in Kubernetes, C(nodes) and C(pods) list.
author:
  - gpushare.eks contributors (@gpushare)
options:
  cluster_name:
    description: The EKS cluster. Its endpoint and CA come from EKS, the bearer token from STS.
    type: str
    required: true
  derived:
    description: What the filter P(gpushare.eks.derive#filter) made of the pools.
    type: dict
    required: true
  readings:
    description:
      - What M(gpushare.eks.gpu_capacity_info) returned as
        RV(gpushare.eks.gpu_capacity_info#module:readings). Without them the GPUs are not told.
      - With the processes (O(gpushare.eks.gpu_capacity_info#module:processes)) each pod's request
        stands beside what NVML says that it uses, and who is above their number is marked.
    type: list
    elements: dict
    default: []
  timeout:
    description: Seconds after which a slow or absent API server is given up.
    type: int
    default: 120
attributes:
  check_mode:
    description: Can run in check mode; it never changes anything.
    support: full
  diff_mode:
    description: It never changes anything.
    support: none
extends_documentation_fragment:
  - amazon.aws.common.modules
  - amazon.aws.region.modules
  - amazon.aws.boto3
seealso:
  - module: gpushare.eks.gpu_capacity_info
  - plugin: gpushare.eks.derive
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Read NVML on the nodes
  gpushare.eks.gpu_capacity_info:
    cluster_name: demo
  register: read

- name: Look who runs where
  gpushare.eks.gpu_fleet_info:
    cluster_name: demo
    derived: "{{ gpushare_pools | gpushare.eks.derive(cluster_name='demo') }}"
    readings: "{{ read.readings }}"
  register: fleet

- name: Show it
  ansible.builtin.debug:
    msg: "{{ fleet.table }}"
"""

RETURN = r"""
report:
  description:
    - The figures, as the filter P(gpushare.eks.fleet_report#filter) gives them. Memory is in MiB;
      what is not known is V(null).
  returned: success
  type: dict
  contains:
    schema:
      description: The version of this shape.
      type: int
      sample: 1
    cluster:
      description: Name of the cluster.
      type: str
      sample: demo
    resource:
      description: The extended resource.
      type: str
      sample: gpushare.eks/gpu-memory
    nodes:
      description:
        - Each node with its GPUs, what is published, requested and free, the GPUs or shares of them
          that it offers (C(gpu_resources)), what its pool C(predicted), its C(processes) (V(null)
          where they were not read), and its C(pods) with C(gpu_memory_mib) (requested), C(used_mib)
          and C(above). Pods that ask for nothing are among them where they use a GPU.
      type: list
      elements: dict
    pending:
      description: The pods that wait for a GPU, with the scheduler's reason.
      type: list
      elements: dict
table:
  description: The same for a person.
  returned: success
  type: str
  sample: "demo: gpushare.eks/gpu-memory in MiB"
smi:
  description: The GPUs that were read and who uses their memory, as nvidia-smi shows them.
  returned: success
  type: str
  sample: |-
    ip-10-0-1-23.ec2.internal (i-0123456789abcdef0, g4dn.xlarge): driver 580.105.08, CUDA 13.0
      GPU 0  Tesla T4  GPU-6d2ab28c-0a19-5c5e-8f61-4d0b5e4e7f10  3155 / 15360 MiB
      GPU   PID   MiB  POD
        0  4711  2705  default/resnet-1
counts:
  description: Requests to the API server.
  returned: success
  type: dict
  sample: {list: 1, list_pods: 1, pages: 2}
"""

from typing import Any

from ansible_collections.amazon.aws.plugins.module_utils.modules import AnsibleAWSModule

from ansible_collections.gpushare.eks.plugins.module_utils import _nodes, _report, _usage
from ansible_collections.gpushare.eks.plugins.module_utils._errors import InvalidInput, run


def look(module: Any) -> dict[str, Any]:
    """One run of the module."""
    params = module.params
    name, derived = params["cluster_name"], params["derived"]
    if missing := sorted({"resource", "pools"} - set(derived)):
        raise InvalidInput(
            f"derived has no {' and no '.join(missing)}",
            field="derived",
            remedy="give what the filter gpushare.eks.derive returns",
        )
    cluster = _nodes.connect(
        module.client("eks"), module.client("sts"), name, module.region, timeout=params["timeout"]
    )
    nodes, pods = cluster.nodes(), cluster.all_pods()
    report = _report.report(name, derived["resource"], derived, nodes, pods, params["readings"])
    counts = dict(cluster.counts)
    texts = {"table": _report.table(report), "smi": _usage.smi(report)}
    return {"changed": False, "report": report, **texts, "counts": counts}


def main() -> None:
    spec = {
        "cluster_name": {"type": "str", "required": True},
        "derived": {"type": "dict", "required": True},
        "readings": {"type": "list", "elements": "dict", "default": []},
        "timeout": {"type": "int", "default": 120},
    }
    module = AnsibleAWSModule(argument_spec=spec, supports_check_mode=True)
    run(module, lambda: look(module))


if __name__ == "__main__":
    main()
