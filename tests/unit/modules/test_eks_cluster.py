"""eks_cluster: one shape always, exact calls, adoption, and everything that is refused."""

from __future__ import annotations

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import _eks_run
from ansible_collections.gpushare.eks.plugins.module_utils._errors import Unreachable

ROLE = "arn:aws:iam::123456789012:role/demo"
NEW = {"name": "demo", "role_arn": ROLE, "subnet_ids": ["subnet-b", "subnet-a"]}
OURS = {"gpushare.eks/cluster": "demo"}
VPC = {
    "subnetIds": ["subnet-a", "subnet-b"],
    "securityGroupIds": [],
    "endpointPrivateAccess": True,
    "endpointPublicAccess": False,
    "publicAccessCidrs": ["0.0.0.0/0"],
    "vpcId": "vpc-1",
    "clusterSecurityGroupId": "sg-1",
}


def existing(eks, **more):
    return eks.add(
        "cluster",
        "demo",
        **{
            "version": "1.35",
            "roleArn": ROLE,
            "resourcesVpcConfig": dict(VPC),
            "kubernetesNetworkConfig": {"serviceIpv4Cidr": "10.100.0.0/16"},
            "accessConfig": {"authenticationMode": "API"},
            "upgradePolicy": {"supportType": "STANDARD"},
            "logging": {"clusterLogging": [{"types": ["api"], "enabled": True}]},
            "endpoint": "https://127.0.0.1:6443",
            "certificateAuthority": {"data": "Q0E="},
            "identity": {"oidc": {"issuer": "https://issuer"}},
            **more,
        },
    )


def test_create_is_private_by_default_and_waits(run_module, eks):
    result = run_module("eks_cluster", **NEW, tags={"a": 1})
    assert result["changed"]
    assert result["cluster"]["exists"]
    assert result["cluster"]["status"] == "ACTIVE"
    (request,) = eks.params("create_cluster")
    assert request["resourcesVpcConfig"] == {
        "subnetIds": ["subnet-a", "subnet-b"],
        "securityGroupIds": [],
        "endpointPrivateAccess": True,
        "endpointPublicAccess": False,
    }
    assert request["accessConfig"] == {"authenticationMode": "API"}
    assert request["tags"] == {"a": "1"}
    assert eks.counts() == {"create_cluster": 1, "describe_cluster": 3}


def test_no_wait_returns_at_once(run_module, eks, clock):
    result = run_module("eks_cluster", **NEW, wait=False)
    assert result["cluster"]["status"] == "CREATING"
    assert result["cluster"]["endpoint"] == ""
    assert eks.counts() == {"create_cluster": 1, "describe_cluster": 1}
    again = run_module("eks_cluster", **NEW, wait=False)
    assert not again["changed"]
    assert clock.pauses == []


def test_unchanged_is_one_call(run_module, eks):
    existing(eks)
    result = run_module("eks_cluster", **NEW, version="1.35", logging=["api"])
    assert not result["changed"]
    assert result["diff"] == []
    assert eks.counts() == {"describe_cluster": 1}
    assert result["cluster"]["ca_data"] == "Q0E="


def test_one_shape_in_every_case(run_module, eks):
    planned = run_module("eks_cluster", check=True, **NEW)["cluster"]
    looked = run_module("eks_cluster", check=True, name="demo")
    assert eks.writes() == []
    made = run_module("eks_cluster", **NEW)["cluster"]
    gone = run_module("eks_cluster", name="demo", state="absent")["cluster"]
    assert set(planned) == set(looked["cluster"]) == set(made) == set(gone)
    assert not planned["exists"]
    assert not gone["exists"]
    assert not looked["changed"]
    assert planned["role_arn"] == ROLE
    assert planned["endpoint"].startswith("https://")
    assert planned["security_group_id"].startswith("sg-")


