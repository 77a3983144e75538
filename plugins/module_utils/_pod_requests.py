# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a pod asks for, as the scheduler counts it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._quantity import parse_quantity


def request_of(pod: Mapping[str, Any], resource: str) -> Fraction:
    """A pod's effective request as the scheduler counts it: max(init, sum of the rest) + overhead.

    An init container that restarts always (a sidecar) counts with the rest and with each later
    init container.
    """
    spec = pod.get("spec") or {}
    sidecars, peak = Fraction(0), Fraction(0)
    for container in spec.get("initContainers") or []:
        wanted = _container(container, resource)
        if container.get("restartPolicy") == "Always":
            sidecars += wanted
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + wanted)
    running = sum(
        (_container(container, resource) for container in spec.get("containers") or []), sidecars
    )
    overhead = (spec.get("overhead") or {}).get(resource, 0)
    return max(running, peak) + parse_quantity(overhead)


def _container(container: Mapping[str, Any], resource: str) -> Fraction:
    resources = container.get("resources") or {}
    # An extended resource given as a limit alone is requested in the same amount.
    for part in ("requests", "limits"):
        if resource in (resources.get(part) or {}):
            return parse_quantity(resources[part][resource])
    return Fraction(0)
