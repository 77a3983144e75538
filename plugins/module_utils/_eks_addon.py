# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An EKS add-on as data for the engine, and the versions that fit the cluster."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils import _json_schema
from ansible_collections.gpushare.eks.plugins.module_utils._aws import given, own_tags
from ansible_collections.gpushare.eks.plugins.module_utils._eks_base import (
    Call,
    Resource,
    View,
    issues,
)
from ansible_collections.gpushare.eks.plugins.module_utils._errors import (
    InvalidInput,
    NotFound,
    aws_errors,
)
from ansible_collections.gpushare.eks.plugins.module_utils._pool_names import CLUSTER_TAG


class AddonVersions:
    """What AWS offers for one Kubernetes version (None: no cluster yet, in check mode)."""

    def __init__(self, client: Any, kubernetes_version: str | None) -> None:
        self._client = client
        self.kubernetes_version = kubernetes_version
        self._known: dict[str, tuple[list[str], str]] = {}
        self._lock = threading.Lock()

    def of(self, name: str) -> tuple[list[str], str]:
        """(all fitting versions as AWS orders them, the default one) of an add-on."""
        with self._lock:
            if name not in self._known:
                self._known[name] = self._ask(name)
            return self._known[name]

    def _ask(self, name: str) -> tuple[list[str], str]:
        where = f"EKS add-on {name} for Kubernetes {self.kubernetes_version}"
        found: list[dict[str, Any]] = []
        try:
            with aws_errors(where):
                pages = self._client.get_paginator("describe_addon_versions").paginate(
                    addonName=name, kubernetesVersion=self.kubernetes_version
                )
                for page in pages:
                    for addon in page["addons"]:
                        found += addon["addonVersions"]
        except (NotFound, InvalidInput):
            found = []
        if not found:
            raise InvalidInput(
                f"AWS offers no add-on {name!r} for Kubernetes {self.kubernetes_version}",
                remedy="check the name: `aws eks describe-addon-versions` lists all",
                field="name",
                value=name,
            )
        fits = [row["addonVersion"] for row in found]
        default = [row["addonVersion"] for row in found if self._is_default(row)]
        return fits, (default or fits)[0]

    def _is_default(self, row: dict[str, Any]) -> bool:
        return any(
            fit.get("defaultVersion") and fit.get("clusterVersion") == self.kubernetes_version
            for fit in row.get("compatibilities") or []
        )

    def choose(self, name: str, wanted: str, current: str = "") -> str:
        """The version to have: the wanted one if it fits; else what is there, if that fits."""
        if wanted == current != "" or self.kubernetes_version is None:
            return wanted
        fits, default = self.of(name)
        if wanted and wanted not in fits:
            raise InvalidInput(
                f"Add-on {name}: version {wanted} does not fit Kubernetes "
                f"{self.kubernetes_version}; these do: {', '.join(fits)}",
                remedy=f"choose one of them, or leave version out to get {default}",
                field="version",
                value=wanted,
                allowed=fits,
            )
        return wanted or (current if current in fits else default)

    def check(self, name: str, version: str, configuration: Any) -> None:
        """Refuse what the schema of that version has against the configuration, field by field."""
        if not configuration or not version or isinstance(configuration, str):
            # What somebody wrote by hand as YAML stays his.
            return
        with aws_errors(f"configuration schema of EKS add-on {name} {version}"):
            answer = self._client.describe_addon_configuration(addonName=name, addonVersion=version)
        found = _json_schema.problems(configuration, json.loads(answer["configurationSchema"]))
        if found:
            told = [f"configuration{path.removeprefix('$')} {what}" for path, what in found]
            raise InvalidInput(
                f"Add-on {name} {version} does not take its configuration: {'; '.join(told)}",
                object=f"EKS add-on {name}",
                remedy="correct the fields named above; `aws eks describe-addon-configuration "
                f"--addon-name {name} --addon-version {version}` shows the schema",
                field="configuration",
                fields=[f"configuration{path.removeprefix('$')}" for path, _what in found],
            )


def desired(option: dict[str, Any], cluster_name: str) -> View:
    """The view that one item of the option `addons` asks for. An omitted version is ""."""
    configuration = option.get("configuration")
    wanted = given({k: v for k, v in option.items() if k != "configuration"})
    if configuration is not None:
        # As the API will give it back: numbers and texts keep their types, order does not count.
        wanted["configuration"] = json.loads(json.dumps(configuration))
    wanted["tags"] = {**own_tags(wanted.get("tags")), CLUSTER_TAG: cluster_name}
    return {"version": "", "update_failed": False, **wanted}


