"""Add-ons: a real workload in kube-system each; its state is what the API server says of it."""

from __future__ import annotations

import copy
import json
import time
import uuid
from typing import Any

from lab.aws import Context, ServiceError
from lab.aws.addons import ADDONS, MARK, configuration, schema, versions, workload, workloads
from lab.aws.eks_clusters import VERSIONS
from lab.aws.eks_state import Cluster, Registry, arn, require_free, spawn


def _path(kind: str, name: str = "") -> str:
    plural = "daemonsets" if kind == "DaemonSet" else "deployments"
    return f"/apis/apps/v1/namespaces/kube-system/{plural}" + (f"/{name}" if name else "")


def _missing(workload: dict[str, Any]) -> str:
    """Why the workload is not available; empty when it is."""
    status, name = workload.get("status", {}), workload["metadata"]["name"]
    if status.get("observedGeneration", 0) < workload["metadata"].get("generation", 1):
        return f"{name} has not been looked at yet"
    if workload["kind"] == "DaemonSet":
        wanted, there = status.get("desiredNumberScheduled", 0), status.get("numberAvailable", 0)
    else:
        wanted, there = workload["spec"]["replicas"], status.get("availableReplicas", 0)
    return "" if there >= wanted else f"{name}: {there} of {wanted} replicas are available"


