"""What the cloud controller manager and the EBS CSI driver do with a cluster's objects.

A Service of type LoadBalancer becomes a classic or a network load balancer, a claim of a class of
ebs.csi.aws.com a volume; both are taken away when the object goes, and hold it until then by the
finalizers of the real programs. The driver works only where its add-on is installed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from lab import LabError
from lab.aws.eks_state import Cluster
from lab.cloud_aws import Balancers, Volumes
from lab.due import Due

log = logging.getLogger("lab.cloud")
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
PV_FINALIZER = "external-provisioner.volume.kubernetes.io/finalizer"
DRIVER, ADDON = "ebs.csi.aws.com", "aws-ebs-csi-driver"
_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
_NODE = "volume.kubernetes.io/selected-node"
_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
_MERGE = "application/merge-patch+json"
_RETRY_S = 0.3
_KINDS = ("services", "persistentvolumeclaims", "persistentvolumes")


class CloudControllers:
    """One per cluster: start() once the control plane runs, stop() before it ends.

    cluster: the cluster as EKS knows it, None before; aws: a client of a service for a region.
    """

    def __init__(
        self,
        plane: Any,
        cluster: Callable[[], Cluster | None],
        aws: Callable[[str, str], Any],
    ) -> None:
        self._plane, self._cluster, self._aws = plane, cluster, aws
        self._due: Due[tuple[str, str]] = Due()

    def start(self) -> None:
        """Begin to follow Services, claims and volumes."""
        name = f"lab-cloud-{self._plane.name}"
        for kind in _KINDS:
            threading.Thread(target=self._follow, args=(kind,), name=name, daemon=True).start()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def stop(self) -> None:
        """End the worker; the watches end with the control plane's client."""
        self._due.stop()

    def _follow(self, kind: str) -> None:
        for event in self._plane.client.follow(f"/api/v1/{kind}"):
            objects = event["items"] if event["type"] == "SYNC" else [event["object"]]
            if event["type"] == "DELETED":
                continue
            if self._due.stopped:
                return
            self._due.mark(*((kind, _path(kind, one)) for one in objects if _concerns(kind, one)))

    def _work(self) -> None:
        while True:
            taken = self._due.take()
            if taken is None:
                return
            kind, path = taken
            try:
                again = self._reconcile(kind, path)
            except Exception as error:
                # AWS or the API server refused: the real programs try again, too.
                again = True
                if not self._due.stopped:
                    log.warning("%s: %s", path, error)
            if again:
                self._due.mark((kind, path), after=_RETRY_S)

    def _reconcile(self, kind: str, path: str) -> bool:
        """Bring one object to where it should be; True when it has to be looked at again."""
        cluster = self._cluster()
        if cluster is None or "clusterSecurityGroupId" not in cluster.record["resourcesVpcConfig"]:
            return True
        status, found = self._plane.request("GET", path)
        if status == 404:
            return False
        if status != 200:
            raise LabError(f"GET {path}: {status}")
        if kind == "services":
            return self._service(Balancers(cluster, self._aws), path, found)
        if ADDON not in cluster.addons:
            return False
        volumes = Volumes(cluster, self._aws)
        if kind == "persistentvolumeclaims":
            return self._claim(volumes, found)
        return self._volume(volumes, path, found)

    # -- Services -------------------------------------------------------------------------------

    def _service(self, balancers: Balancers, path: str, service: dict[str, Any]) -> bool:
        meta = service["metadata"]
        finalizers = meta.get("finalizers") or []
        wanted = service["spec"].get("type") == "LoadBalancer" and "deletionTimestamp" not in meta
        if wanted:
            if FINALIZER not in finalizers:
                self._finalizers(path, meta, [*finalizers, FINALIZER])
            hostname = balancers.make(service)
            ingress = [{"hostname": hostname}]
            if (service.get("status") or {}).get("loadBalancer", {}).get("ingress") != ingress:
                self._patch(f"{path}/status", {"status": {"loadBalancer": {"ingress": ingress}}})
            return False
        if FINALIZER not in finalizers:
            return False
        if not balancers.remove(service):
            return True
        self._finalizers(path, meta, [one for one in finalizers if one != FINALIZER])
        return False

    # -- claims and volumes ---------------------------------------------------------------------

    def _claim(self, volumes: Volumes, claim: dict[str, Any]) -> bool:
        meta, spec = claim["metadata"], claim["spec"]
        notes = meta.get("annotations") or {}
        if spec.get("volumeName") or "deletionTimestamp" in meta:
            return False
        if notes.get(_PROVISIONER) != DRIVER:
            # The controller manager writes it once the class wants a volume, perhaps for a node.
            return False
        name = spec["storageClassName"]
        kind = self._get(f"/apis/storage.k8s.io/v1/storageclasses/{name}")
        zone = None
        if _NODE in notes:
            node = self._get(f"/api/v1/nodes/{notes[_NODE]}")
            zone = node["metadata"]["labels"]["topology.kubernetes.io/zone"]
        volume_id = volumes.make(claim, kind.get("parameters") or {}, zone)
        status, answer = self._plane.request(
            "POST", "/api/v1/persistentvolumes", _persistent_volume(claim, kind, volume_id)
        )
        if status not in (201, 409):
            raise LabError(f"volume of {meta['name']}: {status} {answer}")
        return False

    def _volume(self, volumes: Volumes, path: str, volume: dict[str, Any]) -> bool:
        phase = (volume.get("status") or {}).get("phase")
        if phase != "Released" or volume["spec"]["persistentVolumeReclaimPolicy"] != "Delete":
            return False
        volumes.remove(volume["spec"]["csi"]["volumeHandle"])
        meta = volume["metadata"]
        rest = [one for one in meta.get("finalizers") or [] if one != PV_FINALIZER]
        self._finalizers(path, meta, rest)
        self._plane.request("DELETE", path)
        return False

    # -- the API server -------------------------------------------------------------------------

    def _get(self, path: str) -> dict[str, Any]:
        status, found = self._plane.request("GET", path)
        if status != 200:
            raise LabError(f"GET {path}: {status}")
        return found

    def _finalizers(self, path: str, meta: dict[str, Any], wanted: list[str]) -> None:
        # Of what was read: one that somebody has added meanwhile (409) is not to be lost.
        version = meta["resourceVersion"]
        self._patch(path, {"metadata": {"finalizers": wanted, "resourceVersion": version}})

    def _patch(self, path: str, body: dict[str, Any]) -> None:
        status, answer = self._plane.request("PATCH", path, body, _MERGE)
        if status not in (200, 404):
            raise LabError(f"PATCH {path}: {status} {(answer or {}).get('message')}")


