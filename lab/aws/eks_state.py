"""What our EKS remembers: clusters with all that belongs to them, in this process's memory only."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from botocore.config import Config
from botocore.exceptions import ClientError

from lab.aws import SERVICE_ACCESS_KEY, Context, ServiceError
from lab.aws.eks_identity import identify
from lab.aws.restjson import SESSION

log = logging.getLogger("lab.eks")
# Seconds that a state lasts; EKS takes 13-16 minutes for a cluster, nobody wants that here.
LATENCIES = {
    "CreateCluster": 0.2,
    "UpdateCluster": 0.2,
    "DeleteCluster": 0.2,
    "CreateNodegroup": 0.2,
    "UpdateNodegroup": 0.2,
    "DeleteNodegroup": 0.2,
    "CreateAddon": 0.5,
    "UpdateAddon": 0.2,
    "DeleteAddon": 0.1,
    # How long a node group waits for its nodes before it is CREATE_FAILED.
    "NodegroupTimeout": 60.0,
}


class ControlPlane(Protocol):
    """What we need of lab.controlplane.ControlPlane."""

    endpoint: str
    ca_data: str
    oidc_issuer: str

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def upgrade(self, version: str) -> None: ...

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        params: dict[str, str] | None = None,
    ) -> tuple[int, Any]: ...


# From a cluster's name, its Kubernetes version and its service CIDR.
Factory = Callable[[str, str, str], ControlPlane]


@dataclass
class Cluster:
    """One cluster: `record` is the describe answer; the other dicts go by name or ARN."""

    name: str
    region: str
    record: dict[str, Any]
    context: Context
    control_plane: ControlPlane | None = None
    nodegroups: dict[str, dict[str, Any]] = field(default_factory=dict)
    addons: dict[str, dict[str, Any]] = field(default_factory=dict)
    access_entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    associations: dict[str, dict[str, Any]] = field(default_factory=dict)
    updates: dict[str, dict[str, Any]] = field(default_factory=dict)
    eni_ids: list[str] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def identify(self, principal_arn: str) -> dict[str, Any] | None:
        """{"username", "groups"} of an IAM principal, or None where it has no access entry."""
        return identify(self.access_entries, principal_arn)

    def kubernetes(
        self, method: str, path: str, body: Any = None, ok: tuple[int, ...] = (), **more: Any
    ) -> Any:
        """One request to the API server as its admin; a status other than 2xx or `ok` raises."""
        if self.control_plane is None:
            raise ServiceError("InvalidRequestException", f"cluster {self.name} has no API server")
        status, answer = self.control_plane.request(method, path, body, **more)
        if status >= 300 and status not in ok:
            reason = answer.get("message", answer) if isinstance(answer, dict) else answer
            raise ServiceError("ServerException", f"{method} {path}: {status} {reason}")
        return answer if status < 300 else None

    def apply(self, collection: str, manifest: dict[str, Any]) -> None:
        """Server-side apply of one object of ours, below `collection` (its API path)."""
        self.kubernetes(
            "PATCH",
            f"{collection}/{manifest['metadata']['name'].replace(':', '%3A')}",
            manifest,
            content_type="application/apply-patch+yaml",
            params={"fieldManager": "eks", "force": "true"},
        )


class Registry:
    """All clusters by name, and the means that every part of the service shares."""

    def __init__(self, factory: Factory, endpoint: str = "") -> None:
        self.clusters: dict[str, Cluster] = {}
        self.lock = threading.RLock()
        self.factory = factory
        self.endpoint = endpoint
        # Called whenever a cluster has come or gone.
        self.changed: Callable[[], None] = lambda: None
        self.latencies = dict(LATENCIES)
        for pair in filter(None, os.environ.get("GPUSHARE_LAB_LATENCIES", "").split(",")):
            name, _, seconds = pair.partition("=")
            self.latencies[name] = float(seconds)
        self._clients: dict[tuple[str, str], Any] = {}

    def get(self, name: str) -> Cluster | None:
        return self.clusters.get(name)

    def find(self, name: str, context: Context) -> Cluster:
        """The caller's cluster, or ResourceNotFoundException as EKS words it."""
        cluster = self.clusters.get(name)
        if cluster is None or cluster.region != context.region:
            raise ServiceError(
                "ResourceNotFoundException", f"No cluster found for name: {name}.", clusterName=name
            )
        return cluster

    def find_active(self, name: str, context: Context) -> Cluster:
        """A cluster on which parts can be made: an API server must be there."""
        cluster = self.find(name, context)
        if cluster.record["status"] not in ("ACTIVE", "UPDATING"):
            raise ServiceError(
                "InvalidRequestException",
                f"Cluster '{name}' is not in ACTIVE status, it is {cluster.record['status']}",
                clusterName=name,
            )
        return cluster

    def aws(self, service: str, region: str) -> Any:
        """A client of this very daemon, with the service's own key."""
        with self.lock:
            if (service, region) not in self._clients:
                self._clients[service, region] = SESSION.create_client(
                    service,
                    region_name=region,
                    endpoint_url=self.endpoint,
                    aws_access_key_id=SERVICE_ACCESS_KEY,
                    aws_secret_access_key="service",
                    config=Config(retries={"max_attempts": 1}, max_pool_connections=20),
                )
            return self._clients[service, region]

    def pause(self, state: str) -> None:
        time.sleep(self.latencies.get(state, 0.0))

    def start_update(
        self,
        cluster: Cluster,
        record: dict[str, Any],
        kind: str,
        params: dict[str, Any],
        work: Callable[[], None],
        *,
        of: tuple[str, str] = ("", ""),
        latency: str = "UpdateCluster",
    ) -> dict[str, Any]:
        """An Update that goes on in a thread; `record` is UPDATING for as long. `of`: what of."""
        update = {
            "id": str(uuid.uuid4()),
            "status": "InProgress",
            "type": kind,
            "params": [{"type": k, "value": str(v)} for k, v in params.items()],
            "createdAt": time.time(),
            "errors": [],
        }
        cluster.updates[update["id"]] = {"update": update, "of": of}
        record["status"] = "UPDATING"

        def go() -> None:
            self.pause(latency)
            try:
                work()
                update["status"] = "Successful"
            except Exception as error:
                log.exception("update %s of %s %s failed", kind, cluster.name, of)
                update["status"] = "Failed"
                update["errors"] = [{"errorCode": "Unknown", "errorMessage": str(error)}]
            if record["status"] == "UPDATING":
                record["status"] = "ACTIVE"

        spawn(go)
        return {"update": dict(update)}


