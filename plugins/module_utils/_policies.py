# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pure: the IAM policies of a role, filled with a cluster's names and cut to AWS's size."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

# Characters of a managed policy, which IAM counts without whitespace.
LIMIT = 6144
_PLACE = re.compile(r"\$\{(\w+)\}")
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
_ACCOUNT = re.compile(r"\d{12}|\*")


class PolicyError(ValueError):
    """A fact that no policy can be filled with."""


def policies(
    document: Mapping[str, Any],
    *,
    name: str,
    cluster_name: str,
    region: str,
    account_id: str | int = "*",
    role_name: str = "",
    role_path: str = "/",
    boundary: str = "",
    more: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """[{"name", "document"}], more than one where IAM's limit asks for it.

    document: a policy with ${Partition}, ${Region}, ${Account}, ${ClusterName}, ${RoleName},
    ${RolePath} and ${Boundary}, and with what `more` names. A condition on a fact that is empty
    falls away.
    """
    account = str(account_id)
    if not _REGION.fullmatch(region):
        raise PolicyError(f"region {region!r} is no name of an AWS region")
    if not _ACCOUNT.fullmatch(account):
        raise PolicyError(f"account_id {account!r} is neither 12 digits (as a string) nor *")
    if not (role_path.startswith("/") and role_path.endswith("/")):
        raise PolicyError(f"role_path {role_path!r} does not begin and end with /")
    facts = {
        "Partition": partition(region),
        "Region": region,
        "Account": account,
        "ClusterName": cluster_name,
        "RoleName": role_name,
        "RolePath": role_path,
        "Boundary": boundary,
        **(more or {}),
    }
    rows = [_statement(row, facts) for row in document["Statement"]]
    parts = _cut(rows)
    names = [name] if len(parts) == 1 else [f"{name}-{n}" for n in range(1, len(parts) + 1)]
    return [
        {"name": one, "document": {"Version": document["Version"], "Statement": part}}
        for one, part in zip(names, parts, strict=True)
    ]


def partition(region: str) -> str:
    """The partition that a region belongs to."""
    if region.startswith("cn-"):
        return "aws-cn"
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"


def size(statements: list[dict[str, Any]]) -> int:
    """What IAM counts of a document with these statements."""
    document = {"Version": "2012-10-17", "Statement": statements}
    return len(re.sub(r"\s", "", json.dumps(document)))


def _statement(row: Mapping[str, Any], facts: Mapping[str, str]) -> dict[str, Any]:
    filled = {}
    for key, value in row.items():
        if key == "Condition":
            found = _condition(value, facts)
            if found:
                filled[key] = found
        elif key == "Resource":
            names = [_fill(one, facts) for one in ([value] if isinstance(value, str) else value)]
            # With the default path a role's two forms are the same.
            names = list(dict.fromkeys(names))
            filled[key] = names[0] if len(names) == 1 else names
        else:
            filled[key] = value
    return filled


def _condition(block: Mapping[str, Any], facts: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for operator, keys in block.items():
        for key, value in keys.items():
            values = [_fill(one, facts) for one in ([value] if isinstance(value, str) else value)]
            if all(values):
                filled = values[0] if isinstance(value, str) else values
                found.setdefault(operator, {})[_fill(key, facts)] = filled
    return found


def _fill(text: str, facts: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] not in facts:
            raise PolicyError(f"no fact fills {match[0]} in {text!r}")
        if match[1] != "Boundary" and not facts[match[1]]:
            raise PolicyError(f"{match[1]} is empty, but {text!r} wants it")
        return facts[match[1]]

    return _PLACE.sub(value, text)


def _cut(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The statements in their order, in as few documents as hold them."""
    parts: list[list[dict[str, Any]]] = [[]]
    for row in rows:
        if size([row]) > LIMIT:
            raise PolicyError(f"statement {row.get('Sid')} alone is above {LIMIT} characters")
        if size([*parts[-1], row]) > LIMIT:
            parts.append([])
        parts[-1].append(row)
    return parts
