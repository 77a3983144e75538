"""decide(): the truth about one node, as a patch, as nothing, or as a refusal with its remedy."""

from __future__ import annotations

import ast
import copy
import json
import re
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.gpushare.eks.plugins.module_utils import _capacity
from ansible_collections.gpushare.eks.plugins.module_utils._capacity import decide
from ansible_collections.gpushare.eks.plugins.module_utils._names import ANNOTATION
from ansible_collections.gpushare.eks.plugins.module_utils._quantity import (
    escape_pointer,
    parse_quantity,
    to_mib,
)
from ansible_collections.gpushare.eks.plugins.module_utils._refusals import REMEDIES

ROOT = Path(__file__).resolve().parents[3]
RESOURCE = "gpushare.eks/gpu-memory"
MIB = 1048576


def apply(document, patch):
    """RFC 6902 for objects: test, add, remove; a failed test raises AssertionError."""
    result = copy.deepcopy(document)
    for operation in patch:
        parts = operation["path"].split("/")[1:]
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in parts]
        target = result
        for part in parents:
            target = target[part]
        if operation["op"] == "test":
            assert target.get(last) == operation["value"]
        elif operation["op"] == "remove":
            del target[last]
        else:
            assert operation["op"] == "add"
            target[last] = copy.deepcopy(operation["value"])
    return result


def node(capacity=None, allocatable=None, annotations=None, **changes):
    made = {
        "metadata": {"name": "n1", "uid": "uid-1", "resourceVersion": "7"},
        "spec": {"providerID": "aws:///us-east-1a/i-0123"},
        "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}},
    }
    for part, value in (("capacity", capacity), ("allocatable", allocatable)):
        if value is not None:
            made["status"][part][RESOURCE] = value
    made["metadata"]["annotations"] = {"other": "kept", **(annotations or {})}
    return {**made, **changes}


def gpu(total=15360, reserved=450, **changes):
    made = {"index": 0, "uuid": "GPU-1", "name": "Tesla T4", "cc": "7.5", "used_mib": 3}
    return {
        **made,
        "total_mib": total,
        "reserved_mib": reserved,
        "mig": False,
        "error": None,
        **changes,
    }


def reading(*gpus, **changes):
    made = {
        "schema": 1,
        "boot_id": "boot-1",
        "instance_id": "i-0123",
        "time": "2026-11-21T09:00:00Z",
        "driver": "580.95",
        "cuda": "13.0",
        "error": None,
    }
    return {**made, "gpus": list(gpus) or [gpu()], **changes}


def policy(**changes):
    made = {
        "resource": RESOURCE,
        "predicted_mib": 14848,
        "headroom_mib": 0,
        "multi_gpu": "refuse",
        "state": "present",
        "hardware_mib": 16384,
        "force": False,
    }
    return {**made, **changes}


def published(old=None, **changes):
    """A node after a first decision."""
    before = old or node()
    return apply(before, decide(before, reading(), policy(**changes)).patch)


def code(decision):
    assert decision.action == "refuse"
    assert decision.patch == []
    assert decision.problems[0]["remedy"]
    return decision.problems[0]["code"]


# ---------------------------------------------------------------- publishing


def test_a_new_node_gets_the_predicted_number():
    decision = decide(node(), reading(), policy())
    assert (decision.action, decision.reason) == ("patch", "is missing")
    assert (decision.before_mib, decision.after_mib, decision.surplus_mib) == (None, 14848, 62)
    assert decision.patch[:3] == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-1"},
        {"op": "add", "path": "/status/capacity/gpushare.eks~1gpu-memory", "value": "14848Mi"},
        {"op": "add", "path": "/status/allocatable/gpushare.eks~1gpu-memory", "value": "14848Mi"},
    ]
    assert decision.patch[3]["path"] == "/metadata/annotations/gpushare.eks~1published"
    assert json.loads(decision.patch[3]["value"]) == {
        "schema": 1,
        "instance_id": "i-0123",
        "node_uid": "uid-1",
        "boot_id": "boot-1",
        "driver": "580.95",
        "total_mib": 15360,
        "reserved_mib": 450,
        "published_mib": 14848,
        "time": "2026-11-21T09:00:00Z",
    }


def test_a_second_time_there_is_nothing_to_do():
    later = reading(time="2026-11-22T00:00:00Z")
    decision = decide(published(), later, policy())
    assert (decision.action, decision.patch) == ("none", [])
    assert decision.before_mib == decision.after_mib == 14848


def test_the_servers_canonical_form_is_the_same_number():
    seen = published()
    for part in ("capacity", "allocatable"):
        seen["status"][part][RESOURCE] = "14.5Gi"
    assert decide(seen, reading(), policy()).action == "none"
    for part in ("capacity", "allocatable"):
        seen["status"][part][RESOURCE] = str(14848 * MIB)
    assert decide(seen, reading(), policy()).action == "none"


