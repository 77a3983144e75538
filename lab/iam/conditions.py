"""The condition block of a policy statement: operators, set prefixes, IfExists."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from lab import LabError

# What a key of the request holds: a text, or several for a multivalued key such as aws:TagKeys.
Context = Mapping[str, str | Sequence[str]]
_VARIABLE = re.compile(r"\$\{([^}]+)\}")
_LITERALS = ("*", "?", "$")


@lru_cache(maxsize=4096)
def _glob(pattern: str, any_case: bool) -> re.Pattern[str]:
    parts = {"*": ".*", "?": "."}
    text = "".join(parts.get(sign, re.escape(sign)) for sign in pattern)
    return re.compile(text, re.DOTALL | (re.IGNORECASE if any_case else 0))


def like(pattern: str, value: str, any_case: bool = False) -> bool:
    """Whether `value` is what the pattern with * and ? says."""
    return _glob(pattern, any_case).fullmatch(value) is not None


def arn_like(pattern: str, value: str) -> bool:
    """ARNs match part by part: a * does not reach over the first five colons."""
    if pattern == "*":
        return True
    left, right = pattern.split(":", 5), value.split(":", 5)
    return len(left) == len(right) == 6 and all(map(like, left, right))


def _number(test: Callable[[float, float], bool]) -> Callable[[str, str], bool]:
    def compare(wanted: str, value: str) -> bool:
        try:
            return test(float(value), float(wanted))
        except ValueError:
            return False

    return compare


# operator -> (whether one value of the policy fits one of the request, whether it is negated)
_OPERATORS: dict[str, tuple[Callable[[str, str], bool], bool]] = {
    "StringEquals": (lambda wanted, value: wanted == value, False),
    "StringNotEquals": (lambda wanted, value: wanted == value, True),
    "StringEqualsIgnoreCase": (lambda wanted, value: wanted.lower() == value.lower(), False),
    "StringNotEqualsIgnoreCase": (lambda wanted, value: wanted.lower() == value.lower(), True),
    "StringLike": (like, False),
    "StringNotLike": (like, True),
    "ArnEquals": (arn_like, False),
    "ArnLike": (arn_like, False),
    "ArnNotEquals": (arn_like, True),
    "ArnNotLike": (arn_like, True),
    "Bool": (lambda wanted, value: wanted.lower() == value.lower(), False),
    "NumericEquals": (_number(lambda value, wanted: value == wanted), False),
    "NumericNotEquals": (_number(lambda value, wanted: value == wanted), True),
    "NumericLessThan": (_number(lambda value, wanted: value < wanted), False),
    "NumericLessThanEquals": (_number(lambda value, wanted: value <= wanted), False),
    "NumericGreaterThan": (_number(lambda value, wanted: value > wanted), False),
    "NumericGreaterThanEquals": (_number(lambda value, wanted: value >= wanted), False),
}


def texts(value: Any) -> list[str]:
    """What stands in a policy or a request as a list of texts; JSON's true is `true`."""
    values = value if isinstance(value, (list, tuple)) else [value]
    return [str(v).lower() if isinstance(v, bool) else str(v) for v in values]


def fill(text: str, context: Context) -> str | None:
    """The text with its policy variables; None where the request has no such single value."""
    if "${" not in text:
        return text
    missing = False

    def value(match: re.Match[str]) -> str:
        nonlocal missing
        name, _, default = match[1].partition(",")
        if name in _LITERALS:
            raise LabError(f"the lab does not know the policy variable {match[0]}")
        found = context.get(name.strip().lower())
        if isinstance(found, str):
            return found
        if default:
            return default.strip(" '")
        missing = True
        return ""

    filled = _VARIABLE.sub(value, text)
    return None if missing else filled


def hold(block: Mapping[str, Mapping[str, Any]], context: Context) -> bool:
    """Whether all conditions of a statement are true of this request (keys in lower case)."""
    return all(
        _one(operator, wanted, context.get(key.lower()), context)
        for operator, keys in block.items()
        for key, wanted in keys.items()
    )


def _one(operator: str, wanted: Any, given: Any, context: Context) -> bool:
    many, _, name = operator.rpartition(":")
    name, optional = name.removesuffix("IfExists"), name.endswith("IfExists")
    if name == "Null" and not many and not optional:
        return all((given is None) == (text == "true") for text in texts(wanted))
    if name not in _OPERATORS or many not in ("", "ForAllValues", "ForAnyValue"):
        raise LabError(f"the lab does not know the condition operator {operator}")
    if given is None:
        # A negated operator is true of a key that is not there; ForAnyValue wants one value.
        if many:
            return many == "ForAllValues" or optional
        return optional or _OPERATORS[name][1]
    fits, negated = _OPERATORS[name]
    allowed = [t for t in (fill(text, context) for text in texts(wanted)) if t is not None]
    results = [any(fits(text, value) for text in allowed) != negated for value in texts(given)]
    if many == "ForAnyValue":
        return any(results)
    return all(results) if many else bool(results) and all(results)
