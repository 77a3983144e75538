# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One run at a time on a cluster: an SSM parameter that is made without overwrite, which is atomic.

The parameter is there while a run goes on, and names its owner. Taking one over is decided by the
version that SSM gives the write (AWS Systems Manager API reference, PutParameter: Version): of two
that write over the same lock, the one with the next version has it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._errors import Conflict, aws_errors
from ansible_collections.gpushare.eks.plugins.module_utils._pool_names import CLUSTER_TAG
from ansible_collections.gpushare.eks.plugins.module_utils._ssm import code

try:
    from botocore.exceptions import ClientError
except ImportError:  # the modules' door reports a missing boto3 itself
    ClientError = Exception

SCHEMA = 1


@dataclass(frozen=True)
class Held:
    """A lock as it stands: record {"id", "who", "job", "since"}, SSM's version, age in seconds."""

    record: Mapping[str, Any]
    version: int
    age_s: float


def parameter(cluster_name: str) -> str:
    """The name of a cluster's lock."""
    return f"/gpushare/{cluster_name}/run-lock"


class RunLock:
    """The lock of one cluster. ssm: a boto3 client; clock: seconds since the epoch."""

    def __init__(self, ssm: Any, cluster_name: str, clock: Callable[[], float] = time.time) -> None:
        self._ssm, self._cluster, self._clock = ssm, cluster_name, clock
        self.name = parameter(cluster_name)
        self._what = f"run lock of cluster {cluster_name} (SSM parameter {self.name})"

    def read(self) -> Held | None:
        """The lock as it stands, or None."""
        with aws_errors(self._what):
            try:
                found = self._ssm.get_parameter(Name=self.name)["Parameter"]
            except ClientError as error:
                if code(error) == "ParameterNotFound":
                    return None
                raise
        try:
            record = json.loads(found["Value"])
        except ValueError:
            record = {}
        # What somebody else wrote there still is a lock, of an owner who is not known.
        record = record if isinstance(record, dict) else {}
        age = self._clock() - found["LastModifiedDate"].timestamp()
        return Held(record, int(found["Version"]), max(0.0, age))

    def acquire(
        self, owner: Mapping[str, str], *, take_from: str | None, stale_after_s: float
    ) -> tuple[Held | None, bool]:
        """(who had it before, whether this run had it already). Raises Conflict.

        take_from: the id of a run that has certainly ended. A lock older than stale_after_s is
        taken from anybody; 0 takes it at once.
        """
        if self._create(owner):
            return None, False
        held = self.read()
        if held is None:  # released between the two calls
            if self._create(owner):
                return None, False
            held = self.read()
        if held is None:
            raise self._refused(None)
        if held.record.get("id") == owner["id"]:
            return held, True
        known_dead = take_from is not None and held.record.get("id") == take_from
        if not known_dead and held.age_s < stale_after_s:
            raise self._refused(held)
        version = self._put(owner, Overwrite=True)
        if version != held.version + 1:
            # Somebody took it in the same moment, and was first: theirs has to stand.
            winner = self._version(held.version + 1)
            if winner is not None:
                self._write(winner, Overwrite=True)
            raise self._refused(self.read())
        return held, False

    def release(self, owner_id: str) -> Held | None:
        """Give it up when it is this run's; returns the lock that was there, or None."""
        held = self.read()
        if held is None or held.record.get("id") != owner_id:
            return held
        with aws_errors(self._what):
            try:
                self._ssm.delete_parameter(Name=self.name)
            except ClientError as error:
                if code(error) != "ParameterNotFound":
                    raise
        return held

    def _create(self, owner: Mapping[str, str]) -> bool:
        try:
            tags = [{"Key": CLUSTER_TAG, "Value": self._cluster}]
            self._put(owner, Overwrite=False, Tags=tags)
        except _Exists:
            return False
        return True

    def _put(self, owner: Mapping[str, str], **how: Any) -> int:
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))
        return self._write(json.dumps({"schema": SCHEMA, **owner, "since": since}), **how)

    def _write(self, value: str, **how: Any) -> int:
        with aws_errors(self._what):
            try:
                answer = self._ssm.put_parameter(
                    Name=self.name,
                    Value=value,
                    Type="String",
                    Description="Who changes this cluster now (gpushare.eks)",
                    **how,
                )
            except ClientError as error:
                if code(error) == "ParameterAlreadyExists":
                    raise _Exists from error
                raise
        return int(answer["Version"])

    def _version(self, number: int) -> str | None:
        """The value that the lock had in one version."""
        with aws_errors(self._what):
            pages = self._ssm.get_paginator("get_parameter_history").paginate(Name=self.name)
            for page in pages:
                for one in page["Parameters"]:
                    if one["Version"] == number:
                        return one["Value"]
        return None

    def _refused(self, held: Held | None) -> Conflict:
        record = held.record if held else {}
        job = f", job {record['job']}" if record.get("job") else ""
        who = f"{record.get('who') or 'somebody'}{job}"
        since = f" since {record['since']}" if record.get("since") else ""
        minutes = int(held.age_s // 60) if held else 0
        return Conflict(
            f"Cluster {self._cluster} is being changed by another run: {who}{since} "
            f"({minutes} min)",
            object=self._what,
            cause=f"{self.name} is there",
            remedy="wait until that run has ended. If it was killed on another machine, take the "
            "lock from it: -e take_run_lock=true",
            holder=dict(record),
            age_s=int(held.age_s) if held else None,
        )


class _Exists(Exception):
    """The parameter is there already."""
