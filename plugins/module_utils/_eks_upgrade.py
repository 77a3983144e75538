# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Before a cluster's version changes: the step, the nodes' versions, and EKS's upgrade insights."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._aws import MAX_CONNECTIONS
from ansible_collections.gpushare.eks.plugins.module_utils._errors import (
    Conflict,
    InvalidInput,
    NotFound,
    aws_errors,
)

# Minor versions that a kubelet may be behind the API server, since Kubernetes 1.28:
# https://kubernetes.io/releases/version-skew-policy/#kubelet
SKEW = 3
Version = tuple[int, int]


def parsed(text: str) -> Version | None:
    """(1, 36) of "1.36"; None where it is no Kubernetes version."""
    match = re.fullmatch(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def check_step(old: str, new: str) -> None:
    """EKS upgrades one minor version at a time; nothing here goes back."""
    now, wanted = parsed(old), parsed(new)
    if now is None or wanted is None:
        raise InvalidInput(
            f"version {new!r} is no Kubernetes version", remedy="write it as 1.36", field="version"
        )
    upper = f"{now[0]}.{now[1] + 1}"
    if new == upper:
        return
    skipped = wanted > now
    raise InvalidInput(
        f"version cannot go from {old} to {new}: "
        + ("EKS upgrades one minor version at a time" if skipped else "a cluster never goes back")
        + f"; possible are {old} (as it is) and {upper}",
        remedy=f"set version to {upper} first" if skipped else f"set version to {old}",
        field="version",
        before=old,
        wanted=new,
        allowed=[old, upper],
    )


class Upgrade:
    """What is read of one cluster before its version changes, and refused because of that."""

    def __init__(
        self,
        client: Any,
        cluster_name: str,
        *,
        ignore_insights: bool,
        warn: Callable[[str], Any],
    ) -> None:
        self._client = client
        self._name = cluster_name
        self._title = f"EKS cluster {cluster_name}"
        self._ignore = ignore_insights
        self._warn = warn

    def check(self, version: str) -> None:
        """Refuse the upgrade to `version` for nodes that would not keep up, and for insights."""
        self._check_nodes(version)
        self._check_insights(version)

    def _check_nodes(self, version: str) -> None:
        target = parsed(version)
        late = {
            name: has
            for name, has in self._node_versions().items()
            if target and (now := parsed(has)) and now < (target[0], target[1] - SKEW)
        }
        if late:
            oldest = f"{target[0]}.{target[1] - SKEW}"
            told = ", ".join(f"{name} ({has})" for name, has in sorted(late.items()))
            raise Conflict(
                f"{self._title} cannot go to {version}: these node groups are older than {oldest}: "
                f"{told}",
                object=self._title,
                cause=f"a kubelet may be at most {SKEW} minor versions behind the API server",
                remedy=f"bring them to {oldest} or newer first (gpushare.eks.eks_nodegroup; in "
                "site.yml the role gpu_nodes), then run again",
                field="version",
                wanted=version,
                nodegroups=late,
            )

    def _node_versions(self) -> dict[str, str]:
        """{node group: its Kubernetes version}; one that goes away meanwhile is left out."""
        with aws_errors(f"EKS node groups of cluster {self._name}"):
            pages = self._client.get_paginator("list_nodegroups").paginate(clusterName=self._name)
            names = [name for page in pages for name in page["nodegroups"]]

        def read(name: str) -> str:
            try:
                with aws_errors(f"EKS node group {name} of cluster {self._name}"):
                    answer = self._client.describe_nodegroup(
                        clusterName=self._name, nodegroupName=name
                    )
            except NotFound:
                return ""
            return answer["nodegroup"].get("version") or ""

        with ThreadPoolExecutor(min(len(names), MAX_CONNECTIONS) or 1) as pool:
            return dict(zip(names, pool.map(read, names), strict=True))

    def _check_insights(self, version: str) -> None:
        errors, doubts = [], []
        for insight in self._insights(version):
            state = insight["insightStatus"]["status"]
            if state == "ERROR":
                errors.append(self._described(insight))
            elif state != "PASSING":
                doubts.append(f"{insight['name']} is {state}: {_reason(insight)}")
        for doubt in doubts:
            self._warn(f"{self._title}, upgrade to {version}: {doubt}")
        if not errors:
            return
        told = "; ".join(f"{row['name']}: {row['reason']}" for row in errors)
        if self._ignore:
            self._warn(f"{self._title}, upgrade to {version} in spite of errors: {told}")
            return
        advice = [row["recommendation"] for row in errors if row["recommendation"]]
        raise Conflict(
            f"{self._title} is not ready for {version}, say EKS's upgrade insights: {told}",
            object=self._title,
            cause=", ".join(row["name"] for row in errors),
            remedy=(f"what EKS recommends: {' '.join(advice)} " if advice else "")
            + "Mend it and let EKS look again (`aws eks start-insights-refresh`); or, where you "
            "know better, run once with ignore_insights: true (in the role eks: "
            "eks_ignore_insights)",
            field="ignore_insights",
            wanted=version,
            insights=errors,
        )

    def _insights(self, version: str) -> list[dict[str, Any]]:
        """The upgrade insights that speak of this step: not those for later versions."""
        with aws_errors(f"upgrade insights of {self._title}"):
            pages = self._client.get_paginator("list_insights").paginate(
                clusterName=self._name, filter={"categories": ["UPGRADE_READINESS"]}
            )
            found = [insight for page in pages for insight in page["insights"]]
        target = parsed(version)
        return [
            i for i in found if not (v := parsed(i.get("kubernetesVersion") or "")) or v <= target
        ]

    def _described(self, insight: dict[str, Any]) -> dict[str, str]:
        """An insight with what EKS recommends, which only DescribeInsight tells."""
        try:
            with aws_errors(f"upgrade insight {insight['name']} of {self._title}"):
                answer = self._client.describe_insight(clusterName=self._name, id=insight["id"])
        except NotFound:
            answer = {"insight": insight}
        return {
            "name": insight["name"],
            "reason": _reason(insight),
            "recommendation": answer["insight"].get("recommendation") or "",
        }


def _reason(insight: dict[str, Any]) -> str:
    return insight["insightStatus"].get("reason") or "EKS gives no reason"
