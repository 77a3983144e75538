"""The command lines of a control plane's five programs; everything listens on 127.0.0.1 only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

POD_CIDR = "100.64.0.0/16"
BINARY_VERSION = "1.36"


@dataclass(frozen=True)
class Layout:
    """Where one cluster's files lie and which ports its programs listen on."""

    state_dir: Path
    version: str
    service_cidr: str
    audit_log: Path | None
    ports: dict[str, int]

    @property
    def pki(self) -> Path:
        return self.state_dir / "pki"

    @property
    def endpoint(self) -> str:
        return f"https://127.0.0.1:{self.ports['kube-apiserver']}"


LEASE_S = 200


def command_lines(layout: Layout) -> dict[str, list[str]]:
    """Program -> arguments, in the order in which they are started."""
    return {
        "etcd": _etcd(layout),
        "kube-apiserver": _apiserver(layout),
        "kube-scheduler": _client_flags(layout, "kube-scheduler"),
        "kwok": _kwok(layout),
        "kube-controller-manager": _controllers(layout),
    }


def _emulation(layout: Layout) -> list[str]:
    return [] if layout.version == BINARY_VERSION else [f"--emulated-version={layout.version}"]


def _etcd(layout: Layout) -> list[str]:
    client_url, peer_url = (
        f"http://127.0.0.1:{layout.ports[name]}" for name in ("etcd", "etcd-peer")
    )
    return [
        f"--data-dir={layout.state_dir / 'etcd'}",
        f"--listen-client-urls={client_url}",
        f"--advertise-client-urls={client_url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
        # The data lives no longer than the lab, so no write has to reach the disk.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _apiserver(layout: Layout) -> list[str]:
    pki = layout.pki
    arguments = [
        f"--etcd-servers=http://127.0.0.1:{layout.ports['etcd']}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={layout.ports['kube-apiserver']}",
        f"--cert-dir={layout.state_dir / 'apiserver'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--service-account-issuer={layout.endpoint}",
        f"--service-account-key-file={pki / 'sa.pub'}",
        f"--service-account-signing-key-file={pki / 'sa.key'}",
        f"--service-cluster-ip-range={layout.service_cidr}",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",
        f"--authentication-token-webhook-config-file={pki / 'authn.json'}",
        "--authentication-token-webhook-version=v1",
        # Changed access entries show at once, and a burst of calls still asks only once.
        "--authentication-token-webhook-cache-ttl=2s",
        # The reconciler would write its own address, and no endpoint may be a loopback one.
        "--endpoint-reconciler-type=none",
        "--profiling=false",
        *_emulation(layout),
    ]
    if layout.audit_log:
        arguments += [
            f"--audit-policy-file={pki / 'audit-policy.json'}",
            f"--audit-log-path={layout.audit_log}",
            # MiB: one file, which whoever reads it can follow.
            "--audit-log-maxsize=10000",
        ]
    return arguments


def _controllers(layout: Layout) -> list[str]:
    pki = layout.pki
    return [
        *_client_flags(layout, "kube-controller-manager"),
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--service-account-private-key-file={pki / 'sa.key'}",
        "--use-service-account-credentials=true",
        # Longer than a test holds the API server still; the joiner deletes the Nodes that end.
        f"--node-monitor-grace-period={LEASE_S + 100}s",
    ]


def _client_flags(layout: Layout, component: str) -> list[str]:
    config = layout.pki / f"{component}.kubeconfig"
    return [
        f"--kubeconfig={config}",
        # Nobody but the lab asks this port for its health, so it needs no delegated accounts;
        # looking them up fails while the API server still writes its first roles.
        "--authentication-skip-lookup=true",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.ports[component]}",
        f"--cert-dir={layout.state_dir / component}",
        "--leader-elect=false",
        "--profiling=false",
        # The defaults (20 to 50 a second) are for a shared server and cost 4 s of the start.
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        *_emulation(layout),
    ]


def _kwok(layout: Layout) -> list[str]:
    return [
        f"--kubeconfig={layout.state_dir / 'kubeconfig'}",
        f"--config={layout.state_dir / 'stages.yaml'}",
        "--manage-all-nodes=true",
        # Renewed after a quarter of it: a thousand leases every ten seconds take half a core.
        f"--node-lease-duration-seconds={LEASE_S}",
        f"--cidr={POD_CIDR}",
        f"--server-address=127.0.0.1:{layout.ports['kwok']}",
    ]


def webhook(url: str) -> dict:
    """The kubeconfig-shaped file that names a token webhook."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "authn", "cluster": {"server": url}}],
        "users": [{"name": "apiserver"}],
        "contexts": [{"name": "authn", "context": {"cluster": "authn", "user": "apiserver"}}],
        "current-context": "authn",
    }
