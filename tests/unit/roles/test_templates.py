"""What variables of the roles render to, by Ansible's own templating."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

ROOT = Path(__file__).resolve().parents[3]


def rendered(path: str, name: str, **variables):
    """The variable ``name`` of a role's file, where ``variables`` win over the file's."""
    loader = DataLoader()
    own = loader.load_from_file(str(ROOT / path), trusted_as_template=True)
    return Templar(loader, variables={**own, **variables}).template(own[name])


def test_the_agents_manifests_are_shown_as_documents_of_their_own():
    manifests = [{"kind": kind, "spec": {"text": "two\nlines"}} for kind in ("A", "B")]
    text = rendered(
        "roles/device_plugin/vars/main/agent.yml",
        "__device_plugin_shown_text",
        item={"manifests": manifests},
    )
    assert list(yaml.safe_load_all(text)) == manifests


def test_a_csi_drivers_role_trusts_its_own_service_account_of_this_cluster():
    trust = rendered(
        "roles/eks/vars/main.yml",
        "__eks_pod_trust",
        eks_cluster_name="c",
        eks_result={"role_arn": "arn:aws-cn:iam::111122223333:role/c"},
        __eks_driver="efs",
    )
    (statement,) = trust["Statement"]
    assert statement["Condition"]["StringEquals"] == {
        "aws:SourceAccount": "111122223333",
        "aws:RequestTag/eks-cluster-name": "c",
        "aws:RequestTag/kubernetes-namespace": "kube-system",
        "aws:RequestTag/kubernetes-service-account": "efs-csi-controller-sa",
    }


def test_the_agent_reaches_the_api_server_and_is_reached_where_it_is_scraped():
    def ports(endpoint, metrics):
        policies = rendered(
            "roles/device_plugin/vars/main/network.yml",
            "__device_plugin_agent_network",
            __device_plugin_agent_name="a",
            device_plugin_agent_namespace="n",
            __device_plugin_agent_labels={},
            device_plugin_agent_metrics_port=metrics,
            device_plugin_eks={"endpoint": endpoint},
        )
        spec = policies[0]["spec"]
        out = [one["port"] for one in spec["egress"][0]["ports"]]
        return out, [one["port"] for rule in spec["ingress"] for one in rule["ports"]]

    assert ports("https://x.eks.amazonaws.com", "") == ([443], [])
    assert ports("https://127.0.0.1:6443", "9400") == ([443, 6443], [9400])


@pytest.mark.parametrize(
    ("values", "paths"),
    [
        ({}, ["/run/nvidia/mps", "/var/run/nvidia/mps", "/tmp/nvidia-mps"]),
        ({"mps": {"root": "/run/mine/"}}, ["/run/mine", "/var/run/mine", "/tmp/nvidia-mps"]),
        ({"mps": {"root": "/srv/mps"}}, ["/srv/mps", "/tmp/nvidia-mps"]),
    ],
)
def test_the_pipes_of_mps_are_guarded_where_the_chart_puts_them(values, paths):
    guarded = rendered(
        "roles/device_plugin/vars/main/guards.yml",
        "__device_plugin_mps_paths",
        __device_plugin_all_values=values,
    )
    assert guarded == paths
