"""The real Kubernetes control plane of one EKS cluster: etcd, API server, controllers, KWOK."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import ipaddress
import json
import logging
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from lab import LabError, build, certs
from lab.kubeclient import KubeClient, kubeconfig
from lab.processes import end, free_ports, read_records, tail, write_atomically
from lab.programs import Layout, command_lines, webhook
from lab.supervisor import Supervisor

VERSIONS = ("1.34", "1.35", "1.36")
_STAGES = Path(__file__).parent / "stages.yaml"
_READY_TIMEOUT = 60.0
# Who wrote what on which Node stands in it in full; of all else, who asked for what.
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "omitManagedFields": True,
    "rules": [
        {
            "level": "RequestResponse",
            "verbs": ["create", "update", "patch", "delete"],
            "resources": [{"group": "", "resources": ["nodes", "nodes/status"]}],
        },
        {"level": "Metadata"},
    ],
}
log = logging.getLogger("lab.controlplane")


class ControlPlane:
    """One cluster's control plane, everything on 127.0.0.1, all state below `state_dir`.

    version: "1.34" to "1.36"; the 1.36 binaries emulate the older ones.
    authn_url: the TokenReview webhook that every bearer token is sent to, as EKS does.
    service_cidr: the IPv4 range of Services. allocatable_delay_ms: how long the "kubelet" takes to
    copy capacity into allocatable. audit: write `audit_log`, every write on Nodes as a whole.
    """

    def __init__(
        self,
        name: str,
        version: str,
        state_dir: Path,
        authn_url: str,
        *,
        service_cidr: str = "10.100.0.0/16",
        allocatable_delay_ms: int = 500,
        audit: bool = False,
    ) -> None:
        self.name = name
        self._require(version)
        self.version = version
        self.state_dir = Path(state_dir)
        self.authn_url = authn_url
        self.service_cidr = service_cidr
        self.allocatable_delay_ms = allocatable_delay_ms
        self.kubeconfig = self.state_dir / "kubeconfig"
        self.endpoint = ""
        self.ca_data = ""
        self.oidc_issuer = ""
        self.audit_log = self.state_dir / "audit.log" if audit else None
        self._client: KubeClient | None = None
        self._programs: Supervisor | None = None
        self._layout: Layout | None = None

    def _require(self, version: str) -> None:
        if version not in VERSIONS:
            raise LabError(
                f"cluster {self.name}: the lab has no Kubernetes {version}; it serves "
                + ", ".join(VERSIONS)
            )

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything and return when pods can be created; LabError when it cannot be."""
        began = time.monotonic()
        binaries = build.binaries()
        self.state_dir.mkdir(parents=True, exist_ok=True)
        try:
            self._write_files(binaries)
            self._start_in_order(began + _READY_TIMEOUT)
        except BaseException:
            self.stop()
            raise
        self.programs.watch()
        log.info("cluster %s: ready after %.1f s", self.name, time.monotonic() - began)

    def upgrade(self, version: str) -> None:
        """Serve another version with the same data; ready when it returns, LabError if it fails.

        The API server goes first: no controller may be newer than it.
        """
        self._require(version)
        layout = replace(self._layout, version=version)
        commands = command_lines(layout)
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
            self.programs.replace(name, commands[name], _READY_TIMEOUT)
            if name == "kube-apiserver":
                self._wait_answer("/readyz", name, time.monotonic() + _READY_TIMEOUT)
        self._layout, self.version = layout, version
        log.info("cluster %s: serves Kubernetes %s", self.name, version)

    def stop(self) -> None:
        """End all programs and remove the state: a deleted cluster leaves nothing."""
        if self._client:
            self._client.close()
        # First the watcher, or it would restart what is ended here.
        if self._programs:
            self._programs.stop_watching()
        # Nothing of a deleted cluster is worth saving, so no time goes into a graceful end.
        for record in read_records(self.state_dir):
            end(record)
        for program in self._programs.programs.values() if self._programs else ():
            if program.child:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    program.child.wait(5)
        shutil.rmtree(self.state_dir, ignore_errors=True)

    @property
    def healthy(self) -> bool:
        """Whether every program runs at this moment."""
        return self._programs is not None and self._programs.healthy

    @property
    def programs(self) -> Supervisor:
        """The processes, to be looked at, killed and paused."""
        if self._programs is None:
            raise LabError(f"cluster {self.name}: its control plane was not started")
        return self._programs

    @property
    def failures(self) -> list[str]:
        """What died without being asked to, with the end of its log."""
        return self._programs.failures if self._programs else []

    # -- Kubernetes as admin ------------------------------------------------------------------

    @property
    def client(self) -> KubeClient:
        """The admin's client, with follow() for controllers."""
        if self._client is None:
            raise LabError(f"cluster {self.name}: its control plane was not started")
        return self._client

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        params: Mapping[str, Any] | None = None,
    ) -> tuple[int, Any]:
        """(HTTP status, decoded JSON or None) of one request as system:masters; thread-safe."""
        return self.client.request(method, path, body, content_type, params)

    def watch(self, path: str, params: Mapping[str, Any] | None = None) -> Iterator[dict]:
        """Decoded watch events until the server ends the watch or stop() is called."""
        return self.client.watch(path, params)

    # -- parts --------------------------------------------------------------------------------

    def _write_files(self, binaries: Path) -> None:
        names = ("etcd", "etcd-peer", *build.PROGRAMS.keys() - {"etcd"})
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        layout = Layout(self.state_dir, self.version, self.service_cidr, self.audit_log, ports)
        self._layout = layout
        self.endpoint = self.oidc_issuer = layout.endpoint
        authority = certs.Authority(f"{self.name} lab CA")
        self.ca_data = base64.b64encode(authority.pem.encode()).decode()
        service_ip = str(ipaddress.ip_network(self.service_cidr)[1])
        pki = layout.pki
        serving = authority.server(
            "kube-apiserver",
            [
                "127.0.0.1",
                service_ip,
                "localhost",
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
                "kubernetes.default.svc.cluster.local",
            ],
        )
        private, public = certs.service_account_key()
        admin = authority.client("lab-admin", "system:masters")
        files = {
            "ca.crt": authority.pem,
            "apiserver.crt": serving[0],
            "apiserver.key": serving[1],
            "sa.key": private,
            "sa.pub": public,
            "admin.crt": admin[0],
            "admin.key": admin[1],
        }
        for name, text in files.items():
            write_atomically(pki / name, text)
        write_atomically(
            self.kubeconfig,
            yaml.safe_dump(kubeconfig(self.name, self.endpoint, authority.pem, *admin)),
        )
        for component in ("kube-controller-manager", "kube-scheduler"):
            pair = authority.client(f"system:{component}")
            config = kubeconfig(self.name, self.endpoint, authority.pem, *pair)
            write_atomically(pki / f"{component}.kubeconfig", yaml.safe_dump(config))
        write_atomically(pki / "authn.json", json.dumps(webhook(self.authn_url)))
        write_atomically(self.state_dir / "stages.yaml", self._stages())
        if self.audit_log:
            write_atomically(pki / "audit-policy.json", json.dumps(_AUDIT_POLICY))
        self._client = KubeClient(
            self.endpoint, ca=pki / "ca.crt", certificate=pki / "admin.crt", key=pki / "admin.key"
        )
        commands = {name: (words, ports[name]) for name, words in command_lines(layout).items()}
        self._programs = Supervisor(self.name, self.state_dir, binaries, commands)

    def _stages(self) -> str:
        stages = list(yaml.safe_load_all(_STAGES.read_text()))
        for stage in stages:
            if stage["metadata"]["name"] == "node-allocatable":
                stage["spec"]["delay"]["durationMilliseconds"] = self.allocatable_delay_ms
        return yaml.safe_dump_all(stages)

    def _start_in_order(self, deadline: float) -> None:
        run = self.programs
        for name in ("etcd", "kube-apiserver"):
            run.start(name)
            run.wait(name, _READY_TIMEOUT)
        # Scheduler and KWOK retry until the first roles are written; the controller manager looks
        # only once a second, so it is started when there is something to see.
        run.start("kube-scheduler")
        run.start("kwok")
        self._wait_answer("/readyz", "kube-apiserver", deadline)
        run.start("kube-controller-manager")
        for name in ("kube-scheduler", "kwok", "kube-controller-manager"):
            run.wait(name, _READY_TIMEOUT)
        # Admission wants this account for every pod; the controller manager makes it.
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self._wait_answer(account, "kube-controller-manager", deadline)

    def _wait_answer(self, path: str, maker: str, deadline: float) -> None:
        """Wait until the API server answers 200 at `path`, which `maker` brings about."""
        while self.client.request("GET", path)[0] != 200:
            self.programs.check()
            if time.monotonic() > deadline or self.programs.stopping:
                raise LabError(
                    f"cluster {self.name}: {maker} is not ready after {_READY_TIMEOUT:.0f} s "
                    f"({path}); its log says:\n{tail(self.programs.log(maker))}"
                )
            time.sleep(0.05)


def state_name(cluster: str) -> str:
    """A folder name for a cluster that is short and safe whatever the cluster is called."""
    return f"{cluster[:32]}-{hashlib.sha256(cluster.encode()).hexdigest()[:8]}"
