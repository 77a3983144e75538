# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import copy

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils._existing_network import (
    ExistingNetworkError,
    existing_network,
)

EC2, S3 = "com.amazonaws.us-east-1.ec2", "com.amazonaws.us-east-1.s3"


def subnet(letter, free=4000, **changes):
    return {
        "subnet_id": f"subnet-{letter}",
        "availability_zone": f"us-east-1{letter[0]}",
        "availability_zone_id": f"use1-az{ord(letter[0]) - 90}",
        "available_ip_address_count": free,
        "map_public_ip_on_launch": False,
        **changes,
    }


def table(name, *subnets, main=False, **route):
    associations = [{"main": False, "subnet_id": f"subnet-{one}"} for one in subnets]
    default = {"destination_cidr_block": "0.0.0.0/0", "state": "active", **route}
    return {
        "id": f"rtb-{name}",
        "associations": [*associations, {"main": True}] if main else associations,
        "routes": [default] if route else [],
    }


@pytest.fixture
def there():
    return {
        "vpcs": [
            {
                "vpc_id": "vpc-1",
                "cidr_block": "10.0.0.0/16",
                "enable_dns_support": True,
                "enable_dns_hostnames": True,
            }
        ],
        # us-east-1c has two private subnets; subnet-c-wide has more room.
        "subnets": [subnet("b"), subnet("c"), subnet("c-wide", free=8000), subnet("a-public")],
        "route_tables": [
            table("main", main=True, nat_gateway_id="nat-1"),
            table("public", "a-public", gateway_id="igw-1"),
        ],
        "endpoints": [],
        "pools": [{"name": "gpu", "instance_types": ["g5.xlarge"], "max_size": 2, "max_pods": 50}],
        "offerings": {"g5.xlarge": ["us-east-1c", "us-east-1d"]},
        "services": [EC2],
        "s3": S3,
    }


def findings(there):
    before = copy.deepcopy(there)
    with pytest.raises(ExistingNetworkError) as raised:
        existing_network(**there)
    assert there == before
    return str(raised.value)


def test_a_fit_network_is_published(there):
    assert existing_network(**there) == {
        "vpc_id": "vpc-1",
        "vpc_cidr": "10.0.0.0/16",
        "zones": ["us-east-1b", "us-east-1c"],
        "private_subnet_ids": ["subnet-b", "subnet-c", "subnet-c-wide"],
        "public_subnet_ids": ["subnet-a-public"],
        "subnets_by_zone": {"us-east-1b": "subnet-b", "us-east-1c": "subnet-c-wide"},
        "security_group_ids": [],
    }
    named = existing_network(**there, subnet_ids=["subnet-b", "subnet-c"])
    assert named["private_subnet_ids"] == ["subnet-b", "subnet-c"]


def test_no_vpc(there):
    assert "network_vpc_id" in findings({**there, "vpcs": []})


def test_all_findings_are_told_at_once(there):
    there["vpcs"][0]["enable_dns_hostnames"] = False
    there["subnets"] = [subnet("b", free=3)]
    there["route_tables"] = [table("main", main=True, nat_gateway_id="nat-1", state="blackhole")]
    told = findings({**there, "subnet_ids": ["subnet-b", "subnet-lost"]})
    for number, words in enumerate(
        (
            "enable_dns_hostnames is off",
            "subnet-lost not in vpc-1",
            "EKS needs two zones",
            "subnet-b has 3 free addresses",
            "have 3 free addresses, the pools may need 100",
            "pool gpu: g5.xlarge is offered in us-east-1c, us-east-1d, not in us-east-1b",
            "leads to nat-1, which is gone",
        ),
        1,
    ):
        assert f"({number}) " in told
        assert words in told


def test_a_zone_that_eks_refuses(there):
    there["subnets"][0]["availability_zone_id"] = "use1-az3"
    assert "no control plane" in findings(there)


def test_public_subnets_are_for_nodes_only_with_public_addresses(there):
    wanted = ["subnet-c", "subnet-a-public"]
    assert "routes to internet gateway igw-1" in findings({**there, "subnet_ids": wanted})
    there["subnets"][3]["map_public_ip_on_launch"] = True
    assert existing_network(**there, subnet_ids=wanted)["private_subnet_ids"] == sorted(wanted)


def test_without_a_way_out_every_endpoint_is_needed(there):
    there["route_tables"] = [table("main", main=True)]
    there["subnets"] = there["subnets"][:2]
    assert "for ec2, s3: route" in findings(there)
    ec2 = {
        "service_name": EC2,
        "vpc_endpoint_type": "Interface",
        "state": "available",
        "private_dns_enabled": True,
        "route_table_ids": [],
    }
    s3 = {
        **ec2,
        "service_name": S3,
        "vpc_endpoint_type": "Gateway",
        "private_dns_enabled": False,
        "route_table_ids": ["rtb-main"],
    }
    there["endpoints"] = [{**ec2, "private_dns_enabled": False}, s3]
    assert "for ec2: route" in findings(there)
    there["endpoints"] = [ec2, {**s3, "route_table_ids": ["rtb-other"]}]
    assert "for s3: route" in findings(there)
    there["endpoints"] = [ec2, s3]
    assert existing_network(**there)["zones"] == ["us-east-1b", "us-east-1c"]
