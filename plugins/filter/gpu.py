# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Thin face of the pure modules about pools, shares, admission, the fleet and its policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.gpushare.eks.plugins.module_utils._names import RESOURCE
from ansible_collections.gpushare.eks.plugins.plugin_utils.faces import call, pure


def derive(
    pools: Any,
    cluster_name: str,
    catalog: Mapping[str, Any] | None = None,
    resource: str = RESOURCE,
    zones: list[str] | None = None,
    tags: dict[str, str] | None = None,
    prefix_delegation: bool = False,
    agent: bool = False,
) -> dict[str, Any]:
    """See _pools.derive."""
    try:
        return pure("_pools", "derive")(
            pools,
            catalog or pure("_catalog", "CATALOG"),
            cluster_name=cluster_name,
            resource=resource,
            zones=zones or (),
            tags=tags,
            prefix_delegation=prefix_delegation,
            agent=agent,
        )
    except ValueError as problem:
        raise AnsibleFilterError(f"gpushare.eks.derive refuses:\n{problem}") from problem


def gpu_workload(
    gpu_memory: Any,
    derived: Mapping[str, Any],
    pool: str | None = None,
    gpu_compute_percent: int | None = None,
    framework: str | None = None,
    replicas: int | None = None,
) -> dict[str, Any]:
    """See _shares.workload."""
    return call(
        "gpu_workload",
        "_shares",
        "workload",
        gpu_memory,
        derived=derived,
        pool=pool,
        gpu_compute_percent=gpu_compute_percent,
        framework=framework,
        replicas=replicas,
    )


def gpu_admission(derived: Mapping[str, Any]) -> dict[str, Any]:
    """See _admission.admission."""
    return call("gpu_admission", "_admission", "admission", derived)


def team_quotas(quotas: Any, system_namespaces: list[str] | None = None) -> list[dict[str, Any]]:
    """See _team_quotas.team_quotas."""
    return call(
        "team_quotas",
        "_team_quotas",
        "team_quotas",
        quotas,
        system_namespaces=system_namespaces or (),
    )


def fleet_report(
    seen: Mapping[str, Any],
    derived: Mapping[str, Any],
    readings: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """See _report.report; `seen` holds the nodes and pods of the cluster."""
    if not isinstance(seen, Mapping) or "nodes" not in seen or "pods" not in seen:
        raise AnsibleFilterError(
            "gpushare.eks.fleet_report: give {'nodes': [...], 'pods': [...]} as kubernetes JSON"
        )
    return call(
        "fleet_report",
        "_report",
        "report",
        derived["cluster_name"],
        derived["resource"],
        derived,
        seen["nodes"],
        seen["pods"],
        readings or [],
    )


def fleet_table(report: Mapping[str, Any]) -> str:
    """See _report.table."""
    if not isinstance(report, Mapping) or report.get("schema") != 1:
        raise AnsibleFilterError(
            "gpushare.eks.fleet_table: give a report of fleet_report, schema 1"
        )
    return pure("_report", "table")(report)


def node_config(pool: Mapping[str, Any], cluster: Mapping[str, Any]) -> str:
    """See _node_config.node_config."""
    return call("node_config", "_node_config", "node_config", pool, cluster)


def plugin_configs(
    wanted: Mapping[str, Any],
    deployed: Mapping[str, Any] | None = None,
    hold: list[str] | None = None,
    used: list[str] | None = None,
) -> dict[str, Any]:
    """See _sharing_configs.plan; bodies may be YAML texts, as in the plugin's ConfigMap."""
    ours, theirs = (
        {name: _body(text) for name, text in (given or {}).items()} for given in (wanted, deployed)
    )
    return pure("_sharing_configs", "plan")(ours, theirs, hold or (), used)


def _body(text: Any) -> Mapping[str, Any]:
    """A config out of its text; what is none differs from every config of ours."""
    try:
        body = yaml.safe_load(text) if isinstance(text, str) else text
    except yaml.YAMLError:
        body = None
    return body if isinstance(body, Mapping) else {}


def quota_check(
    catalog: Mapping[str, Any],
    pools: list[dict[str, Any]],
    region: str,
    network: Mapping[str, Any] | None = None,
) -> dict[str, list[str]]:
    """See _quotas.judge; `catalog` is what ec2_catalog_info returned."""
    return pure("_quotas", "judge")(
        catalog["quotas"],
        pools,
        catalog["instance_types"],
        catalog["offerings"],
        region=region,
        network=network,
    )


def iam_policies(
    document: Mapping[str, Any],
    name: str,
    cluster_name: str,
    region: str,
    account_id: str = "*",
    role_name: str = "",
    role_path: str = "/",
    boundary: str = "",
    more: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """See _policies.policies."""
    return call(
        "iam_policies",
        "_policies",
        "policies",
        document,
        name=name,
        cluster_name=cluster_name,
        region=region,
        account_id=account_id,
        role_name=role_name,
        role_path=role_path,
        boundary=boundary,
        more=more,
    )


class FilterModule:
    """Filters about pools, shares and the fleet."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "derive": derive,
            "gpu_admission": gpu_admission,
            "gpu_workload": gpu_workload,
            "fleet_report": fleet_report,
            "fleet_table": fleet_table,
            "iam_policies": iam_policies,
            "node_config": node_config,
            "plugin_configs": plugin_configs,
            "quota_check": quota_check,
            "team_quotas": team_quotas,
        }
