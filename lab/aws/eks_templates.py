"""The launch template that EKS makes for a node group: the user's, plus what EKS adds."""

from __future__ import annotations

import uuid
from typing import Any

from botocore.exceptions import ClientError

from lab import nodeconfig
from lab.aws import ServiceError
from lab.aws.eks_state import Cluster, Registry, checked, log

# amiType -> the part of the public SSM parameter's path that differs.
_AMI_PATHS = {
    "AL2023_x86_64_STANDARD": "amazon-linux-2023/x86_64/standard",
    "AL2023_ARM_64_STANDARD": "amazon-linux-2023/arm64/standard",
    "AL2023_x86_64_NVIDIA": "amazon-linux-2023/x86_64/nvidia",
    "AL2023_ARM_64_NVIDIA": "amazon-linux-2023/arm64/nvidia",
    "AL2023_x86_64_NEURON": "amazon-linux-2023/x86_64/neuron",
}
DEFAULT_TYPES = ["t3.medium"]


def _invalid(message: str, cluster: Cluster) -> ServiceError:
    return ServiceError("InvalidParameterException", message, clusterName=cluster.name)


def _source(
    registry: Registry, cluster: Cluster, given: dict[str, str] | None
) -> tuple[dict[str, str] | None, dict[str, Any]]:
    """The user's template as {id, name, version} and the data of that version."""
    if not given:
        return None, {}
    if bool(given.get("id")) == bool(given.get("name")):
        raise _invalid("launchTemplate takes exactly one of id and name", cluster)
    ec2 = registry.aws("ec2", cluster.region)
    key = "LaunchTemplateId" if given.get("id") else "LaunchTemplateName"
    version = given.get("version") or "$Default"
    found = checked(
        ec2.describe_launch_template_versions,
        **{key: given.get("id") or given.get("name")},
        Versions=[version],
    )["LaunchTemplateVersions"]
    if not found:
        raise _invalid(f"launch template version {version} does not exist", cluster)
    row = found[0]
    source = {
        "id": row["LaunchTemplateId"],
        "name": row["LaunchTemplateName"],
        "version": str(row["VersionNumber"]),
    }
    return source, row["LaunchTemplateData"]


def _ami(registry: Registry, cluster: Cluster, ami_type: str, version: str) -> tuple[str, str]:
    """(image id, release version) of an EKS-optimized image, by its public parameter."""
    if ami_type not in _AMI_PATHS:
        raise _invalid(f"the lab has no image for amiType {ami_type}: {list(_AMI_PATHS)}", cluster)
    path = f"/aws/service/eks/optimized-ami/{version}/{_AMI_PATHS[ami_type]}/recommended/"
    ssm = registry.aws("ssm", cluster.region)
    try:
        image = ssm.get_parameter(Name=path + "image_id")["Parameter"]["Value"]
    except ClientError as error:
        raise _invalid(f"no image {path}image_id: {error}", cluster) from error
    try:
        release = ssm.get_parameter(Name=path + "release_version")["Parameter"]["Value"]
    except ClientError:
        # Images without a published release version: EKS's form is <kubernetes>-<date>.
        release = f"{version}-{image}"
    return image, release


def _has_gpu(registry: Registry, cluster: Cluster, types: list[str]) -> tuple[bool, str]:
    """Whether the types have NVIDIA GPUs, and their architecture; unknown types are refused."""
    rows = checked(registry.aws("ec2", cluster.region).describe_instance_types, InstanceTypes=types)
    rows = rows["InstanceTypes"]
    if missing := set(types) - {row["InstanceType"] for row in rows}:
        raise _invalid(f"The following instance types do not exist: {sorted(missing)}", cluster)
    gpus = [gpu for row in rows for gpu in row.get("GpuInfo", {}).get("Gpus", [])]
    architecture = rows[0]["ProcessorInfo"]["SupportedArchitectures"][0]
    return any(gpu["Manufacturer"] == "NVIDIA" for gpu in gpus), architecture


def choose(registry: Registry, cluster: Cluster, params: dict[str, Any]) -> dict[str, Any]:
    """What the group's instances are made of; contradictions are refused as EKS refuses them."""
    source, data = _source(registry, cluster, params.get("launchTemplate"))
    in_template = data.get("InstanceType")
    if in_template and params.get("instanceTypes"):
        raise _invalid(
            "You cannot specify an instance type in both the launch template and the request",
            cluster,
        )
    if source and params.get("diskSize"):
        raise _invalid("Disk size must be specified within the launch template", cluster)
    if data.get("IamInstanceProfile"):
        raise _invalid("Launch template must not specify an instance profile", cluster)
    types = [in_template] if in_template else params.get("instanceTypes") or DEFAULT_TYPES
    gpu, architecture = _has_gpu(registry, cluster, types)
    arm = "ARM_64" if architecture == "arm64" else "x86_64"
    ami_type = params.get("amiType")
    version = params.get("version") or cluster.record["version"]
    if data.get("ImageId"):
        if (
            ami_type not in (None, "CUSTOM")
            or params.get("releaseVersion")
            or params.get("version")
        ):
            raise _invalid(
                "You cannot specify amiType, version or releaseVersion together with an image id"
                " within the launch template",
                cluster,
            )
        if not nodeconfig.parse(data.get("UserData")):
            log.warning("%s: the user data holds no NodeConfig: no node will join", source)
        image = release = data["ImageId"]
        ami_type = "CUSTOM"
    else:
        if ami_type == "CUSTOM":
            raise _invalid("amiType CUSTOM wants an image id in the launch template", cluster)
        ami_type = ami_type or f"AL2023_{arm}_{'NVIDIA' if gpu else 'STANDARD'}"
        image, release = _ami(registry, cluster, ami_type, version)
        release = params.get("releaseVersion") or release
    return {
        "source": source,
        "data": data,
        "types": types,
        "type_in_template": bool(in_template),
        "ami_type": ami_type,
        "image": image,
        "release": release,
    }


