"""Reads the account itself: every object that a cluster of ours could leave behind."""

from __future__ import annotations

import boto3

TAG = "gpushare.eks/cluster"


# {kind: (operation, member of its answer, the field of an object that tells it)}
EC2 = {
    "vpc": ("describe_vpcs", "Vpcs", "VpcId"),
    "subnet": ("describe_subnets", "Subnets", "SubnetId"),
    "internet gateway": ("describe_internet_gateways", "InternetGateways", "InternetGatewayId"),
    "address": ("describe_addresses", "Addresses", "AllocationId"),
    "route table": ("describe_route_tables", "RouteTables", "RouteTableId"),
    "security group": ("describe_security_groups", "SecurityGroups", "GroupId"),
    "endpoint": ("describe_vpc_endpoints", "VpcEndpoints", "VpcEndpointId"),
    "launch template": ("describe_launch_templates", "LaunchTemplates", "LaunchTemplateId"),
    "network interface": (
        "describe_network_interfaces",
        "NetworkInterfaces",
        "NetworkInterfaceId",
    ),
    "volume": ("describe_volumes", "Volumes", "VolumeId"),
    "nat gateway": ("describe_nat_gateways", "NatGateways", "NatGatewayId"),
}


def tags_of(item: dict) -> dict[str, str]:
    """The tags of a described object, as a dict."""
    return {t["Key"]: t["Value"] for t in item.get("Tags") or item.get("TagSet") or []}


def _ec2(session: boto3.Session) -> dict[str, dict[str, str]]:
    ec2 = session.client("ec2")
    found = {}
    for kind, (operation, key, identity) in EC2.items():
        for item in getattr(ec2, operation)()[key]:
            if item.get("State") not in {"deleted", "deleting"}:
                found[f"{kind} {item[identity]}"] = tags_of(item)
    for reservation in ec2.describe_instances()["Reservations"]:
        for item in reservation["Instances"]:
            if item["State"]["Name"] not in {"terminated", "shutting-down"}:
                found[f"instance {item['InstanceId']}"] = tags_of(item)
    return found


def _others(session: boto3.Session) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    iam = session.client("iam")
    for role in iam.get_paginator("list_roles").paginate().build_full_result()["Roles"]:
        tags = iam.list_role_tags(RoleName=role["RoleName"])["Tags"]
        found[f"role {role['RoleName']}"] = {t["Key"]: t["Value"] for t in tags}
    for policy in iam.list_policies(Scope="Local")["Policies"]:
        found[f"policy {policy['PolicyName']}"] = {}
    for profile in iam.list_instance_profiles()["InstanceProfiles"]:
        found[f"instance profile {profile['InstanceProfileName']}"] = {}
    eks = session.client("eks")
    for name in eks.list_clusters()["clusters"]:
        found[f"cluster {name}"] = eks.describe_cluster(name=name)["cluster"].get("tags", {})
    for group in session.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]:
        found[f"auto scaling group {group['AutoScalingGroupName']}"] = tags_of(group)
    for group in session.client("logs").describe_log_groups()["logGroups"]:
        found[f"log group {group['logGroupName']}"] = {}
    for one in session.client("elb").describe_load_balancers()["LoadBalancerDescriptions"]:
        found[f"classic load balancer {one['LoadBalancerName']}"] = {}
    elbv2 = session.client("elbv2")
    for one in elbv2.describe_load_balancers()["LoadBalancers"]:
        found[f"load balancer {one['LoadBalancerName']}"] = {}
    for one in elbv2.describe_target_groups()["TargetGroups"]:
        found[f"target group {one['TargetGroupName']}"] = {}
    ssm = session.client("ssm")
    for document in ssm.list_documents(Filters=[{"Key": "Owner", "Values": ["Self"]}])[
        "DocumentIdentifiers"
    ]:
        found[f"document {document['Name']}"] = tags_of(document)
    for parameter in ssm.describe_parameters()["Parameters"]:
        if not parameter["Name"].startswith("/aws/"):
            found[f"parameter {parameter['Name']}"] = {}
    return found


def objects(cluster_name: str) -> dict[str, dict[str, str]]:
    """``{"kind id": tags}`` of every object in the account that may be ``cluster_name``'s.

    An object tagged as another cluster's is left out; one without such a tag counts. Keys of KMS
    stand apart, in ``keys``.
    """
    session = boto3.Session()
    found = {**_ec2(session), **_others(session)}
    return {k: tags for k, tags in found.items() if tags.get(TAG, cluster_name) == cluster_name}


def keys(cluster_name: str, session: boto3.Session | None = None) -> dict[str, str]:
    """``{key id: state}`` of the KMS keys tagged as the cluster's."""
    kms = (session or boto3.Session()).client("kms")
    found = {}
    for key in kms.list_keys()["Keys"]:
        tags = kms.list_resource_tags(KeyId=key["KeyId"])["Tags"]
        if {t["TagKey"]: t["TagValue"] for t in tags}.get(TAG) == cluster_name:
            found[key["KeyId"]] = kms.describe_key(KeyId=key["KeyId"])["KeyMetadata"]["KeyState"]
    return found
