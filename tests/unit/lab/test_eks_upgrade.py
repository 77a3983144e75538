"""UpdateClusterVersion and the insights before it, through real boto3 clients."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError


def refused(code, call, **arguments):
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    assert caught.value.response["Error"]["Code"] == code
    return caught.value.response["Error"]["Message"]


def upgrade(lab, version, **more):
    update = lab.eks.update_cluster_version(name="demo", version=version, **more)
    return lab.update(update)


def states(lab, **wanted):
    rows = lab.eks.list_insights(clusterName="demo", filter=wanted)["insights"]
    return {row["name"]: (row["kubernetesVersion"], row["insightStatus"]["status"]) for row in rows}


def test_one_minor_version_after_the_other(lab):
    assert lab.cluster(version="1.34")["version"] == "1.34"
    call = lab.eks.update_cluster_version
    for wrong in ("1.36", "1.34", "1.33"):
        assert wrong in refused("InvalidParameterException", call, name="demo", version=wrong)
    for version in ("1.35", "1.36"):
        done = upgrade(lab, version)
        assert (done["status"], done["type"]) == ("Successful", "VersionUpdate")
        assert {"type": "Version", "value": version} in done["params"]
        assert lab.eks.describe_cluster(name="demo")["cluster"]["version"] == version
        assert lab.plane().version == version
    back = refused("InvalidParameterException", call, name="demo", version="1.35")
    assert back == "Unsupported Kubernetes minor version update from 1.36 to 1.35"
    assert states(lab) == {}


def test_a_second_update_waits_for_the_first(lab):
    lab.cluster(version="1.34")
    lab.registry.latencies["UpdateCluster"] = 1.0
    first = lab.eks.update_cluster_version(name="demo", version="1.35")
    call = lab.eks.update_cluster_version
    refused("ResourceInUseException", call, name="demo", version="1.35")
    assert lab.update(first)["status"] == "Successful"


def test_an_upgrade_that_fails_leaves_the_version(lab):
    lab.cluster(version="1.35")
    lab.plane().fail = True
    done = upgrade(lab, "1.36")
    assert done["status"] == "Failed"
    assert "did not come back" in done["errors"][0]["errorMessage"]
    cluster = lab.eks.describe_cluster(name="demo")["cluster"]
    assert (cluster["status"], cluster["version"]) == ("ACTIVE", "1.35")


def test_an_addon_that_does_not_fit_stands_against_it_until_forced(lab):
    lab.cluster(version="1.34")
    lab.eks.create_addon(clusterName="demo", addonName="kube-proxy")
    lab.eks.create_addon(clusterName="demo", addonName="coredns")
    assert {state for _version, state in states(lab).values()} == {"PASSING"}
    lab.registry.get("demo").addons["coredns"]["addonVersion"] = "v1.9.3-eksbuild.1"
    assert states(lab, statuses=["ERROR"]) == {
        "EKS add-on version compatibility": ("1.35", "ERROR")
    }
    assert states(lab, categories=["MISCONFIGURATION"]) == {}
    assert states(lab, kubernetesVersions=["1.36"]) == {}
    [row] = lab.eks.list_insights(clusterName="demo", filter={"statuses": ["ERROR"]})["insights"]
    insight = lab.eks.describe_insight(clusterName="demo", id=row["id"])["insight"]
    [detail] = insight["categorySpecificSummary"]["addonCompatibilityDetails"]
    assert detail["name"] == "coredns"
    assert "v1.12.4-eksbuild.1" in detail["compatibleVersions"]
    assert insight["recommendation"]
    call = lab.eks.update_cluster_version
    told = refused("InvalidStateException", call, name="demo", version="1.35")
    assert "EKS add-on version compatibility" in told
    assert upgrade(lab, "1.35", force=True)["status"] == "Successful"


def test_nodes_that_would_not_keep_up_stand_against_it_even_when_forced(lab):
    subnets = lab.network()
    lab.cluster(version="1.34", subnets=subnets)
    lab.nodegroup("old", lab.role("node"), subnets)
    assert states(lab)["Kubelet version skew"] == ("1.35", "PASSING")
    lab.registry.get("demo").nodegroups["old"]["version"] = "1.31"
    assert states(lab)["Kubelet version skew"] == ("1.35", "ERROR")
    call = lab.eks.update_cluster_version
    told = refused("InvalidParameterException", call, name="demo", version="1.35", force=True)
    assert "Nodegroups old must be updated" in told


def test_an_unknown_insight_or_cluster_is_not_found(lab):
    lab.cluster(version="1.35")
    refused("ResourceNotFoundException", lab.eks.describe_insight, clusterName="demo", id="x")
    refused("ResourceNotFoundException", lab.eks.list_insights, clusterName="other")
