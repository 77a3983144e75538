"""The main job as a user meets it: check, build, kill and heal, run again, use, take away."""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass
from pathlib import Path

import boto3
import pytest

from .conftest import VARS, Built
from .support import aws_state, cluster, kill, playbook, workloads

MOST_MODULE_PROCESSES = 45


@dataclass(frozen=True)
class Gone:
    """The cluster's end with users' workloads in it and others' objects beside it."""

    run: playbook.Run
    vpc: str
    foreign: str
    stale: str
    left: dict[str, dict]


def test_check_mode_on_an_empty_account_tells_what_it_would_make(built: Built) -> None:
    assert built.check.rc == 0, built.check
    assert built.check.recap["changed"] > 0
    for promised in (
        "kind: Deployment",
        "gpushare.eks/gpu-memory",
        "nvidia.com/gpu.shared",
        "kind: DaemonSet",
        "name: gpushare-host-access",
        "name: gpushare-agent-code",
        "name: gpushare-gpu-workload",
    ):
        assert promised in built.check.output, promised
    assert "diff skipped" not in built.check.output


def test_a_killed_run_heals(built: Built) -> None:
    assert len(built.killed) == 3
    assert all("PLAY RECAP" not in text for text in built.killed)
    assert built.site.rc == 0, built.site
    # Its lock was left behind, by a process that is gone.
    assert "the run lock of cluster it was taken from" in built.site.output


def test_a_second_run_at_the_same_time_is_refused_and_leaves_the_lock(built: Built) -> None:
    ssm, name = boto3.client("ssm"), f"/gpushare/{built.name}/run-lock"
    with pytest.raises(ssm.exceptions.ParameterNotFound):  # the run before gave it up
        ssm.get_parameter(Name=name)
    holder = {"schema": 1, "id": "elsewhere/1/1", "who": "ops@runner-9, process 1", "job": "17"}
    ssm.put_parameter(Name=name, Value=json.dumps(holder), Type="String")
    try:
        for book in ("site.yml", "playbooks/destroy.yml"):
            variables = {**VARS, "confirm_destroy": built.name}
            refused = built.principal.run(book, extra_vars=variables)
            assert refused.rc != 0, refused
            told = " ".join(refused.output.split())
            assert "being changed by another run: ops@runner-9, process 1, job 17" in told
            assert "take_run_lock=true" in told
            assert json.loads(ssm.get_parameter(Name=name)["Parameter"]["Value"]) == holder
    finally:
        ssm.delete_parameter(Name=name)


def test_healing_left_no_duplicates(built: Built) -> None:
    new = {k: v for k, v in aws_state.objects(built.name).items() if k not in built.before}
    names = [
        (k.split(" ")[0], v["Name"], v.get("aws:autoscaling:groupName"))
        for k, v in new.items()
        if "Name" in v and not k.startswith("instance i-")
    ]
    assert len(names) == len(set(names)), sorted(names)
    assert sum(k.startswith("nat gateway") for k in new) == 1
    assert sum(k.startswith("address") for k in new) == 1
    assert sum(k.startswith("internet gateway") for k in new) == 1


def test_three_pods_share_one_gpu(built: Built) -> None:
    report = json.loads(Path("build/report.json").read_text())
    shared = [n for n in report["nodes"] if n["pool"] == "shared"]
    assert len(shared) == 1
    (node,) = shared
    assert [p["phase"] for p in node["pods"] if p["gpu_memory_mib"]] == ["Running"] * 3
    assert node["requested_mib"] == 3 * 3072
    assert node["allocatable_mib"] == node["capacity_mib"] <= node["gpus"][0]["usable_mib"]
    assert report["pending"] == []
    live = cluster.node(built.name, node["name"])
    assert (
        cluster.mib(live["status"]["allocatable"]["gpushare.eks/gpu-memory"])
        == (node["allocatable_mib"])
    )


def test_second_run_changes_nothing_and_is_cheap(built: Built, tmp_path: Path) -> None:
    again = built.principal.run("site.yml", extra_vars=VARS, tmp=tmp_path)
    assert again.rc == 0, again
    assert again.recap["changed"] == 0, again
    assert 0 < again.module_processes <= MOST_MODULE_PROCESSES


def test_check_mode_on_the_built_cluster_finds_nothing_to_do(built: Built) -> None:
    check = built.principal.run("site.yml", "--check", "--diff", extra_vars=VARS)
    assert check.rc == 0, check
    assert check.recap["changed"] == 0, check


def test_a_fourth_fits_and_a_fifth_waits_for_gpu_memory(built: Built) -> None:
    four = built.principal.run("playbooks/app.yml", extra_vars={**VARS, "sample_app_replicas": 4})
    assert four.rc == 0, four
    five = built.principal.run(
        "playbooks/app.yml",
        extra_vars={**VARS, "sample_app_replicas": 5, "sample_app_wait": "false"},
    )
    assert five.rc == 0, five
    assert built.principal.run("playbooks/report.yml", extra_vars=VARS).rc == 0
    report = json.loads(Path("build/report.json").read_text())
    (node,) = [n for n in report["nodes"] if n["pool"] == "shared"]
    assert [p["phase"] for p in node["pods"] if p["gpu_memory_mib"]] == ["Running"] * 4
    (waiting,) = report["pending"]
    assert "Insufficient gpushare.eks/gpu-memory" in waiting["reason"]


