"""Patching alone, by size: 100, 1,000 and 5,000 Node objects, their readings given.

Needs a running lab (`. .lab/env`). The Nodes are made at the API server, without instances behind
them; each size publishes a resource of its own, so that every Node is patched in every run.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "collections"))
sys.path.insert(0, str(Path(__file__).parent))
import _bench
from _agents import Admin
from _cluster import HEAD, TYPE, Cluster, guard, play

NAME, CIDR = "bench-nodes", "10.76.0.0/16"
SIZES = [int(size) for size in os.environ.get("GPUSHARE_BENCH_OBJECTS", "100 1000 5000").split()]
PUBLISH = (
    HEAD
    + f"""
  tasks:
    - gpushare.eks.node_capacity:
        cluster_name: {NAME}
        resource: "{{{{ resource }}}}"
        readings: "{{{{ lookup('ansible.builtin.file', readings) | from_json }}}}"
        timeout: 300
      register: done
    - ansible.builtin.debug:
        msg: "FIGURES {{{{ done.counts | to_json }}}}"
"""
)
GPU = {
    "index": 0, "uuid": "GPU-1", "name": "Tesla T4", "cc": "7.5", "total_mib": 15360,
    "reserved_mib": 450, "used_mib": 0, "mig": False, "error": None,
}  # fmt: skip


def instance_id(number: int) -> str:
    return f"i-{number:017x}"


def node(number: int) -> dict[str, Any]:
    """A Node as a kubelet registers it, with what makes it large: 40 images."""
    capacity = {"cpu": "4", "memory": "16Gi", "pods": "29"}
    images = [
        {"names": [f"registry.example/image-{i}@sha256:{i:064x}"], "sizeBytes": 10**8 + i}
        for i in range(40)
    ]
    return {
        "metadata": {
            "name": f"node-{number}",
            "labels": {"node.kubernetes.io/instance-type": TYPE},
        },
        "spec": {"providerID": f"aws:///us-east-1a/{instance_id(number)}"},
        "status": {"capacity": capacity, "allocatable": capacity, "images": images},
    }


def reading(number: int) -> dict[str, Any]:
    """A row of gpu_capacity_info."""
    probe = {
        "schema": 1, "boot_id": f"{number:08x}-0000-0000-0000-000000000000",
        "instance_id": instance_id(number), "time": "2026-11-21T12:00:00Z",
        "driver": "580.105.08", "cuda": "13.0", "gpus": [GPU], "error": None,
    }  # fmt: skip
    return {
        "instance_id": instance_id(number), "instance_type": TYPE,
        "hardware": {"gpu_count": 1, "gpu_memory_mib": 16384}, "outcome": "Success",
        "error": None, "reading": probe, "gpus": [{**GPU, "usable_mib": 14910}],
    }  # fmt: skip


def main() -> None:
    guard()
    made, table = Cluster(NAME, 0, CIDR), []
    made.remove()
    with tempfile.TemporaryDirectory() as folder:
        try:
            made.build()
            admin, there = Admin(NAME, Path(folder)), 0
            for size in SIZES:
                with ThreadPoolExecutor(8) as pool:
                    answers = pool.map(
                        lambda number: admin.request("POST", "/api/v1/nodes", json=node(number)),
                        range(there, size),
                    )
                    for answer in answers:
                        answer.raise_for_status()
                there = size
                rows = Path(folder) / "readings.json"
                rows.write_text(json.dumps([reading(number) for number in range(size)]))
                resource = f"bench.example/gpu-memory-{size}"
                first, counts = play(Path(folder), PUBLISH, readings=str(rows), resource=resource)
                again, second = play(Path(folder), PUBLISH, readings=str(rows), resource=resource)
                print(f"{size} Node objects: {first:.1f} s; requests {counts}")
                limit = 25.0 if size == 5000 else None
                _bench.record(f"nodes_{size}_wall", first, "s", at_most=limit)
                _bench.record(f"nodes_{size}_lists", counts["list"], "requests", at_most=1)
                _bench.record(
                    f"nodes_{size}_patches",
                    counts["patch"],
                    "requests",
                    at_most=size,
                    at_least=size,
                )
                _bench.record(f"nodes_{size}_again_patches", second["patch"], "requests", at_most=0)
                table.append((size, first, again))
        finally:
            made.remove()
    print("\n nodes   first s   again s   ms for each node")
    for size, first, again in table:
        print(f"{size:>6}   {first:>7.1f}   {again:>7.1f}   {first / size * 1000:.1f}")


if __name__ == "__main__":
    main()
