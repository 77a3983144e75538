"""The account's quotas that a cluster meets, as Service Quotas tells them; tests may set them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from moto.servicequotas.exceptions import NoSuchResource
from moto.servicequotas.models import ServiceQuotasBackend

# Code -> (service, name, value). Names and codes: "Amazon EC2 endpoints and quotas" and "Amazon VPC
# quotas". Values: room for the lab's fleets; a new account has less.
QUOTAS = {
    "L-DB2E81BA": ("ec2", "Running On-Demand G and VT instances", 768.0),
    "L-3819A6DF": ("ec2", "All G and VT Spot Instance Requests", 768.0),
    "L-1216C47A": (
        "ec2",
        "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
        1152.0,
    ),
    "L-34B43A08": (
        "ec2",
        "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",
        1152.0,
    ),
    "L-417A185B": ("ec2", "Running On-Demand P instances", 192.0),
    "L-7212CCBC": ("ec2", "All P4, P3 and P2 Spot Instance Requests", 192.0),
    "L-C4BD4855": ("ec2", "All P5 Spot Instance Requests", 192.0),
    "L-0263D0A3": ("ec2", "EC2-VPC Elastic IPs", 100.0),
    "L-F678F1CE": ("vpc", "VPCs per Region", 100.0),
    "L-FE5A380F": ("vpc", "NAT gateways per Availability Zone", 100.0),
}
_SERVICES = {
    "ec2": "Amazon Elastic Compute Cloud (Amazon EC2)",
    "vpc": "Amazon Virtual Private Cloud (Amazon VPC)",
}
_set: dict[str, float] = {}


def set_quotas(values: dict[str, float | None]) -> dict[str, float]:
    """Set some quotas by code; null gives one its own value again. -> all values, by code."""
    if unknown := set(values) - set(QUOTAS):
        raise ValueError(f"unknown quotas {sorted(unknown)}: the lab has {', '.join(QUOTAS)}")
    for code, value in values.items():
        _set.pop(code, None)
        if value is not None:
            _set[code] = float(value)
    return {code: _set.get(code, value) for code, (_service, _name, value) in QUOTAS.items()}


def get(plain: Callable[..., Any]) -> Callable[..., Any]:
    def answer(self: ServiceQuotasBackend, service_code: str, quota_code: str) -> dict[str, Any]:
        if quota_code in QUOTAS:
            if QUOTAS[quota_code][0] != service_code:
                raise NoSuchResource
            return _quota(self, quota_code, set_quotas({})[quota_code])
        return copy.deepcopy(plain(self, service_code, quota_code))

    return answer


def defaults(plain: Callable[..., Any]) -> Callable[..., Any]:
    def answer(self: ServiceQuotasBackend, service_code: str) -> list[dict[str, Any]]:
        known = plain(self, service_code) if service_code != "ec2" else []
        ours = [
            code for code, (service, _name, _value) in QUOTAS.items() if service == service_code
        ]
        rows = [row for row in known if row["QuotaCode"] not in ours]
        return [*rows, *(_quota(self, code, QUOTAS[code][2]) for code in ours)]

    return answer


def _quota(backend: ServiceQuotasBackend, code: str, value: float) -> dict[str, Any]:
    service, name, _value = QUOTAS[code]
    where = f"{backend.region_name}:{backend.account_id}"
    return {
        "ServiceCode": service,
        "ServiceName": _SERVICES[service],
        "QuotaArn": f"arn:{backend.partition}:servicequotas:{where}:{service}/{code}",
        "QuotaCode": code,
        "QuotaName": name,
        "Value": value,
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }
