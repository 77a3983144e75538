"""NVIDIA's rules, and their effect on Nodes when the real chart is deployed."""

from __future__ import annotations

import pytest
import yaml
from lab_helpers import eventually

from lab import build, nvidia
from lab.deviceplugin import DevicePluginEffect

MERGE = "application/merge-patch+json"
T4 = {"name": "Tesla T4", "memory_mib": 15360, "capability": "7.5"}
SOURCE = nvidia.ConfigSource("ns", "configs", nvidia.CONFIG_LABEL, "", ("named", "single"), "init")


def shared(strategy: str, replicas: object, **more: object) -> dict:
    resources = [{"name": "nvidia.com/gpu", "replicas": replicas}]
    return {"version": "v1", "sharing": {strategy: {"resources": resources, **more}}}


@pytest.mark.parametrize(
    ("label", "names", "default", "fallbacks", "chosen"),
    [
        ("a", ["a", "default"], "", ("named",), "a"),
        ("", ["a", "default"], "", ("named", "single"), "default"),
        ("", ["a"], "", ("named", "single"), "a"),
        ("", ["a", "b"], "b", (), "b"),
        ("", ["a", "b"], "", ("empty",), ""),
    ],
)
def test_the_config_manager_chooses(label, names, default, fallbacks, chosen):
    source = nvidia.ConfigSource("ns", "m", nvidia.CONFIG_LABEL, default, fallbacks, "init")
    assert nvidia.choose(source, label, names) == chosen


@pytest.mark.parametrize(
    ("label", "names", "message"),
    [
        ("b", ["a"], "specified config b does not exist"),
        ("", ["a", "b"], "no config was set, no default was provided, and all fallbacks failed"),
        ("a", [], "no configuration files available"),
    ],
)
def test_the_config_manager_exits(label, names, message):
    with pytest.raises(nvidia.PluginError, match=message):
        nvidia.choose(SOURCE, label, names)


@pytest.mark.parametrize(
    ("config", "capacity"),
    [
        ({}, {"nvidia.com/gpu": 2}),
        (shared("timeSlicing", 10), {"nvidia.com/gpu": 20}),
        (shared("timeSlicing", 10, renameByDefault=True), {"nvidia.com/gpu.shared": 20}),
        (shared("mps", 4, renameByDefault=True), {"nvidia.com/gpu.shared": 8}),
    ],
)
def test_what_the_plugin_registers(config, capacity):
    found = nvidia.sharing(config, "ctr")
    assert nvidia.capacity(found, [T4, T4], mps_daemon=True, container="ctr") == capacity


def test_mps_wins_over_time_slicing_and_a_rename_over_the_default_one():
    both = shared("timeSlicing", 10)
    both["sharing"]["mps"] = {"resources": [{"name": "gpu", "replicas": 3, "rename": "gpu.mine"}]}
    assert nvidia.sharing(both, "ctr") == nvidia.Sharing("mps", 3, "nvidia.com/gpu.mine")


@pytest.mark.parametrize(
    ("config", "gpu", "daemon", "message"),
    [
        (shared("timeSlicing", 1), T4, True, "replicas must be >= 2"),
        (shared("timeSlicing", "4"), T4, True, "replicas must be >= 2"),
        ({"version": "v2"}, T4, True, "unknown version: 'v2'"),
        (shared("mps", 49), T4, True, "at most 48 clients"),
        (shared("mps", 17), {**T4, "capability": "7.0"}, True, "at most 16 clients"),
        (shared("mps", 4), T4, False, "error waiting for MPS daemon"),
    ],
)
def test_the_plugin_exits(config, gpu, daemon, message):
    with pytest.raises(nvidia.PluginError, match=message):
        nvidia.capacity(nvidia.sharing(config, "ctr"), [gpu], mps_daemon=daemon, container="ctr")


def test_labels_of_gpu_feature_discovery():
    plain = nvidia.labels(nvidia.Sharing("time-slicing", 10), [T4])
    assert plain["nvidia.com/gpu.product"] == "Tesla-T4-SHARED"
    renamed = nvidia.labels(nvidia.Sharing("mps", 4, "nvidia.com/gpu.shared"), [T4])
    assert renamed["nvidia.com/gpu.product"] == "Tesla-T4"
    assert renamed["nvidia.com/gpu.memory"] == "15360"
    assert renamed["nvidia.com/gpu.replicas"] == "4"
    assert renamed["nvidia.com/gpu.sharing-strategy"] == "mps"
    assert renamed["nvidia.com/mps.capable"] == "true"
    assert nvidia.labels(nvidia.Sharing(), [T4])["nvidia.com/gpu.sharing-strategy"] == "none"


