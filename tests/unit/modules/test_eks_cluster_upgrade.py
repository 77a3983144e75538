"""eks_cluster: one minor version at a time, insights and the nodes' versions read first."""

from __future__ import annotations

import pytest

ROLE = "arn:aws:iam::123456789012:role/demo"
READS = {"describe_cluster", "list_nodegroups", "describe_nodegroup", "list_insights"}


@pytest.fixture
def cluster(eks):
    eks.add("cluster", "demo", version="1.35", roleArn=ROLE)
    eks.add("nodegroup", "new", version="1.35")
    eks.add("nodegroup", "old", version="1.33")
    eks.insight("Deprecated APIs", "PASSING")
    eks.insight("Kubelet version skew", "PASSING", version="")
    return eks


def upgrade(run_module, version="1.36", **options):
    return run_module("eks_cluster", name="demo", version=version, **options)


def test_insights_and_nodes_are_read_before_the_one_write(run_module, cluster):
    result = upgrade(run_module)
    assert result["changed"]
    assert result["warnings"] == []
    assert [name for name, _params in cluster.writes()] == ["update_cluster_version"]
    assert cluster.params("update_cluster_version") == [{"name": "demo", "version": "1.36"}]
    before = [name for name, _params in cluster.calls]
    before = before[: before.index("update_cluster_version")]
    assert set(before) == READS
    assert cluster.params("list_insights")[0]["filter"] == {"categories": ["UPGRADE_READINESS"]}


def test_nothing_is_read_where_the_version_stays(run_module, cluster):
    assert not upgrade(run_module, "1.35", ignore_insights=True)["changed"]
    assert cluster.counts() == {"describe_cluster": 1}


@pytest.mark.parametrize("check", [True, False])
def test_an_error_is_refused_by_its_name_with_what_eks_recommends(run_module, cluster, check):
    cluster.insight("Add-on versions", "ERROR", recommendation="Update coredns first.")
    cluster.insight("APIs removed later", "ERROR", version="1.37")
    result = upgrade(run_module, check=check)
    assert result["error"]["type"] == "Conflict"
    assert result["error"]["field"] == "ignore_insights"
    assert [row["name"] for row in result["error"]["insights"]] == ["Add-on versions"]
    for told in ("Add-on versions says so", "Update coredns first.", "ignore_insights: true"):
        assert told in result["msg"]
    assert "removed later" not in result["msg"]
    assert cluster.writes() == []


def test_ignored_errors_are_warnings_and_force_the_update(run_module, cluster):
    cluster.insight("Add-on versions", "ERROR")
    result = upgrade(run_module, ignore_insights=True)
    assert result["changed"]
    assert "Add-on versions says so" in result["warnings"][0]
    assert cluster.params("update_cluster_version")[0]["force"] is True


@pytest.mark.parametrize("status", ["WARNING", "UNKNOWN"])
def test_other_states_are_warnings_without_force(run_module, cluster, status):
    cluster.insight("Cluster health", status)
    result = upgrade(run_module)
    assert f"Cluster health is {status}: Cluster health says so" in result["warnings"][0]
    assert "force" not in cluster.params("update_cluster_version")[0]


@pytest.mark.parametrize("check", [True, False])
def test_node_groups_that_would_not_keep_up_are_refused(run_module, cluster, check):
    cluster.objects["nodegroup"]["old"]["version"] = "1.32"
    result = upgrade(run_module, check=check, ignore_insights=True)
    assert result["error"]["type"] == "Conflict"
    assert result["error"]["nodegroups"] == {"old": "1.32"}
    for told in ("old (1.32)", "1.33", "at most 3 minor versions", "eks_nodegroup"):
        assert told in result["msg"]
    assert cluster.writes() == []


def test_a_node_group_that_goes_away_meanwhile_does_not_count(run_module, cluster):
    cluster.objects["nodegroup"]["old"]["version"] = "1.30"
    cluster.states["old"] = ["GONE"]
    assert upgrade(run_module)["changed"]


@pytest.mark.parametrize(
    ("version", "told"),
    [("1.37", "set version to 1.36 first"), ("1.34", "never goes back")],
)
@pytest.mark.parametrize("check", [True, False])
def test_a_skip_and_a_downgrade_are_refused_before_any_look(
    run_module, cluster, version, told, check
):
    result = upgrade(run_module, version, check=check, ignore_insights=True)
    assert result["error"]["allowed"] == ["1.35", "1.36"]
    assert told in result["msg"]
    assert "possible are 1.35 (as it is) and 1.36" in result["msg"]
    assert cluster.counts() == {"describe_cluster": 1}


def test_check_mode_looks_and_shows_the_same_diff(run_module, cluster):
    planned = upgrade(run_module, check=True)
    assert set(cluster.counts()) == READS
    assert planned["cluster"]["version"] == "1.36"
    done = upgrade(run_module)
    assert planned["diff"] == done["diff"]
    assert done["diff"][0]["before"]["version"] == "1.35"


def test_an_upgrade_under_way_is_waited_for_before_the_next_is_judged(run_module, cluster):
    raw = cluster.objects["cluster"]["demo"]
    raw.update(status="UPDATING", version="1.34")
    cluster.states["demo"] = ["UPDATING", "UPDATING", "ACTIVE"]
    original = cluster.answer

    def answer(name, params):
        found = original(name, params)
        if raw["status"] == "ACTIVE":
            raw["version"] = "1.35"
        return found

    cluster.answer = answer
    result = upgrade(run_module, wait=False)
    assert result["changed"]
    assert cluster.params("update_cluster_version") == [{"name": "demo", "version": "1.36"}]


def test_a_right_that_is_missing_is_named(run_module, cluster):
    from tests.unit.eks_fake import refusal

    text = "User: arn:aws:iam::123456789012:user/x is not authorized to perform: eks:ListInsights"
    cluster.errors["list_insights"] = [refusal("AccessDeniedException", text, "ListInsights")]
    result = upgrade(run_module)
    assert result["error"]["type"] == "AccessDenied"
    assert result["error"]["action"] == "eks:ListInsights"
    assert cluster.writes() == []
