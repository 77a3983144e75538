"""What AWS refuses to delete, and what it deletes only after a moment: moto behind our patches."""

from __future__ import annotations

import json
import time

from lab_helpers import REGION, code, refusal

from lab.aws.passing import LINGER_S


def nat_states(ec2, vpc):
    found = ec2.describe_nat_gateways(Filters=[{"Name": "vpc-id", "Values": [vpc]}])
    return [one["State"] for one in found["NatGateways"]]


def network(ec2, block):
    """A VPC with a subnet and an attached internet gateway."""
    vpc = ec2.create_vpc(CidrBlock=f"{block}.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock=f"{block}.0.0/24")["Subnet"]["SubnetId"]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(VpcId=vpc, InternetGatewayId=gateway)
    return vpc, subnet, gateway


def test_a_network_is_taken_down_only_in_order(client):
    ec2 = client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.0.0/24")["Subnet"]["SubnetId"]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(VpcId=vpc, InternetGatewayId=gateway)
    group = ec2.create_security_group(VpcId=vpc, GroupName="g", Description="g")["GroupId"]
    tags = [{"Key": "Name", "Value": "nat"}]
    eip = ec2.allocate_address(
        Domain="vpc", TagSpecifications=[{"ResourceType": "elastic-ip", "Tags": tags}]
    )["AllocationId"]
    nat = ec2.create_nat_gateway(
        SubnetId=subnet,
        AllocationId=eip,
        TagSpecifications=[{"ResourceType": "natgateway", "Tags": tags}],
    )["NatGateway"]["NatGatewayId"]
    eni = ec2.create_network_interface(SubnetId=subnet, Groups=[group])
    eni = eni["NetworkInterface"]["NetworkInterfaceId"]
    detach = {"VpcId": vpc, "InternetGatewayId": gateway}

    assert code(ec2.delete_vpc, VpcId=vpc) == "DependencyViolation"
    assert code(ec2.delete_security_group, GroupId=group) == "DependencyViolation"
    assert code(ec2.delete_subnet, SubnetId=subnet) == "DependencyViolation"
    assert code(ec2.detach_internet_gateway, **detach) == "DependencyViolation"
    assert code(ec2.delete_internet_gateway, InternetGatewayId=gateway) == "DependencyViolation"
    assert code(ec2.release_address, AllocationId=eip) == "InvalidIPAddress.InUse"

    ec2.delete_nat_gateway(NatGatewayId=nat)
    assert nat_states(ec2, vpc) == ["deleting"]
    assert code(ec2.release_address, AllocationId=eip) == "InvalidIPAddress.InUse"
    time.sleep(LINGER_S + 0.1)
    assert nat_states(ec2, vpc) == ["deleted"]
    ec2.release_address(AllocationId=eip)
    assert code(ec2.delete_subnet, SubnetId=subnet) == "DependencyViolation"
    ec2.delete_network_interface(NetworkInterfaceId=eni)
    ec2.delete_subnet(SubnetId=subnet)
    assert code(ec2.delete_vpc, VpcId=vpc) == "DependencyViolation"
    ec2.delete_security_group(GroupId=group)
    assert code(ec2.delete_vpc, VpcId=vpc) == "DependencyViolation"
    ec2.detach_internet_gateway(**detach)
    ec2.delete_internet_gateway(InternetGatewayId=gateway)
    ec2.delete_vpc(VpcId=vpc)


def test_an_instance_holds_its_subnet_and_group_until_it_ends(client):
    ec2 = client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.8.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.8.0.0/24")["Subnet"]["SubnetId"]
    group = ec2.create_security_group(VpcId=vpc, GroupName="i", Description="i")["GroupId"]
    instance = ec2.run_instances(
        ImageId="ami-12c6146b",
        MinCount=1,
        MaxCount=1,
        SubnetId=subnet,
        SecurityGroupIds=[group],
    )["Instances"][0]["InstanceId"]
    assert code(ec2.delete_subnet, SubnetId=subnet) == "DependencyViolation"
    assert code(ec2.delete_security_group, GroupId=group) == "DependencyViolation"
    ec2.terminate_instances(InstanceIds=[instance])
    ec2.delete_security_group(GroupId=group)
    ec2.delete_subnet(SubnetId=subnet)
    ec2.delete_vpc(VpcId=vpc)


def test_a_group_that_another_group_names_stays(client):
    ec2 = client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
    first, second = (
        ec2.create_security_group(VpcId=vpc, GroupName=name, Description=name)["GroupId"]
        for name in ("first", "second")
    )
    rule = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": first}]}
    ec2.authorize_security_group_ingress(GroupId=second, IpPermissions=[rule])
    assert code(ec2.delete_security_group, GroupId=first) == "DependencyViolation"
    ec2.delete_security_group(GroupId=second)
    ec2.delete_security_group(GroupId=first)


def test_an_interface_endpoint_owns_its_private_dns_until_it_is_gone(client):
    ec2 = client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.8.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.8.{number}.0/24", AvailabilityZone=zone)
        for number, zone in enumerate(["us-east-1a", "us-east-1b", "us-east-1a"])
    ]
    subnets = [subnet["Subnet"]["SubnetId"] for subnet in subnets]
    group = ec2.create_security_group(VpcId=vpc, GroupName="e", Description="e")["GroupId"]
    wanted = {
        "VpcId": vpc,
        "ServiceName": f"com.amazonaws.{REGION}.kms",
        "VpcEndpointType": "Interface",
        "SubnetIds": subnets[:2],
        "SecurityGroupIds": [group],
    }
    assert code(ec2.create_vpc_endpoint, **wanted) == "InvalidParameter"
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})
    twice = {**wanted, "SubnetIds": subnets}
    assert code(ec2.create_vpc_endpoint, **twice) == "DuplicateSubnetsInSameZone"
    made = ec2.create_vpc_endpoint(**wanted)["VpcEndpoint"]
    assert made["PrivateDnsEnabled"]
    assert code(ec2.create_vpc_endpoint, **wanted) == "InvalidParameter"

    ec2.delete_vpc_endpoints(VpcEndpointIds=[made["VpcEndpointId"]])
    filters = [{"Name": "vpc-id", "Values": [vpc]}]
    told = ec2.describe_vpc_endpoints(Filters=filters)["VpcEndpoints"]
    assert [endpoint["State"] for endpoint in told] == ["deleting"]
    assert code(ec2.create_vpc_endpoint, **wanted) == "InvalidParameter"
    assert code(ec2.delete_subnet, SubnetId=subnets[0]) == "DependencyViolation"
    assert code(ec2.delete_security_group, GroupId=group) == "DependencyViolation"
    time.sleep(LINGER_S + 0.1)
    assert ec2.describe_vpc_endpoints(Filters=filters)["VpcEndpoints"] == []
    again = ec2.create_vpc_endpoint(**wanted)["VpcEndpoint"]["VpcEndpointId"]
    ec2.delete_vpc_endpoints(VpcEndpointIds=[again])


