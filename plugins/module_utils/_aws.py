# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What our AWS modules share: clients that retry, the common options, pages, tags."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

try:
    from botocore.config import Config
except ImportError:  # AnsibleAWSModule reports a missing boto3
    Config = None

# A list is worked on side by side, so a client needs as many connections as there are threads.
MAX_CONNECTIONS = 32
# AWS keeps this prefix to itself: such tags can neither be set nor removed.
_RESERVED_TAG = "aws:"


def client(module: Any, service: str, max_attempts: int = 10) -> Any:
    """A boto3 client from the module's options, with adaptive retries."""
    config = Config(
        retries={"mode": "adaptive", "max_attempts": max_attempts},
        max_pool_connections=MAX_CONNECTIONS,
        connect_timeout=10,
    )
    return module.client(service, config=config)


def list_spec(wait_timeout: int, *, wait: bool = True) -> dict[str, Any]:
    """The options of a module that keeps a list of objects; doc fragment gpushare.eks.eks_list."""
    waits = {
        "wait": {"type": "bool", "default": True},
        "wait_timeout": {"type": "int", "default": wait_timeout},
    }
    return {
        "cluster_name": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "purge": {"type": "bool", "default": False},
        "purge_tags": {"type": "bool", "default": True},
        **(waits if wait else {}),
    }


def pages(client: Any, operation: str, member: str, **params: Any) -> Iterator[dict[str, Any]]:
    """All `member`s of all pages of a boto3 client's operation."""
    for page in client.get_paginator(operation).paginate(**params):
        yield from page.get(member) or []


def tags_of(listed: Iterable[Mapping[str, str]] | None) -> dict[str, str]:
    """Tags as a dict, from the list that most services answer; a key alone has the value ""."""
    return {tag["Key"]: tag.get("Value", "") for tag in listed or []}


def own_tags(tags: Mapping[str, str] | None) -> dict[str, str]:
    """Tags as texts, without AWS's own, which nobody can change."""
    return {k: str(v) for k, v in (tags or {}).items() if not k.startswith(_RESERVED_TAG)}


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Tags as most services want them."""
    return [{"Key": name, "Value": value} for name, value in sorted(tags.items())]


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Only the options that the user gave, at every depth."""
    return {
        key: given(value) if isinstance(value, Mapping) else value
        for key, value in options.items()
        if value is not None
    }
