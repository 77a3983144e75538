# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether a broken EKS object may be deleted and made again: refused here, before any call."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._eks_base import (
    Resource,
    issues,
    status,
)
from ansible_collections.gpushare.eks.plugins.module_utils._errors import Conflict
from ansible_collections.gpushare.eks.plugins.module_utils._pool_names import CLUSTER_TAG


def may_remake(
    resource: Resource, title: str, current: Any, cluster_name: str, *, allowed: bool
) -> str:
    """The warning to give; Conflict unless it is allowed, the object ours and not protected.

    allowed: recreate_failed. current: the raw object in one of the states of BROKEN.
    """
    phase, reason = status(current), issues(current) or "EKS gives no reason"
    where = {"object": title, "status": phase}
    if not allowed:
        raise Conflict(
            f"{title} is {phase}: {reason}",
            cause=reason,
            remedy="mend the cause, then run once with recreate_failed: true (in the role eks: "
            "eks_recreate_failed), which deletes it and makes it again; or delete it",
            field="recreate_failed",
            **where,
        )
    owner = (current.get("tags") or {}).get(CLUSTER_TAG)
    if owner != cluster_name:
        raise Conflict(
            f"{title} is {phase} ({reason}) and not ours: it is not deleted to be made again",
            cause=f"its tag {CLUSTER_TAG} is {owner!r} and not {cluster_name!r}"
            if owner
            else f"it does not carry the tag {CLUSTER_TAG}={cluster_name}",
            remedy="choose another name, or delete it where it was made (or here with state: "
            "absent), then run again",
            **where,
        )
    resource.guard_delete(current)
    return f"{title} is {phase} ({reason}): it is deleted and made again"