def test_changes_are_one_call_of_each_kind_and_each_is_waited_for(run_module, eks):
    existing(eks)
    result = run_module(
        "eks_cluster",
        **NEW,
        version="1.36",
        security_group_ids=["sg-2"],
        endpoint_public_access=True,
        public_access_cidrs=["198.51.100.0/24"],
        logging=["audit"],
        support_type="extended",
        deletion_protection=True,
        encryption_key_arn="arn:aws:kms:us-east-1:123456789012:key/1",
        tags={"a": "b"},
    )
    assert result["changed"]
    vpc, endpoint, logging, support, protection = eks.params("update_cluster_config")
    assert vpc["resourcesVpcConfig"]["securityGroupIds"] == ["sg-2"]
    assert endpoint["resourcesVpcConfig"] == {
        "endpointPrivateAccess": True,
        "endpointPublicAccess": True,
        "publicAccessCidrs": ["198.51.100.0/24"],
    }
    assert logging["logging"]["clusterLogging"][0] == {"types": ["audit"], "enabled": True}
    assert support["upgradePolicy"] == {"supportType": "EXTENDED"}
    assert protection["deletionProtection"] is True
    assert eks.params("associate_encryption_config")[0]["clusterName"] == "demo"
    assert eks.params("update_cluster_version") == [{"name": "demo", "version": "1.36"}]
    assert eks.counts()["describe_update"] == 7
    assert result["diff"][0]["after"]["version"] == "1.36"
    assert result["diff"][0]["before"]["version"] == "1.35"


def test_check_mode_shows_the_same_diff_and_calls_nothing(run_module, eks):
    existing(eks)
    options = {**NEW, "version": "1.36", "tags": {"a": "b"}}
    planned = run_module("eks_cluster", check=True, **options)
    assert eks.writes() == []
    assert planned["diff"] == run_module("eks_cluster", **options)["diff"]


def test_failed_update_is_an_error_although_the_cluster_is_active(run_module, eks):
    existing(eks)
    eks.update_states = [
        {"status": "InProgress"},
        {"status": "Failed", "errors": [{"errorCode": "EniLimitReached", "errorMessage": "no"}]},
    ]
    result = run_module("eks_cluster", **NEW, version="1.36")
    assert result["failed"]
    assert "EniLimitReached: no" in result["msg"]
    assert result["error"]["remedy"]


def test_what_was_done_before_a_failure_is_told(run_module, eks):
    raw = existing(eks)
    eks.update_states = [{"status": "Successful"}, {"status": "Failed"}]
    original = eks.answer

    def answer(name, params):
        if name == "update_cluster_config" and "deletionProtection" in params:
            raw["deletionProtection"] = True
        return original(name, params)

    eks.answer = answer
    result = run_module("eks_cluster", **NEW, deletion_protection=True, version="1.36")
    assert result["failed"]
    assert result["changed"]
    assert result["diff"][0]["before"]["deletion_protection"] is False
    assert result["diff"][0]["after"]["deletion_protection"] is True
    assert result["diff"][0]["after"]["version"] == "1.35"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"role_arn": ROLE + "2"}, ["role_arn", ROLE, ROLE + "2", "delete the cluster"]),
        ({"service_ipv4_cidr": "10.1.0.0/16"}, ["service_ipv4_cidr", "10.100.0.0/16"]),
        ({"version": "1.37"}, ["one minor version at a time", "1.36"]),
        ({"version": "1.34"}, ["never goes back", "1.35"]),
        ({"version": "latest"}, ["latest", "1.36"]),
        ({"authentication_mode": "CONFIG_MAP"}, ["authentication_mode", "never turns back"]),
        ({"endpoint_public_access": True}, ["public_access_cidrs", "whole internet"]),
        ({"endpoint_private_access": False}, ["nobody could reach"]),
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_refused_changes(run_module, eks, options, told, check):
    existing(eks)
    result = run_module("eks_cluster", check=check, **{**NEW, **options})
    assert result["failed"]
    assert result["error"]["type"] == "InvalidInput"
    assert result["error"]["field"]
    assert result["error"]["remedy"]
    for text in told:
        assert text in result["msg"]
    assert eks.writes() == []


@pytest.mark.parametrize(
    ("missing", "field"), [("role_arn", "role_arn"), ("subnet_ids", "subnet_ids")]
)
@pytest.mark.parametrize("check", [True, False])
def test_a_new_cluster_needs(run_module, eks, missing, field, check):
    options = {key: value for key, value in NEW.items() if key != missing}
    result = run_module("eks_cluster", check=check, **options)
    assert result["error"]["field"] == field
    assert eks.writes() == []


def test_encryption_key_cannot_change(run_module, eks):
    existing(eks, encryptionConfig=[{"resources": ["secrets"], "provider": {"keyArn": "k1"}}])
    result = run_module("eks_cluster", **NEW, encryption_key_arn="k2")
    assert result["error"]["before"] == "k1"
    assert eks.writes() == []


@pytest.mark.parametrize("check", [True, False])
def test_deletion_protection_is_named(run_module, eks, check):
    existing(eks, deletionProtection=True)
    result = run_module("eks_cluster", check=check, name="demo", state="absent")
    assert result["error"]["type"] == "Conflict"
    assert "deletion_protection: false" in result["msg"]
    assert eks.writes() == []