def view(raw: dict[str, Any]) -> View:
    return {
        "name": raw["addonName"],
        "version": raw.get("addonVersion") or "",
        "configuration": _parsed(raw.get("configurationValues")),
        "service_account_role_arn": raw.get("serviceAccountRoleArn") or "",
        # A failed update leaves the add-on as it was or half changed: it is tried again.
        "update_failed": raw.get("status") == "UPDATE_FAILED",
        "tags": own_tags(raw.get("tags")),
    }


def _parsed(text: str | None) -> Any:
    if not text:
        return {}
    try:
        return json.loads(text)
    except ValueError:
        # Somebody wrote YAML by hand: shown as it is, and replaced by what is wanted.
        return text


def facts(raw: dict[str, Any]) -> dict[str, Any]:
    return {
        "exists": True,
        "cluster_name": raw["clusterName"],
        "arn": raw["addonArn"],
        "status": raw["status"],
        "health_issues": issues(raw),
        **view(raw),
    }


def placeholder(name: str, cluster_name: str, wanted: View) -> dict[str, Any]:
    absent = {"addonName": name, "clusterName": cluster_name, "addonArn": "", "status": "ABSENT"}
    shown = {key: value for key, value in wanted.items() if key not in RESOURCE.unseen}
    return {**facts(absent), **shown, "exists": False}


def request(full: View) -> dict[str, Any]:
    conflicts = full.get("resolve_conflicts", "OVERWRITE")
    optional = {
        "addonVersion": full["version"],
        "configurationValues": _dumped(full.get("configuration")),
        "serviceAccountRoleArn": full.get("service_account_role_arn"),
        "tags": full.get("tags"),
    }
    return {
        # There is nothing to preserve yet: EKS takes PRESERVE on updates only.
        "resolveConflicts": "NONE" if conflicts == "PRESERVE" else conflicts,
        **{key: value for key, value in optional.items() if value},
    }


def updates(before: View, changes: View, wanted: View) -> list[Call]:
    """One call with everything: what UpdateAddon is not told falls back to the add-on's default."""
    if not set(changes) - {"tags"}:
        return []
    after = {**before, **changes}
    configuration = after["configuration"]
    params = {
        "addonVersion": after["version"],
        "resolveConflicts": wanted.get("resolve_conflicts", "OVERWRITE"),
    }
    if configuration or "configuration" in changes:
        params["configurationValues"] = _dumped(configuration) or "{}"
    if after["service_account_role_arn"]:
        params["serviceAccountRoleArn"] = after["service_account_role_arn"]
    return [Call("update_addon", params)]


def _dumped(configuration: Any) -> str:
    if not configuration or isinstance(configuration, str):
        return configuration or ""
    return json.dumps(configuration, sort_keys=True, separators=(",", ":"))


def _accepts(raw: Any, wanted: View) -> str:
    return wanted.get("accept_degraded", "") if (raw or {}).get("status") == "DEGRADED" else ""


RESOURCE = Resource(
    kind="add-on",
    member="addon",
    name_param="addonName",
    list_operation="list_addons",
    list_member="addons",
    view=view,
    facts=facts,
    placeholder=placeholder,
    request=request,
    updates=updates,
    arn_member="addonArn",
    unseen=frozenset({"resolve_conflicts", "accept_degraded"}),
    accepts=_accepts,
    must_be_good=True,
)


def resource(versions: AddonVersions) -> Resource:
    """The resource for one run: versions come from AWS, and only where one has to be chosen."""

    def choose(before: View, wanted: View) -> str:
        return versions.choose(before["name"], wanted["version"], before["version"])

    def defaults(wanted: View) -> View:
        version = versions.choose(wanted["name"], wanted["version"])
        versions.check(wanted["name"], version, wanted.get("configuration"))
        return {**wanted, "version": version}

    def refuse(before: View, changes: View, wanted: View) -> None:
        after = {**before, **changes}
        if {"configuration", "version"} & set(changes):
            versions.check(after["name"], after["version"], after["configuration"])

    return replace(RESOURCE, adjust={"version": choose}, defaults=defaults, refuse=refuse)
