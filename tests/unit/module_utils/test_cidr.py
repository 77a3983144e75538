# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import ipaddress
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpushare.eks.plugins.module_utils._cidr import (
    CidrError,
    choose_zones,
    lets_in,
    subnets,
)

ZONES = ["us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d", "us-east-1f"]


def test_a_16_gives_19_and_24():
    layout = subnets("10.0.0.0/16", ZONES[:2])
    assert layout == {
        "vpc": "10.0.0.0/16",
        "private": [
            {"zone": "us-east-1a", "cidr": "10.0.0.0/19", "addresses": 8187},
            {"zone": "us-east-1b", "cidr": "10.0.32.0/19", "addresses": 8187},
        ],
        "public": [
            {"zone": "us-east-1a", "cidr": "10.0.255.0/24", "addresses": 251},
            {"zone": "us-east-1b", "cidr": "10.0.254.0/24", "addresses": 251},
        ],
    }


@given(
    base=st.integers(min_value=0, max_value=255),
    vpc=st.integers(min_value=16, max_value=22),
    more=st.tuples(st.integers(2, 6), st.integers(2, 6)),
    count=st.integers(min_value=1, max_value=len(ZONES)),
)
def test_subnets_lie_in_the_vpc_and_never_overlap(base, vpc, more, count):
    block = ipaddress.IPv4Network((int(ipaddress.IPv4Address(f"10.{base}.0.0")), vpc))
    private, public = vpc + more[0], vpc + more[1]
    try:
        layout = subnets(str(block), ZONES[:count], private_prefix=private, public_prefix=public)
    except CidrError:
        # Refused only where the addresses really do not suffice.
        assert count * (2 ** (32 - private) + 2 ** (32 - public)) > block.num_addresses
        return
    laid = [ipaddress.IPv4Network(s["cidr"]) for s in layout["private"] + layout["public"]]
    assert len(laid) == 2 * count
    assert all(subnet.subnet_of(block) for subnet in laid)
    assert not any(one.overlaps(other) for one, other in combinations(laid, 2))


@given(count=st.integers(min_value=1, max_value=len(ZONES) - 1))
def test_a_new_zone_moves_nothing(count):
    fewer = subnets("10.0.0.0/16", ZONES[:count])
    more = subnets("10.0.0.0/16", ZONES[: count + 1])
    assert more["private"][:count] == fewer["private"]
    assert more["public"][:count] == fewer["public"]


@pytest.mark.parametrize(
    ("cidr", "zones", "options", "told"),
    [
        ("10.0.0.0/8", ZONES[:2], {}, "from /16 to /28"),
        ("10.0.0.1/16", ZONES[:2], {}, "host bits"),
        ("nonsense", ZONES[:2], {}, "write it like 10.0.0.0/16"),
        ("10.0.0.0/16", [], {}, "at least two"),
        ("10.0.0.0/16", ["a", "a"], {}, "named twice: a"),
        ("10.0.0.0/16", ZONES[:2], {"reserved": ["10.0.128.0/17"]}, "overlaps 10.0.128.0/17"),
        ("10.0.0.0/16", ZONES[:3], {"private_prefix": 17}, "need"),
        ("10.0.0.0/24", ZONES[:2], {"private_prefix": 20}, "choose /24 to /28"),
        (
            "10.0.0.0/24",
            ZONES[:2],
            {"pools": [{"max_size": 10, "max_pods": 29}]},
            "the pools may need 290",
        ),
    ],
)
def test_refused_with_the_remedy(cidr, zones, options, told):
    with pytest.raises(CidrError, match=told):
        subnets(cidr, zones, **options)


POOLS = [
    {"name": "system", "instance_types": ["m6i.large"]},
    {"name": "shared", "instance_types": ["g4dn.xlarge", "g5.xlarge"]},
]


def test_zones_offer_a_type_of_every_pool():
    # us-east-1e sells no g4dn.
    offerings = {
        "m6i.large": ["us-east-1e", "us-east-1b", "us-east-1a", "us-east-1c"],
        "g4dn.xlarge": ["us-east-1a", "us-east-1c"],
        "g5.xlarge": ["us-east-1b"],
    }
    assert choose_zones(POOLS, offerings, 2) == ["us-east-1a", "us-east-1b"]
    assert choose_zones(POOLS, offerings, 9) == ["us-east-1a", "us-east-1b", "us-east-1c"]


