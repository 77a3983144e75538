"""gpu_sharing_change: who is due, what is refused, where it stops; check mode and diff."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.testing import patch_module_args
from ansible_collections.amazon.aws.plugins.module_utils.modules import AnsibleAWSModule

from ansible_collections.gpushare.eks.plugins.module_utils import (
    _nodes,
    _sharing_plan,
    _sharing_roll,
    _ssm,
)
from ansible_collections.gpushare.eks.plugins.module_utils._errors import GpushareError
from ansible_collections.gpushare.eks.plugins.module_utils.nvml_probe import pack
from ansible_collections.gpushare.eks.plugins.modules import gpu_sharing_change

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "module_utils"))
from sharing_world import LABEL, MOVED, NEW, OLD, SHARED, World, derived, node, pod

CONFIGS = {"shared": OLD["device_plugin_configs"]["shared"], "default": {"version": "v1"}}
WHOLE = {"strategy": "exclusive"}


class Exit(Exception):
    """What the module returned: (failed, result)."""


@pytest.fixture
def call(monkeypatch):
    """call(world, **options) -> (failed, result), with the world's clock."""

    def run(world, *, check=False, **params):
        monkeypatch.setattr(_nodes, "connect", lambda *a, **k: world)
        monkeypatch.setattr(AnsibleAWSModule, "client", lambda self, name, **_: None)
        monkeypatch.setattr(_sharing_roll.Gpus, "users", lambda self, *a: world.users(*a))
        made = _sharing_roll.Roll

        def roll(*args):
            return made(*args, world.clock, world.sleep)

        monkeypatch.setattr(gpu_sharing_change, "Roll", roll)
        for name, failed in (("exit_json", False), ("fail_json", True)):
            end = lambda self, failed=failed, **r: (_ for _ in ()).throw(Exit(failed, r))  # noqa: E731
            monkeypatch.setattr(AnsibleModule, name, end)
        given = {"region": "us-east-1", "cluster_name": "demo", "derived": NEW, "configs": CONFIGS}
        arguments = {**given, "_ansible_check_mode": check, **params}
        with patch_module_args(arguments), pytest.raises(Exit) as caught:
            gpu_sharing_change.main()
        return caught.value.args

    return run


def actions(result):
    return {one["name"]: one["action"] for one in result["nodes"]}


def test_the_fleet_is_changed_one_node_at_a_time(call):
    world = World(node("n1"), node("n2"), pods=[pod("job", "n1")])
    world.ends["job"] = 10
    cordoned = []
    sleep = world.sleep

    def watched(seconds):
        cordoned.append(sum("unschedulable" in one["spec"] for one in world.all.values()))
        sleep(seconds)

    world.sleep = watched
    failed, result = call(world)
    assert not failed, result
    assert result["changed"] is True
    # The free one first.
    assert [one["name"] for one in result["nodes"]] == ["n2", "n1"]
    assert actions(result) == {"n1": "changed", "n2": "changed"}
    assert result["in_use"] == [MOVED]
    assert result["diff"][0]["before"] == {LABEL: "shared"}
    assert result["diff"][0]["after"] == {LABEL: MOVED}
    assert set(cordoned) == {1}
    failed, result = call(world)
    assert not failed
    assert result["changed"] is False
    assert actions(result) == {"n1": "none", "n2": "none"}
    assert result["diff"] == []


def test_a_node_that_joins_meanwhile_is_changed_too(call):
    world = World(node("n1"))
    world.on_patch = [lambda seen: seen.all.update(n9=node("n9"))]
    failed, result = call(world)
    assert not failed, result
    assert actions(result) == {"n1": "changed", "n9": "changed"}


def test_check_mode_tells_node_by_node_and_writes_nothing(call):
    world = World(node("n1"), node("n2"), pods=[pod("job", "n1")])
    failed, result = call(world, check=True)
    assert not failed, result
    assert result["changed"] is True
    assert actions(result) == {"n2": "would_change", "n1": "would_change"}
    (told,) = [one["reason"] for one in result["nodes"] if one["name"] == "n1"]
    assert told == "waits for the end of default/job"
    assert len(result["diff"]) == 2
    assert world.patches == 0


def test_it_stops_where_a_pod_never_ends_and_says_so(call):
    world = World(*(node(name) for name in ("n1", "n2", "n3")))
    world.live = [pod("server", "n2"), pod("a", "n3"), pod("b", "n3")]
    before = {name: world.standing(name) for name in world.all}
    failed, result = call(world, wait_timeout=30)
    assert failed
    assert actions(result) == {"n1": "changed", "n2": "rolled_back", "n3": "not_begun"}
    assert result["changed"] is True
    for told in ("node n2", "pod default/server", "30 s", "Changed before it: n1"):
        assert told in result["msg"]
    assert "not begun: n3" in result["msg"]
    assert "Remedy: let the pods end" in result["msg"]
    assert result["error"]["type"] == "PartialFailure"
    for name in ("n2", "n3"):
        assert world.standing(name) == before[name]
    # Once it is free the next run goes on.
    world.live = []
    failed, result = call(world)
    assert not failed, result
    assert actions(result) == {"n1": "none", "n2": "changed", "n3": "changed"}


def test_a_node_that_is_not_ready_comes_last_and_is_left_alone(call):
    world = World(node("n1"), node("n2"))
    world.all["n1"]["status"]["conditions"][0]["status"] = "False"
    failed, result = call(world)
    assert failed
    assert [one["name"] for one in result["nodes"]] == ["n2", "n1"]
    assert actions(result) == {"n2": "changed", "n1": "refused"}
    assert (
        "node n1 of pool shared keeps its sharing and was left alone: it is not Ready"
        in result["msg"]
    )


