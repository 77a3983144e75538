"""IAM in front of the lab's AWS: who is bound by what, and how each service says no."""

from __future__ import annotations

import contextlib
import json
import time

import pytest
from botocore.exceptions import ClientError
from eks_helpers import fresh

from ansible_collections.gpushare.eks.plugins.module_utils import _errors

VPC = {"CidrBlock": "10.9.0.0/16"}
NAMES = ("bounded", "other")


@pytest.fixture
def lab(daemon):
    daemon.lab("calls", method="DELETE")
    yield fresh(daemon)
    for name in NAMES:
        with contextlib.suppress(ClientError):
            for key in daemon.iam.list_access_keys(UserName=name)["AccessKeyMetadata"]:
                daemon.iam.delete_access_key(UserName=name, AccessKeyId=key["AccessKeyId"])
            for policy in daemon.iam.list_user_policies(UserName=name)["PolicyNames"]:
                daemon.iam.delete_user_policy(UserName=name, PolicyName=policy)
            daemon.iam.delete_user(UserName=name)


def document(*actions, resource="*", effect="Allow", **more):
    row = {"Effect": effect, "Action": list(actions), "Resource": resource, **more}
    return json.dumps({"Version": "2012-10-17", "Statement": [row]})


def user(lab, *documents, name="bounded"):
    """Keys of a user with these policies, for lab.client."""
    lab.iam.create_user(UserName=name)
    for number, text in enumerate(documents):
        lab.iam.put_user_policy(UserName=name, PolicyName=f"p{number}", PolicyDocument=text)
    key = lab.iam.create_access_key(UserName=name)["AccessKey"]
    return keys(key)


def keys(given):
    made = {
        "aws_access_key_id": given["AccessKeyId"],
        "aws_secret_access_key": given["SecretAccessKey"],
    }
    return made | ({"aws_session_token": given["SessionToken"]} if "SessionToken" in given else {})


def denied(call, **arguments):
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    return caught.value


@pytest.mark.parametrize(
    ("service", "call", "arguments", "code", "said"),
    [
        (
            "ec2",
            "create_vpc",
            VPC,
            ("UnauthorizedOperation", 403),
            "You are not authorized to perform this operation. User: {me} is not authorized to"
            " perform: ec2:CreateVpc on resource: arn:aws:ec2:us-east-1:123456789012:vpc/* because"
            " no identity-based policy allows the ec2:CreateVpc action",
        ),
        (
            "ec2",
            "describe_vpcs",
            {},
            ("UnauthorizedOperation", 403),
            "You are not authorized to perform this operation. User: {me} is not authorized to"
            " perform: ec2:DescribeVpcs because no identity-based policy allows the"
            " ec2:DescribeVpcs action",
        ),
        (
            "eks",
            "describe_cluster",
            {"name": "demo"},
            ("AccessDeniedException", 403),
            "User: {me} is not authorized to perform: eks:DescribeCluster on resource:"
            " arn:aws:eks:us-east-1:123456789012:cluster/demo because no identity-based policy"
            " allows the eks:DescribeCluster action",
        ),
        (
            "iam",
            "get_role",
            {"RoleName": "r"},
            ("AccessDenied", 403),
            "User: {me} is not authorized to perform: iam:GetRole on resource: role r because no"
            " identity-based policy allows the iam:GetRole action",
        ),
        (
            "kms",
            "list_keys",
            {},
            ("AccessDeniedException", 400),
            "User: {me} is not authorized to perform: kms:ListKeys because no identity-based policy"
            " allows the kms:ListKeys action",
        ),
    ],
)
def test_each_service_says_no_in_its_own_words(lab, service, call, arguments, code, said):
    client = lab.client(service, **user(lab))
    error = denied(getattr(client, call), **arguments).response
    me = "arn:aws:iam::123456789012:user/bounded"
    answer = (error["Error"]["Code"], error["ResponseMetadata"]["HTTPStatusCode"])
    assert (answer, error["Error"]["Message"]) == (code, said.format(me=me))
    assert lab.lab("calls")["calls"][-1]["error"] == code[0]


