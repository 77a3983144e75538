# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kubernetes quantities as exact numbers. Pure and standard library only, Python 3.9."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

MIB = 1048576
_DECIMAL = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_SUFFIXES = {
    **{suffix: Fraction(10) ** power for suffix, power in _DECIMAL.items()},
    **{suffix: Fraction(2) ** power for suffix, power in _BINARY.items()},
}
# Exponents stay small: a hostile 1e999999999 must not fill the memory.
_QUANTITY = re.compile(
    r"([+-]?)(\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE]([+-]?\d{1,2})|([A-Za-z]{1,2}))?\Z",
    re.ASCII,
)


def parse_quantity(text: Any) -> Fraction:
    """A Kubernetes quantity as an exact number. Raises ValueError when it is none."""
    if isinstance(text, int) and not isinstance(text, bool):
        return Fraction(text)
    match = _QUANTITY.match(text) if isinstance(text, str) else None
    if match is None or (match.group(4) or "") not in _SUFFIXES:
        raise ValueError(f"{text!r} is not a Kubernetes quantity")
    sign, digits, exponent, suffix = match.groups()
    number = Fraction(digits.rstrip(".")) * _SUFFIXES[suffix or ""]
    if exponent:
        number *= Fraction(10) ** int(exponent)
    return -number if sign == "-" else number


def to_mib(text: Any) -> int | None:
    """Whole MiB (rounded down) of a quantity; None for None."""
    return None if text is None else int(parse_quantity(text) // MIB)


def escape_pointer(key: str) -> str:
    """A key as a part of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
