# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Our SSM documents: each one fixed script, joined from the files that run on the nodes.

No document takes a parameter, so that IAM can allow SendCommand on them alone. The source stands in
them in clear: whoever reads a document sees what runs on the nodes.
"""

from __future__ import annotations

import ast
import hashlib
import json
from types import ModuleType
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils import (
    _node_probe,
    _node_processes,
    nvml_probe,
)

DOCUMENT_PREFIX = "gpushare-probe-"
_END = "GPUSHARE_PROBE_END"
_OURS = "ansible_collections."


def probe_document() -> dict[str, Any]:
    """Reads GPU memory. {"name": "gpushare-probe-<hash8>", "content": {...}, "text", "hash"}."""
    what = "gpushare.eks: print GPU memory as NVML reports it, as one line of JSON"
    return _document(what, "nvml", [nvml_probe, _node_probe], "main")


def processes_document() -> dict[str, Any]:
    """Reads used memory by process. A document apart: who may read memory need not see processes.

    Its prefix is the same, so that one IAM statement grants both or, by the whole name, either.
    """
    what = "gpushare.eks: print GPU memory in use by process and pod, as one line of JSON"
    parts = [nvml_probe, _node_probe, _node_processes]
    return _document(what, "processes", parts, "main_processes")


def documents() -> list[dict[str, Any]]:
    """All documents of ours; the first reads GPU memory."""
    return [probe_document(), processes_document()]


def _document(what: str, step: str, parts: list[ModuleType], entry: str) -> dict[str, Any]:
    lines = joined(parts, entry)
    content = {
        "schemaVersion": "2.2",
        "description": what,
        "mainSteps": [
            {
                "action": "aws:runShellScript",
                "name": step,
                "inputs": {
                    "timeoutSeconds": "60",
                    "runCommand": [f"exec python3 -I -S - <<'{_END}'", *lines, _END],
                },
            }
        ],
    }
    text = json.dumps(content, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    name = f"{DOCUMENT_PREFIX}{digest[:8]}"
    return {"name": name, "content": content, "text": text, "hash": digest}


def joined(parts: list[ModuleType], entry: str) -> list[str]:
    """The modules as one script that ends in a call of `entry`: what they import of each other
    stands before it, so these imports go."""
    lines = ["from __future__ import annotations"]
    for part in parts:
        source = part.__spec__.loader.get_source(part.__name__)  # also out of a zip
        gone: set[int] = set()
        for one in ast.parse(source).body:
            if isinstance(one, ast.ImportFrom) and (one.module or "").startswith(
                ("__future__", _OURS)
            ):
                gone |= set(range(one.lineno, (one.end_lineno or one.lineno) + 1))
        lines += [line for n, line in enumerate(source.splitlines(), 1) if n not in gone]
    return [*lines, "", f"{entry}()"]
