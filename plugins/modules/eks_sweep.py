#!/usr/bin/python
# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: eks_sweep
version_added: 0.2.0
short_description: Delete what EKS and its controllers left of a cluster
description:
  - Finds and deletes the load balancers of all kinds, target groups, Auto Scaling groups,
    instances, launch templates, volumes, network interfaces and security groups that EKS, the
    cloud controller manager, the AWS load balancer controller, the EBS CSI driver and the VPC CNI
    made for a cluster that is gone. It needs no Kubernetes API.
  - They are told by the tags that these programs set, V(kubernetes.io/cluster/<name>=owned),
    V(elbv2.k8s.aws/cluster), V(cluster.k8s.amazonaws.com/name), V(eks:cluster-name) and
    V(aws:eks:cluster-name), and by the cluster's VPC. Launch templates and volumes, which are in no
    VPC, are told by their tags alone.
  - Waits until what holds a security group has ended. A group that something else holds, and a load
    balancer with deletion protection, is kept and told with the reason; all the rest goes.
  - A cluster that exists is refused. In check mode it is not, and its objects are listed.
author:
  - gpushare.eks contributors (@gpushare)
options:
  cluster_name:
    description: Name of the EKS cluster.
    type: str
    required: true
  vpc_id:
    description:
      - The cluster's VPC. Without it and O(subnet_ids) it is the cluster's own where the cluster is
        still there, else the one with the tag C(gpushare.eks/cluster). Where there is none, nothing
        that belongs to a VPC is looked for.
    type: str
  subnet_ids:
    description: Subnets of the cluster, which tell its VPC where O(vpc_id) is not given.
    type: list
    elements: str
    default: []
  volumes:
    description: Whether the volumes of its claims are deleted, with their data.
    type: bool
    default: false
  wait_timeout:
    description: Seconds until everything has to be gone.
    type: int
    default: 600
attributes:
  check_mode:
    description: Can run in check mode and tells what would change, without changing it.
    support: full
  diff_mode:
    description: Returns what changed, or in check mode what would change.
    support: full
extends_documentation_fragment:
  - amazon.aws.common.modules
  - amazon.aws.region.modules
  - amazon.aws.boto3
"""

EXAMPLES = r"""
- name: Delete what a cluster left in the VPC of the team
  gpushare.eks.eks_sweep:
    cluster_name: demo
    vpc_id: vpc-0a1b2c3d4e5f60001
"""

RETURN = r"""
deleted:
  description: What was deleted; in check mode what would be.
  returned: success
  type: list
  elements: dict
  sample: [{"kind": "security group", "id": "sg-0a1b2c3d4e5f60001", "name": "k8s-elb-a1b2c3"}]
kept:
  description: What stays, and why.
  returned: success
  type: list
  elements: dict
  sample:
    - kind: security group
      id: sg-0a1b2c3d4e5f60002
      name: eks-cluster-sg-demo-1
      reason: held by a rule of security group sg-0a1b2c3d4e5f60003
vpc_id:
  description: The VPC that was searched; empty where none is known.
  returned: success
  type: str
  sample: vpc-0a1b2c3d4e5f60001
"""

import functools

from ansible_collections.amazon.aws.plugins.module_utils.modules import AnsibleAWSModule

from ansible_collections.gpushare.eks.plugins.module_utils import _aws
from ansible_collections.gpushare.eks.plugins.module_utils._errors import run
from ansible_collections.gpushare.eks.plugins.module_utils._sweep import Sweep


def main() -> None:
    spec = {
        "cluster_name": {"type": "str", "required": True},
        "vpc_id": {"type": "str"},
        "subnet_ids": {"type": "list", "elements": "str", "default": []},
        "volumes": {"type": "bool", "default": False},
        "wait_timeout": {"type": "int", "default": 600},
    }
    module = AnsibleAWSModule(argument_spec=spec, supports_check_mode=True)
    params = module.params
    sweep = Sweep(
        functools.cache(lambda service: _aws.client(module, service)),
        params["cluster_name"],
        volumes=params["volumes"],
        check_mode=module.check_mode,
        timeout=params["wait_timeout"],
        progress=module.log,
    )
    run(module, lambda: sweep.run(params["vpc_id"] or "", params["subnet_ids"]))


if __name__ == "__main__":
    main()
