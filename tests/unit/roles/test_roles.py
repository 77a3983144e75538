"""What the YAML of roles and playbooks promises, read as data: argument specs, tags, fallbacks."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
OURS = ("device_plugin", "sample_app", "fleet")


def load(path: str):
    return yaml.safe_load((ROOT / path).read_text())


@pytest.mark.parametrize("role", OURS)
def test_argument_specs_tell_the_constant_defaults(role):
    defaults = load(f"roles/{role}/defaults/main.yml")
    points = load(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]
    told = {}
    for point in points.values():
        for name, option in point["options"].items():
            assert name in defaults
            told.setdefault(name, option)
    assert set(told) == set(defaults)
    for name, value in defaults.items():
        if not (isinstance(value, str) and "{{" in value):
            assert told[name].get("default") == value, name
        else:
            assert "default" not in told[name], name


@pytest.mark.parametrize("role", ["device_plugin", "sample_app"])
def test_the_fallback_of_derived_keeps_what_the_inventory_says(role):
    text = load(f"roles/{role}/defaults/main.yml")[f"{role}_derived"]
    assert "resource=gpushare_resource | default" in text
    assert "prefix_delegation=gpushare_prefix_delegation | default" in text


def test_site_offers_no_tag_that_would_leave_out_what_a_later_step_needs():
    tasks = flat(load("playbooks/site.yml")[0]["tasks"])
    assert len(tasks) > 10
    assert not any("tags" in task for task in tasks)


@pytest.mark.parametrize("name", ["site", "destroy"])
def test_what_changes_a_cluster_does_it_alone_and_lets_others_after_a_failure(name):
    tasks = load(f"playbooks/{name}.yml")[0]["tasks"]
    (alone,) = [task for task in tasks if "block" in task]
    role = "ansible.builtin.import_role"
    assert alone["block"][0][role] == {"name": "gpushare.eks.fleet", "tasks_from": "lock"}
    assert [one[role]["tasks_from"] for one in alone["always"]] == ["unlock"]
    before = [task[role]["name"] for task in tasks if role in task]
    # What comes before the lock changes nothing.
    assert {"gpushare.eks.network", "gpushare.eks.kms", "gpushare.eks.eks"}.isdisjoint(before)


def flat(tasks):
    """The tasks, with those of blocks."""
    found = []
    for task in tasks:
        inner = [one for key in ("block", "always", "rescue") for one in task.get(key, [])]
        found += [task, *flat(inner)]
    return found


@pytest.mark.parametrize("role", ["device_plugin", "fleet"])
def test_zonal_groups_are_read_without_the_zones(role):
    folder = ROOT / f"roles/{role}/vars"
    files = [*folder.glob("main.yml"), *folder.glob("main/*.yml")]
    (text,) = [t for file in files if (t := load(file).get(f"__{role}_memory_groups"))]
    assert f"'-' ~ {role}_region ~ '*'" in text
    assert "node_groups" not in text
