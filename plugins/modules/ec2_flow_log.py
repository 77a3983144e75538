#!/usr/bin/python
# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: ec2_flow_log
version_added: 0.2.0
short_description: Keep flow logs of VPCs, subnets and network interfaces as wanted
description:
  - Creates and deletes flow logs that go to CloudWatch Logs. A resource and a log group have one.
  - AWS changes nothing of a flow log but its tags. For any other change it is deleted and made
    again, which loses a few seconds of records.
  - A role that was made just before is waited for up to two minutes.
author:
  - gpushare.eks contributors (@gpushare)
options:
  flow_logs:
    description: The flow logs.
    type: list
    elements: dict
    required: true
    suboptions:
      resource_id:
        description: The VPC, subnet or network interface.
        type: str
        required: true
      log_group_name:
        description: Name of the log group. It should be there, or nothing is delivered.
        type: str
        required: true
      role_arn:
        description:
          - ARN of the role by which AWS writes to the log group. Needed with O(state=present).
        type: str
      traffic_type:
        description: What is recorded.
        type: str
        choices: [ALL, ACCEPT, REJECT]
        default: ALL
      max_aggregation_interval:
        description: Seconds that go into one record at most.
        type: int
        choices: [60, 600]
        default: 600
      log_format:
        description: Fields of a record. Without it a new flow log gets AWS's default.
        type: str
      tags:
        description: Tags of the flow log.
        type: dict
extends_documentation_fragment:
  - gpushare.eks.eks_list
  - gpushare.eks.eks_object
  - amazon.aws.common.modules
  - amazon.aws.region.modules
  - amazon.aws.boto3
"""

EXAMPLES = r"""
- name: Record what a VPC refuses
  gpushare.eks.ec2_flow_log:
    cluster_name: demo
    flow_logs:
      - resource_id: vpc-0123456789abcdef0
        log_group_name: /aws/vpc/demo
        role_arn: "{{ flow_role.iam_role.arn }}"
        traffic_type: REJECT

- name: Remove all flow logs of a cluster
  gpushare.eks.ec2_flow_log:
    cluster_name: demo
    flow_logs: []
    purge: true
"""

RETURN = r"""
flow_logs:
  description: The listed flow logs that are there, or in check mode would be.
  returned: always
  type: list
  elements: dict
  sample:
    - resource_id: vpc-0123456789abcdef0
      log_group_name: /aws/vpc/demo
      role_arn: arn:aws:iam::123456789012:role/demo-flow-logs
      traffic_type: ALL
      max_aggregation_interval: 600
      log_format: ""
      tags: {gpushare.eks/cluster: demo}
removed:
  description: The flow logs that were deleted, by O(state=absent) or O(purge).
  returned: always
  type: list
  elements: str
  sample: [flow log of vpc-0123456789abcdef0 to /aws/vpc/demo]
"""

from ansible_collections.amazon.aws.plugins.module_utils.modules import AnsibleAWSModule

from ansible_collections.gpushare.eks.plugins.module_utils._aws import list_spec
from ansible_collections.gpushare.eks.plugins.module_utils._errors import run
from ansible_collections.gpushare.eks.plugins.module_utils._flow_logs import keep

FLOW_LOG = {
    "resource_id": {"type": "str", "required": True},
    "log_group_name": {"type": "str", "required": True},
    "role_arn": {"type": "str"},
    "traffic_type": {"type": "str", "choices": ["ALL", "ACCEPT", "REJECT"], "default": "ALL"},
    "max_aggregation_interval": {"type": "int", "choices": [60, 600], "default": 600},
    "log_format": {"type": "str"},
    "tags": {"type": "dict"},
}
SPEC = {
    "flow_logs": {"type": "list", "elements": "dict", "required": True, "options": FLOW_LOG},
    **list_spec(wait_timeout=0, wait=False),
}


def main() -> None:
    module = AnsibleAWSModule(argument_spec=SPEC, supports_check_mode=True)
    run(module, lambda: keep(module))


if __name__ == "__main__":
    main()
