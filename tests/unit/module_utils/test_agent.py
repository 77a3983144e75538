"""The agent at work: inputs from threads, one writer, and what it does when writing fails."""

from __future__ import annotations

import copy
import itertools
import sys
import threading
import time
from pathlib import Path

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import _agent
from ansible_collections.gpushare.eks.plugins.module_utils._agent_api import Lost
from ansible_collections.gpushare.eks.plugins.module_utils._names import RESOURCE

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_agent_plan import BOOT, POLICY, apply, gpu, node, reading


class Server:
    """An API server of one node: counts requests, answers `faults` first."""

    def __init__(self, seen):
        self.node_now, self.faults, self.log, self.events = seen, [], [], []
        self.versions = itertools.count(8)
        self.agent, self.closed = None, threading.Event()

    def patch(self, path, operations):
        self.log.append(path)
        if self.faults:
            fault = self.faults.pop(0)
            if isinstance(fault, Exception):
                raise fault
            if callable(fault):
                fault()
            else:
                return fault, {"message": f"fault {fault}"}
        if self.node_now is None:
            return 404, {"message": "not found"}
        try:
            after = apply(self.node_now, operations)
        except (AssertionError, IndexError):
            return 422, {"message": "test failed"}
        after["metadata"]["resourceVersion"] = str(next(self.versions))
        self.node_now = after
        return 200, copy.deepcopy(after)

    def node(self, name):
        self.log.append("GET")
        return (200, copy.deepcopy(self.node_now)) if self.node_now else (404, {})

    def request(self, method, path, body=None, kind=""):
        self.events.append(body)
        return 201, {}

    def follow(self, name):
        yield copy.deepcopy(self.node_now)
        self.closed.wait(10)

    def close(self):
        self.closed.set()


@pytest.fixture
def server():
    return Server(node())


@pytest.fixture
def agent(server):
    return _agent.Agent("n", server, policy=lambda: POLICY, boot_id=BOOT, log=lambda text: None)


def work(agent, rounds=6):
    """Steps until nothing is left to do -> what the last one asked for."""
    for _dummy in range(rounds):
        wait = agent.step()
        if wait is None and not agent._news:
            return None
    return wait


def test_from_node_to_number_to_event(agent, server):
    agent.saw_node(copy.deepcopy(server.node_now))
    assert agent.step() is None
    assert server.log == []
    agent.saw_reading(reading(gpu()))
    assert work(agent) is None
    assert server.log == ["/api/v1/nodes/n/status", "/api/v1/nodes/n"]
    assert server.node_now["status"]["allocatable"][RESOURCE] == "14848Mi"
    (told,) = server.events
    assert told["reason"] == "AgentPublished"
    assert told["involvedObject"] == {
        "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u1",
    }  # fmt: skip
    work(agent)
    assert len(server.log) == 2
    assert len(server.events) == 1


def test_an_agent_that_starts_again_writes_and_tells_nothing(agent, server):
    agent.saw_node(copy.deepcopy(server.node_now))
    agent.saw_reading(reading(gpu()))
    work(agent)
    again = _agent.Agent("n", server, policy=lambda: POLICY, boot_id=BOOT, log=lambda text: None)
    server.log.clear()
    server.events.clear()
    again.saw_node(copy.deepcopy(server.node_now))
    again.saw_reading(reading(gpu()))
    work(again)
    assert server.log == server.events == []


def test_a_watch_that_lags_behind_our_own_patch_costs_no_second_one(agent, server):
    before = copy.deepcopy(server.node_now)
    agent.saw_node(before)
    agent.saw_reading(reading(gpu()))
    work(agent)
    count = len(server.log)
    agent.saw_node(before)
    work(agent)
    assert len(server.log) == count


def test_withdrawal_is_told_as_a_warning(agent, server):
    agent.saw_node(copy.deepcopy(server.node_now))
    agent.saw_reading(reading(gpu()))
    work(agent)
    agent.saw_reading(reading(gpu(error="GPU_IS_LOST")))
    work(agent)
    assert RESOURCE not in server.node_now["status"]["capacity"]
    assert [one["type"] for one in server.events] == ["Normal", "Warning"]
    assert "GPU_IS_LOST" in server.events[1]["message"]


@pytest.mark.parametrize("code", [409, 422, 404])
def test_a_conflict_is_looked_at_and_written_anew(agent, server, code):
    server.faults.append(code)
    agent.saw_node(copy.deepcopy(server.node_now))
    agent.saw_reading(reading(gpu()))
    work(agent)
    assert server.log[:3] == ["/api/v1/nodes/n/status", "GET", "/api/v1/nodes/n/status"]
    assert server.node_now["status"]["allocatable"][RESOURCE] == "14848Mi"


def test_a_node_deleted_before_the_patch_is_left_in_peace(agent, server):
    agent.saw_node(copy.deepcopy(server.node_now))
    agent.saw_reading(reading(gpu()))
    server.node_now = None
    assert work(agent) is None
    assert server.log == ["/api/v1/nodes/n/status", "GET"]


def test_a_node_replaced_under_its_name_gets_no_number_of_the_old_one(agent, server):
    agent.saw_node(copy.deepcopy(server.node_now))
    agent.saw_reading(reading(gpu()))
    young = node(nodeInfo={"bootID": "another"})
    young["metadata"]["uid"] = "u2"
    server.node_now = young
    assert work(agent) is None
    assert server.node_now == young


