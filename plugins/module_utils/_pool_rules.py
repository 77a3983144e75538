# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What makes a list of pools buildable: schema, sharing, hardware. Pure; reports into `Problems`.

`read_pools` returns one plain dict per pool with every key of the schema present, defaults filled
in and `instance_types` resolved against the catalog; the derivation in _pools.py reads only those.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._mps import (
    CUDA_VERSION,
    PLUGIN_REPLICAS,
    is_cuda_version,
)
from ansible_collections.gpushare.eks.plugins.module_utils._plugin_flags import read_flags
from ansible_collections.gpushare.eks.plugins.module_utils._pool_fields import (
    AUTOSCALERS,
    CAPACITY_TYPES,
    DNS_LABEL,
    POOL_KEYS,
    SHARING_KEYS,
    STRATEGIES,
    ZONES,
    Problems,
    check_labels,
    check_tags,
    check_taints,
)
from ansible_collections.gpushare.eks.plugins.module_utils._pool_hardware import (
    check_hardware,
    read_types,
)

RESERVED_LABELS = {"nvidia.com/device-plugin.config", "k8s.amazonaws.com/accelerator"}
RESERVED_TAINTS = {"nvidia.com/gpu"}
# A time-sliced GPU cannot hold more than this many clients in practice; a typing mistake is caught.
MAX_REPLICAS = 1000


def read_pools(
    pools: Any, catalog: Mapping[str, Any], problems: Problems, warnings: list[str]
) -> list[dict[str, Any]]:
    """Every pool as a complete dict; what is wrong goes to `problems`."""
    if not isinstance(pools, (list, tuple)) or not pools:
        problems.add("gpushare_pools", pools, "holds no pool", "a list of at least one pool")
        return []
    good: list[dict[str, Any]] = []
    seen: dict[str, int] = {}
    for index, item in enumerate(pools):
        field = f"gpushare_pools[{index}]"
        pool = _read_pool(problems, field, item, catalog, warnings)
        if pool["name"] in seen and pool["name"]:
            first = seen[pool["name"]]
            problems.add(f"{field}.name", pool["name"], f"is also gpushare_pools[{first}].name")
        seen.setdefault(pool["name"], index)
        good.append(pool)
    return good


def _read_pool(
    problems: Problems, field: str, item: Any, catalog: Mapping[str, Any], warnings: list[str]
) -> dict[str, Any]:
    raw = problems.mapping(field, item, POOL_KEYS)
    sharing = _sharing(problems, f"{field}.sharing", raw.get("sharing"))
    pool: dict[str, Any] = {
        "field": field,
        "name": _name(problems, f"{field}.name", raw.get("name"), sharing),
        "sharing": sharing,
        "zones": problems.choice(f"{field}.zones", raw.get("zones"), "spread", ZONES),
        "autoscaler": problems.choice(
            f"{field}.autoscaler", raw.get("autoscaler"), "none", AUTOSCALERS
        ),
        "labels": check_labels(problems, f"{field}.labels", raw.get("labels"), RESERVED_LABELS),
        "taints": check_taints(problems, f"{field}.taints", raw.get("taints"), RESERVED_TAINTS),
        "tags": check_tags(problems, f"{field}.tags", raw.get("tags")),
        # The GPU image with its driver and CUDA libraries fills more than a general node's.
        "disk_gib": problems.integer(
            f"{field}.disk_gib", raw.get("disk_gib"), 100 if sharing else 50, 20, 16384
        ),
        "image": _image(problems, f"{field}.image", raw.get("image")),
    }
    pool.update(_sizes(problems, field, raw))
    pool.update(_capacity(problems, field, raw))
    pool["instance_types"] = read_types(problems, field, raw, sharing, catalog)
    check_hardware(problems, pool, catalog, warnings)
    return pool


def _name(problems: Problems, field: str, value: Any, sharing: dict[str, Any] | None) -> str:
    form = "a DNS label: at most 40 of a-z, 0-9 and -, no - at its ends"
    if not isinstance(value, str) or not DNS_LABEL.match(value):
        problems.add(field, value, "is missing" if value is None else "is not a name", form)
        return ""
    if sharing and value == "default":
        problems.add(field, value, "is the name of the plugin's own default config", form)
    return value


def _image(problems: Problems, field: str, value: Any) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not re.match(r"^ami-[0-9a-f]{8,17}\Z", value):
        problems.add(field, value, "is not an image id", "ami-..., or leave it out")
        return None
    return value


def _sizes(problems: Problems, field: str, raw: dict[str, Any]) -> dict[str, Any]:
    minimum = problems.integer(f"{field}.min_size", raw.get("min_size"), 0, 0, 5000)
    if raw.get("max_size") is None:
        problems.add(f"{field}.max_size", None, "is missing", "a whole number from 1")
    maximum = problems.integer(f"{field}.max_size", raw.get("max_size"), None, 1, 5000)
    desired = problems.integer(f"{field}.desired_size", raw.get("desired_size"), minimum, 0, 5000)
    if maximum is not None and minimum > maximum:
        problems.add(f"{field}.min_size", minimum, f"is above max_size {maximum}", f"0-{maximum}")
    elif maximum is not None and not minimum <= desired <= maximum:
        problems.add(
            f"{field}.desired_size",
            desired,
            "lies outside min_size and max_size",
            f"{minimum}-{maximum}",
        )
    return {"min_size": minimum, "max_size": maximum, "desired_size": desired}


