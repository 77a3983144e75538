"""Our EKS through real boto3 clients: botocore's parser reads every answer."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError
from eks_helpers import eventually

CLUSTER_ADMIN = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
VIEW = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/"


def refused(code, call, **arguments):
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    assert caught.value.response["Error"]["Code"] == code
    return caught.value.response["Error"]["Message"]


# -- clusters -----------------------------------------------------------------------------------


def test_a_cluster_is_creating_then_active_with_its_own_endpoint(lab):
    subnets, role = lab.network(), lab.role("cluster")
    answer = lab.eks.create_cluster(
        name="demo",
        roleArn=role,
        resourcesVpcConfig={"subnetIds": subnets},
        kubernetesNetworkConfig={"serviceIpv4Cidr": "172.20.0.0/16"},
        logging={"clusterLogging": [{"types": ["api", "audit"], "enabled": True}]},
        tags={"a": "b"},
    )["cluster"]
    assert (answer["status"], answer.get("endpoint")) == ("CREATING", None)
    cluster = lab.cluster("other", subnets=subnets, role=role)
    assert cluster["status"] == "ACTIVE"
    eventually(lambda: lab.eks.describe_cluster(name="demo")["cluster"]["status"] == "ACTIVE")
    cluster = lab.eks.describe_cluster(name="demo")["cluster"]
    assert cluster["endpoint"] == lab.plane().endpoint
    assert cluster["certificateAuthority"]["data"] == lab.plane().ca_data
    assert cluster["identity"]["oidc"]["issuer"] == lab.plane().oidc_issuer
    assert lab.plane().services == "172.20.0.0/16"
    vpc = cluster["resourcesVpcConfig"]
    assert (vpc["endpointPublicAccess"], vpc["endpointPrivateAccess"]) == (True, False)
    assert vpc["publicAccessCidrs"] == ["0.0.0.0/0"]
    assert cluster["logging"]["clusterLogging"][0] == {"types": ["api", "audit"], "enabled": True}
    [group] = lab.ec2.describe_security_groups(GroupIds=[vpc["clusterSecurityGroupId"]])[
        "SecurityGroups"
    ]
    tags = {tag["Key"]: tag["Value"] for tag in group["Tags"]}
    assert tags["kubernetes.io/cluster/demo"] == "owned"
    assert tags["aws:eks:cluster-name"] == "demo"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"version": "1.20"}, "1.20"),
        ({"name": "-x"}, "name"),
        ({"roleArn": "arn:aws:iam::123456789012:role/nobody"}, "nobody"),
        ({"zones": "a"}, "two different AZs"),
        ({"resourcesVpcConfig": {"subnetIds": ["subnet-1", "subnet-2"]}}, "subnet-"),
        ({"access": False}, "cannot be false"),
    ],
)
def test_bad_clusters_are_refused(lab, change, word):
    subnets = lab.network(change.pop("zones", "ab"))
    arguments = {
        "name": "demo",
        "roleArn": lab.role("cluster"),
        "resourcesVpcConfig": {"subnetIds": subnets},
    }
    if "access" in change:
        arguments["resourcesVpcConfig"] |= {"endpointPublicAccess": change.pop("access")}
    call = lab.eks.create_cluster
    assert word in refused("InvalidParameterException", call, **arguments | change)
    assert lab.eks.list_clusters()["clusters"] == []


def test_a_control_plane_that_does_not_start_makes_a_failed_cluster(lab, monkeypatch):
    from eks_helpers import FakePlane

    plain = FakePlane.start
    monkeypatch.setattr(FakePlane, "start", lambda self: setattr(self, "fail", True) or plain(self))
    cluster = lab.cluster()
    assert cluster["status"] == "FAILED"
    assert "etcd did not start" in cluster["health"]["issues"][0]["message"]
    lab.eks.delete_cluster(name="demo")
    eventually(lambda: lab.eks.list_clusters()["clusters"] == [])


def test_updates_merge_and_are_refused_when_they_change_nothing(lab):
    lab.cluster()
    lab.registry.latencies["UpdateCluster"] = 1.0
    update, of_vpc = lab.eks.update_cluster_config, "resourcesVpcConfig"
    answer = update(name="demo", resourcesVpcConfig={"endpointPrivateAccess": True})
    assert answer["update"]["status"] == "InProgress"
    busy = {"deletionProtection": True}
    assert "UPDATING" in refused("ResourceInUseException", update, name="demo", **busy)
    assert lab.update(answer)["status"] == "Successful"
    vpc = lab.eks.describe_cluster(name="demo")["cluster"][of_vpc]
    assert (vpc["endpointPrivateAccess"], vpc["endpointPublicAccess"]) == (True, True)
    assert len(vpc["subnetIds"]) == 2
    same = {of_vpc: {"endpointPrivateAccess": True}}
    assert "already" in refused("InvalidParameterException", update, name="demo", **same)
    both = {of_vpc: {"endpointPublicAccess": False}, "deletionProtection": True}
    assert "one type" in refused("InvalidParameterException", update, name="demo", **both)
    back = {"accessConfig": {"authenticationMode": "CONFIG_MAP"}}
    refused("InvalidParameterException", update, name="demo", **back)
    lab.update(update(name="demo", deletionProtection=True))
    assert "protection" in refused("InvalidRequestException", lab.eks.delete_cluster, name="demo")
    assert len(lab.eks.list_updates(name="demo")["updateIds"]) == 2


def test_a_deleted_cluster_leaves_nothing(lab):
    lab.cluster()
    plane = lab.plane()
    assert lab.eks.delete_cluster(name="demo")["cluster"]["status"] == "DELETING"
    eventually(lambda: lab.eks.list_clusters()["clusters"] == [])
    assert not plane.running
    groups = lab.ec2.describe_security_groups()["SecurityGroups"]
    assert {group["GroupName"] for group in groups} == {"default"}
    refused("ResourceNotFoundException", lab.eks.describe_cluster, name="demo")


def test_tags_of_every_kind_of_object(lab):
    cluster = lab.cluster()
    lab.eks.create_addon(clusterName="demo", addonName="coredns", tags={"x": "1"})
    addon = lab.eks.describe_addon(clusterName="demo", addonName="coredns")["addon"]
    for arn, first in ((cluster["arn"], {}), (addon["addonArn"], {"x": "1"})):
        lab.eks.tag_resource(resourceArn=arn, tags={"a": "b", "c": "d"})
        lab.eks.untag_resource(resourceArn=arn, tagKeys=["a"])
        tags = lab.eks.list_tags_for_resource(resourceArn=arn)["tags"]
        assert tags == first | {"c": "d"}
    arn = cluster["arn"] + "-other"
    refused("NotFoundException", lab.eks.list_tags_for_resource, resourceArn=arn)


# -- access -------------------------------------------------------------------------------------


def test_the_creator_becomes_cluster_admin(lab):
    lab.cluster()
    [entry] = lab.eks.list_access_entries(clusterName="demo")["accessEntries"]
    assert entry == lab.sts.get_caller_identity()["Arn"]
    [policy] = lab.eks.list_associated_access_policies(clusterName="demo", principalArn=entry)[
        "associatedAccessPolicies"
    ]
    assert (policy["policyArn"], policy["accessScope"]["type"]) == (CLUSTER_ADMIN, "cluster")
    identity = lab.registry.get("demo").identify(entry)
    [binding] = [o for p, o in lab.plane().objects.items() if p.startswith(BINDINGS)]
    assert binding["roleRef"]["name"] == "cluster-admin"
    assert binding["subjects"][0]["name"] in identity["groups"]


def test_a_session_of_a_role_is_known_by_the_roles_entry(lab):
    lab.cluster()
    cluster = lab.registry.get("demo")
    session = "arn:aws:sts::123456789012:assumed-role/ops/jane"
    assert cluster.identify(session) is None
    arn = "arn:aws:iam::123456789012:role/team/ops"
    lab.eks.create_access_entry(clusterName="demo", principalArn=arn, kubernetesGroups=["gpu-team"])
    identity = cluster.identify(session)
    assert identity["username"] == session
    assert "gpu-team" in identity["groups"]
    lab.eks.delete_access_entry(clusterName="demo", principalArn=arn)
    assert cluster.identify(session) is None


def test_a_namespaced_policy_waits_for_its_namespace(lab):
    lab.cluster()
    arn = "arn:aws:iam::123456789012:user/viewer"
    lab.eks.create_access_entry(clusterName="demo", principalArn=arn)
    scope = {"type": "namespace", "namespaces": ["team", "later"]}
    entry = {"clusterName": "demo", "principalArn": arn, "policyArn": VIEW}
    lab.eks.associate_access_policy(**entry, accessScope=scope)
    objects = lab.plane().objects

    def bound(namespace):
        return any(f"/namespaces/{namespace}/rolebindings/" in path for path in objects)

    assert (bound("team"), bound("later")) == (True, False)
    objects["/api/v1/namespaces/later"] = {}
    eventually(lambda: bound("later"))
    lab.eks.disassociate_access_policy(**entry)
    assert (bound("team"), bound("later")) == (False, False)
    refused("ResourceNotFoundException", lab.eks.disassociate_access_policy, **entry)


def test_entries_are_refused_on_a_config_map_cluster_and_twice(lab):
    lab.cluster()
    arn = "arn:aws:iam::123456789012:user/x"
    create = lab.eks.create_access_entry
    create(clusterName="demo", principalArn=arn)
    refused("ResourceInUseException", create, clusterName="demo", principalArn=arn)
    refused("InvalidParameterException", create, clusterName="demo", principalArn="jane")
    more = {"clusterName": "demo", "principalArn": arn + "y", "kubernetesGroups": ["system:x"]}
    refused("InvalidParameterException", create, **more)
    wrong = {"clusterName": "demo", "principalArn": arn, "policyArn": "arn:aws:iam::aws:policy/x"}
    call = lab.eks.associate_access_policy
    refused("InvalidParameterException", call, **wrong, accessScope={"type": "cluster"})


# -- node groups --------------------------------------------------------------------------------


@pytest.fixture
def ground(lab):
    """A cluster, with the role and subnets that a node group takes."""
    subnets = lab.network()
    lab.cluster(subnets=subnets)
    return lab, lab.role("node"), subnets


def test_a_node_group_is_a_template_a_group_and_nodes(ground):
    lab, role, subnets = ground
    taint = {"key": "gpu", "value": "yes", "effect": "NO_SCHEDULE"}
    answer = lab.nodegroup(
        "gpu", role, subnets, instanceTypes=["g4dn.xlarge"], labels={"p": "q"}, taints=[taint]
    )
    assert (answer["status"], answer["amiType"]) == ("ACTIVE", "AL2023_x86_64_NVIDIA")
    [name] = [group["name"] for group in answer["resources"]["autoScalingGroups"]]
    [group] = lab.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])[
        "AutoScalingGroups"
    ]
    tags = {tag["Key"]: tag["Value"] for tag in group["Tags"]}
    assert tags["eks:nodegroup-name"] == "gpu"
    assert tags["kubernetes.io/cluster/demo"] == "owned"
    assert tags["k8s.io/cluster-autoscaler/enabled"] == "true"
    assert {i["AvailabilityZone"] for i in group["Instances"]} == {"us-east-1a", "us-east-1b"}
    nodes = lab.plane().nodes()
    assert len(nodes) == 2
    for node in nodes:
        labels = node["metadata"]["labels"]
        assert (labels["p"], labels["eks.amazonaws.com/nodegroup"]) == ("q", "gpu")
        assert node["spec"]["taints"] == [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    entry = lab.eks.describe_access_entry(clusterName="demo", principalArn=role)["accessEntry"]
    assert entry["type"] == "EC2_LINUX"
    assert "gpu" in refused("ResourceInUseException", lab.eks.delete_cluster, name="demo")


def test_an_instance_has_what_its_template_says(ground):
    lab, role, subnets = ground
    disk = {"VolumeSize": 30, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True}
    data = {
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        "Monitoring": {"Enabled": True},
        "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": disk}],
        "TagSpecifications": [
            {"ResourceType": "volume", "Tags": [{"Key": "owner", "Value": "us"}]}
        ],
    }
    lab.ec2.create_launch_template(LaunchTemplateName="full", LaunchTemplateData=data)
    answer = lab.nodegroup("full", role, subnets, launchTemplate={"name": "full"})
    assert answer["status"] == "ACTIVE"
    found = lab.ec2.describe_instances(
        Filters=[{"Name": "tag:eks:nodegroup-name", "Values": ["full"]}]
    )["Reservations"]
    instances = [one for reservation in found for one in reservation["Instances"]]
    assert len(instances) == 2
    for instance in instances:
        assert instance["MetadataOptions"]["HttpTokens"] == "required"
        assert instance["Monitoring"]["State"] == "enabled"
        [root] = instance["BlockDeviceMappings"]
        assert root["DeviceName"] == instance["RootDeviceName"]
        [volume] = lab.ec2.describe_volumes(VolumeIds=[root["Ebs"]["VolumeId"]])["Volumes"]
        assert (volume["Encrypted"], volume["Size"]) == (True, 30)
        tags = {tag["Key"]: tag["Value"] for tag in volume["Tags"]}
        assert (tags["owner"], tags["eks:nodegroup-name"]) == ("us", "full")


def test_bad_node_groups_are_refused(ground):
    lab, role, subnets = ground
    image = lab.client("ssm").get_parameter(
        Name="/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended"
        "/image_id"
    )["Parameter"]["Value"]
    lab.ec2.create_launch_template(
        LaunchTemplateName="own",
        LaunchTemplateData={"ImageId": image, "InstanceType": "m6i.large", "UserData": "eA=="},
    )
    good = {"clusterName": "demo", "nodegroupName": "n", "nodeRole": role, "subnets": subnets}
    own = {"name": "own"}
    for change, word in (
        ({"scalingConfig": {"minSize": 3, "maxSize": 2, "desiredSize": 2}}, "greater than"),
        ({"scalingConfig": {"minSize": 0, "maxSize": 2, "desiredSize": 3}}, "desired"),
        ({"instanceTypes": ["x9.huge"]}, "x9.huge"),
        ({"nodeRole": "arn:aws:iam::123456789012:role/no"}, "role/no"),
        ({"subnets": ["subnet-0"]}, "subnet-0"),
        ({"labels": {"kubernetes.io/x": "y"}}, "reserved"),
        ({"launchTemplate": {"name": "missing"}}, "missing"),
        ({"launchTemplate": {"name": "own", "id": "lt-1"}}, "exactly one"),
        ({"launchTemplate": own, "instanceTypes": ["m6i.large"]}, "instance type"),
        ({"launchTemplate": own, "amiType": "AL2023_x86_64_STANDARD"}, "amiType"),
        ({"launchTemplate": own, "diskSize": 30}, "Disk size"),
    ):
        call = lab.eks.create_nodegroup
        assert word in refused("InvalidParameterException", call, **good | change), change
    assert lab.eks.list_nodegroups(clusterName="demo")["nodegroups"] == []


def test_nodes_that_never_come_fail_the_group_with_the_reason(ground):
    lab, role, _ = ground
    lab.registry.latencies["NodegroupTimeout"] = 0.5
    vpc = lab.eks.describe_cluster(name="demo")["cluster"]["resourcesVpcConfig"]["vpcId"]
    subnet = lab.ec2.create_subnet(
        VpcId=vpc, CidrBlock="10.0.96.0/20", AvailabilityZone="us-east-1e"
    )["Subnet"]["SubnetId"]
    answer = lab.nodegroup("gpu", role, [subnet], instanceTypes=["g4dn.xlarge"])
    assert answer["status"] == "CREATE_FAILED"
    [issue] = answer["health"]["issues"]
    assert issue["code"] == "AsgInstanceLaunchFailures"
    assert "g4dn.xlarge" in issue["message"]
    assert "us-east-1e" in issue["message"]


def test_a_changed_configuration_reaches_group_and_nodes(ground):
    lab, role, subnets = ground
    lab.nodegroup("general", role, subnets, labels={"old": "1"})
    path = f"/api/v1/nodes/{lab.plane().nodes()[0]['metadata']['name']}"
    lab.plane().request("PATCH", path, {"spec": {"taints": [{"key": "o", "effect": "NoSchedule"}]}})
    answer = lab.eks.update_nodegroup_config(
        clusterName="demo",
        nodegroupName="general",
        scalingConfig={"minSize": 1, "maxSize": 5, "desiredSize": 3},
        labels={"addOrUpdateLabels": {"new": "2"}, "removeLabels": ["old"]},
        taints={"addOrUpdateTaints": [{"key": "t", "value": "v", "effect": "NO_SCHEDULE"}]},
    )
    assert lab.update(answer, nodegroupName="general")["status"] == "Successful"
    eventually(lambda: len(lab.plane().nodes()) == 3)
    for node in lab.plane().nodes():
        labels = node["metadata"]["labels"]
        assert (labels["new"], "old" in labels) == ("2", False)
        assert "t" in {taint["key"] for taint in node["spec"]["taints"]}
    kept = lab.plane().request("GET", path)[1]["spec"]["taints"]
    assert {taint["key"] for taint in kept} == {"o", "t"}
    group = lab.settled("general")
    assert group["scalingConfig"] == {"minSize": 1, "maxSize": 5, "desiredSize": 3}
    assert group["labels"] == {"new": "2"}


def test_the_autoscaler_owns_the_size(ground):
    lab, role, subnets = ground
    group = lab.nodegroup("general", role, subnets)
    name = group["resources"]["autoScalingGroups"][0]["name"]
    lab.autoscaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=3)
    assert lab.settled("general")["scalingConfig"]["desiredSize"] == 3
    call = lab.autoscaling.set_desired_capacity
    for wanted in (0, 4):
        text = refused("ValidationError", call, AutoScalingGroupName=name, DesiredCapacity=wanted)
        assert str(wanted) in text
    rows = lab.autoscaling.describe_scaling_activities(AutoScalingGroupName=name)["Activities"]
    assert [row["StatusCode"] for row in rows] == ["Successful"] * 3


def test_a_new_template_version_replaces_every_instance(ground):
    lab, role, subnets = ground
    lab.nodegroup("general", role, subnets)
    before = {node["spec"]["providerID"] for node in lab.plane().nodes()}
    answer = lab.eks.update_nodegroup_version(clusterName="demo", nodegroupName="general")
    assert lab.update(answer, nodegroupName="general")["status"] == "Successful"
    after = {node["spec"]["providerID"] for node in lab.plane().nodes()}
    assert len(after) == 2
    assert not before & after


def test_a_deleted_group_leaves_nothing(ground):
    lab, role, subnets = ground
    lab.nodegroup("general", role, subnets)
    lab.eks.delete_nodegroup(clusterName="demo", nodegroupName="general")
    eventually(lambda: lab.eks.list_nodegroups(clusterName="demo")["nodegroups"] == [])
    assert lab.plane().nodes() == []
    assert lab.ec2.describe_launch_templates()["LaunchTemplates"] == []
    assert lab.autoscaling.describe_auto_scaling_groups()["AutoScalingGroups"] == []
    assert lab.iam.list_instance_profiles()["InstanceProfiles"] == []
    assert role not in lab.eks.list_access_entries(clusterName="demo")["accessEntries"]


# -- add-ons ------------------------------------------------------------------------------------


def test_an_addon_that_wants_an_untainted_node_is_degraded_until_there_is_one(ground):
    lab, role, subnets = ground

    def status(name):
        return lab.eks.describe_addon(clusterName="demo", addonName=name)["addon"]["status"]

    for name in ("coredns", "vpc-cni"):
        answer = lab.eks.create_addon(clusterName="demo", addonName=name)["addon"]
        assert answer["status"] == "CREATING"
    eventually(lambda: status("coredns") == "DEGRADED")
    eventually(lambda: status("vpc-cni") == "ACTIVE")
    [issue] = lab.eks.describe_addon(clusterName="demo", addonName="coredns")["addon"]["health"][
        "issues"
    ]
    assert issue["code"] == "InsufficientNumberOfReplicas"
    taint = {"key": "gpu", "value": "yes", "effect": "NO_SCHEDULE"}
    lab.nodegroup("tainted", role, subnets, taints=[taint])
    assert status("coredns") == "DEGRADED"
    lab.nodegroup("general", role, subnets)
    eventually(lambda: status("coredns") == "ACTIVE")


def test_versions_configuration_and_conflicts(lab):
    lab.cluster()
    rows = lab.eks.describe_addon_versions(addonName="coredns", kubernetesVersion="1.36")["addons"]
    versions = {
        row["addonVersion"]: row["compatibilities"][0]["defaultVersion"]
        for row in rows[0]["addonVersions"]
    }
    [default] = [version for version, is_default in versions.items() if is_default]
    version = rows[0]["addonVersions"][0]["addonVersion"]
    asked = {"addonName": "coredns", "addonVersion": version}
    schema = json.loads(lab.eks.describe_addon_configuration(**asked)["configurationSchema"])
    fields = schema["definitions"]["Coredns"]["properties"]
    assert fields["replicaCount"] == {"type": "integer"}
    assert "replicas" not in fields
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        lab.eks.describe_addon_configuration(addonName="coredns", addonVersion="v9")
    create = lab.eks.create_addon
    on = {"clusterName": "demo", "addonName": "coredns"}
    for change, word in (
        ({"addonName": "nonsense"}, "nonsense"),
        ({"addonVersion": "v9.9.9-eksbuild.1"}, "v9.9.9"),
        ({"configurationValues": "{"}, "JSON"),
        ({"configurationValues": '{"replicaCuont": 3}'}, "replicaCuont"),
    ):
        assert word in refused("InvalidParameterException", create, **on | change)
    path = "/apis/apps/v1/namespaces/kube-system/deployments/coredns"
    lab.plane().objects[path] = {"metadata": {"name": "coredns"}, "spec": {"replicas": 1}}
    create(**on)
    described = lab.eks.describe_addon
    eventually(lambda: described(**on)["addon"]["status"] == "CREATE_FAILED")
    assert described(**on)["addon"]["health"]["issues"][0]["code"] == "ConfigurationConflict"
    update = lab.eks.update_addon(
        **on, resolveConflicts="OVERWRITE", configurationValues=json.dumps({"replicaCount": 3})
    )
    assert lab.update(update, addonName="coredns")["status"] == "Successful"
    assert lab.plane().objects[path]["spec"]["replicas"] == 3
    assert described(**on)["addon"]["addonVersion"] == default
    lab.eks.delete_addon(**on)
    eventually(lambda: lab.eks.list_addons(clusterName="demo")["addons"] == [])
    assert path not in lab.plane().objects
