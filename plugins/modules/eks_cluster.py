#!/usr/bin/python
# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: eks_cluster
version_added: 0.1.0
short_description: Keep an EKS cluster as wanted
description:
  - Creates, adopts, updates and deletes an EKS cluster.
  - A cluster that is CREATING, UPDATING or DELETING is waited for and then compared. One that is
    FAILED is an error, unless O(recreate_failed) is set.
  - Options that are not given are not compared. With O(name) alone an existing cluster is read,
    and waited for while it is under way. In check mode O(name) alone reads whatever is there, in
    any state; a missing cluster is no error.
author:
  - gpushare.eks contributors (@gpushare)
options:
  name:
    description: Name of the cluster.
    type: str
    required: true
  version:
    description:
      - Kubernetes version, such as V(1.36). Without it a new cluster gets the default of AWS.
      - An existing cluster goes up one minor version at a time, and never back.
      - Before an upgrade, also in check mode, the module reads the node groups' versions and EKS's
        upgrade insights. Node groups that would be more than three minor versions behind are
        refused, and so are insights in the state C(ERROR). What is neither that nor C(PASSING) is
        a warning.
    type: str
  ignore_insights:
    description:
      - Upgrade in spite of upgrade insights in the state C(ERROR), which then are warnings, and
        have EKS override its own checks of them as well (C(force) of C(UpdateClusterVersion)).
      - Counts only where O(version) is given and an upgrade is due.
    type: bool
    default: false
  role_arn:
    description: ARN of the IAM role of the control plane. Needed for a new cluster; cannot change.
    type: str
  subnet_ids:
    description: Subnets for the control plane's interfaces, in two zones or more. Needed for a new
      cluster.
    type: list
    elements: str
  security_group_ids:
    description: Further security groups for the control plane's interfaces.
    type: list
    elements: str
  endpoint_private_access:
    description: Whether the API server has an endpoint inside the VPC. V(true) for a new cluster.
    type: bool
  endpoint_public_access:
    description: Whether the API server has a public endpoint. V(false) for a new cluster.
    type: bool
  public_access_cidrs:
    description:
      - Networks that reach the public endpoint. Not compared while that is off.
      - To open it one has to name them, V(0.0.0.0/0) included.
    type: list
    elements: str
  encryption_key_arn:
    description: KMS key that encrypts Kubernetes secrets. Once set it cannot change.
    type: str
  service_ipv4_cidr:
    description: Network of the cluster's services. Cannot change.
    type: str
  logging:
    description: Log types that the control plane sends to CloudWatch.
    type: list
    elements: str
    choices: [api, audit, authenticator, controllerManager, scheduler]
  authentication_mode:
    description: How callers are known. V(API) for a new cluster. There is no way back from
      V(API) to V(CONFIG_MAP).
    type: str
    choices: [API, API_AND_CONFIG_MAP, CONFIG_MAP]
  bootstrap_cluster_creator_admin:
    description: Whether the creator gets an access entry as admin. Counts at creation only.
    type: bool
  deletion_protection:
    description: Whether AWS refuses to delete the cluster.
    type: bool
  support_type:
    description: What happens at the end of standard support. V(standard) upgrades, V(extended)
      costs more.
    type: str
    choices: [standard, extended]
  tags:
    description: Tags of the cluster.
    type: dict
  purge_tags:
    description: Remove tags that are not in O(tags), where it is given. Tags that start with
      C(aws:) are never touched.
    type: bool
    default: true
  recreate_failed:
    description:
      - Delete a cluster that is FAILED and make it again. Only one that carries the tag
        C(gpushare.eks/cluster) with its name is deleted.
      - All that a new cluster needs has to be given.
    type: bool
    default: false
  state:
    description: Whether the cluster exists.
    type: str
    choices: [present, absent]
    default: present
  wait_timeout:
    description: Seconds that a wait may take. AWS makes a cluster in about 15 minutes.
    type: int
    default: 2400
  reach_timeout:
    description:
      - Seconds to try for a connection to the API server of a cluster that is ACTIVE, from where
        this module runs and by the proxy that it would use. Without one the module fails and tells
        what stands between. V(0) does not try.
    type: int
    default: 0
attributes:
  check_mode:
    description: Can run in check mode and tells what would change, without changing it.
    support: full
  diff_mode:
    description: Returns what changed, or in check mode what would change.
    support: full
extends_documentation_fragment:
  - gpushare.eks.eks_list.wait
  - gpushare.eks.eks_object
  - amazon.aws.common.modules
  - amazon.aws.region.modules
  - amazon.aws.boto3
seealso:
  - module: gpushare.eks.eks_nodegroup
  - module: gpushare.eks.eks_addon
  - module: gpushare.eks.eks_access_entry
  - module: gpushare.eks.eks_pod_identity_association
