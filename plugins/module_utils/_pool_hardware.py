# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The catalog's part in a pool: which instance types it means and what they cannot do. Pure."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._catalog import gpu_model
from ansible_collections.gpushare.eks.plugins.module_utils._mps import (
    driver_clients,
    most_replicas,
)
from ansible_collections.gpushare.eks.plugins.module_utils._pool_fields import (
    REQUIREMENT_KEYS,
    Problems,
    number_range,
)

# CreateNodegroup takes 20 instance types.
MAX_INSTANCE_TYPES = 20


def gpus_of(catalog: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """The whole NVIDIA GPUs of an instance type; fractional ones (count 0) and others are none."""
    gpus = catalog["instance_types"][name].get("gpus") or []
    return [gpu for gpu in gpus if gpu["manufacturer"] == "NVIDIA" and gpu["count"] > 0]


def gpu_count(catalog: Mapping[str, Any], name: str) -> int:
    return sum(gpu["count"] for gpu in gpus_of(catalog, name))


def read_types(
    problems: Problems,
    field: str,
    raw: dict[str, Any],
    sharing: dict[str, Any] | None,
    catalog: Mapping[str, Any],
) -> list[str]:
    """The pool's instance types, as named or as `requirements` select them from the catalog."""
    at, named = f"{field}.instance_types", raw.get("instance_types")
    if raw.get("requirements") is not None:
        if named is not None:
            problems.add(at, named, "stands beside requirements", "one of the two")
        return _select(problems, f"{field}.requirements", raw["requirements"], sharing, catalog)
    names = [] if named is None else problems.texts(at, named)
    if not names:
        problems.add(at, named, "names none", "instance types, or requirements")
    if len(names) > MAX_INSTANCE_TYPES:
        problems.add(at, len(names), "names too many", f"at most {MAX_INSTANCE_TYPES}")
    known = catalog["instance_types"]
    for index, name in enumerate(names):
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            problems.add(
                f"{at}[{index}]",
                name,
                f"is not in the catalog{hint}",
                "a type that the catalog has: read AWS's by ec2_catalog_info",
            )
    return [name for name in names if name in known]


def _select(
    problems: Problems,
    field: str,
    value: Any,
    sharing: dict[str, Any] | None,
    catalog: Mapping[str, Any],
) -> list[str]:
    before = len(problems)
    raw = problems.mapping(field, value, REQUIREMENT_KEYS)
    cpu = number_range(problems, f"{field}.cpu", raw.get("cpu"))
    memory = number_range(problems, f"{field}.memory_gib", raw.get("memory_gib"))
    generation = problems.integer(f"{field}.generation_min", raw.get("generation_min"), 0, 1, 99)
    wanted = problems.choice(
        f"{field}.architecture", raw.get("architecture"), "amd64", ("amd64", "x86_64", "arm64")
    )
    architecture = "arm64" if wanted == "arm64" else "x86_64"
    if len(problems) > before:
        return []
    one_gpu = bool(sharing and sharing["gpu_memory"] and sharing["multi_gpu"] != "sum")
    found = []
    for name, data in catalog["instance_types"].items():
        gpus = gpu_count(catalog, name)
        made = re.match(r"^[a-z]+(\d+)", name)
        if (
            data["architecture"] == architecture
            and cpu[0] <= data["vcpus"] <= (cpu[1] or math.inf)
            and memory[0] * 1024 <= data["memory_mib"] <= (memory[1] or math.inf) * 1024
            and made is not None
            and int(made.group(1)) >= generation
            and (gpus == 1 if one_gpu else bool(gpus) == bool(sharing))
            and (sharing is not None or not data.get("gpus"))
        ):
            found.append((data["vcpus"], data["memory_mib"], name))
    if not found:
        problems.add(field, value, "no instance type of the catalog fits")
    # The smallest come first, and a node group takes no more than EKS allows.
    return [name for _vcpus, _memory, name in sorted(found)[:MAX_INSTANCE_TYPES]]


def check_hardware(
    problems: Problems, pool: dict[str, Any], catalog: Mapping[str, Any], warnings: list[str]
) -> None:
    """What the pool's types cannot do: sharing without a GPU, memory over several, MPS limits."""
    at, names, sharing = f"{pool['field']}.instance_types", pool["instance_types"], pool["sharing"]
    architectures = sorted({catalog["instance_types"][name]["architecture"] for name in names})
    if len(architectures) > 1:
        problems.add(at, names, f"mixes {' and '.join(architectures)}", "one architecture")
    if sharing is None:
        with_gpu = [name for name in names if catalog["instance_types"][name].get("gpus")]
        if with_gpu:
            warnings.append(
                f"pool {pool['name']}: {', '.join(with_gpu)} has a GPU that nobody can ask for; "
                "give the pool `sharing: {strategy: exclusive}` to offer it"
            )
        return
    for name in names:
        _check_type(problems, at, name, sharing, pool, catalog, warnings)


def _check_type(
    problems: Problems,
    at: str,
    name: str,
    sharing: dict[str, Any],
    pool: dict[str, Any],
    catalog: Mapping[str, Any],
    warnings: list[str],
) -> None:
    gpus, count = gpus_of(catalog, name), gpu_count(catalog, name)
    if not count:
        problems.add(at, name, "has no whole NVIDIA GPU to share", "a type with a GPU")
        return
    field = f"{pool['field']}.sharing"
    if sharing["strategy"] == "mps":
        _check_mps(problems, field, name, sharing, gpus, catalog, warnings, pool["name"])
    if sharing["flags"].get("migStrategy", "none") != "none":
        _check_mig(problems, field, name, gpus, catalog, warnings, pool["name"])
    if not sharing["gpu_memory"]:
        return
    if count > 1 and sharing["multi_gpu"] != "sum":
        problems.add(
            at,
            name,
            f"has {count} GPUs: a sum over them places pods that no single GPU can hold",
            "types with one GPU, or sharing.multi_gpu: sum",
        )
    elif count > 1:
        warnings.append(
            f"pool {pool['name']}: {name} publishes the sum of {count} GPUs; a pod can be placed "
            "where no single GPU has its memory free (multi_gpu: sum)"
        )
    for gpu in gpus:
        model = gpu_model(catalog, gpu)
        usable = sharing["usable_mib"] or (model and model["usable_mib"])
        if not usable:
            problems.add(
                f"{field}.usable_mib",
                None,
                f"is needed: nothing is known of the GPU {gpu['name']} of {name}",
                f"1 to {gpu['memory_mib']}",
            )
        elif usable > gpu["memory_mib"]:
            problems.add(
                f"{field}.usable_mib",
                usable,
                f"is more than the {gpu['name']} of {name} has",
                f"1 to {gpu['memory_mib']}",
            )
        elif sharing["headroom_mib"] >= usable:
            problems.add(
                f"{field}.headroom_mib",
                sharing["headroom_mib"],
                f"leaves nothing of the {usable} MiB of {name}",
                f"0 to {usable - 1}",
            )


def _check_mps(
    problems: Problems,
    field: str,
    name: str,
    sharing: dict[str, Any],
    gpus: list[dict[str, Any]],
    catalog: Mapping[str, Any],
    warnings: list[str],
    pool: str,
) -> None:
    for gpu in gpus:
        model = gpu_model(catalog, gpu)
        if model is None:
            continue
        replicas, capability = sharing["replicas"] or 0, model["compute_capability"]
        clients = driver_clients(capability, sharing["cuda_version"])
        most = min(clients, most_replicas(capability))
        if replicas > most:
            problems.add(
                f"{field}.replicas",
                replicas,
                f"is above what {gpu['name']} of {name} allows under MPS",
                f"2 to {most} (compute capability {capability})",
            )
        elif replicas == clients:
            warnings.append(
                f"pool {pool}: {replicas} replicas take all {clients} MPS clients of {name}; a pod "
                "with a second CUDA context keeps another pod from starting"
            )
        if model["mig"]:
            warnings.append(
                f"pool {pool}: {name} has a GPU that can do MIG; MPS and MIG exclude each other, "
                "so MIG has to stay off on its nodes"
            )


def _check_mig(
    problems: Problems,
    field: str,
    name: str,
    gpus: list[dict[str, Any]],
    catalog: Mapping[str, Any],
    warnings: list[str],
    pool: str,
) -> None:
    models = [gpu_model(catalog, gpu) for gpu in gpus]
    if any(model is not None and not model["mig"] for model in models):
        problems.add(f"{field}.flags.migStrategy", None, f"no GPU of {name} has MIG", "none")
    else:
        warnings.append(
            f"pool {pool}: how many devices {name} offers depends on its MIG slices, which are "
            "not made here; the prediction counts whole GPUs"
        )
