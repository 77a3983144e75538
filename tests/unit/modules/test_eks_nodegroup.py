"""eks_nodegroup: a list side by side, exact calls, clamped sizes, group tags, refusals."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tests.unit.eks_fake import refusal

ROLE = "arn:aws:iam::123456789012:role/nodes"
OURS = {"gpushare.eks/cluster": "demo"}
PREFIX = "k8s.io/cluster-autoscaler/node-template/"
GROUP = {
    "name": "shared",
    "node_role_arn": ROLE,
    "subnet_ids": ["subnet-b", "subnet-a"],
    "launch_template": {"id": "lt-1", "version": "3"},
    "instance_types": ["g4dn.xlarge"],
    "capacity_type": "spot",
    "scaling": {"min_size": 0, "max_size": 4},
    "labels": {"gpushare.eks/pool": "shared"},
    "taints": [{"key": "gpushare.eks/shared", "value": "shared", "effect": "NoSchedule"}],
}


def existing(eks, name="shared", **more):
    return eks.add(
        "nodegroup",
        name,
        **{
            "nodeRole": ROLE,
            "subnets": ["subnet-a", "subnet-b"],
            "launchTemplate": {"id": "lt-1", "name": "t", "version": "3"},
            "instanceTypes": ["g4dn.xlarge"],
            "capacityType": "SPOT",
            "amiType": "CUSTOM",
            "scalingConfig": {"minSize": 0, "maxSize": 4, "desiredSize": 3},
            "labels": {"gpushare.eks/pool": "shared"},
            "taints": [{"key": "gpushare.eks/shared", "value": "shared", "effect": "NO_SCHEDULE"}],
            "tags": dict(OURS),
            "resources": {"autoScalingGroups": [{"name": f"asg-{name}"}]},
            **more,
        },
    )


def call(run_module, *groups, **options):
    return run_module("eks_nodegroup", cluster_name="demo", nodegroups=list(groups), **options)


def test_create_maps_to_the_api(run_module, eks):
    result = call(run_module, GROUP)
    assert result["changed"]
    (request,) = eks.params("create_nodegroup")
    assert request["scalingConfig"] == {"minSize": 0, "maxSize": 4, "desiredSize": 0}
    assert request["capacityType"] == "SPOT"
    assert request["taints"][0]["effect"] == "NO_SCHEDULE"
    assert request["tags"] == OURS
    assert "amiType" not in request
    (group,) = result["nodegroups"]
    assert group["status"] == "ACTIVE"
    assert group["asg_names"] == ["asg-shared"]
    assert group["taints"] == GROUP["taints"]


def test_desired_size_counts_at_creation(run_module, eks):
    call(run_module, {**GROUP, "scaling": {"min_size": 0, "max_size": 4, "desired_size": 2}})
    assert eks.params("create_nodegroup")[0]["scalingConfig"]["desiredSize"] == 2


def test_unchanged_is_one_describe_each(run_module, eks):
    existing(eks)
    existing(eks, "other")
    group = {**GROUP, "scaling": {"min_size": 0, "max_size": 4, "desired_size": 1}}
    result = call(run_module, group, {**group, "name": "other"})
    assert not result["changed"]
    assert eks.counts() == {"describe_nodegroup": 2}
    assert [found["name"] for found in result["nodegroups"]] == ["shared", "other"]


@pytest.mark.parametrize(
    ("low", "high", "desired"), [(0, 2, 2), (4, 5, 4), (1, 10, 3)], ids=["down", "up", "inside"]
)
def test_new_bounds_clamp_the_autoscalers_size(run_module, eks, low, high, desired):
    existing(eks)
    result = call(run_module, {**GROUP, "scaling": {"min_size": low, "max_size": high}})
    (request,) = eks.params("update_nodegroup_config")
    assert request["scalingConfig"] == {
        "minSize": low,
        "maxSize": high,
        "desiredSize": desired,
    }
    assert result["diff"][0]["after"]["scaling"]["desired_size"] == desired


def test_labels_and_taints_are_differences(run_module, eks):
    existing(eks, labels={"old": "1", "kept": "2", "moved": "3"})
    call(
        run_module,
        {
            **GROUP,
            "labels": {"kept": "2", "moved": "4", "new": "5"},
            "taints": [{"key": "other", "effect": "NoExecute"}],
        },
    )
    (request,) = eks.params("update_nodegroup_config")
    assert request["labels"] == {
        "addOrUpdateLabels": {"moved": "4", "new": "5"},
        "removeLabels": ["old"],
    }
    assert request["taints"] == {
        "addOrUpdateTaints": [{"key": "other", "effect": "NO_EXECUTE"}],
        "removeTaints": [
            {"key": "gpushare.eks/shared", "value": "shared", "effect": "NO_SCHEDULE"}
        ],
    }


def test_a_taints_new_value_is_not_a_removal(run_module, eks):
    existing(eks)
    taint = {**GROUP["taints"][0], "value": "new"}
    call(run_module, {**GROUP, "taints": [taint]})
    (request,) = eks.params("update_nodegroup_config")
    assert "removeTaints" not in request["taints"]


def test_template_version_rolls_after_the_config(run_module, eks):
    existing(eks)
    group = {**GROUP, "launch_template": {"id": "lt-1", "version": "4"}, "node_repair": True}
    call(run_module, {**group, "update_config": {"max_unavailable": 2}})
    names = [name for name, _params in eks.writes()]
    assert names == ["update_nodegroup_config", "update_nodegroup_version"]
    assert eks.params("update_nodegroup_version")[0]["launchTemplate"] == {
        "id": "lt-1",
        "version": "4",
    }
    assert eks.counts()["describe_update"] == 2
    assert eks.params("describe_update")[0]["nodegroupName"] == "shared"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("node_role_arn", ROLE + "2"),
        ("subnet_ids", ["subnet-c"]),
        ("instance_types", ["g5.xlarge"]),
        ("capacity_type", "on_demand"),
        ("ami_type", "AL2023_x86_64_NVIDIA"),
        ("launch_template", {"id": "lt-2", "version": "3"}),
        ("launch_template", {"name": "other", "version": "3"}),
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_immutable_is_refused_with_both_values(run_module, eks, field, value, check):
    existing(eks)
    result = call(run_module, {**GROUP, field: value}, check=check)
    assert result["failed"]
    assert result["error"]["type"] == "InvalidInput"
    assert result["error"]["field"] == field
    assert result["error"]["before"] != result["error"]["wanted"]
    assert "another name" in result["error"]["remedy"]
    assert eks.writes() == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"scaling": {"min_size": 3, "max_size": 2}}, "min_size"),
        ({"scaling": {"min_size": 0, "max_size": 0}}, "max_size >= 1"),
        ({"scaling": {"min_size": 0, "max_size": 2, "desired_size": 3}}, "desired_size"),
        ({"launch_template": {"id": "lt-1", "version": "$Latest"}}, "$Latest"),
    ],
)
def test_bad_values_are_refused_before_the_first_call(run_module, eks, change, told):
    result = call(run_module, {**GROUP, **change})
    assert result["error"]["type"] == "InvalidInput"
    assert told in result["msg"]
    assert eks.calls == []


def test_all_bad_values_are_told_at_once(run_module, eks):
    bad = {**GROUP, "scaling": {"min_size": 3, "max_size": 2}}
    result = call(run_module, bad, {**bad, "name": "two"})
    assert len(result["error"]["problems"]) == 2
    assert call(run_module, GROUP, GROUP)["error"]["field"] == "nodegroups"
    assert eks.calls == []


def test_a_new_group_needs_its_role(run_module, eks):
    result = call(run_module, {"name": "x"}, check=True)
    assert result["error"]["field"] == "node_role_arn"


def test_check_mode_without_cluster_has_the_same_shape(run_module, eks):
    planned = call(run_module, {**GROUP, "asg_tags": {"a": "b"}}, check=True)
    assert planned["changed"]
    assert eks.counts() == {"describe_nodegroup": 1}
    made = call(run_module, {**GROUP, "asg_tags": {"a": "b"}})
    assert set(planned["nodegroups"][0]) == set(made["nodegroups"][0])
    assert planned["nodegroups"][0]["asg_names"] == []
    assert not planned["nodegroups"][0]["exists"]


def test_creates_overlap(run_module, eks, clock):
    groups = [{**GROUP, "name": f"g{number}"} for number in range(6)]
    call(run_module, *groups)
    names = [name for name, _params in eks.calls]
    assert names.count("create_nodegroup") == 6


def test_create_failed_is_made_again_and_said(run_module, eks):
    issue = {"code": "NodeCreationFailure", "message": "no join", "resourceIds": ["i-1"]}
    existing(eks, status="CREATE_FAILED", health={"issues": [issue]}, tags=OURS)
    planned = call(run_module, GROUP, check=True)
    result = call(run_module, GROUP)
    for one in (planned, result):
        assert one["diff"][0]["before"]["status"] == "CREATE_FAILED"
        assert "NodeCreationFailure: no join (i-1)" in one["warnings"][0]
    assert [name for name, _p in eks.writes()] == ["delete_nodegroup", "create_nodegroup"]


@pytest.mark.parametrize("tags", [{}, {"gpushare.eks/cluster": "other"}])
def test_create_failed_of_others_is_left_alone(run_module, eks, tags):
    existing(eks, status="CREATE_FAILED", tags=tags)
    result = call(run_module, GROUP)
    assert result["error"]["type"] == "Conflict"
    assert "gpushare.eks/cluster" in result["msg"]
    assert eks.writes() == []


def test_create_failed_is_kept_where_the_new_one_could_not_be_made(run_module, eks):
    existing(eks, status="CREATE_FAILED", tags=OURS)
    result = call(run_module, {"name": "shared", "labels": {"a": "b"}})
    assert result["error"]["type"] == "InvalidInput"
    assert eks.writes() == []


def test_creation_that_fails_tells_eks_reason(run_module, eks):
    eks.new_states = ["CREATING", "CREATE_FAILED"]
    result = call(run_module, GROUP)
    assert result["failed"]
    assert "CREATE_FAILED" in result["msg"]


def test_degraded_is_a_warning_when_adopted(run_module, eks):
    issue = {"code": "AsgInstanceLaunchFailures", "message": "no spot"}
    existing(eks, status="DEGRADED", health={"issues": [issue]})
    result = call(run_module, GROUP)
    assert not result["changed"]
    assert "no spot" in result["warnings"][0]


def test_partial_failure_names_all_and_keeps_the_rest(run_module, eks):
    existing(eks, "bad", instanceTypes=["p5.48xlarge"])
    groups = [{**GROUP, "name": name} for name in ("bad", "good")]
    result = call(run_module, *groups)
    assert result["failed"]
    assert result["changed"]
    assert result["error"]["type"] == "PartialFailure"
    assert [item["object"] for item in result["error"]["items"]] == ["bad"]
    assert result["error"]["items"][0]["error"]["field"] == "instance_types"
    assert [group["name"] for group in result["nodegroups"]] == ["good"]
    assert eks.objects["nodegroup"]["good"]["status"] == "ACTIVE"


def test_purge_takes_only_ours(run_module, eks):
    existing(eks)
    existing(eks, "old")
    existing(eks, "foreign", tags={})
    existing(eks, "others", tags={"gpushare.eks/cluster": "another"})
    planned = call(run_module, GROUP, purge=True, check=True)
    assert planned["removed"] == ["old"]
    assert eks.writes() == []
    result = call(run_module, GROUP, purge=True)
    assert result["removed"] == ["old"]
    assert eks.params("delete_nodegroup") == [{"clusterName": "demo", "nodegroupName": "old"}]
    assert not call(run_module, GROUP, purge=True)["changed"]


def test_purge_of_everything_and_absent_cluster(run_module, eks):
    existing(eks)
    assert call(run_module, purge=True)["removed"] == ["shared"]
    eks.errors["list_nodegroups"] = [refusal("ResourceNotFoundException", "No cluster found")]
    assert not call(run_module, purge=True)["changed"]


def test_absent(run_module, eks):
    existing(eks)
    result = call(run_module, {"name": "shared"}, {"name": "missing"}, state="absent")
    assert result["changed"]
    assert result["removed"] == ["shared"]
    assert eks.objects["nodegroup"] == {}
    assert not call(run_module, {"name": "shared"}, state="absent")["changed"]


def test_missing_cluster_is_named(run_module, eks):
    eks.errors["create_nodegroup"] = [
        refusal("ResourceNotFoundException", "No cluster found for name: demo.")
    ]
    result = call(run_module, GROUP)
    assert result["error"]["type"] == "NotFound"
    assert "No cluster found for name: demo" in result["msg"]


class TestGroupTags:
    TAGS: ClassVar = {f"{PREFIX}resources/gpushare.eks/gpu-memory": "14336Mi", "team": "vision"}

    def test_only_differences_are_written(self, run_module, eks, autoscaling):
        existing(eks)
        autoscaling.tags["asg-shared"] = {"eks:x": "y", "team": "old", f"{PREFIX}gone": "1"}
        result = call(run_module, {**GROUP, "asg_tags": self.TAGS})
        assert result["changed"]
        assert autoscaling.tags["asg-shared"] == {"eks:x": "y", **self.TAGS}
        (written,) = autoscaling.params("create_or_update_tags")
        assert all(tag["PropagateAtLaunch"] is False for tag in written["Tags"])
        assert len(autoscaling.params("delete_tags")) == 1
        (diff,) = result["diff"]
        assert diff["before"]["asg_tags"] == {"team": "old", f"{PREFIX}gone": "1"}
        assert diff["after"]["asg_tags"] == self.TAGS
        assert eks.writes() == []

    def test_second_run_writes_nothing(self, run_module, eks, autoscaling):
        call(run_module, {**GROUP, "asg_tags": self.TAGS})
        autoscaling.calls.clear()
        again = call(run_module, {**GROUP, "asg_tags": self.TAGS})
        assert not again["changed"]
        assert autoscaling.counts() == {"describe_tags": 1}

    def test_check_mode_only_reads(self, run_module, eks, autoscaling):
        existing(eks)
        result = call(run_module, {**GROUP, "asg_tags": self.TAGS}, check=True)
        assert result["changed"]
        assert autoscaling.writes() == []

    def test_without_the_option_nothing_is_read(self, run_module, eks, autoscaling):
        existing(eks)
        call(run_module, GROUP)
        assert autoscaling.calls == []

    def test_failure_keeps_the_node_groups(self, run_module, eks, autoscaling):
        autoscaling.errors["create_or_update_tags"] = [refusal("AccessDenied", "no")]
        result = call(run_module, {**GROUP, "asg_tags": self.TAGS})
        assert result["failed"]
        assert result["error"]["type"] == "AccessDenied"
        assert result["nodegroups"][0]["exists"]
