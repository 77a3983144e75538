# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: eks_token
version_added: 0.1.0
short_description: A fresh bearer token for the API server of an EKS cluster
description:
  - Mints the token that C(aws eks get-token) would give, from a presigned STS call, without making
    the call.
  - The API server takes it for 15 minutes. Used in C(module_defaults), it is minted anew for each
    task, so that a long play never runs out.
author:
  - gpushare.eks contributors (@gpushare)
options:
  _terms:
    description: Names of clusters.
    type: list
    elements: str
    required: true
notes:
  - The variable E(AWS_ENDPOINT_URL) is honoured, as by any client of the AWS SDK.
extends_documentation_fragment:
  - amazon.aws.common.plugins
  - amazon.aws.region.plugins
  - amazon.aws.boto3
seealso:
  - module: gpushare.eks.eks_cluster
"""

EXAMPLES = r"""
- name: Speak to Kubernetes
  module_defaults:
    group/kubernetes.core.k8s:
      kubeconfig: "{{ eks_result.kubeconfig }}"
      api_key: "{{ lookup('gpushare.eks.eks_token', eks_result.name, region='us-east-1') }}"
  block:
    - name: List the nodes
      kubernetes.core.k8s_info:
        kind: Node
"""

RETURN = r"""
_raw:
  description: One token for each cluster.
  type: list
  elements: str
  sample: [k8s-aws-v1.aHR0cHM6Ly9zdHMudXMtZWFzdC0xLmFtYXpvbmF3cy5jb20]
"""

from typing import Any

from ansible.errors import AnsibleLookupError
from ansible_collections.amazon.aws.plugins.plugin_utils.lookup import AWSLookupBase

from ansible_collections.gpushare.eks.plugins.module_utils._errors import (
    GpushareError,
    aws_errors,
)
from ansible_collections.gpushare.eks.plugins.module_utils._token import mint

try:
    import boto3
except ImportError:  # require_aws_sdk() of the base class says so
    boto3 = None


class LookupModule(AWSLookupBase):
    """Tokens of EKS clusters."""

    def run(self, terms: list[str], variables: Any = None, **kwargs: Any) -> list[str]:
        super().run(terms, variables, **kwargs)
        try:
            with aws_errors("EKS token"):
                keys = {
                    "aws_access_key_id": self.get_option("access_key"),
                    "aws_secret_access_key": self.get_option("secret_key"),
                    "aws_session_token": self.get_option("session_token"),
                }
                profile = self.get_option("profile")
                # A profile brings its own keys: those of the environment must not win over it.
                session = boto3.session.Session(**({"profile_name": profile} if profile else keys))
                return [
                    mint(
                        session,
                        name,
                        self.get_option("region") or session.region_name,
                        endpoint_url=self.get_option("endpoint_url"),
                    )
                    for name in terms
                ]
        except GpushareError as error:
            raise AnsibleLookupError(str(error)) from error
