# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Filters that are thin faces of pure functions in module_utils."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ansible.errors import AnsibleFilterError

_ROOMS = "ansible_collections.gpushare.eks.plugins.module_utils"


def pure(room: str, name: str) -> Callable[..., Any]:
    """The function `name` of module_utils/`room`.py."""
    return getattr(import_module(f"{_ROOMS}.{room}"), name)


def call(filter_name: str, room: str, function: str, /, *args: Any, **kwargs: Any) -> Any:
    """What that function returns; what it refuses ends as AnsibleFilterError.

    The room is imported at the first call. Each task is a process of its own, which would import
    all rooms for the one filter that it uses.
    """
    try:
        return pure(room, function)(*args, **kwargs)
    except ValueError as problem:
        raise AnsibleFilterError(f"gpushare.eks.{filter_name}: {problem}") from problem
