"""Hours of trouble in minutes: does the number on every node stay true? `make soak`.

A cluster of NODES real agents lives through lost GPUs, hangs, lies from outside, killed agents,
reboots, replaced nodes and an API server that is killed every three minutes. Judged afterwards:
from the API server's audit log, every write of an agent against what was usable on that node at
that time; from a watch, how long each lie lived. GPUSHARE_SOAK_MINUTES (10), GPUSHARE_SEED (7).
Needs a lab that was started with GPUSHARE_LAB_AUDIT=1.
"""

from __future__ import annotations

import calendar
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
from _agents import NAMESPACE, Admin, Seen, Watch, cluster, door, install, policy
from _cluster import TYPE, guard, wait

from ansible_collections.gpushare.eks.plugins.module_utils._names import AGENT_NAME, RESOURCE
from ansible_collections.gpushare.eks.plugins.module_utils._quantity import to_mib

NAME, CIDR, NODES = "soak", "10.79.0.0/16", 20
MINUTES = float(os.environ.get("GPUSHARE_SOAK_MINUTES", "10"))
SEED = int(os.environ.get("GPUSHARE_SEED", "7"))
KILL_EVERY_S = 180.0
CHURN_EVERY_S = 60.0 / (NODES * 0.02)  # 2 % of the nodes a minute
IDLE_S = 20.0
QUIET_S = 10.0  # converged within this after the last trouble
UP_S, RESTART_S = 2.0, 10.0  # how long a lie may live: agent up; after a restart of the API server
KEY = RESOURCE.replace("/", "~1")
USABLE_MIB = 15360 - 450
TRUTH_MIB = policy(NAME)["pools"]["shared"]["types"][TYPE]["predicted_mib"]
GPU_FAULTS = {
    "GPU lost": {"nvml": {"function": "*", "device": 0, "code": 15}},
    "driver gone": {"nvml": {"function": "*", "code": 9}},
    "fell off the bus": {"figures": {"gpus": {"0": {"missing": True}}}},
    "shrunk": {"figures": {"gpus": {"0": {"total_mib": 12000}}}},
}
LIES = {"typed in": "99Gi", "zeroed": "0", "removed": None}


@dataclass
class Trouble:
    """One thing done to one node: when (monotonic and wall), and what must stand afterwards."""

    kind: str
    name: str
    instance_id: str
    at: float
    wall: float
    wanted_mib: int | None
    limit_s: float
    until: float = 0.0
    healed: float = float("inf")
    lived_s: float | None = None


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

    # -- what is judged -------------------------------------------------------------------------

    def lifetimes(self) -> tuple[list[Trouble], list[Trouble]]:
        """(troubles that lived in a calm world, troubles around a restart of the API server)."""
        states = defaultdict(list)
        for seen in self.watch.history:
            states[seen.name].append(seen)
        calm, restarted = [], []
        for one in self.troubles:
            if not one.kind.startswith(("lie", "GPU")):
                continue
            if one.healed - one.at < one.limit_s:
                continue  # the end of the run healed it before anybody had to see it
            one.lived_s = lived(one, [seen for seen in states[one.name] if seen.at >= one.at])
            end = one.at + (one.lived_s or 0.0)
            near = any(kill - 1 < end and one.at < kill + 20 for kill in self.api_killed)
            (restarted if near else calm).append(one)
        return calm, restarted

    def audit(self, log: Path) -> tuple[int, list[str]]:
        """(writes of the agents, those that exceeded what was usable within the 2 s before)."""
        writes, wrong = 0, []
        user = f"system:serviceaccount:{NAMESPACE}:{AGENT_NAME}"
        for line in log.read_text().splitlines():
            event = json.loads(line)
            place = event.get("objectRef", {})
            good = event.get("responseStatus", {}).get("code") == 200
            if event["user"]["username"] != user or event["verb"] != "patch" or not good:
                continue
            if place.get("subresource") != "status":
                continue
            operations = event.get("requestObject") or []
            values = [
                o["value"] for o in operations if o["path"].endswith(f"/{KEY}") and "value" in o
            ]
            if not values:
                continue
            writes += 1
            node = event["responseObject"]
            at = stamp(event["requestReceivedTimestamp"])
            instance = node["spec"]["providerID"].rpartition("/")[2]
            allowed = self.usable_at(instance, at)
            most = max(to_mib(value) for value in values)
            if most > allowed or most <= 0:
                uid = node["metadata"]["uid"]
                wrong.append(f"{event['requestReceivedTimestamp']} {uid}: {most} of {allowed} MiB")
        return writes, wrong

    def idle_requests(self, log: Path, since: float) -> int:
        """Requests of agents that had nothing to do; the watch that each keeps open is none."""
        user = f"system:serviceaccount:{NAMESPACE}:{AGENT_NAME}"
        events = map(json.loads, log.read_text().splitlines())
        return sum(
            event["user"]["username"] == user
            and event["verb"] != "watch"
            and stamp(event["requestReceivedTimestamp"]) > since
            for event in events
        )

    def usable_at(self, instance: str, at: float) -> int:
        """The most that was usable within the UP_S before: an agent looks once a second."""
        current, found = USABLE_MIB, []
        for since, size in self.usable[instance]:
            if since > at:
                break
            if since > at - UP_S:
                found.append(current)
            current = size
        return max([*found, current])


def lived(one: Trouble, states: list[Seen]) -> float | None:
    """Seconds from the trouble to the first state that is right again, of the states since then."""
    right = [
        seen.deleted or seen.capacity_mib == seen.allocatable_mib == one.wanted_mib
        for seen in states
    ]
    # A lie is written after its moment was noted: the states before it still look right.
    start = right.index(False) if one.kind.startswith("lie") and False in right else 0
    ends = [seen.at for seen, good in zip(states[start:], right[start:], strict=True) if good]
    return ends[0] - one.at if ends else None


def instance_of(seen: Seen) -> str:
    return seen.node["spec"]["providerID"].rpartition("/")[2]


def stamp(text: str) -> float:
    whole, _dot, part = text.rstrip("Z").partition(".")
    return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float(f"0.{part or 0}")


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


def judge(soak: Soak, quiet_s: float, log: Path) -> None:
    for kind, count in sorted(soak.counts.items()):
        print(f"  {count:>4} x {kind}")
    calm, restarted = soak.lifetimes()
    for one in [*calm, *restarted]:
        if one.lived_s is None or one.lived_s > one.limit_s:
            print(f"  long: {one.kind} on {one.name}: {one.lived_s}")
    writes, wrong = soak.audit(log)
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
            judge(soak, quiet_s, log)
            idle = soak.idle_requests(log, idle_since)
            _bench.record("soak_idle_requests", idle, "requests", at_most=0)
            watch.stop()
        finally:
            made.remove()
    figures = json.loads(_bench.FIGURES.read_text())
    return any(not f["holds"] for name, f in figures.items() if name.startswith("soak_"))


if __name__ == "__main__":
    sys.exit(main())
