"""The engine itself: what no single module shows."""

from __future__ import annotations

import threading

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import (
    _eks_access,
    _eks_addon,
    _eks_association,
    _eks_cluster,
    _eks_nodegroup,
)
from ansible_collections.gpushare.eks.plugins.module_utils._eks import Engine
from ansible_collections.gpushare.eks.plugins.module_utils._eks_base import Call, tag_calls
from ansible_collections.gpushare.eks.plugins.module_utils._errors import AccessDenied, Conflict
from tests.unit.eks_fake import Clock, FakeEks, refusal

RESOURCES = [_eks_cluster, _eks_nodegroup, _eks_addon, _eks_access, _eks_association]
WANTED = {
    "node_role_arn": "arn:aws:iam::123456789012:role/n",
    "subnet_ids": ["subnet-a"],
    "scaling": {"min_size": 0, "max_size": 1},
}


def engine(eks, resource=_eks_nodegroup.RESOURCE, **more):
    clock = Clock()
    options = {"timeout": 600, "clock": clock, "sleep": clock.sleep, **more}
    return Engine(eks, resource, "demo", **options)


@pytest.mark.parametrize("module", RESOURCES, ids=lambda module: module.__name__[-10:])
def test_every_kind_has_one_shape(module):
    """A placeholder has the keys of facts, and facts hold the view."""
    resource = module.RESOURCE
    eks = FakeEks()
    kind = resource.member
    raw = eks.add(kind, "arn:aws:iam::123456789012:role/x")
    facts = resource.facts(raw)
    assert set(facts) == set(resource.placeholder("x", "demo", {}))
    assert set(resource.view(raw)) <= set(facts)
    assert facts["exists"] is True
    assert resource.placeholder("x", "demo", {})["exists"] is False


@pytest.mark.parametrize("module", RESOURCES, ids=lambda module: module.__name__[-10:])
def test_no_field_is_both_immutable_and_updated(module):
    resource = module.RESOURCE
    fields = set(resource.view(FakeEks().add(resource.member, "arn:aws:iam::1:role/x")))
    assert set(resource.immutable) <= fields
    assert not set(resource.unseen) & fields


def test_creates_run_side_by_side():
    """All creates are under way before any of them is waited for to its end."""
    eks = FakeEks()
    barrier = threading.Barrier(4, timeout=10)
    original = eks._create

    def create(**params):
        barrier.wait()
        with eks._lock:
            return original("nodegroup", params)

    eks.create_nodegroup = create
    outcomes, errors = engine(eks).manage("present", {f"g{n}": WANTED for n in range(4)})
    assert errors == {}
    assert all(outcome.changed for outcome in outcomes.values())


def test_one_denied_item_does_not_stop_the_others():
    eks = FakeEks()
    eks.errors["create_nodegroup"] = [refusal("AccessDeniedException", "no")]
    outcomes, errors = engine(eks).manage("present", {f"g{n}": WANTED for n in range(3)})
    assert len(outcomes) == 2
    assert [type(error) for error in errors.values()] == [AccessDenied]


def test_an_update_in_the_way_is_waited_for_and_then_tried_again():
    eks = FakeEks()
    eks.add("nodegroup", "g", nodeRole=WANTED["node_role_arn"], labels={})
    eks.errors["update_nodegroup_config"] = [refusal("ResourceInUseException", "busy")]
    outcome = engine(eks).one("g", "present", {"labels": {"a": "b"}})
    assert outcome.changed
    assert eks.counts()["update_nodegroup_config"] == 1 + 1


def test_a_conflict_that_stays_is_told():
    eks = FakeEks()
    eks.add("nodegroup", "g", labels={})
    eks.errors["update_nodegroup_config"] = [refusal("ResourceInUseException", "busy")] * 2
    with pytest.raises(Conflict, match="busy"):
        engine(eks).one("g", "present", {"labels": {"a": "b"}})


def test_without_wait_only_the_last_update_is_left_running():
    eks = FakeEks()
    raw = eks.add("nodegroup", "g", labels={}, launchTemplate={"id": "lt", "version": "1"})
    assert raw["status"] == "ACTIVE"
    wanted = {"labels": {"a": "b"}, "launch_template": {"id": "lt", "version": "2"}}
    outcome = engine(eks, wait=False).one("g", "present", wanted)
    assert eks.counts()["describe_update"] == 1
    assert outcome.after["labels"] == {"a": "b"}


def test_deleting_and_absent_without_wait_returns_at_once():
    eks = FakeEks()
    eks.add("nodegroup", "g", status="DELETING")
    outcome = engine(eks, wait=False).one("g", "absent", {})
    assert not outcome.changed
    assert eks.counts() == {"describe_nodegroup": 1}


def test_check_mode_never_waits():
    eks = FakeEks()
    eks.add("nodegroup", "g", status="DELETING")
    outcome = engine(eks, check_mode=True).one("g", "present", WANTED)
    assert outcome.changed
    assert eks.counts() == {"describe_nodegroup": 1}


def test_deletion_that_fails_is_told():
    eks = FakeEks()
    eks.add("nodegroup", "g")
    eks.states["g"] = ["ACTIVE", "DELETING", "DELETE_FAILED"]
    with pytest.raises(Exception, match="DELETE_FAILED"):
        engine(eks).one("g", "absent", {})


def test_deletion_by_somebody_else_counts_as_done():
    eks = FakeEks()
    eks.add("nodegroup", "g")
    eks.errors["delete_nodegroup"] = [refusal("ResourceNotFoundException", "gone")]
    assert engine(eks).one("g", "absent", {}).after == {}


def test_tags_only_differences():
    assert tag_calls({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}) == [
        Call("tag_resource", {"tags": {"b": "3", "c": "4"}})
    ]
    assert tag_calls({"a": "1"}, {}) == [Call("untag_resource", {"tagKeys": ["a"]})]
    assert tag_calls({"a": "1"}, {"a": "1"}) == []
