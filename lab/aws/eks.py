"""EKS of the lab: every operation by its name, over one registry of clusters."""

from __future__ import annotations

import copy
from typing import Any

from lab.aws import Context, ServiceError
from lab.aws.eks_access import AccessEntries
from lab.aws.eks_addons import Addons
from lab.aws.eks_associations import Associations
from lab.aws.eks_clusters import Clusters
from lab.aws.eks_insights import Insights
from lab.aws.eks_nodegroups import Nodegroups
from lab.aws.eks_rolling import Rolling
from lab.aws.eks_state import Cluster, Factory, Registry
from lab.aws.eks_updates import ClusterUpdates
from lab.aws.restjson import Handler, RestJson


class Shared:
    """Updates and tags: small, and the same for every kind."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def _update(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster = self.registry.find(params["name"], context)
        stored = cluster.updates.get(params["updateId"])
        if stored is None:
            raise ServiceError(
                "ResourceNotFoundException", f"No update found for ID: {params['updateId']}"
            )
        return stored["update"]

    def describe_update(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        return {"update": copy.deepcopy(self._update(params, context))}

    def list_updates(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster = self.registry.find(params["name"], context)
        of = ("", "")
        for kind, key in (("nodegroup", "nodegroupName"), ("addon", "addonName")):
            if params.get(key):
                of = (kind, params[key])
        return {"updateIds": [i for i, row in cluster.updates.items() if row["of"] == of]}

    def _tagged(self, params: dict[str, Any], context: Context) -> dict[str, str]:
        for cluster in list(self.registry.clusters.values()):
            if (record := tagged(cluster, params["resourceArn"])) is not None:
                return record.setdefault("tags", {})
        raise ServiceError("NotFoundException", f"No resource found for {params['resourceArn']}")

    def tags(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        return {"tags": dict(self._tagged(params, context))}

    def tag(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        tags = self._tagged(params, context)
        if any(key.startswith("aws:") for key in params["tags"]):
            raise ServiceError("BadRequestException", "aws: prefixed tag key names are reserved")
        tags.update(params["tags"])
        return {}

    def untag(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        tags = self._tagged(params, context)
        for key in params["tagKeys"]:
            tags.pop(key, None)
        return {}


def tagged(cluster: Cluster, resource_arn: str) -> dict[str, Any] | None:
    """The record of the cluster that has this ARN."""
    found = (record for record, key in _arns(cluster) if record.get(key) == resource_arn)
    return next(found, None)


def _arns(cluster: Cluster) -> list[tuple[dict[str, Any], str]]:
    """Every record of the cluster that takes tags, with the name of its ARN's member."""
    entries = [stored["entry"] for stored in cluster.access_entries.values()]
    return [
        (cluster.record, "arn"),
        *((record, "nodegroupArn") for record in cluster.nodegroups.values()),
        *((record, "addonArn") for record in cluster.addons.values()),
        *((entry, "accessEntryArn") for entry in entries),
        *((record, "associationArn") for record in cluster.associations.values()),
    ]


class Eks:
    """The service: `registry` is what other rooms read, `dispatch` what the front layer calls."""

    def __init__(self, factory: Factory, endpoint: str = "") -> None:
        self.registry = Registry(factory, endpoint)
        self.nodegroups = Nodegroups(self.registry)
        self._service = RestJson("eks", self._handlers())
        self.dispatch = self._service.dispatch
        self.router = self._service.router

    def stop(self) -> None:
        """End every control plane: the daemon goes."""
        for cluster in list(self.registry.clusters.values()):
            cluster.record["status"] = "DELETING"
            if cluster.control_plane is not None:
                cluster.control_plane.stop()

    def _handlers(self) -> dict[str, Handler]:
        clusters, addons = Clusters(self.registry), Addons(self.registry)
        access, shared = AccessEntries(self.registry), Shared(self.registry)
        associations = Associations(self.registry)
        changes, insights = ClusterUpdates(self.registry, clusters), Insights(self.registry)
        groups, rolling = self.nodegroups, Rolling(self.registry, self.nodegroups)
        return {
            "CreateCluster": clusters.create,
            "DescribeCluster": clusters.describe,
            "ListClusters": clusters.list,
            "DeleteCluster": clusters.delete,
            "UpdateClusterConfig": changes.update_config,
            "UpdateClusterVersion": changes.update_version,
            "AssociateEncryptionConfig": changes.associate_encryption,
            "DescribeClusterVersions": clusters.versions,
            "ListInsights": insights.list,
            "DescribeInsight": insights.describe,
            "CreateNodegroup": groups.create,
            "DescribeNodegroup": groups.describe,
            "ListNodegroups": groups.list,
            "DeleteNodegroup": groups.delete,
            "UpdateNodegroupConfig": rolling.update_config,
            "UpdateNodegroupVersion": rolling.update_version,
            "CreateAddon": addons.create,
            "DescribeAddon": addons.describe,
            "ListAddons": addons.list,
            "UpdateAddon": addons.update,
            "DeleteAddon": addons.delete,
            "DescribeAddonVersions": addons.versions,
            "DescribeAddonConfiguration": addons.configuration,
            "CreateAccessEntry": access.create,
            "DescribeAccessEntry": access.describe,
            "ListAccessEntries": access.list,
            "UpdateAccessEntry": access.update,
            "DeleteAccessEntry": access.delete,
            "AssociateAccessPolicy": access.associate,
            "DisassociateAccessPolicy": access.disassociate,
            "ListAssociatedAccessPolicies": access.associated,
            "ListAccessPolicies": access.policies,
            "DescribeUpdate": shared.describe_update,
            "ListUpdates": shared.list_updates,
            "TagResource": shared.tag,
            "UntagResource": shared.untag,
            "ListTagsForResource": shared.tags,
            "CreatePodIdentityAssociation": associations.create,
            "DescribePodIdentityAssociation": associations.describe,
            "UpdatePodIdentityAssociation": associations.update,
            "DeletePodIdentityAssociation": associations.delete,
            "ListPodIdentityAssociations": associations.list,
        }
