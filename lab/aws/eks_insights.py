"""Upgrade insights: what stands against the next version, worked out from what the cluster has."""

from __future__ import annotations

import time
import uuid
from typing import Any

from lab.aws import Context, ServiceError
from lab.aws.addons import versions
from lab.aws.eks_clusters import VERSIONS
from lab.aws.eks_state import Cluster, Registry

# Minor versions that a kubelet may be behind the API server.
SKEW = 3
_CATEGORY = "UPGRADE_READINESS"


def late_nodegroups(cluster: Cluster, version: str) -> list[str]:
    """The node groups whose kubelets would be too far behind an API server of this version."""
    oldest = _minor(version) - SKEW
    return sorted(
        n for n, record in cluster.nodegroups.items() if _minor(record["version"]) < oldest
    )


def insights(cluster: Cluster) -> list[dict[str, Any]]:
    """All upgrade insights as DescribeInsight answers them; none where no version comes next."""
    now = cluster.record["version"]
    if now == VERSIONS[-1]:
        return []
    following = VERSIONS[VERSIONS.index(now) + 1]
    return [
        _insight(cluster, following, *found)
        for found in (_skew(cluster, following), _addons(cluster, following), _health(cluster))
    ]


def _minor(version: str) -> int:
    return int(version.split(".")[1])


def _insight(
    cluster: Cluster, version: str, name: str, status: str, reason: str, advice: str, summary: dict
) -> dict[str, Any]:
    now = time.time()
    return {
        # The same finding keeps its id from one look to the next.
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{cluster.record['arn']} {name} {version}")),
        "name": name,
        "category": _CATEGORY,
        "kubernetesVersion": version,
        "lastRefreshTime": now,
        "lastTransitionTime": cluster.record["createdAt"],
        "description": f"{name} before an upgrade to {version}",
        "insightStatus": {"status": status, "reason": reason},
        "recommendation": advice,
        "additionalInfo": {},
        "resources": [],
        "categorySpecificSummary": summary,
    }


def _skew(cluster: Cluster, version: str) -> tuple[str, str, str, str, dict]:
    name, late = "Kubelet version skew", late_nodegroups(cluster, version)
    if late:
        reason = f"Kubelets are more than {SKEW} minor versions behind {version}: {', '.join(late)}"
        return name, "ERROR", reason, "Update these node groups first.", {}
    return name, "PASSING", f"All kubelets may stay behind {version}", "", {}


def _addons(cluster: Cluster, version: str) -> tuple[str, str, str, str, dict]:
    name = "EKS add-on version compatibility"
    bad = {
        addon: fits
        for addon, record in sorted(cluster.addons.items())
        if record["addonVersion"] not in (fits := versions(addon, version))
    }
    details = [{"name": addon, "compatibleVersions": fits} for addon, fits in bad.items()]
    summary = {"addonCompatibilityDetails": details}
    if bad:
        reason = f"Not compatible with {version}: {', '.join(bad)}"
        return name, "ERROR", reason, "Update these add-ons first.", summary
    return name, "PASSING", f"All add-ons are compatible with {version}", "", summary


def _health(cluster: Cluster) -> tuple[str, str, str, str, dict]:
    name, issues = "Cluster health issues", cluster.record["health"]["issues"]
    if issues:
        told = "; ".join(f"{issue['code']}: {issue['message']}" for issue in issues)
        return name, "ERROR", told, "Mend the cluster's health issues first.", {}
    return name, "PASSING", "No cluster health issues detected", "", {}


class Insights:
    """ListInsights and DescribeInsight."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def list(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster = self.registry.find(params["clusterName"], context)
        wanted = params.get("filter") or {}
        summary = (
            "id", "name", "category", "kubernetesVersion", "lastRefreshTime",
            "lastTransitionTime", "description", "insightStatus",
        )  # fmt: skip
        rows = [
            {key: row[key] for key in summary}
            for row in insights(cluster)
            if row["category"] in (wanted.get("categories") or [_CATEGORY])
            and row["kubernetesVersion"]
            in (wanted.get("kubernetesVersions") or [row["kubernetesVersion"]])
            and row["insightStatus"]["status"]
            in (wanted.get("statuses") or [row["insightStatus"]["status"]])
        ]
        return {"insights": rows}

    def describe(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster = self.registry.find(params["clusterName"], context)
        for row in insights(cluster):
            if row["id"] == params["id"]:
                return {"insight": row}
        raise ServiceError(
            "ResourceNotFoundException",
            f"No insight found for ID: {params['id']}",
            clusterName=cluster.name,
        )