def test_a_denied_call_does_nothing(lab):
    denied(lab.client("ec2", **user(lab)).create_vpc, **VPC)
    blocks = [vpc["CidrBlock"] for vpc in lab.ec2.describe_vpcs()["Vpcs"]]
    assert VPC["CidrBlock"] not in blocks


def test_our_modules_name_action_resource_and_caller(lab):
    client = lab.client("ec2", **user(lab))
    error = _errors.translate(denied(client.create_vpc, **VPC), "the VPC")
    assert isinstance(error, _errors.AccessDenied)
    facts = error.as_dict()
    assert (facts["action"], facts["principal"]) == (
        "ec2:CreateVpc",
        "arn:aws:iam::123456789012:user/bounded",
    )
    assert facts["resource"] == "arn:aws:ec2:us-east-1:123456789012:vpc/*"
    iam = _errors.translate(
        denied(lab.client("iam", **user(lab, name="other")).get_role, RoleName="r"), "the role"
    )
    assert iam.as_dict()["resource"] == "role r"


def test_the_runner_and_the_labs_own_services_are_not_bound(lab):
    assert lab.cluster()["status"] == "ACTIVE"
    assert all("needs" not in row for row in lab.lab("calls?internal=1")["calls"])


def test_a_policy_by_the_tags_in_the_request_and_on_the_resource(lab):
    ours = {"StringEquals": {"aws:RequestTag/gpushare.eks/cluster": "demo"}}
    there = {"StringEquals": {"aws:ResourceTag/gpushare.eks/cluster": "demo"}}
    making = {"StringEquals": {"ec2:CreateAction": "CreateVpc"}}
    made = user(
        lab,
        document("ec2:CreateVpc", Condition=ours),
        document("ec2:CreateTags", Condition=making),
        document("ec2:DeleteVpc", Condition=there),
    )
    ec2 = lab.client("ec2", **made)
    tags = {"Tags": [{"Key": "gpushare.eks/cluster", "Value": "demo"}], "ResourceType": "vpc"}
    denied(ec2.create_vpc, **VPC)
    vpc = ec2.create_vpc(**VPC, TagSpecifications=[tags])["Vpc"]["VpcId"]
    foreign = lab.ec2.create_vpc(**VPC)["Vpc"]["VpcId"]
    denied(ec2.delete_vpc, VpcId=foreign)
    denied(ec2.create_tags, Resources=[foreign], Tags=tags["Tags"])
    ec2.delete_vpc(VpcId=vpc)
    needs = [row["needs"] for row in lab.lab("calls?operation=DeleteVpc")["calls"]]
    assert [need["action"] for need in needs[-1]] == ["ec2:DeleteVpc"]
    assert needs[-1][0]["context"]["aws:ResourceTag/gpushare.eks/cluster"] == "demo"


def test_a_session_of_a_role_has_the_roles_policies_within_boundary_and_session_policy(lab):
    me = user(lab, document("sts:AssumeRole"))
    arn = "arn:aws:iam::123456789012:user/bounded"
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": arn}}
    boundary = lab.iam.create_policy(
        PolicyName="bound", PolicyDocument=document("ec2:DescribeVpcs", "ec2:DescribeSubnets")
    )["Policy"]["Arn"]
    role = lab.iam.create_role(
        RoleName="worker",
        Path="/teams/ml/",
        AssumeRolePolicyDocument=json.dumps({"Statement": [trust]}),
        PermissionsBoundary=boundary,
    )["Role"]["Arn"]
    lab.iam.put_role_policy(RoleName="worker", PolicyName="p", PolicyDocument=document("ec2:*"))
    sts = lab.client("sts", **me)
    given = sts.assume_role(RoleArn=role, RoleSessionName="run")["Credentials"]
    ec2 = lab.client("ec2", **keys(given))
    ec2.describe_vpcs()
    ec2.describe_subnets()
    error = denied(ec2.create_vpc, **VPC).response["Error"]["Message"]
    assert "User: arn:aws:sts::123456789012:assumed-role/worker/run is not" in error
    assert "because no permissions boundary allows the ec2:CreateVpc action" in error
    less = document("ec2:DescribeVpcs")
    given = sts.assume_role(RoleArn=role, RoleSessionName="run", Policy=less)["Credentials"]
    ec2 = lab.client("ec2", **keys(given))
    ec2.describe_vpcs()
    assert "no session policy" in str(denied(ec2.describe_subnets))
    lab.iam.delete_policy(PolicyArn=boundary)


