# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Thin face of _whole_gpu.py, _proof_plan.py and _proof.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gpushare.eks.plugins.plugin_utils.faces import call


def whole_gpu(derived: Mapping[str, Any], pool: str | None = None, gpus: int = 1) -> dict[str, Any]:
    """See _whole_gpu.whole_gpu."""
    return call("whole_gpu", "_whole_gpu", "whole_gpu", derived, pool=pool, gpus=gpus)


def proof_plan(
    gpu_memory: Any, derived: Mapping[str, Any], pods: int = 3, pool: str | None = None
) -> dict[str, Any]:
    """See _proof.plan."""
    return call(
        "proof_plan", "_proof_plan", "plan", gpu_memory, derived=derived, pods=pods, pool=pool
    )


def proof_result(pods: list[dict[str, Any]], plan: Mapping[str, Any]) -> dict[str, Any]:
    """See _proof.evaluate."""
    return call("proof_result", "_proof", "evaluate", pods, plan)


class FilterModule:
    """Filters about pods with whole GPUs and the proof of sharing."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"whole_gpu": whole_gpu, "proof_plan": proof_plan, "proof_result": proof_result}
