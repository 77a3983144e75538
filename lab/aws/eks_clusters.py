"""Clusters: a real control plane each, and the updates of their configuration."""

from __future__ import annotations

import copy
import hashlib
import re
import time
from typing import Any

from botocore.exceptions import ClientError

from lab.aws import Context, ServiceError, passing
from lab.aws import eks_access as access
from lab.aws.eks_state import (
    Cluster,
    Registry,
    arn,
    checked,
    log,
    require_free,
    require_role,
    spawn,
)

# Kubernetes on EKS in late 2026: ../shared/facts.md.
VERSIONS = ("1.34", "1.35", "1.36")
DEFAULT_VERSION = "1.36"
_LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")


def invalid(message: str, name: str = "") -> ServiceError:
    fields = {"clusterName": name} if name else {}
    return ServiceError("InvalidParameterException", message, **fields)


def log_setup(wanted: dict[str, Any] | None, old: dict[str, Any] | None = None) -> dict[str, Any]:
    """All five types, each in exactly one of the two lists, as EKS answers it."""
    enabled = {
        kind
        for setup in (old or {}).get("clusterLogging", [])
        if setup["enabled"]
        for kind in setup["types"]
    }
    for setup in (wanted or {}).get("clusterLogging", []):
        kinds = set(setup.get("types", []))
        enabled = enabled | kinds if setup.get("enabled") else enabled - kinds
    rows = [
        {"types": [kind for kind in _LOG_TYPES if (kind in enabled) is state], "enabled": state}
        for state in (True, False)
    ]
    return {"clusterLogging": [row for row in rows if row["types"]]}


