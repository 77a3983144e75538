# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Thin face of module_utils/_cidr.py, _endpoints.py, _existing_network.py, _ours.py and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.gpushare.eks.plugins.plugin_utils.faces import call


def subnets(cidr: str, zones: list[str], **options: Any) -> dict[str, Any]:
    """See _cidr.subnets."""
    return call("subnets", "_cidr", "subnets", cidr, zones, **options)


def choose_zones(
    pools: list[dict[str, Any]], offerings: dict[str, list[str]], count: int, **options: Any
) -> list[str]:
    """See _cidr.choose_zones."""
    return call("choose_zones", "_cidr", "choose_zones", pools, offerings, count, **options)


def endpoint_services(region: str, pools: list[dict[str, Any]], **options: Any) -> list[str]:
    """See _endpoints.services."""
    return call("endpoint_services", "_endpoints", "services", region, pools, **options)


def endpoint_plan(
    endpoints: list[dict[str, Any]], wanted: list[str], cluster_name: str, **options: Any
) -> dict[str, list[Any]]:
    """See _endpoints.plan."""
    return call("endpoint_plan", "_endpoints", "plan", endpoints, wanted, cluster_name, **options)


def endpoint_place(
    missing: list[dict[str, Any]], offered: list[dict[str, Any]], subnets: dict[str, str]
) -> list[dict[str, Any]]:
    """See _endpoints.place."""
    return call("endpoint_place", "_endpoints", "place", missing, offered, subnets)


def existing_network(
    vpcs: list[dict[str, Any]],
    subnets: list[dict[str, Any]],
    route_tables: list[dict[str, Any]],
    endpoints: list[dict[str, Any]],
    **options: Any,
) -> dict[str, Any]:
    """See _existing_network.existing_network."""
    return call(
        "existing_network",
        "_existing_network",
        "existing_network",
        vpcs,
        subnets,
        route_tables,
        endpoints,
        **options,
    )


def lets_in(blocks: list[str], address: str) -> bool:
    """See _cidr.lets_in."""
    return call("lets_in", "_cidr", "lets_in", blocks, address)


def ours(objects: list[dict[str, Any]], cluster_name: str) -> list[dict[str, Any]]:
    """See _ours.ours."""
    return call("ours", "_ours", "ours", objects, cluster_name)


def teardown(vpc: str, cluster_name: str, **everything: Any) -> dict[str, Any]:
    """See _teardown.teardown."""
    return call("teardown", "_teardown", "teardown", vpc, cluster_name, **everything)


class FilterModule:
    """Filters about networks."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "choose_zones": choose_zones,
            "endpoint_place": endpoint_place,
            "endpoint_plan": endpoint_plan,
            "endpoint_services": endpoint_services,
            "existing_network": existing_network,
            "lets_in": lets_in,
            "ours": ours,
            "subnets": subnets,
            "teardown": teardown,
        }
