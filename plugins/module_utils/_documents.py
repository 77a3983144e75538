# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""SSM command documents of ours: content by hash, the newest version is the default, tags."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._aws import tag_list, tags_of
from ansible_collections.gpushare.eks.plugins.module_utils._errors import (
    Conflict,
    InvalidInput,
    aws_errors,
)
from ansible_collections.gpushare.eks.plugins.module_utils._pool_names import CLUSTER_TAG
from ansible_collections.gpushare.eks.plugins.module_utils._scripts import DOCUMENT_PREFIX
from ansible_collections.gpushare.eks.plugins.module_utils._ssm import code
from ansible_collections.gpushare.eks.plugins.module_utils._sync import Outcome, sync

try:
    from botocore.exceptions import ClientError
except ImportError:  # the modules' door reports a missing boto3 itself
    ClientError = Exception

USER_TAG = f"{CLUSTER_TAG}/"  # and the cluster's name: one document serves several clusters
LIMIT_BYTES = 65536  # AWS Systems Manager quotas: document size


def wanted(name: str, content: dict[str, Any], tags: dict[str, str]) -> dict[str, Any]:
    """The desired view {"name", "hash", "content", "tags"}; refuses what SSM cannot take."""
    text = as_text(content)
    if len(text.encode()) > LIMIT_BYTES:
        raise InvalidInput(
            f"SSM document {name} takes {len(text.encode())} bytes",
            object=f"SSM document {name}",
            remedy=f"shorten its content to {LIMIT_BYTES} bytes",
            field="content",
        )
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"name": name, "hash": digest, "content": content, "tags": tags}


def as_text(content: dict[str, Any]) -> str:
    """The one way in which we write a document: the same content always has the same hash."""
    return json.dumps(content, separators=(",", ":"))


