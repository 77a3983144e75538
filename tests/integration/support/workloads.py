"""What users and controllers put into a cluster and its VPC: load balancers, volumes, others'."""

from __future__ import annotations

import time
from typing import Any

import boto3

from . import cluster

_TYPE = "service.beta.kubernetes.io/aws-load-balancer-type"
_DRIVER = "aws-ebs-csi-driver"
_LIMIT_S = 60


def _until(read: Any, what: str) -> Any:
    deadline = time.monotonic() + _LIMIT_S
    while not (found := read()):
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.2)
    return found


def _make(name: str, path: str, body: dict[str, Any]) -> str:
    answer = cluster.request(name, "POST", path, json=body)
    assert answer.ok, answer.text
    return f"{path}/{body['metadata']['name']}"


def services(name: str) -> None:
    """A classic and a network load balancer, both with their addresses."""
    for kind, notes in (("classic", {}), ("network", {_TYPE: "nlb"})):
        body = {
            "metadata": {"name": f"lb-{kind}", "annotations": notes},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        }
        path = _make(name, "/api/v1/namespaces/default/services", body)
        _until(
            lambda path=path: cluster.request(name, "GET", path).json()["status"]["loadBalancer"],
            f"{path} has an address",
        )


def claim(name: str) -> str:
    """A bound claim of the EBS CSI driver; the ID of its volume."""
    boto3.client("eks").create_addon(clusterName=name, addonName=_DRIVER)
    kind = {
        "metadata": {"name": "of-test"},
        "provisioner": "ebs.csi.aws.com",
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    }
    _make(name, "/apis/storage.k8s.io/v1/storageclasses", kind)
    body = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "of-test",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    path = _make(name, "/api/v1/namespaces/default/persistentvolumeclaims", body)
    bound = _until(
        lambda: cluster.request(name, "GET", path).json()["spec"].get("volumeName"), "a volume"
    )
    volume = cluster.request(name, "GET", f"/api/v1/persistentvolumes/{bound}").json()
    return volume["spec"]["csi"]["volumeHandle"]


def vpc_of(name: str) -> str:
    filters = [{"Name": "tag:gpushare.eks/cluster", "Values": [name]}]
    (found,) = boto3.client("ec2").describe_vpcs(Filters=filters)["Vpcs"]
    return found["VpcId"]


def group(vpc_id: str, name: str, tags: dict[str, str] | None = None) -> str:
    """A security group in the VPC; without tags it is somebody else's."""
    rows = [{"Key": key, "Value": value} for key, value in (tags or {}).items()]
    more = {"TagSpecifications": [{"ResourceType": "security-group", "Tags": rows}]} if rows else {}
    return boto3.client("ec2").create_security_group(
        VpcId=vpc_id, GroupName=name, Description=name, **more
    )["GroupId"]
