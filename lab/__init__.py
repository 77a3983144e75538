"""AWS and Kubernetes on this machine, for demos, tests and benchmarks; never part of the artifact.

`python -m lab up` starts it, `.lab/env` says where it is, `python -m lab down` removes it.
"""

from __future__ import annotations

import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent


class LabError(Exception):
    """Something a person has to know; the message names the object, the cause and the remedy."""


def state_dir() -> Path:
    """Where this checkout's lab keeps everything it writes; two checkouts never share one.

    GPUSHARE_LAB_DIR names another folder, for a second lab beside the checkout's own.
    """
    explicit = os.environ.get("GPUSHARE_LAB_DIR")
    return Path(explicit).resolve() if explicit else CHECKOUT / ".lab"


def cache_dir() -> Path:
    """Where binaries and charts outlive a lab, shared by all checkouts of one user."""
    explicit = os.environ.get("GPUSHARE_CACHE")
    if explicit:
        return Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "gpushare-eks"
