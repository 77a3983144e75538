"""Every configuration that pools become, read by NVIDIA's own parser as its plugin reads it.

The chart is rendered with the role's values: the configuration comes out of its ConfigMap, and the
environment out of its containers, because what stands in the environment wins.
"""

from __future__ import annotations

import functools
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import chart_helpers
import pytest

from ansible_collections.gpushare.eks.plugins.module_utils._pools import derive
from lab import LabError, build, goprogram

PARSER = Path(__file__).parent / "nvidia_parser"
PLUGIN = "nvidia-device-plugin-ctr"
DROPPED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
SYS_ADMIN = {"capabilities": {"add": ["SYS_ADMIN"]}}
# Each key of flags.go with a value that is not its default.
EVERY_FLAG = {
    "failOnInitError": False,
    "nvidiaDriverRoot": "/run/nvidia/driver",
    "nvidiaDevRoot": "/run/nvidia/dev",
    "gdrcopyEnabled": False,
    "gdsEnabled": False,
    "mofedEnabled": False,
    "useNodeFeatureAPI": True,
    "deviceDiscoveryStrategy": "nvml",
    "plugin": {
        "passDeviceSpecs": True,
        "deviceListStrategy": ["envvar", "cdi-annotations"],
        "deviceIDStrategy": "index",
        "cdiAnnotationPrefix": "cdi.example.com/",
        "nvidiaCTKPath": "/opt/bin/nvidia-ctk",
        "containerDriverRoot": "/driver",
    },
    "gfd": {
        "oneshot": False,
        "noTimestamp": True,
        "sleepInterval": "5m0s",
        "outputFile": "/tmp/gfd",
        "machineTypeFile": "/sys/machine",
    },
}


@pytest.fixture(scope="module", autouse=True)
def chart() -> None:
    """NVIDIA's chart, which comes with the lab's programs."""
    try:
        build.chart()
    except LabError as error:
        pytest.skip(str(error))


def pool(name: str, strategy: str, kind: str = "g4dn.xlarge", **sharing: Any) -> dict[str, Any]:
    given = {"strategy": strategy, **sharing}
    return {"name": name, "instance_types": [kind], "max_size": 2, "sharing": given}


SIDE_BY_SIDE = (
    pool("whole", "exclusive"),
    pool("sliced", "time_slicing", replicas=10, gpu_memory=True),
    pool("defaulted", "time_slicing", gpu_memory=True),
    pool("plain", "time_slicing", replicas=10, rename=False),
    pool("mps", "mps", replicas=4, gpu_memory=True),
    pool("crowded", "mps", "g6.xlarge", replicas=48, cuda_version="13.1"),
    pool("old", "mps", "p3dn.24xlarge", replicas=16),
    pool("odd", "mps", replicas=4, flags={"failOnInitError": False}),
)
# Name -> pools. All of a case are in one cluster.
CASES = {
    "side by side": SIDE_BY_SIDE,
    "one pool with its own device list": (
        *SIDE_BY_SIDE,
        pool("mounts", "exclusive", flags={"plugin": {"deviceListStrategy": "cdi-cri"}}),
    ),
    "one pool with volume mounts": (
        *SIDE_BY_SIDE,
        pool("mounts", "exclusive", flags={"plugin": {"deviceListStrategy": "volume-mounts"}}),
    ),
    "one pool with MIG": (
        *SIDE_BY_SIDE,
        pool("slices", "exclusive", "p4d.24xlarge", flags={"migStrategy": "single"}),
    ),
    "every flag": (
        *SIDE_BY_SIDE,
        pool("flags", "time_slicing", replicas=3, flags=EVERY_FLAG),
    ),
}


