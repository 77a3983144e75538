"""The change of a node's sharing, step by step, killed anywhere: done, or as it was."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.gpushare.eks.plugins.module_utils import _sharing_change as change
from ansible_collections.gpushare.eks.plugins.module_utils._errors import Conflict, GpushareError
from ansible_collections.gpushare.eks.plugins.module_utils._names import (
    CHANGE_ANNOTATION,
    CONDITION,
    RESOURCE,
)

sys.path.insert(0, str(Path(__file__).resolve().parent))
from sharing_world import (
    LABEL,
    MOVED,
    NEW,
    OLD,
    SHARED,
    SLICED,
    Killed,
    World,
    derived,
    node,
    pod,
)


def offers(world, name="n1"):
    return world.all[name]["status"]["allocatable"][SHARED]


def test_a_free_node_is_changed():
    world = World(node("n1"))
    ended = world.roll().change("n1")
    assert (ended["action"], ended["before"], ended["after"]) == ("changed", "shared", MOVED)
    assert (offers(world), world.all["n1"]["metadata"]["labels"][LABEL]) == ("4", MOVED)
    assert world.all["n1"]["spec"] == node("n1")["spec"]
    assert world.all["n1"]["metadata"]["annotations"] == {"kept": "yes"}
    assert world.patches == 3
    assert world.roll().change("n1")["action"] == "none"


def test_pods_and_processes_are_waited_for_and_none_is_touched():
    world = World(node("n1"), pods=[pod("job", "n1"), pod("done", "n1", phase="Succeeded")])
    world.live.append(pod("lost", "n1", phase="Failed"))
    world.ends["job"] = 20
    world.users_of["i-n1"] = {"process 7 of pod default/job": 25.0}
    ended = world.roll().change("n1")
    assert ended["action"] == "changed"
    assert ended["waited_for"] == ["pod default/job", "process 7 of pod default/job"]
    assert 25 <= ended["seconds"] < 45
    assert [one["metadata"]["name"] for one in world.live] == ["done", "lost"]


def test_a_node_that_was_cordoned_stays_cordoned():
    world = World(node("n1", unschedulable=True))
    assert world.roll().change("n1")["action"] == "changed"
    assert world.all["n1"]["spec"]["unschedulable"] is True


def test_a_pod_that_never_ends_gives_the_node_back_as_it_was():
    world = World(node("n1"), pods=[pod("server", "n1")])
    before = world.standing("n1")
    ended = world.roll(wait_s=30).change("n1")
    assert ended["action"] == "rolled_back"
    assert ended["reason"] == "its GPU is in use by pod default/server after 30 s"
    assert "scale their owner down" in ended["remedy"]
    assert world.standing("n1") == before
    assert len(world.live) == 1
    assert world.patches == 2


def test_a_plugin_that_does_not_come_gives_the_node_back_as_it_was():
    world = World(node("n1"))
    before = world.standing("n1")
    broken = {"sharing": {"mps": {"resources": [{"replicas": 0}]}}}
    world.configs[MOVED] = broken
    ended = world.roll(ready_s=10).change("n1")
    assert ended["action"] == "rolled_back"
    assert ended["reason"].startswith("plugin and agent do not show its new sharing")
    assert "kubectl describe pod" in ended["remedy"]
    assert world.standing("n1") == before


def test_a_plugin_that_is_gone_for_good_is_told():
    world = World(node("n1"))
    world.plugin_s = None
    ended = world.roll(ready_s=10).change("n1")
    assert ended["action"] == "rolled_back"
    assert ended["reason"].endswith("its plugin does not yet offer again what it did before")
    found = world.all["n1"]
    assert found["metadata"]["labels"][LABEL] == "shared"
    assert CHANGE_ANNOTATION not in found["metadata"]["annotations"]
    assert "unschedulable" not in found["spec"]


def test_a_node_that_cannot_tell_is_left_alone():
    world = World(node("n1"))
    before = world.standing("n1")
    world.users_of["i-n1"] = GpushareError("NVML of instance i-n1 cannot be read", remedy="mend it")
    ended = world.roll().change("n1")
    assert (ended["action"], world.patches) == ("refused", 0)
    assert "cannot be read" in ended["reason"]
    assert world.standing("n1") == before
    world.all["n1"]["status"]["conditions"][0]["status"] = "False"
    assert "not Ready" in world.roll().change("n1")["reason"]


def test_a_node_that_stops_telling_is_given_back():
    world = World(node("n1"), pods=[pod("job", "n1")])
    world.ends["job"] = 5
    before = world.standing("n1")
    silent = GpushareError("NVML of instance i-n1 cannot be read", remedy="mend it")

    def fall_silent(seen):
        seen.users_of["i-n1"] = silent

    world.on_patch = [fall_silent]
    ended = world.roll(wait_s=20).change("n1")
    assert ended["action"] == "rolled_back"
    assert "cannot be read" in ended["reason"]
    assert world.standing("n1") == before


def test_the_agent_has_to_speak_where_it_has_spoken():
    world = World(node("n1"))
    said = {"type": CONDITION, "status": "False", "reason": "AgentImplausible"}
    world.all["n1"]["status"]["conditions"].append(said)
    before = world.standing("n1")
    assert world.roll(ready_s=5).change("n1")["action"] == "rolled_back"
    assert world.standing("n1") == before


def test_memory_that_is_not_there_any_more_is_no_success():
    world = World(node("n1"))

    def lose(seen):
        seen.all["n1"]["status"]["allocatable"].pop(RESOURCE)

    world.on_patch = [lambda seen: None, lose]
    assert world.roll(ready_s=5).change("n1")["action"] == "rolled_back"


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_node_that_goes_or_changes_meanwhile(at):
    world = World(node("n1"))
    world.on_patch = [lambda seen: None] * (at - 1) + [lambda seen: seen.all.pop("n1")]
    assert world.roll().change("n1")["action"] == "gone"

    def touched(seen):
        seen.all["n1"]["metadata"]["labels"]["team"] = "x"
        seen.all["n1"]["metadata"]["resourceVersion"] += "x"

    world = World(node("n1"))
    world.on_patch = [lambda seen: None] * (at - 1) + [touched]
    assert world.roll().change("n1")["action"] == "changed"
    assert world.all["n1"]["metadata"]["labels"]["team"] == "x"
    assert world.patches == 4


def test_a_new_node_of_the_same_name_is_changed_from_the_start():
    world = World(node("n1"))

    def replaced(seen):
        seen.all["n1"] = node("n1")
        seen.all["n1"]["metadata"]["uid"] = "another"
        seen.labelled.clear()

    world.on_patch = [lambda seen: None, replaced]
    assert world.roll().change("n1")["action"] == "changed"
    assert (offers(world), world.patches) == ("4", 5)


def test_others_who_never_stop_writing_end_the_run():
    world = World(node("n1"))

    def touched(seen):
        seen.all["n1"]["metadata"]["resourceVersion"] += "x"

    world.on_patch = [touched] * 99
    with pytest.raises(Conflict, match="others changed it 20 times"):
        world.roll().change("n1")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": 2}', '{"schema": 1, "step": "x"}'])
def test_a_foreign_annotation_is_refused_with_its_remedy(text):
    world = World(node("n1"))
    world.all["n1"]["metadata"]["annotations"][CHANGE_ANNOTATION] = text
    with pytest.raises(Conflict, match="not readable") as caught:
        world.roll().change("n1")
    assert f"{CHANGE_ANNOTATION}-" in str(caught.value)
    assert world.patches == 0


def test_the_annotation_tells_what_was_before():
    world = World(node("n1"))
    world.kill = (1, "after")
    with pytest.raises(Killed):
        world.roll().change("n1")
    told = json.loads(world.all["n1"]["metadata"]["annotations"][CHANGE_ANNOTATION])
    assert (told["schema"], told["step"], told["to"]) == (1, "drain", MOVED)
    offered = {SHARED: 10, RESOURCE: 14848}
    assert told["before"] == {"config": "shared", "unschedulable": False, "offered": offered}
    assert change.state_of(world.all["n1"]).text() == json.dumps(told, sort_keys=True)


def test_the_pool_is_wanted_again_as_it_was():
    """The inventory is put back while a node is cordoned: nothing to change, and no trace."""
    world = World(node("n1"))
    before = world.standing("n1")
    world.kill = (1, "after")
    with pytest.raises(Killed):
        world.roll().change("n1")
    world.all["n1"]["metadata"]["labels"][LABEL] = old = change_name(OLD)
    world.configs[old] = OLD["device_plugin_configs"]["shared"]
    assert world.roll(OLD).change("n1")["action"] == "none"
    before["metadata"]["labels"][LABEL] = old
    assert world.standing("n1") == before


def test_the_pool_is_wanted_in_a_third_way_after_a_kill():
    """The run died after the relabel: the next one goes straight on to what is wanted now."""
    world, third = World(node("n1")), derived({**SLICED, "replicas": 7})
    world.kill = (2, "after")
    with pytest.raises(Killed):
        world.roll().change("n1")
    world.configs[change_name(third)] = third["device_plugin_configs"]["shared"]
    assert world.roll(third).change("n1")["action"] == "changed"
    assert offers(world) == "7"
    assert "give back" not in " ".join(world.log)
    assert world.all["n1"]["spec"] == node("n1")["spec"]


def test_a_run_that_died_while_it_gave_back_is_put_right_and_then_done_anew():
    world = World(node("n1"))
    world.plugin_s, world.kill = None, (3, "after")
    with pytest.raises(Killed):
        world.roll(ready_s=5).change("n1")
    assert change.state_of(world.all["n1"]).step == "back"
    world.plugin_s = 1
    ended = world.roll().change("n1")
    assert (ended["action"], ended["reason"]) == ("changed", "")
    assert offers(world) == "4"


def change_name(pools):
    plan = World().roll(pools).plan
    return plan.target(node("any")).config


@settings(max_examples=300, deadline=None)
@given(
    kills=st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["before", "after"])), max_size=4),
    ends=st.none() | st.floats(0, 100),
    plugin_s=st.none() | st.floats(0, 20),
    cordoned=st.booleans(),
    wanted=st.lists(st.sampled_from(["old", "new"]), min_size=5, max_size=5),
)
def test_killed_anywhere_it_ends_done_or_as_it_was(kills, ends, plugin_s, cordoned, wanted):
    """Also when the inventory changes between the runs; and nobody's pod is ever lost."""
    spec = {"unschedulable": True} if cordoned else {}
    world = World(node("n1", **spec), pods=[pod("job", "n1")])
    world.plugin_s = plugin_s
    old = change_name(OLD)
    world.configs[old] = OLD["device_plugin_configs"]["shared"]
    if ends is not None:
        world.ends["job"] = ends
    for kill, which in zip([*kills, None], wanted, strict=False):
        world.kill = kill and (world.patches + kill[0], kill[1])
        try:
            ended = world.roll(NEW if which == "new" else OLD, wait_s=40).change("n1")
        except Killed:
            continue
        found = world.all["n1"]
        target = MOVED if which == "new" else old
        assert ended["action"] in ("changed", "rolled_back", "none")
        assert CHANGE_ANNOTATION not in found["metadata"]["annotations"]
        assert found["spec"].get("unschedulable", False) is cordoned
        if ended["action"] == "changed":
            assert found["metadata"]["labels"][LABEL] == target
            assert offers(world) == ("4" if which == "new" else "10")
            assert not world.live
    if world.live:  # as long as a pod is there the node keeps the sharing that it was given
        assert world.all["n1"]["metadata"]["labels"][LABEL] == "shared"
        assert offers(world) == "10"