def test_refusals_are_worded_as_by_aws(client):
    ec2 = client("ec2")
    vpc, subnet, _gateway = network(ec2, "10.6")
    group = ec2.create_security_group(VpcId=vpc, GroupName="w", Description="w")["GroupId"]
    eni = ec2.create_network_interface(SubnetId=subnet, Groups=[group])["NetworkInterface"]
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)
    expected = {
        ("delete_security_group", "GroupId", group): f"resource {group} has a dependent object",
        ("delete_subnet", "SubnetId", subnet): (
            f"The subnet '{subnet}' has dependencies and cannot be deleted."
        ),
        ("delete_route_table", "RouteTableId", table): (
            f"The routeTable '{table}' has dependencies and cannot be deleted."
        ),
        ("delete_vpc", "VpcId", vpc): f"The vpc '{vpc}' has dependencies and cannot be deleted.",
    }
    for (operation, key, value), message in expected.items():
        assert refusal(getattr(ec2, operation), **{key: value}) == ("DependencyViolation", message)
    ec2.delete_network_interface(NetworkInterfaceId=eni["NetworkInterfaceId"])


def test_a_load_balancer_holds_its_network_until_a_moment_after_its_end(client):
    ec2, elb, elbv2 = client("ec2"), client("elb"), client("elbv2")
    vpc, subnet, gateway = network(ec2, "10.5")
    group = ec2.create_security_group(VpcId=vpc, GroupName="lb", Description="lb")["GroupId"]
    listener = {"Protocol": "TCP", "LoadBalancerPort": 80, "InstancePort": 80}
    elb.create_load_balancer(
        LoadBalancerName="old", Listeners=[listener], Subnets=[subnet], SecurityGroups=[group]
    )
    new = elbv2.create_load_balancer(Name="new", Type="network", Subnets=[subnet])
    arn = new["LoadBalancers"][0]["LoadBalancerArn"]
    target = elbv2.create_target_group(Name="t", Protocol="TCP", Port=80, VpcId=vpc)
    target = target["TargetGroups"][0]["TargetGroupArn"]
    forward = [{"Type": "forward", "TargetGroupArn": target}]
    elbv2.create_listener(LoadBalancerArn=arn, Protocol="TCP", Port=80, DefaultActions=forward)

    def interfaces():
        found = ec2.describe_network_interfaces(Filters=[{"Name": "vpc-id", "Values": [vpc]}])
        return {one["Description"]: one for one in found["NetworkInterfaces"]}

    assert set(interfaces()) == {"ELB old", f"ELB net/new/{arn.rsplit('/', 1)[1]}"}
    eni = interfaces()["ELB old"]
    assert (eni["RequesterManaged"], eni["Status"]) == (True, "in-use")
    # Only the service that made it may delete it.
    assert refusal(ec2.delete_network_interface, NetworkInterfaceId=eni["NetworkInterfaceId"]) == (
        "InvalidParameterValue",
        f"Network interface '{eni['NetworkInterfaceId']}' is currently in use.",
    )
    assert code(elbv2.delete_target_group, TargetGroupArn=target) == "ResourceInUse"
    elb.delete_load_balancer(LoadBalancerName="old")
    elbv2.delete_load_balancer(LoadBalancerArn=arn)
    elbv2.delete_target_group(TargetGroupArn=target)
    detach = {"VpcId": vpc, "InternetGatewayId": gateway}
    assert code(ec2.delete_security_group, GroupId=group) == "DependencyViolation"
    assert code(ec2.delete_subnet, SubnetId=subnet) == "DependencyViolation"
    assert code(ec2.detach_internet_gateway, **detach) == "DependencyViolation"
    time.sleep(LINGER_S + 0.1)
    assert interfaces() == {}
    ec2.delete_security_group(GroupId=group)
    ec2.delete_subnet(SubnetId=subnet)
    ec2.detach_internet_gateway(**detach)


