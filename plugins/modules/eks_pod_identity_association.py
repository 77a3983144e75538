#!/usr/bin/python
# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: eks_pod_identity_association
version_added: 0.2.0
short_description: Keep the Pod Identity associations of an EKS cluster as wanted
description:
  - Gives the pods of a Kubernetes service account the rights of an IAM role, all of the list side
    by side.
  - Suboptions that are not given are not compared. An association that is there already, with
    another role or without our tag, is taken up and changed.
  - The nodes need the add-on C(eks-pod-identity-agent), and the role has to trust
    C(pods.eks.amazonaws.com). Pods get the role when they start.
  - An association that belongs to an add-on is neither changed nor deleted here.
author:
  - gpushare.eks contributors (@gpushare)
options:
  associations:
    description: The associations.
    type: list
    elements: dict
    required: true
    suboptions:
      namespace:
        description: Namespace of the service account. It need not be there yet.
        type: str
        required: true
      service_account:
        description: Name of the service account. It need not be there yet.
        type: str
        required: true
      role_arn:
        description: ARN of the IAM role. Needed with O(state=present).
        type: str
      target_role_arn:
        description:
          - ARN of a further IAM role, in any account, that the pods get by way of the first.
          - Once set it can be replaced, but not taken away.
        type: str
      disable_session_tags:
        description: Whether EKS leaves out its session tags, such as the cluster and the namespace.
        type: bool
      policy:
        description:
          - An IAM policy that narrows what the role may do.
          - Needs O(associations[].disable_session_tags).
          - Once set it can be replaced, but not taken away.
        type: dict
      tags:
        description: Tags of the association.
        type: dict
extends_documentation_fragment:
  - gpushare.eks.eks_list
  - gpushare.eks.eks_object
  - amazon.aws.common.modules
  - amazon.aws.region.modules
  - amazon.aws.boto3
seealso:
  - module: gpushare.eks.eks_addon
  - module: gpushare.eks.eks_cluster
"""

EXAMPLES = r"""
- name: Let the autoscaler and a team's workers use their roles
  gpushare.eks.eks_pod_identity_association:
    cluster_name: demo
    associations:
      - namespace: kube-system
        service_account: cluster-autoscaler
        role_arn: arn:aws:iam::123456789012:role/demo-autoscaler
      - namespace: vision
        service_account: worker
        role_arn: arn:aws:iam::123456789012:role/vision
        disable_session_tags: true
        policy:
          Version: "2012-10-17"
          Statement:
            - Effect: Allow
              Action: s3:GetObject
              Resource: arn:aws:s3:::vision-models/*

- name: Take one away
  gpushare.eks.eks_pod_identity_association:
    cluster_name: demo
    state: absent
    associations:
      - namespace: vision
        service_account: worker
"""

RETURN = r"""
associations:
  description: The listed associations, in the order of the list, also in check mode.
  returned: always
  type: list
  elements: dict
  sample:
    - exists: true
      namespace: kube-system
      service_account: cluster-autoscaler
      cluster_name: demo
      arn: arn:aws:eks:us-east-1:123456789012:podidentityassociation/demo/a-0a1b2c3d4e5f60001
      id: a-0a1b2c3d4e5f60001
      role_arn: arn:aws:iam::123456789012:role/demo-autoscaler
      target_role_arn: ""
      external_id: ""
      disable_session_tags: false
      policy: {}
      owner_arn: ""
      tags: {gpushare.eks/cluster: demo}
  contains:
    exists:
      description: Whether the association exists.
      type: bool
      returned: always
    id:
      description: EKS's number of it; empty where it does not exist.
      type: str
      returned: always
    external_id:
      description: What the trust policy of the target role may demand as C(sts:ExternalId).
      type: str
      returned: always
    owner_arn:
      description: The add-on that it belongs to; empty where none does.
      type: str
      returned: always
removed:
  description: What was deleted, by O(state=absent) or O(purge), as C(namespace/service_account).
  returned: always
  type: list
  elements: str
  sample: []
"""

from ansible_collections.amazon.aws.plugins.module_utils.modules import AnsibleAWSModule

from ansible_collections.gpushare.eks.plugins.module_utils._aws import list_spec
from ansible_collections.gpushare.eks.plugins.module_utils._eks_run import pod_identity_associations
from ansible_collections.gpushare.eks.plugins.module_utils._errors import run

ASSOCIATION = {
    "namespace": {"type": "str", "required": True},
    "service_account": {"type": "str", "required": True},
    "role_arn": {"type": "str"},
    "target_role_arn": {"type": "str"},
    "disable_session_tags": {"type": "bool"},
    "policy": {"type": "dict"},
    "tags": {"type": "dict"},
}
SPEC = {
    "associations": {"type": "list", "elements": "dict", "required": True, "options": ASSOCIATION},
    **list_spec(wait_timeout=60, wait=False),
}


def main() -> None:
    module = AnsibleAWSModule(argument_spec=SPEC, supports_check_mode=True)
    run(module, lambda: pod_identity_associations(module))


if __name__ == "__main__":
    main()
