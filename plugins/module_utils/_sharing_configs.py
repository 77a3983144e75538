# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plugin's configs while nodes move from one to another: which name has which body. Pure.

A node picks its config by name, and NVIDIA's plugin reads the body when it starts or when the
node's label changes. So a body must never change under the name that a live node has: `<pool>` is
what new nodes start with, `<pool>.<hash of the body>` what a live node is moved to.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

Config = Mapping[str, Any]
_HASHED = re.compile(r"(?P<pool>[^.]+)\.[0-9a-f]{8}\Z")


def name_of(pool: str, body: Config) -> str:
    """The name under which a live node of the pool gets this body: `<pool>.<8 hex digits>`."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return f"{pool}.{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def pool_of(name: str) -> str:
    """The pool whose config has this name."""
    found = _HASHED.match(name)
    return found["pool"] if found else name


def plan(
    wanted: Mapping[str, Config],
    deployed: Mapping[str, Config],
    hold: Collection[str] = (),
    used: Iterable[str] | None = None,
) -> dict[str, Any]:
    """What the plugin's ConfigMap has to hold -> {"configs", "wanted", "deployed", "changed"}.

    wanted: derive's device_plugin_configs; deployed: what stands there. Pools of `hold` keep the
    body that new nodes have. Of earlier bodies those in `used` (labels of live nodes) stay, and all
    of them where nobody looked (None). `changed`: the pools for which new nodes get another body
    than the wanted one.
    """
    changed = [name for name, body in wanted.items() if deployed.get(name, body) != body]
    made = {}
    for name, body in wanted.items():
        made[name] = deployed.get(name, body) if name in hold else body
        if name != "default":
            made[name_of(name, body)] = body
    keep = set(deployed) if used is None else set(used)
    for name, body in deployed.items():
        if name in keep and name != pool_of(name) and pool_of(name) in wanted:
            made.setdefault(name, body)
    return {
        "configs": dict(sorted(made.items())),
        "wanted": dict(wanted),
        "deployed": dict(deployed),
        "changed": changed,
    }
