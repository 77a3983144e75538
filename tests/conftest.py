"""Makes `ansible_collections.gpushare.eks` and `lab` importable from any checkout."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# ansible_collections is a namespace package: a second root on the path joins it.
sys.path[:0] = [str(ROOT / "collections"), str(ROOT)]
