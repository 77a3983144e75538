"""Faults on request: errors, latency and throttling, by rules over service and operation."""

from __future__ import annotations

import random
import threading
import time
from fnmatch import fnmatchcase
from typing import Any

_KEYS = {
    "service",
    "operation",
    "error",
    "status",
    "message",
    "times",
    "probability",
    "latency_s",
    "rate",
    "burst",
}


class Faults:
    """The rules of POST /_lab/faults.

    {service, operation: names or patterns with *, default "*"; error: code, status: 400, message;
    times: how often (default for ever); probability: 0-1; latency_s: wait before the answer;
    rate: calls a second, burst: more answers `error` (default ThrottlingException)}
    """

    def __init__(self, clock: Any = time.monotonic) -> None:
        self._rules: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._clock = clock
        self._random = random.Random(0)

    def add(self, rules: Any) -> None:
        """Take rules; ValueError names what is not understood, and then none is taken."""
        rules = rules if isinstance(rules, list) else [rules]
        for rule in rules:
            if not isinstance(rule, dict) or set(rule) - _KEYS:
                raise ValueError(f"{rule!r}: a rule takes {', '.join(sorted(_KEYS))}")
            if not {"error", "latency_s", "rate"} & set(rule):
                raise ValueError(f"{rule!r}: a rule needs error, latency_s or rate")
        with self._lock:
            self._rules += [dict(rule) for rule in rules]

    def clear(self) -> None:
        with self._lock:
            self._rules.clear()

    def rules(self) -> list[dict[str, Any]]:
        with self._lock:
            return [{k: v for k, v in rule.items() if k[0] != "_"} for rule in self._rules]

    def decide(self, service: str, operation: str) -> tuple[float, tuple[str, int, str] | None]:
        """(seconds to wait, None or the error as (code, HTTP status, message)) for one call."""
        latency, error = 0.0, None
        with self._lock:
            for rule in list(self._rules):
                if not (
                    fnmatchcase(service, rule.get("service", "*"))
                    and fnmatchcase(operation, rule.get("operation", "*"))
                ):
                    continue
                if self._random.random() >= rule.get("probability", 1.0):
                    continue
                if "rate" in rule and self._within(rule):
                    continue
                if "times" in rule:
                    rule["times"] -= 1
                    if rule["times"] <= 0:
                        self._rules.remove(rule)
                latency += rule.get("latency_s", 0.0)
                if error is None and ("error" in rule or "rate" in rule):
                    code = rule.get("error") or "ThrottlingException"
                    said = rule.get("message", "Rate exceeded" if "rate" in rule else "by the lab")
                    error = (code, int(rule.get("status", 400)), said)
        return latency, error

    def _within(self, rule: dict[str, Any]) -> bool:
        """A token bucket: whether this call still fits the rate."""
        burst = float(rule.get("burst", max(1.0, rule["rate"])))
        now = self._clock()
        tokens, since = rule.get("_bucket", (burst, now))
        tokens = min(burst, tokens + (now - since) * rule["rate"])
        rule["_bucket"] = (tokens - 1 if tokens >= 1 else tokens, now)
        return tokens >= 1
