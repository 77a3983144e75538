"""node_capacity: whole fleets against a local API server; check mode, diff, failures, selection."""

from __future__ import annotations

import base64
import copy
import json
import sys
import threading
from pathlib import Path

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.testing import patch_module_args
from ansible_collections.amazon.aws.plugins.module_utils.modules import AnsibleAWSModule

from ansible_collections.gpushare.eks.plugins.module_utils import _kube_api, _nodes
from ansible_collections.gpushare.eks.plugins.modules import node_capacity

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "module_utils"))
from test_nodes import RESOURCE, Api, node, reading

POOL = "gpushare.eks/pool"
MEMORY = {"gpu_memory_mib": 14848, "gpu_count": 10}
POOLS = [
    {
        "name": "shared",
        "sharing": {"headroom_mib": 0, "multi_gpu": "refuse"},
        "predicted_by_type": {"g4dn.xlarge": MEMORY},
    },
    {
        "name": "exclusive",
        "sharing": {"headroom_mib": 0, "multi_gpu": "refuse"},
        "predicted_by_type": {"g4dn.xlarge": {"gpu_memory_mib": None}},
    },
]


class Exit(Exception):
    """What the module returned: (failed, result)."""


def row(number, **changes):
    return {
        "instance_id": f"i-{number:017x}",
        "instance_type": "g4dn.xlarge",
        "hardware": {"gpu_count": 1, "gpu_memory_mib": 16384},
        "outcome": "Success",
        "error": None,
        "reading": reading(number),
        **changes,
    }


def in_pool(number, pool="shared", kind="g4dn.xlarge", standing=None):
    one = node(number)
    one["metadata"]["labels"] = {POOL: pool, "node.kubernetes.io/instance-type": kind}
    if standing:
        one["status"]["capacity"][RESOURCE] = one["status"]["allocatable"][RESOURCE] = standing
    return one


@pytest.fixture
def api():
    made = []

    def make(nodes, pods=()):
        server = Api(nodes)
        inner = server.page

        def page(url):
            if url.path.endswith("/pods"):
                return 200, {"items": list(pods), "metadata": {}}
            return inner(url)

        server.page = page
        made.append(server)
        return server

    yield make
    for one in made:
        one.server.shutdown()
        one.server.server_close()


@pytest.fixture
def run(monkeypatch):
    def call(server, *, check=False, fails=False, **params):
        def connect(eks, sts, name, region, *, timeout):
            return _nodes.Cluster(name, server.url, None, lambda renew: "good", timeout=timeout)

        monkeypatch.setattr(_nodes, "connect", connect)
        monkeypatch.setattr(AnsibleAWSModule, "client", lambda self, name, **_: None)
        monkeypatch.setattr(
            AnsibleModule, "exit_json", lambda self, **r: (_ for _ in ()).throw(Exit(False, r))
        )
        monkeypatch.setattr(
            AnsibleModule, "fail_json", lambda self, **r: (_ for _ in ()).throw(Exit(True, r))
        )
        arguments = {"region": "us-east-1", "_ansible_check_mode": check, "_ansible_diff": True}
        arguments |= {"cluster_name": "demo", **params}
        with patch_module_args(arguments), pytest.raises(Exit) as caught:
            node_capacity.main()
        failed, result = caught.value.args
        assert failed is fails, result.get("msg", result)
        return result

    return call


def actions(result):
    return {one["name"]: one["action"] for one in result["nodes"]}


def stands(server, name="node-0"):
    return server.nodes[name]["status"]["capacity"].get(RESOURCE)


