"""Hours of trouble in minutes: does the number on every node stay true? `make soak`.

A cluster of NODES real agents lives through lost GPUs, hangs, lies from outside, killed agents,
reboots, replaced nodes and an API server that is killed every three minutes. Judged afterwards:
from the API server's audit log, every write of an agent against what was usable on that node at
that time; from a watch, how long each lie lived. GPUSHARE_SOAK_MINUTES (10), GPUSHARE_SEED (7).
Needs a lab that was started with GPUSHARE_LAB_AUDIT=1.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import requests

sys.path.insert(0, str(Path(__file__).parents[2] / "collections"))
sys.path.insert(0, str(Path(__file__).parent))
import _bench
import boto3
from _agents import Admin, Seen, Watch, cluster, door, install, policy
from _cluster import TYPE, guard, wait
from _judge import (
    KEY,
    RESTART_S,
    UP_S,
    USABLE_MIB,
    Audit,
    Trouble,
    instance_of,
    lifetimes,
)

NAME, CIDR, NODES = "soak", "10.79.0.0/16", 20
MINUTES = float(os.environ.get("GPUSHARE_SOAK_MINUTES", "10"))
SEED = int(os.environ.get("GPUSHARE_SEED", "7"))
KILL_EVERY_S = 180.0
CHURN_EVERY_S = 60.0 / (NODES * 0.02)  # 2 % of the nodes a minute
IDLE_S = 20.0
QUIET_S = 10.0  # converged within this after the last trouble
TRUTH_MIB = policy(NAME)["pools"]["shared"]["types"][TYPE]["predicted_mib"]
GPU_FAULTS = {
    "GPU lost": {"nvml": {"function": "*", "device": 0, "code": 15}},
    "driver gone": {"nvml": {"function": "*", "code": 9}},
    "fell off the bus": {"figures": {"gpus": {"0": {"missing": True}}}},
    "shrunk": {"figures": {"gpus": {"0": {"total_mib": 12000}}}},
}
LIES = {"typed in": "99Gi", "zeroed": "0", "removed": None}


@dataclass
class Soak:
    admin: Admin
    watch: Watch
    chance: random.Random
    troubles: list[Trouble] = field(default_factory=list)
    # instance ID -> [(wall time from, MiB usable from then on)]
    usable: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    busy: dict[str, float] = field(default_factory=dict)
    api_killed: list[float] = field(default_factory=list)
    counts: Counter = field(default_factory=Counter)

    # -- what happens ---------------------------------------------------------------------------

    def pick(self) -> Seen | None:
        """A node that stands as it should and has had its peace for a while."""
        now = time.monotonic()
        free = [
            one
            for one in list(self.watch.now.values())
            if now > self.busy.get(one.name, 0.0)
            and one.capacity_mib == one.allocatable_mib == TRUTH_MIB
        ]
        return self.chance.choice(free) if free else None

    def note(
        self, seen: Seen, kind: str, wanted: int | None, limit_s: float, busy_s: float
    ) -> Trouble:
        now = time.monotonic()
        made = Trouble(kind, seen.name, instance_of(seen), now, time.time(), wanted, limit_s)
        self.busy[seen.name] = now + busy_s
        self.troubles.append(made)
        self.counts[kind] += 1
        return made

    def lie(self, seen: Seen) -> None:
        kind = self.chance.choice(list(LIES))
        value, patch = LIES[kind], []
        for part in ("capacity", "allocatable"):
            path = f"/status/{part}/{KEY}"
            op = (
                {"op": "remove", "path": path}
                if value is None
                else {"op": "add", "path": path, "value": value}
            )
            patch.append(op)
        made = self.note(seen, f"lie: {kind}", TRUTH_MIB, UP_S, 4.0)
        if not self.admin.patch_status(seen.name, patch).ok:
            self.troubles.remove(made)

    def gpu(self, seen: Seen) -> None:
        kind, payload = self.chance.choice(list(GPU_FAULTS.items()))
        door("nodes", {"instance_id": instance_of(seen), **payload})
        made = self.note(seen, f"GPU: {kind}", None, UP_S, 30.0)
        self.usable[made.instance_id].append((made.wall, 0))
        made.until = made.at + self.chance.uniform(4.0, 12.0)

    def heal(self, now: float, everything: bool = False) -> None:
        for one in self.troubles:
            if one.until and (everything or now > one.until):
                one.until, one.healed = 0.0, now
                if one.instance_id in {instance_of(s) for s in self.watch.now.values()}:
                    door("nodes", {"instance_id": one.instance_id, "nvml": None, "figures": None})
                self.usable[one.instance_id].append((time.time(), USABLE_MIB))
                self.busy[one.name] = now + 6.0

    def kill_agent(self, seen: Seen) -> None:
        pods = [p for p in door("pods")["pods"] if p["node"] == seen.name and p["pid"]]
        if pods:
            door("pods", {"pod": pods[0]["name"], "signal": "KILL"})
            self.note(seen, "agent killed", TRUTH_MIB, 30.0, 15.0)

    def replace(self, seen: Seen) -> None:
        door("nodes", {"instance_id": instance_of(seen), "replace_node": True, "stale": True})
        self.note(seen, "node replaced, stale", TRUTH_MIB, 30.0, 15.0)

    def reboot(self, seen: Seen) -> None:
        payload = {"reboot": True, "zero": self.chance.random() < 0.5}
        door("nodes", {"instance_id": instance_of(seen), **payload})
        self.note(seen, "reboot", TRUTH_MIB, 30.0, 15.0)

    def churn(self, seen: Seen) -> None:
        boto3.client("ec2").terminate_instances(InstanceIds=[instance_of(seen)])
        self.busy[seen.name] = time.monotonic() + 30
        self.counts["instance ended"] += 1

    def run(self, minutes: float) -> None:
        began = time.monotonic()
        next_kill, next_churn = began + 60.0, began + CHURN_EVERY_S / 2
        acts = [self.lie] * 5 + [self.gpu] * 4 + [self.kill_agent, self.replace, self.reboot]
        while (now := time.monotonic()) < began + minutes * 60:
            try:
                self.heal(now)
                if now > next_kill:
                    next_kill = now + KILL_EVERY_S
                    self.api_killed.append(now)
                    self.counts["API server killed"] += 1
                    door("clusters", {"cluster": NAME, "kill": "kube-apiserver"})
                seen = self.pick()
                if seen and now > next_churn:
                    next_churn = now + CHURN_EVERY_S
                    self.churn(seen)
                elif seen:
                    self.chance.choice(acts)(seen)
            except (requests.RequestException, OSError):
                self.counts["API away for the driver"] += 1
            time.sleep(self.chance.uniform(0.3, 1.0))

    def settle(self) -> float:
        """Heal everything -> seconds until all nodes stand as they should."""
        began = time.monotonic()
        self.heal(began, everything=True)

        def stands() -> bool:
            rows = list(self.watch.now.values())
            good = [r for r in rows if r.capacity_mib == r.allocatable_mib == TRUTH_MIB]
            return len(rows) == len(good) == NODES and not any(r.tainted for r in rows)

        while not stands() and time.monotonic() < began + 120:
            time.sleep(0.1)
        return time.monotonic() - began


def tell_late(soak: Soak) -> None:
    """What the agents of the nodes say that did not converge."""
    rows = {row["node"]: row for row in door("pods")["pods"] if row["cluster"] == NAME}
    for seen in list(soak.watch.now.values()):
        if seen.capacity_mib == seen.allocatable_mib == TRUTH_MIB and not seen.tainted:
            continue
        row = rows.get(seen.name)
        print(f"  late: {seen.name} {seen.capacity_mib} {seen.allocatable_mib} MiB; agent {row}")
        if row:
            print(*Path(row["log"]).read_text().splitlines()[-12:], sep="\n    ")


def judge(soak: Soak, quiet_s: float, log: Path, idle_since: float) -> None:
    for kind, count in sorted(soak.counts.items()):
        print(f"  {count:>4} x {kind}")
    calm, restarted = lifetimes(soak.troubles, soak.watch.history, soak.api_killed)
    for one in [*calm, *restarted]:
        if one.lived_s is None or one.lived_s > one.limit_s:
            print(f"  long: {one.kind} on {one.name}: {one.lived_s}")
    audit = Audit(log)
    writes, wrong = audit.writes(soak.usable)
    print(*wrong, sep="\n")
    endless = [one for one in [*calm, *restarted] if one.lived_s is None]
    _bench.record("soak_agent_writes", writes, "patches", at_least=1)
    _bench.record("soak_writes_above_usable", len(wrong), "patches", at_most=0)
    _bench.record("soak_lies", len(calm) + len(restarted), "lies", at_least=1)
    _bench.record("soak_lies_without_end", len(endless), "lies", at_most=0)
    found = [one.lived_s for one in calm if one.lived_s is not None]
    _bench.record("soak_longest_lie", max(found, default=0.0), "s", at_most=UP_S)
    found = [one.lived_s for one in restarted if one.lived_s is not None]
    _bench.record("soak_longest_lie_at_restart", max(found, default=0.0), "s", at_most=RESTART_S)
    _bench.record("soak_converged_after", quiet_s, "s", at_most=QUIET_S)
    idle = audit.requests_since(idle_since)
    _bench.record("soak_idle_requests", idle, "requests", at_most=0)


def main() -> int:
    guard()
    made = cluster(NAME, NODES, CIDR, NODES)
    made.remove()
    with tempfile.TemporaryDirectory() as folder:
        try:
            made.build()
            install(NAME)
            log = Path(door("clusters")["clusters"][NAME]["audit_log"] or "")
            if not log.is_file():
                raise SystemExit("this lab keeps no audit log: start it with GPUSHARE_LAB_AUDIT=1")
            watch = Watch(Admin(NAME, Path(folder)))
            watch.start()
            soak = Soak(watch.admin, watch, random.Random(SEED))
            wait("the first numbers", lambda: len(watch.now) == NODES and soak.settle() < 100)
            print(f"{NODES} nodes, {MINUTES:g} minutes, GPUSHARE_SEED={SEED}", flush=True)
            soak.run(MINUTES)
            quiet_s = soak.settle()
            if quiet_s > QUIET_S:
                tell_late(soak)
            time.sleep(3)
            idle_since = time.time()
            time.sleep(IDLE_S)
            judge(soak, quiet_s, log, idle_since)
            watch.stop()
        finally:
            made.remove()
    figures = json.loads(_bench.FIGURES.read_text())
    return any(not f["holds"] for name, f in figures.items() if name.startswith("soak_"))


if __name__ == "__main__":
    sys.exit(main())