def test_delete_waits_until_it_is_gone(run_module, eks):
    existing(eks)
    result = run_module("eks_cluster", name="demo", state="absent")
    assert result["changed"]
    assert eks.counts() == {"describe_cluster": 3, "delete_cluster": 1}
    assert not run_module("eks_cluster", name="demo", state="absent")["changed"]


@pytest.mark.parametrize("wait", [True, False])
def test_creating_is_adopted(run_module, eks, wait):
    existing(eks, status="CREATING")
    eks.states["demo"] = ["CREATING", "CREATING", "ACTIVE"]
    result = run_module("eks_cluster", **NEW, wait=wait)
    assert not result["changed"]
    assert result["cluster"]["status"] == ("ACTIVE" if wait else "CREATING")
    assert eks.writes() == []


def test_updating_with_differences_is_waited_for_even_without_wait(run_module, eks):
    existing(eks, status="UPDATING")
    eks.states["demo"] = ["UPDATING", "UPDATING", "ACTIVE"]
    result = run_module("eks_cluster", **NEW, version="1.36", wait=False)
    assert result["changed"]
    assert any("UPDATING" in warning for warning in result["warnings"])
    assert eks.counts()["update_cluster_version"] == 1


def test_deleting_is_waited_for_then_made_again(run_module, eks):
    existing(eks, status="DELETING")
    eks.states["demo"] = ["DELETING", "DELETING", "GONE", "CREATING", "ACTIVE"]
    result = run_module("eks_cluster", **NEW)
    assert result["changed"]
    assert result["cluster"]["status"] == "ACTIVE"


def failed(eks, **more):
    issue = {"code": "IamRoleNotFound", "message": "no role", "resourceIds": []}
    return existing(
        eks, **{"status": "FAILED", "health": {"issues": [issue]}, "tags": OURS, **more}
    )


def test_failed_is_deleted_and_made_again_where_that_is_asked_for(run_module, eks):
    # AWS deletes a FAILED cluster in spite of its protection.
    failed(eks, deletionProtection=True)
    planned = run_module("eks_cluster", check=True, **NEW, recreate_failed=True)
    assert eks.writes() == []
    result = run_module("eks_cluster", **NEW, recreate_failed=True)
    assert [name for name, _params in eks.writes()] == ["delete_cluster", "create_cluster"]
    for one in (planned, result):
        assert one["changed"]
        assert "IamRoleNotFound: no role" in one["warnings"][0]
        assert one["diff"][0]["before"]["status"] == "FAILED"


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    ("tags", "options", "kind", "told"),
    [
        (OURS, NEW, "Conflict", ["FAILED", "no role", "recreate_failed: true"]),
        ({}, {**NEW, "recreate_failed": True}, "Conflict", ["not ours", "gpushare.eks/cluster"]),
        (
            {"gpushare.eks/cluster": "other"},
            {**NEW, "recreate_failed": True},
            "Conflict",
            ["'other'"],
        ),
        (OURS, {"name": "demo", "recreate_failed": True, "version": "1.36"}, "InvalidInput", []),
        (
            OURS,
            {**NEW, "recreate_failed": True, "endpoint_public_access": True},
            "InvalidInput",
            ["public_access_cidrs"],
        ),
    ],
    ids=["not asked for", "no tag", "another's tag", "no role", "open to all"],
)
def test_failed_is_left_alone(run_module, eks, tags, options, kind, told, check):
    failed(eks, tags=tags)
    result = run_module("eks_cluster", check=check, **options)
    assert eks.writes() == []
    assert result["failed"]
    assert result["error"]["type"] == kind
    assert result["error"]["remedy"]
    for text in told:
        assert text in result["msg"]


def test_waiting_by_name_alone_tells_that_creation_failed(run_module, eks):
    failed(eks, status="CREATING")
    eks.states["demo"] = ["CREATING", "CREATING", "FAILED"]
    result = run_module("eks_cluster", name="demo")
    assert result["error"]["type"] == "Conflict"
    assert result["error"]["status"] == "FAILED"
    assert eks.writes() == []


