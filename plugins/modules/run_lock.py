#!/usr/bin/python
# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: run_lock
version_added: 0.2.0
short_description: Let one run at a time change a cluster
description:
  - Holds a lock in AWS while a playbook changes a cluster, so that of two runs at once the second
    says who has it, instead of both making the same objects.
  - The lock is the SSM parameter C(/gpushare/<cluster>/run-lock), which is made without overwrite.
    It names its owner, the process of this run, and goes when that run gives it up.
  - A run that was killed leaves its lock behind. The next one on the same machine sees that its
    process is gone, and takes it over with a warning. From elsewhere that cannot be known. There
    the lock is taken when it is older than O(stale_after).
  - It needs C(ssm:PutParameter), C(ssm:AddTagsToResource), C(ssm:GetParameter),
    C(ssm:GetParameterHistory) and C(ssm:DeleteParameter) on that parameter.
author:
  - gpushare.eks contributors (@gpushare)
options:
  cluster_name:
    description: The cluster. It need not exist.
    type: str
    required: true
  state:
    description:
      - V(present) takes the lock, or fails when another run has it.
      - V(absent) gives it up when this run has it. Another run's stays.
    type: str
    choices: [present, absent]
    default: present
  stale_after:
    description:
      - Seconds after which the lock is taken from a run of which nobody knows whether it goes on.
        It has to be longer than any run takes. 0 takes it at once.
    type: int
    default: 14400
  owner:
    description:
      - Who holds the lock, with the keys C(id), C(who) and C(job). The action plugin of this module
        fills it in with the process of ansible-playbook. There is no need to give it.
    type: dict
  take_from:
    description:
      - The C(id) of a run that has certainly ended, whose lock is taken whatever its age. The
        action plugin fills it in when it finds that run's process gone.
    type: str
attributes:
  action:
    description: Has an action plugin, which knows the process of ansible-playbook.
    support: full
  check_mode:
    description: Looks only. A lock of another run is a warning then.
    support: full
  diff_mode:
    description: The lock goes with the run, so that there is nothing to show.
    support: none
extends_documentation_fragment:
  - amazon.aws.common.modules
  - amazon.aws.region.modules
  - amazon.aws.boto3
"""

EXAMPLES = r"""
- name: Change the cluster alone
  block:
    - name: Take the lock
      gpushare.eks.run_lock:
        cluster_name: demo

    - name: Change it
      ansible.builtin.include_role:
        name: gpushare.eks.gpu_nodes
  always:
    - name: Give the lock up
      gpushare.eks.run_lock:
        cluster_name: demo
        state: absent
"""

RETURN = r"""
name:
  description: The SSM parameter.
  returned: success
  type: str
  sample: /gpushare/demo/run-lock
holder:
  description: Who has the lock now; empty when nobody has.
  returned: success
  type: dict
  sample:
    schema: 1
    id: 3f1c.../4711/88123
    who: ops@runner-1, process 4711
    job: ""
    since: "2026-11-21T12:00:00Z"
taken_from:
  description: Who had it before, when it was taken over; otherwise empty.
  returned: success
  type: dict
  sample: {}
"""

from typing import Any

from ansible_collections.amazon.aws.plugins.module_utils.modules import AnsibleAWSModule

from ansible_collections.gpushare.eks.plugins.module_utils._errors import InvalidInput, run
from ansible_collections.gpushare.eks.plugins.module_utils._run_lock import RunLock


def work(module: Any) -> dict[str, Any]:
    """One run of the module."""
    params = module.params
    owner = params["owner"] or {}
    if not owner.get("id"):
        raise InvalidInput(
            "There is no owner for the run lock",
            field="owner",
            remedy="call gpushare.eks.run_lock by its full name, so that its action plugin runs",
        )
    lock = RunLock(module.client("ssm"), params["cluster_name"])
    if module.check_mode:
        return _look(module, lock, owner["id"])
    if params["state"] == "absent":
        held = lock.release(owner["id"])
        mine = held is not None and held.record.get("id") == owner["id"]
        left = {} if held is None or mine else dict(held.record)
        return _result(lock, mine, left)
    before, had_it = lock.acquire(
        owner, take_from=params["take_from"], stale_after_s=params["stale_after"]
    )
    if before is not None and not had_it:
        module.warn(
            f"the run lock of cluster {params['cluster_name']} was taken from "
            f"{before.record.get('who') or 'somebody'}, who had it for "
            f"{int(before.age_s // 60)} min"
        )
    taken = {} if before is None or had_it else dict(before.record)
    return _result(lock, not had_it, dict(owner), taken)


def _look(module: Any, lock: RunLock, owner_id: str) -> dict[str, Any]:
    held = lock.read()
    mine = held is not None and held.record.get("id") == owner_id
    if module.params["state"] == "absent":
        return _result(lock, mine, {} if held is None or mine else dict(held.record))
    if held is not None and not mine:
        module.warn(
            f"cluster {module.params['cluster_name']} is being changed by "
            f"{held.record.get('who') or 'somebody'}: what is shown here may change meanwhile"
        )
    return _result(lock, held is None, dict(held.record) if held else {})


def _result(
    lock: RunLock, changed: bool, holder: dict[str, Any], taken: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {"changed": changed, "name": lock.name, "holder": holder, "taken_from": taken or {}}


def main() -> None:
    spec = {
        "cluster_name": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "stale_after": {"type": "int", "default": 14400},
        "owner": {"type": "dict"},
        "take_from": {"type": "str"},
    }
    module = AnsibleAWSModule(argument_spec=spec, supports_check_mode=True)
    run(module, lambda: work(module))


if __name__ == "__main__":
    main()
