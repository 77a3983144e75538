"""Late joiners and the idle agent: from a node's Ready to its gpu-memory, with no playbook run.

Needs a running lab (`. .lab/env`). 30 nodes join at 2 a second, each with a real agent process on
two cores that also run the control plane; then 200 nodes at 20 a second, whose agents are threads
of this one process (two cores do not start 200 interpreters in 10 s; their NVML reading is given).
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "collections"))
sys.path.insert(0, str(Path(__file__).parent))
import _bench
from _agents import NAMESPACE, Admin, Seen, Watch, cluster, delays, door, install, policy
from _cluster import Cluster, guard, wait

from ansible_collections.gpushare.eks.plugins.module_utils._agent import Agent
from ansible_collections.gpushare.eks.plugins.module_utils._agent_api import Api

NAME, CIDR = "bench-agent", "10.78.0.0/16"
REAL, REAL_A_SECOND = 30, 2.0
MANY, MANY_A_SECOND = 200, 20.0
IDLE_S = float(os.environ.get("GPUSHARE_BENCH_IDLE_S", "30"))
GPU = {
    "index": 0, "uuid": "GPU-1", "name": "Tesla T4", "cc": "7.5", "total_mib": 15360,
    "reserved_mib": 450, "mig": False, "error": None,
}  # fmt: skip


def p99(values: list[float]) -> float:
    """The value that 99 of 100 do not exceed; of fewer than 100 the largest."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * 99 // 100) - 1)]


def join(made: Cluster, watch: Watch, count: int, a_second: float) -> list[float]:
    """Raise the group to `count` nodes at this rate -> seconds from Ready to allocatable."""
    began = time.monotonic()
    step = max(1, round(a_second / 4))
    for nodes in range(step, count + step, step):
        made.scale(min(nodes, count))
        time.sleep(max(0.0, began + nodes / a_second - time.monotonic()))
    wait("publishing", lambda: len(delays(watch.history)) >= count, 120)
    return list(delays(watch.history).values())


def empty(made: Cluster, watch: Watch) -> None:
    made.scale(0)
    wait("the nodes' end", lambda: not watch.now, 120)
    watch.history.clear()


def ticks(pid: int) -> int:
    """Processor time of a process and its children that live, in clock ticks."""
    total = 0
    for one in [pid, *children(pid)]:
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()] + [
        int(one)
        for task in Path(f"/proc/{pid}/task").iterdir()
        if task.name != str(pid)
        for one in (task / "children").read_text().split()
    ]


def pss_mib(pid: int) -> float:
    """Memory of a process and its children, shared pages by their share."""
    total = 0
    for one in [pid, *children(pid)]:
        for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


def idle(pids: list[int]) -> None:
    """What an agent takes that has nothing to do."""
    before = {pid: ticks(pid) for pid in pids}
    time.sleep(IDLE_S)
    hertz = os.sysconf("SC_CLK_TCK")
    shares = [(ticks(pid) - before[pid]) / hertz / IDLE_S * 100 for pid in pids]
    memory = [pss_mib(pid) for pid in pids]
    _bench.record("agent_idle_cpu", statistics.mean(shares), "% of a core", at_most=0.2)
    _bench.record("agent_idle_memory", max(memory), "MiB", at_most=40)


def in_one_process(made: Cluster, watch: Watch, admin: Admin, folder: Path) -> list[float]:
    """200 agents as threads: the API server's side is real, their start and their NVML are not."""
    token = folder / "token"
    token.write_text(admin.token())
    host, port = admin.endpoint.removeprefix("https://").split(":")
    rules, agents = policy(NAME), {}

    def begin(seen: Seen) -> None:
        boot = seen.node["status"].get("nodeInfo", {}).get("bootID")
        if seen.uid in agents or not boot or seen.deleted:
            return
        api = Api(host, int(port), str(token), str(admin.ca))
        agent = Agent(seen.name, api, policy=lambda: rules, boot_id=boot, log=lambda text: None)
        agents[seen.uid] = agent
        reading = {"schema": 1, "boot_id": boot, "instance_id": None, "time": None}
        agent.saw_reading({**reading, "driver": "580.105.08", "gpus": [GPU], "error": None})
        for work in (agent.watch, agent.run):
            threading.Thread(target=work, daemon=True).start()

    watch.tell = begin
    try:
        return join(made, watch, MANY, MANY_A_SECOND)
    finally:
        for agent in agents.values():
            agent.stop()


def main() -> None:
    guard()
    made = cluster(NAME, 0, CIDR, MANY)
    made.remove()
    with tempfile.TemporaryDirectory() as folder:
        try:
            made.build()
            install(NAME)
            admin = Admin(NAME, Path(folder))
            watch = Watch(admin)
            watch.start()
            found = join(made, watch, REAL, REAL_A_SECOND)
            print(f"{REAL} nodes at {REAL_A_SECOND:g} a second, a process each: median "
                  f"{statistics.median(found):.2f} s, longest {max(found):.2f} s")  # fmt: skip
            _bench.record("agent_late_joiner_p99", p99(found), "s", at_most=2.0)
            running = [p["pid"] for p in door("pods")["pods"] if p["cluster"] == NAME]
            idle(running[:10])
            path = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/gpushare-agent"
            admin.request("DELETE", path).raise_for_status()
            empty(made, watch)
            found = in_one_process(made, watch, admin, Path(folder))
            print(f"{MANY} nodes at {MANY_A_SECOND:g} a second, all agents in one process: median "
                  f"{statistics.median(found):.2f} s, longest {max(found):.2f} s")  # fmt: skip
            _bench.record("agent_200_in_one_process_p99", p99(found), "s", at_most=2.0)
            watch.stop()
        finally:
            made.remove()


if __name__ == "__main__":
    main()
