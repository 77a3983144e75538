"""moto behind our patches, asked over HTTP by boto3 as the roles' modules ask it."""

from __future__ import annotations

import json

import pytest
import requests
from lab_helpers import code

from lab.aws import quota_patches


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
