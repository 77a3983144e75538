"""Bad input and a broken ground: a typed error with object, cause and remedy, never a traceback."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
import requests

from lab import processes
from lab.controlplane import state_name

from .conftest import VARS, Built
from .support import cluster, playbook

SYSTEM = {"name": "system", "instance_types": ["m6i.large"], "min_size": 1, "max_size": 2}


def _pool(**changes: object) -> dict:
    sharing = {"strategy": "time_slicing", "replicas": 10, "gpu_memory": True}
    return {
        "name": "shared",
        "instance_types": ["g4dn.xlarge"],
        "min_size": 0,
        "max_size": 1,
        "sharing": sharing,
        **changes,
    }


BAD_POOLS = {
    "unknown strategy": (
        _pool(sharing={"strategy": "magic"}),
        ["gpushare_pools[1].sharing.strategy", "exclusive", "time_slicing", "mps"],
    ),
    "replicas over the MPS limit": (
        _pool(sharing={"strategy": "mps", "replicas": 49}),
        ["gpushare_pools[1].sharing.replicas", "48"],
    ),
    "two strategies on one pool": (
        _pool(sharing={"strategy": ["time_slicing", "mps"], "replicas": 4}),
        ["gpushare_pools[1].sharing.strategy", "a pool of its own for the other"],
    ),
    "MPS with MIG": (
        _pool(sharing={"strategy": "mps", "replicas": 4, "flags": {"migStrategy": "single"}}),
        ["gpushare_pools[1].sharing.flags.migStrategy", "MPS and MIG exclude each other"],
    ),
    "two pools with one name": (_pool(name="system"), ["gpushare_pools[1].name", "system"]),
    "min above max": (_pool(min_size=3), ["gpushare_pools[1].min_size", "1"]),
    "no GPU for a sharing pool": (
        _pool(instance_types=["m6i.large"]),
        ["gpushare_pools[1].instance_types", "m6i.large"],
    ),
    "several GPUs with gpu_memory": (
        _pool(instance_types=["g4dn.12xlarge"]),
        ["gpushare_pools[1]", "g4dn.12xlarge", "multi_gpu"],
    ),
}


def _calls() -> int:
    endpoint = boto3.client("sts").meta.endpoint_url
    return len(requests.get(f"{endpoint}/_lab/calls", timeout=10).json()["calls"])


@pytest.mark.parametrize("case", BAD_POOLS)
def test_a_bad_pool_is_refused_before_the_first_call(case: str, tmp_path: Path) -> None:
    pool, wanted = BAD_POOLS[case]
    variables = tmp_path / "pools.json"
    variables.write_text(json.dumps({"gpushare_pools": [SYSTEM, pool]}))
    before = _calls()
    refused = playbook.run("site.yml", "-e", f"@{variables}")
    assert refused.rc != 0
    assert _calls() == before
    assert "Traceback" not in refused.output
    for text in wanted:
        assert text in refused.output, refused


BAD_WORKLOADS = {
    "a fraction of an integer resource": ({"gpu_memory": "0.3"}, ["fraction of a byte", "3Gi"]),
    "more pods than the pools hold": (
        {"replicas": 17},
        ["pool shared holds 16 at max_size 4", "replicas: 16", "2969Mi", "max_size: 5"],
    ),
    "a pool that is not there": ({"pool": "nosuch"}, ["no pool 'nosuch'", "shared"]),
}


@pytest.mark.parametrize("case", BAD_WORKLOADS)
def test_a_bad_workload_is_refused_before_the_first_call(case: str) -> None:
    given, wanted = BAD_WORKLOADS[case]
    before = _calls()
    refused = playbook.run(
        "site.yml", extra_vars={f"sample_app_{key}": value for key, value in given.items()}
    )
    assert refused.rc != 0
    assert _calls() == before
    assert "Traceback" not in refused.output
    said = " ".join(refused.output.split())
    for text in ("sample_app_gpu_memory", *wanted):
        assert text in said, refused


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        (
            {"gpushare_team_quotas": [{"namespace": "a", "gpu_memory": 0}]},
            ["gpushare_team_quotas[0].gpu_memory", "24Gi"],
        ),
        ({"gpushare_guards": {"host_acces": False}}, ["host_acces", "visible_devices, whole_gpu"]),
    ],
    ids=["a quota of 0", "an unknown guard"],
)
def test_a_rule_about_pods_that_cannot_be_kept_is_refused_before_the_first_call(
    variables: dict, wanted: list[str]
) -> None:
    before = _calls()
    refused = playbook.run("site.yml", "-e", json.dumps(variables))
    assert refused.rc != 0
    assert _calls() == before
    assert "Traceback" not in refused.output
    for text in wanted:
        assert text in refused.output, refused


def _quotas(values: dict[str, int | None]) -> None:
    endpoint = boto3.client("sts").meta.endpoint_url
    requests.post(f"{endpoint}/_lab/quotas", json=values, timeout=10).raise_for_status()


def test_an_account_without_the_quota_is_refused_before_anything_is_made() -> None:
    endpoint = boto3.client("sts").meta.endpoint_url
    began = _calls()
    _quotas({"L-DB2E81BA": 0})
    try:
        refused = playbook.run("site.yml", extra_vars={"gpushare_cluster_name": "without-quota"})
    finally:
        _quotas({"L-DB2E81BA": None})
    assert refused.rc != 0
    assert "Traceback" not in refused.output
    for text in ("Running On-Demand G and VT instances", "--quota-code L-DB2E81BA", "min_size"):
        assert text in refused.output, refused
    calls = requests.get(f"{endpoint}/_lab/calls", timeout=10).json()["calls"][began:]
    assert "GetServiceQuota" in {call["operation"] for call in calls}
    assert all(call["operation"].startswith(("Get", "Describe", "List")) for call in calls)


def test_no_credentials_is_a_typed_error() -> None:
    env = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "")
    failed = playbook.run("site.yml", env={**env, "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent"})
    assert failed.rc != 0
    assert "credentials" in failed.output.lower(), failed
    assert "Traceback" not in failed.output


@contextlib.contextmanager
def _frozen_api_server(name: str) -> Iterator[None]:
    """The API server of cluster ``name`` takes connections and answers none of them."""
    state = playbook.ROOT / ".lab" / "clusters" / state_name(name)
    (server,) = [r for r in processes.read_records(state) if r["name"] == "kube-apiserver"]
    assert processes.alive(server)
    os.kill(server["pid"], signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server["pid"], signal.SIGCONT)


def test_an_api_server_that_does_not_answer_is_a_typed_error(built: Built) -> None:
    with _frozen_api_server(built.name):
        failed = playbook.run(
            "playbooks/publish_gpu_memory.yml",
            extra_vars={**VARS, "device_plugin_api_timeout": 10},
            timeout=180,
        )
    assert failed.rc != 0
    assert "Traceback" not in failed.output
    assert built.name in failed.output
    assert "emedy" in failed.output, failed
    assert playbook.run("playbooks/publish_gpu_memory.yml", extra_vars=VARS).rc == 0


def _outcome(instance_id: str, outcome: str | None) -> None:
    endpoint = boto3.client("sts").meta.endpoint_url
    requests.post(
        f"{endpoint}/_lab/nodes",
        json={"instance_id": instance_id, "outcome": outcome},
        timeout=10,
    ).raise_for_status()


def test_a_node_that_never_answers_is_named(built: Built) -> None:
    (node,) = cluster.nodes(built.name, "gpushare.eks/pool=shared")
    instance_id = node["spec"]["providerID"].rpartition("/")[2]
    _outcome(instance_id, "NoAnswer")
    try:
        failed = playbook.run(
            "playbooks/publish_gpu_memory.yml",
            extra_vars={**VARS, "device_plugin_probe_timeout": 5},
            timeout=180,
        )
    finally:
        _outcome(instance_id, None)
    assert failed.rc != 0
    assert instance_id in failed.output
    assert "NoAnswer" in failed.output, failed
    assert playbook.run("playbooks/publish_gpu_memory.yml", extra_vars=VARS).rc == 0
