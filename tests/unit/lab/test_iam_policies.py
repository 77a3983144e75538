"""The evaluator against AWS's documented logic: what policies say of one action."""

from __future__ import annotations

import pytest

from lab import LabError
from lab.iam.conditions import arn_like, hold
from lab.iam.policies import Grants, Need, parse, verdict

VPC = "arn:aws:ec2:us-east-1:123456789012:vpc/vpc-1"
READ = Need("ec2:DescribeVpcs")
ALL = {"Effect": "Allow", "Action": "*", "Resource": "*"}


def policy(*statements):
    return parse({"Version": "2012-10-17", "Statement": list(statements)})


def allow(action="ec2:CreateVpc", resource="*", **more):
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


def deny(action="ec2:CreateVpc", resource="*", **more):
    return {**allow(action, resource, **more), "Effect": "Deny"}


def may(need, *statements, caller=None, **layers):
    return verdict(need, Grants([policy(*statements)], **layers), caller or {}) is None


@pytest.mark.parametrize(
    ("actions", "action", "expected"),
    [
        ("ec2:CreateVpc", "ec2:CreateVpc", True),
        ("EC2:createvpc", "ec2:CreateVpc", True),
        ("ec2:Create*", "ec2:CreateVpc", True),
        ("ec2:Create?pc", "ec2:CreateVpc", True),
        ("ec2:Create*", "ec2:DeleteVpc", False),
        (["ec2:DeleteVpc", "*:CreateVpc"], "ec2:CreateVpc", True),
        ("ec2:CreateVpc", "ec2:CreateVpcEndpoint", False),
    ],
)
def test_actions_match_without_case_and_with_wildcards(actions, action, expected):
    assert may(Need(action, VPC), allow(actions)) is expected


@pytest.mark.parametrize(
    ("pattern", "arn", "expected"),
    [
        ("*", VPC, True),
        (VPC, VPC, True),
        (VPC.upper(), VPC, False),
        ("arn:aws:ec2:*:*:vpc/*", VPC, True),
        ("arn:aws:ec2:us-east-1:123456789012:vpc/vpc-?", VPC, True),
        ("arn:aws:ec2:us-east-1:123456789012:subnet/*", VPC, False),
        # A * stays in its part of the ARN, but the last part has colons of its own.
        ("arn:aws:*:vpc/*", VPC, False),
        ("arn:aws:logs:*:*:log-group:/a/*", "arn:aws:logs:r:1:log-group:/a/b:*", True),
        ("arn:aws-cn:ec2:*:*:vpc/*", VPC, False),
    ],
)
def test_resources_match_part_by_part(pattern, arn, expected):
    assert arn_like(pattern, arn) is expected
    assert may(Need("ec2:CreateVpc", arn), allow(resource=pattern)) is expected


def test_an_action_without_resources_is_covered_by_a_star_alone():
    assert may(READ, allow("ec2:DescribeVpcs"))
    assert not may(READ, allow("ec2:DescribeVpcs", "arn:aws:ec2:*:*:vpc/*"))


def test_all_but_these():
    but = {"Effect": "Allow", "NotAction": "iam:*", "Resource": "*"}
    assert may(Need("ec2:CreateVpc", VPC), but)
    assert not may(Need("iam:CreateRole", "arn:aws:iam::1:role/x"), but)
    place = {"Effect": "Allow", "Action": "ec2:*", "NotResource": "arn:aws:ec2:*:*:subnet/*"}
    assert may(Need("ec2:CreateVpc", VPC), place)
    assert not may(Need("ec2:CreateVpc", VPC.replace("vpc/", "subnet/")), place)


def test_nothing_is_allowed_that_no_policy_allows():
    need = Need("ec2:CreateVpc", VPC)
    said = verdict(need, Grants([]), {})
    assert said == "because no identity-based policy allows the ec2:CreateVpc action"
    assert verdict(need, Grants([policy(allow("ec2:DeleteVpc"))]), {}) == said


def test_an_explicit_deny_wins_in_any_policy_and_any_order():
    need = Need("ec2:CreateVpc", VPC)
    for policies in ([policy(ALL), policy(deny())], [policy(deny(), ALL)]):
        said = verdict(need, Grants(policies), {})
        assert said == "with an explicit deny in an identity-based policy"
    assert may(need, ALL, deny("ec2:DeleteVpc"))


def test_a_boundary_grants_nothing_and_bounds_everything():
    need = Need("ec2:CreateVpc", VPC)
    assert may(need, ALL, boundary=policy(allow()))
    assert not may(need, boundary=policy(ALL))
    grants = Grants([policy(ALL)], boundary=policy(allow("ec2:DescribeVpcs")))
    said = verdict(need, grants, {})
    assert said == "because no permissions boundary allows the ec2:CreateVpc action"
    grants = Grants([policy(ALL)], boundary=policy(ALL, deny()))
    assert verdict(need, grants, {}) == "with an explicit deny in a permissions boundary"
    assert not may(need, ALL, boundary=())


def test_a_session_policy_bounds_the_session():
    need = Need("ec2:CreateVpc", VPC)
    assert may(need, ALL, session=[policy(allow())])
    grants = Grants([policy(ALL)], session=[policy(allow("ec2:DeleteVpc"))])
    said = verdict(need, grants, {})
    assert said == "because no session policy allows the ec2:CreateVpc action"