def spawn(work: Callable[[], None]) -> None:
    """Run in a thread that does not keep the process alive."""
    threading.Thread(target=work, daemon=True, name=f"eks-{work.__name__}").start()


def arn(context: Context, resource: str) -> str:
    return f"arn:{context.partition}:eks:{context.region}:{context.account_id}:{resource}"


def require_free(record: dict[str, Any], what: str, allowed: tuple[str, ...] = ("ACTIVE",)) -> None:
    """Refuse a change of something that is in the middle of another."""
    if record["status"] not in allowed:
        raise ServiceError(
            "ResourceInUseException", f"{what} is in {record['status']} status, not {allowed[0]}"
        )


def checked(call: Callable[..., Any], **arguments: Any) -> Any:
    """A call to EC2, IAM or SSM whose refusal is the caller's invalid parameter."""
    try:
        return call(**arguments)
    except ClientError as error:
        raise ServiceError(
            "InvalidParameterException", error.response["Error"]["Message"]
        ) from error


def require_role(registry: Registry, role_arn: str, region: str) -> str:
    """The role's name; refused where IAM does not have it under this very ARN."""
    name = role_arn.rsplit("/", 1)[-1]
    try:
        found = registry.aws("iam", region).get_role(RoleName=name)["Role"]["Arn"]
    except ClientError:
        found = None
    if found != role_arn:
        raise ServiceError(
            "InvalidParameterException",
            f"Role with arn: {role_arn}, could not be assumed because it does not exist or the"
            " trusted entity is not correct",
        )
    return name