class Addons:
    """The operations on add-ons."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def _find(self, params: dict[str, Any], context: Context) -> tuple[Cluster, dict[str, Any]]:
        cluster = self.registry.find(params["clusterName"], context)
        stored = cluster.addons.get(params["addonName"])
        if stored is None:
            raise ServiceError(
                "ResourceNotFoundException",
                f"No addon: {params['addonName']} found in cluster: {cluster.name}",
                clusterName=cluster.name,
                addonName=params["addonName"],
            )
        self._refresh(cluster, stored)
        return cluster, stored

    def _check(self, name: str, version: str | None, minor: str) -> str:
        if name not in ADDONS:
            raise ServiceError(
                "InvalidParameterException", f"Addon {name} specified is not supported"
            )
        known = versions(name, minor)
        if version and version not in known:
            raise ServiceError(
                "InvalidParameterException",
                f"Addon version {version} specified is not supported in {minor}: {known}",
            )
        return version or known[0]

    def create(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster = self.registry.find_active(params["clusterName"], context)
        name = params["addonName"]
        version = self._check(name, params.get("addonVersion"), cluster.record["version"])
        configuration(params.get("configurationValues"))
        record = {
            "addonName": name,
            "clusterName": cluster.name,
            "status": "CREATING",
            "addonVersion": version,
            "health": {"issues": []},
            "addonArn": arn(context, f"addon/{cluster.name}/{name}/{uuid.uuid4()}"),
            "createdAt": time.time(),
            "modifiedAt": time.time(),
            "serviceAccountRoleArn": params.get("serviceAccountRoleArn"),
            "tags": params.get("tags", {}),
            "configurationValues": params.get("configurationValues"),
            "owner": "aws",
            "publisher": "eks",
        }
        with cluster.lock:
            if name in cluster.addons:
                raise ServiceError(
                    "ResourceInUseException",
                    "Addon already exists.",
                    clusterName=cluster.name,
                    addonName=name,
                )
            cluster.addons[name] = record
        answer = copy.deepcopy(record)
        spawn(lambda: self._install(cluster, record, params.get("resolveConflicts", "NONE")))
        return {"addon": answer}

    def _install(self, cluster: Cluster, record: dict[str, Any], conflicts: str) -> None:
        try:
            self._apply(cluster, record, conflicts)
        except ServiceError as error:
            record["status"] = "CREATE_FAILED"
            code = "ConfigurationConflict" if "onflict" in error.message else "InternalFailure"
            record["health"] = {"issues": [{"code": code, "message": error.message}]}

    def _apply(self, cluster: Cluster, record: dict[str, Any], conflicts: str) -> None:
        values = configuration(record["configurationValues"])
        for kind, name in workloads(record["addonName"]):
            there = cluster.kubernetes("GET", _path(kind, name), ok=(404,))
            foreign = there and MARK not in there["metadata"].get("labels", {})
            if foreign and conflicts not in ("OVERWRITE",):
                raise ServiceError(
                    "InvalidRequestException",
                    f"Conflicts found when trying to apply. {kind} kube-system/{name} exists",
                )
            part = values.get("node" if kind == "DaemonSet" else "controller", {})
            merged = {**values, **part} if isinstance(part, dict) else values
            cluster.apply(
                _path(kind),
                workload(kind, name, record["addonName"], record["addonVersion"], merged),
            )

    def _refresh(self, cluster: Cluster, record: dict[str, Any]) -> None:
        """ACTIVE when every workload is available; DEGRADED when it is not after some time."""
        if record["status"] not in ("CREATING", "ACTIVE", "DEGRADED", "UPDATING"):
            return
        if cluster.control_plane is None or record["status"] == "UPDATING":
            return
        problems = []
        for kind, name in workloads(record["addonName"]):
            there = cluster.kubernetes("GET", _path(kind, name), ok=(404,))
            problems.append(_missing({"kind": kind, **there}) if there else f"{name} is not there")
        text = "; ".join(problem for problem in problems if problem)
        if not text:
            record["status"], record["health"] = "ACTIVE", {"issues": []}
        elif time.time() - record["modifiedAt"] > self.registry.latencies["CreateAddon"]:
            issue = {
                "code": "InsufficientNumberOfReplicas",
                "message": "The add-on is unhealthy because it doesn't have the desired number of"
                f" replicas. {text}",
                "resourceIds": [],
            }
            record["status"], record["health"] = "DEGRADED", {"issues": [issue]}

    def describe(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        return {"addon": copy.deepcopy(self._find(params, context)[1])}

    def list(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        return {"addons": sorted(self.registry.find(params["clusterName"], context).addons)}

    def update(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster, record = self._find(params, context)
        allowed = ("ACTIVE", "DEGRADED", "CREATE_FAILED", "UPDATE_FAILED")
        require_free(record, f"Addon {record['addonName']}", allowed)
        version = self._check(
            record["addonName"],
            params.get("addonVersion") or record["addonVersion"],
            cluster.record["version"],
        )
        configuration(params.get("configurationValues"))

        def work() -> None:
            record["addonVersion"] = version
            for key in ("configurationValues", "serviceAccountRoleArn"):
                if params.get(key) is not None:
                    record[key] = params[key]
            record["modifiedAt"] = time.time()
            self._apply(cluster, record, params.get("resolveConflicts", "NONE"))

        of = ("addon", record["addonName"])
        return self.registry.start_update(
            cluster,
            record,
            "AddonUpdate",
            {"AddonVersion": version},
            work,
            of=of,
            latency="UpdateAddon",
        )

    def delete(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster, record = self._find(params, context)
        record["status"] = "DELETING"

        def go() -> None:
            self.registry.pause("DeleteAddon")
            if not params.get("preserve"):
                for kind, name in workloads(record["addonName"]):
                    cluster.kubernetes(
                        "DELETE",
                        _path(kind, name),
                        ok=(404,),
                        params={"propagationPolicy": "Background"},
                    )
            cluster.addons.pop(record["addonName"], None)

        spawn(go)
        return {"addon": copy.deepcopy(record)}

    def configuration(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        name, version = params["addonName"], params["addonVersion"]
        if name not in ADDONS or not any(version in versions(name, minor) for minor in VERSIONS):
            raise ServiceError(
                "ResourceNotFoundException", f"Addon {name} has no version {version}"
            )
        text = json.dumps(schema(name))
        return {"addonName": name, "addonVersion": version, "configurationSchema": text}

    def versions(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        wanted = params.get("addonName")
        minors = [v for v in VERSIONS if v == params.get("kubernetesVersion", v)]
        rows = []
        for name in sorted(ADDONS):
            if wanted not in (None, name):
                continue
            compatible: dict[str, list[dict[str, Any]]] = {}
            for minor in reversed(minors):
                for index, version in enumerate(versions(name, minor)):
                    compatible.setdefault(version, []).append(
                        {
                            "clusterVersion": minor,
                            "platformVersions": ["*"],
                            "defaultVersion": index == 0,
                        }
                    )
            rows.append(
                {
                    "addonName": name,
                    "type": "networking" if name in ("vpc-cni", "coredns") else "util",
                    "owner": "aws",
                    "publisher": "eks",
                    "addonVersions": [
                        {
                            "addonVersion": version,
                            "architecture": ["amd64", "arm64"],
                            "compatibilities": where,
                            "requiresConfiguration": False,
                        }
                        for version, where in compatible.items()
                    ],
                }
            )
        return {"addons": rows}
