"""One real control plane for all tests of this folder that want one: it takes four seconds."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab_helpers import REGION, node_body

from lab import LabError, build
from lab.controlplane import ControlPlane

_NOBODY = "http://127.0.0.1:9/authn"


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A running control plane; skipped where its programs were never built."""
    try:
        build.binaries(), build.chart()
    except LabError as error:
        pytest.skip(str(error))
    made = ControlPlane("unit", "1.36", tmp_path_factory.mktemp("plane") / "state", _NOBODY)
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Our EKS and moto in a daemon of this process, without control planes."""
    # Imported here: boto3 costs a second, which most files of this folder need not pay.
    from eks_helpers import running_lab

    with running_lab(tmp_path_factory.mktemp("lab")) as running:
        yield running


@pytest.fixture
def lab(daemon: Any) -> Any:
    """The daemon as it was at its start."""
    from eks_helpers import fresh

    return fresh(daemon)


@pytest.fixture(scope="module")
def client() -> Iterator[Callable[[str], Any]]:
    """client(service) is a boto3 client of moto behind our patches, over HTTP."""
    import boto3
    from botocore.config import Config
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    from lab.aws import moto_patches, patches

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_request(self, *args, **more):
            pass

    moto_patches.apply()
    patches.apply()
    app = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    clients: dict[str, Any] = {}

    def client(service: str) -> Any:
        if service not in clients:
            clients[service] = boto3.client(
                service,
                region_name=REGION,
                endpoint_url=f"http://127.0.0.1:{server.server_port}",
                aws_access_key_id="testing-key",
                aws_secret_access_key="testing-secret",
                config=Config(retries={"max_attempts": 1}),
            )
        return clients[service]

    yield client
    server.shutdown()
    server.server_close()


@pytest.fixture
def make_node(plane: ControlPlane) -> Iterator[Callable[..., str]]:
    """make_node(name, **labels as a dict) creates a Node, which goes away after the test."""
    names: list[str] = []

    def make(name: str, labels: dict[str, str] | None = None) -> str:
        status, answer = plane.request("POST", "/api/v1/nodes", node_body(name, labels))
        assert status == 201, answer
        names.append(name)
        return name

    yield make
    for name in names:
        plane.request("DELETE", f"/api/v1/nodes/{name}")
        for pod in plane.request("GET", "/api/v1/pods")[1]["items"]:
            if pod["spec"].get("nodeName") == name:
                meta = pod["metadata"]
                path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
                plane.request("DELETE", path, {"gracePeriodSeconds": 0})


@pytest.fixture
def helm(plane: ControlPlane, tmp_path: Path) -> Callable[..., str]:
    """helm(*arguments) as the cluster's admin, with a home of its own; its stdout."""

    def call(*arguments: str) -> str:
        env = {
            "PATH": os.environ["PATH"],
            # Without a home helm keeps its discovery cache in the current folder.
            "HOME": str(tmp_path),
            "KUBECONFIG": str(plane.kubeconfig),
            **{f"HELM_{kind}_HOME": str(tmp_path / "helm") for kind in ("CACHE", "CONFIG", "DATA")},
        }
        done = subprocess.run(["helm", *arguments], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call
