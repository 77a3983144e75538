"""The agent on a living cluster: joins, lies, lost GPUs, replacements, reboots, kills, restarts.

Its process is real and so is its token; what the tests wait for has an end, no test times it
(tests/benchmark does).
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Callable, Iterator

import boto3
import pytest

from ansible_collections.gpushare.eks.plugins.module_utils._quantity import to_mib

from .conftest import VARS, Built
from .support import cluster, doors, playbook

RESOURCE = "gpushare.eks/gpu-memory"
SHARED = "gpushare.eks/pool=shared"
PUBLISHED_MIB = 14848
LIMIT_S = 15.0


def until(what: str, ready: Callable[[], object], limit_s: float = LIMIT_S) -> object:
    """What `ready` returns as soon as it is true."""
    end = time.monotonic() + limit_s
    while True:
        with contextlib.suppress(ConnectionError, OSError):
            if found := ready():
                return found
        assert time.monotonic() < end, f"{what}: not within {limit_s:g} s"
        time.sleep(0.1)


def condition(node: dict) -> dict:
    found = [one for one in node["status"]["conditions"] if one["type"] == "GPUMemoryPublished"]
    return found[0] if found else {"status": "Unknown", "reason": ""}


class Gpu:
    """The GPU node of the cluster, by the name that it has now."""

    def __init__(self, cluster_name: str) -> None:
        self.cluster = cluster_name
        (node,) = cluster.nodes(cluster_name, SHARED)
        self.name = node["metadata"]["name"]
        self.instance_id = node["spec"]["providerID"].rpartition("/")[2]

    def node(self) -> dict:
        return cluster.node(self.cluster, self.name)

    def stands(self) -> bool:
        """Whether both numbers, the condition and the annotation say what can be used."""
        node = self.node()
        status = node["status"]
        numbers = {to_mib(status[part].get(RESOURCE)) for part in ("capacity", "allocatable")}
        claim = json.loads(
            node["metadata"].get("annotations", {}).get("gpushare.eks/published", "{}")
        )
        return (
            numbers == {PUBLISHED_MIB}
            and condition(node)["status"] == "True"
            and claim.get("node_uid") == node["metadata"]["uid"]
        )

    def withdrawn(self) -> bool:
        node = self.node()
        places = [node["status"][part] for part in ("capacity", "allocatable")]
        return condition(node)["status"] == "False" and not any(RESOURCE in p for p in places)

    def write(self, operations: list[dict]) -> None:
        kind = {"Content-Type": "application/json-patch+json"}
        path = f"/api/v1/nodes/{self.name}/status"
        answer = cluster.request(self.cluster, "PATCH", path, headers=kind, json=operations)
        answer.raise_for_status()

    def agent(self) -> dict:
        """The row of its agent's process; it has one again within seconds."""

        def running() -> dict | None:
            rows = [r for r in doors.pods() if r["node"] == self.name and r["pid"]]
            return rows[0] if rows else None

        return until("an agent's process", running)


@pytest.fixture
def gpu(built: Built) -> Iterator[Gpu]:
    """A node with a true number; it is true again after the test."""
    found = Gpu(built.name)
    until("the number before the test", found.stands)
    yield found
    doors.node({"instance_id": found.instance_id, "nvml": None, "figures": None})
    until("the number after the test", found.stands, 30)


def patch(part: str, value: str | None) -> dict:
    path = f"/status/{part}/{RESOURCE.replace('/', '~1')}"
    return {"op": "remove", "path": path} if value is None else {
        "op": "add", "path": path, "value": value,
    }  # fmt: skip