"""

EXAMPLES = r"""
- name: Start a private cluster, and go on with other work
  gpushare.eks.eks_cluster:
    name: demo
    version: "1.36"
    role_arn: arn:aws:iam::123456789012:role/demo-cluster
    subnet_ids: [subnet-0a1b2c3d4e5f60001, subnet-0a1b2c3d4e5f60002]
    encryption_key_arn: arn:aws:kms:us-east-1:123456789012:key/2f1e0d3c-0000-4000-8000-1234567890ab
    logging: [api, audit, authenticator]
    wait: false

- name: Wait until it is active
  gpushare.eks.eks_cluster:
    name: demo

- name: Upgrade it by one minor version, with up to an hour for that
  gpushare.eks.eks_cluster:
    name: demo
    version: "1.37"
    wait_timeout: 3600

- name: Delete it
  gpushare.eks.eks_cluster:
    name: demo
    state: absent
"""

RETURN = r"""
cluster:
  description:
    - The cluster. The same keys come in check mode and for a cluster that is absent;
      RV(cluster.exists) is then false and ids are placeholders.
  returned: always
  type: dict
  sample:
    exists: true
    name: demo
    arn: arn:aws:eks:us-east-1:123456789012:cluster/demo
    status: ACTIVE
    endpoint: https://0123456789ABCDEF.gr7.us-east-1.eks.amazonaws.com
    ca_data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t
    version: "1.36"
    platform_version: eks.4
    oidc_issuer: https://oidc.eks.us-east-1.amazonaws.com/id/0123456789ABCDEF
    security_group_id: sg-0a1b2c3d4e5f60001
    vpc_id: vpc-0a1b2c3d4e5f60001
    service_ipv4_cidr: 10.100.0.0/16
    role_arn: arn:aws:iam::123456789012:role/demo-cluster
    subnet_ids: [subnet-0a1b2c3d4e5f60001, subnet-0a1b2c3d4e5f60002]
    security_group_ids: []
    endpoint_private_access: true
    endpoint_public_access: false
    public_access_cidrs: []
    encryption_key_arn: arn:aws:kms:us-east-1:123456789012:key/2f1e0d3c-0000-4000-8000-1234567890ab
    logging: [api, audit, authenticator]
    authentication_mode: API
    deletion_protection: false
    support_type: standard
    health_issues: ""
    tags:
      gpushare.eks/cluster: demo
  contains:
    exists:
      description: Whether the cluster exists.
      type: bool
      returned: always
    name:
      description: Its name.
      type: str
      returned: always
    arn:
      description: Its ARN.
      type: str
      returned: always
    status:
      description: Its state in EKS, or V(ABSENT).
      type: str
      returned: always
    endpoint:
      description: URL of the API server; empty while the cluster is being made.
      type: str
      returned: always
    ca_data:
      description: The API server's certificate authority, base64.
      type: str
      returned: always
    version:
      description: Kubernetes version. In check mode and with O(wait=false) the one that it will
        have.
      type: str
      returned: always
    oidc_issuer:
      description: URL of the OIDC issuer.
      type: str
      returned: always
    security_group_id:
      description: The security group that EKS made for the cluster.
      type: str
      returned: always
    vpc_id:
      description: The VPC of its subnets.
      type: str
      returned: always
    service_ipv4_cidr:
      description: Network of the services.
      type: str
      returned: always
    health_issues:
      description: What EKS says is wrong with it; empty when nothing is.
      type: str
      returned: always
"""

from ansible_collections.amazon.aws.plugins.module_utils.modules import AnsibleAWSModule

from ansible_collections.gpushare.eks.plugins.module_utils._eks_cluster import LOG_TYPES
from ansible_collections.gpushare.eks.plugins.module_utils._eks_run import cluster
from ansible_collections.gpushare.eks.plugins.module_utils._errors import run

STRINGS = {"type": "list", "elements": "str"}
SPEC = {
    "name": {"type": "str", "required": True},
    "version": {"type": "str"},
    "ignore_insights": {"type": "bool", "default": False},
    "role_arn": {"type": "str"},
    "subnet_ids": STRINGS,
    "security_group_ids": STRINGS,
    "endpoint_private_access": {"type": "bool"},
    "endpoint_public_access": {"type": "bool"},
    "public_access_cidrs": STRINGS,
    "encryption_key_arn": {"type": "str", "no_log": False},
    "service_ipv4_cidr": {"type": "str"},
    "logging": {**STRINGS, "choices": list(LOG_TYPES)},
    "authentication_mode": {"type": "str", "choices": ["API", "API_AND_CONFIG_MAP", "CONFIG_MAP"]},
    "bootstrap_cluster_creator_admin": {"type": "bool"},
    "deletion_protection": {"type": "bool"},
    "support_type": {"type": "str", "choices": ["standard", "extended"]},
    "tags": {"type": "dict"},
    "purge_tags": {"type": "bool", "default": True},
    "recreate_failed": {"type": "bool", "default": False},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "wait": {"type": "bool", "default": True},
    "wait_timeout": {"type": "int", "default": 2400},
    "reach_timeout": {"type": "int", "default": 0},
}


def main() -> None:
    module = AnsibleAWSModule(argument_spec=SPEC, supports_check_mode=True)
    run(module, lambda: cluster(module))


if __name__ == "__main__":
    main()
