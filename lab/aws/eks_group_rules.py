"""What EKS refuses in a node group, and its names of taint effects."""

from __future__ import annotations

from lab.aws import ServiceError
from lab.aws.eks_state import Cluster

# The API's taint effects and Kubernetes' own.
EFFECTS = {
    "NO_SCHEDULE": "NoSchedule",
    "NO_EXECUTE": "NoExecute",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
}


def invalid(message: str, cluster: Cluster, nodegroup: str = "") -> ServiceError:
    return ServiceError(
        "InvalidParameterException", message, clusterName=cluster.name, nodegroupName=nodegroup
    )


def check_scaling(cluster: Cluster, scaling: dict[str, int]) -> None:
    """Refuses sizes that do not go together."""
    low, high, wanted = scaling["minSize"], scaling["maxSize"], scaling["desiredSize"]
    if high < 1:
        raise invalid("maxSize must be at least 1", cluster)
    if low > high:
        raise invalid("Minimum capacity can't be greater than maximum capacity", cluster)
    if not low <= wanted <= high:
        raise invalid(
            f"desired capacity {wanted} must lie between minSize {low} and maxSize {high}", cluster
        )


def check_labels(cluster: Cluster, labels: dict[str, str], taints: list[dict[str, str]]) -> None:
    """Refuses reserved labels, and taints that are incomplete or there twice."""
    for key in labels:
        domain = key.partition("/")[0] if "/" in key else ""
        if domain.endswith(("kubernetes.io", "k8s.io", "eks.amazonaws.com")):
            raise invalid(f"Label cannot contain reserved prefixes: {key}", cluster)
    for taint in taints:
        if not taint.get("key") or not taint.get("effect"):
            raise invalid("a taint needs a key and an effect", cluster)
    if len({(taint["key"], taint["effect"]) for taint in taints}) != len(taints):
        raise invalid("two taints have the same key and effect", cluster)
