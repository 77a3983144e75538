"""eks_sweep against moto behind our patches: what is left goes, what is not ours stays."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.amazon.aws.plugins.module_utils.modules import AnsibleAWSModule

from ansible_collections.gpushare.eks.plugins.modules import eks_sweep

OWNED = {"kubernetes.io/cluster/demo": "owned"}
TRUST = json.dumps({"Version": "2012-10-17", "Statement": []})


def tags(given):
    return [{"Key": key, "Value": value} for key, value in given.items()]


def specification(kind, given):
    return [{"ResourceType": kind, "Tags": tags(given)}]


@pytest.fixture
def sweep(client, monkeypatch, capsys):
    """sweep(check=False, **options) -> the module's result."""

    def go(*, check=False, **options):
        monkeypatch.setattr(AnsibleAWSModule, "client", lambda _self, name, **_: client(name))
        arguments = {"cluster_name": "demo", "region": "us-east-1", "wait_timeout": 10, **options}
        with (
            patch_module_args({**arguments, "_ansible_check_mode": check}),
            pytest.raises(SystemExit),
        ):
            eks_sweep.main()
        return json.loads(capsys.readouterr().out)

    return go


class Network:
    """A VPC of a test's own, with what a cluster leaves in it."""

    def __init__(self, client, block, **vpc_tags):
        self.client, self.ec2 = client, client("ec2")
        self.vpc = self.ec2.create_vpc(
            CidrBlock=f"{block}.0.0/16", TagSpecifications=specification("vpc", vpc_tags)
        )["Vpc"]["VpcId"]
        self.subnet = self.ec2.create_subnet(VpcId=self.vpc, CidrBlock=f"{block}.0.0/24")
        self.subnet = self.subnet["Subnet"]["SubnetId"]

    def group(self, name, given):
        return self.ec2.create_security_group(
            VpcId=self.vpc,
            GroupName=name,
            Description=name,
            TagSpecifications=specification("security-group", given) if given else [],
        )["GroupId"]

    def let_in(self, group, other):
        rule = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": other}]}
        self.ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[rule])

    def classic(self, name, groups, given):
        self.client("elb").create_load_balancer(
            LoadBalancerName=name,
            Listeners=[{"Protocol": "TCP", "LoadBalancerPort": 80, "InstancePort": 80}],
            Subnets=[self.subnet],
            SecurityGroups=groups,
            Tags=tags(given),
        )

    def network(self, name, given):
        elbv2 = self.client("elbv2")
        made = elbv2.create_load_balancer(
            Name=name, Type="network", Subnets=[self.subnet], Tags=tags(given)
        )["LoadBalancers"][0]["LoadBalancerArn"]
        target = elbv2.create_target_group(
            Name=name, Protocol="TCP", Port=80, VpcId=self.vpc, Tags=tags(given)
        )["TargetGroups"][0]["TargetGroupArn"]
        forward = [{"Type": "forward", "TargetGroupArn": target}]
        elbv2.create_listener(LoadBalancerArn=made, Protocol="TCP", Port=80, DefaultActions=forward)

    def volume(self, given):
        return self.ec2.create_volume(
            AvailabilityZone="us-east-1a", Size=1, TagSpecifications=specification("volume", given)
        )["VolumeId"]

    def interface(self, groups, given):
        return self.ec2.create_network_interface(
            SubnetId=self.subnet,
            Groups=groups,
            TagSpecifications=specification("network-interface", given) if given else [],
        )["NetworkInterface"]["NetworkInterfaceId"]

    def groups(self):
        found = self.ec2.describe_security_groups(
            Filters=[{"Name": "vpc-id", "Values": [self.vpc]}]
        )
        return {one["GroupName"] for one in found["SecurityGroups"]} - {"default"}


def kinds(rows):
    return sorted(row["kind"] for row in rows)


