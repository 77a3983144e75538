# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Why nothing may be published for a node, and what to do. Standard library only, Python 3.9."""

from __future__ import annotations

REMEDIES = {
    "NO_READING": "read the node again with gpu_capacity_info; see its outcome for the cause",
    "PROBE_ERROR": "repair the NVIDIA driver on the node, or replace the node",
    "SCHEMA": "publish the probe's SSM document of this version of the collection again",
    "IDENTITY": "read the node again: the reading is of another instance or node",
    "NO_GPU": "check that the instance type has a GPU and that the driver sees it",
    "GPU_ERROR": "replace the node: its driver reports a GPU that cannot be used",
    "MIG": "switch MIG off on the node, or take it out of the shared pool",
    "MULTI_GPU": "use types with one GPU, or say multi_gpu: sum and accept wrong placements",
    "IMPLAUSIBLE": "distrust the node: what it claims is not possible for its instance type",
    "BELOW_PREDICTED": "set the pool's usable_mib to what NVML shows less a reserve, run site.yml",
    "NOTHING_LEFT": "lower headroom_mib: a node never publishes 0",
    "POOL": "label the node with a pool that publishes, or leave it out of `nodes`",
    "TYPE": "give the pool this type, or replace the node by one of the pool's types",
    "AGENT": "leave the node to the agent, or say force: true",
    "NODE": "give the node as Kubernetes JSON with metadata.uid and status",
}


class Refusal(Exception):
    """Nothing may be published for this node; the codes are the keys of REMEDIES."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.problem = {"code": code, "message": message, "remedy": REMEDIES[code]}
