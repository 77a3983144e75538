"""Two clusters in one account and one VPC of somebody else, one after the other: minutes."""

from __future__ import annotations

import json
from dataclasses import dataclass

import boto3
import pytest

from .support import aws_state, cluster, playbook, vpc

FIRST, SECOND = "two-a", "two-b"


@dataclass(frozen=True)
class Seen:
    """What is a cluster's: objects of AWS with their tags, nodes and pods by UID."""

    aws: dict[str, dict[str, str]]
    nodes: dict[str, dict[str, str]]
    pods: dict[str, tuple[str, str, int]]


def _seen(name: str) -> Seen:
    aws = {
        key: tags
        for key, tags in aws_state.objects(name).items()
        if tags.get(aws_state.TAG) == name or name in key
    }
    pods = cluster.request(name, "GET", "/api/v1/pods").json()["items"]
    return Seen(
        aws | {f"key {key}": {"state": state} for key, state in aws_state.keys(name).items()},
        {one["metadata"]["uid"]: one["status"]["allocatable"] for one in cluster.nodes(name)},
        {
            f"{one['metadata']['namespace']}/{one['metadata']['name']}": (
                one["metadata"]["uid"],
                one["status"]["phase"],
                sum(box["restartCount"] for box in one["status"].get("containerStatuses") or []),
            )
            for one in pods
        },
    )


def _site(name: str, ground: str, **more: object) -> playbook.Run:
    variables = {"gpushare_cluster_name": name, "network_vpc_id": ground}
    return playbook.run("site.yml", "-e", json.dumps(more), extra_vars=variables)


def _destroy(name: str, ground: str) -> playbook.Run:
    variables = {"gpushare_cluster_name": name, "network_vpc_id": ground, "confirm_destroy": name}
    return playbook.run("playbooks/destroy.yml", extra_vars=variables)


@pytest.fixture(scope="module")
def ground() -> str:
    """The VPC that both get."""
    return vpc.make()


def test_the_second_is_untouched_by_the_firsts_change_and_end(ground: str) -> None:
    empty = set(aws_state.objects(FIRST)) | set(aws_state.objects(SECOND))
    for name in (FIRST, SECOND):
        built = _site(name, ground)
        assert built.rc == 0, built
    second = _seen(SECOND)
    assert len(second.nodes) >= 2
    assert len([one for one in second.pods if one.startswith("gpushare-sample/")]) == 3

    changed = _site(FIRST, ground, sample_app_replicas=4, gpushare_tags={"team": "one"})
    assert changed.rc == 0, changed
    assert changed.recap["changed"] > 0
    assert _seen(SECOND) == second

    gone = _destroy(FIRST, ground)
    assert gone.rc == 0, gone
    assert _seen(SECOND) == second
    again = _site(SECOND, ground)
    assert again.rc == 0, again
    assert again.recap["changed"] == 0, again

    last = _destroy(SECOND, ground)
    assert last.rc == 0, last
    left = set(aws_state.objects(FIRST)) | set(aws_state.objects(SECOND))
    assert left == empty, sorted(left ^ empty)
    found = boto3.client("ec2").describe_vpcs(VpcIds=[ground])["Vpcs"]
    assert [one["VpcId"] for one in found] == [ground]
