# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The fields of a pool one by one: kinds, ranges, names. No I/O, nothing of the catalog.

Every check adds to one `Problems` list and gives back a value that is safe to go on with, so that
all mistakes of an inventory are told at once.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

DNS_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?\Z")
LABEL_NAME = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z")
_PART = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = re.compile(rf"^(?=.{{1,253}}\Z){_PART}(\.{_PART})*\Z")

POOL_KEYS = (
    "name", "instance_types", "requirements", "capacity_type", "on_demand_base",
    "on_demand_percentage", "min_size", "max_size", "desired_size", "zones", "autoscaler",
    "sharing", "labels", "taints", "tags", "disk_gib", "image",
)  # fmt: skip
SHARING_KEYS = (
    "strategy", "replicas", "gpu_memory", "headroom_mib", "usable_mib", "multi_gpu", "flags",
    "rename", "cuda_version",
)  # fmt: skip
REQUIREMENT_KEYS = ("cpu", "memory_gib", "architecture", "generation_min")
STRATEGIES = ("exclusive", "time_slicing", "mps")
ZONES = ("spread", "one_group_per_zone")
AUTOSCALERS = ("none", "cluster_autoscaler", "karpenter")
CAPACITY_TYPES = ("on_demand", "spot")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class PoolError(ValueError):
    """The pools as given cannot be built.

    `problems`: [{"field": "gpushare_pools[1].sharing.strategy", "value", "problem", "allowed"}].
    """

    def __init__(self, problems: Iterable[dict[str, Any]]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(self._line(problem) for problem in self.problems))

    @staticmethod
    def _line(problem: Mapping[str, Any]) -> str:
        line = f"{problem['field']}: {problem['problem']}"
        if problem["value"] is not None:
            line += f" (given: {problem['value']!r})"
        if problem["allowed"] is not None:
            line += f"; allowed: {problem['allowed']}"
        return line


class Problems(list[dict[str, Any]]):
    """Collects what is wrong; each check returns a usable value or its fallback."""

    def add(self, field: str, value: Any, problem: str, allowed: Any = None) -> None:
        if isinstance(allowed, (tuple, list)):
            allowed = ", ".join(str(item) for item in allowed)
        self.append({"field": field, "value": value, "problem": problem, "allowed": allowed})

    def mapping(self, field: str, value: Any, keys: Iterable[str] | None) -> dict[str, Any]:
        """A dict with known keys only; an unknown one is refused with the nearest known one."""
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.add(field, value, "is not a mapping", "a mapping")
            return {}
        known = None if keys is None else list(keys)
        for key in value:
            if not isinstance(key, str):
                self.add(field, key, "has a key that is not text")
            elif known is not None and key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"unknown key; did you mean {near[0]}?" if near else "unknown key"
                self.add(f"{field}.{key}", None, hint, known)
        return {key: value[key] for key in value if isinstance(key, str)}

    def integer(
        self, field: str, value: Any, default: Any, low: int, high: int | None = None
    ) -> Any:
        """A whole number within bounds; a bool, a text or a fraction is none."""
        if value is None:
            return default
        allowed = f"a whole number from {low}" + (f" to {high}" if high is not None else "")
        if isinstance(value, bool) or not isinstance(value, int):
            self.add(field, value, "is not a whole number", allowed)
            return default
        if value < low or (high is not None and value > high):
            self.add(field, value, "is out of range", allowed)
            return default
        return value

    def boolean(self, field: str, value: Any, default: bool) -> bool:
        if value is None:
            return default
        if not isinstance(value, bool):
            self.add(field, value, "is not true or false", "true, false")
            return default
        return value

    def choice(self, field: str, value: Any, default: Any, allowed: tuple[str, ...]) -> Any:
        if value is None:
            return default
        if not isinstance(value, str) or value not in allowed:
            self.add(field, value, "is not one of the allowed values", allowed)
            return default
        return value

    def texts(self, field: str, value: Any) -> list[str]:
        """A list of non-empty texts without repetition."""
        if not isinstance(value, (list, tuple)):
            self.add(field, value, "is not a list", "a list of texts")
            return []
        good: list[str] = []
        for index, item in enumerate(value):
            if not isinstance(item, str) or not item:
                self.add(f"{field}[{index}]", item, "is not a text", "a text")
            elif item in good:
                self.add(f"{field}[{index}]", item, "is named twice")
            else:
                good.append(item)
        return good


def qualified(key: str) -> bool:
    """Whether `key` is a Kubernetes qualified name: [domain/]name."""
    prefix, slash, name = key.rpartition("/")
    if slash and not SUBDOMAIN.match(prefix):
        return False
    return bool(LABEL_NAME.match(name))


