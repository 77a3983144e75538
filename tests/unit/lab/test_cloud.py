"""Services and claims of a real API server, carried out in moto by the lab's cloud controllers."""

from __future__ import annotations

import pytest
from lab_helpers import REGION, eventually

from lab import LabError
from lab.aws import Context
from lab.aws.eks_state import Cluster
from lab.cloud import ADDON, FINALIZER, CloudControllers

SERVICES = "/api/v1/namespaces/default/services"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
OWNED = {"Key": "kubernetes.io/cluster/unit", "Value": "owned"}


@pytest.fixture(scope="module")
def cluster(client, plane):
    """A cluster of the EKS service over the real control plane, with its controllers at work."""
    ec2 = client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.4.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.4.0.0/24")["Subnet"]["SubnetId"]
    group = ec2.create_security_group(VpcId=vpc, GroupName="c", Description="c")["GroupId"]
    config = {"vpcId": vpc, "subnetIds": [subnet], "clusterSecurityGroupId": group}
    record = {"resourcesVpcConfig": config}
    made = Cluster("unit", REGION, record, Context(REGION), plane, addons={ADDON: {}})
    controllers = CloudControllers(plane, lambda: made, lambda service, _region: client(service))
    controllers.start()
    yield made
    controllers.stop()


def apply(plane, path, body):
    status, answer = plane.request("POST", path, body)
    assert status == 201, answer
    return f"{path}/{body['metadata']['name']}"


def service(plane, name, **annotations):
    notes = {f"service.beta.kubernetes.io/aws-load-balancer-{k}": v for k, v in annotations.items()}
    body = {
        "metadata": {"name": name, "annotations": notes},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    }
    return apply(plane, SERVICES, body)


def hostname(plane, path):
    ingress = plane.request("GET", path)[1]["status"]["loadBalancer"].get("ingress")
    return ingress and ingress[0]["hostname"]


def gone(plane, path):
    eventually(lambda: plane.request("GET", path)[0], 404)


def test_a_service_is_a_classic_load_balancer_with_a_group_of_its_own(client, plane, cluster):
    ec2, elb = client("ec2"), client("elb")
    path = service(plane, "web")
    eventually(lambda: hostname(plane, path), bool)
    (balancer,) = elb.describe_load_balancers()["LoadBalancerDescriptions"]
    assert hostname(plane, path) == balancer["DNSName"]
    tags = elb.describe_tags(LoadBalancerNames=[balancer["LoadBalancerName"]])["TagDescriptions"]
    assert OWNED in tags[0]["Tags"]
    assert {"Key": "kubernetes.io/service-name", "Value": "default/web"} in tags[0]["Tags"]
    (group,) = ec2.describe_security_groups(GroupIds=balancer["SecurityGroups"])["SecurityGroups"]
    assert group["GroupName"] == f"k8s-elb-{balancer['LoadBalancerName']}"
    assert OWNED in group["Tags"]
    nodes = cluster.record["resourcesVpcConfig"]["clusterSecurityGroupId"]
    (shown,) = ec2.describe_security_groups(GroupIds=[nodes])["SecurityGroups"]
    pairs = [pair for rule in shown["IpPermissions"] for pair in rule["UserIdGroupPairs"]]
    assert [pair["GroupId"] for pair in pairs] == [group["GroupId"]]
    assert FINALIZER in plane.request("GET", path)[1]["metadata"]["finalizers"]

    plane.request("DELETE", path)
    # The group waits for the load balancer's interfaces, and the Service for the group.
    gone(plane, path)
    assert elb.describe_load_balancers()["LoadBalancerDescriptions"] == []
    left = ec2.describe_security_groups(Filters=[{"Name": "tag-key", "Values": [OWNED["Key"]]}])
    assert left["SecurityGroups"] == []
    (shown,) = ec2.describe_security_groups(GroupIds=[nodes])["SecurityGroups"]
    assert shown["IpPermissions"] == []