class Documents:
    """The documents of one account and region. ssm: a boto3 client."""

    def __init__(self, ssm: Any) -> None:
        self._ssm = ssm

    def read(self, name: str, desired: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """The default version's view plus "version", or None; matching content is not fetched."""
        with aws_errors(f"SSM document {name}"):
            try:
                found = self._ssm.describe_document(Name=name)["Document"]
            except ClientError as error:
                if code(error) == "InvalidDocument":
                    return None
                raise
            answer = self._ssm.list_tags_for_resource(ResourceType="Document", ResourceId=name)
            tags = tags_of(answer.get("TagList"))
            view = {"name": name, "hash": found["Hash"], "version": found["DefaultVersion"]}
            if desired and found["Hash"] == desired["hash"]:
                return {**view, "content": desired["content"], "tags": tags}
            text = self._ssm.get_document(Name=name)["Content"]
        try:
            content: Any = json.loads(text)
        except ValueError:
            content = text
        return {**view, "content": content, "tags": tags}

    def sync(
        self,
        name: str,
        desired: dict[str, Any] | None,
        *,
        state: str,
        cluster: str,
        check_mode: bool,
    ) -> Outcome:
        """Bring the document to `desired`, or away. cluster: whose run this is, "" for nobody's.

        One document serves all clusters of a region; each has a tag of its own on it, and the last
        one takes the document away.
        """
        current = self.read(name, desired)
        if state == "absent" and cluster and current and self._others(current, cluster):
            return self._leave(name, current, cluster, check_mode)
        if desired is not None and cluster:
            tags = {**desired["tags"], USER_TAG + cluster: "used"}
            desired = {**desired, "tags": tags}

        def differs(before: dict[str, Any], want: dict[str, Any]) -> dict[str, Any]:
            changes: dict[str, Any] = {}
            if before["content"] != want["content"]:
                changes.update(hash=want["hash"], content=want["content"])
            if any(before["tags"].get(key) != value for key, value in want["tags"].items()):
                changes["tags"] = {**before["tags"], **want["tags"]}
            return changes

        return sync(
            state=state,
            current=current,
            desired=desired,
            differs=differs,
            create=lambda: self._create(desired),
            update=lambda current, changes: self._update(name, current, changes, desired),
            delete=lambda current: self.delete(name),
            check_mode=check_mode,
            view=_view,
        )

    def release(self, name: str, cluster: str, *, check_mode: bool) -> Outcome:
        """Take this cluster's tag off the document, and the document away with the last one."""
        return self.sync(name, None, state="absent", cluster=cluster, check_mode=check_mode)

    @staticmethod
    def _others(current: dict[str, Any], cluster: str) -> list[str]:
        """The other clusters that use the document."""
        users = [key.removeprefix(USER_TAG) for key in current["tags"] if key.startswith(USER_TAG)]
        return sorted(set(users) - {cluster})

    def _leave(self, name: str, current: dict[str, Any], cluster: str, check_mode: bool) -> Outcome:
        """Others use it: only this cluster's tag goes."""
        mine, before = USER_TAG + cluster, _view(current)
        tags = {key: value for key, value in current["tags"].items() if key != mine}
        changed = tags != current["tags"]
        if changed and not check_mode:
            with aws_errors(f"SSM document {name}"):
                self._ssm.remove_tags_from_resource(
                    ResourceType="Document", ResourceId=name, TagKeys=[mine]
                )
        return Outcome(changed, before, {**before, "tags": tags}, {**current, "tags": tags})

    def _create(self, desired: dict[str, Any]) -> dict[str, Any]:
        with aws_errors(f"SSM document {desired['name']}"):
            self._ssm.create_document(
                Name=desired["name"],
                Content=as_text(desired["content"]),
                DocumentType="Command",
                DocumentFormat="JSON",
                Tags=tag_list(desired["tags"]),
            )
        return self.read(desired["name"], desired)

    def _update(
        self, name: str, current: dict[str, Any], changes: dict[str, Any], desired: dict[str, Any]
    ) -> dict[str, Any]:
        with aws_errors(f"SSM document {name}"):
            if "content" in changes:
                version = self._new_version(name, desired)
                self._ssm.update_document_default_version(Name=name, DocumentVersion=version)
            if "tags" in changes:
                self._ssm.add_tags_to_resource(
                    ResourceType="Document", ResourceId=name, Tags=tag_list(changes["tags"])
                )
        return self.read(name, desired)

    def _new_version(self, name: str, desired: dict[str, Any]) -> str:
        """A version with the wanted content: a new one, or the one that has it already."""
        try:
            answer = self._ssm.update_document(
                Name=name,
                Content=as_text(desired["content"]),
                DocumentFormat="JSON",
                DocumentVersion="$LATEST",
            )
            return answer["DocumentDescription"]["DocumentVersion"]
        except ClientError as error:
            if code(error) != "DuplicateDocumentContent":
                raise
        latest = self._ssm.describe_document(Name=name, DocumentVersion="$LATEST")["Document"]
        for number in range(int(latest["LatestVersion"]), 0, -1):
            try:
                one = self._ssm.describe_document(Name=name, DocumentVersion=str(number))[
                    "Document"
                ]
            except ClientError as error:
                if code(error) not in ("InvalidDocumentVersion", "InvalidDocument"):
                    raise
                continue  # a version that somebody deleted
            if one["Hash"] == desired["hash"]:
                return str(number)
        raise Conflict(
            f"SSM document {name} has the wanted content in a version that cannot be found",
            object=f"SSM document {name}",
            remedy="delete the document and run again",
        )

    def delete(self, name: str) -> None:
        """Delete all versions; a document that is gone already is fine."""
        with aws_errors(f"SSM document {name}"):
            try:
                self._ssm.delete_document(Name=name)
            except ClientError as error:
                if code(error) != "InvalidDocument":
                    raise

    def older(self, names: set[str], cluster: str) -> list[str]:
        """Names of our documents, except `names`, that this cluster uses."""
        found, token = [], {}
        with aws_errors("SSM documents"):
            while True:
                page = self._ssm.list_documents(
                    Filters=[{"Key": "Owner", "Values": ["Self"]}], MaxResults=50, **token
                )
                for one in page["DocumentIdentifiers"]:
                    tags = tags_of(one.get("Tags"))
                    ours = one["Name"].startswith(DOCUMENT_PREFIX) and one["Name"] not in names
                    if ours and USER_TAG + cluster in tags:
                        found.append(one["Name"])
                if not page.get("NextToken"):
                    return sorted(found)
                token = {"NextToken": page["NextToken"]}


def _view(seen: dict[str, Any]) -> dict[str, Any]:
    return {key: seen[key] for key in ("name", "hash", "content", "tags")}
