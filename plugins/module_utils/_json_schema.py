# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pure: what a JSON Schema has against a value, field by field.

The part of the standard that EKS's add-on schemas use. A keyword that is not known here says
nothing: EKS itself has the last word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}
# A schema that refers to itself ends; no configuration is that deep.
_DEEPEST = 50


def problems(value: Any, schema: Any) -> list[tuple[str, str]]:
    """[(path, what is wrong there)] of a value; the path of the value itself is "$"."""
    return list(_check(value, schema, schema, "$", 0))


def _check(
    value: Any, schema: Any, root: Mapping[str, Any], path: str, depth: int
) -> Iterator[tuple[str, str]]:
    if schema is False:
        yield path, "is not allowed"
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return
    if "$ref" in schema:
        yield from _check(value, _resolve(schema["$ref"], root), root, path, depth + 1)
    wanted = schema.get("type")
    kinds = [wanted] if isinstance(wanted, str) else list(wanted or [])
    if kinds and not any(_is(value, kind) for kind in kinds):
        yield path, f"is {_name(value)}, wanted: {' or '.join(kinds)}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield path, f"is {value!r}, allowed: {', '.join(map(repr, schema['enum']))}"
    if "const" in schema and value != schema["const"]:
        yield path, f"is {value!r}, allowed: {schema['const']!r}"
    yield from _bounds(value, schema, path)
    if isinstance(value, dict):
        yield from _object(value, schema, root, path, depth)
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _check(item, schema.get("items"), root, f"{path}[{number}]", depth + 1)
    yield from _combined(value, schema, root, path, depth)


def _object(
    value: dict[str, Any], schema: Mapping[str, Any], root: Any, path: str, depth: int
) -> Iterator[tuple[str, str]]:
    known = schema.get("properties") or {}
    patterns = schema.get("patternProperties") or {}
    more = schema.get("additionalProperties", True)
    for name in schema.get("required") or []:
        if name not in value:
            yield f"{path}.{name}", "is missing"
    for name, item in value.items():
        at = f"{path}.{name}"
        rules = [rule for pattern, rule in patterns.items() if re.search(pattern, name)]
        if name in known:
            rules.append(known[name])
        if not rules and more is False:
            yield at, f"is not known, allowed: {', '.join(sorted(known)) or 'nothing'}"
            continue
        for rule in rules or [more]:
            yield from _check(item, rule, root, at, depth + 1)


def _combined(
    value: Any, schema: Mapping[str, Any], root: Any, path: str, depth: int
) -> Iterator[tuple[str, str]]:
    for rule in schema.get("allOf") or []:
        yield from _check(value, rule, root, path, depth + 1)
    for keyword in ("anyOf", "oneOf"):
        found = [list(_check(value, r, root, path, depth + 1)) for r in schema.get(keyword) or []]
        if found and all(found):
            # The way that fits best tells most.
            yield from min(found, key=len)


def _bounds(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    if _is(value, "number"):
        if value < schema.get("minimum", value):
            yield path, f"is {value}, at least {schema['minimum']}"
        if value > schema.get("maximum", value):
            yield path, f"is {value}, at most {schema['maximum']}"
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield path, f"is {value!r}, wanted: a match of {schema['pattern']}"


def _is(value: Any, kind: str) -> bool:
    if kind in ("integer", "number") and isinstance(value, bool):
        return False
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(kind, object))


def _name(value: Any) -> str:
    return next((f"{kind} {value!r}" for kind in _TYPES if _is(value, kind)), repr(value))


def _resolve(reference: str, root: Any) -> Any:
    """A schema by its place in the same document; one elsewhere says nothing here."""
    found = root
    if not reference.startswith("#"):
        return {}
    for part in reference.lstrip("#/").split("/") if reference not in ("#", "#/") else []:
        part = part.replace("~1", "/").replace("~0", "~")
        found = found.get(part, {}) if isinstance(found, Mapping) else {}
    return found
