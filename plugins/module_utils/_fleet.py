# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which instances are read, and which GPUs EC2 says that they have."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._errors import aws_errors
from ansible_collections.gpushare.eks.plugins.module_utils._ssm import paged

FILTER_VALUES = 200  # values of one filter of DescribeInstances
TYPES = 100  # InstanceTypes of one DescribeInstanceTypes


class Ec2:
    """The two reads of EC2 that say who is asked and what they can have; counted."""

    def __init__(self, client: Any, counts: Counter[str]) -> None:
        self._client, self._counts = client, counts

    def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        self._counts[operation] += 1
        with aws_errors("EC2 instances"):
            return getattr(self._client, operation)(**arguments)

    def instances(self, filters: dict[str, list[str]]) -> dict[str, str]:
        """{instance ID: type} of the running instances that match."""
        asked = [{"Name": key, "Values": values} for key, values in filters.items()]
        asked.append({"Name": "instance-state-name", "Values": ["running"]})
        pages = paged(
            self._call, "describe_instances", "Reservations", Filters=asked, MaxResults=1000
        )
        return {one["InstanceId"]: one["InstanceType"] for r in pages for one in r["Instances"]}

    def hardware(self, types: set[str]) -> dict[str, dict[str, int]]:
        """{type: {"gpu_count", "gpu_memory_mib"}} of NVIDIA GPUs by EC2's GpuInfo."""
        found, ordered = {}, sorted(types)
        for start in range(0, len(ordered), TYPES):
            chunk = ordered[start : start + TYPES]
            answer = self._call("describe_instance_types", InstanceTypes=chunk)
            for one in answer["InstanceTypes"]:
                gpus = (one.get("GpuInfo") or {}).get("Gpus") or []
                gpus = [gpu for gpu in gpus if gpu.get("Manufacturer", "").lower() == "nvidia"]
                sizes = [gpu["MemoryInfo"]["SizeInMiB"] for gpu in gpus]
                found[one["InstanceType"]] = {
                    "gpu_count": sum(gpu["Count"] for gpu in gpus),
                    "gpu_memory_mib": max(sizes, default=0),
                }
        return found


def select(ec2: Ec2, params: dict[str, Any]) -> tuple[dict[str, str | None], dict[str, Any]]:
    """Who is to be read -> ({instance ID: type or None}, {type: hardware})."""
    if params["instance_ids"] is not None:
        named = list(dict.fromkeys(params["instance_ids"]))
        running: dict[str, str] = {}
        for start in range(0, len(named), FILTER_VALUES):
            running |= ec2.instances({"instance-id": named[start : start + FILTER_VALUES]})
        return {one: running.get(one) for one in named}, ec2.hardware(set(running.values()))
    if params["cluster_name"]:
        filters = {"tag:eks:cluster-name": [params["cluster_name"]]}
        if params["nodegroups"]:
            filters["tag:eks:nodegroup-name"] = params["nodegroups"]
    else:
        given = params["filters"].items()
        filters = {k: [str(x) for x in v] if isinstance(v, list) else [str(v)] for k, v in given}
    running = ec2.instances(filters)
    hardware = ec2.hardware(set(running.values()))
    chosen = {k: v for k, v in running.items() if hardware.get(v, {}).get("gpu_count")}
    return chosen, hardware
