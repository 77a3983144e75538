"""How much of the waiting of a first site.yml is hidden behind its other work.

Needs a running lab (`. .lab/env`). The same site.yml builds a cluster twice: once with an EKS that
answers at once, which gives the fixed cost of its modules, and once with EKS's times scaled to a
hundredth (900 s for a cluster as 9 s, 180 s for a node group as 1.8 s). The second may take 1.15
times the critical path (cluster, then node group) longer than the first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import _bench
from _cluster import ROOT, guard

NAME = "bench-overlap"
SCALED = {"CreateCluster": 9.0, "CreateNodegroup": 1.8}
AT_ONCE = dict.fromkeys(SCALED, 0.0)
SLACK = 1.15


def latencies(given: dict[str, float] | None = None) -> dict[str, float]:
    """The lab's times; sets those that are given."""
    url = os.environ["AWS_ENDPOINT_URL"] + "/_lab/latencies"
    body = None if given is None else json.dumps(given).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data=body)) as answer:
        return json.load(answer)


def play(*words: str) -> float:
    """Wall seconds of one playbook run on the cluster."""
    began = time.monotonic()
    done = subprocess.run(
        ["ansible-playbook", *words, "-e", f"gpushare_cluster_name={NAME}"],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stdout[-4000:])
    return time.monotonic() - began


def first_site(given: dict[str, float]) -> float:
    """Wall seconds of a site.yml on an account without the cluster, which is removed again."""
    latencies(given)
    try:
        return play("site.yml")
    finally:
        latencies(AT_ONCE)
        play("playbooks/destroy.yml", "-e", f"confirm_destroy={NAME}")


def main() -> None:
    guard()
    before = {name: value for name, value in latencies().items() if name in SCALED}
    try:
        fixed = first_site(AT_ONCE)
        wall = first_site(SCALED)
    finally:
        latencies(before)
    path = sum(SCALED.values())
    _bench.record("overlap_fixed_cost", fixed, "s")
    _bench.record("overlap_critical_path", path, "s")
    _bench.record("overlap_first_site", wall, "s", at_most=SLACK * path + fixed)


if __name__ == "__main__":
    main()
