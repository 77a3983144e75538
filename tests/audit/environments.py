"""The auditors' programs: an environment for each in the cache, made on first use."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from lab import LabError, cache_dir
from lab.toolchain import Progress, locked, say

PINNED = Path(__file__).with_name("tools.txt")


def requirements(text: str) -> dict[str, str]:
    """Program -> its requirement, from the lines of tools.txt."""
    lines = [line.strip() for line in text.splitlines()]
    return {line.split("==")[0]: line for line in lines if line and not line.startswith("#")}


def program(name: str, progress: Progress = say) -> str:
    """The path of an auditor; a killed installation leaves nothing half-made."""
    requirement = requirements(PINNED.read_text())[name]
    python = "{}.{}".format(*sys.version_info)
    folder = cache_dir() / "tools" / f"{requirement.replace('==', '-')}-py{python}"
    with locked(folder.with_name(f".{folder.name}.lock"), requirement, progress):
        if not folder.is_dir():
            progress(f"{requirement}: installed from PyPI into the cache (a minute or two)")
            temporary = folder.with_name(f".{folder.name}.part")
            shutil.rmtree(temporary, ignore_errors=True)
            _install(requirement, temporary)
            temporary.rename(folder)
    return str(folder / "bin" / name)


def _install(requirement: str, folder: Path) -> None:
    uv = [sys.executable, "-m", "uv"]
    for command in (
        # Relocatable, because it is renamed when it is whole.
        [*uv, "venv", "-q", "--relocatable", "--python", sys.executable, str(folder)],
        [*uv, "pip", "install", "-q", "--python", str(folder / "bin" / "python"), requirement],
    ):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            raise LabError(
                f"cannot install {requirement} from PyPI: {done.stderr.strip()[-800:]}\n"
                "make PyPI reachable (UV_INDEX_URL, proxies), then run the same again"
            )
