"""What the roles' policies hold that the main job does not show, each with its task and reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).with_suffix(".yml")


def groups() -> list[dict[str, Any]]:
    """[{"role", "task", "why", "actions": ["Sid/service:Action"]}]"""
    return yaml.safe_load(FILE.read_text())


def actions(role: str) -> set[tuple[str, str]]:
    """(Sid, action) of one role."""
    rows = [one for group in groups() if group["role"] == role for one in group["actions"]]
    return {(sid, action) for sid, _, action in (one.partition("/") for one in rows)}