def test_nvmls_number_is_taken_where_nothing_is_predicted():
    assert decide(node(), reading(), policy(predicted_mib=None)).after_mib == 14910
    decision = decide(node(), reading(), policy(predicted_mib=None, headroom_mib=500))
    assert decision.after_mib == 14410


@pytest.mark.parametrize(
    ("before", "reason"),
    [("0", "is zero"), ("15079Mi", "differs"), ("1", "differs"), ("rubbish", "is missing")],
)
def test_zero_wrong_and_unreadable_numbers_are_repaired(before, reason):
    decision = decide(node(before, before), reading(), policy())
    assert (decision.action, decision.reason) == ("patch", reason)
    assert decision.after_mib == 14848


def test_only_what_is_needed_is_written():
    seen = published()
    del seen["status"]["allocatable"][RESOURCE]
    decision = decide(seen, reading(), policy())
    assert decision.reason == "allocatable differs"
    assert [operation["path"] for operation in decision.patch] == [
        "/metadata/uid",
        "/status/allocatable/gpushare.eks~1gpu-memory",
    ]


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("node_uid", "uid-0", "another node"),
        ("instance_id", "i-0", "another instance"),
        ("boot_id", "boot-0", "rebooted"),
        ("published_mib", 15079, "another number"),
        ("schema", 2, "another schema"),
    ],
)
def test_a_stale_claim_is_renewed(key, value, told):
    seen = published()
    claim = json.loads(seen["metadata"]["annotations"][ANNOTATION])
    seen["metadata"]["annotations"][ANNOTATION] = json.dumps({**claim, key: value})
    decision = decide(seen, reading(), policy())
    assert decision.action == "patch"
    assert told in decision.reason
    assert [operation["op"] for operation in decision.patch] == ["test", "add"]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3"])
def test_an_unreadable_annotation_is_replaced(text):
    seen = published()
    seen["metadata"]["annotations"][ANNOTATION] = text
    decision = decide(seen, reading(), policy())
    assert decision.action == "patch"
    assert decide(apply(seen, decision.patch), reading(), policy()).action == "none"


def test_the_same_name_with_another_uid():
    replaced = published()
    replaced["metadata"]["uid"] = "uid-2"
    decision = decide(replaced, reading(), policy())
    assert "another node" in decision.reason
    with pytest.raises(AssertionError):
        apply(published(), decision.patch)


