"""A control plane with guards, mutation and quotas as the role installs them, and pods to try."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests

from ansible_collections.gpushare.eks.plugins.module_utils._names import (
    COMPUTE_ANNOTATION,
    POOL_LABEL,
    RESOURCE,
)
from ansible_collections.gpushare.eks.plugins.module_utils._pools import derive
from ansible_collections.gpushare.eks.plugins.module_utils._quantity import parse_quantity
from lab.controlplane import ControlPlane

from . import playbook
from .fence import STRATEGIC, World, eventually

TAINT = "gpushare.eks/shared"
SHARE, WHOLE = "nvidia.com/gpu.shared", "nvidia.com/gpu"
# A cluster as a user gives it by hand.
GIVEN = {"exists": True, "name": "fence", "endpoint": "none", "ca_data": "none"}
TEAM, OLD = "team-vision", "before-the-guards"


# What it is, the number, the pool, the part of the compute.
NUMBERS = [
    ("any pool", "3Gi", None, None),
    ("time-slicing", "3Gi", "slices", None),
    ("all of a GPU", "14848Mi", "slices", None),
    ("MPS", "3Gi", "mps", None),
    ("MPS, all of a client", "3840Mi", "mps", None),
    ("MPS with compute", "2Gi", "mps", 20),
    ("in bytes", "1073741824", "mps", None),
    ("in KiB", "1048576Ki", None, None),
    ("1 MiB", "1Mi", None, None),
]


def _pool(name: str, kind: str = "g4dn.xlarge", **changes: Any) -> dict[str, Any]:
    return {"name": name, "instance_types": [kind], "min_size": 0, "max_size": 2, **changes}


POOLS = [
    _pool("system", "m6i.large"),
    _pool("slices", sharing={"strategy": "time_slicing", "gpu_memory": True}),
    _pool(
        "mps",
        sharing={"strategy": "mps", "replicas": 4, "gpu_memory": True},
        taints=[{"key": "team", "value": "ml", "effect": "NoSchedule"}],
    ),
    _pool("turns", sharing={"strategy": "time_slicing", "replicas": 10}),
    _pool("whole", "g4dn.2xlarge", sharing={"strategy": "exclusive"}),
]
DERIVED = derive(POOLS, cluster_name="fence")
QUOTAS = [{"namespace": TEAM, "gpu_memory": "6Gi", "max_per_pod": "4Gi"}]


def pod(*containers: dict[str, Any], name: str = "tried", **spec: Any) -> dict[str, Any]:
    """A pod of these containers (one plain one by default); `annotations` go to its metadata."""
    metadata = {"name": name, "annotations": spec.pop("annotations", {})}
    return {"metadata": metadata, "spec": {"containers": list(containers or [box()]), **spec}}


def box(name: str = "main", **fields: Any) -> dict[str, Any]:
    """A container; `env` as a dict."""
    if "env" in fields:
        fields["env"] = [
            {"name": key, **(value if isinstance(value, dict) else {"value": value})}
            for key, value in fields["env"].items()
        ]
    return {"name": name, "image": "registry.example/image", **fields}


def asks(quantity: str, resource: str = RESOURCE, **more: str) -> dict[str, Any]:
    """Resources with these limits, which are then the requests as well."""
    return {"limits": {resource: quantity, **more}}


def on(*pools: str) -> dict[str, Any]:
    """The affinity of a pod that runs on one of these pools."""
    expression = {"key": POOL_LABEL, "operator": "In", "values": list(pools)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def deployment(template: dict[str, Any]) -> dict[str, Any]:
    labels = {"app": "tried"}
    return {
        "metadata": {"name": "tried"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
        },
    }


def plain(quantities: dict[str, str]) -> dict[str, int]:
    return {key: int(parse_quantity(value)) for key, value in quantities.items()}


def tried(number: str, pool: str | None, percent: int | None, **fields: Any) -> dict[str, Any]:
    notes = {} if percent is None else {COMPUTE_ANNOTATION: str(percent)}
    selector = {} if pool is None else {POOL_LABEL: pool}
    fields = {"resources": asks(number), **fields}
    return pod(box(**fields), annotations=notes, nodeSelector=selector)


def own(made: dict[str, Any]) -> list[dict[str, Any]]:
    """The tolerations but for those that Kubernetes gives every pod."""
    given = [t for t in made["spec"]["tolerations"] if not t["key"].startswith("node.kubernetes")]
    return sorted(given, key=str)


class Admission(World):
    """A control plane, and what its admission says."""

    def dry(self, made: dict[str, Any], namespace: str = "default") -> tuple[int, Any]:
        """(status, pod or message) of a server-side dry run."""
        path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
        status, answer = self.plane.request("POST", path, made)
        return status, answer if status == 201 else answer["message"]

    def make(self, made: dict[str, Any], namespace: str = "default") -> tuple[int, Any]:
        status, answer = self.plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", made)
        return status, answer if status == 201 else answer["message"]

    def patch(self, name: str, body: Any, part: str = "", namespace: str = "default") -> Any:
        """(status, message or None) of a dry-run change of a pod that is there."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}{part}?dryRun=All"
        status, answer = self.plane.request("PATCH", path, body, STRATEGIC)
        return status, None if status == 200 else answer["message"]

    def warnings(self, path: str, body: Any) -> tuple[int, str]:
        """(status, what the Warning headers say) of an object that is applied."""
        pki = self.plane.state_dir / "pki"
        answer = requests.post(
            f"{self.plane.endpoint}{path}?dryRun=All",
            json=body,
            verify=self._ca,
            cert=(str(pki / "admin.crt"), str(pki / "admin.key")),
            timeout=30,
        )
        return answer.status_code, answer.headers.get("Warning", "")

    def guarded(self, **more: Any) -> playbook.Run:
        """The role's manifests, with these variables beside pools and quotas."""
        variables = {"gpushare_pools": POOLS, "gpushare_team_quotas": QUOTAS, **more}
        return self.install("-e", json.dumps(variables))

    def refuses(self, made: dict[str, Any], whether: bool = True) -> None:
        """Waits until this pod is refused: a policy is in force within a second or two."""
        eventually(lambda: (self.dry(made)[0] == 403) is whether)


@contextlib.contextmanager
def world(state_dir: Path, version: str = "1.36") -> Iterator[Admission]:
    """A control plane with the role's policies in force, and one pod older than they are."""
    plane = ControlPlane("fence", version, state_dir, "http://127.0.0.1:9/authn")
    plane.start()
    try:
        made = Admission(plane)
        for name in (TEAM, OLD):
            made.admin("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
            account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
            eventually(lambda account=account: plane.request("GET", account)[0] == 200)
        status, said = made.make(pod(name="older", hostPID=True), OLD)
        assert status == 201, said
        made.guarded()
        # The guards are installed in this order, the mutation after them.
        made.refuses(pod(box(resources=asks("1", SHARE)), nodeSelector={POOL_LABEL: "whole"}))
        share = pod(box(resources=asks("1Gi")))
        eventually(lambda: f"'{SHARE}': '1'" in str(made.dry(share)[1]))
        yield made
    finally:
        plane.stop()