def test_a_lost_api_server_tells_what_is_done_and_what_is_not(call):
    world = World(node("n1"), node("n2"))
    gone = GpushareError("no answer", remedy="look at it")

    def lose(seen):
        raise gone

    world.on_patch = [lambda seen: None] * 4 + [lose]
    failed, result = call(world)
    assert failed
    assert actions(result) == {"n1": "changed", "n2": "not_begun"}
    failed, result = call(world)
    assert not failed, result
    assert actions(result) == {"n1": "none", "n2": "changed"}


def test_a_running_pod_above_the_new_share_is_refused_with_the_numbers(call):
    world = World(node("n1"), pods=[pod("big", "n1", "5Gi"), pod("small", "n1")])
    for check in (True, False):
        failed, result = call(world, check=check)
        assert failed
        for told in ("pod default/big on node n1 asks for 5120 MiB", "grants 3840 MiB"):
            assert told in result["msg"]
        assert "replicas: 3 would fit" in result["msg"]
        assert "default/small" not in result["msg"]
        assert world.patches == 0


def test_shared_and_whole_gpus_do_not_change_into_each_other(call):
    world = World(node("n1"))
    failed, result = call(world, derived=derived(WHOLE))
    assert failed
    assert "has shared GPUs" in result["msg"]
    assert "make a pool of another name" in result["msg"]
    world = World(node("n1"))
    configs = {"shared": {"version": "v1"}}
    failed, result = call(world, configs=configs)
    assert failed
    assert "has whole GPUs" in result["msg"]
    assert world.patches == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"pools": ["sharde"]}, "there is no GPU pool 'sharde'; GPU pools: shared"),
        ({"derived": {"pools": []}}, "derived has no device_plugin_configs"),
        ({"wait_timeout": 0}, "wait_timeout: 0 is no time limit"),
    ],
)
def test_bad_input_is_refused_before_the_first_call(call, monkeypatch, options, told):
    world = World(node("n1"))
    failed, result = call(world, **options)
    assert failed
    assert told in result["msg"]
    assert not world.counts


def test_a_type_that_the_pool_does_not_name_is_refused(call):
    world = World(node("n1"))
    world.all["n1"]["metadata"]["labels"]["node.kubernetes.io/instance-type"] = "g6.xlarge"
    failed, result = call(world)
    assert failed
    assert "g6.xlarge, only for: g4dn.xlarge" in result["msg"]
    assert world.patches == 0


def test_a_node_with_the_right_name_and_an_old_plugin_is_due():
    """It joined between the last look and the change of its name's body."""
    new = {"shared": NEW["device_plugin_configs"]["shared"]}
    plan = _sharing_plan.Plan(NEW, new, ("shared",))
    assert plan.is_due(node("n1"))
    fresh = node("n2")
    fresh["status"]["allocatable"][SHARED] = "4"
    assert not plan.is_due(fresh)
    young = node("n3")
    del young["status"]["allocatable"][SHARED]
    assert not plan.is_due(young)
    going = node("n4")
    going["metadata"]["deletionTimestamp"] = "2026-11-22T00:00:00Z"
    assert not plan.is_due(going)


# -- who computes on a GPU ----------------------------------------------------------------------


ID = "i-0123456789abcdef0"
JOB, SERVER = (f"5f0a1b2c-3d4e-4f5a-8b6c-7d8e9f0a1b2{n}" for n in "cd")
NAMES = {JOB: "default/job", SERVER: "nvidia-device-plugin/mps-control-daemon-x"}


def process(pid, pod_uid):
    return {"gpu": 0, "pid": pid, "used_mib": 100, "pod": pod_uid, "container": None}


def line(*rows, **more):
    found = {"processes": pack(rows) if rows else [], "count": len(rows), "used_mib": 100}
    head = {"schema": 1, "instance_id": ID, "boot_id": None, "time": None, "error": None}
    return json.dumps({**head, **found, "truncated": False, "gpu_errors": [], **more})


@pytest.fixture
def users(monkeypatch):
    def ask(output, outcome="Success"):
        fleet = _ssm.Fleet({ID: _ssm.Outcome(outcome, output, "told")})
        monkeypatch.setattr(_sharing_roll, "run_on_fleet", lambda *a, **k: fleet)
        return _sharing_roll.Gpus(None, "nvidia-device-plugin", 9).users(ID, NAMES)

    return ask


def test_processes_are_told_with_their_pods_but_nvidias_own_are_not_waited_for(users):
    assert users(line()) == []
    assert users(line(process(7, SERVER))) == []
    assert users(line(process(7, SERVER), process(8, JOB), process(9, None))) == [
        "process 8 of pod default/job",
        "process 9 of no pod of this cluster",
    ]
    assert users(line(process(7, SERVER), count=3, truncated=True)) == ["2 more processes"]


@pytest.mark.parametrize(
    ("output", "outcome", "told"),
    [
        ("", "TimedOut", "told"),
        ("nonsense", "Success", "cannot be read"),
        (line(gpu_errors=[{"gpu": 0, "error": "GPU_IS_LOST"}]), "Success", "GPU_IS_LOST"),
    ],
)
def test_a_node_that_cannot_tell_is_never_free(users, output, outcome, told):
    with pytest.raises(GpushareError, match=told) as caught:
        users(output, outcome)
    assert caught.value.remedy