@pytest.mark.parametrize(
    ("principal", "policies", "expected"),
    [
        ("arn:aws:iam::123456789012:user/bounded", [], True),
        ("arn:aws:iam::123456789012:root", [], False),
        ("arn:aws:iam::123456789012:root", ["sts:AssumeRole"], True),
        ("arn:aws:iam::123456789012:user/other", ["sts:AssumeRole"], False),
    ],
)
def test_a_role_is_assumed_by_whom_it_trusts(lab, principal, policies, expected):
    sts = lab.client("sts", **user(lab, *[document(one) for one in policies]))
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": principal}}
    text = json.dumps({"Statement": [trust]})
    arn = lab.iam.create_role(RoleName="worker", AssumeRolePolicyDocument=text)["Role"]["Arn"]
    if expected:
        sts.assume_role(RoleArn=arn, RoleSessionName="run")
    else:
        assert "sts:AssumeRole" in str(denied(sts.assume_role, RoleArn=arn, RoleSessionName="run"))


def test_everybody_may_ask_who_they_are(lab):
    arn = lab.client("sts", **user(lab)).get_caller_identity()["Arn"]
    assert arn == "arn:aws:iam::123456789012:user/bounded"


def test_a_call_that_the_lab_cannot_judge_is_its_own_fault_and_does_not_pass(lab):
    sqs = lab.client("sqs", **user(lab, document("*:*")))
    error = denied(sqs.create_queue, QueueName="q").response["Error"]
    assert "does not know" in error["Message"]
    assert "QueueUrls" not in lab.client("sqs").list_queues()


def test_a_node_group_is_refused_as_eks_refuses_it(lab):
    cluster, role = lab.cluster(), lab.role("nodes")
    template = lab.ec2.create_launch_template(
        LaunchTemplateName="t", LaunchTemplateData={"InstanceType": "m6i.large"}
    )["LaunchTemplate"]["LaunchTemplateId"]
    rest = document("eks:*", "iam:*", "ec2:Describe*")
    eks = lab.client("eks", **user(lab, rest))
    wanted = {
        "clusterName": "demo",
        "nodegroupName": "n",
        "nodeRole": role,
        "subnets": cluster["resourcesVpcConfig"]["subnetIds"],
        "launchTemplate": {"id": template},
        "scalingConfig": {"minSize": 0, "maxSize": 1, "desiredSize": 0},
    }
    error = denied(eks.create_nodegroup, **wanted)
    said = "You are not authorized to launch instances with this launch template."
    assert error.response["Error"]["Code"] == "InvalidRequestException"
    assert error.response["Error"]["Message"].startswith(said)
    assert lab.eks.list_nodegroups(clusterName="demo")["nodegroups"] == []
    facts = _errors.translate(error, "EKS node group n").as_dict()
    assert (facts["type"], facts["action"]) == ("AccessDenied", "ec2:RunInstances")


def test_what_bounds_nobody_costs_nothing(lab):
    """The runner's calls: reading IAM is the only thing that they pay for."""
    from lab.aws import Context
    from lab.aws.routes import Request
    from lab.iam import enforce

    key = lab.daemon.env["AWS_ACCESS_KEY_ID"]
    request = Request("POST", "/", "", b"", "ec2", "DescribeVpcs", access_key=key)
    rounds = 200
    began = time.process_time()
    for _ in range(rounds):
        assert enforce.decide(request, Context(), None) is None
    assert (time.process_time() - began) / rounds < 0.0003
