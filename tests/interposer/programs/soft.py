"""What the test programs share: a context and kernels on the software GPU, through NVIDIA's cuda-bindings."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver

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
