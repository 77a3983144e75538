"""The modules' own code in this process, with a wire to the API server on which faults can be made.

One ansible-playbook a case would cost two seconds; `read` and `publish` are what the modules run.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
import urllib3
from botocore.config import Config

from ansible_collections.gpushare.eks.plugins.module_utils import _errors, _kube_api
from ansible_collections.gpushare.eks.plugins.modules import (
    gpu_capacity_info,
    gpu_fleet_info,
    gpu_sharing_change,
    node_capacity,
)

READ = {
    "instance_ids": None,
    "cluster_name": None,
    "nodegroups": None,
    "filters": None,
    "document_name": None,
    "processes": False,
    "pods": [],
    "timeout": 20,
}
PUBLISH = {
    "resource": "gpushare.eks/gpu-memory",
    "readings": [],
    "pools": None,
    "nodes": None,
    "policy": {},
    "state": "present",
    "max_failures": 0,
    "policy_config_map": None,
    "force": False,
    "timeout": 20,
}

CHANGE = {
    "pools": [],
    "configs": {},
    "namespace": "nvidia-device-plugin",
    "wait_timeout": 60,
    "ready_timeout": 60,
    "probe_timeout": 20,
    "timeout": 20,
}


class Module:
    """What a module's code sees of AnsibleAWSModule."""

    check_mode = False
    region = None

    def __init__(self, params: dict[str, Any], on_call: Callable[[str], None] | None) -> None:
        self.params, self._on_call = params, on_call
        self.failed, self.result = False, {}

    def client(self, service: str, config: dict[str, Any] | None = None) -> Any:
        if self._on_call is None:
            return _client(service, json.dumps(config))
        # A client of its own: a process that is killed must not share a connection with us.
        made = boto3.Session().client(service, config=Config(**(config or {})))
        name = len("before-send.x") + len(made.meta.service_model.service_id.hyphenize()) - 1
        made.meta.events.register(
            "before-send", lambda event_name, **_: self._on_call(event_name[name + 1 :])
        )
        return made

    def log(self, text: str) -> None:
        """A line of progress."""

    def warn(self, text: str) -> None:
        """Warnings are in the rows, too."""

    def exit_json(self, **result: Any) -> None:
        self.result = result

    def fail_json(self, **result: Any) -> None:
        self.failed, self.result = True, result


@functools.cache
def _client(service: str, config: str) -> Any:
    return boto3.client(service, config=Config(**(json.loads(config) or {})))


@dataclasses.dataclass(frozen=True)
class Run:
    """How a module ended: what it returned, or its typed error and what stays done."""

    failed: bool
    result: dict[str, Any]

    @property
    def error(self) -> dict[str, Any]:
        return self.result["error"]

    def rows(self) -> dict[str, dict[str, Any]]:
        """The nodes by name, or the readings by instance ID."""
        found = self.result.get("nodes") or self.result["readings"]
        return {one.get("name") or one["instance_id"]: one for one in found}


def _run(call: Any, defaults: dict[str, Any], on_call: Any, params: dict[str, Any]) -> Run:
    module = Module({**defaults, **params}, on_call)
    _errors.run(module, lambda: call(module))
    return Run(module.failed, module.result)


def read(on_call: Callable[[str], None] | None = None, **params: Any) -> Run:
    """gpu_capacity_info. on_call(operation) comes before every call of AWS."""
    return _run(gpu_capacity_info.read, READ, on_call, params)


def publish(cluster_name: str, on_call: Callable[[str], None] | None = None, **params: Any) -> Run:
    """node_capacity."""
    params["cluster_name"] = cluster_name
    return _run(node_capacity.publish, PUBLISH, on_call, params)


def report(cluster_name: str, **params: Any) -> Run:
    """gpu_fleet_info."""
    params["cluster_name"] = cluster_name
    return _run(gpu_fleet_info.look, {"readings": [], "timeout": 20}, None, params)


def change(cluster_name: str, on_call: Callable[[str], None] | None = None, **params: Any) -> Run:
    """gpu_sharing_change."""
    params["cluster_name"] = cluster_name
    return _run(gpu_sharing_change.change, CHANGE, on_call, params)


@dataclasses.dataclass
class Fault:
    """What happens to the requests of one method, from the `at`-th on, `times` of them.

    status: answered so, without a word to the server; before(path): done before the request goes
    out; after(path): when its answer has come, before anybody sees it; bearer: sent instead of the
    token; endpoint: asked instead of the API server.
    """

    method: str = "PATCH"
    at: int = 1
    times: int = 1
    status: int | None = None
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    before: Callable[[str], Any] | None = None
    after: Callable[[str], Any] | None = None
    bearer: Callable[[], str] | None = None
    endpoint: str | None = None


class Wire:
    """A connection pool with faults.

    `requests` counts by method what the server was asked, `met` the requests that met a fault.
    """

    def __init__(self, pool: Any, faults: list[Fault]) -> None:
        self._pool, self._faults, self._lock = pool, faults, threading.Lock()
        self._seen: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self.met = 0

    def request(self, method: str, url: str, **kwargs: Any) -> Any:
        parts = urlsplit(url)
        with self._lock:
            self._seen[method] += 1
            number = self._seen[method]
        mine = [f for f in self._faults if f.method == method]
        mine = [f for f in mine if f.at <= number < f.at + f.times]
        for fault in mine:
            self.met += 1
            if fault.before:
                fault.before(parts.path)
            if fault.status:
                return _answer(fault)
            if fault.bearer:
                bearer = {"Authorization": f"Bearer {fault.bearer()}"}
                kwargs["headers"] = {**kwargs["headers"], **bearer}
            if fault.endpoint:
                url = f"{fault.endpoint}{parts.path}?{parts.query}"
        with self._lock:
            self.requests[method] += 1
        answer = self._pool.request(method, url, **kwargs)
        for fault in mine:
            if fault.after:
                fault.after(parts.path)
        return answer


def _answer(fault: Fault) -> urllib3.HTTPResponse:
    status = {"kind": "Status", "code": fault.status, "message": "by the wire"}
    body = io.BytesIO(json.dumps(status).encode())
    return urllib3.HTTPResponse(body, fault.headers, fault.status, preload_content=True)


def wire(monkeypatch: pytest.MonkeyPatch, *faults: Fault) -> list[Wire]:
    """From now on every connection to an API server is such a wire; they are listed here."""
    made: list[Wire] = []
    plain = _kube_api._pool

    def pool(*arguments: Any) -> Wire:
        made.append(Wire(plain(*arguments), list(faults)))
        return made[-1]

    monkeypatch.setattr(_kube_api, "_pool", pool)
    return made
