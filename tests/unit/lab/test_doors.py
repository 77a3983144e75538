"""The lab's own doors, on a daemon whose clusters have no programs."""

from __future__ import annotations

import json
import urllib.error

import pytest
import yaml
from eks_helpers import eventually

PARAMETER = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/nvidia/recommended/"


@pytest.fixture
def node(lab):
    """The Node of one GPU instance, as the API server holds it."""
    subnets = lab.network()
    lab.cluster(subnets=subnets)
    image = lab.client("ssm").get_parameter(Name=PARAMETER + "image_id")["Parameter"]["Value"]
    cluster = {"name": "demo", "apiServerEndpoint": lab.plane().endpoint, "cidr": "10.100.0.0/16"}
    spec = {"cluster": {**cluster, "certificateAuthority": "Y2E="}, "kubelet": {}}
    data = {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}
    lab.ec2.run_instances(
        ImageId=image,
        MinCount=1,
        MaxCount=1,
        InstanceType="g4dn.xlarge",
        SubnetId=subnets[0],
        UserData=yaml.safe_dump(data),
    )
    eventually(lambda: len(lab.plane().nodes()) == 1)
    [made] = lab.plane().nodes()
    eventually(lambda: made["metadata"]["name"] in str(lab.daemon.joiner._joined))
    return made


def refused(lab, path, body):
    """What the door answers with 400."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        lab.lab(path, body)
    with caught.value as answer:
        assert answer.code == 400
        return json.load(answer)["message"]


def test_faults_and_figures_of_a_node_by_its_name_or_instance(lab, node):
    name, instance = node["metadata"]["name"], node["spec"]["providerID"].rpartition("/")[2]
    fault = {"function": "nvmlInit_v2", "code": 9}
    said = lab.lab("nodes", {"node": name, "outcome": "Failed", "nvml": fault})
    assert (said["instance_id"], said["nvml"]) == (instance, ["nvmlInit_v2 * 9"])
    assert said["boot_id"] == node["status"]["nodeInfo"]["bootID"]
    healed = {"instance_id": instance, "outcome": None, "nvml": None}
    assert lab.lab("nodes", healed)["nvml"] == []
    figures = {"gpus": {"0": {"total_mib": 8192}}}
    assert lab.lab("nodes", {"node": name, "figures": figures})["figures"] == figures
    assert lab.lab("nodes", {"node": name, "figures": None})["figures"] is None


def shown(lab, name):
    return lab.plane().request("GET", f"/api/v1/nodes/{name}")[1]


def publish(lab, name):
    """Give the Node extended resources, of ours and of Kubernetes' own domain."""
    ours = {"gpushare.eks/gpu-memory": "14848Mi", "x.kubernetes.io/batch": "1"}
    status = {"status": {"capacity": ours, "allocatable": ours}}
    assert lab.plane().request("PATCH", f"/api/v1/nodes/{name}/status", status)[0] == 200


@pytest.mark.parametrize("zero", [False, True])
def test_a_reboot_brings_a_new_boot_id_and_zeroes_only_when_asked(lab, node, zero):
    name = node["metadata"]["name"]
    publish(lab, name)
    said = lab.lab("nodes", {"node": name, "reboot": True, "zero": zero})
    status = shown(lab, name)["status"]
    assert status["nodeInfo"]["bootID"] == said["boot_id"]
    assert said["boot_id"] != node["status"]["nodeInfo"]["bootID"]
    assert status["nodeInfo"]["kubeletVersion"] == node["status"]["nodeInfo"]["kubeletVersion"]
    for part in ("capacity", "allocatable"):
        assert status[part]["gpushare.eks/gpu-memory"] == ("0" if zero else "14848Mi")
        assert status[part]["x.kubernetes.io/batch"] == "1"
        assert status[part]["cpu"] == "4"


@pytest.mark.parametrize("stale", [False, True])
def test_a_node_made_anew_has_another_uid_and_stale_resources_only_when_asked(lab, node, stale):
    name = node["metadata"]["name"]
    publish(lab, name)
    before = lab.lab("nodes", {"node": name, "replace_node": True, "stale": stale})["boot_id"]
    again = shown(lab, name)
    assert again["metadata"]["uid"] != node["metadata"]["uid"]
    assert again["spec"]["providerID"] == node["spec"]["providerID"]
    assert again["status"]["nodeInfo"]["bootID"] == before
    capacity = again["status"]["capacity"]
    assert capacity.get("gpushare.eks/gpu-memory") == ("14848Mi" if stale else None)
    assert capacity["cpu"] == "4"


def test_what_starts_again_after_a_stop_has_booted(lab, node):
    instance = node["spec"]["providerID"].rpartition("/")[2]
    lab.ec2.stop_instances(InstanceIds=[instance])
    eventually(lambda: lab.plane().nodes() == [])
    lab.ec2.start_instances(InstanceIds=[instance])
    eventually(lambda: len(lab.plane().nodes()) == 1)
    [again] = lab.plane().nodes()
    assert again["status"]["nodeInfo"]["bootID"] != node["status"]["nodeInfo"]["bootID"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"instance_id": "i-1", "reboot": True}, "i-1 has joined no cluster"),
        ({"instance_id": "i-1", "replace_node": True}, "i-1 has joined no cluster"),
        ({}, "an object with instance_id or node"),
        ({"instance_id": "i-1", "figure": {}}, "an object with"),
        ({"instance_id": "i-1", "nvml": {"x": 1}}, "unexpected keyword"),
        ({"instance_id": "i-1", "nvml": {"code": 1, "hang": 2}}, "either a code or"),
        ({"instance_id": "i-1", "outcome": "Bad"}, "is no outcome"),
        ({"instance_id": "i-1", "figures": {"gpus": {"0": {"x": 1}}}}, "figures.gpus.0"),
        ({"node": "nosuch"}, "0 instances joined as node nosuch"),
    ],
)
def test_what_a_door_cannot_read_is_refused(lab, body, said):
    assert said in refused(lab, "nodes", body)


def test_a_cluster_that_is_not_there(lab):
    assert lab.lab("clusters") == {"clusters": {}}
    assert "no cluster x" in refused(lab, "clusters", {"cluster": "x", "kill": "etcd"})
    assert "an object with cluster" in refused(lab, "clusters", {"kill": "etcd"})


def test_no_pod_runs_where_no_cluster_is(lab):
    assert lab.lab("pods") == {"pods": []}
    assert "0 pods called x" in refused(lab, "pods", {"pod": "x", "signal": "KILL"})
