"""From instance to Node: user data in all its forms, and the ends of nodes."""

from __future__ import annotations

import base64
import gzip

import pytest
import yaml
from eks_helpers import eventually

from lab import nodeconfig
from lab.joiner import max_pods, node_name

PARAMETER = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/nvidia/recommended/"


def config(cluster="demo", endpoint="", **kubelet):
    spec = {"cluster": {"name": cluster, "apiServerEndpoint": endpoint}, "kubelet": kubelet}
    spec["cluster"] |= {"certificateAuthority": "Y2E=", "cidr": "10.100.0.0/16"}
    return {"apiVersion": nodeconfig.API_VERSION, "kind": "NodeConfig", "spec": spec}


# -- user data ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [str.encode, lambda t: gzip.compress(t.encode())])
@pytest.mark.parametrize("encode", [lambda raw: raw, base64.b64encode])
def test_plain_user_data_in_every_encoding(wrap, encode):
    text = yaml.safe_dump(config(flags=["--node-labels=a=b"]))
    assert nodeconfig.parse(encode(wrap(text)))["cluster"]["name"] == "demo"


def test_parts_are_kept_and_merged():
    first = [("text/x-shellscript", "#!/bin/sh\necho hi\n")]
    data = nodeconfig.render({"kubelet": {"flags": ["--node-labels=a=1"]}}, first)
    again = nodeconfig.render(
        {"cluster": {"name": "demo"}, "kubelet": {"flags": ["--node-labels=b=2"]}},
        nodeconfig.parts(data),
    )
    assert [kind for kind, _ in nodeconfig.parts(again)] == [
        "text/x-shellscript",
        nodeconfig.CONTENT_TYPE,
        nodeconfig.CONTENT_TYPE,
    ]
    spec = nodeconfig.parse(again)
    assert spec["cluster"]["name"] == "demo"
    assert nodeconfig.labels_and_taints(spec)[0] == {"a": "1", "b": "2"}


@pytest.mark.parametrize("data", [None, "", "#!/bin/sh\n", "apiVersion: node.eks.aws/v1alpha1\n a"])
def test_user_data_without_a_config_is_no_node(data):
    assert nodeconfig.parse(data) is None


def test_taints_come_from_flag_and_configuration():
    labels, taints = nodeconfig.labels_and_taints(
        {
            "kubelet": {
                "flags": ["--register-with-taints=a.b/c=d:NoSchedule,e:NoExecute", "--v=2"],
                "config": {"registerWithTaints": [{"key": "k", "effect": "NoSchedule"}]},
            }
        }
    )
    assert labels == {}
    assert taints == [
        {"key": "k", "effect": "NoSchedule"},
        {"key": "a.b/c", "value": "d", "effect": "NoSchedule"},
        {"key": "e", "value": "", "effect": "NoExecute"},
    ]


def test_names_and_pod_limits_are_those_of_ec2():
    assert node_name("10.0.1.2", "us-east-1") == "ip-10-0-1-2.ec2.internal"
    assert node_name("10.0.1.2", "eu-west-1") == "ip-10-0-1-2.eu-west-1.compute.internal"
    assert (max_pods("g4dn.xlarge"), max_pods("m6i.large")) == (29, 29)


# -- instances ----------------------------------------------------------------------------------


@pytest.fixture
def launch(lab):
    """launch(count, **config) starts instances by hand, as a self-managed group would."""
    subnets = lab.network()
    lab.cluster(subnets=subnets)
    image = lab.client("ssm").get_parameter(Name=PARAMETER + "image_id")["Parameter"]["Value"]

    def start(count=1, **given):
        text = yaml.safe_dump(config(**{"endpoint": lab.plane().endpoint, **given}))
        answer = lab.ec2.run_instances(
            ImageId=image,
            MinCount=count,
            MaxCount=count,
            InstanceType="g4dn.xlarge",
            SubnetId=subnets[0],
            UserData=text,
        )
        return [instance["InstanceId"] for instance in answer["Instances"]]

    return start


def joined(lab, count):
    eventually(lambda: len(lab.plane().nodes()) == count)
    return lab.plane().nodes()


def test_an_instance_becomes_a_node_as_the_kubelet_registers_it(lab, launch):
    flags = ["--node-labels=a=b", "--register-with-taints=t=v:NoSchedule"]
    [instance] = launch(flags=flags, config={"maxPods": 110})
    [node] = joined(lab, 1)
    assert node["spec"]["providerID"] == f"aws:///us-east-1a/{instance}"
    assert node["spec"]["taints"] == [{"key": "t", "value": "v", "effect": "NoSchedule"}]
    labels = node["metadata"]["labels"]
    assert labels["a"] == "b"
    assert labels["node.kubernetes.io/instance-type"] == "g4dn.xlarge"
    assert labels["topology.kubernetes.io/zone"] == "us-east-1a"
    assert labels["kubernetes.io/hostname"] == node["metadata"]["name"]
    capacity = node["status"]["capacity"]
    assert (capacity["cpu"], capacity["memory"], capacity["pods"]) == ("4", "16384Mi", "110")
    # No GPU yet: that is the device plugin's to say.
    assert not any("/" in name for name in capacity)


@pytest.mark.parametrize(
    "given", [{"cluster": "other"}, {"endpoint": "https://127.0.0.1:2"}], ids=["name", "endpoint"]
)
def test_an_instance_of_something_else_does_not_join(lab, launch, given):
    launch(**given)
    launch()
    assert len(joined(lab, 1)) == 1


@pytest.mark.parametrize("end", ["terminate_instances", "stop_instances"])
def test_a_node_ends_with_its_instance(lab, launch, end):
    first, _ = launch(2)
    joined(lab, 2)
    getattr(lab.ec2, end)(InstanceIds=[first])
    [node] = joined(lab, 1)
    assert not node["spec"]["providerID"].endswith(first)
    if end == "stop_instances":
        lab.ec2.start_instances(InstanceIds=[first])
        joined(lab, 2)


def test_a_node_deleted_by_hand_is_not_made_again(lab, launch):
    launch()
    [node] = joined(lab, 1)
    lab.plane().request("DELETE", f"/api/v1/nodes/{node['metadata']['name']}")
    launch()
    [other] = joined(lab, 1)
    assert other["metadata"]["name"] != node["metadata"]["name"]


def test_an_instance_ended_behind_the_groups_back_is_replaced(lab):
    subnets = lab.network()
    lab.cluster(subnets=subnets)
    lab.nodegroup("general", lab.role("node"), subnets)
    before = {node["spec"]["providerID"].rsplit("/", 1)[-1] for node in lab.plane().nodes()}
    gone = min(before)
    lab.ec2.terminate_instances(InstanceIds=[gone])

    def now():
        return {node["spec"]["providerID"].rsplit("/", 1)[-1] for node in lab.plane().nodes()}

    eventually(lambda: len(now()) == 2 and gone not in now())
    assert len(now() & before) == 1
