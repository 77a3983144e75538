# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The names that stand on Nodes and pods, once. Standard library only: the agent runs this too."""

from __future__ import annotations

RESOURCE = "gpushare.eks/gpu-memory"
ANNOTATION = "gpushare.eks/published"
CHANGE_ANNOTATION = "gpushare.eks/sharing-change"
CONDITION = "GPUMemoryPublished"
POOL_LABEL = "gpushare.eks/pool"
TYPE_LABEL = "node.kubernetes.io/instance-type"
STARTUP_TAINT = "startup-taint.cluster-autoscaler.kubernetes.io/gpushare"
AGENT_NAME = "gpushare-agent"
COMPUTE_ANNOTATION = "gpushare.eks/gpu-compute-percent"
