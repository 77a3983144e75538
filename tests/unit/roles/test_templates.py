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


SAMPLES = "roles/sample_app/vars/main/samples.yml"


def a_pool(name, strategy, memory=1024):
    return {
        "name": name,
        "predicted": {"gpu_memory_mib": memory},
        "sharing": {"strategy": strategy},
    }


def test_the_training_takes_the_first_pool_by_time_slicing_unless_one_is_named():
    pools = [
        {"name": "system", "predicted": {"gpu_memory_mib": None}, "sharing": None},
        a_pool("unpublished", "time_slicing", None),
        a_pool("mps", "mps"),
        a_pool("sliced", "time_slicing"),
    ]

    def chosen(sample, pool="", pools=pools):
        given = {"sample_app_sample": sample, "sample_app_pool": pool}
        return rendered(SAMPLES, "__sample_app_pool", sample_app_derived={"pools": pools}, **given)

    assert chosen("tensorflow") == "sliced"
    assert chosen("tensorflow", "mps") == "mps"
    assert chosen("tensorflow", pools=pools[:3]) == ""
    assert chosen("resnet") == ""


def test_a_deployment_is_late_until_all_its_pods_are_of_the_newest_template():
    def late(replicas, scales=False, **status):
        live = {"kind": "Deployment", "metadata": {"generation": 2}, "spec": {"replicas": replicas}}
        found = rendered(
            SAMPLES,
            "__sample_app_late",
            __sample_app_live=[{**live, "status": {"observedGeneration": 2, **status}}],
            __sample_app_scales=scales,
            __sample_app_scale={"min_replicas": 2},
        )
        return bool(found)

    assert not late(3, updatedReplicas=3, availableReplicas=3)
    assert late(3, updatedReplicas=2, availableReplicas=3)
    assert late(3, updatedReplicas=3, availableReplicas=2)
    assert late(3, observedGeneration=1, updatedReplicas=3, availableReplicas=3)
    assert late(3)
    # The autoscaler's number is its own: the least is enough.
    assert not late(4, scales=True, updatedReplicas=2, availableReplicas=2)
    assert late(4, scales=True, updatedReplicas=1, availableReplicas=1)


def test_a_job_is_late_until_all_its_pods_are_done_and_says_that_it_failed():
    def job(succeeded, conditions=()):
        live = {"kind": "Job", "metadata": {}, "spec": {"completions": 10}}
        live["status"] = {"succeeded": succeeded, "conditions": list(conditions)}
        late = rendered(
            SAMPLES, "__sample_app_late", __sample_app_live=[live], __sample_app_scales=False
        )
        return bool(late), rendered(SAMPLES, "__sample_app_lost", __sample_app_late=late)

    failed = {"type": "Failed", "status": "True", "message": "BackoffLimitExceeded"}
    assert job(10) == (False, [])
    assert job(9) == (True, [])
    assert job(9, [failed]) == (True, ["BackoffLimitExceeded"])


def test_the_number_of_replicas_is_the_autoscalers_where_there_is_one():
    def written(scales, check=False, handed_over=True):
        return rendered(
            SAMPLES,
            "__sample_app_written_replicas",
            sample_app_replicas=3,
            ansible_check_mode=check,
            __sample_app_scales=scales,
            __sample_app_handed_over=handed_over,
            __sample_app_before={"resources": [{"spec": {"replicas": 4}}]},
        )

    assert written(False) == 3
    assert written(True) == written(True, handed_over=False) == written(True, check=True) == ""
    # Nothing was handed over in check mode: without its number the dry run would show one replica.
    assert written(True, check=True, handed_over=False) == 4


def test_a_load_test_with_more_errors_than_allowed_is_bad():
    def bad(requests, errors, allowed=1):
        return rendered(
            "roles/sample_app/vars/main/jobs.yml",
            "__sample_app_measure_bad",
            sample_app_measure_errors_percent=allowed,
            __sample_app_load_message={"requests": requests, "errors": errors},
        )

    assert not bad(99, 1)
    assert bad(98, 2)
    assert not bad(98, 2, allowed=2)
    assert bad(0, 0)