class Clusters:
    """The operations on clusters themselves."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def network_of(self, config: dict[str, Any], context: Context) -> str:
        """The VPC of subnets and security groups, once they are found fit for a cluster."""
        ec2 = self.registry.aws("ec2", context.region)
        subnets = checked(ec2.describe_subnets, SubnetIds=config["subnetIds"])["Subnets"]
        if len({subnet["AvailabilityZone"] for subnet in subnets}) < 2:
            raise invalid("Subnets specified must be in at least two different AZs")
        vpcs = {subnet["VpcId"] for subnet in subnets}
        if groups := config.get("securityGroupIds"):
            found = checked(ec2.describe_security_groups, GroupIds=groups)["SecurityGroups"]
            vpcs |= {group["VpcId"] for group in found}
        if len(vpcs) != 1:
            raise invalid("Subnets and security groups must belong to the same VPC")
        return str(vpcs.pop())

    def create(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        name, given = params["name"], params["resourcesVpcConfig"]
        if not re.fullmatch(r"[0-9A-Za-z][A-Za-z0-9_-]*", name):
            raise invalid(f"{name!r} is no name of a cluster")
        version = params.get("version", DEFAULT_VERSION)
        if version not in VERSIONS:
            raise invalid(f"unsupported Kubernetes version {version}; supported: {VERSIONS}", name)
        if len(given.get("subnetIds") or []) < 2:
            raise invalid("Subnets specified must be in at least two different AZs", name)
        require_role(self.registry, params["roleArn"], context.region)
        vpc_id = self.network_of(given, context)
        vpc = {
            "subnetIds": given["subnetIds"],
            "securityGroupIds": given.get("securityGroupIds", []),
            "vpcId": vpc_id,
            # AWS's defaults: public from everywhere, private off.
            "endpointPublicAccess": given.get("endpointPublicAccess", True),
            "endpointPrivateAccess": given.get("endpointPrivateAccess", False),
            "publicAccessCidrs": given.get("publicAccessCidrs") or ["0.0.0.0/0"],
        }
        check_access(vpc)
        settings = params.get("accessConfig", {})
        network = params.get("kubernetesNetworkConfig", {})
        record = {
            "name": name,
            "arn": arn(context, f"cluster/{name}"),
            "createdAt": time.time(),
            "version": version,
            "roleArn": params["roleArn"],
            "resourcesVpcConfig": vpc,
            "kubernetesNetworkConfig": {
                "serviceIpv4Cidr": network.get("serviceIpv4Cidr", "10.100.0.0/16"),
                "ipFamily": network.get("ipFamily", "ipv4"),
            },
            "logging": log_setup(params.get("logging")),
            "status": "CREATING",
            "certificateAuthority": {},
            "platformVersion": "eks.1",
            "tags": params.get("tags", {}),
            "encryptionConfig": params.get("encryptionConfig") or None,
            "health": {"issues": []},
            "accessConfig": {
                "authenticationMode": settings.get("authenticationMode", "CONFIG_MAP"),
                "bootstrapClusterCreatorAdminPermissions": settings.get(
                    "bootstrapClusterCreatorAdminPermissions", True
                ),
            },
            "upgradePolicy": params.get("upgradePolicy") or {"supportType": "EXTENDED"},
            "deletionProtection": params.get("deletionProtection", False),
        }
        with self.registry.lock:
            if name in self.registry.clusters:
                # One name in the whole lab: the token webhook knows a cluster by nothing else.
                raise ServiceError(
                    "ResourceInUseException",
                    f"Cluster already exists with name: {name}",
                    clusterName=name,
                )
            cluster = Cluster(name, context.region, record, context)
            self.registry.clusters[name] = cluster
        answer = copy.deepcopy(record)
        spawn(lambda: self._bring_up(cluster))
        return {"cluster": answer}

    def _bring_up(self, cluster: Cluster) -> None:
        record = cluster.record
        try:
            vpc = record["resourcesVpcConfig"]
            vpc["clusterSecurityGroupId"] = self._security_group(cluster, vpc["vpcId"])
            self._interfaces(cluster)
            services = record["kubernetesNetworkConfig"]["serviceIpv4Cidr"]
            plane = self.registry.factory(cluster.name, record["version"], services)
            cluster.control_plane = plane
            plane.start()
            access.prepare(cluster)
            creator = cluster.context.principal_arn
            if record["accessConfig"]["bootstrapClusterCreatorAdminPermissions"] and creator:
                access.bootstrap(cluster, creator)
            self.registry.pause("CreateCluster")
            if record["status"] != "CREATING":
                plane.stop()
                return
            record["endpoint"] = plane.endpoint
            record["certificateAuthority"] = {"data": plane.ca_data}
            record["identity"] = {"oidc": {"issuer": plane.oidc_issuer}}
            record["status"] = "ACTIVE"
            self.registry.changed()
        except Exception as error:
            log.exception("cluster %s did not come up", cluster.name)
            record["status"] = "FAILED"
            issue = {"code": "InternalFailure", "message": str(error), "resourceIds": []}
            record["health"] = {"issues": [issue]}

    def _security_group(self, cluster: Cluster, vpc_id: str) -> str:
        ec2 = self.registry.aws("ec2", cluster.region)
        digest = int(hashlib.sha256(cluster.record["arn"].encode()).hexdigest()[:8], 16)
        group_name = f"eks-cluster-sg-{cluster.name}-{digest}"
        tags = {
            "Name": group_name,
            f"kubernetes.io/cluster/{cluster.name}": "owned",
            "aws:eks:cluster-name": cluster.name,
        }
        group = ec2.create_security_group(
            GroupName=group_name,
            Description="EKS created security group applied to ENI that is attached to EKS Control"
            " Plane master nodes, as well as any managed workloads.",
            VpcId=vpc_id,
        )["GroupId"]
        # moto refuses the aws: prefix to callers, as EC2 does; a service may set it.
        from moto.ec2.models import ec2_backends

        backend = ec2_backends[cluster.context.account_id][cluster.region]
        backend.get_security_group_from_id(group).add_tags(tags)
        ec2.authorize_security_group_ingress(
            GroupId=group,
            IpPermissions=[{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}],
        )
        return str(group)

    def _interfaces(self, cluster: Cluster) -> None:
        """The control plane's own, in two subnets: they hold these and the security group."""
        from moto.ec2.models import ec2_backends

        vpc, ec2 = cluster.record["resourcesVpcConfig"], self.registry.aws("ec2", cluster.region)
        backend = ec2_backends[cluster.context.account_id][cluster.region]
        text = f"Amazon EKS {cluster.name}"
        for subnet in vpc["subnetIds"][:2]:
            made = ec2.create_network_interface(
                SubnetId=subnet,
                Groups=[vpc["clusterSecurityGroupId"], *vpc["securityGroupIds"]],
                Description=text,
            )["NetworkInterface"]["NetworkInterfaceId"]
            passing.mark(backend.enis[made], text, kind="interface")
            cluster.eni_ids.append(made)

    def _drop_interfaces(self, cluster: Cluster) -> None:
        from moto.ec2.models import ec2_backends

        backend = ec2_backends[cluster.context.account_id][cluster.region]
        for eni_id in cluster.eni_ids:
            if eni_id in backend.enis:
                backend.enis[eni_id].requester_managed = False
                self.registry.aws("ec2", cluster.region).delete_network_interface(
                    NetworkInterfaceId=eni_id
                )

    def describe(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster = self.registry.find(params["name"], context)
        return {"cluster": copy.deepcopy(cluster.record)}

    def list(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        clusters = list(self.registry.clusters.values())
        return {"clusters": sorted(c.name for c in clusters if c.region == context.region)}

    def delete(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster = self.registry.find(params["name"], context)
        record = cluster.record
        if record["deletionProtection"]:
            raise ServiceError(
                "InvalidRequestException",
                f"Cluster {cluster.name} cannot be deleted: deletion protection is enabled",
                clusterName=cluster.name,
            )
        if cluster.nodegroups:
            raise ServiceError(
                "ResourceInUseException",
                f"Cluster has nodegroups attached: {', '.join(sorted(cluster.nodegroups))}",
                clusterName=cluster.name,
            )
        require_free(record, f"Cluster {cluster.name}", ("ACTIVE", "FAILED", "CREATING"))
        record["status"] = "DELETING"
        spawn(lambda: self._take_down(cluster))
        return {"cluster": copy.deepcopy(record)}

    def _take_down(self, cluster: Cluster) -> None:
        self.registry.pause("DeleteCluster")
        if cluster.control_plane is not None:
            cluster.control_plane.stop()
        self._drop_interfaces(cluster)
        group = cluster.record["resourcesVpcConfig"].get("clusterSecurityGroupId")
        if group:
            try:
                ec2 = self.registry.aws("ec2", cluster.region)
                ec2.delete_security_group(GroupId=group)
            except ClientError as error:
                # EKS leaves a group behind that something else uses, too.
                log.warning("the security group of %s stays: %s", cluster.name, error)
        with self.registry.lock:
            self.registry.clusters.pop(cluster.name, None)
        self.registry.changed()

    def versions(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        wanted = params.get("clusterVersions") or list(VERSIONS)
        rows = [
            {
                "clusterVersion": version,
                "clusterType": "eks",
                "defaultPlatformVersion": "eks.1",
                "defaultVersion": version == DEFAULT_VERSION,
                "kubernetesPatchVersion": f"{version}.3",
                "versionStatus": "STANDARD_SUPPORT",
                "status": "standard-support",
            }
            for version in reversed(VERSIONS)
            if version in wanted
        ]
        if params.get("defaultOnly"):
            rows = [row for row in rows if row["defaultVersion"]]
        return {"clusterVersions": rows}


def check_access(vpc: dict[str, Any]) -> None:
    if not (vpc["endpointPublicAccess"] or vpc["endpointPrivateAccess"]):
        raise invalid("Private and public endpoint access cannot be false")
