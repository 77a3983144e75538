"""Reads and touches the API server itself, with a token minted as any caller of EKS does."""

from __future__ import annotations

import atexit
import base64
import functools
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import boto3
import requests

from ansible_collections.gpushare.eks.plugins.module_utils import _shares, _token


@functools.cache
def _connection(name: str) -> tuple[str, str]:
    found = boto3.client("eks").describe_cluster(name=name)["cluster"]
    ca = Path(tempfile.mkdtemp()) / "ca.pem"
    atexit.register(shutil.rmtree, ca.parent, ignore_errors=True)
    ca.write_bytes(base64.b64decode(found["certificateAuthority"]["data"]))
    return found["endpoint"], str(ca)


def forget() -> None:
    """Look clusters up anew: one that was taken away and made again has another endpoint."""
    _connection.cache_clear()


def token(name: str, session: boto3.Session | None = None) -> str:
    """A fresh bearer token of the session's caller for cluster ``name``."""
    return _token.mint(session or boto3.Session(), name)


@functools.lru_cache(maxsize=4)
def _own_token(name: str, period: int) -> str:
    """The caller's own token, minted anew every five minutes: a session costs 0.1 s to make."""
    return token(name)


def request(
    name: str, method: str, path: str, *, bearer: str | None = None, **kwargs: Any
) -> requests.Response:
    """One request to the API server of cluster ``name``."""
    endpoint, ca = _connection(name)
    bearer = bearer or _own_token(name, int(time.time() // 300))
    headers = {"Authorization": f"Bearer {bearer}", **kwargs.pop("headers", {})}
    return requests.request(
        method, endpoint + path, headers=headers, verify=ca, timeout=30, **kwargs
    )


def nodes(name: str, selector: str = "") -> list[dict]:
    """The Node objects that ``selector`` picks."""
    answer = request(name, "GET", "/api/v1/nodes", params={"labelSelector": selector})
    answer.raise_for_status()
    return answer.json()["items"]


def node(name: str, node_name: str) -> dict:
    """One Node object."""
    answer = request(name, "GET", f"/api/v1/nodes/{node_name}")
    answer.raise_for_status()
    return answer.json()


def mib(quantity: str) -> int:
    """A Kubernetes quantity as whole MiB."""
    return _shares.mib(quantity)


def capacity(name: str, node_name: str, resource: str = "gpushare.eks/gpu-memory") -> int:
    """What the node's capacity says of ``resource``, in MiB."""
    return mib(node(name, node_name)["status"]["capacity"][resource])


def patch_capacity(name: str, node_name: str, resource: str, quantity: str) -> None:
    """Writes a number by hand, as 004's DaemonSet does."""
    key = resource.replace("~", "~0").replace("/", "~1")
    answer = request(
        name,
        "PATCH",
        f"/api/v1/nodes/{node_name}/status",
        headers={"Content-Type": "application/json-patch+json"},
        json=[{"op": "add", "path": f"/status/capacity/{key}", "value": quantity}],
    )
    answer.raise_for_status()
