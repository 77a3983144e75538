# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils._endpoints import (
    ALWAYS,
    EndpointError,
    place,
    plan,
    services,
    short_name,
)

OURS = {"gpushare.eks/cluster": "demo"}
EC2, KMS = "com.amazonaws.us-east-1.ec2", "com.amazonaws.us-east-1.kms"


def endpoint(service=EC2, number=1, **changes):
    tags = {**OURS, "Name": f"demo-{short_name(service)}", **changes.pop("tags", {})}
    found = {
        "vpc_endpoint_id": f"vpce-{number}",
        "vpc_endpoint_type": "Interface",
        "service_name": service,
        "state": "available",
        "private_dns_enabled": True,
        "groups": [{"group_id": "sg-ours", "group_name": "demo-endpoints"}],
        "tags": [{"key": key, "value": value} for key, value in tags.items()],
    }
    return {**found, **changes}


def planned(*endpoints, wanted=(EC2,)):
    result = plan(endpoints, wanted, "demo", name="demo", tags=OURS, group_id="sg-ours")
    return {kind: found for kind, found in result.items() if found}


def test_the_services_follow_from_what_is_switched_on():
    assert {short_name(name) for name in services("us-east-1")} == set(ALWAYS)
    pools = [{"autoscaler": "none"}, {"autoscaler": "karpenter"}]
    more = services("us-east-1", pools, load_balancers=True, monitoring=True, more=["rds"])
    assert {short_name(name) for name in more} - set(ALWAYS) == {
        "sqs", "elasticloadbalancing", "monitoring", "rds",
    }  # fmt: skip
    assert "com.amazonaws.us-east-1.eks-auth" not in services("us-east-1", fewer=["eks-auth"])
    with pytest.raises(EndpointError, match=r"^typo: not among .* network_fewer_endpoints"):
        services("us-east-1", fewer=["typo"])


def test_names_in_china():
    names = services("cn-north-1")
    assert "cn.com.amazonaws.cn-north-1.ecr.api" in names
    assert "com.amazonaws.cn-north-1.kms" in names
    assert {short_name(name) for name in names} == set(ALWAYS)


def test_an_empty_vpc_misses_all_and_a_built_one_nothing():
    tags = {**OURS, "Name": "demo-ec2"}
    assert planned() == {"missing": [{"service": EC2, "tags": tags}]}
    gateway = endpoint("com.amazonaws.us-east-1.s3", vpc_endpoint_type="Gateway")
    assert planned(endpoint(), endpoint(number=2, state="deleting"), gateway) == {}


@pytest.mark.parametrize(
    "change", [{"state": "failed"}, {"private_dns_enabled": False}, {"groups": []}]
)
def test_what_serves_nobody_is_replaced(change):
    result = planned(endpoint(**change))
    assert result["broken"] == ["vpce-1"]
    assert [one["service"] for one in result["missing"]] == [EC2]


def test_what_is_no_longer_wanted_goes_and_tags_are_mended():
    retagged = endpoint(tags={"team": "old"})
    result = planned(retagged, endpoint(KMS, 2), endpoint(number=3))
    assert result["surplus"] == ["vpce-2", "vpce-3"]
    assert result["groups"] == ["sg-ours"]
    assert result["retag"] == [
        {"id": "vpce-1", "service": EC2, "tags": {**OURS, "Name": "demo-ec2"}}
    ]


def test_anothers_endpoint_serves_or_is_refused():
    foreign = {"tags": {"gpushare.eks/cluster": "other"}}
    assert planned(endpoint(**foreign)) == {}
    assert planned(endpoint(KMS, private_dns_enabled=False, **foreign))["missing"]
    with pytest.raises(EndpointError, match=r"vpce-1 .* not of cluster demo .* private DNS"):
        planned(endpoint(private_dns_enabled=False, **foreign))


def test_endpoints_stand_where_the_service_is_offered():
    subnets = {"us-east-1a": "subnet-a", "us-east-1b": "subnet-b"}
    offered = [{"service_name": EC2, "availability_zones": ["us-east-1b", "us-east-1c"]}]
    assert place([{"service": EC2}], offered, subnets) == [
        {"service": EC2, "subnet_ids": ["subnet-b"]}
    ]
    with pytest.raises(EndpointError, match=r"\.kms: no endpoint service .* network_fewer"):
        place([{"service": KMS}], offered, subnets)
