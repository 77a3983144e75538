#!/usr/bin/python
# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_capacity_info
version_added: 0.1.0
short_description: Read the GPU memory of a fleet by NVML over SSM
description:
  - Runs one fixed SSM document on all chosen instances at once and collects a typed outcome for
    each. A fleet of N instances costs C(ceil(N/50)) sends and as many pages for each poll.
  - What a node answers is a claim. It is parsed strictly and bounded by the GPUs that EC2 says its
    instance type has; what cannot be is refused as C(IMPLAUSIBLE).
  - Nodes that do not answer do not fail the module, they have an RV(readings[].error).
  - It needs C(ec2:DescribeInstances), C(ec2:DescribeInstanceTypes), C(ssm:SendCommand) on the
    document and the instances, C(ssm:ListCommandInvocations), C(ssm:DescribeInstanceInformation).
author:
  - gpushare.eks contributors (@gpushare)
options:
  instance_ids:
    description: The instances to read.
    type: list
    elements: str
  cluster_name:
    description:
      - Read the running instances of this EKS cluster's managed node groups whose type has NVIDIA
        GPUs.
    type: str
  nodegroups:
    description:
      - Of O(cluster_name), only these node groups. C(*) and C(?) are wildcards, as in all filters
        of C(DescribeInstances), so V(shared-us-east-1*) is a pool's groups of all zones.
    type: list
    elements: str
  filters:
    description:
      - Read the running instances that match these filters of C(DescribeInstances), for example
        C(tag:karpenter.sh/nodepool), and whose type has NVIDIA GPUs.
    type: dict
  document_name:
    description:
      - The SSM document. Defaults to the collection's own, see M(gpushare.eks.ssm_document).
    type: str
  processes:
    description:
      - Also read used memory by process, with the UID of the pod and the ID of the container that
        each belongs to. This runs a second document of the collection's own on the instances that
        answered, so it costs as many calls again.
      - It sees the processes of the whole node, which is why it is a document apart.
    type: bool
    default: false
  pods:
    description:
      - The pods whose names RV(readings[].processes.entries) may tell, as
        M(kubernetes.core.k8s_info) returns them.
    type: list
    elements: dict
    default: []
  timeout:
    description:
      - Seconds after which an instance without an answer has the outcome V(NoAnswer), and one that
        SSM still does not manage V(Undeliverable).
    type: int
    default: 90
attributes:
  check_mode:
    description: Reads the same in check mode.
    support: full
  diff_mode:
    description: Changes nothing, so there is no diff.
    support: none
seealso:
  - module: gpushare.eks.node_capacity
  - module: gpushare.eks.ssm_document
extends_documentation_fragment:
  - amazon.aws.common.modules
  - amazon.aws.region.modules
  - amazon.aws.boto3
"""

EXAMPLES = r"""
- name: Read every GPU of a cluster
  gpushare.eks.gpu_capacity_info:
    cluster_name: demo
  register: gpus

- name: Read two instances
  gpushare.eks.gpu_capacity_info:
    instance_ids: [i-0123456789abcdef0, i-0fedcba9876543210]
    timeout: 30

- name: Read the nodes of a Karpenter pool
  gpushare.eks.gpu_capacity_info:
    filters:
      tag:karpenter.sh/nodepool: shared

- name: List the pods
  kubernetes.core.k8s_info:
    kind: Pod
  register: pods

- name: Read who uses the GPUs of a pool
  gpushare.eks.gpu_capacity_info:
    cluster_name: demo
    nodegroups: [shared-*]
    processes: true
    pods: "{{ pods.resources }}"
"""

RETURN = r"""
readings:
  description: One row for every instance, ordered by instance ID.
  returned: success
  type: list
  elements: dict
  contains:
    instance_id:
      description: The instance.
      type: str
      sample: i-0123456789abcdef0
    instance_type:
      description: Its type; V(null) when EC2 does not know the instance.
      type: str
      sample: g4dn.xlarge
    hardware:
      description: The NVIDIA GPUs of the type by EC2; V(null) when the type is not known.
      type: dict
      sample: {gpu_count: 1, gpu_memory_mib: 16384}
    outcome:
      description:
        - V(Success), V(Failed), V(TimedOut), V(DeliveryTimedOut), V(Undeliverable), V(Terminated),
          V(Cancelled) or V(NoAnswer).
      type: str
      sample: Success
    error:
      description: Why there is no usable reading, with C(type), C(message) and C(remedy).
      type: dict
      sample: null
    reading:
      description: What the probe read, as it published it; V(null) when nothing usable came back.
      type: dict
      sample: {schema: 1, driver: "580.105.08", cuda: "13.0", error: null}
    gpus:
      description:
        - The GPUs of the reading. C(usable_mib) is total less reserved, V(null) when not known.
        - With MIG on, memory belongs to the C(slices), each with C(uuid), C(total_mib) and
          C(profile); C(usable_mib) is V(null) then. The UUIDs are V(null) where they had no room.
        - C(ecc) is V(null) for a GPU without ECC. C(ecc_uncorrected) counts errors since the driver
          was loaded.
      type: list
      elements: dict
      sample:
        - index: 0
          uuid: GPU-6d2ab28c-0a19-5c5e-8f61-2a1b3c4d5e6f
          name: Tesla T4
          cc: "7.5"
          total_mib: 15360
          reserved_mib: 450
          used_mib: 0
          usable_mib: 14910
          ecc: true
          ecc_uncorrected: 0
          mig: false
          slices: null
          error: null
    processes:
      description: Who uses the GPUs, with O(processes=true); V(null) when it was not asked.
      type: dict
      contains:
        count:
          description: How many processes there are.
          type: int
          sample: 2
        used_mib:
          description: What all of them use.
          type: int
          sample: 6310
        truncated:
          description: Whether RV(readings[].processes.entries) holds only the largest of them.
          type: bool
          sample: false
        entries:
          description:
            - One row for each process on each GPU, the largest first. C(pod_uid) is V(null) outside
              of pods and for a process that ended meanwhile; C(pod) is C(namespace/name) where
              O(pods) holds it. C(container_id) has 13 characters where all of it had no room.
          type: list
          elements: dict
          sample:
            - gpu: 0
              pid: 31415
              used_mib: 3155
              pod_uid: 5f0a1b2c-3d4e-4f5a-8b6c-7d8e9f0a1b2c
              container_id: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
              pod: default/resnet-0
        error:
          description: Why processes are missing, with C(type), C(message) and C(remedy).
          type: dict
          sample: null
