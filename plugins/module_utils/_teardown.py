# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pure: what of a VPC of ours can go, what stays, and because of what that is not ours.

Whoever has a network interface in use there lives in the VPC: then the whole network stays. What is
not in use (a security group, a free interface, a route table) holds only what AWS ties to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._ours import BALANCER, is_ours

Item = Mapping[str, Any]
_ENDED = ("deleting", "deleted", "failed")


def teardown(
    vpc: str,
    cluster_name: str,
    *,
    endpoints: list[Item],
    nats: list[Item],
    interfaces: list[Item],
    groups: list[Item],
    subnets: list[Item],
    tables: list[Item],
    ending: list[Item] | None = None,
) -> dict[str, Any]:
    """{kind: what can go}, with "going" (interfaces that end by themselves), "foreign", "stays".

    ending: {"kind", "id"} of what goes before the network; in check mode it is still there.
    """
    leaves = {one["id"] for one in ending or []}
    leaves |= {one["name"] for one in ending or [] if one["kind"] == "load balancer"}
    interfaces = [one for one in interfaces if not _leaves(one, leaves)]
    groups = [one for one in groups if one["group_id"] not in leaves]
    endpoints = [one for one in endpoints if one.get("state") not in _ENDED]
    nats = [one for one in nats if one.get("state") not in _ENDED]
    made = _made_by(endpoints, nats, cluster_name)
    foreign = [one for one in interfaces if not _is(one, cluster_name) and _id(one) not in made]
    users = [_interface(one) for one in foreign if _used(one)]
    others = _others(endpoints, nats, cluster_name)
    custom = [one for one in groups if one["group_name"] != "default"]
    strange = [f"security group {one['group_id']} ({one['group_name']})"
               for one in custom if not _is(one, cluster_name)]  # fmt: skip
    strange += [f"subnet {one['subnet_id']}" for one in subnets if not _is(one, cluster_name)]
    strange += [f"route table {_table_id(one)}" for one in tables
                if not (_is(one, cluster_name) or _main(one) or _unfinished(one))]  # fmt: skip
    named = sorted({*map(_interface, foreign), *others.values(), *strange})
    nothing = dict.fromkeys(
        ("endpoints", "nats", "interfaces", "going", "groups", "tables", "subnets"), ()
    )
    if users:
        stays = [f"VPC {vpc} with its network: {', '.join(sorted(users))} is in use in it"]
        plan = {key: list(value) for key, value in nothing.items()}
        return {**plan, "gateway": False, "vpc": False, "foreign": named, "stays": stays}

    holders = {_id(one): _interface(one) for one in foreign} | {
        eni: title for eni, title in made.items() if title in others.values()
    }
    stays, free_groups = _groups(custom, groups, interfaces, holders, cluster_name)
    held, free_subnets = _subnets(subnets, interfaces, holders, cluster_name)
    stays += held
    public = [
        holders[_id(one)]
        for one in interfaces
        if _id(one) in holders and (one.get("association") or {}).get("public_ip")
    ]
    if public:
        stays.append(f"the internet gateway of VPC {vpc}: {public[0]} has a public address")
    if named or stays:
        stays.append(f"VPC {vpc}: {(named or stays)[0]} is in it")
    return {
        "endpoints": [one["vpc_endpoint_id"] for one in endpoints if _is(one, cluster_name)],
        "nats": [one["nat_gateway_id"] for one in nats if _is(one, cluster_name)],
        "interfaces": [_id(one) for one in interfaces if _is(one, cluster_name)],
        "going": sorted(set(made) - set(holders)),
        "groups": free_groups,
        "tables": [
            _table_id(one)
            for one in tables
            if not _main(one) and (_is(one, cluster_name) or _unfinished(one))
        ],
        "subnets": free_subnets,
        "gateway": not public,
        "vpc": not (named or stays),
        "foreign": named,
        "stays": stays,
    }


