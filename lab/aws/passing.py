"""What AWS ends only a moment after the call that deletes it, and what it holds until then.

Gateways, endpoints and load balancers keep their network interfaces for minutes in AWS; here for
`LINGER_S`. Nothing runs by itself: whoever reads or deletes settles what is due first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from moto.ec2.models import EC2Backend

LINGER_S = 0.6


def later(backend: EC2Backend, work: Callable[[], None]) -> float:
    """Do `work` once LINGER_S have passed; when that is, on the monotonic clock."""
    due = time.monotonic() + LINGER_S
    backend.__dict__.setdefault("passing", []).append((due, work))
    return due


def settle(backend: EC2Backend) -> None:
    """End what is due."""
    waiting = backend.__dict__.get("passing", [])
    for item in [item for item in waiting if item[0] <= time.monotonic()]:
        waiting.remove(item)
        item[1]()


def own(
    backend: EC2Backend,
    subnet_id: str,
    description: str,
    *,
    groups: Iterable[str] = (),
    kind: str = "interface",
    public_ip: str | None = None,
) -> Any:
    """A network interface that a service makes in the caller's subnet, and alone may delete."""
    made = backend.create_network_interface(
        backend.get_subnet(subnet_id), [], group_ids=list(groups), description=description
    )
    return mark(made, description, kind=kind, public_ip=public_ip)


def mark(eni: Any, description: str, *, kind: str, public_ip: str | None = None) -> Any:
    """The service's own marks on an interface that moto has made."""
    eni.description, eni.interface_type = description, kind
    eni.requester_managed, eni.status = True, "in-use"
    if public_ip:
        eni.public_ip = public_ip
    return eni


def drop(backend: EC2Backend, eni_ids: Iterable[str]) -> None:
    for eni_id in eni_ids:
        backend.enis.pop(eni_id, None)
