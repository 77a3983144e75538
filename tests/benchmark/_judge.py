"""What the soak is judged by: the API server's audit log, and the states that a watch has shown."""

from __future__ import annotations

import calendar
import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _agents import NAMESPACE, Seen

from ansible_collections.gpushare.eks.plugins.module_utils._names import AGENT_NAME, RESOURCE
from ansible_collections.gpushare.eks.plugins.module_utils._quantity import to_mib

KEY = RESOURCE.replace("/", "~1")
USER = f"system:serviceaccount:{NAMESPACE}:{AGENT_NAME}"
USABLE_MIB = 15360 - 450
UP_S, RESTART_S = 2.0, 10.0  # how long a lie may live: agent up; after a restart of the API server


@dataclass
class Trouble:
    """One thing done to one node: when (monotonic and wall), and what must stand afterwards."""

    kind: str
    name: str
    instance_id: str
    at: float
    wall: float
    wanted_mib: int | None
    limit_s: float
    until: float = 0.0
    healed: float = float("inf")
    lived_s: float | None = None


def instance_of(seen: Seen) -> str:
    return seen.node["spec"]["providerID"].rpartition("/")[2]


def lived(one: Trouble, states: list[Seen]) -> float | None:
    """Seconds from the trouble to the first state that is right again, of the states since then."""
    right = [
        seen.deleted or seen.capacity_mib == seen.allocatable_mib == one.wanted_mib
        for seen in states
    ]
    # A lie is written after its moment was noted: the states before it still look right.
    start = right.index(False) if one.kind.startswith("lie") and False in right else 0
    ends = [seen.at for seen, good in zip(states[start:], right[start:], strict=True) if good]
    return ends[0] - one.at if ends else None


def stamp(text: str) -> float:
    whole, _dot, part = text.rstrip("Z").partition(".")
    return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float(f"0.{part or 0}")


def lifetimes(
    troubles: Sequence[Trouble], history: Sequence[Seen], api_killed: Sequence[float]
) -> tuple[list[Trouble], list[Trouble]]:
    """(troubles that lived in a calm world, troubles around a restart of the API server)."""
    states = defaultdict(list)
    for seen in history:
        states[seen.name].append(seen)
    calm, restarted = [], []
    for one in troubles:
        if not one.kind.startswith(("lie", "GPU")):
            continue
        if one.healed - one.at < one.limit_s:
            continue  # the end of the run healed it before anybody had to see it
        one.lived_s = lived(one, [seen for seen in states[one.name] if seen.at >= one.at])
        end = one.at + (one.lived_s or 0.0)
        near = any(kill - 1 < end and one.at < kill + 20 for kill in api_killed)
        (restarted if near else calm).append(one)
    return calm, restarted


class Audit:
    """The API server's audit log, as far as the agents wrote it."""

    def __init__(self, log: Path) -> None:
        events = map(json.loads, log.read_text().splitlines())
        self._events = [event for event in events if event["user"]["username"] == USER]

    def writes(self, usable: Mapping[str, list[tuple[float, int]]]) -> tuple[int, list[str]]:
        """(writes of a number, those that exceeded what was usable within the UP_S before)."""
        count, wrong = 0, []
        for event in self._events:
            good = event.get("responseStatus", {}).get("code") == 200
            status = event.get("objectRef", {}).get("subresource") == "status"
            if event["verb"] != "patch" or not good or not status:
                continue
            operations: list[dict[str, Any]] = event.get("requestObject") or []
            ours = [one for one in operations if one["path"].endswith(f"/{KEY}")]
            values = [to_mib(one["value"]) for one in ours if "value" in one]
            if not values:
                continue
            count += 1
            node, at = event["responseObject"], stamp(event["requestReceivedTimestamp"])
            instance = node["spec"]["providerID"].rpartition("/")[2]
            allowed = usable_at(usable.get(instance, []), at)
            if not 0 < max(values) <= allowed:
                uid = node["metadata"]["uid"]
                wrong.append(f"{event['requestReceivedTimestamp']} {uid}: {values} of {allowed}")
        return count, wrong

    def requests_since(self, wall: float) -> int:
        """Requests that are no watch: an agent with nothing to do makes none."""
        return sum(
            event["verb"] != "watch" and stamp(event["requestReceivedTimestamp"]) > wall
            for event in self._events
        )


def usable_at(changes: Sequence[tuple[float, int]], at: float) -> int:
    """The most that was usable within the UP_S before: an agent looks once a second."""
    current, found = USABLE_MIB, []
    for since, size in changes:
        if since > at:
            break
        if since > at - UP_S:
            found.append(current)
        current = size
    return max([*found, current])
