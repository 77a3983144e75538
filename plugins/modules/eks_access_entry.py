#!/usr/bin/python
# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: eks_access_entry
version_added: 0.1.0
short_description: Keep the access entries of an EKS cluster as wanted
description:
  - Creates, updates and deletes access entries, all of the list side by side, and associates EKS
    access policies with them.
  - Suboptions that are not given are not compared.
author:
  - gpushare.eks contributors (@gpushare)
options:
  entries:
    description: The access entries.
    type: list
    elements: dict
    required: true
    suboptions:
      principal_arn:
        description: ARN of the IAM role or user. A session's ARN is refused.
        type: str
        required: true
      type:
        description: Kind of the entry, V(STANDARD) for a new one. Cannot change.
        type: str
        choices:
          - STANDARD
          - EC2_LINUX
          - EC2_WINDOWS
          - FARGATE_LINUX
          - EC2
          - HYBRID_LINUX
          - HYPERPOD_LINUX
      kubernetes_groups:
        description: Kubernetes groups of the principal.
        type: list
        elements: str
      username:
        description: Kubernetes user name. EKS chooses one where it is left out.
        type: str
      policies:
        description: The EKS access policies. Others are taken away.
        type: list
        elements: dict
        suboptions:
          policy:
            description: Name of the policy, such as V(AmazonEKSClusterAdminPolicy), or its ARN.
            type: str
            required: true
          scope:
            description: Whether it counts in the whole cluster or in some namespaces.
            type: str
            choices: [cluster, namespace]
            default: cluster
          namespaces:
            description: The namespaces, with the scope V(namespace).
            type: list
            elements: str
      tags:
        description: Tags of the entry.
        type: dict
extends_documentation_fragment:
  - gpushare.eks.eks_list
  - gpushare.eks.eks_object
  - amazon.aws.common.modules
  - amazon.aws.region.modules
  - amazon.aws.boto3
seealso:
  - module: gpushare.eks.eks_cluster
"""

EXAMPLES = r"""
- name: Let the admins in, and a team into its namespace
  gpushare.eks.eks_access_entry:
    cluster_name: demo
    entries:
      - principal_arn: arn:aws:iam::123456789012:role/admins
        policies:
          - policy: AmazonEKSClusterAdminPolicy
      - principal_arn: arn:aws:iam::123456789012:role/vision
        policies:
          - policy: AmazonEKSEditPolicy
            scope: namespace
            namespaces: [vision]
"""

RETURN = r"""
entries:
  description: The listed access entries, in the order of the list, also in check mode.
  returned: always
  type: list
  elements: dict
  sample:
    - exists: true
      principal_arn: arn:aws:iam::123456789012:role/admins
      cluster_name: demo
      arn: arn:aws:eks:us-east-1:123456789012:access-entry/demo/role/123456789012/admins/1cc0ffee
      type: STANDARD
      kubernetes_groups: []
      username: arn:aws:sts::123456789012:assumed-role/admins/{{SessionName}}
      policies:
        - policy: arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy
          scope: cluster
          namespaces: []
      tags: {gpushare.eks/cluster: demo}
removed:
  description: Principals whose entries were deleted, by O(state=absent) or O(purge).
  returned: always
  type: list
  elements: str
  sample: []
"""

from ansible_collections.amazon.aws.plugins.module_utils.modules import AnsibleAWSModule

from ansible_collections.gpushare.eks.plugins.module_utils._aws import list_spec
from ansible_collections.gpushare.eks.plugins.module_utils._eks_access import TYPES
from ansible_collections.gpushare.eks.plugins.module_utils._eks_run import access_entries
from ansible_collections.gpushare.eks.plugins.module_utils._errors import run

POLICY = {
    "policy": {"type": "str", "required": True},
    "scope": {"type": "str", "choices": ["cluster", "namespace"], "default": "cluster"},
    "namespaces": {"type": "list", "elements": "str"},
}
ENTRY = {
    "principal_arn": {"type": "str", "required": True},
    "type": {"type": "str", "choices": list(TYPES)},
    "kubernetes_groups": {"type": "list", "elements": "str"},
    "username": {"type": "str"},
    "policies": {"type": "list", "elements": "dict", "options": POLICY},
    "tags": {"type": "dict"},
}
SPEC = {
    "entries": {"type": "list", "elements": "dict", "required": True, "options": ENTRY},
    **list_spec(wait_timeout=60, wait=False),
}


def main() -> None:
    module = AnsibleAWSModule(argument_spec=SPEC, supports_check_mode=True)
    run(module, lambda: access_entries(module))


if __name__ == "__main__":
    main()