def test_the_real_chart_deployed(plane, make_node, helm, tmp_path):
    """Install, choose by label, go wrong, get well, uninstall: seen on Nodes and pods."""
    kind, config = "node.kubernetes.io/instance-type", nvidia.CONFIG_LABEL
    make_node("plain", {kind: "m6i.large"})
    make_node("alone", {kind: "g4dn.xlarge"})
    make_node("sliced", {kind: "g4dn.xlarge", config: "sliced"})
    make_node("mps", {kind: "g4dn.xlarge", config: "mps"})
    make_node("lost", {kind: "g4dn.xlarge", config: "nosuch"})
    configs = {
        "default": {"version": "v1"},
        "sliced": shared("timeSlicing", 10, renameByDefault=True),
        "mps": shared("mps", 4, renameByDefault=True),
    }
    values = tmp_path / "values.yaml"
    bodies = {name: yaml.safe_dump(body) for name, body in configs.items()}
    values.write_text(yaml.safe_dump({"config": {"map": bodies}, "gfd": {"enabled": True}}))

    def node(name: str) -> dict:
        return plane.request("GET", f"/api/v1/nodes/{name}")[1]

    def offered(name: str) -> dict:
        allocatable = node(name)["status"]["allocatable"]
        return {key: value for key, value in allocatable.items() if key.startswith("nvidia.com/")}

    def set_config(name: str, value: str) -> None:
        body = {"metadata": {"labels": {config: value}}}
        assert plane.request("PATCH", f"/api/v1/nodes/{name}", body, MERGE)[0] == 200

    def plugin_status(name: str) -> dict:
        for pod in plane.request("GET", "/api/v1/namespaces/nvidia/pods")[1]["items"]:
            if nvidia.role(pod) == "plugin" and pod["spec"].get("nodeName") == name:
                return pod["status"]
        return {}

    def crashing(name: str) -> list[str]:
        status = plugin_status(name)
        containers = status.get("initContainerStatuses", []) + status.get("containerStatuses", [])
        return [
            c["name"]
            for c in containers
            if c["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff"
        ]

    effect = DevicePluginEffect(plane)
    effect.start()
    try:
        helm("install", "nvdp", str(build.chart()), "-n", "nvidia", "--create-namespace", "-f",
             str(values))  # fmt: skip
        eventually(lambda: offered("alone"), {"nvidia.com/gpu": "1"})
        eventually(lambda: offered("sliced"), {"nvidia.com/gpu.shared": "10"})
        # Only after GFD's label has brought the MPS daemon's pod.
        eventually(lambda: offered("mps"), {"nvidia.com/gpu.shared": "4"})
        assert node("mps")["metadata"]["labels"]["nvidia.com/mps.capable"] == "true"
        assert node("sliced")["metadata"]["labels"]["nvidia.com/gpu.memory"] == "15360"
        assert offered("plain") == {}

        eventually(lambda: crashing("lost"), ["nvidia-device-plugin-init"])
        assert offered("lost") == {}
        set_config("lost", "sliced")
        eventually(lambda: offered("lost"), {"nvidia.com/gpu.shared": "10"})
        eventually(lambda: plugin_status("lost").get("phase"), "Running")

        # A running plugin keeps its old config when the new name is unknown.
        set_config("sliced", "nosuch")
        eventually(lambda: crashing("sliced"), ["nvidia-device-plugin-sidecar"])
        assert offered("sliced") == {"nvidia.com/gpu.shared": "10"}
        set_config("sliced", "default")
        wanted = {"nvidia.com/gpu": "1", "nvidia.com/gpu.shared": "0"}
        eventually(lambda: offered("sliced"), wanted)

        helm("uninstall", "nvdp", "-n", "nvidia")
        eventually(lambda: offered("alone"), {"nvidia.com/gpu": "0"})
        labels = lambda: node("mps")["metadata"]["labels"]  # noqa: E731
        eventually(labels, lambda found: "nvidia.com/gpu.product" not in found)
    finally:
        effect.stop()
