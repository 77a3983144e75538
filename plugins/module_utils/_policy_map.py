# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The ConfigMap by which module and agents have one policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote


def keep(cluster: Any, wanted: Mapping[str, Any], *, check_mode: bool) -> dict[str, Any] | None:
    """Bring an existing ConfigMap to `wanted`: {"namespace", "name", "data"} -> its diff, or None.

    One that does not exist is not made: without it no agent is installed. cluster: _nodes.Cluster,
    whose errors pass through.
    """
    place = f"{wanted['namespace']}/{wanted['name']}"
    path = "/api/v1/namespaces/{}/configmaps/{}".format(*map(quote, place.split("/")))
    found = cluster.read(path)
    before = (found or {}).get("data") or {}
    if found is None or before == wanted["data"]:
        return None
    if not check_mode:
        gone = dict.fromkeys(set(before) - set(wanted["data"]))
        body = {"data": {**gone, **wanted["data"]}}
        cluster.request("PATCH", path, body, content_type="application/merge-patch+json")
    header = f"ConfigMap {place}"
    return {
        "before_header": header,
        "after_header": header,
        "before": {"data": before},
        "after": {"data": dict(wanted["data"])},
    }
