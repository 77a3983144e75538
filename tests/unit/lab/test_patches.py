"""moto behind our patches, asked over HTTP by boto3 as the roles' modules ask it."""

from __future__ import annotations

import json
import threading
import time

import boto3
import pytest
import requests
from botocore.config import Config
from botocore.exceptions import ClientError
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from lab.aws import moto_patches, patches, quota_patches
from lab.aws.endpoint_patches import DELETING_SECONDS

REGION = "us-east-1"


class Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *args, **more):
        pass


@pytest.fixture(scope="module")
def client():
    moto_patches.apply()
    patches.apply()
    app = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    clients = {}

    def client(service):
        if service not in clients:
            clients[service] = boto3.client(
                service,
                region_name=REGION,
                endpoint_url=f"http://127.0.0.1:{server.server_port}",
                aws_access_key_id="testing-key",
                aws_secret_access_key="testing-secret",
                config=Config(retries={"max_attempts": 1}),
            )
        return clients[service]

    yield client
    server.shutdown()
    server.server_close()


def code(call, **params):
    with pytest.raises(ClientError) as error:
        call(**params)
    return error.value.response["Error"]["Code"]


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


def test_images_with_tags_and_one_image_per_name(client):
    ec2 = client("ec2")
    instance = ec2.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1)
    instance = instance["Instances"][0]["InstanceId"]
    tags = [{"Key": "content", "Value": "abc"}]
    kinds = [{"ResourceType": kind, "Tags": tags} for kind in ("image", "snapshot")]
    body = {"InstanceId": instance, "Name": "ours"}
    image = ec2.create_image(TagSpecifications=kinds, **body)["ImageId"]
    shown = ec2.describe_images(ImageIds=[image])["Images"][0]
    snapshot = shown["BlockDeviceMappings"][0]["Ebs"]["SnapshotId"]
    assert shown["Tags"] == tags
    assert ec2.describe_snapshots(SnapshotIds=[snapshot])["Snapshots"][0]["Tags"] == tags
    assert code(ec2.create_image, **body) == "InvalidAMIName.Duplicate"


def test_a_key_is_deleted_by_its_arn(client):
    kms = client("kms")
    arn = kms.create_key()["KeyMetadata"]["Arn"]
    kms.schedule_key_deletion(KeyId=arn, PendingWindowInDays=7)
    assert kms.describe_key(KeyId=arn)["KeyMetadata"]["KeyState"] == "PendingDeletion"


def test_a_presigned_url_of_sts_reaches_sts(client):
    url = client("sts").generate_presigned_url("get_caller_identity")
    answer = requests.get(url, timeout=10)
    assert answer.status_code == 200
    assert "GetCallerIdentityResult" in answer.text


def test_quotas_that_a_cluster_meets(client):
    quotas = client("service-quotas")

    def value(code):
        service = quota_patches.QUOTAS[code][0]
        return quotas.get_service_quota(ServiceCode=service, QuotaCode=code)["Quota"]["Value"]

    for quota, (service, name, number) in quota_patches.QUOTAS.items():
        found = quotas.get_service_quota(ServiceCode=service, QuotaCode=quota)["Quota"]
        assert (found["QuotaName"], found["Value"]) == (name, number)
    for service, quota in (("ec2", "L-00000000"), ("vpc", "L-DB2E81BA")):
        bad = {"ServiceCode": service, "QuotaCode": quota}
        assert code(quotas.get_service_quota, **bad) == "NoSuchResourceException"
    listed = quotas.list_aws_default_service_quotas(ServiceCode="vpc")["Quotas"]
    assert len([row for row in listed if row["QuotaCode"] == "L-F678F1CE"]) == 1
    quota_patches.set_quotas({"L-DB2E81BA": 4, "L-F678F1CE": 5})
    assert (value("L-DB2E81BA"), value("L-F678F1CE")) == (4, 5)
    quota_patches.set_quotas({"L-DB2E81BA": None, "L-F678F1CE": None})
    assert value("L-DB2E81BA") == 768
    with pytest.raises(ValueError, match="L-1"):
        quota_patches.set_quotas({"L-1": 1})


