"""Two live nodes change their sharing: no pod is killed, what fails is undone, a kill is healed.

And on them: what pods use by NVML beside what they asked for.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import _sharing_configs
from ansible_collections.gpushare.eks.plugins.module_utils._names import CHANGE_ANNOTATION

from .support import cluster, doors, engine, sharing
from .support.engine import Fault
from .support.fleet import Fleet, wait
from .support.sharing import CLUSTER, CONFIGS, MPS, SLICED

ROOT = Path(__file__).resolve().parents[2]
# Of the three writes on a node (cordon, relabel, end) the run dies after each.
KILLS = (1, 2, 3)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with sharing.changing(tmp_path_factory.mktemp("sharing")) as made:
        yield made


@pytest.fixture
def names(fleet: Fleet) -> list[str]:
    return sorted(fleet.nodes.values())


def other(name: str) -> dict:
    """The pools with the sharing that the node does not have."""
    return MPS if CONFIGS[sharing.config(name)] != CONFIGS[target(MPS)] else SLICED


def target(wanted: dict) -> str:
    return _sharing_configs.name_of("shared", wanted["device_plugin_configs"]["shared"])


def changed(names: list[str], wanted: dict) -> None:
    """All nodes have it, whole, and nothing is left of the way there."""
    count = str(wanted["pools"][0]["predicted"]["gpu_count"])
    for name in names:
        assert (sharing.config(name), sharing.offers(name)) == (target(wanted), count)
        found = cluster.node(CLUSTER, name)
        assert "unschedulable" not in found["spec"]
        assert CHANGE_ANNOTATION not in found["metadata"].get("annotations", {})


def _end_process(instance_id: str, name: str) -> None:
    """The process ends once the run has been waiting for a while for it."""
    wait("its turn", lambda: CHANGE_ANNOTATION in sharing.standing(name)["annotations"])
    time.sleep(3)
    doors.node({"instance_id": instance_id, "figures": None})


def test_pods_that_end_by_themselves_are_waited_for_and_none_is_killed(
    fleet: Fleet, names: list[str]
) -> None:
    wanted = other(names[0])
    uids = {f"job-{n}": sharing.pod(f"job-{n}", name, 8) for n, name in enumerate(names)}
    busy = next(key for key, value in fleet.nodes.items() if value == names[1])
    process = {"processes": [{"pid": 4242, "used_mib": 3000}]}
    doors.node({"instance_id": busy, "figures": {"gpus": {"0": process}}})
    ending = threading.Thread(target=_end_process, args=(busy, names[1]))
    ending.start()
    try:
        run = engine.change(CLUSTER, derived=wanted, configs=CONFIGS)
    finally:
        ending.join()
    assert not run.failed, run.result
    rows = run.rows()
    assert {one["action"] for one in rows.values()} == {"changed"}
    assert rows[names[0]]["waited_for"] == ["pod default/job-0"]
    assert "process 4242 of no pod of this cluster" in rows[names[1]]["waited_for"]
    changed(names, wanted)
    for name, uid in uids.items():
        found = sharing.read_pod(name)
        assert found["metadata"]["uid"] == uid
        assert "deletionTimestamp" not in found["metadata"]
        assert found["status"]["phase"] == "Succeeded"
        sharing.delete_pod(name)
    again = engine.change(CLUSTER, derived=wanted, configs=CONFIGS)
    assert {one["action"] for one in again.rows().values()} == {"none"}
    assert again.result["changed"] is False
    assert "patch" not in again.result["counts"]


def test_a_pod_that_never_ends_rolls_its_node_back(names: list[str]) -> None:
    wanted, before = other(names[0]), sharing.standing(names[1])
    uid = sharing.pod("server", names[1], None)
    run = engine.change(CLUSTER, derived=wanted, configs=CONFIGS, wait_timeout=3)
    assert run.failed
    rows = run.rows()
    assert [rows[name]["action"] for name in names] == ["changed", "rolled_back"]
    assert f"node {names[1]} of pool shared" in run.error["message"]
    assert "pod default/server after 3 s" in run.error["message"]
    assert "let the pods end" in run.error["remedy"]
    # The taint of the cordon is the node controller's to take away.
    wait("the node as it was", lambda: sharing.standing(names[1]) == before, 10)
    assert sharing.read_pod("server")["metadata"]["uid"] == uid
    assert sharing.read_pod("server")["status"]["phase"] == "Running"
    sharing.delete_pod("server")
    healed = engine.change(CLUSTER, derived=wanted, configs=CONFIGS)
    assert not healed.failed, healed.result
    assert [healed.rows()[name]["action"] for name in names] == ["none", "changed"]
    changed(names, wanted)


def test_a_plugin_that_cannot_serve_the_new_sharing_rolls_back(names: list[str]) -> None:
    """The ConfigMap lacks it: NVIDIA's config-manager exits, and goes on once the label is back."""
    lost = sharing.derived("mps", 3)
    before = {name: sharing.standing(name) for name in names}
    run = engine.change(CLUSTER, derived=lost, configs=CONFIGS, ready_timeout=3)
    assert run.failed
    assert sorted(one["action"] for one in run.rows().values()) == ["not_begun", "rolled_back"]
    assert "plugin and agent do not show its new sharing" in run.error["message"]
    for name in names:
        wait("the node as it was", lambda name=name: sharing.standing(name) == before[name], 15)