@pytest.mark.parametrize("pools", [POOLS, []])
def test_less_than_two_zones_is_refused(pools):
    with pytest.raises(CidrError, match="EKS needs two zones"):
        choose_zones(pools, {"m6i.large": ["us-east-1a"], "g5.xlarge": ["us-east-1a"]}, 3)


def there(*placed):
    """Private subnets as ec2_vpc_subnet_info returns them."""
    return [
        {"subnet_id": f"subnet-{index}", "cidr_block": cidr, "availability_zone": zone}
        for index, (cidr, zone) in enumerate(placed)
    ]


B_THEN_C = there(("10.0.32.0/19", "us-east-1c"), ("10.0.0.0/19", "us-east-1b"))
EVERYWHERE = {"m6i.large": ZONES, "g5.xlarge": ZONES}


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (2, ["us-east-1b", "us-east-1c"]),
        (3, ["us-east-1b", "us-east-1c", "us-east-1a"]),
        # A subnet that is there is never left out: node groups stand in it.
        (1, ["us-east-1b", "us-east-1c"]),
    ],
)
def test_the_zones_of_our_subnets_stay_and_new_ones_are_appended(count, expected):
    # us-east-1a was not offered when the subnets were made, and now it is.
    assert choose_zones(POOLS, EVERYWHERE, count, existing=B_THEN_C) == expected


def test_an_offering_that_ends_moves_no_subnet():
    offerings = {"m6i.large": ["us-east-1b"], "g5.xlarge": ["us-east-1b"]}
    assert choose_zones(POOLS, offerings, 2, existing=B_THEN_C) == ["us-east-1b", "us-east-1c"]


def test_a_pool_without_a_zone_is_refused():
    offerings = {"m6i.large": ZONES, "g5.xlarge": ["us-east-1d"]}
    with pytest.raises(CidrError, match=r"^shared: no instance type .* network_zone_count"):
        choose_zones(POOLS, offerings, 2, existing=B_THEN_C)


def test_zones_that_eks_refuses_are_left_out():
    offered = ["us-east-1-atl-2a", "us-east-1a", "us-east-1b", "us-east-1e", "us-east-1f"]
    zones = [
        {"zone_name": name, "zone_id": zone_id, "zone_type": kind, "state": state}
        for name, zone_id, kind, state in (
            ("us-east-1-atl-2a", "use1-atl2-az1", "local-zone", "available"),
            ("us-east-1a", "use1-az6", "availability-zone", "impaired"),
            ("us-east-1b", "use1-az1", "availability-zone", "available"),
            ("us-east-1e", "use1-az3", "availability-zone", "available"),
            ("us-east-1f", "use1-az5", "availability-zone", "available"),
        )
    ]
    offerings = {"m6i.large": offered, "g5.xlarge": offered}
    assert choose_zones(POOLS, offerings, 9, zones=zones) == ["us-east-1b", "us-east-1f"]


@pytest.mark.parametrize(
    ("zones", "options", "told"),
    [
        (["us-east-1a", "us-east-1b"], {}, "10.0.32.0/19, us-east-1c. cannot move to us-east-1b"),
        (["us-east-1b", "us-east-1c"], {"private_prefix": 20}, "overlaps 10.0.0.0/20"),
    ],
)
def test_a_subnet_that_would_have_to_move_is_refused(zones, options, told):
    with pytest.raises(CidrError, match=told):
        subnets("10.0.0.0/16", zones, existing=B_THEN_C, **options)


def test_subnets_in_their_place_are_no_obstacle():
    layout = subnets("10.0.0.0/16", ["us-east-1b", "us-east-1c", "us-east-1a"], existing=B_THEN_C)
    assert [subnet["zone"] for subnet in layout["private"]][2] == "us-east-1a"
    # One zone fewer by hand: the third subnet stays where it is.
    subnets("10.0.0.0/16", ["us-east-1b"], existing=B_THEN_C)


def test_an_allowlist_lets_in_or_not():
    office = ["203.0.113.0/24", "2001:db8::/32"]
    assert lets_in(office, "203.0.113.9\n")
    assert lets_in(office, "2001:db8::1")
    assert not lets_in(office, "198.51.100.1")
    assert not lets_in([], "203.0.113.9")


@pytest.mark.parametrize(
    ("blocks", "address", "named"),
    [
        (["203.0.113.1/24"], "203.0.113.9", "203.0.113.1/24"),
        (["office"], "203.0.113.9", "office"),
        (["203.0.113.0/24"], "<html>", "<html>"),
    ],
)
def test_what_is_no_block_or_address_is_refused(blocks, address, named):
    with pytest.raises(CidrError, match=named):
        lets_in(blocks, address)