def _data(cluster: Cluster, record: dict[str, Any], chosen: dict[str, Any]) -> dict[str, Any]:
    """The template data of EKS's own copy."""
    data = dict(chosen["data"])
    data["ImageId"] = chosen["image"]
    if chosen["ami_type"] != "CUSTOM":
        plane = cluster.control_plane
        labels = {
            "eks.amazonaws.com/nodegroup": record["nodegroupName"],
            "eks.amazonaws.com/nodegroup-image": chosen["image"],
            "eks.amazonaws.com/capacityType": record["capacityType"],
        }
        flag = "--node-labels=" + ",".join(f"{key}={value}" for key, value in labels.items())
        spec = {
            "cluster": {
                "name": cluster.name,
                "apiServerEndpoint": plane.endpoint if plane else "",
                "certificateAuthority": plane.ca_data if plane else "",
                "cidr": cluster.record["kubernetesNetworkConfig"]["serviceIpv4Cidr"],
            },
            "kubelet": {"flags": [flag]},
        }
        data["UserData"] = nodeconfig.render(spec, nodeconfig.parts(data.get("UserData") or ""))
    if not data.get("SecurityGroupIds") and not data.get("NetworkInterfaces"):
        group = cluster.record["resourcesVpcConfig"]["clusterSecurityGroupId"]
        data["SecurityGroupIds"] = [group]
    if record["diskSize"]:
        disk = {"VolumeSize": record["diskSize"], "VolumeType": "gp3"}
        data["BlockDeviceMappings"] = [{"DeviceName": "/dev/xvda", "Ebs": disk}]
    ours = {
        "eks:cluster-name": cluster.name,
        "eks:nodegroup-name": record["nodegroupName"],
        f"kubernetes.io/cluster/{cluster.name}": "owned",
    }
    specifications = {
        row["ResourceType"]: {tag["Key"]: tag["Value"] for tag in row["Tags"]}
        for row in data.get("TagSpecifications", [])
    }
    for kind in ("instance", "volume"):
        specifications[kind] = {**specifications.get(kind, {}), **ours}
    data["TagSpecifications"] = [
        {"ResourceType": kind, "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}
        for kind, tags in specifications.items()
    ]
    return data


def make(
    registry: Registry, cluster: Cluster, record: dict[str, Any], chosen: dict[str, Any]
) -> dict[str, str]:
    """Create EKS's template and instance profile; what the Auto Scaling group takes of it."""
    name = f"eks-{uuid.uuid4()}"
    iam = registry.aws("iam", cluster.region)
    iam.create_instance_profile(InstanceProfileName=name)
    iam.add_role_to_instance_profile(
        InstanceProfileName=name, RoleName=record["nodeRole"].rsplit("/", 1)[-1]
    )
    data = _data(cluster, record, chosen)
    data["IamInstanceProfile"] = {"Name": name}
    tags = {"eks:cluster-name": cluster.name, "eks:nodegroup-name": record["nodegroupName"]}
    registry.aws("ec2", cluster.region).create_launch_template(
        LaunchTemplateName=name,
        LaunchTemplateData=data,
        TagSpecifications=[
            {
                "ResourceType": "launch-template",
                "Tags": [{"Key": k, "Value": v} for k, v in tags.items()],
            }
        ],
    )
    return {"LaunchTemplateName": name, "Version": "1"}


def template_name(record: dict[str, Any]) -> str | None:
    """The name of EKS's template, which is also the tail of the group's name."""
    groups = record["resources"]["autoScalingGroups"]
    prefix = f"eks-{record['nodegroupName']}-"
    return f"eks-{groups[0]['name'].removeprefix(prefix)}" if groups else None


def new_version(
    registry: Registry, cluster: Cluster, record: dict[str, Any], chosen: dict[str, Any]
) -> str:
    """A further version of EKS's own template; its number."""
    name = template_name(record)
    data = {**_data(cluster, record, chosen), "IamInstanceProfile": {"Name": name}}
    row = registry.aws("ec2", cluster.region).create_launch_template_version(
        LaunchTemplateName=name, LaunchTemplateData=data
    )
    return str(row["LaunchTemplateVersion"]["VersionNumber"])


def remove(registry: Registry, cluster: Cluster, record: dict[str, Any]) -> None:
    """Take away what `make` made, in any state that a failure left."""
    name = template_name(record)
    if name is None:
        return
    iam = registry.aws("iam", cluster.region)
    role = record["nodeRole"].rsplit("/", 1)[-1]
    ec2 = registry.aws("ec2", cluster.region)
    for call, arguments in (
        (ec2.delete_launch_template, {"LaunchTemplateName": name}),
        (iam.remove_role_from_instance_profile, {"InstanceProfileName": name, "RoleName": role}),
        (iam.delete_instance_profile, {"InstanceProfileName": name}),
    ):
        try:
            call(**arguments)
        except ClientError as error:
            log.warning("%s of %s: %s", call.__name__, name, error)