def test_a_lie_on_a_node_is_seen_and_repaired_by_one_patch(built: Built) -> None:
    # Where the agent runs it mends a lie by itself (test_agent.py); here it is gone.
    path = "/apis/apps/v1/namespaces/gpushare-system/daemonsets/gpushare-agent"
    cluster.request(built.name, "DELETE", path).raise_for_status()
    pods = "/api/v1/namespaces/gpushare-system/pods"
    deadline = time.monotonic() + 60
    while cluster.request(built.name, "GET", pods).json()["items"]:
        assert time.monotonic() < deadline, "the agent's pods do not end"
        time.sleep(0.5)
    (node,) = cluster.nodes(built.name, "gpushare.eks/pool=shared")
    name, truth = node["metadata"]["name"], node["status"]["capacity"]["gpushare.eks/gpu-memory"]
    cluster.patch_capacity(built.name, name, "gpushare.eks/gpu-memory", "99Gi")
    publish = "playbooks/publish_gpu_memory.yml"
    audit = built.principal.run(publish, "--check", "--diff", extra_vars=VARS)
    assert audit.rc == 0, audit
    assert "99Gi" in audit.output or "101376Mi" in audit.output, audit
    assert cluster.capacity(built.name, name) == cluster.mib("99Gi")
    repair = built.principal.run(publish, extra_vars=VARS)
    assert repair.rc == 0, repair
    assert repair.recap["changed"] == 1, repair
    assert cluster.capacity(built.name, name) == cluster.mib(truth)


@pytest.mark.last
def test_destroy_wants_the_name_said(built: Built) -> None:
    refused = built.principal.run("playbooks/destroy.yml", extra_vars=VARS)
    assert refused.rc != 0
    assert f"confirm_destroy={built.name}" in refused.output


@pytest.fixture(scope="module")
def gone(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Gone:
    """destroy.yml, killed three times, with users' load balancers and others' group in the VPC."""
    workloads.services(built.name)
    volume = workloads.claim(built.name)
    vpc = workloads.vpc_of(built.name)
    # Left by a controller of a Service that is long gone, and somebody else's.
    owned = {f"kubernetes.io/cluster/{built.name}": "owned"}
    stale = workloads.group(vpc, "k8s-elb-stale", owned)
    foreign = workloads.group(vpc, "theirs")
    seen = aws_state.objects(built.name)
    for kind in ("classic load balancer", "load balancer", "target group"):
        assert any(key.startswith(kind) for key in seen), f"no {kind}: nothing is tested"
    assert f"volume {volume}" in seen
    said = {**VARS, "confirm_destroy": built.name, "destroy_workloads": "true"}
    for after in sorted(random.Random(built.seed).sample(range(12, 70), 3)):
        kill.run_until(
            "playbooks/destroy.yml",
            lambda text, after=after: text.count("TASK [") >= after,
            tmp_path_factory.mktemp("destroy") / "killed.log",
            extra_vars=said,
            env=built.principal.env,
            timeout=300,
        )
    first = built.principal.run("playbooks/destroy.yml", extra_vars=said)
    return Gone(first, vpc, foreign, stale, aws_state.objects(built.name))


@pytest.mark.last
def test_destroy_leaves_nothing_but_the_vpc_that_others_hold(built: Built, gone: Gone) -> None:
    left = {k for k in gone.left if k not in built.before}
    # A VPC has its main route table and its default group for as long as it lives.
    kept = {k for k in left if k.split(" ")[0] in ("vpc", "route", "security")}
    assert left == kept, sorted(left)
    assert f"vpc {gone.vpc}" in left
    assert f"security group {gone.foreign}" in left
    assert f"security group {gone.stale}" not in left
    assert len(left) == 4, sorted(left)
    assert set(aws_state.keys(built.name).values()) == {"PendingDeletion"}


@pytest.mark.last
def test_destroy_names_what_stays_and_why(built: Built, gone: Gone) -> None:
    assert gone.run.rc != 0, gone.run
    said = " ".join(gone.run.output.split())
    assert f"VPC {gone.vpc}: security group {gone.foreign} (theirs) is in it" in said, gone.run
    for key in aws_state.keys(built.name):
        assert key in gone.run.output, "a key pending deletion must be listed"


@pytest.mark.last
def test_destroy_again_takes_the_vpc_and_changes_nothing_else(built: Built, gone: Gone) -> None:
    boto3.client("ec2").delete_security_group(GroupId=gone.foreign)
    again = built.principal.run(
        "playbooks/destroy.yml", extra_vars={**VARS, "confirm_destroy": built.name}
    )
    assert again.rc == 0, again
    assert again.recap["changed"] == 1, again
    left = {k: v for k, v in aws_state.objects(built.name).items() if k not in built.before}
    assert left == {}
