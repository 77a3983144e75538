"""run_lock: one owner at a time, whatever comes between two calls."""

from __future__ import annotations

import datetime
import json

import pytest
from botocore.exceptions import ClientError

from ansible_collections.gpushare.eks.plugins.module_utils._errors import AccessDenied, Conflict
from ansible_collections.gpushare.eks.plugins.module_utils._run_lock import RunLock, parameter

NAME = parameter("demo")
ME = {"id": "m/1/10", "who": "me@here, process 1", "job": ""}
OTHER = {"id": "m/2/20", "who": "other@there, process 2", "job": "17"}
HOUR = 3600


class FakeSsm:
    """Parameters with versions, as SSM keeps them; `before` runs ahead of a write, once."""

    def __init__(self, clock):
        self.values, self.clock, self.tags, self.before = {}, clock, {}, None
        self.writes = []

    def put_parameter(self, Name, Value, Type, Description, Overwrite, Tags=None):
        hook, self.before = self.before, None
        if hook:
            hook()
        versions = self.values.get(Name)
        if versions and not Overwrite:
            raise self.error("ParameterAlreadyExists")
        self.values.setdefault(Name, []).append((Value, self.clock()))
        if Tags:
            self.tags[Name] = Tags
        self.writes.append(Overwrite)
        return {"Version": len(self.values[Name])}

    def get_parameter(self, Name):
        if Name not in self.values:
            raise self.error("ParameterNotFound")
        value, at = self.values[Name][-1]
        when = datetime.datetime.fromtimestamp(at, datetime.UTC)
        version = len(self.values[Name])
        return {"Parameter": {"Value": value, "Version": version, "LastModifiedDate": when}}

    def get_paginator(self, operation):
        assert operation == "get_parameter_history"
        return self

    def paginate(self, Name):
        rows = [{"Version": i + 1, "Value": v} for i, (v, _at) in enumerate(self.values[Name])]
        return [{"Parameters": rows[:1]}, {"Parameters": rows[1:]}]

    def delete_parameter(self, Name):
        if self.values.pop(Name, None) is None:
            raise self.error("ParameterNotFound")

    @staticmethod
    def error(name):
        return ClientError({"Error": {"Code": name, "Message": name}}, "op")

    def holder(self):
        return json.loads(self.values[NAME][-1][0])["id"] if NAME in self.values else None


class Now:
    def __init__(self):
        self.s = 1_800_000_000.0

    def __call__(self):
        return self.s


@pytest.fixture
def now():
    return Now()


@pytest.fixture
def ssm(now):
    return FakeSsm(now)


@pytest.fixture
def lock(ssm, now):
    return RunLock(ssm, "demo", clock=now)


def take(lock, owner, take_from=None, stale_after_s=4 * HOUR):
    return lock.acquire(owner, take_from=take_from, stale_after_s=stale_after_s)


def test_the_first_has_it_and_its_name_and_tag_tell_whose_it_is(lock, ssm):
    assert take(lock, ME) == (None, False)
    record = json.loads(ssm.values["/gpushare/demo/run-lock"][0][0])
    assert record == {"schema": 1, **ME, "since": "2027-01-15T08:00:00Z"}
    assert ssm.tags[NAME] == [{"Key": "gpushare.eks/cluster", "Value": "demo"}]


def test_the_second_is_told_who_has_it_since_when_and_what_to_do(lock, ssm, now):
    take(lock, OTHER)
    now.s += 300
    with pytest.raises(Conflict) as caught:
        take(lock, ME)
    for words in ("demo", "other@there, process 2, job 17", "since 2027-01-15T08:00:00Z (5 min)",
                  "take_run_lock=true"):  # fmt: skip
        assert words in str(caught.value)
    assert caught.value.as_dict()["holder"]["id"] == OTHER["id"]
    assert ssm.holder() == OTHER["id"]
    assert ssm.writes == [False]


def test_the_same_run_may_ask_twice(lock, ssm):
    take(lock, ME)
    held, had_it = take(lock, ME)
    assert had_it
    assert held.record["id"] == ME["id"]
    assert ssm.writes == [False]


def test_a_run_that_has_certainly_ended_loses_it_at_once(lock, ssm):
    take(lock, OTHER)
    before, had_it = take(lock, ME, take_from=OTHER["id"])
    assert (before.record["id"], had_it) == (OTHER["id"], False)
    assert ssm.holder() == ME["id"]