def test_parents_that_are_missing_are_made_under_a_tested_version():
    bare = {"metadata": {"name": "n1", "uid": "uid-1", "resourceVersion": "7"}, "status": {}}
    bare["spec"] = {"providerID": "aws:///us-east-1a/i-0123"}
    decision = decide(bare, reading(), policy())
    version = {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    assert version in decision.patch
    after = apply(bare, decision.patch)
    assert after["status"]["capacity"] == {RESOURCE: "14848Mi"}
    assert decide(after, reading(), policy()).action == "none"


def test_other_annotations_and_resources_stay():
    after = published()
    assert after["metadata"]["annotations"]["other"] == "kept"
    assert after["status"]["capacity"]["cpu"] == "4"


def test_an_entry_of_gpu_capacity_info_does_as_well():
    entry = {"instance_id": "i-0123", "outcome": "Success", "error": None, "reading": reading()}
    assert decide(node(), entry, policy()).after_mib == 14848


def test_sum_counts_headroom_for_each_gpu():
    four = reading(*[gpu(uuid=str(number)) for number in range(4)])
    wanted = policy(multi_gpu="sum", predicted_mib=4 * 14348, headroom_mib=500)
    decision = decide(node(), four, wanted)
    assert (decision.after_mib, decision.surplus_mib) == (4 * 14348, 4 * 62)


# ---------------------------------------------------------------- withdrawing


def test_absent_removes_all_that_is_ours():
    decision = decide(published(), None, policy(state="absent"))
    assert (decision.action, decision.before_mib, decision.after_mib) == ("patch", 14848, None)
    after = apply(published(), decision.patch)
    assert after == node()
    assert decide(after, None, policy(state="absent")).action == "none"


def test_absent_removes_only_what_stands():
    seen = node(allocatable="1Gi")
    decision = decide(seen, None, policy(state="absent"))
    assert [operation["op"] for operation in decision.patch] == ["test", "remove"]


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("given_reading", "changes", "wanted"),
    [
        (None, {}, "NO_READING"),
        ({"outcome": "TimedOut", "error": {"message": "no answer"}}, {}, "NO_READING"),
        ({"outcome": "Success", "error": None, "reading": None}, {}, "NO_READING"),
        (reading(schema=2), {}, "SCHEMA"),
        (reading(error={"type": "DRIVER_NOT_LOADED", "code": 9}), {}, "PROBE_ERROR"),
        (reading(instance_id="i-9"), {}, "IDENTITY"),
        (reading(instance_id=None), {}, "IDENTITY"),
        (reading(gpus=[]), {}, "NO_GPU"),
        (reading(gpus="x"), {}, "NO_GPU"),
        (reading(gpu(error="GPU_IS_LOST")), {}, "GPU_ERROR"),
        (reading(gpu(), gpu(error="GPU_IS_LOST")), {"multi_gpu": "sum"}, "GPU_ERROR"),
        (reading(gpu(mig=True)), {}, "MIG"),
        (reading(gpu(), gpu()), {}, "MULTI_GPU"),
        (reading(gpu(total=10**18)), {}, "IMPLAUSIBLE"),
        (reading(gpu(total=10**18)), {"hardware_mib": None, "predicted_mib": None}, None),
        (reading(gpu(total=16712, reserved=400)), {}, "IMPLAUSIBLE"),
        (reading(gpu(total=16500, reserved=100)), {}, "IMPLAUSIBLE"),
        (reading(gpu(total="15360")), {}, "IMPLAUSIBLE"),
        (reading(gpu(total=None)), {}, "IMPLAUSIBLE"),
        (reading(gpu(total=True)), {}, "IMPLAUSIBLE"),
        (reading(gpu(reserved=-1)), {}, "IMPLAUSIBLE"),
        (reading(gpu(reserved=15360)), {}, "IMPLAUSIBLE"),
        (reading(gpus=["x"]), {}, "IMPLAUSIBLE"),
        (reading(), {"predicted_mib": 15000}, "BELOW_PREDICTED"),
        (reading(), {"headroom_mib": 100}, "BELOW_PREDICTED"),
        (reading(), {"headroom_mib": 14910, "predicted_mib": None}, "NOTHING_LEFT"),
        (reading(), {"predicted_mib": 0}, "NOTHING_LEFT"),
    ],
)
def test_refused(given_reading, changes, wanted):
    decision = decide(node("1Gi", "1Gi"), given_reading, policy(**changes))
    if wanted is None:
        assert decision.action == "patch"
        return
    assert code(decision) == wanted
    assert decision.before_mib == 1024
    assert decision.after_mib == 1024, "what stands is left standing: never 0 for unknown"


@pytest.mark.parametrize(
    ("total", "reserved", "hardware", "predicted"),
    [
        (15360, 450, 16384, 14848),
        (23028, 450, 22888, 22016),
        (23034, 500, 22888, 22016),
        (46068, 600, 45776, 44544),
        (81559, 560, 81920, 78848),
    ],
)
def test_honest_gpus_pass(total, reserved, hardware, predicted):
    """T4, A10G, L4, L40S, H100: NVML's total may lie above EC2's size."""
    wanted = policy(hardware_mib=hardware, predicted_mib=predicted)
    decision = decide(node(), reading(gpu(total, reserved)), wanted)
    assert decision.after_mib == predicted


def test_below_predicted_tells_both_numbers():
    decision = decide(node(), reading(), policy(predicted_mib=15079))
    assert "14910" in decision.reason
    assert "15079" in decision.reason


def test_a_node_without_identity():
    assert code(decide(node(spec={}), reading(), policy())) == "IDENTITY"
    assert code(decide({"metadata": {"name": "n"}}, reading(), policy())) == "NODE"


def test_an_agents_node_is_audited_and_written_only_with_force():
    assert code(decide(node(), reading(), policy(agent_alive=True))) == "AGENT"
    assert decide(node(), reading(), policy(agent_alive=True, force=True)).action == "patch"
    assert decide(published(), reading(), policy(agent_alive=True)).action == "none"


# ---------------------------------------------------------------- quantities


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        ("1Ki", 1024),
        ("15Gi", 15 * 2**30),
        ("1.5Gi", 3 * 2**29),
        ("1k", 1000),
        ("1G", 10**9),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("12e-1", Fraction(6, 5)),
        ("100m", Fraction(1, 10)),
        ("1n", Fraction(1, 10**9)),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("+5", 5),
        ("-5", -5),
        (7, 7),
    ],
)
def test_parse_quantity(text, number):
    assert parse_quantity(text) == number


@pytest.mark.parametrize(
    "text", ["", ".", "1x", "1KI", "1e", "e3", "1 Gi", "1Gi ", None, True, 1.5]
)
def test_not_a_quantity(text):
    with pytest.raises(ValueError, match="quantity"):
        parse_quantity(text)


def test_to_mib_rounds_down():
    assert to_mib("1.5Mi") == 1
    assert to_mib(None) is None


