"""gpu_fleet_info: the figures of a fleet against a local API server, paged, without the objects."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.testing import patch_module_args
from ansible_collections.amazon.aws.plugins.module_utils.modules import AnsibleAWSModule

from ansible_collections.gpushare.eks.plugins.module_utils import _nodes
from ansible_collections.gpushare.eks.plugins.module_utils._pools import derive
from ansible_collections.gpushare.eks.plugins.modules import gpu_fleet_info

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "module_utils"))
from test_nodes import RESOURCE, Api, node, reading

SHARING = {"strategy": "time_slicing", "replicas": 10, "gpu_memory": True}
POOL = {"name": "shared", "instance_types": ["g4dn.xlarge"], "max_size": 9, "sharing": SHARING}
DERIVED = derive([POOL], cluster_name="demo", resource=RESOURCE)


class Exit(Exception):
    """What the module returned: (failed, result)."""


def pod(name, node_name, phase="Running"):
    container = {"name": "c", "resources": {"requests": {RESOURCE: "3Gi"}}}
    return {
        "metadata": {"namespace": "default", "name": name},
        "spec": {"nodeName": node_name, "containers": [container]},
        "status": {"phase": phase},
    }


@pytest.fixture
def look(monkeypatch):
    made = []

    def call(nodes, pods, *, status=200, **params):
        server = Api(nodes)
        made.append(server)
        inner = server.page
        answer = {"items": pods, "metadata": {}} if status == 200 else {"message": "no"}
        server.page = lambda url: (status, answer) if url.path.endswith("/pods") else inner(url)

        def connect(eks, sts, name, region, *, timeout):
            return _nodes.Cluster(name, server.url, None, lambda renew: "good", timeout=timeout)

        monkeypatch.setattr(_nodes, "connect", connect)
        monkeypatch.setattr(AnsibleAWSModule, "client", lambda self, name, **_: None)
        for name, failed in (("exit_json", False), ("fail_json", True)):
            end = lambda self, failed=failed, **r: (_ for _ in ()).throw(Exit(failed, r))  # noqa: E731
            monkeypatch.setattr(AnsibleModule, name, end)
        arguments = {"region": "us-east-1", "cluster_name": "demo", "derived": DERIVED, **params}
        with patch_module_args(arguments), pytest.raises(Exit) as caught:
            gpu_fleet_info.main()
        return caught.value.args

    yield call
    for one in made:
        one.server.shutdown()
        one.server.server_close()


def published(number):
    one = node(number)
    one["metadata"]["labels"] = {"gpushare.eks/pool": "shared"}
    for part in ("capacity", "allocatable"):
        one["status"].setdefault(part, {})[RESOURCE] = "14848Mi"
    return one


def test_who_has_what_and_who_waits(look):
    name = published(0)["metadata"]["name"]
    waiting = pod("late", None, "Pending")
    rows = [{"instance_id": "i-" + "0" * 17, "error": None, "gpus": reading(0)["gpus"]}]
    failed, result = look([published(0)], [pod("a", name), waiting], readings=rows)
    assert not failed, result
    assert result["changed"] is False
    (one,) = result["report"]["nodes"]
    assert (one["requested_mib"], one["free_mib"]) == (3072, 14848 - 3072)
    assert [p["name"] for p in result["report"]["pending"]] == ["late"]
    assert "default/a" in result["table"]
    assert "default/late" in result["table"]
    assert result["counts"]["list"] == result["counts"]["list_pods"] == 1


def test_a_fleet_costs_pages_and_returns_figures_not_objects(look):
    fleet = [published(i) for i in range(1200)]
    for one in fleet:
        one["metadata"]["annotations"] = {"big": "x" * 2000}
    failed, result = look(fleet, [])
    assert not failed, result
    assert len(result["report"]["nodes"]) == 1200
    assert result["counts"]["pages"] == 4  # three of nodes, one of pods
    assert "xxxx" not in json.dumps(result)


def test_derived_of_something_else_is_refused_before_a_call(look):
    failed, result = look([], [], derived={"pools": []})
    assert failed
    assert "derived has no resource" in result["msg"]


def test_who_may_not_list_pods_is_told_so(look):
    failed, result = look([published(0)], [], status=403, timeout=1)
    assert failed
    assert result["error"]["type"] == "AccessDenied"
