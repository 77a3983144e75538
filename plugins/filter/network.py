# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Thin face of module_utils/_cidr.py, _endpoints.py, _existing_network.py and _ours.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gpushare.eks.plugins.module_utils._cidr import CidrError
from ansible_collections.gpushare.eks.plugins.module_utils._cidr import (
    choose_zones as _choose_zones,
)
from ansible_collections.gpushare.eks.plugins.module_utils._cidr import lets_in as _lets_in
from ansible_collections.gpushare.eks.plugins.module_utils._cidr import subnets as _subnets
from ansible_collections.gpushare.eks.plugins.module_utils._endpoints import EndpointError
from ansible_collections.gpushare.eks.plugins.module_utils._endpoints import place as _place
from ansible_collections.gpushare.eks.plugins.module_utils._endpoints import plan as _plan
from ansible_collections.gpushare.eks.plugins.module_utils._endpoints import services as _services
from ansible_collections.gpushare.eks.plugins.module_utils._existing_network import (
    ExistingNetworkError,
)
from ansible_collections.gpushare.eks.plugins.module_utils._existing_network import (
    existing_network as _existing_network,
)
from ansible_collections.gpushare.eks.plugins.module_utils._ours import ours


def subnets(cidr: str, zones: list[str], **options: Any) -> dict[str, Any]:
    """See _cidr.subnets."""
    try:
        return _subnets(cidr, zones, **options)
    except CidrError as problem:
        raise AnsibleFilterError(f"gpushare.eks.subnets: {problem}") from problem


def choose_zones(
    pools: list[dict[str, Any]], offerings: dict[str, list[str]], count: int, **options: Any
) -> list[str]:
    """See _cidr.choose_zones."""
    try:
        return _choose_zones(pools, offerings, count, **options)
    except CidrError as problem:
        raise AnsibleFilterError(f"gpushare.eks.choose_zones: {problem}") from problem


def lets_in(blocks: list[str], address: str) -> bool:
    """See _cidr.lets_in."""
    try:
        return _lets_in(blocks, address)
    except CidrError as problem:
        raise AnsibleFilterError(f"gpushare.eks.lets_in: {problem}") from problem


def endpoint_services(region: str, pools: list[dict[str, Any]], **options: Any) -> list[str]:
    """See _endpoints.services."""
    try:
        return _services(region, pools, **options)
    except EndpointError as problem:
        raise AnsibleFilterError(f"gpushare.eks.endpoint_services: {problem}") from problem


def endpoint_plan(
    endpoints: list[dict[str, Any]], wanted: list[str], cluster_name: str, **options: Any
) -> dict[str, list[Any]]:
    """See _endpoints.plan."""
    try:
        return _plan(endpoints, wanted, cluster_name, **options)
    except EndpointError as problem:
        raise AnsibleFilterError(f"gpushare.eks.endpoint_plan: {problem}") from problem


def endpoint_place(
    missing: list[dict[str, Any]], offered: list[dict[str, Any]], subnets: dict[str, str]
) -> list[dict[str, Any]]:
    """See _endpoints.place."""
    try:
        return _place(missing, offered, subnets)
    except EndpointError as problem:
        raise AnsibleFilterError(f"gpushare.eks.endpoint_place: {problem}") from problem


def existing_network(
    vpcs: list[dict[str, Any]],
    subnets: list[dict[str, Any]],
    route_tables: list[dict[str, Any]],
    endpoints: list[dict[str, Any]],
    **options: Any,
) -> dict[str, Any]:
    """See _existing_network.existing_network."""
    try:
        return _existing_network(vpcs, subnets, route_tables, endpoints, **options)
    except ExistingNetworkError as problem:
        raise AnsibleFilterError(f"gpushare.eks.existing_network: {problem}") from problem


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
        }
