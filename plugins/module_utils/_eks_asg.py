# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Tags on the Auto Scaling groups behind node groups: EKS does not hand a node group's tags on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils._errors import aws_errors
from ansible_collections.gpushare.eks.plugins.module_utils._sync import Outcome

# Ours to purge: what Cluster Autoscaler reads of a group without nodes. Not
# k8s.io/cluster-autoscaler/enabled and /<cluster>: EKS writes these for every managed node group.
PREFIX = "k8s.io/cluster-autoscaler/node-template/"
# A filter of DescribeTags takes no more values than this; one write takes fewer tags than this.
_BATCH = 100


def sync_tags(
    client: Any,
    groups: Mapping[str, list[str]],
    wanted: Mapping[str, Mapping[str, str]],
    outcomes: Mapping[str, Outcome],
    *,
    check_mode: bool,
) -> dict[str, Outcome]:
    """The outcomes with `asg_tags` before and after, and the tags written where they differ.

    groups: node group -> its Auto Scaling groups; wanted: node group -> tags. Node groups that are
    not in `wanted` keep their tags. A group that is still to be made only shows what it will get.
    """
    names = sorted({group for name in wanted for group in groups.get(name, [])})
    found = _read(client, names)
    results = dict(outcomes)
    writes: list[dict[str, Any]] = []
    deletes: list[dict[str, Any]] = []
    for name, tags in wanted.items():
        if name not in outcomes:
            continue
        before, after = {}, dict(tags)
        for group in groups.get(name, []):
            there = {
                key: value
                for key, value in found.get(group, {}).items()
                if key in tags or key.startswith(PREFIX)
            }
            before.update(there)
            gone = [key for key in there if key not in tags]
            deletes += [_tag(group, key) for key in gone]
            writes += [
                {**_tag(group, key), "Value": value, "PropagateAtLaunch": False}
                for key, value in tags.items()
                if there.get(key) != value
            ]
            if len(groups[name]) > 1 and there != tags:
                # One of several groups differs: that one is what the diff has to show.
                before = there
        results[name] = _with_tags(outcomes[name], before, after)
    if not check_mode:
        with aws_errors(f"tags of the Auto Scaling groups {', '.join(names)}"):
            for batch in _batches(writes):
                client.create_or_update_tags(Tags=batch)
            for batch in _batches(deletes):
                client.delete_tags(Tags=batch)
    return results


def _read(client: Any, names: list[str]) -> dict[str, dict[str, str]]:
    """{group: {key: value}}, in one paged call for the whole fleet."""
    found: dict[str, dict[str, str]] = {}
    with aws_errors(f"tags of the Auto Scaling groups {', '.join(names)}"):
        for batch in _batches(names):
            pages = client.get_paginator("describe_tags").paginate(
                Filters=[{"Name": "auto-scaling-group", "Values": batch}]
            )
            for page in pages:
                for tag in page["Tags"]:
                    found.setdefault(tag["ResourceId"], {})[tag["Key"]] = tag.get("Value", "")
    return found


def _with_tags(outcome: Outcome, before: dict[str, str], after: dict[str, str]) -> Outcome:
    shown_before = {**outcome.before, "asg_tags": before} if outcome.before else {}
    shown_after = {**outcome.after, "asg_tags": after}
    return replace(
        outcome,
        changed=outcome.changed or shown_before != shown_after,
        before=shown_before,
        after=shown_after,
    )


def _tag(group: str, key: str) -> dict[str, Any]:
    return {"ResourceId": group, "ResourceType": "auto-scaling-group", "Key": key}


def _batches(items: list[Any]) -> list[list[Any]]:
    return [items[start : start + _BATCH] for start in range(0, len(items), _BATCH)]
