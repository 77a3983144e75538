# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One engine for everything EKS: a resource is data (`Resource`), the engine brings it to a state.

It adopts what a killed run left (CREATING, UPDATING, DELETING, FAILED), refuses changes that AWS
cannot make, and works on the items of a list side by side. Only describe and list in check mode.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._aws import MAX_CONNECTIONS
from ansible_collections.gpushare.eks.plugins.module_utils._eks_base import (
    BROKEN,
    BUSY,
    Call,
    Resource,
    View,
    issues,
    status,
    tag_calls,
)
from ansible_collections.gpushare.eks.plugins.module_utils._eks_remake import may_remake
from ansible_collections.gpushare.eks.plugins.module_utils._eks_waits import Waits
from ansible_collections.gpushare.eks.plugins.module_utils._errors import (
    Conflict,
    GpushareError,
    InvalidInput,
    NotFound,
    aws_errors,
)
from ansible_collections.gpushare.eks.plugins.module_utils._sync import Outcome, merge, sync


class Engine(Waits):
    """Brings objects of one kind in one cluster to their desired state."""

    def __init__(
        self,
        client: Any,
        resource: Resource,
        cluster_name: str,
        *,
        check_mode: bool = False,
        wait: bool = True,
        timeout: float,
        recreate_failed: bool = True,
        purge_tags: bool = True,
        keep_tags: Collection[str] = (),
        progress: Callable[[str], Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Any] = time.sleep,
    ) -> None:
        self.client = client
        self.resource = resource
        self.cluster_name = cluster_name
        self.check_mode = check_mode
        self.wait = wait
        self.timeout = timeout
        self.recreate_failed = recreate_failed
        self.purge_tags = purge_tags
        # Names whose other tags are nobody's business here: the user gave none for them.
        self.keep_tags = frozenset(keep_tags)
        self.warnings: list[str] = []
        # What was there before our first write, by name: a failure half-way still tells the change.
        self._before: dict[str, View] = {}
        self._progress = progress
        self._timing = {"clock": clock, "sleep": sleep}

    def title(self, name: str) -> str:
        if self.resource.scope_param is None:
            return f"EKS {self.resource.kind} {name}"
        return f"EKS {self.resource.kind} {name} of cluster {self.cluster_name}"

    def identity(self, name: str, raw: Any = None) -> dict[str, str]:
        """What EKS knows the object by; raw: the object itself, where EKS numbers this kind."""
        scope, param = self.resource.scope_param, self.resource.name_param
        own = {param: raw[param] if self.resource.locate and raw else name}
        return {**({scope: self.cluster_name} if scope else {}), **own}

    def read(self, name: str) -> Any:
        """The raw object, or None where neither it nor its cluster exists."""
        locate, identity = self.resource.locate, self.identity(name)
        try:
            with aws_errors(self.title(name)):
                if locate:
                    number = locate(self.client, self.cluster_name, name)
                    if number is None:
                        return None
                    identity[self.resource.name_param] = number
                answer = getattr(self.client, f"describe_{self.resource.member}")(**identity)
                raw = answer[self._answer_member]
                return self.resource.complete(self.client, identity, raw)
        except NotFound:
            return None

    def names(self) -> list[str]:
        """The names of all such objects of the cluster; none where the cluster is missing."""
        try:
            with aws_errors(f"EKS {self.resource.kind}s of cluster {self.cluster_name}"):
                pages = self.client.get_paginator(self.resource.list_operation).paginate(
                    **{self.resource.scope_param: self.cluster_name}
                )
                items = [item for page in pages for item in page[self.resource.list_member]]
                return [self.resource.list_name(item) for item in items]
        except NotFound:
            return []

    def manage(
        self, state: str, wanted: Mapping[str, View]
    ) -> tuple[dict[str, Outcome], dict[str, GpushareError]]:
        """Bring all to the state, side by side: outcomes and errors by name."""
        outcomes: dict[str, Outcome] = {}
        errors: dict[str, GpushareError] = {}

        def work(name: str) -> Outcome | GpushareError:
            try:
                return self.one(name, state, wanted[name])
            except GpushareError as error:
                return error

        names = list(wanted)
        if len(names) > 1:
            with ThreadPoolExecutor(min(len(names), MAX_CONNECTIONS)) as pool:
                results = list(pool.map(work, names))
        else:
            results = [work(name) for name in names]
        for name, result in zip(names, results, strict=True):
            if isinstance(result, GpushareError):
                errors[name] = result
            else:
                outcomes[name] = result
        return outcomes, errors

    def one(self, name: str, state: str, desired: View) -> Outcome:
        """Bring one object to its state. desired: only the options that the user gave.

        An error half-way carries `changed` and `diff` of what was done before it.
        """
        try:
            try:
                return self._one(name, state, desired)
            except Conflict as race:
                # Somebody made or changed it between our look and our call: look again, once.
                if race.facts.get("code") != "ResourceInUseException" or state != "present":
                    raise
                return self._one(name, state, desired)
        except GpushareError as error:
            if name in self._before:
                error.with_partial(**self._so_far(name))
            raise

    def _so_far(self, name: str) -> dict[str, Any]:
        """{"changed", "diff"} by another look; without one the change is told without its end."""
        before = self._before[name]
        try:
            raw = self.read(name)
        except GpushareError:
            return {"changed": True}
        after = self.resource.view(raw) if raw is not None else {}
        return merge({self.title(name): Outcome(before != after, before, after, raw)})

    def _one(self, name: str, state: str, desired: View) -> Outcome:
        shown = self._shown(desired)
        current = self.read(name)
        if state == "present" and status(current) == "DELETING":
            # It will have to be made: what could not be made is refused before the wait.
            self.resource.defaults(desired)
        current = self._adopt(name, current, state, shown)
        wreck: View | None = None
        broken = state == "present" and status(current) in BROKEN
        if broken:
            allowed, owner = self.recreate_failed, self.cluster_name
            warning = may_remake(self.resource, self.title(name), current, owner, allowed=allowed)
        if state == "present" and (current is None or broken):
            # In check mode, too: what could not be made is refused there already.
            desired = self.resource.defaults(desired)
            shown = self._shown(desired)
        if broken:
            self.warnings.append(warning)
            wreck = {**self.resource.view(current), "status": status(current)}
            if not self.check_mode:
                self._delete(name, current, wait=True)
            current = None
        if state == "absent" and current is not None:
            # In check mode, too: a deletion that EKS would refuse is refused there already.
            self.resource.guard_delete(current)
        outcome = sync(
            state=state,
            current=current,
            desired=shown,
            differs=lambda before, want: self._differs(name, before, want),
            create=lambda: self._create(name, desired),
            update=lambda now, changes: self._update(name, now, changes, desired),
            delete=lambda now: self._delete(name, now, wait=self.wait),
            check_mode=self.check_mode,
            view=self.resource.view,
        )
        if wreck is not None:
            outcome = replace(outcome, before=wreck)
        return self._finish(name, state, outcome, desired, made=current is None)

    def _shown(self, desired: View) -> View:
        return {k: v for k, v in desired.items() if k not in self.resource.unseen}

    def _adopt(self, name: str, current: Any, state: str, desired: View) -> Any:
        """Wait for a change that is under way already, unless nothing depends on its end."""
        phase = status(current)
        if phase not in BUSY:
            return current
        if self.check_mode:
            return None if phase == "DELETING" else current
        if phase == "DELETING":
            if state == "absent" and not self.wait:
                return None
            self._wait_gone(name)
            return None
        if state == "present" and not self.wait:
            # Nothing is refused yet: what it is now is not what it will be.
            if not self._changes(name, self.resource.view(current), desired):
                return current
            self.warnings.append(f"{self.title(name)} was {phase}: waited for that, then changed")
        return self._wait_settled(name)

    def _changes(self, name: str, before: View, wanted: View) -> View:
        resource, changes = self.resource, {}
        for key, value in wanted.items():
            if key in resource.adjust:
                value = resource.adjust[key](before, wanted)
            if key == "tags" and (not self.purge_tags or name in self.keep_tags):
                value = {**(before.get("tags") or {}), **value}
            if value != before.get(key):
                changes[key] = value
        return changes

    def _differs(self, name: str, before: View, wanted: View) -> View:
        resource, changes = self.resource, self._changes(name, before, wanted)
        for key in changes:
            if key in resource.immutable:
                raise InvalidInput(
                    f"{self.title(name)}: {key} cannot change from {before.get(key)!r} to "
                    f"{changes[key]!r}",
                    object=self.title(name),
                    cause=f"EKS sets {key} at creation only",
                    remedy=resource.immutable[key],
                    field=key,
                    before=before.get(key),
                    wanted=changes[key],
                )
        resource.refuse(before, changes, wanted)
        return changes

    def _create(self, name: str, desired: View) -> Any:
        with aws_errors(self.title(name)):
            method = getattr(self.client, f"create_{self.resource.member}")
            identity = self.identity(name)
            if self.resource.create_identity:
                del identity[self.resource.name_param]
                identity.update(self.resource.create_identity(name))
            answer = method(**identity, **self.resource.request(desired))
        self._before.setdefault(name, {})
        raw = answer[self._answer_member]
        follow_up = self.resource.follow_up(desired)
        self._run(name, raw, follow_up)
        return self.read(name) or raw if follow_up else raw

    def _update(self, name: str, current: Any, changes: View, desired: View) -> Any:
        before = self.resource.view(current)
        calls = self.resource.updates(before, changes, desired)
        if "tags" in changes:
            calls += tag_calls(before.get("tags") or {}, changes["tags"])
        self._run(name, current, calls)
        return self.read(name) or current

    def _run(self, name: str, raw: Any, calls: list[Call]) -> None:
        """The calls in order; EKS takes the next one only when the last update has ended."""
        for number, call in enumerate(calls, 1):
            if call.operation in ("tag_resource", "untag_resource"):
                target = {"resourceArn": raw[self.resource.arn_member]}
            elif call.cluster_param:
                target = {call.cluster_param: self.cluster_name}
            else:
                target = self.identity(name, raw)
            with aws_errors(self.title(name)):
                answer = getattr(self.client, call.operation)(**target, **call.params) or {}
            self._before.setdefault(name, self.resource.view(raw))
            if "update" in answer and (self.wait or number < len(calls)):
                self._wait_update(name, answer["update"])

    def _delete(self, name: str, current: Any, *, wait: bool) -> None:
        try:
            with aws_errors(self.title(name)):
                delete = getattr(self.client, f"delete_{self.resource.member}")
                delete(**self.identity(name, current))
        except NotFound:
            return
        self._before.setdefault(name, self.resource.view(current))
        if wait and self.resource.has_states:
            self._wait_gone(name)

    def _finish(
        self, name: str, state: str, outcome: Outcome, desired: View, *, made: bool
    ) -> Outcome:
        """Wait until what is there is good, and say so where it is not."""
        value = outcome.value
        phase = status(value)
        if state == "absent" or self.check_mode or phase is None:
            return outcome

        def good(raw: Any) -> bool:
            return status(raw) == "ACTIVE" or bool(self.resource.accepts(raw, desired))

        demanded = made or self.resource.must_be_good
        if self.wait and not good(value) and (phase in BUSY or demanded):
            value = self._wait(
                name,
                lambda raw: good(raw) or (not demanded and status(raw) not in BUSY),
                failed=lambda raw: self._wreck(name, raw),
            )
        if status(value) not in BUSY | {"ACTIVE"}:
            reason = self.resource.accepts(value, desired)
            self.warnings.append(
                f"{self.title(name)} is {status(value)}: {issues(value) or 'EKS gives no reason'}"
                + (f"; accepted: {reason}" if reason else "")
            )
        return replace(outcome, value=value)

    @property
    def _answer_member(self) -> str:
        """`access_entry` answers as accessEntry; the others as they are called."""
        head, *rest = self.resource.member.split("_")
        return self.resource.answer_member or head + "".join(part.capitalize() for part in rest)
