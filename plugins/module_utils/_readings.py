# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a node says of its GPUs is a claim: parsed strictly, bounded by its instance type. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils.nvml_probe import (
    MOST_ROWS,
    NVML_CODES,
    SCHEMA,
    expand,
)

OUTPUT_LIMIT = 2500  # characters per plugin in ListCommandInvocations (AWS Systems Manager API)
TOTAL_FACTOR = 1.02  # NVML's total stands up to 0.7 % above EC2's GpuInfo (aws-cli #8970: L4, A10G)
HIGHEST_MIB = 16 * 1024 * 1024
_TEXT = re.compile(r"[\w .,:;+()/@\[\]'=-]*")
_PATTERNS = {
    "boot_id": re.compile(r"[0-9a-f-]{36}"),
    "instance_id": re.compile(r"m?i-[0-9a-f]{8,32}"),
    "time": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
    "driver": re.compile(r"\d{1,4}(\.\d{1,6}){1,3}"),
    "cuda": re.compile(r"\d{1,2}\.\d{1,2}"),
    "uuid": re.compile(r"GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    "name": re.compile(r"[\w .+()/-]{1,64}"),
    "profile": re.compile(r"\d{1,2}[cg]\.[\w.+-]{1,30}"),
    "cc": re.compile(r"\d{1,2}\.\d{1,2}"),
}
_SLICE = re.compile(r"MIG-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PROBE_TYPES = {"PROBE_CRASHED", "PROBE_FAILED", "OUTPUT_TOO_LARGE"}
_ERROR_TYPES = set(NVML_CODES.values()) | _PROBE_TYPES
_CODE_TYPE = re.compile(r"CODE_\d{1,6}")  # a code newer than our table

_REBOOT = "drain the node and reboot or replace its instance"
_LOOK = "look at the command's output in SSM: something on the node"
_OLD = "NVML is too old to tell the reserve apart: use driver 510 or newer"
_DRIVER = "use the EKS-optimized NVIDIA AMI, or install the NVIDIA driver on this one"
REMEDIES = {
    "LIBRARY_NOT_FOUND": _DRIVER,
    "DRIVER_NOT_LOADED": f"load the kernel module (modprobe nvidia), or {_DRIVER}",
    "LIB_RM_VERSION_MISMATCH": "the driver changed under a loaded kernel module: reboot the node",
    "NO_PERMISSION": "the SSM agent must run as root on the node",
    "GPU_IS_LOST": f"the GPU fell off the bus: {_REBOOT}",
    "GPU_MISSING": f"a GPU is not visible to the driver: {_REBOOT}",
    "RESET_REQUIRED": f"the GPU needs a reset: {_REBOOT}",
    "NOT_SUPPORTED": "NVML cannot tell the reserve of this GPU: use driver 510 or newer",
    "ARGUMENT_VERSION_MISMATCH": _OLD,
    "FUNCTION_NOT_FOUND": _OLD,
    "TIMEOUT": f"the driver hangs: {_REBOOT}",
    "PROBE_CRASHED": f"NVML crashed the process that read it: see dmesg, then {_REBOOT}",
    "PROBE_FAILED": "report it with the message: the probe itself is wrong",
    "OUTPUT_TOO_LARGE": "make fewer MIG slices: Run Command hands on 2,500 characters for a node",
    "MALFORMED": f"{_LOOK} changes what it prints",
    "TRUNCATED": f"{_LOOK} prints beside the probe",
    "IMPLAUSIBLE": "do not trust this node: check what answers NVML there, or replace its instance",
    "WRONG_INSTANCE": "do not trust this node: it names another instance; replace it",
}


class Refused(Exception):
    """Unusable output: `type` is MALFORMED, TRUNCATED, WRONG_INSTANCE or IMPLAUSIBLE."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.type = kind


def _is_integer(value: Any) -> bool:
    """Whether it is a whole number of JSON; true and 1.0 are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def error(kind: str, message: str) -> dict[str, str]:
    """{"type", "message", "remedy"} as a row of gpu_capacity_info carries it."""
    return {"type": kind, "message": message, "remedy": REMEDIES.get(kind, _REBOOT)}


def clean(text: Any, limit: int = 200) -> str:
    """A node's free text made harmless for logs: printable ASCII on one line, cut at `limit`."""
    printable = "".join(c if 32 <= ord(c) < 127 else " " for c in str(text))
    return " ".join(printable.split())[:limit]


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise Refused("MALFORMED", "a key stands twice in the output")
    return value


def _no_constant(name: str) -> None:
    raise Refused("MALFORMED", f"the output holds {name}, which is no number")


def loads(output: str) -> dict[str, Any]:
    """A line of our scripts as an object of our schema, or Refused."""
    if len(output) > OUTPUT_LIMIT:
        raise Refused("MALFORMED", f"{len(output)} characters of output, at most {OUTPUT_LIMIT}")
    try:
        raw = json.loads(output, object_pairs_hook=_no_twins, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        cut = len(output) >= OUTPUT_LIMIT - 100 or "truncated" in output[-40:].lower()
        kind = "TRUNCATED" if cut else "MALFORMED"
        raise Refused(kind, f"the output is no JSON line: {clean(output, 60)!r}") from None
    if not isinstance(raw, dict) or not _is_integer(raw.get("schema")) or raw["schema"] != SCHEMA:
        raise Refused("MALFORMED", f"the output is no reading of schema {SCHEMA}")
    return raw


def parse(output: str, *, instance_id: str, hardware: dict[str, int] | None) -> dict[str, Any]:
    """The probe's JSON line -> the full reading, or Refused.

    hardware: {"gpu_count", "gpu_memory_mib"} by EC2's GpuInfo, None where EC2 was not asked.
    """
    raw = loads(output)
    reading = head(raw, instance_id)
    for key in ("driver", "cuda"):
        reading[key] = text(raw, key)
    reading["gpus"] = _gpus(raw)
    reading["error"] = probe_error(raw.get("error"))
    if hardware is not None:
        _bound(reading, hardware)
    return reading


def head(raw: dict[str, Any], instance_id: str) -> dict[str, Any]:
    """Which node speaks, and when.

    A reading without an instance ID (no metadata service) gets the one that SSM vouches for.
    """
    found = {"schema": SCHEMA, **{key: text(raw, key) for key in ("boot_id", "time")}}
    claimed = text(raw, "instance_id")
    if claimed not in (None, instance_id):
        raise Refused("WRONG_INSTANCE", f"the reading says it comes from {claimed}")
    return {**found, "instance_id": instance_id}


def _gpus(raw: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        rows = expand(raw)["gpus"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Refused("MALFORMED", "gpus are not as the probe writes them") from None
    if not isinstance(rows, list) or len(rows) > MOST_ROWS:
        raise Refused("MALFORMED", f"gpus is no list of {MOST_ROWS} at most")
    gpus = [_gpu(row) for row in rows]
    for key in ("index", "uuid"):
        unlike([gpu[key] for gpu in gpus], f"two GPUs have the same {key}")
    return gpus


def unlike(values: list[Any], problem: str) -> None:
    """No two of them are the same, None aside."""
    known = [value for value in values if value is not None]
    if len(set(known)) != len(known):
        raise Refused("MALFORMED", problem)


def text(holder: dict[str, Any], key: str, rule: re.Pattern[str] | None = None) -> str | None:
    """A text that is just what its name promises, or None."""
    value, rule = holder.get(key), rule or _PATTERNS[key]
    if value is None or (isinstance(value, str) and rule.fullmatch(value)):
        return value
    raise Refused("MALFORMED", f"{key} is not what it should be: {clean(value, 40)!r}")


def error_type(value: Any) -> str:
    """One of the names of errors that a probe may write."""
    known = isinstance(value, str) and (value in _ERROR_TYPES or _CODE_TYPE.fullmatch(value))
    if not known:
        raise Refused("MALFORMED", f"an unknown error type: {clean(value, 40)!r}")
    return value


def probe_error(value: Any) -> dict[str, Any] | None:
    """The error of a script as a whole: {"type", "code", "message"} or None."""
    if value is None:
        return None
    if not isinstance(value, dict) or type(value.get("code")) not in (int, type(None)):
        raise Refused("MALFORMED", "error is no object of type, code and message")
    message = clean(value.get("message", ""))
    return {"type": error_type(value.get("type")), "code": value.get("code"), "message": message}


def _gpu(raw: dict[str, Any]) -> dict[str, Any]:
    """One GPU with all its keys, usable_mib added: None where MIG, an error or a gap hides it."""
    gpu: dict[str, Any] = {"index": number(raw, "index", MOST_ROWS - 1)}
    if gpu["index"] is None:
        raise Refused("MALFORMED", "a GPU without an index")
    for key in ("uuid", "name", "cc"):
        gpu[key] = text(raw, key)
    for key in ("total_mib", "reserved_mib", "used_mib"):
        gpu[key] = number(raw, key, HIGHEST_MIB)
    gpu["ecc_uncorrected"] = number(raw, "ecc_uncorrected", 2**64 - 1)
    for key in ("ecc", "mig"):
        gpu[key] = raw.get(key)
        if type(gpu[key]) not in (bool, type(None)):
            raise Refused("MALFORMED", f"{key} is neither true nor false")
    gpu["slices"] = None if raw.get("slices") is None else _slices(gpu, raw["slices"])
    gpu["error"] = None if raw.get("error") is None else error_type(raw["error"])
    total, reserved = gpu["total_mib"], gpu["reserved_mib"]
    known = total is not None and reserved is not None and gpu["error"] is None
    if total is not None and max(reserved or 0, gpu["used_mib"] or 0) > total:
        claim = f"GPU {gpu['index']}: reserved or used above its total {total} MiB"
        raise Refused("IMPLAUSIBLE", claim)
    gpu["usable_mib"] = total - reserved if known and gpu["mig"] is False else None
    return gpu


def _slices(gpu: dict[str, Any], rows: Any) -> list[dict[str, Any]]:
    """MIG slices; a long line comes without their UUIDs."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Refused("MALFORMED", f"GPU {gpu['index']}: slices is no list of objects")
    if rows and not gpu["mig"]:
        raise Refused("MALFORMED", f"GPU {gpu['index']}: slices without MIG")
    slices = [
        {
            "uuid": text(row, "uuid", _SLICE),
            "total_mib": number(row, "total_mib", HIGHEST_MIB),
            "profile": text(row, "profile"),
        }
        for row in rows
    ]
    unlike([one["uuid"] for one in slices], "two MIG slices have the same uuid")
    sizes = sum(one["total_mib"] or 0 for one in slices)
    if gpu["total_mib"] is not None and sizes > gpu["total_mib"]:
        claim = f"GPU {gpu['index']}: {sizes} MiB in slices of {gpu['total_mib']} MiB"
        raise Refused("IMPLAUSIBLE", claim)
    return slices


def number(holder: dict[str, Any], key: str, highest: int) -> int | None:
    """A whole number from 0 to `highest`, or None."""
    value = holder.get(key)
    if value is None or (_is_integer(value) and 0 <= value <= highest):
        return value
    claim = f"{key} is no whole number from 0 to {highest}: {clean(value, 40)!r}"
    raise Refused("MALFORMED", claim)


def _bound(reading: dict[str, Any], hardware: dict[str, int]) -> None:
    """Refuse what the type cannot have: usable above EC2's size, total above 1.02 times it."""
    count, size = hardware["gpu_count"], hardware["gpu_memory_mib"]
    if len(reading["gpus"]) > count:
        found = len(reading["gpus"])
        raise Refused("IMPLAUSIBLE", f"{found} GPUs on an instance type that has {count}")
    for gpu in reading["gpus"]:
        total, usable = gpu["total_mib"] or 0, gpu["usable_mib"] or 0
        if total > TOTAL_FACTOR * size or usable > size:
            claim = f"claims {total} MiB in all and {usable} MiB usable"
            raise Refused("IMPLAUSIBLE", f"GPU {gpu['index']} {claim}; EC2 says {size} MiB")


def row_error(reading: dict[str, Any], hardware: dict[str, int] | None) -> dict[str, str] | None:
    """The typed error of a well-formed reading: NVML as a whole, a GPU, or a missing GPU."""
    if reading["error"]:
        return error(reading["error"]["type"], reading["error"]["message"])
    lost = [gpu for gpu in reading["gpus"] if gpu["error"]]
    if lost:
        each = ", ".join(f"GPU {gpu['index']} {gpu['error']}" for gpu in lost)
        return error(lost[0]["error"], f"{len(lost)} of {len(reading['gpus'])} GPUs: {each}")
    if hardware is not None and len(reading["gpus"]) < hardware["gpu_count"]:
        found, count = len(reading["gpus"]), hardware["gpu_count"]
        return error("GPU_MISSING", f"NVML shows {found} of the {count} GPUs of the instance type")
    return None
