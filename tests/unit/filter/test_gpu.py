"""The filters: what people see of the pure parts, errors and documentation included."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.gpushare.eks.plugins.filter import gpu

ROOT = Path(__file__).resolve().parents[3]
FILTERS = gpu.FilterModule().filters()
POOLS = [
    {"name": "system", "instance_types": ["m6i.large"], "max_size": 1},
    {
        "name": "shared",
        "instance_types": ["g4dn.xlarge"],
        "max_size": 2,
        "sharing": {"strategy": "time_slicing", "gpu_memory": True},
    },
]
DERIVED = FILTERS["derive"](POOLS, "demo")
CLUSTER = {"name": "demo", "endpoint": "https://x", "ca_data": "QQ==", "service_ipv4_cidr": "a"}


def test_derive():
    assert DERIVED["gpu_pools"] == ["shared"]
    zoned = FILTERS["derive"](POOLS, "demo", zones=["us-east-1a"], tags={"team": "x"})
    assert zoned["pools"][0]["tags"] == {"team": "x", "gpushare.eks/cluster": "demo"}
    assert FILTERS["derive"](POOLS, "demo", catalog={}) == DERIVED


def test_derive_tells_all_problems():
    with pytest.raises(AnsibleFilterError) as raised:
        FILTERS["derive"]([{"name": "X"}], "")
    for told in ("gpushare_cluster_name", "gpushare_pools[0].name", "gpushare_pools[0].max_size"):
        assert told in str(raised.value)


def test_gpu_workload():
    made = FILTERS["gpu_workload"]("20%", DERIVED, pool="shared", framework="tensorflow")
    assert made["framework"] == {"name": "tensorflow", "memory_limit_mib": 2969}
    with pytest.raises(AnsibleFilterError, match="pools with gpu_memory: shared"):
        FILTERS["gpu_workload"]("3Gi", DERIVED, pool="other")


def test_fleet_report_and_table():
    data = FILTERS["fleet_report"]({"nodes": [], "pods": []}, DERIVED)
    assert (data["cluster"], data["resource"]) == ("demo", "gpushare.eks/gpu-memory")
    assert "no nodes" in FILTERS["fleet_table"](data)


@pytest.mark.parametrize("seen", [None, [], {"nodes": []}])
def test_fleet_report_names_what_it_wants(seen):
    with pytest.raises(AnsibleFilterError, match="'nodes'"):
        FILTERS["fleet_report"](seen, DERIVED)


def test_fleet_table_names_what_it_wants():
    with pytest.raises(AnsibleFilterError, match="fleet_report"):
        FILTERS["fleet_table"]({"schema": 2})


def test_node_config():
    assert "maxPods" in FILTERS["node_config"](DERIVED["pools"][1], CLUSTER)
    with pytest.raises(AnsibleFilterError, match="endpoint"):
        FILTERS["node_config"](DERIVED["pools"][1], {})


def test_in_a_template_as_roles_use_them():
    """Through Ansible's own templating, whose tagged and lazy values are not plain ones."""
    message = (
        "{{ sample_memory | gpushare.eks.gpu_workload(derived=(pools | gpushare.eks.derive("
        "cluster_name='demo', zones=[], tags={}))) | to_json }}"
    )
    command = [str(Path(sys.executable).with_name("ansible")), "-i", "localhost,", "-c", "local"]
    extra = json.dumps({"pools": POOLS, "sample_memory": "3Gi"})
    done = subprocess.run(
        [*command, "localhost", "-m", "debug", "-a", f'msg="{message}"', "-e", extra],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3072Mi" in done.stdout
    assert "warning" not in done.stderr.lower()


def test_plugin_configs_reads_what_is_deployed():
    wanted = DERIVED["device_plugin_configs"]
    deployed = {
        "default": yaml.safe_dump(wanted["default"]),
        "shared": "version: v1",
        "x": "{[",
        "y": "1",
    }
    made = FILTERS["plugin_configs"](wanted, deployed, hold=["shared"])
    assert made["changed"] == ["shared"]
    assert made["deployed"]["shared"] == made["configs"]["shared"] == {"version": "v1"}
    assert made["deployed"]["x"] == made["deployed"]["y"] == {}
    assert wanted["shared"] in made["configs"].values()
    again = FILTERS["plugin_configs"](wanted, made["configs"], used=[])
    assert set(again["configs"]) - set(wanted) == set(made["configs"]) - set(wanted)
    assert FILTERS["plugin_configs"](wanted)["changed"] == []
    texts = {name: yaml.safe_dump(body) for name, body in wanted.items()}
    assert FILTERS["plugin_configs"](texts) == FILTERS["plugin_configs"](wanted)