@pytest.mark.parametrize("status", ["CREATING", "ACTIVE", "UPDATING", "DELETING", "FAILED"])
def test_by_name_alone_check_mode_only_looks(run_module, eks, clock, status):
    existing(eks, status=status)
    result = run_module("eks_cluster", check=True, name="demo")
    assert not result["changed"]
    assert result["cluster"]["exists"]
    assert result["cluster"]["status"] == status
    assert eks.counts() == {"describe_cluster": 1}
    assert clock.pauses == []


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("status", ["FAILED", "DELETING"])
def test_a_deletion_goes_on_from_any_point(run_module, eks, status, check):
    failed(eks, status=status, deletionProtection=True)
    if status == "DELETING":
        eks.states["demo"] = ["DELETING", "DELETING", "GONE"]
    result = run_module("eks_cluster", check=check, name="demo", state="absent")
    assert not result.get("failed")
    assert not result["cluster"]["exists"]
    deleted = status == "FAILED" and not check
    assert [name for name, _params in eks.writes()] == ["delete_cluster"] * deleted
    assert check or "demo" not in eks.objects["cluster"]


def test_deleting_and_bad_input_is_refused_before_the_wait(run_module, eks, clock):
    existing(eks, status="DELETING")
    result = run_module("eks_cluster", name="demo")
    assert result["error"]["field"] == "role_arn"
    assert clock.pauses == []


@pytest.mark.parametrize("options", [{"check": True}, {"wait": False}], ids=["check", "no wait"])
def test_the_version_is_the_one_that_it_will_have(run_module, eks, options):
    existing(eks)
    result = run_module("eks_cluster", **NEW, version="1.36", **options)
    assert result["changed"]
    assert result["cluster"]["version"] == "1.36"
    assert result["cluster"]["endpoint"] == "https://127.0.0.1:6443"


def test_a_placeholder_guesses_no_partition(run_module, eks):
    looked = run_module("eks_cluster", check=True, name="demo")["cluster"]
    assert looked["arn"] == "arn:absent:eks:none:000000000000:cluster/demo"
    role = ROLE.replace("arn:aws:", "arn:aws-cn:")
    planned = run_module("eks_cluster", check=True, **{**NEW, "role_arn": role})["cluster"]
    assert planned["arn"].startswith("arn:aws-cn:eks:")


def test_time_out_tells_the_last_state(run_module, eks, clock):
    eks.new_states = ["CREATING"]
    result = run_module("eks_cluster", **NEW, wait_timeout=120)
    assert result["failed"]
    assert result["error"]["type"] == "WaitTimeout"
    assert result["error"]["last_state"] == "CREATING"
    assert clock.now == pytest.approx(120)


def test_race_on_creation_adopts_the_others(run_module, eks):
    from tests.unit.eks_fake import refusal

    original = eks._create

    def raced(kind, params):
        eks._create = original
        original(kind, params)
        raise refusal("ResourceInUseException", "Cluster already exists with name: demo")

    eks._create = raced
    result = run_module("eks_cluster", **NEW)
    assert not result.get("failed")
    assert result["cluster"]["status"] == "ACTIVE"


def test_tags(run_module, eks):
    raw = existing(eks, tags={"old": "1", "keep": "2", "aws:x": "3"})
    result = run_module("eks_cluster", **NEW, tags={"keep": "2", "new": "3"})
    assert result["changed"]
    assert raw["tags"] == {"keep": "2", "new": "3", "aws:x": "3"}
    assert eks.params("tag_resource")[0]["tags"] == {"new": "3"}
    assert not run_module("eks_cluster", **NEW, tags={"keep": "2"}, purge_tags=False)["changed"]


@pytest.mark.parametrize("check", [True, False])
def test_an_api_server_that_is_not_reached_is_told_before_anything_is_asked_of_it(
    run_module, eks, monkeypatch, check
):
    tried = []

    def reach(facts, timeout):
        tried.append((facts["endpoint"], timeout))
        raise Unreachable("not reached", remedy="run inside the VPC")

    monkeypatch.setattr(_eks_run, "reach", reach)
    existing(eks)
    assert "error" not in run_module("eks_cluster", name="demo", check=check)
    assert tried == []
    result = run_module("eks_cluster", name="demo", reach_timeout=7, check=check)
    assert result["error"]["type"] == "Unreachable"
    assert tried == [("https://127.0.0.1:6443", 7)]


def test_only_an_active_cluster_is_reached_for(run_module, eks, monkeypatch):
    monkeypatch.setattr(_eks_run, "reach", lambda *_: pytest.fail("reached for"))
    options = {"name": "demo", "reach_timeout": 7, "check": True}
    assert not run_module("eks_cluster", **options)["cluster"]["exists"]
    existing(eks, status="CREATING")
    assert run_module("eks_cluster", **options)["cluster"]["status"] == "CREATING"
