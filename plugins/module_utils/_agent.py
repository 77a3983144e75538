# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The agent of one node: told of the node, the GPU and the policy, it keeps the node's status true.

Standard library only, Python 3.9. It holds no state that matters: killed at any point and started
again, it reads everything anew.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from ansible_collections.gpushare.eks.plugins.module_utils._agent_api import Lost
from ansible_collections.gpushare.eks.plugins.module_utils._agent_plan import Plan, plan, stands
from ansible_collections.gpushare.eks.plugins.module_utils._quantity import MIB

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
# A 403 mends when somebody changes RBAC or the fence, or when an API server that just started has
# read them: so the first tries come soon, the later ones seldom.
REFUSED_S = 30.0
# Somebody who keeps writing another number is answered, but not without an end.
BURST, REFILL_S = 10, 2.0
LOOK_S = 5.0  # how often the policy's file is looked at
EVENTS = "/api/v1/namespaces/default/events"


class Agent:
    """Keeps the node `name`. Inputs come from any thread; `run` alone writes."""

    def __init__(
        self,
        name: str,
        api: Any,
        *,
        policy: Callable[[], dict[str, Any] | None],
        boot_id: str | None,
        log: Callable[[str], Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self._api, self._policy, self._boot_id = name, api, policy, boot_id
        self._log = log or say
        self._clock = clock
        self._wake, self._stopping = threading.Condition(), False
        self._node: dict[str, Any] | None = None
        self._reading: dict[str, Any] | None = None
        self._news = False
        self._tokens, self._refilled = float(BURST), clock()
        self._told: tuple[str, str] | None = None
        self._refusals = 0
        self.counts: Counter[str] = Counter()
        self.error_since: tuple[str, float] | None = None

    # -- inputs -------------------------------------------------------------------------------

    def saw_node(self, node: dict[str, Any] | None) -> None:
        """The node as the watch shows it; None when it is gone."""
        with self._wake:
            if not _older(node, self._node):
                self._node, self._news = node, True
                self._wake.notify()

    def saw_reading(self, reading: dict[str, Any]) -> None:
        """What NVML shows now."""
        kind = (reading.get("error") or {}).get("type")
        with self._wake:
            self._reading, self._news = reading, True
            if kind is None:
                self.error_since = None
            elif self.error_since is None or self.error_since[0] != kind:
                self.error_since = (kind, self._clock())
            self._wake.notify()
        self._log(f"NVML: {kind}" if kind else f"NVML: {_sizes(reading)}")

    def watch(self) -> None:
        """Follow the node until `stop`; what breaks is tried again within seconds."""
        pause = FIRST_PAUSE_S
        while not self._stopping:
            began = self._clock()
            try:
                for node in self._api.follow(self.name):
                    self.saw_node(node)
            except Lost as lost:
                self.counts["watch_lost"] += 1
                if pause == FIRST_PAUSE_S:
                    self._log(f"the watch broke, trying again: {lost}")
            if self._clock() - began > LONGEST_PAUSE_S:
                pause = FIRST_PAUSE_S  # it worked: what comes next is a new trouble
            with self._wake:
                self._wake.wait_for(lambda: self._stopping, pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE_S / 2)

    def stop(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        self._api.close()

    # -- work ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Write what has to be written, until `stop`."""
        pause, next_look = FIRST_PAUSE_S, 0.0
        while not self._stopping:
            failed = self.step()
            if failed is None:
                pause = FIRST_PAUSE_S
                next_look = LOOK_S
            else:
                next_look = max(failed, pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, LONGEST_PAUSE_S)
            with self._wake:
                # After a failure news do not shorten the wait: they would make a storm of tries.
                self._wake.wait_for(
                    lambda calm=failed is None: self._stopping or (self._news and calm), next_look
                )

    def step(self) -> float | None:
        """One look and what follows from it -> None, or the least seconds until another try."""
        with self._wake:
            node, reading, self._news = self._node, self._reading, False
        if node is None:
            return None
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        found = plan(node, reading, self._policy(), self._boot_id, now)
        if found is None:
            return None
        try:
            if found.status:
                return self._write(found, f"/api/v1/nodes/{quote(self.name)}/status", found.status)
            if found.spec:
                return self._write(found, f"/api/v1/nodes/{quote(self.name)}", found.spec)
            self._tell(node, found)
        except Lost as lost:
            self.counts["lost"] += 1
            self._log(f"no answer, trying again: {lost}")
            return 0.0
        return None

    def _write(self, found: Plan, path: str, operations: list[dict[str, Any]]) -> float | None:
        """One patch; its answer is the node that the next step looks at."""
        wait = self._take_token()
        if wait:
            self.counts["held_back"] += 1
            return wait
        self.counts["patches"] += 1
        status, answer = self._api.patch(path, operations)
        if status in (404, 409, 422):
            # Replaced, deleted, or changed meanwhile: look before the next try.
            self.counts["conflicts"] += 1
            status, answer = self._api.node(self.name)
            with self._wake:
                self._node, self._news = (answer if status == 200 else None), True
            return 0.0
        self._refusals = self._refusals + 1 if status in (401, 403) else 0
        if status != 200:
            self.counts["refused"] += 1
            said = answer.get("message") or answer
            self._log(f"the API server answers {status} to the patch of {path}: {said}")
            return min(REFUSED_S, 0.5 * 2**self._refusals) if status in (401, 403) else 1.0
        with self._wake:
            if not _older(answer, self._node):
                self._node, self._news = answer, True
        what = found.decision.reason if found.decision and path.endswith("/status") else "taint"
        self._log(f"wrote {path}: {what} ({found.reason})")
        return None

    def _take_token(self) -> float:
        """0 when a write may go out, else the seconds until one may."""
        now = self._clock()
        self._tokens = min(float(BURST), self._tokens + (now - self._refilled) / REFILL_S)
        self._refilled = now
        if self._tokens < 1:
            return (1 - self._tokens) * REFILL_S
        self._tokens -= 1
        return 0.0

    def _tell(self, node: dict[str, Any], found: Plan) -> None:
        """An Event when what stands has changed; one that is lost is not sent again."""
        uid = node["metadata"]["uid"]
        state = (uid, found.reason)
        if self._told == state:
            return
        first, self._told = self._told is None, state
        if first and found.ready and self.counts["patches"] == 0:
            return  # an agent that started again and found all as it should be
        self._api.request("POST", EVENTS, event(node, found, self.name))

    # -- figures ------------------------------------------------------------------------------

    def metrics(self) -> str:
        """The agent's figures as Prometheus text."""
        node, policy, reading = self._node, self._policy(), self._reading
        published = stands(node, policy["resource"]) if node and policy else None
        gpus = [g for g in (reading or {}).get("gpus") or [] if g.get("reserved_mib") is not None]
        usable = sum(gpu["total_mib"] - gpu["reserved_mib"] for gpu in gpus)
        rows = [("gpushare_gpus", "gauge", len(gpus))]
        # What is not known has no row: a 0 would be a figure.
        rows += [("gpushare_usable_bytes", "gauge", usable * MIB)] if gpus else []
        if published is not None:
            rows.append(("gpushare_published_bytes", "gauge", published * MIB))
        names = ("patches", "conflicts", "refused", "held_back", "lost", "watch_lost")
        rows += [(f"gpushare_{name}_total", "counter", self.counts[name]) for name in names]
        return "".join(f"# TYPE {name} {kind}\n{name} {value}\n" for name, kind, value in rows)


def say(text: str) -> None:
    """A line of the pod's log."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def event(node: dict[str, Any], found: Plan, name: str) -> dict[str, Any]:
    """A core/v1 Event about the node, in `default`, where events of cluster-wide objects live."""
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{int(now * 1e9):x}", "namespace": "default"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Node",
            "name": name,
            "uid": node["metadata"]["uid"],
        },
        "reason": found.reason,
        "message": found.message[:1024],
        "type": "Normal" if found.ready else "Warning",
        "source": {"component": "gpushare-agent", "host": name},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }


def _older(new: dict[str, Any] | None, old: dict[str, Any] | None) -> bool:
    """Whether it is from before our own patch; versions of one object are ordered."""
    if new is None or old is None or new["metadata"]["uid"] != old["metadata"]["uid"]:
        return False
    versions = [one["metadata"].get("resourceVersion") or "" for one in (new, old)]
    return all(one.isdigit() for one in versions) and int(versions[0]) < int(versions[1])


def _sizes(reading: dict[str, Any]) -> str:
    return ", ".join(
        f"{gpu.get('name')} {gpu.get('total_mib')} MiB, {gpu.get('reserved_mib')} MiB reserved"
        + (f" ({gpu['error']})" if gpu.get("error") else "")
        for gpu in reading["gpus"]
    )
