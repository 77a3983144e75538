"""eks_access_entry: entries and their policies, exact calls, all that is refused."""

from __future__ import annotations

import pytest

ROLE = "arn:aws:iam::123456789012:role/admins"
OURS = {"gpushare.eks/cluster": "demo"}
ADMIN = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
EDIT = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSEditPolicy"


def existing(eks, *policies, **more):
    eks.policies[ROLE] = [
        {"policyArn": arn, "accessScope": {"type": "cluster", "namespaces": []}} for arn in policies
    ]
    return eks.add("access_entry", ROLE, **{"type": "STANDARD", "tags": dict(OURS), **more})


def call(run_module, *entries, **options):
    return run_module("eks_access_entry", cluster_name="demo", entries=list(entries), **options)


def entry(*policies, **more):
    return {"principal_arn": ROLE, "policies": [{"policy": p} for p in policies], **more}


def test_create_then_associate(run_module, eks):
    result = call(run_module, entry("AmazonEKSClusterAdminPolicy"))
    assert result["changed"]
    assert [name for name, _p in eks.writes()] == ["create_access_entry", "associate_access_policy"]
    assert result["entries"][0]["policies"] == [
        {"policy": ADMIN, "scope": "cluster", "namespaces": []}
    ]
    again = call(run_module, entry("AmazonEKSClusterAdminPolicy"))
    assert not again["changed"]


def test_unchanged_is_two_reads(run_module, eks):
    existing(eks, ADMIN)
    assert not call(run_module, entry("AmazonEKSClusterAdminPolicy"))["changed"]
    assert eks.counts() == {"describe_access_entry": 1, "list_associated_access_policies": 1}


def test_killed_between_entry_and_policy_heals(run_module, eks):
    existing(eks)
    assert call(run_module, entry(ADMIN))["changed"]
    assert [name for name, _p in eks.writes()] == ["associate_access_policy"]


def test_associates_before_it_disassociates(run_module, eks):
    existing(eks, ADMIN)
    call(run_module, entry("AmazonEKSEditPolicy"))
    assert [(name, p["policyArn"]) for name, p in eks.writes()] == [
        ("associate_access_policy", EDIT),
        ("disassociate_access_policy", ADMIN),
    ]


def test_scope_change_is_one_association(run_module, eks):
    existing(eks, EDIT)
    policy = {"policy": "AmazonEKSEditPolicy", "scope": "namespace", "namespaces": ["b", "a"]}
    result = call(run_module, {"principal_arn": ROLE, "policies": [policy]})
    assert result["changed"]
    assert [name for name, _p in eks.writes()] == ["associate_access_policy"]
    assert eks.writes()[0][1]["accessScope"] == {"type": "namespace", "namespaces": ["a", "b"]}


def test_groups_and_username(run_module, eks):
    existing(eks, kubernetesGroups=["old"], username="auto")
    result = call(run_module, {"principal_arn": ROLE, "kubernetes_groups": ["b", "a"]})
    assert result["changed"]
    (request,) = eks.params("update_access_entry")
    assert request["kubernetesGroups"] == ["a", "b"]
    assert "username" not in request


def test_policies_that_are_not_given_stay(run_module, eks):
    existing(eks, ADMIN)
    assert not call(run_module, {"principal_arn": ROLE})["changed"]
    assert call(run_module, entry())["changed"]
    assert eks.policies[ROLE] == []


def test_partition_is_the_principals(run_module, eks):
    principal = "arn:aws-cn:iam::123456789012:role/path/admins"
    call(run_module, {**entry("AmazonEKSViewPolicy"), "principal_arn": principal})
    (request,) = eks.params("associate_access_policy")
    assert request["policyArn"].startswith("arn:aws-cn:eks::aws:")


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"principal_arn": "arn:aws:sts::123456789012:assumed-role/a/b"}, "principal_arn"),
        ({"principal_arn": "admins"}, "principal_arn"),
        ({"policies": [{"policy": "x", "scope": "namespace"}]}, "policies.namespaces"),
        ({"policies": [{"policy": "x", "namespaces": ["a"]}]}, "policies.namespaces"),
        ({"type": "EC2_LINUX", "kubernetes_groups": ["a"]}, "kubernetes_groups"),
        ({"type": "EC2_LINUX", "username": "a"}, "username"),
    ],
)
def test_refused_before_the_first_call(run_module, eks, bad, field):
    result = call(run_module, {"principal_arn": ROLE, **bad})
    assert result["error"]["type"] == "InvalidInput"
    assert result["error"]["field"] == field
    assert eks.calls == []


def test_type_is_immutable(run_module, eks):
    existing(eks)
    result = call(run_module, {"principal_arn": ROLE, "type": "EC2_LINUX"})
    assert result["error"]["field"] == "type"
    assert eks.writes() == []


def test_check_mode_shape_and_absent(run_module, eks):
    planned = call(run_module, entry(ADMIN), check=True)
    assert eks.writes() == []
    made = call(run_module, entry(ADMIN))
    assert set(planned["entries"][0]) == set(made["entries"][0])
    gone = call(run_module, {"principal_arn": ROLE}, state="absent")
    assert gone["removed"] == [ROLE]
    assert not call(run_module, {"principal_arn": ROLE}, state="absent")["changed"]


def test_purge(run_module, eks):
    existing(eks)
    eks.add("access_entry", "arn:aws:iam::123456789012:role/nodes", type="EC2_LINUX")
    result = call(run_module, purge=True)
    assert result["removed"] == [ROLE]
    assert len(eks.objects["access_entry"]) == 1
