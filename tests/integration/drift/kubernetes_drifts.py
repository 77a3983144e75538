"""Attributes of Kubernetes objects: how each is read, and how somebody changes it."""

from __future__ import annotations

from typing import Any

from .aws_drifts import Drift
from .place import Place

_SYSTEM = "/api/v1/namespaces/gpushare-system"
_CODE = f"{_SYSTEM}/configmaps/gpushare-agent-code"
_FENCE = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/gpushare-agent-fence"
_BINDING = _FENCE.replace("policies", "policybindings")
_SAMPLE = "/apis/apps/v1/namespaces/gpushare-sample/deployments/resnet"
_SERVICE = "/api/v1/namespaces/gpushare-sample/services/resnet"
_BUDGET = "/apis/policy/v1/namespaces/gpushare-sample/poddisruptionbudgets/resnet"
# kubernetes.core shows no diff of a list of objects: the task is what --check names.
_AGENT_TASK, _SAMPLE_TASK = "Keep the agent", "Apply the manifests"


def _spec(place: Place, path: str) -> Any:
    """What is wanted of the object; what the API server and its controllers add stays out."""
    found = place.get(path)
    return {key: found.get(key) for key in ("spec", "data", "rules") if found.get(key)}


DEVICE_PLUGIN = {
    "agent: code": Drift(
        "device_plugin",
        lambda p: _spec(p, _CODE),
        lambda p: p.patch(_CODE, {"data": {min(p.get(_CODE)["data"]): "broken"}}),
        _AGENT_TASK,
    ),
    "agent: rights": Drift(
        "device_plugin",
        lambda p: _spec(p, "/apis/rbac.authorization.k8s.io/v1/clusterroles/gpushare-agent"),
        lambda p: p.patch(
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/gpushare-agent", {"rules": []}
        ),
        _AGENT_TASK,
    ),
    "fence: policy": Drift(
        "device_plugin",
        lambda p: _spec(p, _FENCE),
        lambda p: p.patch(_FENCE, {"spec": {"failurePolicy": "Ignore"}}),
        _AGENT_TASK,
    ),
    "fence: binding": Drift(
        "device_plugin",
        lambda p: bool(p.get(_BINDING)),
        lambda p: p.delete(_BINDING),
        _AGENT_TASK,
    ),
}

SAMPLE = {
    "sample: replicas": Drift(
        "sample_app",
        lambda p: p.get(_SAMPLE)["spec"]["replicas"],
        lambda p: p.patch(_SAMPLE, {"spec": {"replicas": 1}}),
        _SAMPLE_TASK,
    ),
    "sample: Service": Drift(
        "sample_app",
        lambda p: p.get(_SERVICE)["spec"]["selector"],
        lambda p: p.patch(_SERVICE, {"spec": {"selector": {"app.kubernetes.io/name": "other"}}}),
        _SAMPLE_TASK,
    ),
    "sample: disruption budget": Drift(
        "sample_app",
        lambda p: bool(p.get(_BUDGET)),
        lambda p: p.delete(_BUDGET),
        _SAMPLE_TASK,
    ),
}
