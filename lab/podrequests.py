"""What the kubelets ask of the API server, in a thread of its own.

So a process that exits is started again while the API server is slow, or is not there at all.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Condition

from lab import LabError
from lab.controlplane import ControlPlane
from lab.podstate import Pod, pod_path

log = logging.getLogger("lab.pods")
RETRY_S = 1.0
_STRATEGIC = "application/strategic-merge-patch+json"


class PodRequests:
    """Prepares, refreshes, reports and removes pods; `changed` guards them and is notified."""

    def __init__(self, plane: ControlPlane, changed: Condition, wake: Callable[[], None]) -> None:
        self._plane, self._changed, self._wake = plane, changed, wake
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"lab-pods-{plane.name}")
        # Pod UID -> when its removal is asked for again.
        self._finishing: dict[str, float] = {}

    def stop(self) -> None:
        """Drop what was not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def due(self, pod: Pod, now: float) -> None:
        """Begin what the pod needs next, one request at a time."""
        if pod.busy:
            return
        files = pod.files
        if not pod.prepared:
            if now >= pod.prepare_due:
                self._begin(pod, self._prepare)
        elif now >= files.renew_due or (pod.write_due is not None and now >= pod.write_due):
            self._begin(pod, self._refresh)
        elif pod.status_due is not None and now >= pod.status_due:
            pod.status_due = None
            self._begin(pod, self._tell)

    def finish(self, body: dict, now: float) -> None:
        """Let the API server remove a pod whose processes are gone; asked again until it is."""
        uid = body["metadata"]["uid"]
        if now < self._finishing.get(uid, 0.0):
            return
        self._finishing = {u: due for u, due in self._finishing.items() if due > now}
        self._finishing[uid] = now + RETRY_S
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}

        def go() -> None:
            try:
                self._plane.request("DELETE", pod_path(body), options)
            except LabError as error:
                log.warning("pod %s: %s", body["metadata"]["name"], error)

        self._pool.submit(go)

    def _begin(self, pod: Pod, work: Callable[[Pod], None]) -> None:
        pod.busy = True

        def go() -> None:
            try:
                work(pod)
            except Exception:
                log.exception("pod %s", pod.name)
            finally:
                with self._changed:
                    pod.busy = False
                    self._wake()

        self._pool.submit(go)

    def _prepare(self, pod: Pod) -> None:
        try:
            pod.files.renew_tokens()
            pod.files.write()
        except LabError as error:
            log.warning("pod %s waits: %s", pod.name, error)
            with self._changed:
                pod.prepare_due = time.monotonic() + RETRY_S
                for container in pod.containers:
                    container.waits_for = ("ContainerCreating", str(error))
            self._tell(pod)
            return
        with self._changed:
            pod.prepared = True

    def _refresh(self, pod: Pod) -> None:
        """Tokens and ConfigMaps of a pod that runs; what fails stays as it was for a while."""
        pod.write_due = None
        try:
            if time.monotonic() >= pod.files.renew_due:
                pod.files.renew_tokens()
            pod.files.write()
        except LabError as error:
            log.warning("pod %s: %s", pod.name, error)
            pod.write_due = time.monotonic() + RETRY_S
            pod.files.renew_due = min(pod.files.renew_due, pod.write_due)

    def _tell(self, pod: Pod) -> None:
        with self._changed:
            status = pod.status()
        try:
            path = f"{pod_path(pod.body)}/status"
            code, answer = self._plane.request("PATCH", path, status, _STRATEGIC)
        except LabError as error:
            code, answer = 503, error
        if code >= 300 and code != 404:
            log.warning("pod %s: its status was not taken: %s %s", pod.name, code, answer)
            with self._changed:
                pod.status_due = time.monotonic() + RETRY_S
