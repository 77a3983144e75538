"""The lab's own doors: what a test does to nodes, pods and control planes."""

from __future__ import annotations

import os
from typing import Any

import requests


def _post(path: str, payload: dict[str, Any]) -> dict[str, Any]:
    url = f"{os.environ['AWS_ENDPOINT_URL']}/_lab/{path}"
    answer = requests.post(url, json=payload, timeout=60)
    assert answer.ok, answer.text
    return answer.json()


def node(payload: dict[str, Any]) -> dict[str, Any]:
    """An instance's NVML, its figures, its boot, its Node object."""
    return _post("nodes", payload)


def faults(rules: list[dict[str, Any]] | None) -> None:
    """Faults in front of AWS's services, beside those that are there; None takes all away."""
    url = f"{os.environ['AWS_ENDPOINT_URL']}/_lab/faults"
    answer = requests.request("DELETE" if rules is None else "POST", url, json=rules, timeout=60)
    assert answer.ok, answer.text


def pods() -> list[dict[str, Any]]:
    """The pods that really run."""
    url = f"{os.environ['AWS_ENDPOINT_URL']}/_lab/pods"
    return requests.get(url, timeout=60).json()["pods"]


def pod(payload: dict[str, Any]) -> dict[str, Any]:
    """A signal for a pod's process, or a new token."""
    return _post("pods", payload)


def cluster(payload: dict[str, Any]) -> dict[str, Any]:
    """The end of one of a control plane's programs."""
    return _post("clusters", payload)