def _concerns(kind: str, one: dict[str, Any]) -> bool:
    spec, meta = one.get("spec") or {}, one["metadata"]
    if kind == "services":
        return spec.get("type") == "LoadBalancer" or FINALIZER in (meta.get("finalizers") or [])
    if kind == "persistentvolumes":
        return (meta.get("annotations") or {}).get(_PROVISIONED_BY) == DRIVER
    return (meta.get("annotations") or {}).get(_PROVISIONER) == DRIVER


def _path(kind: str, one: dict[str, Any]) -> str:
    meta = one["metadata"]
    where = f"namespaces/{meta['namespace']}/" if meta.get("namespace") else ""
    return f"/api/v1/{where}{kind}/{meta['name']}"


def _persistent_volume(
    claim: dict[str, Any], kind: dict[str, Any], volume_id: str
) -> dict[str, Any]:
    meta, spec = claim["metadata"], claim["spec"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": f"pvc-{meta['uid']}",
            "annotations": {_PROVISIONED_BY: DRIVER},
            "finalizers": [PV_FINALIZER],
        },
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "persistentVolumeReclaimPolicy": kind.get("reclaimPolicy", "Delete"),
            "storageClassName": spec["storageClassName"],
            "csi": {"driver": DRIVER, "volumeHandle": volume_id, "fsType": "ext4"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
            },
        },
    }
