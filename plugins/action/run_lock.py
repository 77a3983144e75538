# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What only the controller knows of a run lock: which process holds it, and whether one ended."""

from __future__ import annotations

import os
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.gpushare.eks.plugins.plugin_utils import run_owner

MODULE = "gpushare.eks.run_lock"


class ActionModule(ActionBase):
    """Names this run as the owner, and takes the lock of a run that ended on this machine."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        del tmp
        variables = task_vars or {}
        # A task runs in a child of ansible-playbook, whose life is the run's.
        arguments = {"owner": run_owner.owner(os.getppid(), variables), **self._task.args}

        def call(**more: Any) -> dict[str, Any]:
            return self._execute_module(
                module_name=MODULE, module_args={**arguments, **more}, task_vars=variables
            )

        found = call()
        error = found.get("error") or {}
        holder = str((error.get("holder") or {}).get("id") or "")
        if found.get("failed") and holder and run_owner.ended(holder):
            found = call(take_from=holder)
        result.update(found)
        return result
