"""The add-ons that the lab knows: versions, what a configuration may say, and their workloads."""

from __future__ import annotations

import json
from typing import Any

from lab.aws import ServiceError

# name -> (series of versions by Kubernetes minor, newest first; DaemonSet; Deployment, replicas).
# The numbers are plausible, the form is EKS's: v<semver>-eksbuild.<n>.
ADDONS: dict[str, dict[str, Any]] = {
    "vpc-cni": {"versions": ["v1.20.4", "v1.20.3"], "daemon": "aws-node"},
    "kube-proxy": {"versions": ["v{minor}.3", "v{minor}.1"], "daemon": "kube-proxy"},
    "coredns": {"versions": ["v1.12.4", "v1.12.3"], "deployment": "coredns"},
    "eks-pod-identity-agent": {
        "versions": ["v1.3.9", "v1.3.8"],
        "daemon": "eks-pod-identity-agent",
    },
    "metrics-server": {"versions": ["v0.8.0", "v0.7.2"], "deployment": "metrics-server"},
    "aws-ebs-csi-driver": {
        "versions": ["v1.50.1", "v1.49.2"],
        "daemon": "ebs-csi-node",
        "deployment": "ebs-csi-controller",
    },
    "aws-efs-csi-driver": {
        "versions": ["v2.1.13", "v2.1.12"],
        "daemon": "efs-csi-node",
        "deployment": "efs-csi-controller",
    },
    "aws-fsx-csi-driver": {
        "versions": ["v1.6.0", "v1.5.0"],
        "daemon": "fsx-csi-node",
        "deployment": "fsx-csi-controller",
    },
}
_REPLICAS = 2
# What a configuration may say: a part of the real schemas, the one the lab can carry out.
_SCHEMA = {
    "replicaCount": int,
    "tolerations": list,
    "nodeSelector": dict,
    "affinity": dict,
    "resources": dict,
    "env": dict,
    "controller": dict,
    "node": dict,
    "autoScaling": dict,
    "podAnnotations": dict,
    "podLabels": dict,
    "enableNetworkPolicy": str,
    "init": dict,
    "agent": dict,
}
MARK = "eks.amazonaws.com/component"


# kube-proxy has a series for each Kubernetes minor, and may be as far behind as a kubelet.
_SERIES_BEHIND = 3


def versions(name: str, minor: str) -> list[str]:
    """The add-on's versions for a Kubernetes minor, newest first; the first is the default."""
    major, number = map(int, minor.split("."))
    series = [f"{major}.{number - back}" for back in range(_SERIES_BEHIND + 1)]
    found = [text.format(minor=one) for one in series for text in ADDONS[name]["versions"]]
    return [f"{version}-eksbuild.1" for version in dict.fromkeys(found)]


_JSON_TYPES = {int: "integer", str: "string", list: "array", dict: "object"}


def schema(name: str) -> dict[str, Any]:
    """What `configuration` takes as a JSON Schema, written as EKS writes them."""
    title = "".join(word.title() for word in name.split("-"))
    fields = {key: {"type": _JSON_TYPES[kind]} for key, kind in _SCHEMA.items()}
    body = {"type": "object", "additionalProperties": False, "properties": fields}
    return {
        "$schema": "http://json-schema.org/draft-06/schema#",
        "$ref": f"#/definitions/{title}",
        "definitions": {title: body},
    }


def configuration(text: str | None) -> dict[str, Any]:
    if not text:
        return {}
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise ServiceError(
            "InvalidParameterException", "ConfigurationValue provided in request is not valid JSON"
        )
    for key, value in values.items():
        if key not in _SCHEMA:
            raise ServiceError(
                "InvalidParameterException",
                "ConfigurationValue provided in request is not supported: Json schema validation"
                f" failed with error: [$.{key}: is not defined in the schema]",
            )
        if not isinstance(value, _SCHEMA[key]):
            raise ServiceError(
                "InvalidParameterException",
                "ConfigurationValue provided in request is not supported: Json schema validation"
                f" failed with error: [$.{key}: {_SCHEMA[key].__name__} expected]",
            )
    return values


def workload(kind: str, name: str, addon: str, version: str, values: dict) -> dict[str, Any]:
    labels = {"k8s-app": name, "app.kubernetes.io/managed-by": "eks"}
    daemon = kind == "DaemonSet"
    # A daemon tolerates every taint; coredns and friends want an untainted node.
    tolerations = [{"operator": "Exists"}] if daemon else []
    image = f"602401143452.dkr.ecr.amazonaws.com/eks/{addon}:{version}"
    container: dict[str, Any] = {
        "name": name,
        "image": image,
        "resources": values.get("resources") or {"requests": {"cpu": "25m", "memory": "32Mi"}},
    }
    if daemon and values.get("env"):
        container["env"] = [{"name": k, "value": str(v)} for k, v in values["env"].items()]
    pod: dict[str, Any] = {
        "containers": [container],
        "tolerations": tolerations + list(values.get("tolerations") or []),
        "nodeSelector": values.get("nodeSelector") or {},
    }
    spec: dict[str, Any] = {
        "selector": {"matchLabels": {"k8s-app": name}},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    if not daemon:
        spec["replicas"] = values.get("replicaCount", _REPLICAS)
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "kube-system",
            "labels": {**labels, MARK: addon},
        },
        "spec": spec,
    }


def workloads(addon: str) -> list[tuple[str, str]]:
    known = ADDONS[addon]
    pairs = [("DaemonSet", known.get("daemon")), ("Deployment", known.get("deployment"))]
    return [(kind, name) for kind, name in pairs if name]
