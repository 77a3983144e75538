"""Keeps the modules that ansible-core packs for one run for all runs of `make test`.

ansible-core walks the imports of each module anew in every ansible-playbook: 0.28 s a module, 7 of
the 44 CPU seconds of site.yml in check mode. It looks into a folder of the run's own for what it
packed before; here that folder is a link to one in the virtual environment, which is named by what
could change a packed module: our plugins' files and the environment itself.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from ansible import constants
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: module_cache
type: aggregate
short_description: Keeps packed modules from run to run
description: For tests alone, enabled by tools/test.sh.
"""
_PLUGINS = Path(__file__).resolve().parents[2] / "plugins"


def folder() -> Path:
    """Where modules lie that were packed from just these files."""
    files = sorted(path for path in _PLUGINS.rglob("*.py"))
    files.append(Path(sys.prefix, "pyvenv.cfg"))
    seen = hashlib.sha256()
    for path in files:
        found = path.stat()
        seen.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
    return Path(sys.prefix, "packed-modules", seen.hexdigest()[:16])


class CallbackModule(CallbackBase):
    """Links ansible-core's folder of packed modules before the first task asks for one."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "module_cache"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        kept = folder()
        kept.mkdir(parents=True, exist_ok=True)
        os.symlink(kept, os.path.join(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache"))