def _made_by(endpoints: list[Item], nats: list[Item], cluster_name: str) -> dict[str, str]:
    """{interface: the gateway or endpoint that it belongs to}."""
    found = {
        eni: f"endpoint {one['vpc_endpoint_id']}"
        for one in endpoints
        for eni in one.get("network_interface_ids") or []
    }
    for one in nats:
        for address in one.get("nat_gateway_addresses") or []:
            if address.get("network_interface_id"):
                found[address["network_interface_id"]] = f"NAT gateway {one['nat_gateway_id']}"
    return found


def _others(endpoints: list[Item], nats: list[Item], cluster_name: str) -> dict[str, str]:
    """{id: title} of the gateways and endpoints that are not ours."""
    rows = [(one["vpc_endpoint_id"], "endpoint", one) for one in endpoints]
    rows += [(one["nat_gateway_id"], "NAT gateway", one) for one in nats]
    return {key: f"{kind} {key}" for key, kind, one in rows if not _is(one, cluster_name)}


def _groups(
    custom: list[Item],
    groups: list[Item],
    interfaces: list[Item],
    holders: Mapping[str, str],
    cluster_name: str,
) -> tuple[list[str], list[str]]:
    ours = {one["group_id"] for one in custom if _is(one, cluster_name)}
    stays, free = [], []
    for group in sorted(ours):
        users = [
            holders[_id(one)]
            for one in interfaces
            if _id(one) in holders and group in {g["group_id"] for g in one.get("groups") or []}
        ]
        users += [
            f"a rule of security group {one['group_id']}"
            for one in groups
            if one["group_id"] not in ours and group in _named(one)
        ]
        if users:
            stays.append(f"security group {group}: used by {', '.join(users)}")
        else:
            free.append(group)
    return stays, free


def _named(group: Item) -> set[str]:
    """The groups that a group's rules name."""
    rules = [*(group.get("ip_permissions") or []), *(group.get("ip_permissions_egress") or [])]
    return {
        pair.get("group_id", "") for rule in rules for pair in rule.get("user_id_group_pairs") or []
    }


def _subnets(
    subnets: list[Item], interfaces: list[Item], holders: Mapping[str, str], cluster_name: str
) -> tuple[list[str], list[str]]:
    stays, free = [], []
    for subnet in subnets:
        if not _is(subnet, cluster_name):
            continue
        users = [
            holders[_id(one)]
            for one in interfaces
            if _id(one) in holders and one.get("subnet_id") == subnet["subnet_id"]
        ]
        if users:
            stays.append(f"subnet {subnet['subnet_id']}: {', '.join(users)} is in it")
        else:
            free.append(subnet["cidr_block"])
    return stays, free


def _is(one: Item, cluster_name: str) -> bool:
    tags = one.get("tags") or {}
    if not isinstance(tags, Mapping):
        tags = {tag["key"]: tag["value"] for tag in tags}
    return is_ours(tags, cluster_name)


def _id(interface: Item) -> str:
    return interface["network_interface_id"]


def _interface(one: Item) -> str:
    return f"network interface {_id(one)}" + (
        f" ({one['description']})" if one.get("description") else ""
    )


def _leaves(interface: Item, leaves: set[str]) -> bool:
    """Whether it belongs to an instance, a load balancer or the control plane that goes before."""
    balancer = BALANCER.match(interface.get("description") or "")
    owners = {
        _id(interface),
        (interface.get("attachment") or {}).get("instance_id"),
        balancer[1] if balancer else None,
        (interface.get("description") or "").removeprefix("Amazon EKS "),
    }
    return bool(owners & leaves)


def _used(interface: Item) -> bool:
    return bool(
        interface.get("status") == "in-use"
        or interface.get("requester_managed")
        or (interface.get("attachment") or {}).get("instance_id")
    )


def _table_id(table: Item) -> str:
    return table.get("route_table_id") or table["id"]


def _associations(table: Item) -> Iterable[Item]:
    return table.get("associations") or []


def _main(table: Item) -> bool:
    return any(one.get("main") for one in _associations(table))


def _unfinished(table: Item) -> bool:
    """amazon.aws makes a table before it tags it: a run that was killed leaves one without all."""
    routes = [one for one in table.get("routes") or [] if one.get("gateway_id") != "local"]
    return not (table.get("tags") or list(_associations(table)) or routes)
