"""Writes when each task began, as lines of JSON, so that a call can be told its role and task."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: task_times
type: notification
short_description: Write when each task began
description:
  - Appends a line of JSON for each task to the file that GPUSHARE_TASK_TIMES names.
"""


class CallbackModule(CallbackBase):
    """One line a task: time, role, task."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "task_times"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        role = task._role.get_name() if task._role else ""
        row = {"time": time.time(), "role": role.rpartition(".")[2], "task": task.name}
        with Path(os.environ["GPUSHARE_TASK_TIMES"]).open("a") as out:
            out.write(json.dumps(row) + "\n")