def test_a_node_that_joins_later_gets_its_number_with_no_playbook(built: Built) -> None:
    scaling = boto3.client("autoscaling")
    groups = scaling.describe_auto_scaling_groups()["AutoScalingGroups"]
    wanted = {"Key": "eks:cluster-name", "Value": built.name}
    (group,) = [
        one
        for one in groups
        if any({k: t[k] for k in wanted} == wanted for t in one["Tags"])
        and any(
            t["Key"] == "eks:nodegroup-name" and t["Value"].startswith("shared")
            for t in one["Tags"]
        )
        and one["DesiredCapacity"] == 1
    ][:1]
    name = group["AutoScalingGroupName"]
    here = {one["metadata"]["name"] for one in cluster.nodes(built.name, SHARED)}
    scaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=2)

    def both() -> list[dict]:
        nodes = cluster.nodes(built.name, SHARED)
        good = [n for n in nodes if RESOURCE in n["status"]["allocatable"]]
        free = [n for n in good if all("startup" not in t["key"] for t in n["spec"]["taints"])]
        return nodes if len(nodes) == len(free) == 2 else []

    nodes = until("the second node's number", both, 60)
    assert [condition(node)["reason"] for node in nodes] == ["AgentPublished"] * 2
    # The newcomer goes, not the node that the other tests' report is about.
    (new,) = [node for node in nodes if node["metadata"]["name"] not in here]
    scaling.terminate_instance_in_auto_scaling_group(
        InstanceId=new["spec"]["providerID"].rpartition("/")[2],
        ShouldDecrementDesiredCapacity=True,
    )
    until("one node", lambda: len(cluster.nodes(built.name, SHARED)) == 1, 60)


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param([("capacity", "99Gi"), ("allocatable", "99Gi")], id="typed in by hand"),
        pytest.param([("capacity", "0"), ("allocatable", "0")], id="zeroed"),
        pytest.param([("allocatable", "20Gi")], id="allocatable stale"),
        pytest.param([("capacity", None), ("allocatable", None)], id="missing"),
    ],
)
def test_a_lie_on_the_status_is_mended(gpu: Gpu, lie: list[tuple[str, str | None]]) -> None:
    gpu.write([patch(part, value) for part, value in lie])
    until("the truth", gpu.stands)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        pytest.param({"function": "*", "device": 0, "code": 15}, "AgentGpuError", id="GPU lost"),
        pytest.param({"function": "*", "code": 9}, "AgentProbeError", id="driver not loaded"),
        pytest.param({"function": "*", "code": 999}, "AgentProbeError", id="unknown error"),
        pytest.param(
            {"function": "nvmlDeviceGetMemoryInfo_v2", "hang": 30}, "AgentProbeError", id="hang"
        ),
    ],
)
def test_a_gpu_that_fails_loses_its_number_and_gets_it_back(
    gpu: Gpu, fault: dict, reason: str
) -> None:
    doors.node({"instance_id": gpu.instance_id, "nvml": fault})
    until("the withdrawal", gpu.withdrawn, 30)
    until(reason, lambda: condition(gpu.node())["reason"] == reason, 30)
    doors.node({"instance_id": gpu.instance_id, "nvml": None})
    until("the number again", gpu.stands, 45)


def test_a_gpu_that_shrank_below_what_was_planned_is_withdrawn_with_both_numbers(gpu: Gpu) -> None:
    doors.node({"instance_id": gpu.instance_id, "figures": {"gpus": {"0": {"total_mib": 12000}}}})
    until("the withdrawal", gpu.withdrawn, 30)
    found = condition(gpu.node())
    assert found["reason"] == "AgentBelowPredicted"
    assert "11550 MiB" in found["message"]
    assert f"{PUBLISHED_MIB} MiB" in found["message"]


@pytest.mark.parametrize(
    ("figures", "reason"),
    [
        pytest.param({"missing": True}, "AgentNoGpu", id="fell off the bus"),
        pytest.param({"mig": True, "slices": [{"total_mib": 4864}]}, "AgentMig", id="MIG on"),
        pytest.param({"total_mib": 10**6}, "AgentImplausible", id="more than the hardware"),
    ],
)
def test_what_nvml_cannot_mean_is_withdrawn(gpu: Gpu, figures: dict, reason: str) -> None:
    doors.node({"instance_id": gpu.instance_id, "figures": {"gpus": {"0": figures}}})
    until(reason, lambda: gpu.withdrawn() and condition(gpu.node())["reason"] == reason, 30)


