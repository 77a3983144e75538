"""Quotas: which family counts where, what is refused, what is only warned of, what to ask for."""

from __future__ import annotations

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils._catalog import CATALOG
from ansible_collections.gpushare.eks.plugins.module_utils._pools import derive
from ansible_collections.gpushare.eks.plugins.module_utils._quotas import (
    ELASTIC_IPS,
    NAT_GATEWAYS,
    UNITS,
    VPCS,
    codes,
    judge,
)

G, G_SPOT, STANDARD = "L-DB2E81BA", "L-3819A6DF", "L-1216C47A"
ZONES = ["us-east-1a", "us-east-1b", "us-east-1c"]
OFFERINGS = dict.fromkeys(CATALOG["instance_types"], ZONES)


def pool(**changes):
    sharing = {"strategy": "time_slicing", "gpu_memory": True}
    return {
        "name": "shared",
        "instance_types": ["g4dn.xlarge"],
        "min_size": 1,
        "max_size": 4,
        "sharing": sharing,
        **changes,
    }


def quota(code, value, used=0, ours=0, **more):
    unit = UNITS.get(code, "vCPUs")
    numbers = {"value": value, "used": used, "ours": ours}
    return {code: {"name": f"name of {code}", "service": "ec2", "unit": unit, **numbers, **more}}


def judged(quotas, pools, zones=(), network=None):
    derived = derive(pools, cluster_name="demo", zones=zones)
    types = CATALOG["instance_types"]
    return judge(quotas, derived["pools"], types, OFFERINGS, region="us-east-1", network=network)


@pytest.mark.parametrize(
    ("name", "on_demand", "spot"),
    [
        ("m6i.large", STANDARD, "L-34B43A08"),
        ("im4gn.large", STANDARD, "L-34B43A08"),
        ("g6.xlarge", G, G_SPOT),
        ("vt1.3xlarge", G, G_SPOT),
        ("p4d.24xlarge", "L-417A185B", "L-7212CCBC"),
        ("p5.48xlarge", "L-417A185B", "L-C4BD4855"),
    ],
)
def test_families_count_where_aws_counts_them(name, on_demand, spot):
    assert codes(name) == {"on_demand": on_demand, "spot": spot}


def test_a_family_whose_quota_is_not_known_is_not_judged():
    assert codes("inf2.xlarge") == codes("mac2.metal") == {}


def test_what_fits_says_nothing():
    assert judged(quota(G, 16), [pool()]) == {"refusals": [], "warnings": []}


def test_what_is_needed_at_once_is_refused_with_the_number_to_ask_for():
    found = judged(quota(G, 8, used=8), [pool()])
    assert found["warnings"] == []
    (text,) = found["refusals"]
    assert f"'name of {G}' ({G}) in us-east-1 is 8 vCPUs; others use 8" in text
    assert "pool shared need 4 vCPUs at once" in text
    # Four nodes of four vCPUs, next to the eight of others.
    assert f"--service-code ec2 --quota-code {G} --desired-value 24 --region us-east-1" in text


def test_what_is_missing_at_max_size_only_is_a_warning():
    found = judged(quota(G, 8), [pool()])
    assert found["refusals"] == []
    (text,) = found["warnings"]
    assert "need 16 vCPUs at max_size" in text
    assert "--desired-value 16" in text


def test_an_account_without_any_gpu_and_a_pool_that_starts_at_zero():
    found = judged(quota(G, 0), [pool(min_size=0)])
    assert (found["refusals"], len(found["warnings"])) == ([], 1)


def test_what_is_ours_and_runs_is_not_asked_for_again():
    assert judged(quota(G, 4, used=4, ours=4), [pool(max_size=1)])["refusals"] == []
    grown = judged(quota(G, 4, used=4, ours=4), [pool(min_size=2)])
    assert len(grown["refusals"]) == 1
    # Others took the rest meanwhile: what runs goes on.
    assert judged(quota(G, 4, used=8, ours=4), [pool(max_size=1)])["refusals"] == []