def test_publish_and_publish_again(api, run):
    server = api([in_pool(i) for i in range(3)])
    rows = [row(i) for i in range(3)]
    checked = run(server, readings=rows, pools=POOLS, check=True)
    assert checked["changed"] is True
    assert checked["counts"]["patch"] == 0
    assert stands(server) is None
    real = run(server, readings=rows, pools=POOLS)
    assert real["nodes"] == checked["nodes"]
    assert real["diff"] == checked["diff"]
    assert real["counts"] == {
        "list": 1, "pages": 1, "patch": 3, "retry": 0, "nodes": 3, "published": 3, "failures": 0,
    }  # fmt: skip
    assert stands(server) == "14848Mi"
    first = real["nodes"][0]
    assert (first["before_mib"], first["after_mib"], first["surplus_mib"]) == (None, 14848, 62)
    again = run(server, readings=rows, pools=POOLS)
    assert again["changed"] is False
    assert again["diff"] == []
    assert again["counts"]["patch"] == 0
    assert again["counts"]["list"] == 1


def test_the_diff_shows_what_stood_and_what_will_stand(api, run):
    server = api([in_pool(0, standing="20Gi"), in_pool(1)])
    run(server, readings=[row(0), row(1)], pools=POOLS)
    server.nodes["node-1"]["status"]["capacity"][RESOURCE] = "20Gi"
    result = run(server, readings=[row(0), row(1)], pools=POOLS, check=True)
    assert len(result["diff"]) == 1
    assert "node-1" in result["diff"][0]["before_header"]
    assert result["diff"][0]["before"] == {"status.capacity": {RESOURCE: "20Gi"}}
    assert result["diff"][0]["after"] == {"status.capacity": {RESOURCE: "14848Mi"}}


def test_quantities_are_numbers(api, run):
    server = api([in_pool(0)])
    run(server, readings=[row(0)], pools=POOLS)
    for part in ("capacity", "allocatable"):
        server.nodes["node-0"]["status"][part][RESOURCE] = "14.5Gi"
    assert run(server, readings=[row(0)], pools=POOLS)["changed"] is False


def test_only_nodes_of_sharing_pools(api, run):
    server = api([in_pool(0), in_pool(1, "exclusive"), in_pool(2, "system"), node(3)])
    result = run(server, readings=[row(i) for i in range(4)], pools=POOLS)
    assert actions(result) == {"node-0": "patch"}


def test_without_pools_what_nvml_leaves_is_published(api, run):
    server = api([node(0), node(1)])
    result = run(server, readings=[row(0)], policy={"headroom_mib": 100})
    assert actions(result) == {"node-0": "patch"}
    assert stands(server) == "14810Mi"


def test_nodes_without_a_good_reading_fail_and_the_rest_is_published(api, run):
    server = api([in_pool(i) for i in range(4)])
    error = {"type": "NoAnswer", "message": "no answer within 90 s", "remedy": "wait"}
    lost = reading(2)
    lost["gpus"][0]["error"] = "GPU_IS_LOST"
    rows = [
        row(0),
        row(1, outcome="NoAnswer", error=error, reading=None),
        row(2, reading=lost, error={"type": "GPU_IS_LOST", "message": "lost", "remedy": "x"}),
    ]
    result = run(server, readings=rows, pools=POOLS, fails=True)
    assert actions(result) == {
        "node-0": "patch", "node-1": "refuse", "node-2": "refuse", "node-3": "refuse",
    }  # fmt: skip
    assert result["changed"] is True
    assert result["error"]["type"] == "PartialFailure"
    assert len(result["error"]["items"]) == 3
    for words in ("no answer within 90 s", "GPU_IS_LOST", "node-3", "max_failures 0"):
        assert words in result["msg"]
    assert stands(server, "node-1") is None
    again = run(server, readings=rows, pools=POOLS, max_failures=3)
    assert again["changed"] is False
    assert again["counts"]["failures"] == 3


def test_a_write_that_fails_is_told_once_with_its_type_and_remedy(api, run):
    server = api([in_pool(0), in_pool(1)])
    server.faults[("PATCH", "node-0")] = [(403, ())]
    result = run(server, readings=[row(0), row(1)], pools=POOLS, fails=True)
    assert actions(result) == {"node-0": "failed", "node-1": "patch"}
    (problem,) = result["nodes"][0]["problems"]
    assert problem["code"] == "AccessDenied"
    assert result["error"]["items"][0]["problems"] == [problem]
    assert result["msg"].count(problem["remedy"]) == 1


