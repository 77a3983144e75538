"""What the policies hold beyond the main job: the named task is there and makes that very call."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest
import yaml
from botocore import xform_name

from tests.integration.support import beyond

ROOT = Path(__file__).resolve().parents[3]
AMAZON = Path(str(resources.files("ansible_collections.amazon.aws") / "plugins"))
GROUPS = beyond.groups()


def tasks(role):
    """{name: the task} of a role, those in blocks too."""

    def walk(rows):
        for one in rows:
            yield one
            for part in ("block", "rescue", "always"):
                yield from walk(one.get(part, []))

    files = (ROOT / f"roles/{role}/tasks").glob("*.yml")
    return {one["name"]: one for file in files for one in walk(yaml.safe_load(file.read_text()))}


def source(task):
    """The text of the module that a task runs, with what it may import."""
    (name,) = [key for key in task if key.startswith(("amazon.aws.", "gpushare.eks."))]
    folder = AMAZON if name.startswith("amazon") else ROOT / "plugins"
    files = [folder / f"modules/{name.rpartition('.')[2]}.py", *folder.glob("module_utils/*.py")]
    return "\n".join(file.read_text() for file in files)


def calls(text, operation):
    """Whether the code calls an operation; some names are put together of a verb and a kind."""
    name = xform_name(operation)
    verb, _, member = name.partition("_")
    engine = f"{verb}_{{self.resource.member}}" in text and f'member="{member}"' in text
    swept = f'"describe_{member}s"' in text and f'"describe", "{verb}"' in text
    return name in text or engine or swept


@pytest.mark.parametrize("group", GROUPS, ids=lambda one: f"{one['role']}: {one['task']}")
def test_the_named_task_makes_the_call(group):
    found = tasks(group["role"])
    assert group["task"] in found
    assert group["why"]
    text = source(found[group["task"]])
    for one in group["actions"]:
        operation = group.get("behind") or one.rpartition(":")[2]
        assert calls(text, operation), one


def test_what_is_told_stands_in_the_policy():
    for group in GROUPS:
        policy = json.loads((ROOT / f"roles/{group['role']}/files/policy.json").read_text())
        rows = {(row["Sid"], name) for row in policy["Statement"] for name in row["Action"]}
        assert beyond.actions(group["role"]) <= rows


def test_no_action_stands_twice():
    rows = [(group["role"], one) for group in GROUPS for one in group["actions"]]
    assert len(rows) == len(set(rows))
