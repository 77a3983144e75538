"""The lab's one daemon: moto, our layer in front of it, and the threads that join them to nodes."""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path
from typing import Any

# moto reads its switches when it is imported.
os.environ.setdefault("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")
os.environ.setdefault("MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION", "true")
os.environ.setdefault("MOTO_ENABLE_AMI_VALIDATION", "true")
# Five hundred images that nobody here uses; EKS's own come with moto_patches.
os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")

from moto.iam.models import iam_backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from lab import LabError, nvml
from lab.aws import ACCOUNT_ID, autoscaling_patches, moto_patches, patches, ssm
from lab.aws.eks import Eks
from lab.aws.eks_state import ControlPlane, Registry
from lab.cloud import CloudControllers
from lab.doors import Doors
from lab.front import Front
from lab.joiner import Joiner, running_instances
from lab.pods import PodRunner
from lab.podstate import Slots
from lab.processes import write_record

log = logging.getLogger("lab.server")
REGION = "us-east-1"
_USER = "lab-runner"


class _QuietHandler(WSGIRequestHandler):
    """Keep-alive, and no line per request: /_lab/calls knows them all."""

    protocol_version = "HTTP/1.1"

    def log_request(self, *args: Any, **more: Any) -> None:
        pass


class Plane:
    """A control plane, the effect of NVIDIA's plugin, the pods that run, and AWS's controllers."""

    def __init__(self, plane: Any, slots: Slots, registry: Registry) -> None:
        from lab.deviceplugin import DevicePluginEffect

        self.plane = plane
        self.cloud = CloudControllers(plane, lambda: registry.get(plane.name), registry.aws)
        self.effect = DevicePluginEffect(plane)
        self.pods = PodRunner(
            plane,
            ssm.service().machines,
            self.effect.nodes,
            slots=slots,
            instances=running_instances,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plane, name)

    def start(self) -> None:
        self.plane.start()
        self.effect.start()
        self.pods.start()
        self.cloud.start()

    def stop(self) -> None:
        self.cloud.stop()
        self.pods.stop()
        self.effect.stop()
        self.plane.stop()


class Daemon:
    """`start()` serves in threads; `run()` does so until SIGTERM. All state is below state_dir."""

    def __init__(self, state_dir: Path, port: int = 0, *, factory: Any = None) -> None:
        self.state_dir = Path(state_dir)
        autoscaling_patches.apply()
        moto_patches.apply()
        patches.apply()
        self.eks = Eks(factory or self._plane)
        moto = DomainDispatcherApplication(create_backend_app)
        self.front = Front(moto, self.eks)
        self.server = make_server(
            "127.0.0.1", port, self.front, threaded=True, request_handler=_QuietHandler
        )
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        self.eks.registry.endpoint = self.endpoint
        self.eks.registry.changed = self._write_kubeconfigs
        self.joiner = Joiner(self.eks.registry, self.front.moto_lock)
        self.front.doors = Doors(self.eks.registry, self.joiner)
        self.slots = Slots()
        self.env: dict[str, str] = {}

    def _plane(self, name: str, version: str, services: str) -> ControlPlane:
        from lab.controlplane import ControlPlane as RealControlPlane
        from lab.controlplane import state_name

        return Plane(
            RealControlPlane(
                name,
                version,
                self.state_dir / "clusters" / state_name(name),
                f"{self.endpoint}/_lab/authn/{name}",
                service_cidr=services,
                audit=os.environ.get("GPUSHARE_LAB_AUDIT") == "1",
            ),
            self.slots,
            self.eks.registry,
        )

    def _write_kubeconfigs(self) -> None:
        """The admin's look at every cluster: one file with all contexts, for KUBECONFIG."""
        from lab.kubeclient import write_merged_kubeconfig

        paths = []
        for cluster in list(self.eks.registry.clusters.values()):
            path = getattr(cluster.control_plane, "kubeconfig", None)
            if path and cluster.record["status"] == "ACTIVE":
                paths.append(path)
        write_merged_kubeconfig(self.state_dir / "kubeconfig", paths)

    def start(self) -> None:
        """Ready when it returns; `env` then holds what a client needs."""
        self.env = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            **_runner_key(),
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        try:
            ssm.configure(self.state_dir / "nodes", nvml.build())
        except nvml.NvmlBuildError as error:
            raise LabError(f"the lab's NVML cannot be built: {error}") from error
        threading.Thread(target=self.server.serve_forever, daemon=True, name="http").start()
        self.joiner.start()

    def stop(self) -> None:
        """End the control planes and the server; a second call does nothing."""
        self.joiner.stop()
        self.eks.stop()
        self.server.shutdown()
        self.server.server_close()

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        done = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: done.set())
        self.start()
        record = self.state_dir / "run" / "daemon.json"
        write_record(record, os.getpid(), "daemon", endpoint=self.endpoint, env=self.env)
        log.info("serving at %s", self.endpoint)
        done.wait()
        log.info("stopping")
        self.stop()
        record.unlink(missing_ok=True)


def _runner_key() -> dict[str, str]:
    """The user that plays run as: an administrator with a real access key."""
    iam = iam_backends[ACCOUNT_ID]["aws"]
    if _USER not in iam.users:
        iam.create_user(REGION, _USER)
        iam.attach_user_policy("arn:aws:iam::aws:policy/AdministratorAccess", _USER)
    # A daemon before this one in the same process left its key; IAM allows two.
    iam.users[_USER].access_keys.clear()
    key = iam.create_access_key(_USER)
    return {
        "AWS_ACCESS_KEY_ID": key.access_key_id,
        "AWS_SECRET_ACCESS_KEY": key.secret_access_key,
    }
