# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How the EKS engine waits: for objects to settle, to be gone, and for updates to end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._eks_base import (
    BROKEN,
    BUSY,
    Resource,
    describe,
    issues,
    status,
    update_errors,
)
from ansible_collections.gpushare.eks.plugins.module_utils._errors import aws_errors
from ansible_collections.gpushare.eks.plugins.module_utils._wait import wait_for


class Waits:
    """The waits of an engine, which brings client, names, clock and time-out."""

    client: Any
    resource: Resource
    cluster_name: str
    timeout: float
    _progress: Callable[[str], Any] | None
    _timing: dict[str, Callable[..., Any]]
    title: Callable[[str], str]
    identity: Callable[[str], dict[str, str]]
    read: Callable[[str], Any]

    def _wreck(self, name: str, raw: Any) -> str | None:
        if raw is None:
            return "it is gone"
        if status(raw) in BROKEN:
            return f"it is {status(raw)}: {issues(raw) or 'EKS gives no reason'}"
        return None

    def _wait_settled(self, name: str) -> Any:
        return self._wait(name, lambda raw: status(raw) not in BUSY)

    def _wait_gone(self, name: str) -> None:
        self._wait(
            name,
            lambda raw: raw is None,
            failed=lambda raw: self._wreck(name, raw) if status(raw) == "DELETE_FAILED" else None,
            what="deletion of " + self.title(name),
        )

    def _wait_update(self, name: str, update: dict[str, Any]) -> None:
        """Until an update ends: a failed one leaves the object ACTIVE, only the update tells."""
        identity = self.identity(name)
        where = {"name": self.cluster_name, "updateId": update["id"]}
        if self.resource.scope_param:
            where[self.resource.name_param] = identity[self.resource.name_param]
        title = f"{update.get('type', 'update')} of {self.title(name)}"

        def read() -> dict[str, Any]:
            with aws_errors(title):
                return self.client.describe_update(**where)["update"]

        wait_for(
            read,
            lambda seen: seen["status"] == "Successful",
            failed=lambda seen: (
                update_errors(seen) if seen["status"] in ("Failed", "Cancelled") else None
            ),
            timeout=self.timeout,
            what=title,
            progress=self._progress,
            describe=lambda seen: seen["status"],
            **self._timing,
        )

    def _wait(
        self,
        name: str,
        done: Callable[[Any], bool],
        *,
        failed: Callable[[Any], str | None] | None = None,
        what: str = "",
    ) -> Any:
        return wait_for(
            lambda: self.read(name),
            done,
            failed=failed,
            timeout=self.timeout,
            what=what or self.title(name),
            progress=self._progress,
            describe=describe,
            **self._timing,
        )