def test_another_one_than_the_ended_run_keeps_it(lock, ssm):
    take(lock, OTHER)
    with pytest.raises(Conflict):
        take(lock, ME, take_from="m/3/30")
    assert ssm.holder() == OTHER["id"]


def test_an_old_lock_is_taken_and_a_younger_one_is_not(lock, ssm, now):
    take(lock, OTHER)
    now.s += 4 * HOUR - 1
    with pytest.raises(Conflict):
        take(lock, ME)
    now.s += 1
    before, _had = take(lock, ME)
    assert before.record["who"] == OTHER["who"]
    assert ssm.holder() == ME["id"]


def test_of_two_that_take_it_over_the_first_has_it_and_it_stays_so(lock, ssm, now):
    take(lock, OTHER)
    third = {"id": "m/3/30", "who": "third", "job": ""}

    def third_is_first():
        take(RunLock(ssm, "demo", clock=now), third, stale_after_s=0)

    def at_the_second_write():
        ssm.before = third_is_first

    ssm.before = at_the_second_write
    with pytest.raises(Conflict, match="third"):
        take(lock, ME, stale_after_s=0)
    assert ssm.holder() == third["id"]


def test_one_that_is_released_between_the_calls_is_free(lock, ssm, monkeypatch):
    take(lock, OTHER)
    inner = ssm.get_parameter

    def gone(Name):
        ssm.values.clear()
        return inner(Name)

    monkeypatch.setattr(ssm, "get_parameter", gone)
    assert take(lock, ME) == (None, False)
    assert ssm.holder() == ME["id"]


def test_what_somebody_else_wrote_there_is_a_lock_as_well(lock, ssm, now):
    ssm.values[NAME] = [("by hand", now())]
    with pytest.raises(Conflict, match="somebody"):
        take(lock, ME)


def test_only_the_owner_gives_it_up(lock, ssm):
    take(lock, OTHER)
    assert lock.release(ME["id"]).record["id"] == OTHER["id"]
    assert ssm.holder() == OTHER["id"]
    lock.release(OTHER["id"])
    assert ssm.holder() is None
    assert lock.release(OTHER["id"]) is None


def test_who_may_not_write_it_is_told_so(lock, ssm, monkeypatch):
    def denied(**_):
        message = "User: arn:aws:iam::1:user/u is not authorized to perform: ssm:PutParameter"
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": message}}, "x")

    monkeypatch.setattr(ssm, "put_parameter", denied)
    with pytest.raises(AccessDenied, match="ssm:PutParameter"):
        take(lock, ME)


def module(run_module, ssm, **options):
    clients = {"ssm": ssm}
    check = options.pop("check", False)
    return run_module("run_lock", check=check, clients=clients, cluster_name="demo", **options)


def test_the_module_takes_it_and_gives_it_up(run_module, ssm):
    taken = module(run_module, ssm, owner=ME)
    assert (taken["changed"], taken["holder"]["id"]) == (True, ME["id"])
    assert module(run_module, ssm, owner=ME)["changed"] is False
    gone = module(run_module, ssm, owner=ME, state="absent")
    assert (gone["changed"], gone["holder"]) == (True, {})
    assert module(run_module, ssm, owner=ME, state="absent")["changed"] is False


def test_the_module_fails_and_leaves_the_others_lock(run_module, ssm):
    module(run_module, ssm, owner=OTHER)
    refused = module(run_module, ssm, owner=ME)
    assert refused["failed"] is True
    assert refused["error"]["holder"]["id"] == OTHER["id"]
    left = module(run_module, ssm, owner=ME, state="absent")
    assert (left["changed"], left["holder"]["id"]) == (False, OTHER["id"])


def test_a_takeover_is_a_warning(run_module, ssm):
    module(run_module, ssm, owner=OTHER)
    taken = module(run_module, ssm, owner=ME, stale_after=0)
    assert taken["taken_from"]["id"] == OTHER["id"]
    assert any("other@there" in text for text in taken["warnings"])


def test_check_mode_only_looks(run_module, ssm):
    assert module(run_module, ssm, owner=ME, check=True)["changed"] is True
    assert ssm.values == {}
    module(run_module, ssm, owner=OTHER)
    seen = module(run_module, ssm, owner=ME, check=True)
    assert seen["changed"] is False
    assert any("other@there" in text for text in seen["warnings"])


def test_without_its_action_plugin_it_refuses(run_module, ssm):
    assert module(run_module, ssm)["error"]["type"] == "InvalidInput"
