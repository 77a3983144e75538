"""eks_addon: versions asked of AWS, configuration as JSON, DEGRADED only with a reason."""

from __future__ import annotations

import json

import pytest

OURS = {"gpushare.eks/cluster": "demo"}


@pytest.fixture
def cluster(eks):
    eks.add("cluster", "demo", version="1.36")
    return eks


def existing(eks, name="coredns", **more):
    return eks.add("addon", name, **{"addonVersion": "v2", "tags": dict(OURS), **more})


def call(run_module, *addons, **options):
    return run_module("eks_addon", cluster_name="demo", addons=list(addons), **options)


def test_create_takes_the_default_version(run_module, cluster):
    result = call(run_module, {"name": "coredns", "configuration": {"replicaCount": 2}})
    (request,) = cluster.params("create_addon")
    assert request["addonVersion"] == "v2"
    assert json.loads(request["configurationValues"]) == {"replicaCount": 2}
    assert request["resolveConflicts"] == "OVERWRITE"
    assert request["tags"] == OURS
    assert result["addons"][0]["status"] == "ACTIVE"
    assert result["addons"][0]["version"] == "v2"


def test_unchanged_counts_of_calls(run_module, cluster):
    existing(cluster, configurationValues='{"b": [1], "a": {"c": true}}')
    existing(cluster, "vpc-cni", addonVersion="v9")
    wanted = {"name": "coredns", "configuration": {"a": {"c": True}, "b": [1]}}
    result = call(run_module, wanted, {"name": "vpc-cni", "version": "v9"})
    assert not result["changed"]
    # The explicit version that is there already needs no question.
    assert cluster.counts() == {
        "describe_cluster": 1,
        "describe_addon": 2,
        "describe_addon_versions": 1,
    }


def test_omitted_version_keeps_what_fits_and_leaves_what_does_not(run_module, cluster):
    existing(cluster, addonVersion="v1")
    assert not call(run_module, {"name": "coredns"})["changed"]
    cluster.objects["addon"]["coredns"]["addonVersion"] = "v0"
    result = call(run_module, {"name": "coredns"})
    assert result["changed"]
    assert cluster.params("update_addon")[0]["addonVersion"] == "v2"


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("there", [True, False])
def test_version_that_does_not_fit_is_refused_with_those_that_do(run_module, cluster, check, there):
    if there:
        existing(cluster)
    result = call(run_module, {"name": "coredns", "version": "v7"}, check=check)
    assert result["error"]["type"] == "InvalidInput"
    assert result["error"]["allowed"] == ["v2", "v1"]
    assert "v2, v1" in result["msg"]
    assert cluster.writes() == []


def test_unknown_addon_is_refused(run_module, cluster):
    result = call(run_module, {"name": "nonsense"})
    assert "no add-on 'nonsense' for Kubernetes 1.36" in result["msg"]


def test_update_sends_everything_so_that_nothing_falls_back(run_module, cluster):
    existing(cluster, configurationValues='{"a": 1}', serviceAccountRoleArn="arn:role")
    result = call(run_module, {"name": "coredns", "version": "v1"})
    assert result["changed"]
    (request,) = cluster.params("update_addon")
    assert request["addonVersion"] == "v1"
    assert request["configurationValues"] == '{"a":1}'
    assert request["serviceAccountRoleArn"] == "arn:role"


def test_empty_configuration_clears_it(run_module, cluster):
    existing(cluster, configurationValues='{"a": 1}')
    call(run_module, {"name": "coredns", "configuration": {}})
    assert cluster.params("update_addon")[0]["configurationValues"] == "{}"


def test_yaml_written_by_hand_is_replaced(run_module, cluster):
    existing(cluster, configurationValues="a: 1")
    assert call(run_module, {"name": "coredns", "configuration": {"a": 1}})["changed"]


def test_update_failed_is_tried_again(run_module, cluster):
    raw = existing(cluster, status="UPDATE_FAILED")
    cluster.states["coredns"] = ["UPDATE_FAILED", "ACTIVE"]
    assert call(run_module, {"name": "coredns", "version": "v2"})["changed"]
    assert cluster.counts()["update_addon"] == 1
    assert raw["status"] == "ACTIVE"


def test_create_failed_is_made_again(run_module, cluster):
    existing(cluster, status="CREATE_FAILED", tags=OURS)
    result = call(run_module, {"name": "coredns"})
    assert [name for name, _p in cluster.writes()] == ["delete_addon", "create_addon"]
    assert "CREATE_FAILED" in result["warnings"][0]


