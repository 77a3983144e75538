"""The truth table of sync: {absent, present} x {missing, same, differs} x {check, real}."""

from __future__ import annotations

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils._sync import Outcome, merge, sync

DESIRED = {"size": 2}
RAW = {"missing": None, "same": {"Size": 2, "Id": "x"}, "differs": {"Size": 1, "Id": "x"}}

# state, what is there, check mode -> changed, before, after, calls
TABLE = [
    ("absent", "missing", True, False, {}, {}, []),
    ("absent", "missing", False, False, {}, {}, []),
    ("absent", "same", True, True, {"size": 2}, {}, []),
    ("absent", "same", False, True, {"size": 2}, {}, ["delete"]),
    ("absent", "differs", True, True, {"size": 1}, {}, []),
    ("absent", "differs", False, True, {"size": 1}, {}, ["delete"]),
    ("present", "missing", True, True, {}, {"size": 2}, []),
    ("present", "missing", False, True, {}, {"size": 2}, ["create"]),
    ("present", "same", True, False, {"size": 2}, {"size": 2}, []),
    ("present", "same", False, False, {"size": 2}, {"size": 2}, []),
    ("present", "differs", True, True, {"size": 1}, {"size": 2}, []),
    ("present", "differs", False, True, {"size": 1}, {"size": 2}, ["update"]),
]


def differs(before, wanted):
    return {key: value for key, value in wanted.items() if before.get(key) != value}


@pytest.mark.parametrize(
    ("state", "there", "check_mode", "changed", "before", "after", "expected_calls"), TABLE
)
def test_truth_table(state, there, check_mode, changed, before, after, expected_calls):
    calls = []

    def create():
        calls.append("create")
        return {"Size": 2, "Id": "new"}

    def update(current, changes):
        assert changes == {"size": 2}
        calls.append("update")
        return {**current, "Size": 2}

    outcome = sync(
        state=state,
        current=RAW[there],
        desired=DESIRED,
        differs=differs,
        create=create,
        update=update,
        delete=lambda current: calls.append("delete"),
        check_mode=check_mode,
        view=lambda raw: {"size": raw["Size"]},
    )
    assert (outcome.changed, outcome.before, outcome.after) == (changed, before, after)
    assert calls == expected_calls
    gone = state == "absent" or (there == "missing" and check_mode)
    assert (outcome.value is None) == gone


def test_what_was_asked_shows_while_aws_still_works_on_it():
    outcome = sync(
        state="present",
        current={"size": 1},
        desired=DESIRED,
        differs=differs,
        create=dict,
        update=lambda current, changes: current,
        delete=lambda current: None,
        check_mode=False,
    )
    assert outcome.changed
    assert outcome.after == {"size": 2}


def test_merge_shows_only_what_changed():
    merged = merge(
        {
            "a": Outcome(True, {}, {"size": 1}, {}),
            "b": Outcome(False, {"size": 1}, {"size": 1}, {}),
        }
    )
    assert merged["changed"]
    assert merged["diff"] == [
        {"before_header": "a", "after_header": "a", "before": {}, "after": {"size": 1}}
    ]
    assert merge({}) == {"changed": False, "diff": []}
