"""ec2_catalog_info: the catalog's shape from EC2's answers, pages, offerings, quotas, bad names."""

from __future__ import annotations

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils._catalog import CATALOG
from ansible_collections.gpushare.eks.plugins.module_utils._ec2_catalog import (
    instance_types,
    max_pods,
    quotas,
)
from tests.unit.eks_fake import FakeService, refusal


def row(name, gpu=None):
    found = {
        "InstanceType": name,
        "VCpuInfo": {"DefaultVCpus": 4},
        "MemoryInfo": {"SizeInMiB": 16384},
        "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
        "NetworkInfo": {"MaximumNetworkInterfaces": 3, "Ipv4AddressesPerInterface": 10},
    }
    if gpu:
        gpus = [
            {
                "Name": gpu,
                "Manufacturer": "NVIDIA",
                "Count": 1,
                "MemoryInfo": {"SizeInMiB": 16384},
            }
        ]
        found["GpuInfo"] = {"Gpus": gpus}
    return found


class FakeEc2(FakeService):
    service = "ec2"

    def __init__(self):
        self.known = {"m6i.large": None, "g4dn.xlarge": "T4"}
        super().__init__()

    def answer(self, name, params):
        wanted = params["Filters"][0]["Values"]
        assert len(wanted) <= 100
        if name == "describe_instance_types":
            return {"InstanceTypes": [row(n, self.known[n]) for n in wanted if n in self.known]}
        zones = {"g4dn.xlarge": ["us-east-1b", "us-east-1a"], "m6i.large": ["us-east-1e"]}
        return {
            "InstanceTypeOfferings": [
                {"InstanceType": name, "Location": zone}
                for name in wanted
                for zone in zones.get(name, [])
            ]
        }


class FakeQuotas(FakeService):
    service = "service-quotas"

    def answer(self, name, params):
        if name == "get_service_quota" and params["QuotaCode"] == "L-3819A6DF":
            raise refusal("NoSuchResourceException", "no applied quota")
        return {"Quota": {"QuotaName": f"quota {params['QuotaCode']}", "Value": 64.0}}


@pytest.fixture
def clients():
    return {"ec2": FakeEc2(), "service-quotas": FakeQuotas()}


def test_shape_is_the_dated_catalogs(run_module, clients):
    result = run_module(
        "ec2_catalog_info", clients=clients, instance_types=["g4dn.xlarge", "m6i.large"]
    )
    catalog = result["catalog"]
    assert not result["changed"]
    assert set(CATALOG) <= set(catalog)
    assert catalog["instance_types"]["g4dn.xlarge"] == CATALOG["instance_types"]["g4dn.xlarge"]
    assert catalog["gpu_models"] == CATALOG["gpu_models"]
    assert catalog["offerings"]["g4dn.xlarge"] == ["us-east-1a", "us-east-1b"]
    assert catalog["quotas"] == {}
    assert clients["ec2"].counts() == {
        "describe_instance_types": 1,
        "describe_instance_type_offerings": 1,
    }


def test_zones_and_quotas(run_module, clients):
    catalog = run_module(
        "ec2_catalog_info",
        check=True,
        clients=clients,
        instance_types=["g4dn.xlarge", "m6i.large"],
        zones=["us-east-1a"],
        quotas=True,
    )["catalog"]
    assert catalog["offerings"] == {"g4dn.xlarge": ["us-east-1a"], "m6i.large": []}
    assert catalog["quotas"]["L-DB2E81BA"]["vcpus"] == 64
    assert catalog["quotas"]["L-3819A6DF"]["capacity_type"] == "spot"
    assert catalog["quotas"]["L-1216C47A"]["instance_types"] == ["m6i.large"]


def test_unknown_types_are_named(run_module, clients):
    result = run_module(
        "ec2_catalog_info", clients=clients, instance_types=["g4dn.xlarge", "g9.huge", "g4dn.*"]
    )
    assert result["error"]["type"] == "InvalidInput"
    assert result["error"]["value"] == ["g4dn.*", "g9.huge"]
    assert "g9.huge" in result["msg"]


def test_long_lists_go_in_batches_of_100():
    ec2 = FakeEc2()
    ec2.known = {f"m{number}.large": None for number in range(250)}
    assert len(instance_types(ec2, sorted(ec2.known))) == 250
    assert ec2.counts() == {"describe_instance_types": 3}


def test_max_pods_counts_the_default_card_only():
    assert max_pods({"MaximumNetworkInterfaces": 3, "Ipv4AddressesPerInterface": 10}) == 29
    cards = [
        {"NetworkCardIndex": 0, "MaximumNetworkInterfaces": 15},
        {"NetworkCardIndex": 1, "MaximumNetworkInterfaces": 15},
    ]
    network = {
        "MaximumNetworkInterfaces": 30,
        "Ipv4AddressesPerInterface": 50,
        "NetworkCards": cards,
        "DefaultNetworkCardIndex": 0,
    }
    assert max_pods(network) == 737


def test_quota_of_a_family_without_one():
    assert quotas(FakeQuotas(), ["inf2.xlarge"]) == {}
    assert set(quotas(FakeQuotas(), ["p4d.24xlarge"])) == {"L-417A185B", "L-7212CCBC"}