counts:
  description: How many instances were asked, answered usably, and did not.
  returned: success
  type: dict
  sample: {instances: 200, readings: 200, errors: 0}
calls:
  description: AWS calls by operation, retries included, and how many of them were throttled.
  returned: success
  type: dict
  sample: {send_command: 4, list_command_invocations: 8, describe_instances: 1, throttled: 0}
document_name:
  description: The document that was run.
  returned: success
  type: str
  sample: gpushare-probe-86cbb46f
"""

from collections import Counter
from typing import Any

from ansible_collections.amazon.aws.plugins.module_utils.modules import AnsibleAWSModule

from ansible_collections.gpushare.eks.plugins.module_utils import _process_readings, _readings
from ansible_collections.gpushare.eks.plugins.module_utils._errors import aws_errors, run
from ansible_collections.gpushare.eks.plugins.module_utils._fleet import Ec2, select
from ansible_collections.gpushare.eks.plugins.module_utils._scripts import (
    probe_document,
    processes_document,
)
from ansible_collections.gpushare.eks.plugins.module_utils._ssm import Outcome, run_on_fleet


def row(
    instance_id: str, kind: str | None, hardware: dict[str, int] | None, outcome: Outcome
) -> dict[str, Any]:
    """One instance of the result: its outcome, and its reading if that can be used."""
    result = {
        "instance_id": instance_id,
        "instance_type": kind,
        "hardware": hardware,
        "outcome": outcome.outcome,
        "error": outcome.error,
        "reading": None,
        "gpus": [],
        "processes": None,
    }
    if outcome.outcome != "Success":
        return result
    try:
        reading = _readings.parse(outcome.output, instance_id=instance_id, hardware=hardware)
    except _readings.Refused as refused:
        return {**result, "error": _readings.error(refused.type, str(refused))}
    error = _readings.row_error(reading, hardware)
    return {**result, "error": error, "reading": reading, "gpus": reading["gpus"]}


def add_processes(ssm: Any, rows: list[dict[str, Any]], params: dict[str, Any]) -> Counter[str]:
    """Ask the instances that answered once more, for their processes -> the calls that it took."""
    document = processes_document()["name"]
    answered = [one["instance_id"] for one in rows if one["outcome"] == "Success"]
    with aws_errors(f"SSM document {document}"):
        fleet = run_on_fleet(
            ssm,
            document,
            answered,
            timeout=params["timeout"],
            comment="gpushare.eks: read GPU memory by process",
        )
    names = _process_readings.pod_names(params["pods"])
    for one in rows:
        outcome = fleet.outcomes.get(one["instance_id"])
        one["processes"] = outcome and _process_readings.of_node(
            outcome, instance_id=one["instance_id"], hardware=one["hardware"], names=names
        )
    return fleet.calls


def read(module: Any) -> dict[str, Any]:
    """One run of the module: choose, run the document, judge the answers."""
    calls: Counter[str] = Counter()
    chosen, hardware = select(Ec2(module.client("ec2"), calls), module.params)
    document = module.params["document_name"] or probe_document()["name"]
    # Our own backoff counts what it does; botocore's adaptive mode holds the rate down below it.
    ssm = module.client("ssm", config={"retries": {"mode": "adaptive", "total_max_attempts": 1}})
    running = [one for one, kind in chosen.items() if kind]
    with aws_errors(f"SSM document {document}"):
        fleet = run_on_fleet(ssm, document, running, timeout=module.params["timeout"])
    calls += fleet.calls
    gone = Outcome("Undeliverable", message="EC2 shows no running instance of this ID")
    rows = [
        row(one, kind, hardware.get(kind), fleet.outcomes.get(one, gone))
        for one, kind in sorted(chosen.items())
    ]
    if module.params["processes"]:
        calls += add_processes(ssm, rows, module.params)
    errors = sum(1 for one in rows if one["error"])
    counts = {"instances": len(rows), "readings": len(rows) - errors, "errors": errors}
    zero = dict.fromkeys(("send_command", "list_command_invocations", "throttled"), 0)
    return {
        "changed": False,
        "readings": rows,
        "counts": counts,
        "calls": {**zero, **calls},
        "document_name": document,
    }


def main() -> None:
    spec = {
        "instance_ids": {"type": "list", "elements": "str"},
        "cluster_name": {"type": "str"},
        "nodegroups": {"type": "list", "elements": "str"},
        "filters": {"type": "dict"},
        "document_name": {"type": "str"},
        "processes": {"type": "bool", "default": False},
        "pods": {"type": "list", "elements": "dict", "default": []},
        "timeout": {"type": "int", "default": 90},
    }
    choices = ["instance_ids", "cluster_name", "filters"]
    module = AnsibleAWSModule(
        argument_spec=spec,
        supports_check_mode=True,
        mutually_exclusive=[choices],
        required_one_of=[choices],
        required_by={"nodegroups": "cluster_name"},
    )
    run(module, lambda: read(module))


if __name__ == "__main__":
    main()
