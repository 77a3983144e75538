"""Least privilege by replay: which role made which call, and what of its policy the calls need."""

from __future__ import annotations

import bisect
import copy
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.iam.policies import Grants, Need, parse, verdict


@dataclass(frozen=True)
class Call:
    """One recorded call that IAM judged: whose task made it, and every permission it wanted."""

    role: str
    task: str
    operation: str
    region: str
    needs: tuple[Need, ...]
    denied: bool


def calls(recorded: Iterable[dict[str, Any]], times: Path) -> list[Call]:
    """The calls of bounded principals, each with the task that had begun last when it came."""
    tasks = [json.loads(line) for line in times.read_text().splitlines()]
    began = [task["time"] for task in tasks]
    found = []
    for row in recorded:
        if not row.get("needs"):
            continue
        task = tasks[bisect.bisect(began, row["time"]) - 1]
        needs = tuple(Need(n["action"], n["resource"], n["context"]) for n in row["needs"])
        name = f"{row['service']}:{row['operation']}"
        denied = bool(row["error"])
        found.append(Call(task["role"], task["task"], name, row["region"], needs, denied))
    return found


def wants(made: Iterable[Call]) -> dict[str, list[tuple[Need, str]]]:
    """{role: [(permission, region)]}, each once, of the calls that were not denied."""
    found: dict[str, dict[str, tuple[Need, str]]] = defaultdict(dict)
    for call in made:
        for need in call.needs if not call.denied else ():
            key = json.dumps(
                [need.action, need.resource, call.region, need.context], sort_keys=True
            )
            found[call.role][key] = (need, call.region)
    return {role: list(rows.values()) for role, rows in found.items()}


def allowed(documents: Iterable[dict[str, Any]], need: Need, region: str) -> bool:
    """Whether these policies, and no others, allow it."""
    grants = Grants([parse(one) for one in documents])
    return verdict(need, grants, {"aws:RequestedRegion": region}) is None


def granted(documents: list[dict[str, Any]]) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """(statement's Sid, action, the documents without this action in this statement)."""
    for d, document in enumerate(documents):
        for s, statement in enumerate(document["Statement"]):
            for action in statement["Action"]:
                less = copy.deepcopy(documents)
                rest = [one for one in statement["Action"] if one != action]
                # A statement without actions says nothing at all.
                less[d]["Statement"][s : s + 1] = [{**statement, "Action": rest}] if rest else []
                yield statement["Sid"], action, less


def surplus(
    documents: list[dict[str, Any]], wanted: list[tuple[Need, str]]
) -> list[tuple[str, str]]:
    """(Sid, action) of what can be taken away without a recorded call being denied."""
    found = []
    for sid, action, less in granted(documents):
        asked = [(need, region) for need, region in wanted if need.action == action]
        if all(allowed(less, need, region) for need, region in asked):
            found.append((sid, action))
    return found