def test_below_predicted_is_an_error_with_both_numbers(api, run):
    server = api([in_pool(0)])
    small = row(0, reading=reading(0, total=15000))
    result = run(server, readings=[small], pools=POOLS, fails=True)
    assert "14550" in result["msg"]
    assert "14848" in result["msg"]
    assert stands(server) is None


def test_a_type_that_the_pool_does_not_know(api, run):
    server = api([in_pool(0, kind="g5.xlarge")])
    result = run(server, readings=[row(0)], pools=POOLS, fails=True)
    assert result["nodes"][0]["problems"][0]["code"] == "TYPE"


def test_an_instance_that_is_no_node_is_told(api, run):
    result = run(api([in_pool(0)]), readings=[row(0), row(7)], pools=POOLS, fails=True)
    assert "i-00000000000000007" in result["msg"]


def test_selected_nodes_only(api, run):
    server = api([in_pool(0), in_pool(1)])
    rows = [row(0), row(1)]
    assert actions(run(server, readings=rows, pools=POOLS, nodes=["node-1"])) == {"node-1": "patch"}
    assert stands(server) is None
    result = run(server, readings=rows, pools=POOLS, nodes=["node-1", "typo"], fails=True)
    assert "typo" in result["msg"]


def test_a_multi_gpu_node_is_refused_unless_asked_for(api, run):
    two = reading(0)
    two["gpus"] = [dict(two["gpus"][0], index=i, uuid=f"GPU-{i}") for i in range(2)]
    rows = [row(0, reading=two, hardware={"gpu_count": 2, "gpu_memory_mib": 16384})]
    server = api([node(0)])
    assert run(server, readings=rows, fails=True)["nodes"][0]["action"] == "refuse"
    run(server, readings=rows, policy={"multi_gpu": "sum"})
    assert stands(server) == "29820Mi"


def test_a_node_deleted_meanwhile_is_told_and_no_failure(api, run):
    server = api([in_pool(0), in_pool(1)])
    server.before_patch["node-0"] = lambda: server.nodes.pop("node-0")
    result = run(server, readings=[row(0), row(1)], pools=POOLS)
    assert actions(result) == {"node-0": "gone", "node-1": "patch"}


def pod(name, mib, node_name="node-0", made="2026-11-21T09:00:00Z"):
    container = {"resources": {"limits": {RESOURCE: f"{mib}Mi"}}}
    return {
        "metadata": {"namespace": "default", "name": name, "creationTimestamp": made},
        "spec": {"nodeName": node_name, "containers": [container]},
    }


def test_a_shrink_below_the_requests_is_published_and_told(api, run):
    pods = [
        pod("old", 9000, made="2026-11-21T08:00:00Z"),
        pod("new", 9000),
        pod("elsewhere", 9000, "node-1"),
    ]
    server = api([in_pool(0, standing="20Gi")], pods)
    result = run(server, readings=[row(0)], pools=POOLS)
    assert stands(server) == "14848Mi"
    assert result["nodes"][0]["over_requested"] == {"requested_mib": 18000, "pods": ["default/new"]}
    assert result["counts"]["list_pods"] == 1
    assert any("default/new" in text for text in result["warnings"])


def test_absent_takes_the_resource_and_the_annotation_away(api, run):
    server = api([in_pool(0), in_pool(1, "exclusive"), node(2)])
    run(server, readings=[row(0)], pools=POOLS)
    server.nodes["node-0"]["status"]["conditions"] = [
        {"type": "Ready", "status": "True"},
        {"type": "GPUMemoryPublished", "status": "True", "reason": "AgentPublished"},
    ]
    checked = run(server, state="absent", check=True)
    assert actions(checked) == {"node-0": "patch"}
    assert stands(server) == "14848Mi"
    result = run(server, state="absent")
    assert result["changed"] is True
    assert result["diff"] == checked["diff"]
    left = server.nodes["node-0"]
    assert RESOURCE not in json.dumps(left)
    assert left["metadata"]["annotations"] == {"kept": "yes"}
    assert [one["type"] for one in left["status"]["conditions"]] == ["Ready"]
    again = run(server, state="absent")
    assert again["changed"] is False
    assert again["nodes"] == []


