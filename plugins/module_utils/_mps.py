# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How many clients MPS serves on a GPU, and how many replicas NVIDIA's plugin makes of it. Pure.

A client is a CUDA context, not a pod: a pod of two processes is two.
"""

from __future__ import annotations

import re

# Of driver 580, which the EKS-optimized images have.
CUDA_VERSION = "13.0"
# cmd/mps-control-daemon of k8s-device-plugin 0.20: whatever the driver takes. Its limit for old
# GPUs ends at 7.5, the driver's at Volta (7.0).
PLUGIN_REPLICAS, PLUGIN_REPLICAS_OLD = 48, 16


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def is_cuda_version(text: object) -> bool:
    """Whether this is a CUDA version as nvidia-smi shows it: "13.0"."""
    return isinstance(text, str) and bool(re.match(r"\d{1,2}\.\d{1,2}\Z", text, re.ASCII))


def driver_clients(capability: str, cuda_version: str) -> int:
    """Clients of one MPS server: 16 before Volta, 48 from it, 60 from CUDA 13.1."""
    if _version(capability) < (7, 0):
        return 16
    return 60 if _version(cuda_version) >= (13, 1) else 48


def most_replicas(capability: str) -> int:
    """The most MPS replicas that NVIDIA's plugin makes of a GPU of this compute capability."""
    return PLUGIN_REPLICAS if _version(capability) >= (7, 5) else PLUGIN_REPLICAS_OLD