def test_who_is_above_their_number_is_told_by_nvml(fleet: Fleet, names: list[str]) -> None:
    good, greedy = (sharing.pod(name, names[0], None) for name in ("good", "greedy"))
    busy = next(key for key, value in fleet.nodes.items() if value == names[0])
    rows = [
        {"pid": 11, "used_mib": 3072, "pod": good},
        {"pid": 12, "used_mib": 3000, "pod": greedy},
        {"pid": 13, "used_mib": 500, "pod": greedy.replace("-", "_")},
        {"pid": 14, "used_mib": 7},
    ]
    doors.node({"instance_id": busy, "figures": {"gpus": {"0": {"processes": rows}}}})
    try:
        read = engine.read(instance_ids=sorted(fleet.nodes), processes=True)
        told = engine.report(CLUSTER, derived=SLICED, readings=read.result["readings"]).result
    finally:
        doors.node({"instance_id": busy, "figures": None})
        sharing.delete_pod("good")
        sharing.delete_pod("greedy")
    node = next(one for one in told["report"]["nodes"] if one["name"] == names[0])
    found = {one["name"]: (one["gpu_memory_mib"], one["used_mib"]) for one in node["pods"]}
    assert found == {"good": (3072, 3072), "greedy": (3072, 3500)}
    assert [one["name"] for one in node["pods"] if one["above"]] == ["greedy"]
    (line,) = [line for line in told["table"].splitlines() if "default/greedy" in line]
    assert line.split() == [
        "default/greedy",
        "3072",
        "uses",
        "3500",
        "Running",
        "ABOVE",
        "by",
        "428",
    ]
    shown = [" ".join(line.split()) for line in told["smi"].splitlines()]
    assert "0 12 3000 default/greedy" in shown
    assert "0 14 7 (no pod)" in shown
    assert "no process" in shown


@pytest.mark.parametrize("point", KILLS)
def test_kill_9_of_the_run_is_taken_up_by_the_next(point: int, names: list[str]) -> None:
    wanted = other(names[0])
    path = [str(ROOT / "tests"), str(ROOT / "collections"), str(ROOT)]
    done = subprocess.run(
        [sys.executable, "-m", "integration.test_change_sharing", str(point), target(wanted)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, "the run ended by itself"
    found = [cluster.node(CLUSTER, name)["metadata"].get("annotations", {}) for name in names]
    begun = sum(CHANGE_ANNOTATION in one for one in found)
    # A write that collided with NVIDIA's labels counts, too, and has left the state there.
    assert begun == 1 if point < 3 else begun <= 1
    run = engine.change(CLUSTER, derived=wanted, configs=CONFIGS)
    assert not run.failed, run.result
    changed(names, wanted)


def _doomed(point: str, config: str) -> None:
    """A run of the module that dies after its so-maniest patch."""

    def die(_path: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    engine.wire(pytest.MonkeyPatch(), Fault("PATCH", at=int(point), after=die))
    wanted = MPS if config == target(MPS) else SLICED
    engine.change(CLUSTER, derived=wanted, configs=CONFIGS)


if __name__ == "__main__":
    _doomed(*sys.argv[1:])
