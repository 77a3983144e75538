# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A cluster's Nodes: one paged LIST, and patches in parallel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ansible_collections.gpushare.eks.plugins.module_utils._capacity import Decision
from ansible_collections.gpushare.eks.plugins.module_utils._errors import (
    GpushareError,
    NotFound,
    aws_errors,
)
from ansible_collections.gpushare.eks.plugins.module_utils._kube_api import THREADS, Api, ApiError
from ansible_collections.gpushare.eks.plugins.module_utils._names import AGENT_NAME
from ansible_collections.gpushare.eks.plugins.module_utils._token import TokenSource

ROUNDS = 5  # how often a write that collides is decided anew


@dataclass(frozen=True)
class Write:
    """How one node ended: `action` none | patch | refuse | gone | failed, with `reason`."""

    action: str
    reason: str
    decision: Decision | None = None
    error: GpushareError | None = None


class Cluster(Api):
    """The Nodes and pods of one cluster. `counts` also has "patch"."""

    def nodes(self) -> list[dict[str, Any]]:
        """All Nodes."""
        return self.list("/api/v1/nodes")

    def pods(self) -> list[dict[str, Any]]:
        """All pods that have not ended."""
        live = "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="
        return self.list("/api/v1/pods", "list_pods", fieldSelector=live)

    def all_pods(self) -> list[dict[str, Any]]:
        """All pods, those that wait and those that have ended among them."""
        return self.list("/api/v1/pods", "list_pods")

    def agent_pods(self) -> list[dict[str, Any]]:
        """The pods of the agent that keeps nodes' numbers, wherever it is installed."""
        label = f"app.kubernetes.io/name={AGENT_NAME}"
        return self.list("/api/v1/pods", "list_pods", labelSelector=label)

    def node(self, name: str) -> dict[str, Any] | None:
        """One Node, or None."""
        return self.read(f"/api/v1/nodes/{quote(name)}")

    def pods_of(self, node_name: str) -> list[dict[str, Any]]:
        """All pods of one node."""
        return self.list("/api/v1/pods", "list_pods", fieldSelector=f"spec.nodeName={node_name}")

    def patch_node(self, name: str, patch: Mapping[str, Any]) -> bool:
        """Merge-patch one Node; False when it is gone, or no longer what the patch was made for.

        patch: with `metadata.uid` and `metadata.resourceVersion`.
        """
        self._count("patch")
        path = f"/api/v1/nodes/{quote(name)}"
        try:
            self.request("PATCH", path, patch, content_type="application/merge-patch+json")
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            return False
        return True

    def write_all(
        self,
        decisions: Mapping[str, Decision],
        decide: Callable[[dict[str, Any]], Decision],
        threads: int = THREADS,
    ) -> dict[str, Write]:
        """Patch the status of all these nodes in parallel; what fails is told, node by node."""
        with ThreadPoolExecutor(max_workers=threads) as pool:
            jobs = {
                name: pool.submit(self._write, name, decision, decide)
                for name, decision in decisions.items()
            }
            return {name: job.result() for name, job in jobs.items()}

    def _write(self, name: str, decision: Decision, decide: Callable[..., Decision]) -> Write:
        try:
            return self._write_or_raise(name, decision, decide)
        except GpushareError as error:
            return Write("failed", str(error), decision, error)

    def _write_or_raise(
        self, name: str, decision: Decision, decide: Callable[..., Decision]
    ) -> Write:
        path = f"/api/v1/nodes/{quote(name)}/status"
        uid = _fenced_uid(decision)
        for _dummy in range(ROUNDS):
            self._count("patch")
            try:
                after = self.request(
                    "PATCH", path, decision.patch, content_type="application/json-patch+json"
                )
            except ApiError as error:
                if error.status == 404:
                    return Write("gone", "the node was deleted since it was listed", decision)
                if error.status not in (409, 422):
                    raise
                last = error
            else:
                return _verified(decision, decide(after))
            # 409: somebody else wrote; 422: the fence says it is another node, or a list changed.
            fresh = self.node(name)
            if fresh is None:
                return Write("gone", "the node was deleted since it was listed", decision)
            replaced = fresh["metadata"]["uid"] != uid
            decision = decide(fresh)
            if decision.action != "patch":
                prefix = "a new node took its name: " if replaced else ""
                return Write(decision.action, prefix + decision.reason, decision)
            uid = fresh["metadata"]["uid"]
        raise ApiError(
            last.status,
            f"{name}: others changed it {ROUNDS} times while it was written",
            object=f"node {name}",
            cause=last.cause,
            remedy="run again; see who else writes this node's status",
        )


def _verified(decision: Decision, left: Decision) -> Write:
    """A patch that was accepted counts only when the answer shows it."""
    if left.action != "patch":
        return Write("patch", decision.reason, decision)
    reason = f"the API server accepted the patch but did not keep it: {left.reason}"
    remedy = "see what changes this node's status, such as an admission policy; then run again"
    return Write("failed", reason, decision, GpushareError(reason, remedy=remedy))


def _fenced_uid(decision: Decision) -> str | None:
    return next((op["value"] for op in decision.patch if op["path"] == "/metadata/uid"), None)


def connect(
    eks: Any, sts: Any, cluster_name: str, region: str | None = None, *, timeout: float = 120
) -> Cluster:
    """The cluster by its name: endpoint and CA from EKS, tokens by STS. Raises NotFound."""
    what = f"EKS cluster {cluster_name}"
    with aws_errors(what):
        found = eks.describe_cluster(name=cluster_name)["cluster"]
    if not found.get("endpoint"):
        raise NotFound(
            f"{what} has no endpoint yet (status {found.get('status')})",
            object=what,
            cause=f"its status is {found.get('status')}",
            remedy="wait until it is ACTIVE (gpushare.eks.eks_cluster with wait: true)",
        )
    ca_data = (found.get("certificateAuthority") or {}).get("data")
    source = TokenSource(sts, cluster_name, region)

    def token(renew: bool) -> str:
        nonlocal source
        if renew:  # the one in use was refused before its time
            source = TokenSource(sts, cluster_name, region)
        return source.token()

    return Cluster(cluster_name, found["endpoint"], ca_data, token, timeout=timeout)
