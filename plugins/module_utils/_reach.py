# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether an API server is reached from here: a connection, not a request."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from ansible_collections.gpushare.eks.plugins.module_utils._errors import Unreachable, WaitTimeout
from ansible_collections.gpushare.eks.plugins.module_utils._wait import wait_for

_CONNECT_S = 5.0


def reach(facts: dict[str, Any], timeout: float, wait: Callable[..., Any] = wait_for) -> None:
    """Connect to the endpoint of a cluster's facts, or to the proxy that leads there."""
    endpoint = facts["endpoint"]
    host, port = _way(endpoint)
    what = f"API server of EKS cluster {facts['name']} at {endpoint}"
    try:
        # Its name in a private zone takes a while to be known.
        wait(
            partial(_problem, host, port),
            lambda problem: not problem,
            timeout=timeout,
            interval=1.0,
            what=what,
        )
    except WaitTimeout as error:
        allowed = ", ".join(facts["public_access_cidrs"])
        public = f"public to {allowed}" if facts["endpoint_public_access"] else "private only"
        raise Unreachable(
            f"The {what} is not reached from here within {timeout:g} s: {error.last_state}",
            object=f"EKS cluster {facts['name']}",
            cause=f"the endpoint is {public}, and {host}:{port} says: {error.last_state}",
            remedy="run inside the VPC or a network that is connected to it and resolves its "
            "private names (and see that the cluster's security group lets it in at 443), or "
            "switch the public endpoint on and name this machine's public address in the allowlist",
        ) from error


def _way(endpoint: str) -> tuple[str, int]:
    """(host, port) to connect to."""
    parts = urlsplit(endpoint)
    proxy = getproxies().get(parts.scheme)
    if proxy and not proxy_bypass(parts.hostname or ""):
        parts = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    return parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)


def _problem(host: str, port: int) -> str:
    """Why there is no connection; empty where there is one."""
    try:
        socket.create_connection((host, port), timeout=_CONNECT_S).close()
    except OSError as error:
        return str(error) or type(error).__name__
    return ""
