#!/usr/bin/python
# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: eks_nodegroup
version_added: 0.1.0
short_description: Keep the managed node groups of an EKS cluster as wanted
description:
  - Creates, adopts, updates and deletes managed node groups, all of the list side by side, and tags
    the Auto Scaling groups behind them.
  - A node group that is CREATING, UPDATING or DELETING is waited for and then compared. One that is
    CREATE_FAILED or DELETE_FAILED and carries our tag is deleted and made again; a warning says so.
  - Suboptions that are not given are not compared.
author:
  - gpushare.eks contributors (@gpushare)
options:
  nodegroups:
    description: The node groups.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the node group.
        type: str
        required: true
      node_role_arn:
        description: ARN of the nodes' IAM role. Needed for a new group; cannot change.
        type: str
      subnet_ids:
        description: Subnets of the nodes. Needed for a new group; cannot change.
        type: list
        elements: str
      launch_template:
        description: The EC2 launch template, by id or by name. Another version replaces the nodes
          one after the other; another template is refused.
        type: dict
        suboptions:
          id:
            description: Its id.
            type: str
          name:
            description: Its name.
            type: str
          version:
            description: Number of its version.
            type: str
      ami_type:
        description: Kind of image, such as V(AL2023_x86_64_NVIDIA). Leave it out where the launch
          template names the image. Cannot change.
        type: str
      version:
        description: Kubernetes version of the nodes; not with an image of your own.
        type: str
      release_version:
        description: Release of the EKS image; not with an image of your own.
        type: str
      instance_types:
        description: Instance types in the order of preference. Cannot change.
        type: list
        elements: str
      capacity_type:
        description: How instances are bought. Cannot change.
        type: str
        choices: [on_demand, spot]
      scaling:
        description: How many nodes there may be. Needed for a new group.
        type: dict
        suboptions:
          min_size:
            description: Nodes at least.
            type: int
            required: true
          max_size:
            description: Nodes at most.
            type: int
            required: true
          desired_size:
            description: Nodes at creation, by default as many as C(min_size). Later it belongs to
              the autoscaler, and only new bounds move it.
            type: int
      labels:
        description: Kubernetes labels of the nodes.
        type: dict
      taints:
        description: Kubernetes taints of the nodes.
        type: list
        elements: dict
        suboptions:
          key:
            description: Key of the taint.
            type: str
            required: true
          value:
            description: Value of the taint.
            type: str
          effect:
            description: What it keeps away.
            type: str
            required: true
            choices: [NoSchedule, NoExecute, PreferNoSchedule]
      tags:
        description: Tags of the node group. EKS does not hand them on to the Auto Scaling group.
        type: dict
      asg_tags:
        description: Tags of the Auto Scaling group, not propagated to instances. Tags that start
          with C(k8s.io/cluster-autoscaler/node-template/) and are not listed are removed.
        type: dict
      update_config:
        description: How many nodes an update may take at a time.
        type: dict
        suboptions:
          max_unavailable:
            description: A number of nodes.
            type: int
          max_unavailable_percentage:
            description: A part of the nodes.
            type: int
      node_repair:
        description: Whether EKS replaces unhealthy nodes.
        type: bool
  wait_timeout:
    description: Seconds that a wait may take, for each node group.
    type: int
    default: 1800
extends_documentation_fragment:
  - gpushare.eks.eks_list
  - gpushare.eks.eks_list.wait
  - gpushare.eks.eks_object
  - amazon.aws.common.modules
  - amazon.aws.region.modules
  - amazon.aws.boto3
seealso:
  - module: gpushare.eks.eks_cluster
"""

EXAMPLES = r"""
- name: Keep a group without GPU and one whose GPUs are shared
  gpushare.eks.eks_nodegroup:
    cluster_name: demo
    nodegroups:
      - name: system
        node_role_arn: arn:aws:iam::123456789012:role/demo-nodes
        subnet_ids: [subnet-0a1b2c3d4e5f60001, subnet-0a1b2c3d4e5f60002]
        ami_type: AL2023_x86_64_STANDARD
        instance_types: [m6i.large]
        scaling: {min_size: 1, max_size: 3}
      - name: shared-us-east-1a
        node_role_arn: arn:aws:iam::123456789012:role/demo-nodes
        subnet_ids: [subnet-0a1b2c3d4e5f60001]
        launch_template: {id: lt-0a1b2c3d4e5f60001, version: "3"}
        instance_types: [g4dn.xlarge]
        capacity_type: spot
        scaling: {min_size: 0, max_size: 10}
        labels: {gpushare.eks/pool: shared}
        taints:
          - {key: gpushare.eks/shared, value: shared, effect: NoSchedule}
        asg_tags:
          k8s.io/cluster-autoscaler/node-template/resources/gpushare.eks/gpu-memory: 14336Mi
    purge: true

