# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""`flags` of NVIDIA's v1 configuration as a pool sets them, and what they ask of its chart. Pure.

NVIDIA's parser ignores a key that it does not know, and the environment that the chart sets wins
over the configuration: either way a flag would stand there without effect. So what is unknown is
refused, and the chart is told to leave alone what a pool sets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._pool_fields import Problems

MIG_STRATEGIES = ("none", "single", "mixed")
DEVICE_LIST_STRATEGIES = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")
# What a device plugin without any of our flags runs with; the chart's own defaults add SYS_ADMIN.
UNPRIVILEGED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}

# k8s-device-plugin api/config/v1/flags.go: key -> bool, "path", "text", "duration", "list" of the
# device-list strategies, a tuple of choices, or the keys below it.
_FLAGS: dict[str, Any] = {
    "migStrategy": MIG_STRATEGIES,
    "failOnInitError": bool,
    "mpsRoot": "path",
    "nvidiaDriverRoot": "path",
    "nvidiaDevRoot": "path",
    "gdrcopyEnabled": bool,
    "gdsEnabled": bool,
    "mofedEnabled": bool,
    "useNodeFeatureAPI": bool,
    "deviceDiscoveryStrategy": ("auto", "nvml", "tegra"),
    "plugin": {
        "passDeviceSpecs": bool,
        "deviceListStrategy": "list",
        "deviceIDStrategy": ("uuid", "index"),
        "cdiAnnotationPrefix": "text",
        "nvidiaCTKPath": "path",
        "containerDriverRoot": "path",
    },
    "gfd": {
        "oneshot": bool,
        "noTimestamp": bool,
        "sleepInterval": "duration",
        "outputFile": "path",
        "machineTypeFile": "path",
    },
}
# Go's time.ParseDuration, above zero; a bare number would be nanoseconds.
_DURATION = re.compile(r"(?=.*[1-9])(\d+(\.\d+)?(h|m|s|ms))+\Z", re.ASCII)


def read_flags(
    problems: Problems, field: str, value: Any, strategy: str, gpu_memory: bool
) -> dict[str, Any]:
    """The flags of a pool, each of a kind that NVIDIA's parser takes and that takes effect."""
    flags = _read(problems, field, value, _FLAGS)
    mig = flags.get("migStrategy", "none")
    if mig != "none" and (strategy == "mps" or gpu_memory):
        why = "MPS and MIG exclude each other" if strategy == "mps" else "MIG memory is the slices'"
        problems.add(f"{field}.migStrategy", mig, why, "none")
    if strategy == "mps" and flags.get("useNodeFeatureAPI") is False:
        problems.add(
            f"{field}.useNodeFeatureAPI",
            False,
            "keeps GFD's label nvidia.com/mps.capable off the node, without which MPS never starts",
            "true",
        )
    if "mpsRoot" in flags:
        problems.add(
            f"{field}.mpsRoot",
            flags["mpsRoot"],
            "has no effect for one pool: the chart mounts one path on every node",
            "device_plugin_values: {mps: {root: PATH}}",
        )
    return flags


def _read(problems: Problems, field: str, value: Any, known: Mapping[str, Any]) -> dict[str, Any]:
    raw = dict(value) if isinstance(value, Mapping) else value
    if isinstance(raw, dict):
        for group, inner in known.items():
            # One level too high is the usual mistake: the plugin's command line has no levels.
            for key in [key for key in raw if isinstance(inner, dict) and key in inner]:
                at = f"{field}.{key}"
                problems.add(at, raw.pop(key), f"stands in {group}", f"{group}: {{{key}: ...}}")
    given = problems.mapping(field, raw, known)
    return {
        key: _one(problems, f"{field}.{key}", item, known[key])
        for key, item in given.items()
        if key in known and item is not None
    }


def _one(problems: Problems, field: str, value: Any, kind: Any) -> Any:
    if isinstance(kind, dict):
        return _read(problems, field, value, kind)
    if kind is bool:
        return problems.boolean(field, value, False)
    if isinstance(kind, tuple):
        return problems.choice(field, value, kind[0], kind)
    if kind == "list":
        return _strategies(problems, field, value)
    if kind == "duration":
        if value != "infinite" and not (isinstance(value, str) and _DURATION.match(value)):
            problems.add(field, value, "is not a duration", "30s, 5m, 1h30m or infinite")
        return value
    if not isinstance(value, str) or not value:
        problems.add(field, value, "is not a text", "a text")
    elif kind == "path" and not value.startswith("/"):
        problems.add(field, value, "is not an absolute path", "/...")
    return value


def _strategies(problems: Problems, field: str, value: Any) -> Any:
    """One of the strategies or a list of them; NVIDIA's parser splits no text at commas."""
    names = problems.texts(field, [value] if isinstance(value, str) else value)
    for name in names:
        problems.choice(field, name, None, DEVICE_LIST_STRATEGIES)
    if isinstance(value, (list, tuple)) and not value:
        problems.add(field, value, "names none", DEVICE_LIST_STRATEGIES)
    return value


def chart_values(flags: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Values of NVIDIA's chart that leave the pools' flags their effect, with the fewest rights.

    The chart writes migStrategy and deviceListStrategy into the plugin's environment, which wins
    over every configuration; without them it adds SYS_ADMIN unless a securityContext is given.
    """
    flags = list(flags)
    plugins = [each.get("plugin") or {} for each in flags]
    mig = any(each.get("migStrategy", "none") != "none" for each in flags)
    lists = [each["deviceListStrategy"] for each in plugins if "deviceListStrategy" in each]
    mounts = any("volume-mounts" in each for each in lists)
    values: dict[str, Any] = {}
    if not mig:
        values["migStrategy"] = "none"
    if not lists:
        values["deviceListStrategy"] = "envvar"
    if any(each.get("passDeviceSpecs") for each in plugins):
        # As the chart does where every node passes them (compatWithCPUManager).
        values["securityContext"] = {"privileged": True}
    elif lists and not mounts and not mig:
        values["securityContext"] = UNPRIVILEGED
    return values
