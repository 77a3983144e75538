"""moto's load balancers where they do not answer as AWS does; applied before the first request.

- a load balancer has a network interface in each of its subnets, with its security groups, which
  hold the subnet and the groups until a moment after its end;
- one that faces the internet has public addresses, which hold the internet gateway;
- a target group goes only when no listener names it: listeners end with their load balancer.
"""

from __future__ import annotations

from typing import Any

from moto.ec2.models import ec2_backends
from moto.ec2.utils import random_ip
from moto.elb.models import ELBBackend
from moto.elbv2.models import ELBv2Backend

from lab.aws import passing

_plain = {
    (owner, name): getattr(owner, name)
    for owner in (ELBBackend, ELBv2Backend)
    for name in ("create_load_balancer", "delete_load_balancer")
}


def _interfaces(backend: Any, balancer: Any, description: str, kind: str) -> None:
    ec2 = ec2_backends[backend.account_id][backend.region_name]
    public = balancer.scheme == "internet-facing"
    balancer.eni_ids = [
        passing.own(
            ec2,
            getattr(subnet, "id", subnet),
            description,
            groups=balancer.security_groups or (),
            kind=kind,
            public_ip=random_ip() if public else None,
        ).id
        for subnet in balancer.subnets
    ]


def _release(backend: Any, balancer: Any) -> None:
    ec2 = ec2_backends[backend.account_id][backend.region_name]
    held = getattr(balancer, "eni_ids", [])
    passing.later(ec2, lambda: passing.drop(ec2, held))


def _create_classic(self: ELBBackend, name: str, *given: Any, **more: Any) -> Any:
    balancer = _plain[ELBBackend, "create_load_balancer"](self, name, *given, **more)
    _interfaces(self, balancer, f"ELB {name}", "interface")
    return balancer


def _delete_classic(self: ELBBackend, load_balancer_name: str) -> None:
    balancer = self.load_balancers.get(load_balancer_name)
    _plain[ELBBackend, "delete_load_balancer"](self, load_balancer_name)
    if balancer is not None:
        _release(self, balancer)


def _create(self: ELBv2Backend, *given: Any, **more: Any) -> Any:
    balancer = _plain[ELBv2Backend, "create_load_balancer"](self, *given, **more)
    short = {"network": "net", "application": "app", "gateway": "gwy"}[balancer.type]
    kind = "network_load_balancer" if balancer.type == "network" else "interface"
    _interfaces(self, balancer, f"ELB {short}/{balancer.arn.split('/', 2)[2]}", kind)
    return balancer


def _delete(self: ELBv2Backend, arn: str) -> None:
    balancer = self.load_balancers.get(arn)
    _plain[ELBv2Backend, "delete_load_balancer"](self, arn)
    if balancer is not None:
        _release(self, balancer)


def apply() -> None:
    """Put all of it in place; a second call changes nothing."""
    ELBBackend.create_load_balancer = _create_classic
    ELBBackend.delete_load_balancer = _delete_classic
    ELBv2Backend.create_load_balancer = _create
    ELBv2Backend.delete_load_balancer = _delete
