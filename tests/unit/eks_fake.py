"""An EKS for unit tests: keeps objects, records calls, checks parameters by botocore's model."""

from __future__ import annotations

import copy
import functools
import json
import threading
from collections import Counter
from typing import Any

import botocore.session
from botocore import xform_name
from botocore.exceptions import ClientError, ParamValidationError
from botocore.validate import ParamValidator

KINDS = {
    "cluster": ("cluster", "name", "arn"),
    "nodegroup": ("nodegroup", "nodegroupName", "nodegroupArn"),
    "addon": ("addon", "addonName", "addonArn"),
    "access_entry": ("accessEntry", "principalArn", "accessEntryArn"),
    "pod_identity_association": ("association", "associationId", "associationArn"),
}
# These are there or not, and have no states between.
STATELESS = ("access_entry", "pod_identity_association")


@functools.cache
def _operations(service: str) -> dict[str, Any]:
    model = botocore.session.get_session().get_service_model(service)
    return {xform_name(name): model.operation_model(name) for name in model.operation_names}


def refusal(code: str, message: str, operation: str = "Operation") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, operation)


class FakeService:
    """Parameter checks, call records and injected errors for one service of AWS."""

    service = ""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.errors: dict[str, list[Exception]] = {}
        self._lock = threading.RLock()
        self._models = _operations(self.service)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._models:
            raise AttributeError(name)

        def call(**params: Any) -> Any:
            with self._lock:
                report = ParamValidator().validate(params, self._models[name].input_shape)
                if report.has_errors():
                    raise ParamValidationError(report=report.generate_report())
                self.calls.append((name, params))
                if self.errors.get(name):
                    error = self.errors[name].pop(0)
                    if error is not None:
                        raise error
                return copy.deepcopy(self.answer(name, params))

        return call

    def answer(self, name: str, params: dict[str, Any]) -> Any:
        raise NotImplementedError

    def get_paginator(self, name: str) -> Any:
        service = self

        class Pages:
            def paginate(self, **params: Any) -> Any:
                params.pop("PaginationConfig", None)
                return [getattr(service, name)(**params)]

        return Pages()

    def counts(self) -> dict[str, int]:
        return dict(Counter(name for name, _params in self.calls))

    def writes(self) -> list[tuple[str, dict[str, Any]]]:
        return [c for c in self.calls if not c[0].startswith(("describe", "list", "get"))]

    def params(self, name: str) -> list[dict[str, Any]]:
        return [params for called, params in self.calls if called == name]


