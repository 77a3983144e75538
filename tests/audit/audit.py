"""Builds the lab as a careful user would, has it audited, and judges what the auditors say.

Needs a lab of its own (`make audit`). prowler reads the lab's AWS after site.yml, checkov the
manifests that the roles render. Everything is told at the end, and kept in build/audit/report.json.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import boto3
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "collections"), str(ROOT)]

from lab import LabError  # noqa: E402
from tests.audit import environments, judge  # noqa: E402
from tests.integration.support import aws_state, playbook  # noqa: E402

CAREFUL = ROOT / "tests" / "audit" / "careful.yml"
CLUSTER = yaml.safe_load(CAREFUL.read_text())["gpushare_cluster_name"]
SERVICES = ("autoscaling", "cloudwatch", "ec2", "eks", "iam", "kms", "ssm", "vpc")
FOLDER = ROOT / "build" / "audit"


def inventory() -> set[str]:
    """Ids and names of what stands in the account."""
    acls = boto3.client("ec2").describe_network_acls()["NetworkAcls"]
    return {
        *(key.rpartition(" ")[2] for key in aws_state.objects(CLUSTER)),
        *aws_state.keys(CLUSTER),
        *(one["NetworkAclId"] for one in acls),
    }


def play(book: str, *more: str) -> None:
    """A playbook as a careful user runs it."""
    run = playbook.run(book, *more, "-e", f"@{CAREFUL}")
    if run.rc:
        raise judge.AuditError(f"{book} fails:\n{run.output[-4000:]}")
    print(f"audit: {book} in {run.seconds:.0f} s", flush=True)


def ask(*command: str, timeout: float = 600) -> str:
    """What an auditor prints; its exit status tells of itself, not of its findings."""
    began = time.monotonic()
    done = subprocess.run(
        command,
        cwd=FOLDER,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    name = Path(command[0]).name
    (FOLDER / f"{name}.log").write_text(done.stdout + done.stderr)
    if done.returncode:
        raise judge.AuditError(
            f"{name} ended with {done.returncode}, see build/audit/{name}.log:\n"
            f"{(done.stderr or done.stdout)[-2000:]}"
        )
    print(f"audit: {name} in {time.monotonic() - began:.0f} s", flush=True)
    return done.stdout


def audit() -> list[judge.Finding]:
    """Everything that the auditors say about what is ours."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    checkov, prowler = (environments.program(name) for name in ("checkov", "prowler"))
    before = inventory()
    play("tests/audit/manifests.yml", "--check", "-e", f"gpushare_build_dir={FOLDER}")
    play("site.yml")
    options = ("--framework", "kubernetes", "--output", "json", "--skip-download", "--soft-fail")
    told = json.loads(ask(checkov, "--directory", "manifests", *options))
    findings = judge.of_checkov(told)
    ask(
        *(prowler, "aws", "--region", boto3.Session().region_name, "--service", *SERVICES),
        *("--output-formats", "json-ocsf", "--output-filename", "prowler", "--output-directory"),
        *(str(FOLDER), "--ignore-exit-code-3", "--no-banner", "--no-color"),
    )
    report = json.loads((FOLDER / "prowler.ocsf.json").read_text())
    return findings + judge.of_prowler(report, inventory() - before)


def main() -> int:
    try:
        findings = audit()
        waived = judge.waivers((ROOT / "docs" / "security.md").read_text())
    except (judge.AuditError, LabError) as error:
        print(f"audit: {error}", file=sys.stderr)
        return 1
    wrong = judge.verdict(findings, waived) + judge.unseen(findings, SERVICES)
    failed = [one for one in findings if one.failed]
    report = {"findings": [asdict(one) for one in findings], "wrong": wrong}
    (FOLDER / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    for line in wrong:
        print(f"audit: {line}")
    print(
        f"audit: {len(findings)} findings about ours, {len(failed)} failed of "
        f"{len({one.rule for one in failed})} rules, {len(waived)} waivers, {len(wrong)} wrong"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
