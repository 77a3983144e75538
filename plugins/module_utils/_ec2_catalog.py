# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The catalog as EC2 tells it now: types with their GPUs, the zones that offer them, quotas.

The same shape as _catalog.CATALOG, so that derive() takes either.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._aws import client
from ansible_collections.gpushare.eks.plugins.module_utils._catalog import CATALOG
from ansible_collections.gpushare.eks.plugins.module_utils._ec2_quotas import read_quotas
from ansible_collections.gpushare.eks.plugins.module_utils._errors import (
    AccessDenied,
    InvalidInput,
    Unreachable,
    aws_errors,
)

# DescribeInstanceTypes answers at most 100 types a page.
_PAGE = 100
# Where no way leads to Service Quotas, that shall show in seconds.
_QUOTA_ATTEMPTS = 3


def catalog(module: Any) -> dict[str, Any]:
    """What the module ec2_catalog_info returns."""
    params = module.params
    names = sorted(set(params["instance_types"]))
    ec2 = client(module, "ec2")
    types = instance_types(ec2, names, module.region)
    found = {
        "schema": 1,
        "as_of": datetime.now(tz=UTC).date().isoformat(),
        "source": f"EC2 DescribeInstanceTypes in {module.region}",
        "instance_types": types,
        # EC2 does not know how much of a GPU's memory a pod can use.
        "gpu_models": CATALOG["gpu_models"],
        "offerings": offerings(ec2, names, params["zones"]),
        "quotas": {},
    }
    unread = None
    if params["quotas"]:
        service = client(module, "service-quotas", max_attempts=_QUOTA_ATTEMPTS)
        try:
            found["quotas"] = read_quotas(
                service, ec2, types, params["cluster_name"], lambda more: instance_types(ec2, more)
            )
        except (AccessDenied, Unreachable) as error:
            unread = error.as_dict()
            module.warn(
                f"The quotas of the account are not known, so nothing is said of them: {error}"
            )
    return {"changed": False, "catalog": found, "quotas_unread": unread}


def instance_types(ec2: Any, names: list[str], region: str | None = None) -> dict[str, Any]:
    """{type: {"vcpus", "memory_mib", "architecture", "max_pods", "gpus"}}; unknown ones refused."""
    found = {}
    with aws_errors("EC2 instance types"):
        for batch in _batches(names):
            pages = ec2.get_paginator("describe_instance_types").paginate(
                Filters=[{"Name": "instance-type", "Values": batch}],
                PaginationConfig={"PageSize": _PAGE},
            )
            for page in pages:
                for row in page["InstanceTypes"]:
                    found[row["InstanceType"]] = instance_type(row)
    unknown = [name for name in names if name not in found]
    if unknown:
        raise InvalidInput(
            f"EC2 has no instance type {', '.join(unknown)} in {region or 'this region'}",
            object="EC2 instance types",
            remedy="correct the name, or choose a region that has it",
            field="instance_types",
            value=unknown,
        )
    return found


def instance_type(row: dict[str, Any]) -> dict[str, Any]:
    """One row of DescribeInstanceTypes in the catalog's shape."""
    return {
        "vcpus": row["VCpuInfo"]["DefaultVCpus"],
        "memory_mib": row["MemoryInfo"]["SizeInMiB"],
        "architecture": row["ProcessorInfo"]["SupportedArchitectures"][0],
        "max_pods": max_pods(row["NetworkInfo"]),
        "gpus": [
            {
                "name": gpu["Name"],
                "manufacturer": gpu["Manufacturer"],
                "count": gpu["Count"],
                "memory_mib": gpu["MemoryInfo"]["SizeInMiB"],
            }
            for gpu in (row.get("GpuInfo") or {}).get("Gpus", [])
        ],
    }


def max_pods(network: dict[str, Any]) -> int:
    """ENIs x (addresses - 1) + 2; the VPC CNI uses the default network card's interfaces only."""
    card = network.get("DefaultNetworkCardIndex", 0)
    enis = network["MaximumNetworkInterfaces"]
    for entry in network.get("NetworkCards", []):
        if entry["NetworkCardIndex"] == card:
            enis = entry["MaximumNetworkInterfaces"]
    return enis * (network["Ipv4AddressesPerInterface"] - 1) + 2


def offerings(ec2: Any, names: list[str], zones: Iterable[str] | None) -> dict[str, list[str]]:
    """{type: [zones that offer it]}, of the named zones only where some are named."""
    found: dict[str, set[str]] = {name: set() for name in names}
    with aws_errors("EC2 instance type offerings"):
        for batch in _batches(names):
            pages = ec2.get_paginator("describe_instance_type_offerings").paginate(
                LocationType="availability-zone",
                Filters=[{"Name": "instance-type", "Values": batch}],
            )
            for page in pages:
                for row in page["InstanceTypeOfferings"]:
                    found[row["InstanceType"]].add(row["Location"])
    wanted = set(zones or [])
    return {name: sorted(at & wanted if wanted else at) for name, at in found.items()}


def _batches(names: list[str]) -> list[list[str]]:
    return [names[start : start + _PAGE] for start in range(0, len(names), _PAGE)]
