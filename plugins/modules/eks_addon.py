#!/usr/bin/python
# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: eks_addon
version_added: 0.1.0
short_description: Keep the add-ons of an EKS cluster as wanted
description:
  - Creates, adopts, updates and deletes EKS add-ons, all of the list side by side.
  - An add-on that is CREATE_FAILED or DELETE_FAILED and carries our tag is deleted and made again;
    one that is UPDATE_FAILED is updated again.
  - An add-on that is DEGRADED is waited for until it is ACTIVE, unless C(accept_degraded) of its
    item says why that will do. coredns and metrics-server, for example, need an untainted node.
author:
  - gpushare.eks contributors (@gpushare)
options:
  addons:
    description: The add-ons.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the add-on, such as V(coredns).
        type: str
        required: true
      version:
        description:
          - Version of the add-on. One that does not fit the cluster's Kubernetes version is
            refused, with those that do.
          - Without it a new add-on gets AWS's default for that Kubernetes version. One that is
            there keeps its version as long as it fits.
        type: str
      configuration:
        description:
          - The add-on's configuration values, compared as parsed JSON.
          - Before it is written, in check mode as well, it is held against the schema that AWS
            publishes for the version. What does not fit is refused with the fields.
        type: dict
      service_account_role_arn:
        description: IAM role of the add-on's service account.
        type: str
      resolve_conflicts:
        description: What happens with fields that somebody else has changed in the cluster.
        type: str
        choices: [OVERWRITE, NONE, PRESERVE]
        default: OVERWRITE
      accept_degraded:
        description: The reason why DEGRADED will do. It is repeated in a warning.
        type: str
      tags:
        description: Tags of the add-on.
        type: dict
  wait_timeout:
    description: Seconds that a wait may take, for each add-on.
    type: int
    default: 1200
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
- name: Keep the add-ons that every cluster needs
  gpushare.eks.eks_addon:
    cluster_name: demo
    addons:
      - name: vpc-cni
        configuration:
          env:
            ENABLE_PREFIX_DELEGATION: "true"
      - name: kube-proxy
      - name: coredns
      - name: metrics-server
        accept_degraded: the untainted pool may be scaled to zero
"""

RETURN = r"""
addons:
  description: The listed add-ons, in the order of the list. The same keys come in check mode.
  returned: always
  type: list
  elements: dict
  sample:
    - exists: true
      name: coredns
      cluster_name: demo
      arn: arn:aws:eks:us-east-1:123456789012:addon/demo/coredns/1cc0ffee-0000
      status: ACTIVE
      health_issues: ""
      version: v1.12.4-eksbuild.1
      configuration: {replicaCount: 2}
      service_account_role_arn: ""
      update_failed: false
      tags: {gpushare.eks/cluster: demo}
removed:
  description: Names of the add-ons that were deleted, by O(state=absent) or O(purge).
  returned: always
  type: list
  elements: str
  sample: []
"""

from ansible_collections.amazon.aws.plugins.module_utils.modules import AnsibleAWSModule

from ansible_collections.gpushare.eks.plugins.module_utils._aws import list_spec
from ansible_collections.gpushare.eks.plugins.module_utils._eks_run import addons
from ansible_collections.gpushare.eks.plugins.module_utils._errors import run

CONFLICTS = ["OVERWRITE", "NONE", "PRESERVE"]
ADDON = {
    "name": {"type": "str", "required": True},
    "version": {"type": "str"},
    "configuration": {"type": "dict"},
    "service_account_role_arn": {"type": "str"},
    "resolve_conflicts": {"type": "str", "choices": CONFLICTS, "default": "OVERWRITE"},
    "accept_degraded": {"type": "str"},
    "tags": {"type": "dict"},
}
SPEC = {
    "addons": {"type": "list", "elements": "dict", "required": True, "options": ADDON},
    **list_spec(wait_timeout=1200),
}


def main() -> None:
    module = AnsibleAWSModule(argument_spec=SPEC, supports_check_mode=True)
    run(module, lambda: addons(module))


if __name__ == "__main__":
    main()
