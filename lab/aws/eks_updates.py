"""Changes of a running cluster: its configuration, its version, its encryption."""

from __future__ import annotations

from typing import Any

from lab.aws import Context, ServiceError
from lab.aws.eks_clusters import VERSIONS, Clusters, check_access, invalid, log_setup
from lab.aws.eks_insights import insights, late_nodegroups
from lab.aws.eks_state import Registry, require_free

# Members of UpdateClusterConfig that are taken over as they are, and the kind of their update.
_PLAIN_UPDATES = {
    "deletionProtection": "DeletionProtectionUpdate",
    "upgradePolicy": "UpgradePolicyUpdate",
    "zonalShiftConfig": "ZonalShiftConfigUpdate",
}


class ClusterUpdates:
    """UpdateClusterConfig, UpdateClusterVersion, AssociateEncryptionConfig."""

    def __init__(self, registry: Registry, clusters: Clusters) -> None:
        self.registry = registry
        self.clusters = clusters

    def update_config(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster = self.registry.find(params["name"], context)
        record = cluster.record
        changes = {k: v for k, v in params.items() if k not in ("name", "clientRequestToken")}
        if len(changes) != 1:
            raise invalid("Only one type of update can be allowed.", cluster.name)
        require_free(record, f"Cluster {cluster.name}")
        key, wanted = next(iter(changes.items()))
        if key == "resourcesVpcConfig":
            kind, target = self._vpc_update(record, wanted, context)
            key = "resourcesVpcConfig"
        elif key == "logging":
            kind, target = "LoggingUpdate", log_setup(wanted, record["logging"])
        elif key == "accessConfig":
            kind, target = "AccessConfigUpdate", {**record["accessConfig"], **wanted}
            if (
                record["accessConfig"]["authenticationMode"]
                == "API"
                != wanted.get("authenticationMode")
            ):
                raise invalid("authenticationMode API cannot be changed back", cluster.name)
        elif key in _PLAIN_UPDATES:
            kind, target = _PLAIN_UPDATES[key], wanted
        else:
            raise invalid(f"the lab does not update {key}", cluster.name)
        if record.get(key) == target:
            raise invalid(f"Cluster is already at the desired configuration: {key}", cluster.name)

        def work() -> None:
            record[key] = target

        names = {"DeletionProtection": wanted} if key == "deletionProtection" else {}
        return self.registry.start_update(cluster, record, kind, names, work)

    def _vpc_update(
        self, record: dict[str, Any], wanted: dict[str, Any], context: Context
    ) -> tuple[str, dict[str, Any]]:
        """AWS changes subnets and groups, or the endpoint's access, but not both in one call."""
        target = {**record["resourcesVpcConfig"], **wanted}
        network = {"subnetIds", "securityGroupIds"} & set(wanted)
        if network and set(wanted) - network:
            raise invalid("Only one type of update can be allowed.", record["name"])
        if network:
            if self.clusters.network_of(target, context) != target["vpcId"]:
                raise invalid("Subnets must stay in the cluster's VPC", record["name"])
            return "VpcConfigUpdate", target
        check_access(target)
        return "EndpointAccessUpdate", target

    def update_version(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster = self.registry.find(params["name"], context)
        record, wanted = cluster.record, params.get("version", "")
        require_free(record, f"Cluster {cluster.name}")
        if wanted not in VERSIONS:
            raise invalid(f"unsupported Kubernetes version {wanted}", cluster.name)
        old = record["version"]
        if VERSIONS.index(wanted) - VERSIONS.index(old) != 1:
            raise invalid(
                f"Unsupported Kubernetes minor version update from {old} to {wanted}", cluster.name
            )
        if late := late_nodegroups(cluster, wanted):
            raise invalid(
                f"Nodegroups {', '.join(late)} must be updated to match cluster version {old}"
                " before updating cluster version",
                cluster.name,
            )
        errors = [i["name"] for i in insights(cluster) if i["insightStatus"]["status"] == "ERROR"]
        if errors and not params.get("force"):
            raise ServiceError(
                "InvalidStateException",
                "The cluster has upgrade insights in ERROR status; resolve them or use force: "
                + ", ".join(errors),
                clusterName=cluster.name,
            )

        def work() -> None:
            cluster.control_plane.upgrade(wanted)
            record["version"] = wanted

        return self.registry.start_update(
            cluster, record, "VersionUpdate", {"Version": wanted}, work
        )

    def associate_encryption(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster = self.registry.find(params["clusterName"], context)
        require_free(cluster.record, f"Cluster {cluster.name}")
        if cluster.record.get("encryptionConfig"):
            raise invalid("the cluster already has an encryption configuration", cluster.name)

        def work() -> None:
            cluster.record["encryptionConfig"] = params["encryptionConfig"]

        return self.registry.start_update(
            cluster, cluster.record, "AssociateEncryptionConfig", {}, work
        )
