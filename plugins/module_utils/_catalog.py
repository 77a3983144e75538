# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The dated table of instance types and GPU models that planning uses without AWS.

`CATALOG` has the shape that the module ec2_catalog_info returns:
`{"schema", "as_of", "source", "instance_types": {type: {"vcpus", "memory_mib", "architecture",
"max_pods", "gpus": [{"name", "manufacturer", "count", "memory_mib"}]}}, "gpu_models": {name:
{"total_mib", "usable_mib", "compute_capability", "mig"}}}`.

Instance types: EC2's DescribeInstanceTypes as recorded by moto 5.2.5; `python tools/catalog.py`
prints the rows anew. `max_pods` is ENIs x (addresses - 1) + 2.

GPU models: EC2 does not know what a pod can use, so this is always ours. `total_mib` is what
nvidia-smi shows (T4, L4, A10G, L40S, A100, H100: modal-client pull request 2797; A10G and L4 also
aws-cli issue 8970; the others are customary figures that we have not seen on a machine). It decides
nothing by itself: node_capacity refuses a node that has less, with both numbers. `usable_mib` is
97 % of it rounded down to 512 MiB: less than what the driver leaves wherever we know the reserve
(T4: about 450 of 15360 MiB, KAI-Scheduler issue 2212), so that the number promised before a node
exists is one that NVML's total - reserved keeps. A pool may override it.
"""

from __future__ import annotations

from typing import Any

AS_OF = "2026-11-21"
SOURCE = "EC2 DescribeInstanceTypes as recorded in moto 5.2.5; GPU models: nvidia-smi, see the text"

# type vcpus memory_mib architecture max_pods [gpus gpu_memory_mib gpu_name]
_ROWS = """
g4dn.xlarge 4 16384 x86_64 29 1 16384 T4
g4dn.2xlarge 8 32768 x86_64 29 1 16384 T4
g4dn.4xlarge 16 65536 x86_64 29 1 16384 T4
g4dn.8xlarge 32 131072 x86_64 58 1 16384 T4
g4dn.12xlarge 48 196608 x86_64 234 4 16384 T4
g4dn.16xlarge 64 262144 x86_64 58 1 16384 T4
g5.xlarge 4 16384 x86_64 58 1 22888 A10G
g5.2xlarge 8 32768 x86_64 58 1 22888 A10G
g5.4xlarge 16 65536 x86_64 234 1 22888 A10G
g5.8xlarge 32 131072 x86_64 234 1 22888 A10G
g5.12xlarge 48 196608 x86_64 737 4 22888 A10G
g5.16xlarge 64 262144 x86_64 234 1 22888 A10G
g5.24xlarge 96 393216 x86_64 737 4 22888 A10G
g5.48xlarge 192 786432 x86_64 345 8 22888 A10G
g5g.xlarge 4 8192 arm64 58 1 16384 T4g
g5g.2xlarge 8 16384 arm64 58 1 16384 T4g
g5g.4xlarge 16 32768 arm64 234 1 16384 T4g
g5g.8xlarge 32 65536 arm64 234 1 16384 T4g
g5g.16xlarge 64 131072 arm64 737 2 16384 T4g
g6.xlarge 4 16384 x86_64 58 1 22888 L4
g6.2xlarge 8 32768 x86_64 58 1 22888 L4
g6.4xlarge 16 65536 x86_64 234 1 22888 L4
g6.8xlarge 32 131072 x86_64 234 1 22888 L4
g6.12xlarge 48 196608 x86_64 234 4 22888 L4
g6.16xlarge 64 262144 x86_64 737 1 22888 L4
g6.24xlarge 96 393216 x86_64 737 4 22888 L4
g6.48xlarge 192 786432 x86_64 737 8 22888 L4
g6e.xlarge 4 32768 x86_64 58 1 45776 L40S
g6e.2xlarge 8 65536 x86_64 58 1 45776 L40S
g6e.4xlarge 16 131072 x86_64 234 1 45776 L40S
g6e.8xlarge 32 262144 x86_64 234 1 45776 L40S
g6e.12xlarge 48 393216 x86_64 292 4 45776 L40S
g6e.16xlarge 64 524288 x86_64 737 1 45776 L40S
g6e.24xlarge 96 786432 x86_64 492 4 45776 L40S
g6e.48xlarge 192 1572864 x86_64 492 8 45776 L40S
g7e.2xlarge 8 65536 x86_64 254 1 98304 RTX PRO Server 6000
g7e.4xlarge 16 131072 x86_64 506 1 98304 RTX PRO Server 6000
g7e.8xlarge 32 262144 x86_64 506 1 98304 RTX PRO Server 6000
g7e.12xlarge 48 524288 x86_64 632 2 98304 RTX PRO Server 6000
g7e.24xlarge 96 1048576 x86_64 632 4 98304 RTX PRO Server 6000
g7e.48xlarge 192 2097152 x86_64 632 8 98304 RTX PRO Server 6000
gr6.4xlarge 16 131072 x86_64 234 1 22888 L4
gr6.8xlarge 32 262144 x86_64 234 1 22888 L4
p3dn.24xlarge 96 786432 x86_64 737 8 32768 V100
p4d.24xlarge 96 1179648 x86_64 737 8 40960 A100
p4de.24xlarge 96 1179648 x86_64 737 8 81920 A100
p5.4xlarge 16 262144 x86_64 118 1 81920 H100
p5.48xlarge 192 2097152 x86_64 100 8 81920 H100
p5e.48xlarge 192 2097152 x86_64 100 8 144384 H200
p5en.48xlarge 192 2097152 x86_64 198 8 144384 H200
p6-b200.48xlarge 192 2097152 x86_64 198 8 183359 B200
c6g.medium 1 2048 arm64 8
c6g.large 2 4096 arm64 29
c6g.xlarge 4 8192 arm64 58
c6g.2xlarge 8 16384 arm64 58
c6g.4xlarge 16 32768 arm64 234
c6g.8xlarge 32 65536 arm64 234
c6i.large 2 4096 x86_64 29
c6i.xlarge 4 8192 x86_64 58
c6i.2xlarge 8 16384 x86_64 58
c6i.4xlarge 16 32768 x86_64 234
c6i.8xlarge 32 65536 x86_64 234
c7g.medium 1 2048 arm64 8
c7g.large 2 4096 arm64 29
c7g.xlarge 4 8192 arm64 58
c7g.2xlarge 8 16384 arm64 58
c7g.4xlarge 16 32768 arm64 234
c7g.8xlarge 32 65536 arm64 234
c7i.large 2 4096 x86_64 29
c7i.xlarge 4 8192 x86_64 58
c7i.2xlarge 8 16384 x86_64 58
c7i.4xlarge 16 32768 x86_64 234
c7i.8xlarge 32 65536 x86_64 234
m5.large 2 8192 x86_64 29
m5.xlarge 4 16384 x86_64 58
m5.2xlarge 8 32768 x86_64 58
m5.4xlarge 16 65536 x86_64 234
m5.8xlarge 32 131072 x86_64 234
m6a.large 2 8192 x86_64 29
m6a.xlarge 4 16384 x86_64 58
m6a.2xlarge 8 32768 x86_64 58
m6a.4xlarge 16 65536 x86_64 234
m6a.8xlarge 32 131072 x86_64 234
m6g.medium 1 4096 arm64 8
m6g.large 2 8192 arm64 29
m6g.xlarge 4 16384 arm64 58
m6g.2xlarge 8 32768 arm64 58
m6g.4xlarge 16 65536 arm64 234
m6g.8xlarge 32 131072 arm64 234
m6i.large 2 8192 x86_64 29
m6i.xlarge 4 16384 x86_64 58
m6i.2xlarge 8 32768 x86_64 58
m6i.4xlarge 16 65536 x86_64 234
m6i.8xlarge 32 131072 x86_64 234
m7a.medium 1 4096 x86_64 8
m7a.large 2 8192 x86_64 29
m7a.xlarge 4 16384 x86_64 58
m7a.2xlarge 8 32768 x86_64 58
m7a.4xlarge 16 65536 x86_64 234
m7a.8xlarge 32 131072 x86_64 234
m7g.medium 1 4096 arm64 8
m7g.large 2 8192 arm64 29
m7g.xlarge 4 16384 arm64 58
m7g.2xlarge 8 32768 arm64 58
m7g.4xlarge 16 65536 arm64 234
m7g.8xlarge 32 131072 arm64 234
m7i.large 2 8192 x86_64 29
m7i.xlarge 4 16384 x86_64 58
m7i.2xlarge 8 32768 x86_64 58
m7i.4xlarge 16 65536 x86_64 234
m7i.8xlarge 32 131072 x86_64 234
r6i.large 2 16384 x86_64 29
r6i.xlarge 4 32768 x86_64 58
r6i.2xlarge 8 65536 x86_64 58
r6i.4xlarge 16 131072 x86_64 234
r6i.8xlarge 32 262144 x86_64 234
r7g.medium 1 8192 arm64 8
r7g.large 2 16384 arm64 29
r7g.xlarge 4 32768 arm64 58
r7g.2xlarge 8 65536 arm64 58
r7g.4xlarge 16 131072 arm64 234
r7g.8xlarge 32 262144 arm64 234
r7i.large 2 16384 x86_64 29
r7i.xlarge 4 32768 x86_64 58
r7i.2xlarge 8 65536 x86_64 58
r7i.4xlarge 16 131072 x86_64 234
r7i.8xlarge 32 262144 x86_64 234
t3.medium 2 4096 x86_64 17
t3.large 2 8192 x86_64 35
t3.xlarge 4 16384 x86_64 58
t3.2xlarge 8 32768 x86_64 58
t3a.medium 2 4096 x86_64 17
t3a.large 2 8192 x86_64 35
t3a.xlarge 4 16384 x86_64 58
t3a.2xlarge 8 32768 x86_64 58
t4g.medium 2 4096 arm64 17
t4g.large 2 8192 arm64 35
t4g.xlarge 4 16384 arm64 58
t4g.2xlarge 8 32768 arm64 58
"""

# model, or model/<EC2 size in MiB> where one name has two sizes: total_mib, compute capability, MIG
_GPU_MODELS = {
    "A100": (40960, "8.0", True),
    "A100/81920": (81920, "8.0", True),
    "A10G": (23028, "8.6", False),
    "B200": (183359, "10.0", True),
    "H100": (81559, "9.0", True),
    "H200": (143771, "9.0", True),
    "L4": (23034, "8.9", False),
    "L40S": (46068, "8.9", False),
    "RTX PRO Server 6000": (97887, "12.0", True),
    "T4": (15360, "7.5", False),
    "T4g": (15360, "7.5", False),
    "V100": (16384, "7.0", False),
    "V100/32768": (32768, "7.0", False),
}


def conservative_usable_mib(total_mib: int) -> int:
    """97 % of NVML's total in MiB, rounded down to half a GiB."""
    return total_mib * 97 // 100 // 512 * 512


