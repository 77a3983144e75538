# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From a module's options through the engine to its results: what the five EKS modules call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils import (
    _eks_access,
    _eks_addon,
    _eks_association,
    _eks_cluster,
    _eks_nodegroup,
)
from ansible_collections.gpushare.eks.plugins.module_utils._aws import client, own_tags
from ansible_collections.gpushare.eks.plugins.module_utils._eks import Engine
from ansible_collections.gpushare.eks.plugins.module_utils._eks_asg import sync_tags
from ansible_collections.gpushare.eks.plugins.module_utils._eks_base import Resource, View
from ansible_collections.gpushare.eks.plugins.module_utils._eks_upgrade import Upgrade
from ansible_collections.gpushare.eks.plugins.module_utils._errors import (
    GpushareError,
    InvalidInput,
    NotFound,
    PartialFailure,
)
from ansible_collections.gpushare.eks.plugins.module_utils._pool_names import CLUSTER_TAG
from ansible_collections.gpushare.eks.plugins.module_utils._reach import reach
from ansible_collections.gpushare.eks.plugins.module_utils._sync import Outcome, merge


def cluster(module: Any) -> dict[str, Any]:
    params = module.params
    name = params["name"]
    engine = _engine(module, _eks_cluster.RESOURCE, name)
    ignore = params["ignore_insights"]
    upgrade = Upgrade(engine.client, name, ignore_insights=ignore, warn=engine.warnings.append)
    engine.resource = _eks_cluster.resource(upgrade)
    wanted = {name: _eks_cluster.desired(params)}
    if module.check_mode and not wanted[name] and params["state"] == "present":
        # By name alone, in check mode, it is a look: whatever is there is an answer, not a plan.
        raw = engine.read(name)
        found = _eks_cluster.facts(raw) if raw else _eks_cluster.placeholder(name, name, {})
        results = {"changed": False, "diff": []}
    else:
        outcomes, errors = engine.manage(params["state"], wanted)
        results = _results(module, engine, outcomes, errors, wanted)
        found = _facts(engine, outcomes[name], name, wanted)
    if params["reach_timeout"] and found["status"] in ("ACTIVE", "UPDATING"):
        try:
            reach(found, params["reach_timeout"])
        except GpushareError as error:
            raise error.with_partial(**results) from error
    return {**results, "cluster": found}


def nodegroups(module: Any) -> dict[str, Any]:
    params = module.params
    options = params["nodegroups"]
    wanted = _wanted(options, "nodegroups", "name", params, _eks_nodegroup.desired)
    tags = {o["name"]: own_tags(o["asg_tags"]) for o in options if o.get("asg_tags") is not None}
    engine = _engine(module, _eks_nodegroup.RESOURCE, params["cluster_name"], options)

    def tag_groups(outcomes: dict[str, Outcome]) -> dict[str, Outcome]:
        groups = {
            name: _eks_nodegroup.facts(outcome.value)["asg_names"]
            for name, outcome in outcomes.items()
            if outcome.value
        }
        for name in tags:
            if not module.check_mode and name in outcomes and not groups.get(name):
                module.warn(f"{engine.title(name)} has no Auto Scaling group yet: run again for its"
                            " tags")  # fmt: skip
        return sync_tags(
            client(module, "autoscaling"), groups, tags, outcomes, check_mode=module.check_mode
        )

    extra = tag_groups if tags and params["state"] == "present" else None
    return _keep(module, engine, wanted, "nodegroups", extra)


def addons(module: Any) -> dict[str, Any]:
    params = module.params
    wanted = _wanted(params["addons"], "addons", "name", params, _eks_addon.desired)
    versions = _eks_addon.AddonVersions(client(module, "eks"), None)
    if params["state"] == "present" and wanted:
        versions.kubernetes_version = _kubernetes_version(module, params["cluster_name"])
    resource = _eks_addon.resource(versions)
    engine = _engine(module, resource, params["cluster_name"], params["addons"])
    return _keep(module, engine, wanted, "addons")


def access_entries(module: Any) -> dict[str, Any]:
    params = module.params
    wanted = _wanted(params["entries"], "entries", "principal_arn", params, _eks_access.desired)
    engine = _engine(module, _eks_access.RESOURCE, params["cluster_name"], params["entries"])
    return _keep(module, engine, wanted, "entries")


def pod_identity_associations(module: Any) -> dict[str, Any]:
    params = module.params
    options = [{"name": _eks_association.name_of(o), **o} for o in params["associations"]]
    wanted = _wanted(options, "associations", "name", params, _eks_association.desired)
    engine = _engine(module, _eks_association.RESOURCE, params["cluster_name"], options)
    return _keep(module, engine, wanted, "associations")


def _engine(
    module: Any, resource: Resource, cluster_name: str, options: list[dict[str, Any]] | None = None
) -> Engine:
    params = module.params
    return Engine(
        client(module, "eks"),
        resource,
        cluster_name,
        check_mode=module.check_mode,
        wait=params.get("wait", True),
        timeout=params.get("wait_timeout", 60),
        recreate_failed=params.get("recreate_failed", True),
        purge_tags=params["purge_tags"],
        keep_tags=[
            option.get("name") or option["principal_arn"]
            for option in options or []
            if option.get("tags") is None
        ],
        progress=module.log,
    )


