# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pure: which AWS objects inside our VPC belong to a cluster, told by their tags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

OUR_TAG = "gpushare.eks/cluster"
# How Elastic Load Balancing describes its network interfaces: "ELB name", "ELB net/name/id".
BALANCER = re.compile(r"ELB (?:[a-z]+/)?([^/]+)")


def is_left(tags: Mapping[str, str], cluster_name: str) -> bool:
    """Whether EKS or one of its controllers tagged it for this cluster."""
    signs = {
        "aws:eks:cluster-name": cluster_name,
        "eks:cluster-name": cluster_name,
        "cluster.k8s.amazonaws.com/name": cluster_name,
        "elbv2.k8s.aws/cluster": cluster_name,
        f"kubernetes.io/cluster/{cluster_name}": "owned",
    }
    return any(tags.get(key) == value for key, value in signs.items())


def is_ours(tags: Mapping[str, str], cluster_name: str) -> bool:
    """Ours is what we tagged, or what EKS and its controllers tagged for this cluster."""
    return tags.get(OUR_TAG) == cluster_name or is_left(tags, cluster_name)


def ours(objects: Iterable[Mapping[str, Any]], cluster_name: str) -> list[Mapping[str, Any]]:
    """The objects, each with "tags" as a dict, that belong to the cluster."""
    return [one for one in objects if is_ours(one.get("tags") or {}, cluster_name)]
