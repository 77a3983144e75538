# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""`gpushare_team_quotas`: how much GPU memory a namespace may have, and a pod of it. Pure.

Memory is whole MiB (`_mib`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._pool_fields import Problems
from ansible_collections.gpushare.eks.plugins.module_utils._quantity import MIB, parse_quantity

_KEYS = ("namespace", "gpu_memory", "max_per_pod")
_NAMESPACE = re.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
_FORM = "a quantity of whole MiB above zero, such as 24Gi or 3072Mi"


class TeamQuotaError(ValueError):
    """The quotas as given cannot be kept; the message names each field and what is allowed."""

    def __init__(self, problems: Problems) -> None:
        super().__init__("\n".join(self._line(**problem) for problem in problems))

    @staticmethod
    def _line(field: str, value: Any, problem: str, allowed: Any) -> str:
        given = "" if value is None else f" (given: {value!r})"
        return f"{field}: {problem}{given}" + ("" if allowed is None else f"; allowed: {allowed}")


def team_quotas(
    quotas: Any, *, system_namespaces: Iterable[str] = (), field: str = "gpushare_team_quotas"
) -> list[dict[str, Any]]:
    """[{"namespace", "gpu_memory", "gpu_memory_mib", "max_per_pod_mib"}] by namespace.

    quotas: a list of {namespace, gpu_memory, max_per_pod}, the last one optional (None then).
    `gpu_memory` comes back as the quantity that an API server would show. system_namespaces: those
    that the guards leave alone. Raises TeamQuotaError with everything that is wrong.
    """
    problems = Problems()
    if not isinstance(quotas, (list, tuple)):
        problems.add(field, quotas, "is not a list", "a list of {namespace, gpu_memory}")
        raise TeamQuotaError(problems)
    made: dict[str, dict[str, Any]] = {}
    for index, item in enumerate(quotas):
        at = f"{field}[{index}]"
        raw = problems.mapping(at, item, _KEYS)
        name = raw.get("namespace")
        size = _mib(problems, f"{at}.gpu_memory", raw.get("gpu_memory"))
        most = None
        if raw.get("max_per_pod") is not None:
            most = _mib(problems, f"{at}.max_per_pod", raw["max_per_pod"])
        if size and most and most > size:
            problems.add(
                f"{at}.max_per_pod", raw["max_per_pod"], "is above gpu_memory of its namespace",
                f"at most {raw['gpu_memory']}",
            )  # fmt: skip
        if not isinstance(name, str) or not _NAMESPACE.match(name):
            problems.add(f"{at}.namespace", name, "is not a namespace", "1-63 of a-z 0-9 -")
        elif name in made:
            problems.add(f"{at}.namespace", name, "stands twice", "one entry for each namespace")
        elif name in system_namespaces:
            problems.add(
                f"{at}.namespace", name, "is a system namespace, where no maximum is enforced",
                "a namespace that gpushare_system_namespaces does not name",
            )  # fmt: skip
        else:
            made[name] = {
                "namespace": name,
                "gpu_memory": _shown(size),
                "gpu_memory_mib": size,
                "max_per_pod_mib": most,
            }
    if problems:
        raise TeamQuotaError(problems)
    return [made[name] for name in sorted(made)]


def _mib(problems: Problems, field: str, value: Any) -> int:
    """Whole MiB above zero; 0 when it is refused."""
    if value is None:
        problems.add(field, None, "is missing", _FORM)
        return 0
    try:
        size = parse_quantity(value)
    except ValueError:
        problems.add(field, value, "is not a quantity", _FORM)
        return 0
    if size <= 0 or size % MIB:
        near = int(size // MIB)
        told = "is not above zero" if size <= 0 else f"is not whole MiB, {near + 1}Mi would be"
        problems.add(field, value, told, _FORM)
        return 0
    return int(size // MIB)


def _shown(size_mib: int) -> str:
    """The canonical form of an API server, so that no run sees a difference: 24Gi, not 24576Mi."""
    unit = "Mi"
    for larger in ("Gi", "Ti"):
        if size_mib % 1024:
            break
        size_mib, unit = size_mib // 1024, larger
    return f"{size_mib}{unit}"