def test_an_administrator_without_bounds_is_known_as_one():
    assert Grants([policy(ALL)]).everything
    assert not Grants([policy(ALL, deny())]).everything
    assert not Grants([policy(ALL)], boundary=policy(ALL)).everything
    assert not Grants([policy({**ALL, "Condition": {"Null": {"a": "true"}}})]).everything
    assert not Grants([policy({**ALL, "Action": "ec2:*"})]).everything
    assert not Grants([]).everything


# (operator, what the policy says, what the request has or None, whether it holds)
ONE_VALUE = [
    ("StringEquals", "a", "a", True),
    ("StringEquals", ["a", "b"], "b", True),
    ("StringEquals", "a", "A", False),
    ("StringEquals", "a", None, False),
    ("StringEquals", "a*", "ab", False),
    ("StringEqualsIfExists", "a", None, True),
    ("StringEqualsIfExists", "a", "b", False),
    ("StringEqualsIgnoreCase", "a", "A", True),
    ("StringNotEquals", ["a", "b"], "b", False),
    ("StringNotEquals", ["a", "b"], "c", True),
    ("StringNotEquals", "a", None, True),
    ("StringLike", "a*", "abc", True),
    ("StringLike", "a?", "abc", False),
    ("StringLike", "a*", None, False),
    ("StringNotLike", "a*", "abc", False),
    ("ArnLike", "arn:aws:iam::*:role/x", "arn:aws:iam::1:role/x", True),
    ("ArnEquals", "arn:aws:iam::*:role/x", "arn:aws:iam::1:role/y", False),
    ("ArnNotLike", "arn:aws:iam::*:role/x", "arn:aws:iam::1:role/y", True),
    ("Bool", "true", "true", True),
    ("Bool", True, "true", True),
    ("Bool", "true", None, False),
    ("BoolIfExists", "true", None, True),
    ("Null", "true", None, True),
    ("Null", "true", "x", False),
    ("Null", "false", "x", True),
    ("Null", "false", None, False),
    ("NumericLessThanEquals", "30", "30", True),
    ("NumericLessThan", "30", "30", False),
    ("NumericEquals", "30", "x", False),
]


@pytest.mark.parametrize(("operator", "wanted", "given", "expected"), ONE_VALUE)
def test_conditions_of_one_value(operator, wanted, given, expected):
    context = {} if given is None else {"some:key": given}
    assert hold({operator: {"some:Key": wanted}}, context) is expected


@pytest.mark.parametrize(
    ("operator", "given", "expected"),
    [
        ("ForAllValues:StringEquals", ["a", "b"], True),
        ("ForAllValues:StringEquals", ["a", "c"], False),
        ("ForAllValues:StringEquals", None, True),
        ("ForAnyValue:StringEquals", ["c", "b"], True),
        ("ForAnyValue:StringEquals", ["c"], False),
        ("ForAnyValue:StringEquals", None, False),
        ("ForAnyValue:StringNotEquals", ["a", "c"], True),
        ("ForAllValues:StringNotEquals", ["a", "c"], False),
        ("ForAllValues:StringLike", ["b"], True),
    ],
)
def test_conditions_of_several_values(operator, given, expected):
    context = {} if given is None else {"aws:tagkeys": given}
    assert hold({operator: {"aws:TagKeys": ["a", "b"]}}, context) is expected


def test_all_operators_and_all_keys_must_hold():
    both = {"StringEquals": {"a:a": "1", "a:b": "2"}, "Null": {"a:c": "true"}}
    assert hold(both, {"a:a": "1", "a:b": "2"})
    assert not hold(both, {"a:a": "1"})
    assert not hold(both, {"a:a": "1", "a:b": "2", "a:c": "3"})


def test_policy_variables_are_filled_in_resources_and_values():
    need = Need("iam:GetUser", "arn:aws:iam::1:user/ann")
    own = allow("iam:GetUser", "arn:aws:iam::1:user/${aws:username}")
    assert may(need, own, caller={"aws:username": "ann"})
    assert not may(need, own, caller={"aws:username": "bob"})
    assert not may(need, own)
    tagged = allow(Condition={"StringEquals": {"aws:ResourceTag/team": "${aws:PrincipalTag/team}"}})
    asked = Need("ec2:CreateVpc", VPC, {"aws:ResourceTag/team": "ml"})
    assert may(asked, tagged, caller={"aws:PrincipalTag/team": "ml"})
    assert not may(asked, tagged)


@pytest.mark.parametrize(
    "statement",
    [
        {**ALL, "Principal": "*"},
        {**ALL, "Effect": "allow"},
        {"Effect": "Allow", "Action": "*"},
        {**ALL, "NotAction": "ec2:*"},
    ],
)
def test_what_is_no_identity_based_policy_is_refused(statement):
    with pytest.raises(LabError):
        policy(statement)


def test_what_the_lab_does_not_know_is_no_silent_yes_or_no():
    with pytest.raises(LabError, match="IpAddress"):
        hold({"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}, {})
    with pytest.raises(LabError, match="policy variable"):
        may(READ, allow("ec2:DescribeVpcs", "arn:aws:ec2:*:*:vpc/${*}"))
