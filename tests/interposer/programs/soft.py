"""What the test programs share: a context and kernels on the software GPU, through NVIDIA's cuda-bindings.

Import it before cuda-bindings: without the search for NVIDIA's libraries they load in half the time.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import types
from typing import Any


class Opened:
    def __init__(self, handle: int) -> None:
        self._handle_uint = handle


class Search(types.ModuleType):
    """Opens the driver as cuda.pathfinder does where the loader finds it; whoever wants more gets the real one."""

    def load_nvidia_dynamic_lib(self, name: str) -> Any:
        if name != "cuda":
            return self.real().load_nvidia_dynamic_lib(name)
        return Opened(ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOW | os.RTLD_GLOBAL)._handle)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.real(), name)

    def real(self) -> Any:
        if sys.modules.get("cuda.pathfinder") is self:
            del sys.modules["cuda.pathfinder"]
        return importlib.import_module("cuda.pathfinder")


if os.environ.get("COTENANT_TEST_REAL_GPU") != "1":
    sys.modules.setdefault("cuda.pathfinder", Search("cuda.pathfinder"))

from cuda.bindings import driver  # noqa: E402

MODULE = b"""softgpu 1
kernel empty time=1us sms=1
kernel long  time=20000us sms=all
kernel spin  time=@0us params=u64
kernel fill  function=fill
kernel add   function=add
kernel scale function=scale
kernel clock function=clock
"""


def check(result: tuple[Any, ...]) -> Any:
    code, *values = result
    if code != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(str(code))
    return values[0] if len(values) == 1 else tuple(values)


class Gpu:
    def __init__(self, ordinal: int = 0) -> None:
        check(driver.cuInit(0))
        self.device = check(driver.cuDeviceGet(ordinal))
        self.context = check(driver.cuDevicePrimaryCtxRetain(self.device))
        self.use()
        self.module = check(driver.cuModuleLoadData(MODULE))

    def use(self) -> None:
        check(driver.cuCtxSetCurrent(self.context))

    def kernel(self, name: str) -> Any:
        return check(driver.cuModuleGetFunction(self.module, name.encode()))

    def launch(self, kernel: Any, stream: Any = 0, parameters: Any = 0) -> None:
        check(driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, 0))

    def stream(self) -> Any:
        return check(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))

    def synchronize(self) -> None:
        check(driver.cuCtxSynchronize())