def test_a_node_replaced_under_its_name_keeps_no_stale_number(gpu: Gpu) -> None:
    before = gpu.node()["metadata"]["uid"]
    gpu.write([patch("capacity", "15Gi"), patch("allocatable", "15Gi")])
    doors.node({"instance_id": gpu.instance_id, "replace_node": True, "stale": True})
    until(
        "the new node's own number",
        lambda: gpu.node()["metadata"]["uid"] != before and gpu.stands(),
        60,
    )


@pytest.mark.parametrize("zero", [False, True], ids=["kept", "zeroed by the kubelet"])
def test_a_reboot_ends_with_a_claim_of_the_new_boot(gpu: Gpu, zero: bool) -> None:
    before = gpu.node()["status"]["nodeInfo"]["bootID"]
    doors.node({"instance_id": gpu.instance_id, "reboot": True, "zero": zero})

    def anew() -> bool:
        node = gpu.node()
        claim = json.loads(node["metadata"]["annotations"].get("gpushare.eks/published", "{}"))
        boot = node["status"]["nodeInfo"]["bootID"]
        return boot != before and claim.get("boot_id") == boot and gpu.stands()

    until("a claim of the new boot", anew, 60)


def test_killed_at_any_point_it_starts_again_and_mends_what_changed_meanwhile(gpu: Gpu) -> None:
    chance = random.Random(7)
    for _dummy in range(4):
        pod = gpu.agent()
        gpu.write([patch("capacity", "99Gi"), patch("allocatable", "99Gi")])
        time.sleep(chance.uniform(0.0, 0.05))
        doors.pod({"pod": pod["name"], "signal": "KILL"})
        until("the truth", gpu.stands, 30)


def test_the_api_server_killed_and_back(gpu: Gpu) -> None:
    doors.cluster({"cluster": gpu.cluster, "kill": "kube-apiserver"})
    until("the API server", lambda: cluster.request(gpu.cluster, "GET", "/readyz").ok, 60)
    until("an admin's write", lambda: gpu.write([patch("capacity", "99Gi")]) is None, 30)
    until("the truth", gpu.stands, 30)


def test_a_token_that_expired_is_read_anew(gpu: Gpu) -> None:
    doors.pod({"pod": gpu.agent()["name"], "renew_token": True})
    gpu.write([patch("capacity", "99Gi"), patch("allocatable", "99Gi")])
    until("the truth", gpu.stands)


def test_agent_and_module_at_once_do_not_fight(gpu: Gpu) -> None:
    gpu.write([patch("capacity", "99Gi"), patch("allocatable", "99Gi")])
    audit = playbook.run("playbooks/publish_gpu_memory.yml", extra_vars=VARS)
    assert audit.rc == 0, audit
    assert audit.recap["changed"] == 0, audit
    first = gpu.node()["metadata"]["resourceVersion"]
    time.sleep(3)
    assert gpu.node()["metadata"]["resourceVersion"] == first, "somebody still writes"


def test_describe_shows_what_happened(gpu: Gpu) -> None:
    doors.node({"instance_id": gpu.instance_id, "nvml": {"function": "*", "device": 0, "code": 15}})
    until("the withdrawal", gpu.withdrawn, 30)

    def told() -> list[dict]:
        listed = cluster.request(gpu.cluster, "GET", "/api/v1/namespaces/default/events").json()
        mine = [e for e in listed["items"] if e["involvedObject"]["name"] == gpu.name]
        return [e for e in mine if e["reason"] == "AgentGpuError" and e["type"] == "Warning"]

    events = until("the Event", told)
    assert "GPU_IS_LOST" in events[0]["message"]
