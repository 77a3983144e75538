"""Regenerates the instance-type rows of plugins/module_utils/_catalog.py.

    python tools/catalog.py            prints the rows
    python tools/catalog.py --check    exits 1 when the committed rows differ

The source is the answer of EC2's DescribeInstanceTypes that moto 5.2.5 ships
(`moto/ec2/resources/instance_types.json.gz`, recorded from AWS). Rows are
`type vcpus memory_mib architecture max_pods [gpus gpu_memory_mib gpu_name]`.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

GPU_FAMILIES = [
    "g4dn",
    "g5",
    "g5g",
    "g6",
    "g6e",
    "g7e",
    "gr6",
    "p3dn",
    "p4d",
    "p4de",
    "p5",
    "p5e",
    "p5en",
    "p6-b200",
]
GENERAL_FAMILIES = [
    "c6g",
    "c6i",
    "c7g",
    "c7i",
    "m5",
    "m6a",
    "m6g",
    "m6i",
    "m7a",
    "m7g",
    "m7i",
    "r6i",
    "r7g",
    "r7i",
    "t3",
    "t3a",
    "t4g",
]
GENERAL_SIZES = ["medium", "large", "xlarge", "2xlarge", "4xlarge", "8xlarge"]


def max_pods(network: dict[str, Any]) -> int:
    """ENIs x (addresses - 1) + 2; the VPC CNI uses the default network card's interfaces only."""
    card = network.get("DefaultNetworkCardIndex", 0)
    enis = network["MaximumNetworkInterfaces"]
    for entry in network.get("NetworkCards", []):
        if entry["NetworkCardIndex"] == card:
            enis = entry["MaximumNetworkInterfaces"]
    return enis * (network["Ipv4AddressesPerInterface"] - 1) + 2


def row(name: str, data: dict[str, Any]) -> str:
    fields = [
        name,
        data["VCpuInfo"]["DefaultVCpus"],
        data["MemoryInfo"]["SizeInMiB"],
        data["ProcessorInfo"]["SupportedArchitectures"][0],
        max_pods(data["NetworkInfo"]),
    ]
    for gpu in data.get("GpuInfo", {}).get("Gpus", []):
        fields += [gpu["Count"], gpu["MemoryInfo"]["SizeInMiB"], gpu["Name"]]
    return " ".join(str(field) for field in fields)


def wanted(name: str) -> bool:
    family, _dot, size = name.partition(".")
    if family in GPU_FAMILIES:
        return not size.startswith("metal")
    return family in GENERAL_FAMILIES and size in GENERAL_SIZES


def order(name: str) -> tuple[bool, list[Any]]:
    """GPU types first; then by family and by size as a person counts."""
    family, _dot, size = name.partition(".")
    number = re.match(r"(\d*)xlarge", size)
    rank = int(number.group(1) or 1) if number else {"medium": -2, "large": -1}.get(size, 999)
    return family not in GPU_FAMILIES, [family, rank, size]


def rows() -> list[str]:
    spec = importlib.util.find_spec("moto")
    if spec is None or spec.origin is None:
        raise SystemExit("moto is not installed: pip install -r test-requirements.txt")
    path = Path(spec.origin).parent / "ec2" / "resources" / "instance_types.json.gz"
    types = json.loads(gzip.decompress(path.read_bytes()))
    return [row(name, types[name]) for name in sorted(filter(wanted, types), key=order)]


def main() -> int:
    text = "\n".join(rows())
    if "--check" in sys.argv[1:]:
        table = Path(__file__).resolve().parent.parent / "plugins/module_utils/_catalog.py"
        same = f'"""\n{text}\n"""' in table.read_text(encoding="utf-8")
        print("the committed rows are current" if same else "the committed rows differ")
        return 0 if same else 1
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