def test_everything_that_a_cluster_left_goes_although_the_cluster_is_gone(client, sweep):
    there = Network(client, "10.1", **{"gpushare.eks/cluster": "demo"})
    nodes = there.group("eks-cluster-sg-demo-1", OWNED)
    mine = there.group("k8s-elb-web", OWNED)
    there.let_in(nodes, mine)
    there.let_in(mine, nodes)
    there.classic("web", [mine], OWNED)
    there.network("fast", {"elbv2.k8s.aws/cluster": "demo"})
    there.interface([nodes], {"cluster.k8s.amazonaws.com/name": "demo"})
    there.ec2.create_launch_template(
        LaunchTemplateName="eks-1",
        LaunchTemplateData={"InstanceType": "m6i.large", "ImageId": "ami-12c6146b"},
        TagSpecifications=specification("launch-template", {"eks:cluster-name": "demo"}),
    )
    client("autoscaling").create_auto_scaling_group(
        AutoScalingGroupName="eks-shared-1",
        MinSize=1,
        MaxSize=1,
        VPCZoneIdentifier=there.subnet,
        LaunchTemplate={"LaunchTemplateName": "eks-1", "Version": "1"},
        Tags=[{"Key": "eks:cluster-name", "Value": "demo", "PropagateAtLaunch": True}],
    )
    data = there.volume({**OWNED, "kubernetes.io/created-for/pvc/name": "data",
                         "kubernetes.io/created-for/pvc/namespace": "team"})  # fmt: skip
    # Others': another cluster's, a shared one, nobody's.
    there.group("other", {"kubernetes.io/cluster/other": "owned"})
    there.group("shared", {"kubernetes.io/cluster/demo": "shared"})
    there.classic("theirs", [there.group("plain", {})], {"kubernetes.io/cluster/other": "owned"})

    planned = sweep(check=True)
    assert planned["changed"]
    assert planned["vpc_id"] == there.vpc
    assert [one["id"] for one in planned["kept"]] == [data]
    assert planned["kept"][0]["name"] == "claim team/data"
    assert len(there.groups()) == 5

    done = sweep()
    assert (
        kinds(done["deleted"])
        == kinds(planned["deleted"])
        == [
            "Auto Scaling group",
            "classic load balancer",
            "instance",
            "launch template",
            "load balancer",
            "network interface",
            "security group",
            "security group",
            "target group",
        ]
    )
    assert there.groups() == {"other", "shared", "plain"}
    left = client("elb").describe_load_balancers()["LoadBalancerDescriptions"]
    assert [one["LoadBalancerName"] for one in left] == ["theirs"]
    assert len(done["diff"]) == len(done["deleted"])

    again = sweep()
    assert (again["changed"], again["deleted"]) == (False, [])
    with_data = sweep(volumes=True)
    assert [(one["kind"], one["id"]) for one in with_data["deleted"]] == [("volume", data)]


def test_a_group_that_others_hold_is_kept_and_its_holders_are_named(client, sweep):
    there = Network(client, "10.2")
    held, ruled, free = (there.group(name, OWNED) for name in ("held", "ruled", "free"))
    foreign = there.group("foreign", {})
    there.let_in(foreign, ruled)
    eni = there.interface([held], {})
    done = sweep(vpc_id=there.vpc)
    assert [one["id"] for one in done["deleted"]] == [free]
    assert {one["id"]: one["reason"] for one in done["kept"]} == {
        held: f"held by network interface {eni}",
        ruled: f"held by a rule of security group {foreign}",
    }


def test_objects_of_the_same_tag_in_another_vpc_are_nobodys(client, sweep):
    mine, theirs = Network(client, "10.3"), Network(client, "10.4")
    theirs.group("k8s-elb-x", OWNED)
    assert sweep(subnet_ids=[mine.subnet])["changed"] is False
    assert sweep(vpc_id=mine.vpc)["vpc_id"] == mine.vpc
    assert theirs.groups() == {"k8s-elb-x"}


def test_a_living_cluster_is_refused_but_can_be_looked_at(client, sweep):
    there = Network(client, "10.5")
    second = there.ec2.create_subnet(VpcId=there.vpc, CidrBlock="10.5.1.0/24")["Subnet"]["SubnetId"]
    role = client("iam").create_role(RoleName="r", AssumeRolePolicyDocument=TRUST)["Role"]["Arn"]
    client("eks").create_cluster(
        name="alive", roleArn=role, resourcesVpcConfig={"subnetIds": [there.subnet, second]}
    )
    there.group("k8s-elb-y", {"kubernetes.io/cluster/alive": "owned"})
    refused = sweep(cluster_name="alive", vpc_id=there.vpc)
    assert refused["failed"]
    assert "alive is ACTIVE" in refused["msg"]
    planned = sweep(cluster_name="alive", vpc_id=there.vpc, check=True)
    assert [one["name"] for one in planned["deleted"]] == ["k8s-elb-y"]


def test_it_ends_when_the_interfaces_of_load_balancers_that_are_gone_have_ended(client, sweep):
    there = Network(client, "10.7")
    there.network("passing", {"kubernetes.io/service-name": "team/web"})
    there.network("theirs", {"team": "other"})

    def described():
        found = there.ec2.describe_network_interfaces(
            Filters=[{"Name": "vpc-id", "Values": [there.vpc]}]
        )
        return sorted(one["Description"].split("/")[1] for one in found["NetworkInterfaces"])

    (arn,) = [
        one["LoadBalancerArn"]
        for one in client("elbv2").describe_load_balancers()["LoadBalancers"]
        if one["LoadBalancerName"] == "passing"
    ]
    client("elbv2").delete_load_balancer(LoadBalancerArn=arn)
    assert described() == ["passing", "theirs"]
    assert sweep(vpc_id=there.vpc)["changed"] is False
    assert described() == ["theirs"]


def test_what_does_not_go_in_time_is_an_error_that_tells_the_last_state(client, sweep):
    there = Network(client, "10.6")
    group = there.group("slow", OWNED)
    there.classic("slow", [group], {"kubernetes.io/cluster/other": "owned"})
    late = sweep(vpc_id=there.vpc, wait_timeout=1)
    assert late["failed"]
    assert f"security group {group}" in late["msg"]
    assert "dependent object" in late["msg"]
