"""Figures of a benchmark: printed, and kept in build/bench.json for whoever reads them later."""

from __future__ import annotations

import json
import os
from pathlib import Path

FIGURES = Path(__file__).resolve().parents[2] / "build" / "bench.json"


def record(
    name: str,
    value: float,
    unit: str,
    *,
    at_most: float | None = None,
    at_least: float | None = None,
) -> bool:
    """Add {name: {"value", "unit", "target", "holds"}}; returns whether the target holds.

    A figure without a target is for orientation: its target is null and it holds.
    """
    holds = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
    targets = [f"<= {at_most:g}" if at_most is not None else ""]
    targets.append(f">= {at_least:g}" if at_least is not None else "")
    target = " and ".join(text for text in targets if text) or None
    FIGURES.parent.mkdir(exist_ok=True)
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    rounded = value if isinstance(value, int) else round(value, 3)
    figures[name] = {"value": rounded, "unit": unit, "target": target, "holds": holds}
    # A name of our own and a rename: a reader never sees half a file.
    temporary = FIGURES.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(figures, indent=2) + "\n")
    temporary.replace(FIGURES)
    verdict = "" if target is None else f"   (target {target}: {'holds' if holds else 'MISSED'})"
    print(f"{name}: {rounded:g} {unit}{verdict}", flush=True)
    return holds