def kept_by_agent(name="node-0", ready="True"):
    return {
        "metadata": {"name": f"gpushare-agent-{name}"},
        "spec": {"nodeName": name, "containers": []},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


@pytest.mark.parametrize("ready", ["True", "False"])
def test_where_an_agent_lives_the_module_audits(api, run, ready, monkeypatch):
    monkeypatch.setattr(node_capacity, "AGENT_GRACE_S", 0.6)
    one = in_pool(0)
    one["status"]["conditions"] = [{"type": "GPUMemoryPublished", "reason": "AgentPublished"}]
    server = api([one], [kept_by_agent(ready=ready)])
    result = run(server, readings=[row(0)], pools=POOLS, max_failures=1)
    assert actions(result) == {"node-0": "refuse" if ready == "True" else "patch"}
    run(server, readings=[row(0)], pools=POOLS, force=True)
    assert stands(server) == "14848Mi"


def test_what_the_agent_mends_meanwhile_is_no_finding(api, run):
    one = in_pool(0)
    one["status"]["conditions"] = [{"type": "GPUMemoryPublished", "reason": "AgentPublished"}]
    server = api([one], [kept_by_agent()])
    run(server, readings=[row(0)], pools=POOLS, force=True)
    mended = copy.deepcopy(server.nodes["node-0"])
    for part in ("capacity", "allocatable"):
        server.nodes["node-0"]["status"][part][RESOURCE] = "20Gi"
    threading.Timer(0.7, lambda: server.nodes.update({"node-0": mended})).start()
    result = run(server, readings=[row(0)], pools=POOLS)
    assert actions(result) == {"node-0": "none"}
    assert result["changed"] is False


def test_without_an_agents_condition_no_pods_are_listed(api, run):
    server = api([in_pool(0)])
    run(server, readings=[row(0)], pools=POOLS)
    assert server.seen[("GET", "pods")] == 0


SHARED = {"namespace": "gpushare-system", "name": "gpushare-policy"}


def test_the_agents_policy_is_kept_before_the_nodes_are_judged(api, run):
    server, patched = api([in_pool(0)]), []
    plain, there = server.answer, {"data": {"policy.json": "old", "hardware.gone": "1Mi"}}

    def answer(method, path, body, headers):
        if not path.endswith("/namespaces/gpushare-system/configmaps/gpushare-policy"):
            return plain(method, path, body, headers)
        if method == "PATCH":
            patched.append((body, headers["Content-Type"]))
            there["data"] = {k: v for k, v in {**there["data"], **body["data"]}.items() if v}
        return (200, there) if there else (404, {"message": "not found"})

    server.answer = answer
    wanted = {**SHARED, "data": {"policy.json": "new"}}
    checked = run(server, readings=[row(0)], pools=POOLS, policy_config_map=wanted, check=True)
    assert patched == []
    assert checked["diff"][0]["before"]["data"]["policy.json"] == "old"
    result = run(server, readings=[row(0)], pools=POOLS, policy_config_map=wanted)
    assert result["diff"] == checked["diff"]
    body = {"data": {"policy.json": "new", "hardware.gone": None}}
    assert patched == [(body, "application/merge-patch+json")]
    again = run(server, readings=[row(0)], pools=POOLS, policy_config_map=wanted)
    assert again["changed"] is False
    there.clear()
    none = run(server, readings=[row(0)], pools=POOLS, policy_config_map=wanted)
    assert none["changed"] is False


def test_the_cas_stays_in_memory():
    # A self-signed certificate is CA enough for the context; nothing is written to a file.
    pem = (Path(__file__).parent / "ca.pem").read_bytes()
    pool = _kube_api._pool("https://127.0.0.1:1", base64.b64encode(pem).decode())
    assert "ca_certs" not in pool.connection_pool_kw
    assert pool.connection_pool_kw["ssl_context"].get_ca_certs()
