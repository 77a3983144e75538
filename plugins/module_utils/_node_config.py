# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The user data of a pool's instances: MIME with one nodeadm NodeConfig. Pure.

Only an own (custom) image takes a whole NodeConfig; EKS merges nothing into it then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# Fixed, so that the same pool gives the same launch template version on every run.
_BOUNDARY = "gpushare-eks-node-config"
_NEEDED = ("name", "endpoint", "ca_data", "service_ipv4_cidr")


def node_config(pool: Mapping[str, Any], cluster: Mapping[str, Any]) -> str:
    """User data for a derived pool and a cluster {name, endpoint, ca_data, service_ipv4_cidr}.

    The NodeConfig is JSON, which is YAML: values of the user's need no quoting rules of their own.
    Raises ValueError naming what the cluster lacks.
    """
    missing = [key for key in _NEEDED if not cluster.get(key)]
    if missing:
        raise ValueError(
            f"node_config of pool {pool['name']}: the cluster has no {', '.join(missing)}; "
            "give eks_result of a cluster that exists"
        )
    document = {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {
            "cluster": {
                "name": cluster["name"],
                "apiServerEndpoint": cluster["endpoint"],
                "certificateAuthority": cluster["ca_data"],
                "cidr": cluster["service_ipv4_cidr"],
            },
            "kubelet": {"config": {"maxPods": pool["max_pods"]}, "flags": _flags(pool)},
        },
    }
    lines = [
        "MIME-Version: 1.0",
        f'Content-Type: multipart/mixed; boundary="{_BOUNDARY}"',
        "",
        f"--{_BOUNDARY}",
        "Content-Type: application/node.eks.aws",
        "",
        json.dumps(document, indent=2, ensure_ascii=True),
        "",
        f"--{_BOUNDARY}--",
        "",
    ]
    return "\n".join(lines)


def _flags(pool: Mapping[str, Any]) -> list[str]:
    labels = ",".join(f"{key}={value}" for key, value in sorted(pool["labels"].items()))
    flags = [f"--node-labels={labels}"] if labels else []
    taints = ",".join(
        f"{taint['key']}={taint['value']}:{taint['effect']}"
        for taint in [*pool["taints"], *pool["startup_taints"]]
    )
    return [*flags, f"--register-with-taints={taints}"] if taints else flags