def test_create_failed_is_kept_where_it_is_not_ours_or_no_version_fits(run_module, cluster):
    raw = existing(cluster, status="CREATE_FAILED", tags={})
    assert call(run_module, {"name": "coredns"})["error"]["type"] == "Conflict"
    raw["tags"] = OURS
    wanted = {"name": "coredns", "version": "v7"}
    assert call(run_module, wanted)["error"]["type"] == "InvalidInput"
    assert cluster.writes() == []


def test_degraded_is_waited_for(run_module, cluster, clock):
    existing(cluster)
    cluster.states["coredns"] = ["DEGRADED", "DEGRADED", "ACTIVE"]
    result = call(run_module, {"name": "coredns"})
    assert not result["changed"]
    assert result["addons"][0]["status"] == "ACTIVE"
    assert result["warnings"] == []


def test_degraded_for_ever_is_an_error_with_the_reason(run_module, cluster):
    issue = {"code": "InsufficientNumberOfReplicas", "message": "no untainted node"}
    existing(cluster, status="DEGRADED", health={"issues": [issue]})
    result = call(run_module, {"name": "coredns"}, wait_timeout=60)
    assert result["error"]["type"] == "WaitTimeout"
    assert "no untainted node" in result["error"]["last_state"]


def test_degraded_is_accepted_with_a_reason_and_said(run_module, cluster, clock):
    existing(cluster, status="DEGRADED")
    result = call(run_module, {"name": "coredns", "accept_degraded": "scaled to zero"})
    assert not result.get("failed")
    assert "accepted: scaled to zero" in result["warnings"][0]
    assert clock.pauses == []


def test_check_mode_without_cluster(run_module, eks):
    planned = call(run_module, {"name": "coredns", "configuration": {"a": 1}}, check=True)
    assert planned["changed"]
    assert not planned["addons"][0]["exists"]
    assert planned["addons"][0]["configuration"] == {"a": 1}
    assert eks.writes() == []
    eks.add("cluster", "demo", version="1.36")
    made = call(run_module, {"name": "coredns", "configuration": {"a": 1}})
    assert set(planned["addons"][0]) == set(made["addons"][0])


def test_real_run_without_cluster_names_it(run_module, eks):
    result = call(run_module, {"name": "coredns"})
    assert result["error"]["type"] == "NotFound"
    assert "EKS cluster demo" in result["msg"]


def test_adopting_adds_our_tag_and_keeps_others(run_module, cluster):
    raw = existing(cluster, tags={"theirs": "1"})
    assert call(run_module, {"name": "coredns"})["changed"]
    assert raw["tags"] == {"theirs": "1", **OURS}
    assert "update_addon" not in cluster.counts()
    assert call(run_module, {"name": "coredns", "tags": {"b": "2"}})["changed"]
    assert raw["tags"] == {"b": "2", **OURS}


def test_purge_and_absent(run_module, cluster):
    existing(cluster)
    existing(cluster, "vpc-cni", addonVersion="v9")
    existing(cluster, "foreign", tags={})
    assert call(run_module, {"name": "coredns"}, purge=True)["removed"] == ["vpc-cni"]
    assert call(run_module, {"name": "coredns"}, state="absent")["removed"] == ["coredns"]
    assert list(cluster.objects["addon"]) == ["foreign"]


SCHEMA = {
    "$ref": "#/definitions/Coredns",
    "definitions": {
        "Coredns": {
            "additionalProperties": False,
            "properties": {"replicaCount": {"type": "integer"}, "env": {"type": "object"}},
            "type": "object",
        }
    },
}


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("there", [True, False])
def test_configuration_that_does_not_fit_is_refused_by_its_fields(
    run_module, cluster, check, there
):
    cluster.schemas["coredns"] = SCHEMA
    if there:
        existing(cluster)
    wanted = {"name": "coredns", "configuration": {"replicaCount": "2", "replicas": 3}}
    error = call(run_module, wanted, check=check)["error"]
    assert error["type"] == "InvalidInput"
    assert error["fields"] == ["configuration.replicaCount", "configuration.replicas"]
    assert "configuration.replicaCount is string '2', wanted: integer" in error["message"]
    assert "--addon-name coredns --addon-version v2" in error["remedy"]
    assert cluster.writes() == []


def test_configuration_is_held_against_the_schema_only_where_it_is_written(run_module, cluster):
    cluster.schemas["coredns"] = SCHEMA
    existing(cluster, configurationValues='{"replicaCount": 2}')
    wanted = {"name": "coredns", "configuration": {"replicaCount": 2}}
    assert not call(run_module, wanted)["changed"]
    assert "describe_addon_configuration" not in cluster.counts()
    assert call(run_module, {**wanted, "version": "v1"})["changed"]
    assert cluster.params("describe_addon_configuration") == [
        {"addonName": "coredns", "addonVersion": "v1"}
    ]