@pytest.mark.parametrize(("code", "least"), [(403, 1), (401, 1), (500, 1), (429, 1)])
def test_a_refusal_is_told_and_tried_again_later(server, code, least):
    said = []
    agent = _agent.Agent("n", server, policy=lambda: POLICY, boot_id=BOOT, log=said.append)
    server.faults.append(code)
    agent.saw_node(copy.deepcopy(server.node_now))
    agent.saw_reading(reading(gpu()))
    assert agent.step() >= least
    assert any(f"answers {code}" in text for text in said)
    work(agent)
    assert server.node_now["status"]["allocatable"][RESOURCE] == "14848Mi"


def test_refusals_are_tried_again_soon_and_then_seldom(agent, server):
    # An API server that just started refuses everybody until it has read RBAC.
    agent.saw_node(copy.deepcopy(server.node_now))
    agent.saw_reading(reading(gpu()))
    server.faults += [403] * 6
    waits = [agent.step() for _dummy in range(6)]
    assert waits == sorted(waits)
    assert sum(waits[:3]) < 10
    assert waits[-1] == _agent.REFUSED_S
    work(agent)
    server.node_now["status"]["allocatable"][RESOURCE] = "1"
    server.faults.append(403)
    agent.saw_node({**copy.deepcopy(server.node_now)})
    assert agent.step() == waits[0]


def test_no_answer_is_tried_again(agent, server):
    server.faults += [Lost("gone"), Lost("gone")]
    agent.saw_node(copy.deepcopy(server.node_now))
    agent.saw_reading(reading(gpu()))
    assert agent.step() == 0.0
    work(agent)
    assert server.node_now["status"]["allocatable"][RESOURCE] == "14848Mi"
    assert agent.counts["lost"] == 2


def test_a_fight_over_the_number_has_a_bound(server):
    now = [0.0]
    agent = _agent.Agent(
        "n",
        server,
        policy=lambda: POLICY,
        boot_id=BOOT,
        log=lambda text: None,
        clock=lambda: now[0],
    )
    agent.saw_reading(reading(gpu()))
    for _dummy in range(40):
        lie = copy.deepcopy(server.node_now)
        lie["status"].setdefault("capacity", {})[RESOURCE] = "20Gi"
        lie["metadata"]["resourceVersion"] = str(next(server.versions))
        server.node_now = lie
        agent.saw_node(copy.deepcopy(lie))
        wait = agent.step()
    assert len(server.log) == _agent.BURST
    assert 0 < wait <= _agent.REFILL_S
    now[0] += 2 * _agent.REFILL_S
    work(agent)
    assert server.node_now["status"]["capacity"][RESOURCE] == "14848Mi"


def test_the_loop_wakes_for_news_and_ends_when_told(agent, server):
    threads = [threading.Thread(target=one, daemon=True) for one in (agent.run, agent.watch)]
    for one in threads:
        one.start()
    agent.saw_reading(reading(gpu()))
    end = time.monotonic() + 5
    while time.monotonic() < end and RESOURCE not in server.node_now["status"]["allocatable"]:
        time.sleep(0.01)
    assert RESOURCE in server.node_now["status"]["allocatable"]
    agent.stop()
    for one in threads:
        one.join(5)
        assert not one.is_alive()


def test_a_watch_that_keeps_breaking_is_tried_ever_more_seldom(agent, server, monkeypatch):
    tries = []

    def follow(name):
        tries.append(time.monotonic())
        yield copy.deepcopy(server.node_now)
        raise Lost("broken")

    monkeypatch.setattr(_agent.random, "uniform", lambda low, high: high)
    monkeypatch.setattr(server, "follow", follow)
    thread = threading.Thread(target=agent.watch, daemon=True)
    thread.start()
    time.sleep(1.6)
    agent.stop()
    thread.join(5)
    assert len(tries) == 4  # at 0, 0.2, 0.6 and 1.4 s
    assert agent.counts["watch_lost"] == 4


def test_metrics_are_prometheus_text(agent, server):
    agent.saw_node(copy.deepcopy(server.node_now))
    agent.saw_reading(reading(gpu()))
    work(agent)
    text = agent.metrics()
    assert f"gpushare_published_bytes {14848 * 1048576}\n" in text
    assert f"gpushare_usable_bytes {14910 * 1048576}\n" in text
    assert "# TYPE gpushare_patches_total counter\ngpushare_patches_total 2\n" in text
    assert all(line.startswith(("# TYPE ", "gpushare_")) for line in text.splitlines())


def test_what_is_not_known_has_no_figure(agent, server):
    text = agent.metrics()
    assert "gpushare_gpus 0\n" in text
    assert "bytes" not in text
    agent.saw_node(copy.deepcopy(server.node_now))
    agent.saw_reading(reading(error={"type": "UNKNOWN", "code": 999}))
    work(agent)
    assert "bytes" not in agent.metrics()


def test_how_long_an_error_stands_is_remembered(agent):
    agent.saw_reading(reading(error={"type": "UNKNOWN", "code": 999}))
    since = agent.error_since
    agent.saw_reading(reading(error={"type": "UNKNOWN", "code": 999}))
    assert agent.error_since == since
    assert since[0] == "UNKNOWN"
    agent.saw_reading(reading(gpu()))
    assert agent.error_since is None