class FakeEks(FakeService):
    """`states[name]` are the states that the next describes of an object go through.

    The last one stays; "GONE" takes the object away. Updates end at once unless `update_states`
    says otherwise.
    """

    service = "eks"

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in KINDS}
        self.policies: dict[str, list[dict[str, Any]]] = {}
        self.states: dict[str, list[str]] = {}
        self.update_states: list[dict[str, Any]] = []
        self.insights: list[dict[str, Any]] = []
        self._numbers = 0
        self.versions = {"coredns": ["v2", "v1"], "vpc-cni": ["v9"]}
        # Add-on -> JSON Schema of its configuration; without one it takes any object.
        self.schemas: dict[str, Any] = {}
        # What an object is given at creation: its states, unless the test named some before.
        self.new_states = ["CREATING", "ACTIVE"]
        super().__init__()

    def add(self, kind: str, name: str, /, **raw: Any) -> dict[str, Any]:
        _member, key, arn = KINDS[kind]
        base = {key: name, arn: f"arn:aws:eks:us-east-1:123456789012:{kind}/{name}", "tags": {}}
        if kind != "cluster":
            base["clusterName"] = "demo"
        if kind == "pod_identity_association":
            base |= {"namespace": "", "serviceAccount": "", "roleArn": ""}
        if kind not in STATELESS:
            base["status"] = "ACTIVE"
        self.objects[kind][name] = {**base, **raw}
        return self.objects[kind][name]

    def answer(self, name: str, params: dict[str, Any]) -> Any:
        verb, _sep, kind = name.partition("_")
        special = getattr(self, f"_{name}", None)
        if special:
            return special(params)
        if kind in KINDS and verb in ("describe", "create", "delete"):
            return getattr(self, f"_{verb}")(kind, params)
        if verb == "update" or name == "associate_encryption_config":
            return {"update": {"id": "u1", "status": "InProgress", "type": name}}
        if verb == "list":
            one = {"nodegroups": "nodegroup", "addons": "addon", "access_entries": "access_entry"}
            key = "accessEntries" if kind == "access_entries" else kind
            return {key: list(self.objects[one[kind]])}
        raise AssertionError(f"the fake has no {name}")

    def _find(self, kind: str, params: dict[str, Any]) -> dict[str, Any]:
        name = params[KINDS[kind][1]]
        if name not in self.objects[kind]:
            raise refusal("ResourceNotFoundException", f"No {kind} found for name: {name}.")
        return self.objects[kind][name]

    def _describe(self, kind: str, params: dict[str, Any]) -> Any:
        raw = self._find(kind, params)
        name = params[KINDS[kind][1]]
        if self.states.get(name):
            state = self.states[name].pop(0)
            if state == "GONE":
                del self.objects[kind][name]
                raise refusal("ResourceNotFoundException", f"No {kind} found for name: {name}.")
            raw["status"] = state
        return {KINDS[kind][0]: raw}

    def _create(self, kind: str, params: dict[str, Any]) -> Any:
        name = params[KINDS[kind][1]]
        if name in self.objects[kind]:
            raise refusal("ResourceInUseException", f"{kind} already exists: {name}")
        raw = self.add(kind, name, **params)
        if kind not in STATELESS:
            self.states[name] = self.states.get(name) or list(self.new_states)
            raw["status"] = "CREATING"
        if kind == "nodegroup":
            raw["resources"] = {"autoScalingGroups": [{"name": f"asg-{name}"}]}
        return {KINDS[kind][0]: raw}

    def _delete(self, kind: str, params: dict[str, Any]) -> Any:
        raw = self._find(kind, params)
        name = params[KINDS[kind][1]]
        if kind in STATELESS:
            del self.objects[kind][name]
            return {}
        raw["status"] = "DELETING"
        self.states[name] = self.states.get(name) or ["DELETING", "GONE"]
        return {KINDS[kind][0]: raw}

    def _describe_update(self, _params: dict[str, Any]) -> Any:
        state = self.update_states.pop(0) if self.update_states else {"status": "Successful"}
        return {"update": {"id": "u1", **state}}

    def _update_access_entry(self, params: dict[str, Any]) -> Any:
        raw = self._find("access_entry", params)
        raw.update(params)
        return {"accessEntry": raw}

    def _create_pod_identity_association(self, params: dict[str, Any]) -> Any:
        known = self.objects["pod_identity_association"]
        place = ("namespace", "serviceAccount")
        if any(all(raw[key] == params[key] for key in place) for raw in known.values()):
            raise refusal("ResourceInUseException", "Association already exists")
        self._numbers += 1
        raw = self.add("pod_identity_association", f"a-{self._numbers}", **params)
        return {"association": raw}

    def _list_pod_identity_associations(self, params: dict[str, Any]) -> Any:
        keys = ("associationId", "associationArn", "namespace", "serviceAccount")
        return {
            "associations": [
                {key: raw[key] for key in keys}
                for raw in self.objects["pod_identity_association"].values()
                if all(
                    raw[key] == params.get(key, raw[key]) for key in ("namespace", "serviceAccount")
                )
            ]
        }

    def _update_pod_identity_association(self, params: dict[str, Any]) -> Any:
        raw = self._find("pod_identity_association", params)
        raw.update(params)
        return {"association": raw}

    def _list_associated_access_policies(self, params: dict[str, Any]) -> Any:
        return {"associatedAccessPolicies": self.policies.get(params["principalArn"], [])}

    def _associate_access_policy(self, params: dict[str, Any]) -> Any:
        mine = self.policies.setdefault(params["principalArn"], [])
        mine[:] = [p for p in mine if p["policyArn"] != params["policyArn"]]
        mine.append({key: params[key] for key in ("policyArn", "accessScope")})
        return {}

    def _disassociate_access_policy(self, params: dict[str, Any]) -> Any:
        mine = self.policies[params["principalArn"]]
        mine[:] = [p for p in mine if p["policyArn"] != params["policyArn"]]
        return {}

    def insight(self, name: str, status: str, version: str = "1.36", **more: Any) -> None:
        """An upgrade insight of ListInsights; `more` is what only DescribeInsight tells."""
        summary = {
            "id": f"i-{len(self.insights)}",
            "name": name,
            "category": "UPGRADE_READINESS",
            "kubernetesVersion": version,
            "insightStatus": {"status": status, "reason": f"{name} says so"},
        }
        self.insights.append({**summary, **more})

    def _list_insights(self, params: dict[str, Any]) -> Any:
        wanted = params["filter"]["categories"]
        hidden = ("recommendation",)
        return {
            "insights": [
                {key: value for key, value in row.items() if key not in hidden}
                for row in self.insights
                if row["category"] in wanted
            ]
        }

    def _describe_insight(self, params: dict[str, Any]) -> Any:
        for row in self.insights:
            if row["id"] == params["id"]:
                return {"insight": row}
        raise refusal("ResourceNotFoundException", f"No insight {params['id']}")

    def _tag_resource(self, params: dict[str, Any]) -> Any:
        self._by_arn(params["resourceArn"])["tags"].update(params["tags"])
        return {}

    def _untag_resource(self, params: dict[str, Any]) -> Any:
        for key in params["tagKeys"]:
            del self._by_arn(params["resourceArn"])["tags"][key]
        return {}

    def _by_arn(self, arn: str) -> dict[str, Any]:
        for kind, objects in self.objects.items():
            for raw in objects.values():
                if raw[KINDS[kind][2]] == arn:
                    return raw
        raise refusal("NotFoundException", arn)

    def _describe_addon_versions(self, params: dict[str, Any]) -> Any:
        wanted = params["kubernetesVersion"]
        rows = [
            {
                "addonVersion": version,
                "compatibilities": [{"clusterVersion": wanted, "defaultVersion": number == 0}],
            }
            for number, version in enumerate(self.versions.get(params["addonName"], []))
        ]
        return {"addons": [{"addonName": params["addonName"], "addonVersions": rows}]}

    def _describe_addon_configuration(self, params: dict[str, Any]) -> Any:
        schema = self.schemas.get(params["addonName"], {"type": "object"})
        return {**params, "configurationSchema": json.dumps(schema)}


class FakeAutoscaling(FakeService):
    """Tags of Auto Scaling groups."""

    service = "autoscaling"

    def __init__(self) -> None:
        self.tags: dict[str, dict[str, str]] = {}
        super().__init__()

    def answer(self, name: str, params: dict[str, Any]) -> Any:
        if name == "describe_tags":
            wanted = params["Filters"][0]["Values"]
            return {
                "Tags": [
                    {"ResourceId": group, "Key": key, "Value": value}
                    for group, tags in self.tags.items()
                    if group in wanted
                    for key, value in tags.items()
                ]
            }
        for tag in params["Tags"]:
            mine = self.tags.setdefault(tag["ResourceId"], {})
            if name == "create_or_update_tags":
                mine[tag["Key"]] = tag["Value"]
            else:
                del mine[tag["Key"]]
        return {}


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