- name: Delete one
  gpushare.eks.eks_nodegroup:
    cluster_name: demo
    nodegroups: [{name: system}]
    state: absent
"""

RETURN = r"""
nodegroups:
  description: The listed node groups, in the order of the list. The same keys come in check mode.
  returned: always
  type: list
  elements: dict
  sample:
    - exists: true
      name: system
      cluster_name: demo
      arn: arn:aws:eks:us-east-1:123456789012:nodegroup/demo/system/1cc0ffee-0000
      status: ACTIVE
      asg_names: [eks-system-1cc0ffee-0000-4000-8000-1234567890ab]
      asg_tags: {}
      health_issues: ""
      node_role_arn: arn:aws:iam::123456789012:role/demo-nodes
      subnet_ids: [subnet-0a1b2c3d4e5f60001, subnet-0a1b2c3d4e5f60002]
      launch_template: {}
      ami_type: AL2023_x86_64_STANDARD
      version: "1.36"
      release_version: 1.36.3-20261101
      instance_types: [m6i.large]
      capacity_type: on_demand
      scaling: {min_size: 1, max_size: 3, desired_size: 1}
      labels: {}
      taints: []
      update_config: {max_unavailable: 1}
      node_repair: false
      tags: {gpushare.eks/cluster: demo}
removed:
  description: Names of the node groups that were deleted, by O(state=absent) or O(purge).
  returned: always
  type: list
  elements: str
  sample: [old-pool]
"""

from ansible_collections.amazon.aws.plugins.module_utils.modules import AnsibleAWSModule

from ansible_collections.gpushare.eks.plugins.module_utils._aws import list_spec
from ansible_collections.gpushare.eks.plugins.module_utils._eks_nodegroup import EFFECTS
from ansible_collections.gpushare.eks.plugins.module_utils._eks_run import nodegroups
from ansible_collections.gpushare.eks.plugins.module_utils._errors import run

NODEGROUP = {
    "name": {"type": "str", "required": True},
    "node_role_arn": {"type": "str"},
    "subnet_ids": {"type": "list", "elements": "str"},
    "launch_template": {
        "type": "dict",
        "options": {"id": {"type": "str"}, "name": {"type": "str"}, "version": {"type": "str"}},
        "mutually_exclusive": [("id", "name")],
        "required_one_of": [("id", "name")],
    },
    "ami_type": {"type": "str"},
    "version": {"type": "str"},
    "release_version": {"type": "str"},
    "instance_types": {"type": "list", "elements": "str"},
    "capacity_type": {"type": "str", "choices": ["on_demand", "spot"]},
    "scaling": {
        "type": "dict",
        "options": {
            "min_size": {"type": "int", "required": True},
            "max_size": {"type": "int", "required": True},
            "desired_size": {"type": "int"},
        },
    },
    "labels": {"type": "dict"},
    "taints": {
        "type": "list",
        "elements": "dict",
        "options": {
            "key": {"type": "str", "required": True, "no_log": False},
            "value": {"type": "str"},
            "effect": {"type": "str", "required": True, "choices": list(EFFECTS)},
        },
    },
    "tags": {"type": "dict"},
    "asg_tags": {"type": "dict"},
    "update_config": {
        "type": "dict",
        "options": {
            "max_unavailable": {"type": "int"},
            "max_unavailable_percentage": {"type": "int"},
        },
        "mutually_exclusive": [("max_unavailable", "max_unavailable_percentage")],
        "required_one_of": [("max_unavailable", "max_unavailable_percentage")],
    },
    "node_repair": {"type": "bool"},
}
SPEC = {
    "nodegroups": {"type": "list", "elements": "dict", "required": True, "options": NODEGROUP},
    **list_spec(wait_timeout=1800),
}


def main() -> None:
    module = AnsibleAWSModule(argument_spec=SPEC, supports_check_mode=True)
    run(module, lambda: nodegroups(module))


if __name__ == "__main__":
    main()
