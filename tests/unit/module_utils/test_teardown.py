# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What of a VPC can go: shapes as the *_info modules of amazon.aws return them."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils._teardown import teardown

OURS = {"gpushare.eks/cluster": "one"}
WHOLE = {
    "endpoints": [
        {
            "vpc_endpoint_id": "vpce-1",
            "state": "available",
            "tags": [{"key": "gpushare.eks/cluster", "value": "one"}],
            "network_interface_ids": ["eni-vpce"],
        }
    ],
    "nats": [
        {
            "nat_gateway_id": "nat-1",
            "state": "available",
            "tags": OURS,
            "nat_gateway_addresses": [{"network_interface_id": "eni-nat"}],
        },
        {"nat_gateway_id": "nat-0", "state": "deleted", "tags": {}},
    ],
    "interfaces": [
        {"network_interface_id": "eni-vpce", "status": "in-use", "subnet_id": "subnet-1"},
        {
            "network_interface_id": "eni-nat",
            "status": "in-use",
            "subnet_id": "subnet-2",
            "association": {"public_ip": "192.0.2.1"},
        },
        {
            "network_interface_id": "eni-cni",
            "status": "available",
            "subnet_id": "subnet-1",
            "tags": {"cluster.k8s.amazonaws.com/name": "one"},
        },
    ],
    "groups": [
        {"group_id": "sg-default", "group_name": "default", "tags": {}},
        {"group_id": "sg-1", "group_name": "one-endpoints", "tags": OURS},
    ],
    "subnets": [
        {"subnet_id": "subnet-1", "cidr_block": "10.0.0.0/24", "tags": OURS},
        {"subnet_id": "subnet-2", "cidr_block": "10.0.1.0/24", "tags": OURS},
    ],
    "tables": [
        {"route_table_id": "rtb-main", "tags": {}, "associations": [{"main": True}]},
        {"route_table_id": "rtb-1", "tags": OURS, "associations": [{"main": False}]},
    ],
}


def plan(ending=None, **more):
    """The plan for the VPC with `more` objects in it."""
    everything = copy.deepcopy(WHOLE)
    for kind, items in more.items():
        everything[kind] += items
    return teardown("vpc-1", "one", **everything, ending=ending)


def interface(**more):
    return {"network_interface_id": "eni-x", "subnet_id": "subnet-1", "status": "available", **more}


def test_a_vpc_of_ours_alone_goes_whole():
    found = plan()
    assert found == {
        "endpoints": ["vpce-1"],
        "nats": ["nat-1"],
        "interfaces": ["eni-cni"],
        "going": ["eni-nat", "eni-vpce"],
        "groups": ["sg-1"],
        "tables": ["rtb-1"],
        "subnets": ["10.0.0.0/24", "10.0.1.0/24"],
        "gateway": True,
        "vpc": True,
        "foreign": [],
        "stays": [],
    }


@pytest.mark.parametrize(
    ("kind", "item", "title"),
    [
        (
            "groups",
            {"group_id": "sg-x", "group_name": "theirs", "tags": {"team": "x"}},
            "security group sg-x (theirs)",
        ),
        ("subnets", {"subnet_id": "subnet-x", "cidr_block": "10.0.9.0/24"}, "subnet subnet-x"),
        ("tables", {"route_table_id": "rtb-x", "tags": {"a": "b"}}, "route table rtb-x"),
    ],
)
def test_what_others_have_without_using_the_network_holds_the_vpc_alone(kind, item, title):
    found, whole = plan(**{kind: [item]}), plan()
    assert found["foreign"] == [title]
    assert found["stays"] == [f"VPC vpc-1: {title} is in it"]
    assert {**found, "foreign": [], "stays": [], "vpc": True} == whole


def test_a_free_interface_of_others_holds_its_subnet_and_group():
    found = plan(interfaces=[interface(description="theirs", groups=[{"group_id": "sg-1"}])])
    title = "network interface eni-x (theirs)"
    assert found["foreign"] == [title]
    assert found["stays"] == [
        f"security group sg-1: used by {title}",
        f"subnet subnet-1: {title} is in it",
        f"VPC vpc-1: {title} is in it",
    ]
    assert (found["groups"], found["subnets"]) == ([], ["10.0.1.0/24"])
    assert (found["nats"], found["gateway"], found["vpc"]) == (["nat-1"], True, False)


def test_a_public_address_of_others_holds_the_internet_gateway():
    found = plan(interfaces=[interface(association={"public_ip": "192.0.2.9"})])
    assert found["gateway"] is False
    assert "internet gateway of VPC vpc-1: network interface eni-x" in found["stays"][1]


@pytest.mark.parametrize(
    "more",
    [
        {"status": "in-use", "description": "Amazon EKS two"},
        {"attachment": {"instance_id": "i-x"}},
        {"requester_managed": True, "description": "ELB net/theirs/1"},
    ],
)
def test_where_others_live_the_network_stays_whole(more):
    found = plan(interfaces=[interface(**more)])
    kept = ("endpoints", "nats", "interfaces", "going", "groups", "tables", "subnets")
    assert [found[key] for key in kept] == [[]] * len(kept)
    assert (found["gateway"], found["vpc"]) == (False, False)
    assert "eni-x" in found["stays"][0]
    assert "is in use in it" in found["stays"][0]


@pytest.mark.parametrize(
    ("ending", "more"),
    [
        ({"kind": "cluster", "id": "one"}, {"description": "Amazon EKS one"}),
        ({"kind": "instance", "id": "i-1"}, {"attachment": {"instance_id": "i-1"}}),
        ({"kind": "classic load balancer", "id": "web"}, {"description": "ELB web"}),
        (
            {"kind": "load balancer", "id": "arn:x", "name": "fast"},
            {"description": "ELB net/fast/50dc6c495c0c9188"},
        ),
    ],
)
def test_what_goes_before_the_network_holds_nothing_in_a_plan(ending, more):
    found = plan(interfaces=[interface(status="in-use", **more)], ending=[ending])
    assert found == plan()


def test_a_rule_of_others_holds_our_group():
    rule = {"user_id_group_pairs": [{"group_id": "sg-1"}]}
    theirs = {"group_id": "sg-x", "group_name": "x", "tags": {}, "ip_permissions": [rule]}
    found = plan(groups=[theirs])
    assert found["groups"] == []
    assert found["stays"][0] == "security group sg-1: used by a rule of security group sg-x"


def test_gateways_and_endpoints_of_others_hold_their_subnets():
    nat = {
        "nat_gateway_id": "nat-x",
        "state": "available",
        "tags": {},
        "nat_gateway_addresses": [{"network_interface_id": "eni-x"}],
    }
    found = plan(nats=[nat], interfaces=[interface(status="in-use")])
    assert found["foreign"] == ["NAT gateway nat-x"]
    assert found["subnets"] == ["10.0.1.0/24"]
    assert "eni-x" not in found["going"]


def test_a_route_table_that_a_killed_run_left_without_tags_is_ours():
    local = {"gateway_id": "local", "destination_cidr_block": "10.0.0.0/16"}
    bare = {"route_table_id": "rtb-x", "tags": {}, "associations": [], "routes": [local]}
    assert plan(tables=[bare])["tables"] == ["rtb-1", "rtb-x"]
    used = {**bare, "routes": [local, {"gateway_id": "igw-1"}]}
    assert plan(tables=[used])["foreign"] == ["route table rtb-x"]
