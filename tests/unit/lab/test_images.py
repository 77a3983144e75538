"""The public parameters of EKS's images, and the images that they name."""

from __future__ import annotations

import boto3
import pytest
from moto import mock_aws

from lab.aws import moto_patches

PATH = "/aws/service/eks/optimized-ami/{}/amazon-linux-2023/{}/{}/recommended/{}"


@pytest.mark.parametrize("version", ["1.34", "1.35", "1.36"])
def test_every_image_is_named_by_a_parameter_and_can_be_described(monkeypatch, version):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing-secret")
    moto_patches.apply()
    with mock_aws():
        ssm = boto3.client("ssm", region_name="us-east-1")
        ec2 = boto3.client("ec2", region_name="us-east-1")
        seen = set()
        for architecture in ("x86_64", "arm64"):
            for variant in ("standard", "nvidia"):
                place = (version, architecture, variant)
                value = ssm.get_parameter(Name=PATH.format(*place, "image_id"))
                image_id = value["Parameter"]["Value"]
                [image] = ec2.describe_images(ImageIds=[image_id], Owners=["amazon"])["Images"]
                assert image["Architecture"] == architecture
                assert (variant in image["Name"], version in image["Name"]) == (True, True)
                release = ssm.get_parameter(Name=PATH.format(*place, "release_version"))
                assert release["Parameter"]["Value"].startswith(version)
                seen.add(image_id)
        assert len(seen) == 4
