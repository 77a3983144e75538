"""NVIDIA's chart as the role device_plugin installs it, rendered by helm, without a cluster."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar

from lab import build

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "roles" / "device_plugin"
NAMESPACE = "nvidia"
# The role's variables use our filters, which Ansible finds by itself alone.
init_plugin_loader([str(ROOT / "collections")])


@functools.cache
def _role() -> dict[str, Any]:
    """The role's own variables; what the inventory would give is missing."""
    loader, found = DataLoader(), {}
    for path in (ROLE / "defaults/main.yml", ROLE / "vars/main/chart.yml"):
        found |= loader.load_from_file(str(path), trusted_as_template=True)
    return found


def values(derived: dict[str, Any], **variables: Any) -> dict[str, Any]:
    """The chart's values that the role makes of derived pools."""
    given = {
        "device_plugin_derived": derived,
        "device_plugin_image_registry": "",
        "device_plugin_image_digests": {},
        **variables,
    }
    templar = Templar(DataLoader(), variables={**_role(), **given})
    return templar.template(_role()["__device_plugin_all_values"])


def render(chart_values: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Every object of the chart, its CRDs first."""
    file = folder / "values.json"
    file.write_text(json.dumps(chart_values))
    done = subprocess.run(
        ["helm", "template", "nvidia-device-plugin", str(build.chart()), "--include-crds",
         "--namespace", NAMESPACE, "--values", str(file)],
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [item for item in yaml.safe_load_all(done.stdout) if item]


def container(objects: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The container of this name, in whichever DaemonSet it is."""
    (found,) = [
        each
        for item in objects
        if item["kind"] == "DaemonSet"
        for each in item["spec"]["template"]["spec"]["containers"]
        if each["name"] == name
    ]
    return found


def configs(objects: list[dict[str, Any]]) -> dict[str, str]:
    """What the chart's ConfigMap holds: the text of each configuration."""
    (found,) = [
        item
        for item in objects
        if item["kind"] == "ConfigMap" and item["metadata"]["name"].endswith("-configs")
    ]
    return found["data"]


def environment(objects: list[dict[str, Any]], name: str) -> dict[str, str]:
    """The environment of a container, as far as it is written down."""
    return {item["name"]: item["value"] for item in container(objects, name)["env"]
            if "value" in item}  # fmt: skip
