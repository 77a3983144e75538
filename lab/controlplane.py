"""The real Kubernetes control plane of one EKS cluster: etcd, API server, controllers, KWOK."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import ipaddress
import json
import logging
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lab import LabError, build, certs
from lab.kubeclient import KubeClient, kubeconfig
from lab.processes import (
    check_running,
    end,
    free_ports,
    read_records,
    start_bound,
    tail,
    wait_port,
    write_atomically,
)
from lab.programs import Layout, command_lines, webhook

VERSIONS = ("1.34", "1.35", "1.36")
_STAGES = Path(__file__).parent / "stages.yaml"
_READY_TIMEOUT = 60.0
_RESTARTS = 3
log = logging.getLogger("lab.controlplane")


@dataclass
class _Program:
    """One child: how it is started, and what runs now."""

    name: str
    arguments: list[str]
    port: int
    child: subprocess.Popen | None = None
    restarts: int = 0


class ControlPlane:
    """One cluster's control plane, everything on 127.0.0.1, all state below `state_dir`.

    version: "1.34" to "1.36"; the 1.36 binaries emulate the older ones.
    authn_url: the TokenReview webhook that every bearer token is sent to, as EKS does.
    service_cidr: the IPv4 range of Services. allocatable_delay_ms: how long the "kubelet" takes to
    copy capacity into allocatable. audit: write state_dir/audit.log, metadata only.
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
        if version not in VERSIONS:
            raise LabError(
                f"cluster {name}: the lab has no Kubernetes {version}; it serves "
                + ", ".join(VERSIONS)
            )
        self.name = name
        self.version = version
        self.state_dir = Path(state_dir)
        self.authn_url = authn_url
        self.service_cidr = service_cidr
        self.allocatable_delay_ms = allocatable_delay_ms
        self.audit = audit
        self.kubeconfig = self.state_dir / "kubeconfig"
        self.endpoint = ""
        self.ca_data = ""
        self.oidc_issuer = ""
        self.failures: list[str] = []
        self._client: KubeClient | None = None
        self._programs: list[_Program] = []
        self._binaries = Path()
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything and return when pods can be created; LabError when it cannot be."""
        began = time.monotonic()
        self._binaries = build.binaries()
        self._stopping.clear()
        self.state_dir.mkdir(parents=True, exist_ok=True)
        try:
            self._write_files()
            self._start_in_order(began + _READY_TIMEOUT)
        except BaseException:
            self.stop()
            raise
        self._watcher = threading.Thread(
            target=self._watch_children, name=f"lab-watch-{self.name}", daemon=True
        )
        self._watcher.start()
        log.info("cluster %s: ready after %.1f s", self.name, time.monotonic() - began)

    def stop(self) -> None:
        """End all programs and remove the state: a deleted cluster leaves nothing."""
        self._stopping.set()
        if self._client:
            self._client.close()
        # First the watcher, or it would restart what is ended here.
        if self._watcher:
            self._watcher.join(5)
        # Nothing of a deleted cluster is worth saving, so no time goes into a graceful end.
        for record in read_records(self.state_dir):
            end(record)
        for program in self._programs:
            if program.child:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    program.child.wait(5)
        shutil.rmtree(self.state_dir, ignore_errors=True)

    @property
    def healthy(self) -> bool:
        """Whether every program runs at this moment."""
        return bool(self._programs) and all(
            program.child is not None and program.child.poll() is None for program in self._programs
        )

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

    def _write_files(self) -> None:
        names = ("etcd", "etcd-peer", *build.PROGRAMS.keys() - {"etcd"})
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        layout = Layout(self.state_dir, self.version, self.service_cidr, self.audit, ports)
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
        if self.audit:
            policy = {
                "apiVersion": "audit.k8s.io/v1",
                "kind": "Policy",
                "omitStages": ["RequestReceived"],
                "rules": [{"level": "Metadata"}],
            }
            write_atomically(pki / "audit-policy.json", json.dumps(policy))
        self._client = KubeClient(
            self.endpoint, ca=pki / "ca.crt", certificate=pki / "admin.crt", key=pki / "admin.key"
        )
        self._programs = [
            _Program(name, arguments, ports[name])
            for name, arguments in command_lines(layout).items()
        ]

    def _stages(self) -> str:
        stages = list(yaml.safe_load_all(_STAGES.read_text()))
        for stage in stages:
            if stage["metadata"]["name"] == "node-allocatable":
                stage["spec"]["delay"]["durationMilliseconds"] = self.allocatable_delay_ms
        return yaml.safe_dump_all(stages)

    # -- processes ----------------------------------------------------------------------------

    def _log(self, program: _Program) -> Path:
        return self.state_dir / "logs" / f"{program.name}.log"

    def _start(self, program: _Program) -> None:
        temporary = self.state_dir / "tmp"
        temporary.mkdir(exist_ok=True)
        # A clean environment: no proxy, no credentials and no Kubernetes settings of the caller.
        env = {
            "PATH": os.defpath,
            "HOME": str(self.state_dir),
            "TMPDIR": str(temporary),
            "NO_PROXY": "*",
            # A larger share of processor time for a third less memory: five programs per cluster.
            "GOGC": "60",
        }
        program.child = start_bound(
            [str(self._binaries / program.name), *program.arguments],
            log=self._log(program),
            record=self.state_dir / "run" / f"{program.name}.json",
            env=env,
            cwd=self.state_dir,
        )

    def _wait(self, program: _Program) -> None:
        what = f"cluster {self.name}: {program.name}"
        assert program.child is not None
        wait_port(program.port, program.child, _READY_TIMEOUT, what, self._log(program))

    def _start_in_order(self, deadline: float) -> None:
        etcd, apiserver, scheduler, kwok, controllers = self._programs
        self._start(etcd)
        self._wait(etcd)
        self._start(apiserver)
        self._wait(apiserver)
        # Scheduler and KWOK retry until the first roles are written; the controller manager looks
        # only once a second, so it is started when there is something to see.
        self._start(scheduler)
        self._start(kwok)
        self._wait_answer("/readyz", apiserver, deadline)
        self._start(controllers)
        for program in (scheduler, kwok, controllers):
            self._wait(program)
        # Admission wants this account for every pod; the controller manager makes it.
        self._wait_answer(
            "/api/v1/namespaces/default/serviceaccounts/default", controllers, deadline
        )

    def _wait_answer(self, path: str, maker: _Program, deadline: float) -> None:
        """Wait until the API server answers 200 at `path`, which `maker` brings about."""
        while self.client.request("GET", path)[0] != 200:
            for program in self._programs:
                if program.child is not None:
                    what = f"cluster {self.name}: {program.name}"
                    check_running(program.child, what, self._log(program))
            if time.monotonic() > deadline or self._stopping.is_set():
                raise LabError(
                    f"cluster {self.name}: {maker.name} is not ready after {_READY_TIMEOUT:.0f} s "
                    f"({path}); its log says:\n{tail(self._log(maker))}"
                )
            time.sleep(0.05)

    def _watch_children(self) -> None:
        """Restart a program that died, a few times; what cannot be saved is said in `failures`."""
        while not self._stopping.wait(0.5):
            for program in self._programs:
                code = program.child.poll() if program.child else None
                if code is None or self._stopping.is_set():
                    continue
                program.child, program.restarts = None, program.restarts + 1
                said = f"cluster {self.name}: {program.name} ended with code {code}:\n" + tail(
                    self._log(program)
                )
                self.failures.append(said)
                if program.restarts > _RESTARTS:
                    log.error("%s\nno more restarts", said)
                    continue
                log.warning("%s\nrestart %d", said, program.restarts)
                self._start(program)


def state_name(cluster: str) -> str:
    """A folder name for a cluster that is short and safe whatever the cluster is called."""
    return f"{cluster[:32]}-{hashlib.sha256(cluster.encode()).hexdigest()[:8]}"