def test_a_finalizer_of_somebody_else_is_not_lost(plane):
    """Added between what a controller read and what it writes."""
    body = {"metadata": {"name": "held"}, "spec": {"ports": [{"port": 80}]}}
    path = apply(plane, SERVICES, body)
    read = plane.request("GET", path)[1]
    theirs = {"metadata": {"finalizers": ["example.com/theirs"]}}
    assert plane.request("PATCH", path, theirs, "application/merge-patch+json")[0] == 200
    controllers = CloudControllers(plane, lambda: None, lambda *_any: None)
    read["spec"]["type"] = "LoadBalancer"
    with pytest.raises(LabError, match="409"):
        controllers._service(None, path, read)
    kept = plane.request("GET", path)[1]["metadata"]["finalizers"]
    assert kept == ["example.com/theirs"]
    assert plane.request("PATCH", path, {"metadata": {"finalizers": None}},
                         "application/merge-patch+json")[0] == 200  # fmt: skip
    plane.request("DELETE", path)
    gone(plane, path)


def test_a_service_is_a_network_load_balancer_where_it_says_so(client, plane, cluster):
    elbv2 = client("elbv2")
    path = service(plane, "fast", type="nlb", internal="true")
    eventually(lambda: hostname(plane, path), bool)
    (balancer,) = elbv2.describe_load_balancers()["LoadBalancers"]
    assert (balancer["Type"], balancer["Scheme"]) == ("network", "internal")
    (target,) = elbv2.describe_target_groups()["TargetGroups"]
    arns = [balancer["LoadBalancerArn"], target["TargetGroupArn"]]
    for row in elbv2.describe_tags(ResourceArns=arns)["TagDescriptions"]:
        assert OWNED in row["Tags"]
    plane.request("DELETE", path)
    gone(plane, path)
    assert elbv2.describe_load_balancers()["LoadBalancers"] == []
    assert elbv2.describe_target_groups()["TargetGroups"] == []


def test_a_claim_is_a_volume_until_it_is_deleted(client, plane, cluster):
    ec2 = client("ec2")
    kind = {
        "metadata": {"name": "gp3"},
        "provisioner": "ebs.csi.aws.com",
        "parameters": {"type": "gp3", "encrypted": "true"},
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    }
    apply(plane, "/apis/storage.k8s.io/v1/storageclasses", kind)
    body = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "gp3",
            "resources": {"requests": {"storage": "4Gi"}},
        },
    }
    path = apply(plane, CLAIMS, body)
    eventually(lambda: plane.request("GET", path)[1]["status"].get("phase"), "Bound")
    (volume,) = ec2.describe_volumes(
        Filters=[{"Name": f"tag:{OWNED['Key']}", "Values": ["owned"]}]
    )["Volumes"]
    assert (volume["Size"], volume["VolumeType"], volume["Encrypted"]) == (4, "gp3", True)
    assert {"Key": "kubernetes.io/created-for/pvc/name", "Value": "data"} in volume["Tags"]
    (shown,) = plane.request("GET", "/api/v1/persistentvolumes")[1]["items"]
    assert shown["spec"]["csi"]["volumeHandle"] == volume["VolumeId"]
    plane.request("DELETE", path)
    gone(plane, f"/api/v1/persistentvolumes/{shown['metadata']['name']}")
    left = ec2.describe_volumes(VolumeIds=[])["Volumes"]
    assert volume["VolumeId"] not in [one["VolumeId"] for one in left]


def test_without_the_driver_a_claim_waits(client, plane, cluster):
    cluster.addons.clear()
    body = {
        "metadata": {"name": "waits"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "gp3",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    path = apply(plane, CLAIMS, body)
    noted = "volume.kubernetes.io/storage-provisioner"
    eventually(
        lambda: plane.request("GET", path)[1]["metadata"].get("annotations", {}).get(noted), bool
    )
    assert plane.request("GET", path)[1]["status"]["phase"] == "Pending"
    assert plane.request("GET", "/api/v1/persistentvolumes")[1]["items"] == []
    plane.request("DELETE", path)
