# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The few calls of CUDA's driver API that a proof of sharing makes.

Standard library only, Python 3.9. Signatures: CUDA driver API reference (docs.nvidia.com/cuda).
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Callable
from typing import Any

LIBRARY = "libcuda.so.1"
LIBRARY_NOT_FOUND, OUT_OF_MEMORY = "LIBRARY_NOT_FOUND", "OUT_OF_MEMORY"
MIB = 1024 * 1024
# Those that tell a container what to do; any other keeps its number.
_CODES = {
    1: "INVALID_VALUE",
    2: OUT_OF_MEMORY,
    3: "NOT_INITIALIZED",
    35: "INSUFFICIENT_DRIVER",
    46: "DEVICE_UNAVAILABLE",
    100: "NO_DEVICE",
    201: "INVALID_CONTEXT",
    700: "ILLEGAL_ADDRESS",
    719: "LAUNCH_FAILED",
    802: "SYSTEM_NOT_READY",
    803: "SYSTEM_DRIVER_MISMATCH",
    805: "MPS_CONNECTION_FAILED",
    806: "MPS_RPC_FAILURE",
    807: "MPS_SERVER_NOT_READY",
    808: "MPS_MAX_CLIENTS_REACHED",
    809: "MPS_MAX_CONNECTIONS_REACHED",
    999: "UNKNOWN",
}


class CudaError(Exception):
    """One call failed: `.type` is the name of the code."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.type = kind


class Cuda:
    """The first GPU that this process may use, with its primary context. Raises CudaError."""

    def __init__(self, load: Callable[[str], Any] = ctypes.CDLL) -> None:
        try:
            self._library = load(LIBRARY)
        except OSError as error:
            raise CudaError(LIBRARY_NOT_FOUND, str(error)[:160]) from None
        self._blocks: list[tuple[ctypes.c_uint64, int]] = []
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", ctypes.c_uint(0))
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        name = (ctypes.c_ubyte * 16)()
        self._call("cuDeviceGetUuid_v2", ctypes.byref(name), device)
        self.uuid = f"GPU-{uuid.UUID(bytes=bytes(name))}"
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise CudaError("FUNCTION_NOT_FOUND", f"{LIBRARY} has no {name}") from None
        code = function(*arguments)
        if code:
            kind = _CODES.get(code, f"CODE_{code}")
            raise CudaError(kind, f"{name} answered {kind} ({code})")

    @property
    def held_mib(self) -> int:
        """What take() has got so far."""
        return sum(size for _block, size in self._blocks)

    def take(self, size_mib: int, pattern: int) -> None:
        """Allocate whole MiB and fill them with one byte."""
        block, size = ctypes.c_uint64(), ctypes.c_size_t(size_mib * MIB)
        self._call("cuMemAlloc_v2", ctypes.byref(block), size)
        self._blocks.append((block, size_mib))
        self._call("cuMemsetD8_v2", block, ctypes.c_ubyte(pattern), size)

    def intact(self, pattern: int) -> bool:
        """Whether the last MiB of every block still holds the byte."""
        buffer = (ctypes.c_ubyte * MIB)()
        for block, size_mib in self._blocks:
            start = ctypes.c_uint64(block.value + (size_mib - 1) * MIB)
            self._call("cuMemcpyDtoH_v2", buffer, start, ctypes.c_size_t(MIB))
            if bytes(buffer) != bytes([pattern]) * MIB:
                return False
        return True