def test_documents_from_making_to_deleting(client):
    ssm = client("ssm")

    def content(line):
        step = {"action": "aws:runShellScript", "name": "s", "inputs": {"runCommand": [line]}}
        return json.dumps({"schemaVersion": "2.2", "mainSteps": [step]})

    tags = [{"Key": "gpushare.eks/cluster", "Value": "demo"}]
    body = {"Name": "gpushare-x", "DocumentType": "Command"}
    first = ssm.create_document(Content=content("true"), Tags=tags, **body)["DocumentDescription"]
    assert first["HashType"] == "Sha256"
    assert code(ssm.create_document, Content=content("true"), **body) == "DocumentAlreadyExists"
    second = ssm.update_document(
        Name="gpushare-x", Content=content("false"), DocumentVersion="$LATEST"
    )["DocumentDescription"]
    assert (second["DocumentVersion"], second["Hash"] == first["Hash"]) == ("2", False)
    assert ssm.describe_document(Name="gpushare-x")["Document"]["Hash"] == first["Hash"]
    ssm.update_document_default_version(Name="gpushare-x", DocumentVersion="2")
    assert ssm.describe_document(Name="gpushare-x")["Document"]["Hash"] == second["Hash"]
    owner = {"ResourceType": "Document", "ResourceId": "gpushare-x"}
    assert ssm.list_tags_for_resource(**owner)["TagList"] == tags
    ssm.add_tags_to_resource(Tags=[{"Key": "more", "Value": "1"}], **owner)
    ssm.remove_tags_from_resource(TagKeys=["more"], **owner)
    assert ssm.list_tags_for_resource(**owner)["TagList"] == tags
    ssm.delete_document(Name="gpushare-x")
    assert code(ssm.describe_document, Name="gpushare-x") == "InvalidDocument"


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


def test_versions_of_a_launch_template_go_but_the_default(client):
    ec2 = client("ec2")
    made = ec2.create_launch_template(
        LaunchTemplateName="versions", LaunchTemplateData={"InstanceType": "m6i.large"}
    )["LaunchTemplate"]
    template = made["LaunchTemplateId"]
    for _ in range(2):
        ec2.create_launch_template_version(
            LaunchTemplateId=template, LaunchTemplateData={"InstanceType": "m6i.xlarge"}
        )
    answer = ec2.delete_launch_template_versions(LaunchTemplateId=template, Versions=["1", "3"])
    gone = answer["SuccessfullyDeletedLaunchTemplateVersions"]
    kept = answer["UnsuccessfullyDeletedLaunchTemplateVersions"]
    assert [v["VersionNumber"] for v in gone] == [3]
    assert [v["VersionNumber"] for v in kept] == [1]
    again = ec2.create_launch_template_version(
        LaunchTemplateId=template, LaunchTemplateData={"InstanceType": "m6i.xlarge"}
    )["LaunchTemplateVersion"]
    assert again["VersionNumber"] == 4
    ec2.create_tags(Resources=[template], Tags=[{"Key": "late", "Value": "yes"}])
    (seen,) = ec2.describe_launch_templates(LaunchTemplateIds=[template])["LaunchTemplates"]
    assert {"Key": "late", "Value": "yes"} in seen["Tags"]
    assert (seen["DefaultVersionNumber"], seen["LatestVersionNumber"]) == (1, 4)


def test_a_key_pending_deletion_is_kept_by_its_arn(client):
    kms = client("kms")
    key = kms.create_key()["KeyMetadata"]
    kms.schedule_key_deletion(KeyId=key["KeyId"], PendingWindowInDays=7)
    kms.cancel_key_deletion(KeyId=key["Arn"])
    state = kms.describe_key(KeyId=key["KeyId"])["KeyMetadata"]["KeyState"]
    assert state == "Disabled"
    kms.enable_key(KeyId=key["Arn"])
    assert kms.describe_key(KeyId=key["KeyId"])["KeyMetadata"]["KeyState"] == "Enabled"


def test_an_interface_endpoint_owns_its_private_dns_until_it_is_gone(client):
    ec2 = client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.8.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.8.{number}.0/24", AvailabilityZone=zone)
        for number, zone in enumerate(["us-east-1a", "us-east-1b", "us-east-1a"])
    ]
    subnets = [subnet["Subnet"]["SubnetId"] for subnet in subnets]
    wanted = {
        "VpcId": vpc,
        "ServiceName": f"com.amazonaws.{REGION}.kms",
        "VpcEndpointType": "Interface",
        "SubnetIds": subnets[:2],
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
    time.sleep(DELETING_SECONDS + 0.1)
    assert ec2.describe_vpc_endpoints(Filters=filters)["VpcEndpoints"] == []
    again = ec2.create_vpc_endpoint(**wanted)["VpcEndpoint"]["VpcEndpointId"]
    ec2.delete_vpc_endpoints(VpcEndpointIds=[again])
