"""ec2_catalog_info: the catalog's shape from EC2's answers, pages, offerings, quotas, bad names."""

from __future__ import annotations

import pytest
from botocore.exceptions import EndpointConnectionError

from ansible_collections.gpushare.eks.plugins.module_utils._catalog import CATALOG
from ansible_collections.gpushare.eks.plugins.module_utils._ec2_catalog import (
    instance_types,
    max_pods,
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


OURS = [{"Key": "gpushare.eks/cluster", "Value": "demo"}]


def instance(kind, **more):
    return {"InstanceType": kind, "Placement": {"Tenancy": "default"}, **more}


class FakeEc2(FakeService):
    service = "ec2"
    running = (
        instance("g4dn.xlarge", Tags=OURS),
        instance("g4dn.xlarge", InstanceLifecycle="spot"),
        instance("g5.xlarge"),
        instance("g5.xlarge", Placement={"Tenancy": "host"}),
        instance("inf2.xlarge"),
    )

    def __init__(self):
        self.known = {"m6i.large": None, "g4dn.xlarge": "T4", "g5.xlarge": "A10G"}
        super().__init__()

    def standing(self, name, params):
        """What is there beside instance types."""
        if name == "describe_instances":
            assert params["Filters"][0]["Values"] == ["pending", "running"]
            return {"Reservations": [{"Instances": [one]} for one in self.running]}
        return {
            "describe_addresses": {"Addresses": [{"Tags": OURS}, {}]},
            "describe_vpcs": {"Vpcs": [{"Tags": OURS}, {}, {}]},
            "describe_nat_gateways": {
                "NatGateways": [{"SubnetId": "subnet-1", "Tags": OURS}, {"SubnetId": "subnet-2"}]
            },
            "describe_subnets": {
                "Subnets": [
                    {"SubnetId": "subnet-1", "AvailabilityZone": "us-east-1a"},
                    {"SubnetId": "subnet-2", "AvailabilityZone": "us-east-1a"},
                ]
            },
        }.get(name)

    def answer(self, name, params):
        if found := self.standing(name, params):
            return found
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
    assert result["quotas_unread"] is None
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
    assert catalog["quotas"]["L-DB2E81BA"]["value"] == 64
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


def quotas_of(run_module, clients, *types):
    return run_module(
        "ec2_catalog_info",
        clients=clients,
        instance_types=types,
        quotas=True,
        cluster_name="demo",
    )


def test_what_is_in_use_is_counted_as_aws_counts_it(run_module, clients):
    quotas = quotas_of(run_module, clients, "g4dn.xlarge")["catalog"]["quotas"]
    # The g5.xlarge of somebody else counts; the one on a dedicated host and the inf2 do not.
    on_demand, spot = quotas["L-DB2E81BA"], quotas["L-3819A6DF"]
    assert (on_demand["value"], on_demand["used"], on_demand["ours"]) == (64, 8, 4)
    assert on_demand["unit"] == "vCPUs"
    assert (spot["used"], spot["ours"]) == (4, 0)
    addresses, vpcs, gateways = (quotas[c] for c in ("L-0263D0A3", "L-F678F1CE", "L-FE5A380F"))
    assert (addresses["service"], addresses["used"], addresses["ours"]) == ("ec2", 2, 1)
    assert (vpcs["service"], vpcs["used"], vpcs["ours"]) == ("vpc", 3, 1)
    assert gateways["zones"] == {"us-east-1a": {"used": 2, "ours": 1}}


def test_only_quotas_of_the_wanted_families_are_read(run_module, clients):
    clients["ec2"].known["inf2.xlarge"] = None
    network = {"L-0263D0A3", "L-F678F1CE", "L-FE5A380F"}
    assert set(quotas_of(run_module, clients, "inf2.xlarge")["catalog"]["quotas"]) == network


@pytest.mark.parametrize(
    ("service", "operation", "error"),
    [
        ("service-quotas", "get_service_quota", refusal("AccessDeniedException", "not allowed")),
        ("ec2", "describe_instances", refusal("UnauthorizedOperation", "not allowed")),
        (
            "service-quotas",
            "get_service_quota",
            EndpointConnectionError(endpoint_url="https://servicequotas.example"),
        ),
    ],
)
def test_quotas_that_cannot_be_read_are_a_warning(run_module, clients, service, operation, error):
    clients[service].errors[operation] = [error]
    result = quotas_of(run_module, clients, "g4dn.xlarge")
    assert result["catalog"]["quotas"] == {}
    assert "g4dn.xlarge" in result["catalog"]["offerings"]
    assert result["quotas_unread"]["remedy"]
    (warning,) = result["warnings"]
    assert "not known" in warning
    assert result["quotas_unread"]["message"] in warning


def test_another_error_is_an_error(run_module, clients):
    clients["service-quotas"].errors["get_service_quota"] = [refusal("InternalFailure", "oops")]
    assert "oops" in quotas_of(run_module, clients, "g4dn.xlarge")["msg"]