@functools.cache
def rendered(case: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(derived pools, the objects of the chart)."""
    derived = derive(list(CASES[case]), cluster_name="demo")
    with tempfile.TemporaryDirectory() as folder:
        return derived, chart_helpers.render(chart_helpers.values(derived), Path(folder))


def parsed(questions: dict[str, Any]) -> dict[str, Any]:
    """What NVIDIA's parser makes of {name: {"config", "env"}}."""
    done = subprocess.run(
        [goprogram.built(PARSER)], input=json.dumps(questions), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@functools.cache
def understood(case: str) -> dict[str, Any]:
    """{configuration: what the plugin of a node with this label works by}."""
    _derived, objects = rendered(case)
    env = chart_helpers.environment(objects, PLUGIN)
    texts = chart_helpers.configs(objects)
    return parsed({name: {"config": text, "env": env} for name, text in texts.items()})


@pytest.mark.parametrize("case", CASES)
def test_the_plugin_understands_what_the_pools_say(case):
    derived, _objects = rendered(case)
    found = understood(case)
    moved = {name: one for name, one in found.items() if "." in name}
    assert sorted(found.keys() - moved.keys()) == sorted(["default", *derived["gpu_pools"]])
    # Once more for each pool, for live nodes that are moved to it.
    assert {name.split(".")[0]: one["config"] for name, one in moved.items()} == {
        name: found[name]["config"] for name in derived["gpu_pools"]
    }
    assert {name: one.get("error") for name, one in found.items()} == dict.fromkeys(found)
    assert found["default"]["strategy"] == "none"
    for built in derived["pools"]:
        one, sharing = found[built["name"]], built["sharing"]
        strategy = {"exclusive": "none", "time_slicing": "time-slicing", "mps": "mps"}
        assert one["strategy"] == strategy[sharing["strategy"]]
        if sharing["strategy"] == "exclusive":
            continue
        key = "mps" if sharing["strategy"] == "mps" else "timeSlicing"
        part = one["config"]["sharing"][key]
        (resource,) = part["resources"]
        assert resource["replicas"] * built["predicted"]["gpus"] == built["predicted"]["gpu_count"]
        assert resource["name"] == "nvidia.com/gpu"
        assert resource["devices"] == "all"
        assert part.get("renameByDefault", False) is sharing["rename"]
        assert part["failRequestsGreaterThanOne"] is True
        assert one["resource"] == built["predicted"]["gpu_resource"]
        if key == "mps":
            # The daemon and its clients meet below this path.
            assert one["config"]["flags"]["mpsRoot"] == "/run/nvidia/mps"


@pytest.mark.parametrize("case", CASES)
def test_a_pools_flags_are_what_its_plugin_works_by(case):
    """Also against the environment, which the chart fills from values for all nodes."""
    derived, _objects = rendered(case)
    for given in CASES[case]:
        flags = {"migStrategy": "none", **given["sharing"].get("flags", {})}
        assert derived["device_plugin_configs"][given["name"]]["flags"] == flags
        _within(flags, understood(case)[given["name"]]["config"]["flags"], given["name"])
    default = understood(case)["default"]["config"]["flags"]
    assert default["migStrategy"] == "none"
    assert default["plugin"]["deviceListStrategy"] == ["envvar"]


def _within(given: Any, seen: Any, at: str) -> None:
    for key, value in given.items():
        if isinstance(value, dict):
            _within(value, seen[key], f"{at}.{key}")
        elif key == "deviceListStrategy":
            assert seen[key] == ([value] if isinstance(value, str) else value), f"{at}.{key}"
        else:
            assert seen[key] == value, f"{at}.{key}"


@pytest.mark.parametrize(
    ("case", "context", "monitor"),
    [
        ("side by side", DROPPED, False),
        ("one pool with its own device list", DROPPED, False),
        ("one pool with volume mounts", SYS_ADMIN, False),
        ("one pool with MIG", SYS_ADMIN, True),
        ("every flag", {"privileged": True}, False),
    ],
)
def test_the_plugin_has_no_right_that_no_pool_needs(case, context, monitor):
    _derived, objects = rendered(case)
    assert chart_helpers.container(objects, PLUGIN)["securityContext"] == context
    env = chart_helpers.environment(objects, PLUGIN)
    assert ("NVIDIA_MIG_MONITOR_DEVICES" in env) is monitor


def test_a_flag_without_the_charts_consent_would_have_no_effect():
    """Why the role leaves out what a pool says: with the value the chart's word wins."""
    config = chart_helpers.configs(rendered("one pool with volume mounts")[1])["mounts"]
    env = {"DEVICE_LIST_STRATEGY": "envvar"}
    found = parsed({"kept": {"config": config, "env": {}}, "lost": {"config": config, "env": env}})
    seen = {name: one["config"]["flags"]["plugin"] for name, one in found.items()}
    assert seen["kept"]["deviceListStrategy"] == ["volume-mounts"]
    assert seen["lost"]["deviceListStrategy"] == ["envvar"]


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("version: v2", "unknown version"),
        ("sharing: {timeSlicing: {resources: [{name: a, replicas: 1}]}}", "must be >= 2"),
        ("sharing: {mps: {}}", "no resources specified"),
        ("flags: {plugin: {deviceListStrategy: 'envvar,cdi-cri'}}", "invalid strategy"),
    ],
)
def test_the_parser_is_nvidias_and_refuses(config, told):
    assert told in parsed({"one": {"config": config, "env": {}}})["one"]["error"]


