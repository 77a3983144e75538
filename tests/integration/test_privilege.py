"""After the main job: its calls, replayed against each role's policy alone, and against less of it.

By its name this file's tests run after those of test_main_job.py, which are last as well.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import VARS, Built
from .support import beyond, least

ROLES = sorted(path.parts[-3] for path in Path("roles").glob("*/files/policy.json"))
# amazon.aws.aws_caller_info asks for the account's alias and takes a denial for none.
TAKEN = {"iam:ListAccountAliases"}


@pytest.mark.last
def test_no_role_was_denied_anything(built: Built) -> None:
    made = built.principal.calls
    denied = {(call.role, call.task, call.operation) for call in made if call.denied}
    assert {row for row in denied if row[2] not in TAKEN} == set()
    assert {call.role for call in made} == set(ROLES)
    assert len(made) > 300


@pytest.mark.last
@pytest.mark.parametrize("role", ROLES)
def test_a_roles_own_policy_allows_its_calls_and_every_action_of_it_is_needed(
    built: Built, role: str
) -> None:
    wanted = least.wants(built.principal.calls)[role]
    documents = built.principal.documents_of(role)
    alone = [need for need, region in wanted if not least.allowed(documents, need, region)]
    assert alone == []
    # A killed run may show more than an undisturbed one, so `beyond` may tell of what was seen.
    surplus = set(least.surplus(documents, wanted))
    assert surplus - beyond.actions(role) == set(), "no call of the main job needs these"


@pytest.fixture
def denied(built: Built):
    """denied(action): the principal may do everything but this, until the test ends."""
    yield built.principal.deny
    built.principal.deny(None)


@pytest.mark.last
@pytest.mark.parametrize(
    ("book", "action", "resource", "role"),
    [
        # A module of ours, and one of amazon.aws.
        (
            "playbooks/app.yml",
            "eks:DescribeCluster",
            "arn:aws:eks:us-east-1:123456789012:cluster/it",
            "gpushare.eks.eks",
        ),
        (
            "site.yml",
            "ec2:CreateVpc",
            "arn:aws:ec2:us-east-1:123456789012:vpc/*",
            "gpushare.eks.network",
        ),
    ],
)
def test_a_denied_action_ends_with_role_action_and_resource(
    built: Built, denied, book: str, action: str, resource: str, role: str
) -> None:
    denied(action)
    run = built.principal.run(book, extra_vars=VARS)
    assert run.rc != 0
    # What comes behind it gives the run lock up.
    (told,) = [one for one in run.output.split("TASK [") if f"perform: {action} " in one]
    assert told.startswith(f"{role} : "), told
    assert resource in told
    assert "Traceback" not in run.output