def _capacity(problems: Problems, field: str, raw: dict[str, Any]) -> dict[str, Any]:
    at = f"{field}.capacity_type"
    value = raw.get("capacity_type")
    kinds = ["on_demand"] if value is None else problems.texts(at, value)
    for kind in kinds:
        if kind not in CAPACITY_TYPES:
            problems.add(at, kind, "is not one of the allowed values", CAPACITY_TYPES)
    if not kinds:
        problems.add(at, value, "names none", CAPACITY_TYPES)
    result: dict[str, Any] = {"capacity_type": [kind for kind in kinds if kind in CAPACITY_TYPES]}
    for key, high in (("on_demand_base", 5000), ("on_demand_percentage", 100)):
        number = problems.integer(f"{field}.{key}", raw.get(key), None, 0, high)
        if number is not None and set(kinds) != set(CAPACITY_TYPES):
            problems.add(
                f"{field}.{key}", number, "needs capacity_type: [spot, on_demand]", "leave it out"
            )
        result[key] = number
    return result


def _sharing(problems: Problems, field: str, value: Any) -> dict[str, Any] | None:
    """The sharing of a GPU pool, complete; None for a general pool."""
    if value is None:
        return None
    if _several(problems, field, value):
        return None
    raw = problems.mapping(field, value, SHARING_KEYS)
    if raw.get("strategy") is None:
        problems.add(f"{field}.strategy", None, "is missing", STRATEGIES)
    strategy = problems.choice(f"{field}.strategy", raw.get("strategy"), "exclusive", STRATEGIES)
    known = raw.get("strategy") == strategy
    gpu_memory = problems.boolean(f"{field}.gpu_memory", raw.get("gpu_memory"), False)
    high = PLUGIN_REPLICAS if strategy == "mps" else MAX_REPLICAS
    replicas = raw.get("replicas")
    if known and strategy == "exclusive":
        for key in ("replicas", "gpu_memory", "headroom_mib", "multi_gpu", "rename"):
            if raw.get(key):
                problems.add(
                    f"{field}.{key}", raw[key], "needs a shared strategy", "time_slicing, mps"
                )
        replicas = None
    else:
        needs = strategy == "mps" or not gpu_memory
        if known and replicas is None and needs:
            problems.add(f"{field}.replicas", None, "is missing", f"a whole number, 2 to {high}")
        if strategy == "mps" and isinstance(replicas, int) and replicas > high:
            problems.add(
                f"{field}.replicas",
                replicas,
                "is more than NVIDIA's plugin makes of a GPU under MPS, whatever the driver serves",
                f"a whole number, 2 to {high}",
            )
            replicas = high
        replicas = problems.integer(f"{field}.replicas", replicas, None, 2, high)
    if gpu_memory and raw.get("rename") is False:
        problems.add(
            f"{field}.rename",
            False,
            "would offer plain nvidia.com/gpu beside gpu_memory, so that a pod which asks for a "
            "whole GPU lands on a shared one",
            "true, or gpu_memory: false",
        )
    return {
        "strategy": strategy,
        "replicas": replicas,
        "gpu_memory": gpu_memory and strategy != "exclusive",
        "headroom_mib": problems.integer(
            f"{field}.headroom_mib", raw.get("headroom_mib"), 0, 0, 1_000_000
        ),
        "usable_mib": problems.integer(
            f"{field}.usable_mib", raw.get("usable_mib"), None, 1, 1_000_000
        ),
        "multi_gpu": problems.choice(
            f"{field}.multi_gpu", raw.get("multi_gpu"), "refuse", ("refuse", "sum")
        ),
        "flags": read_flags(problems, f"{field}.flags", raw.get("flags"), strategy, gpu_memory),
        "rename": problems.boolean(f"{field}.rename", raw.get("rename"), strategy != "exclusive"),
        "cuda_version": _cuda_version(problems, f"{field}.cuda_version", raw, strategy),
    }


def _several(problems: Problems, field: str, value: Any) -> bool:
    """Whether one pool is given two strategies; of two NVIDIA's plugin takes MPS and is silent."""
    found = value.get("strategy") if isinstance(value, Mapping) else value
    if not isinstance(found, (list, tuple)) or len(found) < 2:
        return False
    at = f"{field}.strategy" if isinstance(value, Mapping) else field
    problems.add(
        at,
        value if found is value else list(found),
        "gives one pool several strategies, and all GPUs of a node are shared in one way",
        f"one of {', '.join(STRATEGIES)}, and a pool of its own for the other",
    )
    return True


def _cuda_version(
    problems: Problems, field: str, raw: Mapping[str, Any], strategy: str
) -> str | None:
    """CUDA version of the driver, by which MPS counts its clients; None where nothing asks."""
    value = raw.get("cuda_version")
    if strategy != "mps":
        if value is not None:
            problems.add(field, value, "matters to MPS alone", "leave it out")
        return None
    if value is None:
        return CUDA_VERSION
    if not is_cuda_version(value):
        problems.add(
            field,
            value,
            "is not a CUDA version",
            'what nvidia-smi shows on a node, in quotes: "13.0", "13.1"',
        )
        return CUDA_VERSION
    return value
