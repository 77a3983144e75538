#!/usr/bin/python
# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: ec2_catalog_info
version_added: 0.1.0
short_description: Read instance types, their GPUs, zones and quotas in one call
description:
  - Asks EC2 what the instance types are made of, which zones offer them and, if wanted, how many
    vCPUs the account may run of their families, how many addresses, VPCs and NAT gateways it may
    have, and how much of that is in use.
  - The result has the shape of the collection's own dated catalog and can stand in for it. What a
    pod can use of a GPU's memory (C(usable_mib)) is always from that table, as EC2 does not know.
author:
  - gpushare.eks contributors (@gpushare)
options:
  instance_types:
    description: The instance types. An unknown one is refused by name.
    type: list
    elements: str
    required: true
  zones:
    description: Tell of these availability zones only. Without it all zones of the region count.
    type: list
    elements: str
  quotas:
    description:
      - Also read the quotas on running instances, Elastic IP addresses, VPCs and NAT gateways
        (Service Quotas), and how much of them is in use.
      - A caller who may not read them, or does not reach Service Quotas, gets a warning.
    type: bool
    default: false
  cluster_name:
    description: The cluster whose part of the use is told apart (C(ours)).
    type: str
attributes:
  check_mode:
    description: Only reads, in check mode as well.
    support: full
  diff_mode:
    description: Changes nothing, so there is nothing to show.
    support: none
extends_documentation_fragment:
  - gpushare.eks.eks_object
  - amazon.aws.common.modules
  - amazon.aws.region.modules
  - amazon.aws.boto3
"""

EXAMPLES = r"""
- name: Learn about the pools' instance types
  gpushare.eks.ec2_catalog_info:
    instance_types: [m6i.large, g4dn.xlarge]
    quotas: true
    cluster_name: demo
  register: ec2

- name: Tell in which zones there are T4
  ansible.builtin.debug:
    msg: "{{ ec2.catalog.offerings['g4dn.xlarge'] }}"
"""

RETURN = r"""
catalog:
  description: What EC2 says of the instance types.
  returned: always
  type: dict
  sample:
    schema: 1
    as_of: "2026-11-21"
    source: EC2 DescribeInstanceTypes in us-east-1
    instance_types:
      g4dn.xlarge:
        vcpus: 4
        memory_mib: 16384
        architecture: x86_64
        max_pods: 29
        gpus:
          - {name: T4, manufacturer: NVIDIA, count: 1, memory_mib: 16384}
    gpu_models:
      T4: {total_mib: 15360, usable_mib: 14848, compute_capability: "7.5", mig: false}
    offerings:
      g4dn.xlarge: [us-east-1a, us-east-1b]
    quotas:
      L-DB2E81BA:
        name: Running On-Demand G and VT instances
        service: ec2
        unit: vCPUs
        value: 64
        used: 12
        ours: 4
        capacity_type: on_demand
        instance_types: [g4dn.xlarge]
  contains:
    schema:
      description: Version of this shape.
      type: int
      returned: always
    as_of:
      description: The day of the answer.
      type: str
      returned: always
    source:
      description: Who says so.
      type: str
      returned: always
    instance_types:
      description: By name, memory in MiB.
      type: dict
      returned: always
    gpu_models:
      description: By name; NVML's total, what a pod can use of it, and what the model can do.
      type: dict
      returned: always
    offerings:
      description: Zones by instance type.
      type: dict
      returned: always
    quotas:
      description:
        - By quota code; empty unless O(quotas=true), and where they could not be read.
        - C(used) is what the whole account uses in the region, C(ours) the part of O(cluster_name).
          NAT gateways have both for each zone, in C(zones).
      type: dict
      returned: always
quotas_unread:
  description: Why the quotas could not be read; null where they were, or were not asked for.
  returned: always
  type: dict
  sample: null
"""

from ansible_collections.amazon.aws.plugins.module_utils.modules import AnsibleAWSModule

from ansible_collections.gpushare.eks.plugins.module_utils._ec2_catalog import catalog
from ansible_collections.gpushare.eks.plugins.module_utils._errors import run

SPEC = {
    "instance_types": {"type": "list", "elements": "str", "required": True},
    "zones": {"type": "list", "elements": "str"},
    "quotas": {"type": "bool", "default": False},
    "cluster_name": {"type": "str"},
}


def main() -> None:
    module = AnsibleAWSModule(argument_spec=SPEC, supports_check_mode=True)
    run(module, lambda: catalog(module))


if __name__ == "__main__":
    main()
