# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a pod of the proof of sharing runs: it says which GPU it had, when, and what CUDA gave it.

One line of JSON, to standard output and to the termination message. Standard library only, Python
3.9. Environment: JOB_COMPLETION_INDEX, GPUSHARE_PROOF_SECONDS, GPUSHARE_PROOF_SHARE_MIB,
GPUSHARE_PROOF_MESSAGE_FILE, and GPUSHARE_PROOF_OVER_INDEX where one pod is to ask for too much.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gpushare.eks.plugins.module_utils import _cuda, nvml_probe

SCHEMA = 1
HOLDER, OVER = "holder", "over_allocator"
STEP_MIB = 64
# Beside what it asks for, a process has a context, which counts as well.
HOLD_PART = 2


def gpus(environment: Mapping[str, str]) -> dict[str, Any]:
    """{"gpus": [UUID], "error"}: the GPUs of this container, by NVML."""
    found: list[str] = []

    def read(nvml: Any, index: int) -> None:
        gpu = nvml_probe.read_gpu(nvml, index)
        if gpu["uuid"]:
            found.append(gpu["uuid"])

    answer = nvml_probe.each_gpu(read)
    # The runtime hides what was not given; a driver that shows all of them is told by the plugin's
    # own variable.
    named = environment.get("NVIDIA_VISIBLE_DEVICES", "").split(",")
    given = [one for one in found if one in named]
    return {"gpus": given or found, "error": answer["error"]}


def hold(cuda: Any, index: int, share_mib: int, until: Callable[[], None]) -> dict[str, Any]:
    """Keep part of the share until the end, and look whether it is as it was."""
    pattern = index % 255 + 1
    cuda.take(max(share_mib // HOLD_PART, 1), pattern)
    until()
    return {"held_mib": cuda.held_mib, "intact": cuda.intact(pattern)}


def overdraw(cuda: Any, share_mib: int) -> dict[str, Any]:
    """Ask for one and a half shares, in steps -> what was got, and what refused the rest."""
    try:
        while cuda.held_mib < share_mib * 3 // 2:
            cuda.take(STEP_MIB, 0)
    except _cuda.CudaError as error:
        return {"held_mib": cuda.held_mib, "refused": error.type}
    return {"held_mib": cuda.held_mib, "refused": None}


def run(
    environment: Mapping[str, str],
    *,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
    open_cuda: Callable[[], Any] = _cuda.Cuda,
) -> dict[str, Any]:
    """What this pod has to say, after GPUSHARE_PROOF_SECONDS; the over-allocator after a third."""
    began = clock()
    index = int(environment["JOB_COMPLETION_INDEX"])
    seconds = float(environment["GPUSHARE_PROOF_SECONDS"])
    share_mib = int(environment["GPUSHARE_PROOF_SHARE_MIB"])
    over = environment.get("GPUSHARE_PROOF_OVER_INDEX") == str(index)
    seen = gpus(environment)

    def wait(part_s: float) -> None:
        sleep(max(0.0, began + part_s - clock()))

    cuda: dict[str, Any] = {"uuid": None, "error": None, "held_mib": 0}
    try:
        device = open_cuda()
        cuda["uuid"] = device.uuid
        if over:
            wait(seconds / 3)
            cuda.update(overdraw(device, share_mib))
        else:
            cuda.update(hold(device, index, share_mib, lambda: wait(seconds)))
    except _cuda.CudaError as error:
        cuda["error"] = {"type": error.type, "message": str(error)}
        wait(seconds)
    return {
        "schema": SCHEMA,
        "index": index,
        "role": OVER if over else HOLDER,
        "began": round(began, 3),
        "ended": round(clock(), 3),
        "gpus": seen["gpus"],
        "nvml_error": seen["error"],
        "cuda": cuda,
    }


def exit_code(said: Mapping[str, Any]) -> int:
    """1 for a pod that was refused memory, or lost its GPU; a missing CUDA is no failure."""
    cuda = said["cuda"]
    broken = cuda["error"] and cuda["error"]["type"] != _cuda.LIBRARY_NOT_FOUND
    lost = cuda.get("intact") is False or cuda.get("refused") or said["nvml_error"]
    return 1 if broken or lost else 0


def main() -> int:
    """The container's command."""
    said = run(os.environ)
    line = json.dumps(said, separators=(",", ":"), sort_keys=True)
    sys.stdout.write(line + "\n")
    with open(os.environ["GPUSHARE_PROOF_MESSAGE_FILE"], "w", encoding="utf-8") as handle:
        handle.write(line)
    return exit_code(said)


if __name__ == "__main__":
    raise SystemExit(main())
