"""An API server in a dict, and a daemon around it: for tests of our EKS without its programs."""

from __future__ import annotations

import contextlib
import copy
import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import boto3
from botocore.config import Config

# One session for all tests: it keeps the service models that it has read.
SESSION = boto3.session.Session()
TRUST = json.dumps({"Version": "2012-10-17", "Statement": []})


class FakePlane:
    """What our EKS asks of a control plane, kept in memory; Nodes are Ready at once."""

    def __init__(self, name: str = "demo", version: str = "1.36", services: str = "") -> None:
        self.name, self.version, self.services = name, version, services
        self.endpoint = f"https://127.0.0.1:1/{name}"
        self.ca_data, self.oidc_issuer = "Y2E=", "https://127.0.0.1:1"
        self.objects: dict[str, dict[str, Any]] = {"/api/v1/namespaces/team": {}}
        self.running, self.fail, self.versions = False, False, 0
        self._lock = threading.RLock()

    def start(self) -> None:
        if self.fail:
            raise RuntimeError("etcd did not start")
        self.running = True

    def stop(self) -> None:
        self.running = False

    def upgrade(self, version: str) -> None:
        if self.fail:
            raise RuntimeError("the API server did not come back")
        self.version = version

    def nodes(self) -> list[dict[str, Any]]:
        return self.request("GET", "/api/v1/nodes")[1]["items"]

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        params: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        with self._lock:
            return getattr(self, f"_{method.lower()}")(path, copy.deepcopy(body), params or {})

    def _get(self, path: str, body: Any, params: dict[str, str]) -> tuple[int, Any]:
        if path in self.objects:
            return 200, self._shown(path)
        if path.rsplit("/", 1)[-1] not in ("nodes", "pods"):
            return 404, {"message": "not found"}
        found = [self._shown(p) for p in self.objects if p.startswith(path + "/")]
        key, _, value = params.get("labelSelector", "").partition("=")
        if key:
            found = [o for o in found if o["metadata"].get("labels", {}).get(key) == value]
        return 200, {"items": found}

    def _shown(self, path: str) -> dict[str, Any]:
        item = copy.deepcopy(self.objects[path])
        if path.startswith("/apis/apps/v1/"):
            nodes = [o for p, o in self.objects.items() if p.startswith("/api/v1/nodes/")]
            free = [node for node in nodes if not node["spec"].get("taints")]
            status = {"observedGeneration": 1}
            if "/daemonsets/" in path:
                status |= {"desiredNumberScheduled": len(nodes), "numberAvailable": len(nodes)}
            elif free:
                status["availableReplicas"] = item["spec"]["replicas"]
            item["status"] = status
        return item

    def _post(self, path: str, body: Any, params: dict[str, str]) -> tuple[int, Any]:
        where = f"{path}/{body['metadata']['name']}"
        if where in self.objects:
            return 409, {"message": "exists"}
        self.versions += 1
        body["metadata"] |= {"uid": f"uid-{self.versions}", "resourceVersion": str(self.versions)}
        if path == "/api/v1/nodes":
            body["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        self.objects[where] = body
        return 201, body

    def _patch(self, path: str, body: Any, params: dict[str, str]) -> tuple[int, Any]:
        if "fieldManager" in params:
            self.objects[path.replace("%3A", ":")] = body
            return 200, body
        path = path.removesuffix("/status")
        if path not in self.objects:
            return 404, {"message": "not found"}
        self.objects[path] = _merged(self.objects[path], body)
        return 200, self.objects[path]

    def _delete(self, path: str, body: Any, params: dict[str, str]) -> tuple[int, Any]:
        found = self.objects.pop(path, None)
        return (200, found) if found is not None else (404, {"message": "not found"})


def _merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = _merged(new.get(key), value)
    return new


class Lab:
    """Clients of a running daemon, and the few things that every test needs in its account."""

    def __init__(self, daemon: Any) -> None:
        self.daemon = daemon
        self.registry = daemon.eks.registry
        self.eks, self.ec2, self.iam = (self.client(name) for name in ("eks", "ec2", "iam"))
        self.autoscaling, self.sts = self.client("autoscaling"), self.client("sts")

    def client(self, service: str, **more: Any) -> Any:
        env = self.daemon.env
        keys = {
            "aws_access_key_id": env["AWS_ACCESS_KEY_ID"],
            "aws_secret_access_key": env["AWS_SECRET_ACCESS_KEY"],
            "region_name": "us-east-1",
            **more,
        }
        config = Config(retries={"total_max_attempts": 1})
        return SESSION.client(service, endpoint_url=self.daemon.endpoint, config=config, **keys)

    def role(self, name: str) -> str:
        return self.iam.create_role(RoleName=name, AssumeRolePolicyDocument=TRUST)["Role"]["Arn"]

    def network(self, zones: str = "ab") -> list[str]:
        vpc = self.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        return [
            self.ec2.create_subnet(
                VpcId=vpc, CidrBlock=f"10.0.{16 * i}.0/20", AvailabilityZone=f"us-east-1{zone}"
            )["Subnet"]["SubnetId"]
            for i, zone in enumerate(zones)
        ]

    def cluster(self, name: str = "demo", **more: Any) -> dict[str, Any]:
        subnets = more.pop("subnets", None) or self.network()
        settings = {
            "roleArn": more.pop("role", None) or self.role(f"{name}-cluster"),
            "resourcesVpcConfig": {"subnetIds": subnets},
            "accessConfig": {"authenticationMode": "API"},
            **more,
        }
        self.eks.create_cluster(name=name, **settings)
        return until(lambda: self.eks.describe_cluster(name=name)["cluster"])

    def nodegroup(self, name: str, role: str, subnets: list[str], **more: Any) -> dict[str, Any]:
        settings = {
            "instanceTypes": ["m6i.large"],
            "scalingConfig": {"minSize": 1, "maxSize": 3, "desiredSize": 2},
            **more,
        }
        self.eks.create_nodegroup(
            clusterName="demo", nodegroupName=name, nodeRole=role, subnets=subnets, **settings
        )
        return self.settled(name)

    def settled(self, name: str) -> dict[str, Any]:
        described = self.eks.describe_nodegroup
        return until(lambda: described(clusterName="demo", nodegroupName=name)["nodegroup"])

    def update(self, answer: dict[str, Any], **of: str) -> dict[str, Any]:
        number = answer["update"]["id"]
        return until(
            lambda: self.eks.describe_update(name="demo", updateId=number, **of)["update"],
            ("InProgress",),
        )

    def lab(self, path: str, body: Any = None, method: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.daemon.endpoint}/_lab/{path}", data=data, method=method
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def plane(self, name: str = "demo") -> FakePlane:
        return self.registry.clusters[name].control_plane


def until(read: Any, while_in: tuple[str, ...] = ("CREATING", "UPDATING"), limit_s: float = 20):
    """What `read` answers once its status is none of `while_in`."""
    deadline = time.monotonic() + limit_s
    while (found := read())["status"] in while_in:
        assert time.monotonic() < deadline, f"still {found['status']}"
        time.sleep(0.05)
    return found


def eventually(condition: Any, limit_s: float = 10) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


@contextlib.contextmanager
def running_lab(tmp_path: Any) -> Iterator[Lab]:
    """A daemon whose clusters have FakePlanes; `fresh` empties it between two tests."""
    from lab.server import Daemon

    daemon = Daemon(tmp_path, factory=FakePlane)
    daemon.start()
    try:
        yield Lab(daemon)
    finally:
        daemon.stop()


def fresh(lab: Lab) -> Lab:
    """An empty account: a whole reset of moto would read IAM's managed policies for seconds."""
    from moto.autoscaling.models import autoscaling_backends
    from moto.ec2.models import ec2_backends
    from moto.iam.models import iam_backends
    from moto.ssm.models import ssm_backends

    from lab.aws import ACCOUNT_ID
    from lab.aws.eks_state import LATENCIES

    lab.registry.clusters.clear()
    lab.registry.latencies.update(dict.fromkeys(LATENCIES, 0.05), NodegroupTimeout=20)
    lab.daemon.front.faults.clear()
    with lab.daemon.front.moto_lock:
        for backends in (ec2_backends, autoscaling_backends, ssm_backends):
            backends[ACCOUNT_ID]["us-east-1"].reset()
        iam = iam_backends[ACCOUNT_ID]["aws"]
        iam.roles.clear()
        iam.instance_profiles.clear()
    return lab
