"""The IAM policies of the roles: filled, cut, exact, and told in the READMEs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import _policies
from ansible_collections.gpushare.eks.plugins.module_utils._policies import PolicyError, policies

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted(ROOT.glob("roles/*/files/policy.json"))
ROLES = [path.parts[-3] for path in FILES]
MORE = {"CsiRolePrefix": "demo-csi-", "FlowLogGroup": "/aws/vpc/demo"}
FACTS = {"name": "n", "cluster_name": "demo", "region": "eu-west-1", "role_name": "demo-role"}
FACTS["more"] = MORE
# Everybody may, whatever a policy says; amazon.aws takes a denial of the second.
FREE = {"sts:GetCallerIdentity", "iam:ListAccountAliases"}


def load(role):
    return json.loads((ROOT / f"roles/{role}/files/policy.json").read_text())


def actions(document):
    return {action for row in document["Statement"] for action in row["Action"]}


def document(*statements):
    return {"Version": "2012-10-17", "Statement": list(statements)}


def row(sid="S", resource="*", **more):
    return {"Sid": sid, "Effect": "Allow", "Action": ["eks:X"], "Resource": resource, **more}


def filled(given, **facts):
    return policies(given, **{**FACTS, **facts})


@pytest.mark.parametrize(
    ("region", "partition"),
    [
        ("us-east-1", "aws"),
        ("cn-north-1", "aws-cn"),
        ("us-gov-west-1", "aws-us-gov"),
        ("ap-southeast-2", "aws"),
    ],
)
def test_the_region_tells_the_partition(region, partition):
    given = document(row(resource="arn:${Partition}:eks:${Region}:${Account}:x/${ClusterName}"))
    (one,) = filled(given, region=region)
    expected = f"arn:{partition}:eks:{region}:*:x/demo"
    assert one == {"name": "n", "document": document(row(resource=expected))}


def test_a_path_gives_a_role_two_forms_and_no_path_one():
    both = ["arn:aws:iam::1:role${RolePath}${RoleName}", "arn:aws:iam::1:role/${RoleName}"]
    given = document(row(resource=both))
    (one,) = filled(given, role_path="/teams/ml/")
    assert one["document"]["Statement"][0]["Resource"] == [
        "arn:aws:iam::1:role/teams/ml/demo-role",
        "arn:aws:iam::1:role/demo-role",
    ]
    (one,) = filled(given)
    assert one["document"]["Statement"][0]["Resource"] == "arn:aws:iam::1:role/demo-role"


def test_a_condition_on_a_boundary_is_there_where_a_boundary_is():
    condition = {
        "StringEquals": {"iam:PermissionsBoundary": "${Boundary}"},
        "StringLike": {"aws:ResourceTag/of/${ClusterName}": ["${ClusterName}", "x"]},
    }
    like = {"StringLike": {"aws:ResourceTag/of/demo": ["demo", "x"]}}
    (one,) = filled(document(row(Condition=condition)))
    assert one["document"]["Statement"][0]["Condition"] == like
    (one,) = filled(document(row(Condition=condition)), boundary="arn:b")
    equals = {"StringEquals": {"iam:PermissionsBoundary": "arn:b"}}
    assert one["document"]["Statement"][0]["Condition"] == {**equals, **like}
    (one,) = filled(document(row(Condition={"StringEquals": condition["StringEquals"]})))
    assert "Condition" not in one["document"]["Statement"][0]


def test_what_is_too_large_is_cut_between_statements():
    rows = [row(f"S{n}", "x" * 2500) for n in range(5)]
    parts = filled(document(*rows))
    assert [part["name"] for part in parts] == ["n-1", "n-2", "n-3"]
    assert [one for part in parts for one in part["document"]["Statement"]] == rows
    with pytest.raises(PolicyError, match="S0 alone"):
        filled(document(row("S0", "x" * 7000)))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"region": "nowhere"}, "region"),
        ({"account_id": "12"}, "account_id"),
        ({"account_id": 12345678901}, "account_id"),
        ({"role_path": "teams"}, "role_path"),
        ({"role_name": ""}, "RoleName"),
    ],
)
def test_facts_that_fill_nothing_are_refused(facts, said):
    with pytest.raises(PolicyError, match=said):
        filled(document(row(resource="arn:aws:iam::1:role/${RoleName}")), **facts)


def test_a_place_that_nothing_fills_is_refused():
    with pytest.raises(PolicyError, match="Nobody"):
        filled(document(row(resource="${Nobody}")))


def test_every_role_that_calls_aws_has_a_policy():
    assert ROLES == ["ami_bake", "device_plugin", "eks", "fleet", "gpu_nodes", "kms", "network"]
    assert "None" in (ROOT / "roles/sample_app/README.md").read_text().split("## IAM actions")[1]


@pytest.mark.parametrize("role", ROLES)
def test_a_policy_fits_iam_with_the_longest_names(role):
    longest = {
        "cluster_name": "c" * 100,
        "region": "ap-southeast-2",
        "account_id": "123456789012",
        "role_name": "r" * 64,
        "role_path": f"/{'p' * 60}/",
        "boundary": f"arn:aws:iam::123456789012:policy/{'b' * 128}",
    }
    for one in filled(load(role), **longest):
        statements = one["document"]["Statement"]
        assert _policies.size(statements) <= 6144
        assert "${" not in json.dumps(statements)


@pytest.mark.parametrize("role", ROLES)
def test_a_policy_names_every_action_and_its_own_statements(role):
    rows = load(role)["Statement"]
    assert len({one["Sid"] for one in rows}) == len(rows)
    for one in rows:
        assert set(one) <= {"Sid", "Effect", "Action", "Resource", "Condition"}
        assert one["Effect"] == "Allow"
        assert one["Action"] == sorted(set(one["Action"]))
        assert not any("*" in action or "?" in action for action in one["Action"])


@pytest.mark.parametrize("role", ROLES)
def test_what_writes_is_bound_to_the_cluster(role):
    """Reads may look around in the region; the rest names the cluster, its tag or its role."""
    signs = ("${ClusterName}", "${RoleName}", "${FlowLogGroup}")
    for one in load(role)["Statement"]:
        writes = [a for a in one["Action"] if not re.match(r"\w+:(Describe|Get|List)", a)]
        bound = any(sign in json.dumps(one) for sign in signs)
        assert bound or not writes or one["Sid"] in UNBOUND, (one["Sid"], writes)


# Why these cannot name the cluster.
UNBOUND = {
    "PrivateDns": "the zone is Amazon's own",
    "MakeTemplates": "amazon.aws tags a launch template after it made it",
    "LaunchFromOurTemplates": "bound to launch templates, which WorkOnOurTemplates binds to ours",
    "LaunchOfTheseImages": "images are Amazon's; subnets may be those of a VPC that is there",
    "ServiceLinkedRoles": "one for the account, bound to its services",
    "DeleteOurImages": "an image serves every cluster of its version; bound to our own tag",
    "RunTheProbe": "one document serves all clusters of a region",
    "TheDocuments": "one document serves all clusters of a region",
}


def told(role):
    """The actions of the README's section; a name without a prefix has the last one's."""
    section = (ROOT / f"roles/{role}/README.md").read_text().split("## IAM actions")[1]
    found, prefix = set(), ""
    for word in re.findall(r"`([^`\s]+)`", section.split("\n## ")[0]):
        match = re.fullmatch(r"(?:([a-z0-9]+):)?([A-Z][A-Za-z]+[a-z][A-Za-z]*)", word)
        if match and (match[1] or prefix):
            prefix = match[1] or prefix
            found.add(f"{prefix}:{match[2]}")
    return found


@pytest.mark.parametrize("role", ROLES)
def test_the_readme_tells_the_actions_of_the_policy(role):
    assert told(role) - FREE == actions(load(role))