def _wanted(
    options: list[dict[str, Any]],
    field: str,
    key: str,
    params: dict[str, Any],
    desired: Callable[[dict[str, Any], str], View],
) -> dict[str, View]:
    """{name: desired view}; all that is wrong with the list is refused before the first call."""
    names = [option[key] for option in options]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInput(
            f"{field} lists {', '.join(twice)} more than once",
            remedy="list each once",
            field=field,
            value=twice,
        )
    wanted: dict[str, View] = {}
    errors: dict[str, GpushareError] = {}
    for option in options:
        try:
            absent = params["state"] == "absent"
            wanted[option[key]] = {} if absent else desired(option, params["cluster_name"])
        except GpushareError as error:
            errors[option[key]] = error
    if len(errors) == 1:
        raise next(iter(errors.values()))
    if errors:
        raise InvalidInput(
            f"{field}: " + "; ".join(error.message for error in errors.values()),
            remedy="correct the values above",
            field=field,
            problems=[error.as_dict() for error in errors.values()],
        )
    return wanted


def _keep(
    module: Any,
    engine: Engine,
    wanted: dict[str, View],
    member: str,
    extra: Callable[[dict[str, Outcome]], dict[str, Outcome]] | None = None,
) -> dict[str, Any]:
    """The list brought to its state, and with purge what is ours and not listed taken away."""
    state = module.params["state"]
    surplus = _surplus(engine, wanted) if module.params["purge"] and state == "present" else {}
    outcomes, errors = engine.manage(state, wanted)
    gone, more_errors = engine.manage("absent", surplus)
    if extra:
        try:
            outcomes = extra(outcomes)
        except GpushareError as error:
            more_errors[error.object or "tags"] = error
    listed = [_facts(engine, outcomes[name], name, wanted) for name in wanted if name in outcomes]
    removed = sorted(gone) if state == "present" else [n for n, o in outcomes.items() if o.changed]
    results = _results(
        module,
        engine,
        {**outcomes, **gone},
        {**errors, **more_errors},
        {**wanted, **surplus},
        {member: listed, "removed": removed},
    )
    return {**results, member: listed, "removed": removed}


def _surplus(engine: Engine, wanted: Mapping[str, View]) -> dict[str, View]:
    """Objects that carry our tag for this cluster and are not listed."""
    found = {}
    for name in engine.names():
        if name not in wanted:
            raw = engine.read(name)
            if raw and (raw.get("tags") or {}).get(CLUSTER_TAG) == engine.cluster_name:
                found[name] = {}
    return found


def _facts(
    engine: Engine, outcome: Outcome, name: str, wanted: Mapping[str, View]
) -> dict[str, Any]:
    """One shape in check mode, with or without wait, made, unchanged or gone."""
    resource = engine.resource
    if outcome.value is not None:
        found = resource.facts(outcome.value)
        if outcome.changed and (engine.check_mode or not engine.wait):
            # What is planned or under way shows as it will be: later steps prepare for that.
            found.update({k: v for k, v in outcome.after.items() if k in found})
    else:
        after = {k: v for k, v in outcome.after.items() if k != "asg_tags"}
        found = resource.placeholder(name, engine.cluster_name, {**wanted[name], **after})
    if "asg_tags" in outcome.after:
        found["asg_tags"] = outcome.after["asg_tags"]
    return found


def _results(
    module: Any,
    engine: Engine,
    outcomes: Mapping[str, Outcome],
    errors: Mapping[str, GpushareError],
    all_items: Mapping[str, View],
    partial: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """changed and diff; errors of items become one error that carries what stays done."""
    for warning in dict.fromkeys(engine.warnings):
        module.warn(warning)
    merged = merge({engine.title(name): outcome for name, outcome in outcomes.items()})
    if not errors:
        return merged
    for failed in errors.values():
        # What a failed item had already changed counts, too.
        merged["changed"] = merged["changed"] or failed.partial.get("changed", False)
        merged["diff"] += failed.partial.get("diff", [])
    error = next(iter(errors.values()))
    if len(all_items) > 1:
        error = PartialFailure.of(f"{engine.resource.kind}s", dict(errors), len(all_items))
    raise error.with_partial(**merged, **(partial or {}))


def _kubernetes_version(module: Any, name: str) -> str | None:
    """The cluster's Kubernetes version; None in check mode where there is no cluster yet."""
    engine = Engine(client(module, "eks"), _eks_cluster.RESOURCE, name, timeout=0)
    raw = engine.read(name)
    if raw is None and not module.check_mode:
        raise NotFound(
            f"There is no EKS cluster {name}",
            object=f"EKS cluster {name}",
            remedy="make it with gpushare.eks.eks_cluster, or check the name and the region",
        )
    return raw["version"] if raw else None