def test_the_parser_ignores_what_it_does_not_know():
    """Why an unknown flag of a pool is refused: NVIDIA would not tell."""
    config = "flags: {deviceListStrategy: volume-mounts, migStrategi: single}"
    found = parsed({"one": {"config": config, "env": {}}})["one"]
    assert "error" not in found
    assert found["config"]["flags"]["plugin"]["deviceListStrategy"] == ["envvar"]
    assert found["config"]["flags"]["migStrategy"] == "none"


def test_what_the_daemon_sets_tolerate_and_where_they_run():
    derived, objects = rendered("side by side")
    sets = [item for item in objects if item["kind"] == "DaemonSet"]
    names = {item["metadata"]["name"].removeprefix("nvidia-device-plugin") for item in sets}
    assert names == {"", "-gpu-feature-discovery", "-mps-control-daemon"}
    taints = {
        (taint["key"], taint["effect"]) for built in derived["pools"] for taint in built["taints"]
    }
    for item in sets:
        spec = item["spec"]["template"]["spec"]
        assert spec["affinity"] == derived["affinity"]
        tolerated = {(one["key"], one["effect"]) for one in spec["tolerations"]}
        assert taints < tolerated
        assert (derived["names"]["startup_taint"]["key"], "NoSchedule") in tolerated
        selector = spec.get("nodeSelector", {})
        assert ("nvidia.com/mps.capable" in selector) is ("mps" in item["metadata"]["name"])


def test_the_mps_root_is_the_charts_for_all_nodes():
    derived = derive(list(SIDE_BY_SIDE), cluster_name="demo")
    chart = chart_helpers.values(derived, device_plugin_values={"mps": {"root": "/opt/mps"}})
    with tempfile.TemporaryDirectory() as folder:
        objects = chart_helpers.render(chart, Path(folder))
    assert chart_helpers.environment(objects, PLUGIN)["MPS_ROOT"] == "/opt/mps"
    assert "/run/nvidia/mps" not in json.dumps([item for item in objects if item["kind"] != "CRD"])


@pytest.mark.parametrize("case", CASES)
def test_the_api_server_takes_every_object_of_the_chart(plane, case):
    """A server-side dry run of all; those of the chart's own CRDs once these are there."""
    _derived, objects = rendered(case)
    assert len(objects) > 20
    namespace = {"metadata": {"name": chart_helpers.NAMESPACE}}
    assert plane.request("POST", "/api/v1/namespaces", namespace)[0] in (201, 409)
    for item in objects:
        path = _path(plane, item)
        status, answer = plane.request("POST", f"{path}?dryRun=All&fieldValidation=Strict", item)
        assert status == 201, (item["kind"], item["metadata"]["name"], answer)
        if item["kind"] == "DaemonSet":
            assert answer["spec"]["template"]["spec"]["affinity"]
        assert plane.request("GET", f"{path}/{item['metadata']['name']}")[0] == 404, "it is a trial"


@functools.cache
def _kinds(plane: Any, version: str) -> dict[str, tuple[str, bool]]:
    base = "/api/v1" if version == "v1" else f"/apis/{version}"
    listed = plane.request("GET", base)[1]["resources"]
    return {
        one["kind"]: (f"{base}|{one['name']}", one["namespaced"])
        for one in listed
        if "/" not in one["name"]
    }


def _path(plane: Any, item: dict[str, Any]) -> str:
    """The collection that an object is posted to."""
    where, namespaced = _kinds(plane, item["apiVersion"])[item["kind"]]
    base, _bar, name = where.partition("|")
    if not namespaced:
        return f"{base}/{name}"
    return f"{base}/namespaces/{item['metadata'].get('namespace', chart_helpers.NAMESPACE)}/{name}"
