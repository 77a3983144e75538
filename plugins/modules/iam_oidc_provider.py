#!/usr/bin/python
# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: iam_oidc_provider
version_added: 0.2.0
short_description: Keep IAM's OIDC provider of an EKS cluster as wanted
description:
  - Creates, changes and deletes the identity provider by which service accounts of a cluster get
    IAM roles (IRSA). Clusters that use Pod Identity need none.
  - No thumbprint is given. AWS checks the certificates of EKS's issuers against its own list.
  - With O(state=absent) a provider without our tag C(gpushare.eks/cluster) stays, with a warning.
author:
  - gpushare.eks contributors (@gpushare)
options:
  cluster_name:
    description: Name of the EKS cluster. The provider gets the tag C(gpushare.eks/cluster) with it.
    type: str
    required: true
  url:
    description:
      - The cluster's issuer, as M(gpushare.eks.eks_cluster) returns C(oidc_issuer).
      - Needed with O(state=present). With O(state=absent) and without it, all providers that carry
        our tag for this cluster are deleted.
    type: str
  client_ids:
    description: Audiences that are accepted.
    type: list
    elements: str
    default: [sts.amazonaws.com]
  tags:
    description: Tags of the provider.
    type: dict
  purge_tags:
    description:
      - Remove tags that are not listed, where O(tags) is given. Tags that start with C(aws:) are
        never touched.
    type: bool
    default: true
  state:
    description: Whether the provider shall be there.
    type: str
    choices: [present, absent]
    default: present
attributes:
  check_mode:
    description: Can run in check mode and tells what would change, without changing it.
    support: full
  diff_mode:
    description: Returns what changed, or in check mode what would change.
    support: full
extends_documentation_fragment:
  - gpushare.eks.eks_object
  - amazon.aws.common.modules
  - amazon.aws.region.modules
  - amazon.aws.boto3
seealso:
  - module: gpushare.eks.eks_pod_identity_association
"""

EXAMPLES = r"""
- name: Let service accounts take IAM roles
  gpushare.eks.iam_oidc_provider:
    cluster_name: demo
    url: "{{ eks_result.oidc_issuer }}"
"""

RETURN = r"""
provider:
  description: The provider. The same keys come in check mode.
  returned: always
  type: dict
  sample:
    exists: true
    arn: arn:aws:iam::123456789012:oidc-provider/oidc.eks.us-east-1.amazonaws.com/id/1CC0FFEE
    url: oidc.eks.us-east-1.amazonaws.com/id/1CC0FFEE
    client_ids: [sts.amazonaws.com]
    tags: {gpushare.eks/cluster: demo}
"""

from ansible_collections.amazon.aws.plugins.module_utils.modules import AnsibleAWSModule

from ansible_collections.gpushare.eks.plugins.module_utils._errors import run
from ansible_collections.gpushare.eks.plugins.module_utils._oidc import keep

SPEC = {
    "cluster_name": {"type": "str", "required": True},
    "url": {"type": "str"},
    "client_ids": {"type": "list", "elements": "str", "default": ["sts.amazonaws.com"]},
    "tags": {"type": "dict"},
    "purge_tags": {"type": "bool", "default": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}


def main() -> None:
    module = AnsibleAWSModule(
        argument_spec=SPEC,
        supports_check_mode=True,
        required_if=[("state", "present", ("url",))],
    )
    run(module, lambda: keep(module))


if __name__ == "__main__":
    main()
