"""From instance to Node and back: what nodeadm, the kubelet and the cloud controller do.

A running instance whose user data holds a NodeConfig of a live cluster becomes a Node; when the
instance ends or stops, its Node is deleted. One path for node groups, self-managed groups and
Karpenter. A Node that somebody deletes by hand is not made again while the instance runs.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from moto.autoscaling.models import autoscaling_backends
from moto.ec2.models import ec2_backends
from moto.ec2.models.instance_types import INSTANCE_TYPES

from lab import LabError, nodeconfig
from lab.aws import ACCOUNT_ID, autoscaling_patches
from lab.aws.eks_access import bind_waiting
from lab.aws.eks_group_rules import EFFECTS
from lab.aws.eks_state import Cluster, Registry
from lab.nvml import nodes

log = logging.getLogger("lab.joiner")
_TICK_S = 0.2
# Requests in flight per tick: 200 nodes join within seconds.
_PARALLEL = 16
_ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}
# With prefix delegation off: ENIs x (addresses - 1) + 2, as nodeadm computes it.
_SYSTEM_PODS = 2


def node_name(private_ip: str, region: str) -> str:
    """The EC2 private DNS name, which a node on EKS is called by."""
    domain = "ec2.internal" if region == "us-east-1" else f"{region}.compute.internal"
    return f"ip-{private_ip.replace('.', '-')}.{domain}"


def max_pods(instance_type: str) -> int:
    """What nodeadm sets where the NodeConfig says nothing."""
    network = INSTANCE_TYPES[instance_type]["NetworkInfo"]
    interfaces = network["MaximumNetworkInterfaces"]
    return interfaces * (network["Ipv4AddressesPerInterface"] - 1) + _SYSTEM_PODS


def node_object(
    instance: Any, region: str, spec: dict[str, Any], nodegroup: dict[str, Any] | None
) -> dict[str, Any]:
    """The Node as the kubelet registers it and the cloud controller completes it."""
    facts = INSTANCE_TYPES[instance.instance_type]
    config = (spec.get("kubelet") or {}).get("config") or {}
    zone, address = instance.placement.zone, instance.private_ip
    name = node_name(address, region)
    processor = facts["ProcessorInfo"]["SupportedArchitectures"][0]
    architecture = _ARCHITECTURES.get(processor, "amd64")
    labels, taints = nodeconfig.labels_and_taints(spec)
    if nodegroup is not None:
        labels = {
            **labels,
            **nodegroup["labels"],
            "eks.amazonaws.com/nodegroup": nodegroup["nodegroupName"],
            "eks.amazonaws.com/nodegroup-image": instance.image_id,
            "eks.amazonaws.com/capacityType": nodegroup["capacityType"],
        }
        known = {(taint["key"], taint["effect"]) for taint in taints}
        for taint in nodegroup["taints"]:
            effect = EFFECTS[taint["effect"]]
            if (taint["key"], effect) not in known:
                taints.append({"key": taint["key"], "effect": effect, "value": taint.get("value")})
    labels = {
        **labels,
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": architecture,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": instance.instance_type,
        "topology.kubernetes.io/region": region,
        "topology.kubernetes.io/zone": zone,
    }
    disks = [d.size for d in instance.block_device_mapping.values() if d.size]
    capacity = {
        "cpu": str(facts["VCpuInfo"]["DefaultVCpus"]),
        "memory": f"{facts['MemoryInfo']['SizeInMiB']}Mi",
        "pods": str(config.get("maxPods") or max_pods(instance.instance_type)),
        "ephemeral-storage": f"{max(disks, default=20)}Gi",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "providerID": f"aws:///{zone}/{instance.id}",
            "taints": [{k: v for k, v in taint.items() if v is not None} for taint in taints],
        },
        "status": {
            "capacity": capacity,
            "allocatable": dict(capacity),
            "addresses": [
                {"type": "InternalIP", "address": address},
                {"type": "InternalDNS", "address": name},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {
                "architecture": architecture,
                # The probe reads the same boot id on the node.
                "bootID": nodes.boot_id(instance.id),
                "machineID": instance.id.removeprefix("i-").ljust(32, "0"),
                "systemUUID": str(uuid.uuid5(uuid.NAMESPACE_OID, instance.id)),
                "operatingSystem": "linux",
                "osImage": "Amazon Linux 2023",
                "kernelVersion": "6.12.40-64.114.amzn2023.x86_64",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kubeletVersion": "",
                "kubeProxyVersion": "",
            },
        },
    }


class Joiner:
    """Looks at moto's EC2 every 0.2 s; `lock` is the one that keeps moto's calls apart."""

    def __init__(self, registry: Registry, lock: Any = None) -> None:
        self.registry = registry
        self._moto = lock or threading.RLock()
        self._joined: dict[str, tuple[Cluster, str]] = {}
        self._specs: dict[str, dict[str, Any] | None] = {}
        self._complained: set[str] = set()
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(_PARALLEL, thread_name_prefix="joiner")
        self._thread = threading.Thread(target=self._run, daemon=True, name="joiner")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(10)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def find(self, node: str, cluster: str | None = None) -> str:
        """The instance that joined as this Node; ValueError where none or more than one did."""
        found = [
            instance_id
            for instance_id, (owner, name) in list(self._joined.items())
            if name == node and cluster in (None, owner.name)
        ]
        if len(found) != 1:
            raise ValueError(
                f"{len(found)} instances joined as node {node}: `kubectl get nodes` lists them, and"
                " `cluster` tells two apart"
            )
        return found[0]

    def joined(self, instance_id: str) -> tuple[Cluster, str]:
        """The cluster and the Node of an instance; ValueError where it has none."""
        try:
            return self._joined[instance_id]
        except KeyError:
            raise ValueError(
                f"{instance_id} has joined no cluster: is it running, and does its user data name"
                " the cluster's endpoint?"
            ) from None

    def _run(self) -> None:
        while not self._stopping.wait(_TICK_S):
            try:
                self.tick()
            except Exception:
                log.exception("the joiner goes on after a fault")

    def tick(self) -> None:
        """One look: join what runs, take away what ended."""
        clusters = [c for c in list(self.registry.clusters.values()) if c.control_plane is not None]
        live = [c for c in clusters if c.record["status"] in ("ACTIVE", "UPDATING")]
        running: dict[str, tuple[Any, Cluster, dict[str, Any]]] = {}
        with self._moto:
            for region in {cluster.region for cluster in live}:
                autoscaling_patches.reconcile(autoscaling_backends[ACCOUNT_ID][region])
                here = {cluster.name: cluster for cluster in live if cluster.region == region}
                for instance in _instances(region):
                    if instance.state == "running" and (spec := self._spec(instance)):
                        cluster = here.get((spec.get("cluster") or {}).get("name", ""))
                        if cluster is not None:
                            running[instance.id] = (instance, cluster, spec)
        names = {cluster.name for cluster in live}
        todo: list[Callable[[], None]] = []
        for instance_id, (cluster, name) in list(self._joined.items()):
            if instance_id not in running and cluster.name in names:
                todo.append(lambda i=instance_id, c=cluster, n=name: self._leave(i, c, n))
            elif instance_id not in running:
                del self._joined[instance_id]
        for instance_id, (instance, cluster, spec) in running.items():
            if instance_id not in self._joined:
                todo.append(lambda i=instance, c=cluster, s=spec: self._join(i, c, s))
        list(self._pool.map(self._guarded, todo))
        for cluster in live:
            bind_waiting(cluster)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            log.exception("a node could not join or leave; it is tried again")

    def _spec(self, instance: Any) -> dict[str, Any] | None:
        """The NodeConfig of the instance, read once: user data changes only while it is stopped."""
        if instance.id not in self._specs:
            self._specs[instance.id] = nodeconfig.parse(instance.user_data)
        return self._specs[instance.id]

    def _join(self, instance: Any, cluster: Cluster, spec: dict[str, Any]) -> None:
        given = spec.get("cluster") or {}
        plane = cluster.control_plane
        endpoint, authority = given.get("apiServerEndpoint"), given.get("certificateAuthority")
        if endpoint != plane.endpoint or authority != plane.ca_data:
            # A kubelet that is told a wrong endpoint or CA never registers.
            self._complain(
                instance.id, f"its NodeConfig names {endpoint}, not the API server of the cluster"
            )
            return
        node = self._node(instance, cluster, spec)
        name = node["metadata"]["name"]
        status, answer = plane.request("POST", "/api/v1/nodes", node)
        if status == 409:
            # Its predecessor at this address is on its way out; the next tick tries again.
            status, old = plane.request("GET", f"/api/v1/nodes/{name}")
            if status != 200 or old["spec"].get("providerID") != node["spec"]["providerID"]:
                return
        elif status >= 300:
            self._complain(instance.id, f"{status} {answer}")
            return
        self._joined[instance.id] = (cluster, name)

    def _node(self, instance: Any, cluster: Cluster, spec: dict[str, Any]) -> dict[str, Any]:
        group = cluster.nodegroups.get(cluster_tag(instance, "eks:nodegroup-name") or "")
        node = node_object(instance, cluster.region, spec, group)
        version = cluster.record["version"]
        node["status"]["nodeInfo"]["kubeletVersion"] = f"v{version}.0-eks-lab"
        return node

    def replace(self, instance_id: str, stale: bool) -> str:
        """Delete the instance's Node and make it anew; its new UID.

        stale: the new Node has the old one's extended resources (kubernetes issue 126943).
        """
        cluster, name = self.joined(instance_id)
        [instance] = [i for i in _instances(cluster.region) if i.id == instance_id]
        node = self._node(instance, cluster, self._spec(instance) or {})
        old = cluster.kubernetes("GET", f"/api/v1/nodes/{name}")
        if stale:
            for part in ("capacity", "allocatable"):
                node["status"][part] |= extended(old["status"].get(part) or {})
        cluster.kubernetes("DELETE", f"/api/v1/nodes/{name}", ok=(404,))
        return cluster.kubernetes("POST", "/api/v1/nodes", node)["metadata"]["uid"]

    def _leave(self, instance_id: str, cluster: Cluster, name: str) -> None:
        """Delete the Node, unless another instance holds the name by now."""
        path = f"/api/v1/nodes/{name}"
        try:
            status, node = cluster.control_plane.request("GET", path)
            if status == 200 and node["spec"].get("providerID", "").endswith(instance_id):
                cluster.control_plane.request("DELETE", path)
        except LabError:
            if cluster.record["status"] not in ("DELETING", "FAILED"):
                raise
        # A stopped instance that is started again boots anew.
        nodes.reboot(instance_id)
        self._joined.pop(instance_id, None)
        self._specs.pop(instance_id, None)

    def _complain(self, instance_id: str, text: str) -> None:
        if instance_id not in self._complained:
            self._complained.add(instance_id)
            log.warning("%s does not join: %s", instance_id, text)


def extended(resources: Mapping[str, str]) -> dict[str, str]:
    """What of a capacity is no resource of Kubernetes' own."""
    return {k: v for k, v in resources.items() if "/" in k and "kubernetes.io/" not in k}


def cluster_tag(instance: Any, key: str) -> str | None:
    """One tag of an instance, without moto's walk over the tags of everything."""
    tags = instance.ec2_backend.tags.get(instance.id) or {}
    return tags.get(key)


def running_instances() -> set[str]:
    """The IDs of all instances that run, of every region."""
    regions = list(ec2_backends[ACCOUNT_ID])
    return {i.id for region in regions for i in _instances(region) if i.state == "running"}


def _instances(region: str) -> list[Any]:
    reservations = list(ec2_backends[ACCOUNT_ID][region].reservations.values())
    return [instance for reservation in reservations for instance in reservation.instances]