def test_a_role_goes_only_without_policies_and_profiles(client):
    iam = client("iam")
    iam.create_role(RoleName="held", AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17"}))
    iam.create_instance_profile(InstanceProfileName="held")
    iam.add_role_to_instance_profile(InstanceProfileName="held", RoleName="held")
    document = json.dumps(
        {
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}],
        }
    )
    policy = iam.create_policy(PolicyName="own", PolicyDocument=document)["Policy"]["Arn"]
    iam.attach_role_policy(RoleName="held", PolicyArn=policy)
    iam.put_role_policy(RoleName="held", PolicyName="inline", PolicyDocument=document)
    assert code(iam.delete_instance_profile, InstanceProfileName="held") == "DeleteConflict"
    for undo, params in (
        (iam.remove_role_from_instance_profile, {"InstanceProfileName": "held"}),
        (iam.detach_role_policy, {"PolicyArn": policy}),
        (iam.delete_role_policy, {"PolicyName": "inline"}),
    ):
        assert code(iam.delete_role, RoleName="held") == "DeleteConflict"
        undo(RoleName="held", **params)
    iam.delete_role(RoleName="held")


def test_a_volume_in_use_stays(client):
    ec2 = client("ec2")
    instance = ec2.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1)["Instances"][0]
    zone = instance["Placement"]["AvailabilityZone"]
    volume = ec2.create_volume(AvailabilityZone=zone, Size=1)["VolumeId"]
    ec2.attach_volume(VolumeId=volume, InstanceId=instance["InstanceId"], Device="/dev/xvdf")
    assert code(ec2.delete_volume, VolumeId=volume) == "VolumeInUse"
    ec2.detach_volume(VolumeId=volume, InstanceId=instance["InstanceId"])
    ec2.delete_volume(VolumeId=volume)
