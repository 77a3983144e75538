"""Publishing gpu-memory on fleets: one run of ours against a plain task loop over the nodes.

Needs a running lab (`. .lab/env`). It makes a cluster of its own through the lab's AWS endpoint and
removes it again. Sizes in GPUSHARE_BENCH_SIZES (default "100 1000").
Both playbooks use the same modules on the same nodes in the same run; the plain loop calls them
once for each node, over SAMPLE nodes, and is scaled to all of them without its start-up: 1,000
turns would take 40 minutes. What the nodes do is not timed: above 50 instances the lab answers
from one real execution for each instance type, 0.3 s after the send, every node under its own name.
bench_nodes.py goes on to 5,000 Node objects.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import _bench
from _cluster import HEAD, Cluster, guard, play, wait

NAME, CIDR, SAMPLE = "bench-publish", "10.77.0.0/16", 20
SIZES = [int(size) for size in os.environ.get("GPUSHARE_BENCH_SIZES", "100 1000").split()]
TASKS = HEAD + "  tasks:\n"
DOCUMENT = TASKS + "    - gpushare.eks.ssm_document:\n"
OURS = (
    TASKS
    + f"""
    - gpushare.eks.gpu_capacity_info:
        cluster_name: {NAME}
      register: read
    - gpushare.eks.node_capacity:
        cluster_name: {NAME}
        readings: "{{{{ read.readings }}}}"
      register: done
    - ansible.builtin.debug:
        msg: "FIGURES {{{{ {{'calls': read.calls, 'counts': done.counts}} | to_json }}}}"
"""
)
LOOP = (
    TASKS
    + f"""
    - gpushare.eks.gpu_capacity_info:
        instance_ids: ["{{{{ item }}}}"]
      loop: "{{{{ ids }}}}"
      register: read
    - gpushare.eks.node_capacity:
        cluster_name: {NAME}
        readings: "{{{{ item.readings }}}}"
      loop: "{{{{ read.results }}}}"
      loop_control:
        label: "{{{{ item.item }}}}"
"""
)
ABSENT = (
    TASKS
    + f"""
    - gpushare.eks.node_capacity:
        cluster_name: {NAME}
        state: absent
"""
)
# Seconds from start to patched, and for a run that finds nothing to do, by size.
FIRST_S, AGAIN_S = {1000: 6.0}, {1000: 5.0}


def measure(count: int, ids: list[str], folder: Path) -> float:
    """All figures of one size -> milliseconds for each node."""
    play(folder, DOCUMENT)  # made once for both; publishing itself only runs it
    first, figures = play(folder, OURS)
    again, second = play(folder, OURS)
    calls, counts = figures["calls"], figures["counts"]
    print(f"one run of ours on {count} nodes: {first:.1f} s; calls {calls}; requests {counts}")
    at = f"publish_{count}"
    _bench.record(f"{at}_wall", first, "s", at_most=FIRST_S.get(count))
    ssm = calls["send_command"] + calls["list_command_invocations"]
    sends = math.ceil(count / 50)
    _bench.record(f"{at}_sends", calls["send_command"], "calls", at_most=sends)
    _bench.record(f"{at}_ssm_calls", ssm, "calls", at_most=max(80, 4 * sends))
    _bench.record(f"{at}_lists", counts["list"], "requests", at_most=1)
    _bench.record(f"{at}_patches", counts["patch"], "requests", at_most=count, at_least=count)
    _bench.record(f"{at}_again_wall", again, "s", at_most=AGAIN_S.get(count))
    _bench.record(f"{at}_again_patches", second["counts"]["patch"], "requests", at_most=0)
    if count == 1000:
        compare(count, ids, first, folder)
    return first / count * 1000


def compare(count: int, ids: list[str], first: float, folder: Path) -> None:
    """The same nodes by a plain task loop."""
    play(folder, ABSENT)
    start_up, _ = play(folder, LOOP, ids=[])
    looped, _ = play(folder, LOOP, ids=ids[:SAMPLE])
    plain = start_up + (looped - start_up) / SAMPLE * count
    how = f"measured {looped:.1f} s on {SAMPLE} nodes, start-up {start_up:.1f} s"
    print(f"plain task loop on {count} nodes: {plain:.0f} s ({how})")
    _bench.record(f"publish_{count}_plain_loop", plain, "s")
    _bench.record(f"publish_{count}_ratio", plain / first, "times", at_least=30)


def main() -> None:
    guard()
    table = []
    for size in SIZES:
        cluster = Cluster(NAME, size, CIDR)
        cluster.remove()
        try:
            began = time.monotonic()
            cluster.build()
            wait("the instances", lambda c=cluster, n=size: len(c.instance_ids()) == n)
            print(f"{size} instances after {time.monotonic() - began:.0f} s", flush=True)
            with tempfile.TemporaryDirectory() as folder:
                table.append((size, measure(size, cluster.instance_ids(), Path(folder))))
        finally:
            cluster.remove()
    print("\n nodes   ms for each node")
    for size, each in table:
        print(f"{size:>6}   {each:.1f}")


if __name__ == "__main__":
    main()
