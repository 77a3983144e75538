"""Pod Identity associations: which IAM role the pods of a service account get."""

from __future__ import annotations

import copy
import json
import time
import uuid
from typing import Any

from lab.aws import Context, ServiceError
from lab.aws.eks_state import Cluster, Registry, arn, require_role

_CHANGEABLE = ("roleArn", "targetRoleArn", "disableSessionTags", "policy")


class Associations:
    """The operations on associations, which go with their cluster."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def _find(self, params: dict[str, Any], context: Context) -> tuple[Cluster, dict[str, Any]]:
        cluster = self.registry.find(params["clusterName"], context)
        found = cluster.associations.get(params["associationId"])
        if found is None:
            raise ServiceError(
                "ResourceNotFoundException",
                f"No association found for ID: {params['associationId']}",
                clusterName=cluster.name,
            )
        return cluster, found

    def create(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster = self.registry.find_active(params["clusterName"], context)
        number = "a-" + uuid.uuid4().hex[:17]
        now = time.time()
        record = {
            "clusterName": cluster.name,
            "namespace": params["namespace"],
            "serviceAccount": params["serviceAccount"],
            "associationArn": arn(context, f"podidentityassociation/{cluster.name}/{number}"),
            "associationId": number,
            "tags": params.get("tags", {}),
            "createdAt": now,
            "modifiedAt": now,
            "disableSessionTags": False,
        }
        with cluster.lock:
            self._require_free(cluster, record)
            self._change(cluster, record, params, context)
            cluster.associations[number] = record
        return {"association": copy.deepcopy(record)}

    def _require_free(self, cluster: Cluster, record: dict[str, Any]) -> None:
        place = (record["namespace"], record["serviceAccount"])
        for other in cluster.associations.values():
            if (other["namespace"], other["serviceAccount"]) == place:
                raise ServiceError(
                    "ResourceInUseException",
                    f"Association already exists: {other['associationId']}",
                    clusterName=cluster.name,
                )

    def _change(
        self, cluster: Cluster, record: dict[str, Any], params: dict[str, Any], context: Context
    ) -> None:
        """Take over what is given, once the whole is found fit."""
        wanted = {key: params[key] for key in _CHANGEABLE if params.get(key) is not None}
        after = {**record, **wanted}
        if "roleArn" in wanted:
            require_role(self.registry, wanted["roleArn"], context.region)
        if after.get("policy"):
            try:
                json.loads(after["policy"])
            except ValueError:
                raise _invalid(cluster, "The provided policy is not valid JSON") from None
            if not after["disableSessionTags"]:
                raise _invalid(cluster, "disableSessionTags must be true when a policy is provided")
        if "targetRoleArn" in wanted:
            # The target's trust policy may ask for it; it stays when the target changes.
            wanted["externalId"] = record.get("externalId") or str(uuid.uuid4())
        record.update(wanted, modifiedAt=time.time())

    def describe(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        return {"association": copy.deepcopy(self._find(params, context)[1])}

    def update(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster, record = self._find(params, context)
        if not any(params.get(key) is not None for key in _CHANGEABLE):
            raise _invalid(cluster, f"An update changes at least one of {', '.join(_CHANGEABLE)}")
        with cluster.lock:
            self._change(cluster, record, params, context)
        return {"association": copy.deepcopy(record)}

    def delete(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster, record = self._find(params, context)
        cluster.associations.pop(record["associationId"], None)
        return {"association": record}

    def list(self, params: dict[str, Any], context: Context) -> dict[str, Any]:
        cluster = self.registry.find(params["clusterName"], context)
        place = ("namespace", "serviceAccount")
        keys = ("clusterName", *place, "associationArn", "associationId")
        rows = [
            {key: record[key] for key in keys}
            for record in list(cluster.associations.values())
            if all(params.get(key) in (None, record[key]) for key in place)
        ]
        return {"associations": rows}


def _invalid(cluster: Cluster, message: str) -> ServiceError:
    return ServiceError("InvalidParameterException", message, clusterName=cluster.name)
