"""Which name has which body: never another one below a live node."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpushare.eks.plugins.module_utils import _sharing_configs as configs
from ansible_collections.gpushare.eks.plugins.module_utils._pool_fields import LABEL_NAME

OLD = {"version": "v1", "sharing": {"timeSlicing": {"resources": [{"replicas": 10}]}}}
NEW = {"version": "v1", "sharing": {"mps": {"resources": [{"replicas": 4}]}}}
DEFAULT = {"version": "v1"}
WANTED = {"default": DEFAULT, "shared": NEW}
MOVED = configs.name_of("shared", NEW)


def test_a_name_says_its_body_and_is_a_label_value():
    assert MOVED == "shared.61f88944"
    assert configs.name_of("shared", dict(reversed(NEW.items()))) == MOVED
    assert configs.name_of("shared", OLD) != MOVED
    assert LABEL_NAME.match(configs.name_of("p" * 40, NEW))
    assert configs.pool_of(MOVED) == configs.pool_of("shared") == "shared"


def test_a_new_cluster_has_each_config_under_both_names():
    made = configs.plan(WANTED, {})
    assert made["configs"] == {"default": DEFAULT, "shared": NEW, MOVED: NEW}
    assert made["changed"] == []


def test_while_nodes_move_new_nodes_still_get_what_they_got():
    made = configs.plan(WANTED, {"default": DEFAULT, "shared": OLD}, hold=["shared"])
    assert made["configs"] == {"default": DEFAULT, "shared": OLD, MOVED: NEW}
    assert made["changed"] == ["shared"]


def test_what_no_node_names_goes_only_when_somebody_looked():
    before = configs.name_of("shared", OLD)
    deployed = {"default": DEFAULT, "shared": OLD, before: OLD, "gone": OLD, "gone.00000000": OLD}
    assert before in configs.plan(WANTED, deployed)["configs"]
    assert before in configs.plan(WANTED, deployed, used=[before])["configs"]
    kept = configs.plan(WANTED, deployed, used=["shared"])["configs"]
    assert kept == {"default": DEFAULT, "shared": NEW, MOVED: NEW}


bodies = st.dictionaries(st.sampled_from("abc"), st.integers(0, 2), max_size=2)
pools = st.dictionaries(st.sampled_from(["a", "b", "c-1"]), bodies, max_size=3)


@given(pools, st.lists(pools, max_size=4))
def test_no_live_node_ever_gets_another_body(first, later):
    """However often the pools change: a name that was moved to keeps its body."""
    deployed = configs.plan(first, {})["configs"]
    for wanted in later:
        held = configs.plan(wanted, deployed, hold=list(wanted))["configs"]
        for name, body in deployed.items():
            if configs.pool_of(name) in wanted:
                assert held[name] == body
        deployed = configs.plan(wanted, held)["configs"]
        for name, body in held.items():
            if name != configs.pool_of(name) and configs.pool_of(name) in wanted:
                assert deployed[name] == body
