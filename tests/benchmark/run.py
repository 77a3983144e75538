"""`make bench`: every benchmark in turn; figures to build/bench.json, a miss to the exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FIGURES = HERE.parents[1] / "build" / "bench.json"


def main() -> int:
    FIGURES.unlink(missing_ok=True)
    broken = []
    for script in sorted(HERE.glob("bench_*.py")):
        print(f"== {script.stem}", flush=True)
        if subprocess.run([sys.executable, str(script)], check=False).returncode:
            broken.append(script.stem)
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    print(f"\n{'figure':<40}{'value':>12} {'unit':<12}{'target':>12}  holds")
    for name, figure in figures.items():
        value, unit, target, holds = (figure[k] for k in ("value", "unit", "target", "holds"))
        target = target or "-"
        print(f"{name:<40}{value:>12.6g} {unit:<12}{target:>12}  {holds}")
    missed = [name for name, figure in figures.items() if not figure["holds"]]
    print(*[f"not held: {name}" for name in missed], *[f"broken: {b}" for b in broken], sep="\n")
    return 1 if missed or broken else 0


if __name__ == "__main__":
    sys.exit(main())