def check_labels(problems: Problems, field: str, value: Any, reserved: set[str]) -> dict[str, str]:
    """Labels that a kubelet may set on its own node and that are not ours."""
    labels = problems.mapping(field, value, None)
    good: dict[str, str] = {}
    for key, text in labels.items():
        at = f"{field}.{key}"
        domain = key.rpartition("/")[0]
        if not qualified(key):
            problems.add(at, text, "is not a label key", "[domain/]name of Kubernetes")
        elif key in reserved or domain == "gpushare.eks" or domain.endswith("eks.amazonaws.com"):
            problems.add(at, text, "is a label that this collection, NVIDIA or EKS sets itself")
        elif _kubelet_refuses(domain):
            problems.add(
                at,
                text,
                "is a label that a kubelet may not set (NodeRestriction)",
                "your own domain, node.kubernetes.io/* or kubelet.kubernetes.io/*",
            )
        elif not isinstance(text, str) or (text and not LABEL_NAME.match(text)):
            problems.add(at, text, "is not a label value", "text of at most 63 letters, in quotes")
        else:
            good[key] = text
    return good


def _kubelet_refuses(domain: str) -> bool:
    """The kubelet exits on --node-labels in these domains, but for the prefixes below."""
    for free in ("kubelet.kubernetes.io", "node.kubernetes.io"):
        if domain == free or domain.endswith(f".{free}"):
            return False
    return any(
        domain == held or domain.endswith(f".{held}") for held in ("kubernetes.io", "k8s.io")
    )


def check_taints(
    problems: Problems, field: str, value: Any, reserved: set[str]
) -> list[dict[str, str]]:
    """Taints of the user's own, in the Kubernetes form {key, value, effect}."""
    if value is None:
        return []
    if not isinstance(value, (list, tuple)):
        problems.add(field, value, "is not a list", "a list of {key, value, effect}")
        return []
    good: list[dict[str, str]] = []
    for index, item in enumerate(value):
        at = f"{field}[{index}]"
        taint = problems.mapping(at, item, ("key", "value", "effect"))
        if not taint:
            problems.add(at, item, "is empty", "{key, value, effect}")
            continue
        key, text = taint.get("key"), taint.get("value")
        text = "" if text is None else text
        effect = problems.choice(f"{at}.effect", taint.get("effect"), "NoSchedule", EFFECTS)
        if not isinstance(key, str) or not qualified(key):
            problems.add(f"{at}.key", key, "is not a taint key", "[domain/]name of Kubernetes")
        elif key in reserved or key.startswith(("gpushare.eks/", "startup-taint.cluster-auto")):
            problems.add(f"{at}.key", key, "is a taint that this collection sets itself")
        elif not isinstance(text, str) or (text and not LABEL_NAME.match(text)):
            problems.add(f"{at}.value", text, "is not a taint value", "text of at most 63 letters")
        elif any(taint["key"] == key and taint["effect"] == effect for taint in good):
            problems.add(at, key, "stands twice with one effect")
        else:
            good.append({"key": key, "value": text, "effect": effect})
    return good


def check_tags(problems: Problems, field: str, value: Any) -> dict[str, str]:
    """AWS tags: keys up to 128, values up to 256 characters, none that begins with aws:."""
    tags = problems.mapping(field, value, None)
    good: dict[str, str] = {}
    for key, text in tags.items():
        if not key or len(key) > 128 or key.lower().startswith("aws:"):
            problems.add(f"{field}.{key}", text, "is not a tag key", "1 to 128, not aws:*")
        elif key.startswith("gpushare.eks/"):
            problems.add(f"{field}.{key}", text, "is a tag that this collection sets itself")
        elif not isinstance(text, str) or len(text) > 256:
            problems.add(f"{field}.{key}", text, "is not a tag value", "text of at most 256")
        else:
            good[key] = text
    return good


def number_range(problems: Problems, field: str, value: Any) -> tuple[int, int | None]:
    """A range `2-8`, `8-`, `-8` or one number, as (low, high)."""
    if value is None:
        return 0, None
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value, value
    match = re.match(r"^(\d{0,6})-(\d{0,6})\Z", value) if isinstance(value, str) else None
    if match and (match.group(1) or match.group(2)):
        low = int(match.group(1) or 0)
        high = int(match.group(2)) if match.group(2) else None
        if high is None or low <= high:
            return low, high
    problems.add(field, value, "is not a range", "4, 2-8, 8- or -8")
    return 0, None