def _instance_types() -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = {}
    for line in _ROWS.strip().splitlines():
        name, vcpus, memory_mib, architecture, pods, *gpu = line.split(maxsplit=7)
        table[name] = {
            "vcpus": int(vcpus),
            "memory_mib": int(memory_mib),
            "architecture": architecture,
            "max_pods": int(pods),
            "gpus": [
                {
                    "name": gpu[2],
                    "manufacturer": "NVIDIA",
                    "count": int(gpu[0]),
                    "memory_mib": int(gpu[1]),
                }
            ]
            if gpu
            else [],
        }
    return table


CATALOG: dict[str, Any] = {
    "schema": 1,
    "as_of": AS_OF,
    "source": SOURCE,
    "instance_types": _instance_types(),
    "gpu_models": {
        name: {
            "total_mib": total_mib,
            "usable_mib": conservative_usable_mib(total_mib),
            "compute_capability": capability,
            "mig": mig,
        }
        for name, (total_mib, capability, mig) in _GPU_MODELS.items()
    },
}


def gpu_model(catalog: dict[str, Any], gpu: dict[str, Any]) -> dict[str, Any] | None:
    """The model entry of one of an instance type's `gpus`; None when the table has none."""
    models = catalog.get("gpu_models") or CATALOG["gpu_models"]
    return models.get(f"{gpu['name']}/{gpu['memory_mib']}") or models.get(gpu["name"])