def test_escape_pointer():
    assert escape_pointer("a~b/c") == "a~0b~1c"


# ---------------------------------------------------------------- what must hold for any node


QUANTITIES = st.none() | st.sampled_from(["0", "1", "14848Mi", "14.5Gi", "15079Mi", "x", "-1Gi"])
CLAIMS = st.none() | st.sampled_from(
    ["", "{}", '{"schema":1}', '{"schema":1,"node_uid":"uid-1","published_mib":14848}']
)
GPUS = st.builds(
    gpu,
    total=st.integers(0, 30_000) | st.just(15360),
    reserved=st.integers(0, 1000),
    mig=st.sampled_from([False, False, False, True]),
    error=st.sampled_from([None, None, None, "GPU_IS_LOST"]),
)
POLICIES = st.builds(
    policy,
    predicted_mib=st.none() | st.integers(-5, 30_000) | st.just(14848),
    headroom_mib=st.integers(0, 2000),
    multi_gpu=st.sampled_from(["refuse", "sum"]),
    hardware_mib=st.none() | st.just(16384),
    state=st.sampled_from(["present", "present", "absent"]),
)


@settings(max_examples=400, deadline=None)
@given(QUANTITIES, QUANTITIES, CLAIMS, st.lists(GPUS, max_size=3), POLICIES)
def test_decide_is_idempotent_bounded_and_never_zero(capacity, allocatable, claim, gpus, wanted):
    annotations = {} if claim is None else {ANNOTATION: claim}
    seen = node(capacity, allocatable, annotations)
    original = copy.deepcopy(seen)
    probe = reading(gpus=gpus)
    decision = decide(seen, probe, wanted)
    assert seen == original
    if decision.action == "refuse":
        assert decision.patch == []
        assert decision.problems[0]["remedy"] in REMEDIES.values()
        return
    after = apply(seen, decision.patch)
    assert decide(after, probe, wanted).action == "none"
    assert after["status"]["capacity"]["cpu"] == "4"
    assert after["metadata"]["annotations"]["other"] == "kept"
    value, other = (
        to_mib(after["status"][part].get(RESOURCE)) for part in ("capacity", "allocatable")
    )
    assert value == other
    if wanted["state"] == "absent":
        assert value is None
        return
    headroom = wanted["headroom_mib"] * len(gpus)
    usable = sum(item["total_mib"] - item["reserved_mib"] for item in gpus) - headroom
    assert 0 < decision.after_mib <= usable
    assert value == decision.after_mib
    if wanted["predicted_mib"] is not None:
        assert decision.after_mib <= wanted["predicted_mib"]
    if len(gpus) > 1:
        assert wanted["multi_gpu"] == "sum"


HOSTILE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "schema",
                    "gpus",
                    "error",
                    "instance_id",
                    "total_mib",
                    "outcome",
                    "reading",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=15,
)


@settings(max_examples=400, deadline=None)
@given(HOSTILE)
def test_a_hostile_reading_is_refused_and_never_a_traceback(hostile):
    assert decide(node(), hostile, policy()).action == "refuse"
    fields = hostile if isinstance(hostile, dict) else {"gpus": [hostile]}
    fields = {key: value for key, value in fields.items() if key not in ("outcome", "reading")}
    assert decide(node(), reading(**fields), policy()).action in ("refuse", "patch")


def imports(path):
    """{module}: what a file imports, in the grammar of Python 3.9."""
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
    names = set()
    for item in ast.walk(tree):
        if isinstance(item, ast.Import):
            names |= {alias.name for alias in item.names}
        elif isinstance(item, ast.ImportFrom):
            names |= {item.module, *(f"{item.module}.{alias.name}" for alias in item.names)}
    return names


def needs(*modules):
    """The files of ours that these import, themselves included; all else is standard library."""
    folder = Path(_capacity.__file__).parent
    todo, seen = list(modules), set()
    while todo:
        name = todo.pop()
        seen.add(name)
        for imported in imports(folder / f"{name}.py"):
            if not imported.startswith("ansible_collections."):
                assert imported.partition(".")[0] in sys.stdlib_module_names
                continue
            parts = imported.split(".")
            found = parts[5] if len(parts) > 5 else None
            if found and (folder / f"{found}.py").exists() and found not in seen:
                todo.append(found)
    return seen


def test_the_agent_gets_every_file_that_it_imports_and_no_other():
    text = (ROOT / "roles/device_plugin/vars/main/agent.yml").read_text(encoding="utf-8")
    shipped = set(re.findall(r"'(\w+)\.py'", text))
    shipped |= {path.stem for path in Path(_capacity.__file__).parent.glob("_agent*.py")}
    assert shipped == needs("_agent_main", "_nvml_watch")
