"""The lab's own doors, on a daemon whose clusters have no programs."""

from __future__ import annotations

import json
import urllib.error

import pytest
import yaml
from eks_helpers import eventually, fresh, running_lab

PARAMETER = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/nvidia/recommended/"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with running_lab(tmp_path_factory.mktemp("lab")) as running:
        yield running


@pytest.fixture
def lab(daemon):
    return fresh(daemon)


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


@pytest.mark.parametrize(
    ("body", "said"),
    [
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


def test_no_pod_runs_where_no_cluster_is(lab):
    assert lab.lab("pods") == {"pods": []}
    assert "0 pods called x" in refused(lab, "pods", {"pod": "x", "signal": "KILL"})