def test_desired_size_counts_at_once():
    assert judged(quota(G, 8), [pool(desired_size=3)])["refusals"]


def test_spot_is_a_quota_of_its_own():
    quotas = quota(G, 0) | quota(G_SPOT, 64)
    assert judged(quotas, [pool(capacity_type=["spot"])]) == {"refusals": [], "warnings": []}


def test_pools_of_one_quota_are_added_up():
    pools = [pool(max_size=1), pool(name="more", instance_types=["g5.xlarge"], max_size=1)]
    assert judged(quota(G, 8), pools)["refusals"] == []
    (text,) = judged(quota(G, 7), pools)["refusals"]
    assert "pool shared, pool more need 8 vCPUs at once" in text


def test_sizes_are_those_of_one_group():
    zonal = pool(zones="one_group_per_zone", max_size=1)
    assert judged(quota(G, 12), [zonal], zones=ZONES)["refusals"] == []
    assert judged(quota(G, 11), [zonal], zones=ZONES)["refusals"]
    # Before the zones are known they are those that the network will take.
    wanted = {"nat": "none", "zone_count": 2}
    assert judged(quota(G, 8), [zonal], network=wanted)["refusals"] == []
    assert judged(quota(G, 7), [zonal], network=wanted)["refusals"]
    named = {"nat": "none", "zones": ZONES}
    assert judged(quota(G, 11), [zonal], network=named)["refusals"]


def test_a_type_of_another_quota_can_serve_so_nothing_is_refused():
    sharing = {"strategy": "exclusive"}
    either = pool(instance_types=["g5.xlarge", "p4d.24xlarge"], sharing=sharing)
    found = judged(quota(G, 0) | quota("L-417A185B", 0), [either])
    assert found["refusals"] == []
    assert len(found["warnings"]) == 2


def test_the_smallest_type_may_start_and_the_largest_may_be_reached():
    several = pool(instance_types=["g4dn.xlarge", "g4dn.2xlarge"], max_size=1)
    found = judged(quota(G, 4), [several])
    assert found["refusals"] == []
    assert "need 8 vCPUs at max_size" in found["warnings"][0]


def test_quotas_that_were_not_read_are_not_judged():
    assert judged({}, [pool()], network={"nat": "per_zone"}) == {"refusals": [], "warnings": []}


def test_the_network_takes_a_vpc_addresses_and_gateways():
    quotas = quota(ELASTIC_IPS, 5, used=4) | quota(VPCS, 5, used=5)
    found = judged(quotas, [pool()], network={"nat": "per_zone", "zones": ZONES})
    assert len(found["refusals"]) == 2
    vpcs, addresses = found["refusals"]
    assert "need 1 VPCs at once" in vpcs
    assert "network_vpc_id" in vpcs
    assert "need 3 addresses at once" in addresses
    assert "--desired-value 7" in addresses
    assert judged(quotas, [pool()], network={}) == {"refusals": [], "warnings": []}
    ours = quota(ELASTIC_IPS, 5, used=5, ours=3) | quota(VPCS, 5, used=5, ours=1)
    standing = judged(ours, [pool()], network={"nat": "per_zone", "zones": ZONES})
    assert standing == {"refusals": [], "warnings": []}


def test_nat_gateways_are_counted_in_the_zone_where_they_stand():
    full = {"us-east-1b": {"used": 5, "ours": 0}}
    quotas = quota(NAT_GATEWAYS, 5, used=5, zones=full)
    single = {"nat": "single", "zones": ZONES}
    assert judged(quotas, [pool()], network=single)["refusals"] == []
    (text,) = judged(quotas, [pool()], network={**single, "nat": "per_zone"})["refusals"]
    assert "in us-east-1b is 5 NAT gateways in a zone; others use 5" in text
    assert "--region us-east-1;" in text
