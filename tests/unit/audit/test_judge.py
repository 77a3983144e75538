"""The judge of the audit, on what prowler 5.46.0 and checkov 3.3.30 wrote of the lab, shortened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.audit import environments, judge

RECORDED = Path(__file__).with_name("recorded")
SECURITY = Path(__file__).resolve().parents[3] / "docs" / "security.md"
MADE = {
    "/aws/eks/audited/cluster",
    "audited-us-east-1-node",
    "i-ee55ec4c1d663ed7f",
    "eks-shared-b10d2f8f-4ae0-44d0-a950-6fe3531568a1",
    "audited",
}


def recorded(name):
    return json.loads((RECORDED / f"{name}.json").read_text())


def table(*rows):
    lines = ["| Rule | Object | Reason |", "|---|---|---|", *rows]
    return "\n".join(["# Text", judge.HEADING, "", *lines, "", "## Next", "| `x` | `y` | z |"])


def waiver(rule, pattern="*"):
    return judge.Waiver(rule, pattern, "a reason that is long enough")


def test_findings_about_what_we_made_count_and_the_accounts_own_do_not():
    found = judge.of_prowler(recorded("prowler"), MADE)
    assert {one.object for one in found if one.failed} == {
        "log-group:/aws/eks/audited/cluster",
        "role/audited-us-east-1-node",
        "instance/i-ee55ec4c1d663ed7f",
        "autoScalingGroup:af4ab1cd-7ac4-47ea-9193-f3858bcf75fc:autoScalingGroupName/"
        "eks-shared-b10d2f8f-4ae0-44d0-a950-6fe3531568a1",
    }
    assert [one.object for one in found if not one.failed] == ["cluster/audited"]
    assert judge.of_prowler(recorded("prowler"), set()) == []


def test_an_object_is_told_by_its_whole_name():
    assert judge.of_prowler(recorded("prowler"), {"audited-us-east-1", "user", "i-ee55"}) == []


def test_checkovs_failures_and_passes():
    found = judge.of_checkov(recorded("checkov"))
    assert {one.object for one in found} == {"Deployment.gpushare-sample.resnet"}
    assert [one.failed for one in found].count(True) == 3
    assert [one.failed for one in found].count(False) == 2


@pytest.mark.parametrize(
    "report", [{"passed": 0, "failed": 0}, {"results": {"parsing_errors": ["manifests/a.yml"]}}]
)
def test_manifests_that_checkov_did_not_read_are_an_error(report):
    with pytest.raises(judge.AuditError, match="not all manifests"):
        judge.of_checkov(report)


def test_a_failure_that_nobody_waives_is_told_with_its_object():
    found = judge.of_checkov(recorded("checkov"))
    failed = sorted({one.rule for one in found if one.failed})
    told = judge.verdict(found, [waiver(rule) for rule in failed[1:]])
    (line,) = told
    assert line.startswith(f"{failed[0]} fails on Deployment.gpushare-sample.resnet: ")
    assert judge.verdict(found, [waiver(rule) for rule in failed]) == []


def test_a_waiver_holds_for_its_objects_only():
    found = [judge.Finding("r", "role/a-node", True), judge.Finding("r", "role/b", True)]
    told = judge.verdict(found, [waiver("r", "role/*-node")])
    assert told == ["r fails on role/b: "]


def test_a_waiver_that_nothing_needs_is_wrong():
    passed = [judge.Finding("r", "role/a", False)]
    told = judge.verdict(passed, [waiver("r", "role/*")])
    assert told == ["the waiver of r for role/* is needed by nothing: take it out"]


def test_an_audit_of_nothing_is_void():
    found = [judge.Finding("vpc_flow_logs_enabled", "vpc/v", False)]
    told = judge.unseen(found, ["vpc", "kms"])
    assert told == ["no rule of kms looked at an object of ours: the audit is void"]


def test_the_table_gives_each_rule_for_each_object():
    text = table("| `A`, `B` | `x.*`, `y` | accepted because of this and that |")
    reason = "accepted because of this and that"
    assert judge.waivers(text) == [
        judge.Waiver(rule, one, reason) for rule in "AB" for one in ("x.*", "y")
    ]


@pytest.mark.parametrize(
    "row", ["| `A` | `x` | |", "| A | `x` | a reason that is long enough |", "| `A` | `x` |"]
)
def test_a_waiver_without_rule_object_or_reason_is_refused(row):
    with pytest.raises(judge.AuditError, match="without rule, object or reason"):
        judge.waivers(table(row))


def test_a_document_without_the_table_is_refused():
    with pytest.raises(judge.AuditError, match="has no section"):
        judge.waivers("# Security\n")


def test_the_waivers_of_this_collection_can_be_read_and_none_stands_twice():
    found = judge.waivers(SECURITY.read_text())
    names = [(one.rule, one.pattern) for one in found]
    assert len(names) > 10
    assert len(set(names)) == len(names)


def test_each_auditor_has_one_exact_version():
    pinned = environments.requirements(environments.PINNED.read_text())
    assert set(pinned) == {"prowler", "checkov"}
    assert all("==" in one for one in pinned.values())
