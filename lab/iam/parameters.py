"""Lists and tags in the flat parameters of the query protocols (`Tag.1.Key`, `SubnetId.2`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def listed(params: Mapping[str, Any], name: str) -> list[dict[str, str]]:
    """`name.1.Key` and so on, as dicts in their order."""
    rows: dict[int, dict[str, str]] = {}
    for key, value in params.items():
        if key.startswith(name + "."):
            number, _, member = key.removeprefix(name + ".").partition(".")
            if number.isdecimal():
                rows.setdefault(int(number), {})[member] = value
    return [rows[number] for number in sorted(rows)]


def values(params: Mapping[str, Any], name: str) -> list[str]:
    """The one value `name`, or the values `name.1`, `name.2`, ..."""
    if name in params:
        return [params[name]]
    return [row[""] for row in listed(params, name) if "" in row]


def tags_of(params: Mapping[str, Any], name: str = "Tags.member") -> dict[str, str]:
    return {row["Key"]: row.get("Value", "") for row in listed(params, name)}


def tag_keys(params: Mapping[str, Any]) -> list[str]:
    return values(params, "TagKeys.member")
