"""Pure: the auditors' findings about what is ours, against the waivers of docs/security.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

HEADING = "## Waived findings"
_QUOTED = re.compile(r"`([^`]+)`")


class AuditError(Exception):
    """What an auditor or the table says cannot be read; the message names the remedy."""


@dataclass(frozen=True)
class Finding:
    """One rule that one object failed or passed."""

    rule: str
    object: str
    failed: bool
    detail: str = ""


@dataclass(frozen=True)
class Waiver:
    """One rule that objects of a pattern may fail, and why."""

    rule: str
    pattern: str
    reason: str

    def covers(self, finding: Finding) -> bool:
        return self.rule == finding.rule and fnmatchcase(finding.object, self.pattern)


def waivers(markdown: str) -> list[Waiver]:
    """The rows of the table under the heading: rules, objects (patterns), reason."""
    _, found, section = markdown.partition(f"{HEADING}\n")
    if not found:
        raise AuditError(f"docs/security.md has no section '{HEADING}': the waivers stand there")
    rows = [line for line in section.split("\n## ")[0].splitlines() if line.startswith("|")]
    answer: list[Waiver] = []
    for row in rows[2:]:  # behind the titles and the line below them
        cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
        rules, patterns = (_QUOTED.findall(cell) for cell in [*cells, ""][:2])
        if len(cells) != 3 or not rules or not patterns or len(cells[2]) < 20:
            raise AuditError(f"waiver without rule, object or reason, in docs/security.md: {row}")
        answer += [Waiver(rule, one, cells[2]) for rule in rules for one in patterns]
    return answer


def of_prowler(report: Sequence[Mapping[str, Any]], made: Iterable[str]) -> list[Finding]:
    """prowler's findings (OCSF) about objects whose id or name is among the ``made``.

    What the account had before us, and the account itself, is not ours to mend.
    """
    ours = set(made)
    found = []
    for one in report:
        resource = one["resources"][0]
        # arn:partition:service:region:account:kind/id, or kind:id:* of a log group
        name = resource["uid"].split(":", 5)[-1].removesuffix(":*")
        if {resource["name"], re.split("[/:]", name, maxsplit=1)[-1]} & ours:
            failed = one["status_code"] == "FAIL"
            if one["status_code"] in {"FAIL", "PASS"}:
                rule = one["metadata"]["event_code"]
                found.append(Finding(rule, name, failed, one["status_detail"]))
    return found


def of_checkov(report: Mapping[str, Any]) -> list[Finding]:
    """checkov's findings; a manifest that it could not read is an error."""
    results = report.get("results")
    if results is None or results["parsing_errors"]:
        raise AuditError(f"checkov read not all manifests: {(results or report)!r:.300}")
    return [
        Finding(one["check_id"], one["resource"], failed, one["check_name"])
        for failed, key in ((True, "failed_checks"), (False, "passed_checks"))
        for one in results[key]
    ]


def verdict(findings: Sequence[Finding], waived: Sequence[Waiver]) -> list[str]:
    """What is wrong: a failure that nobody waives, a waiver that nothing needs."""
    failed = [one for one in findings if one.failed]
    wrong = [
        f"{one.rule} fails on {one.object}: {one.detail}"
        for one in failed
        if not any(waiver.covers(one) for waiver in waived)
    ]
    wrong += [
        f"the waiver of {waiver.rule} for {waiver.pattern} is needed by nothing: take it out"
        for waiver in waived
        if not any(waiver.covers(one) for one in failed)
    ]
    return sorted(set(wrong))


def unseen(findings: Sequence[Finding], services: Iterable[str]) -> list[str]:
    """The services of which no object of ours was judged: an audit of nothing passes everything."""
    return [
        f"no rule of {service} looked at an object of ours: the audit is void"
        for service in services
        if not any(one.rule.startswith(f"{service}_") for one in findings)
    ]
