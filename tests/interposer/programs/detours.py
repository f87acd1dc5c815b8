"""What the programs of test_detour.py share: kernels that write down when they ran."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

from soft import Gpu, check, driver  # type: ignore[import-not-found]

MODULE = b"""softgpu 1
kernel clock function=clock
kernel fill function=fill
"""

gpu = Gpu()
module = check(driver.cuModuleLoadData(MODULE))
clock, fill = (check(driver.cuModuleGetFunction(module, name)) for name in (b"clock", b"fill"))
SMS: int = check(
    driver.cuDeviceGetAttribute(
        driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu.device
    )
)
MANY = 100 * SMS  # blocks of 1024 threads: more than fit on the GPU at once
TYPES = (ctypes.c_uint64, ctypes.c_uint64)


class Clocks:
    """Kernels that last so long with all SMs, one place in memory each."""

    def __init__(self, count: int, us: int = 1000) -> None:
        self.us = us
        self.count = count
        self.memory = int(check(driver.cuMemAlloc(16 * count)))

    def launch(self, number: int, stream: Any = 0, blocks: int = MANY) -> None:
        parameters = ((self.memory + 16 * number, self.us), TYPES)
        check(driver.cuLaunchKernel(clock, blocks, 1, 1, 1024, 1, 1, 0, stream, parameters, 0))

    def launch_with(self, attribute: Any, stream: Any) -> None:
        """The first, with a launch attribute that says nothing."""
        config, said = driver.CUlaunchConfig(), driver.CUlaunchAttribute()
        config.gridDimX, config.gridDimY, config.gridDimZ = MANY, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = 1024, 1, 1
        said.id = attribute
        config.hStream, config.attrs, config.numAttrs = stream, [said], 1
        check(driver.cuLaunchKernelEx(config, clock, ((self.memory, self.us), TYPES), 0))

    def read(self) -> list[tuple[float, float]]:
        """When they ran, in microseconds; all have ended."""
        check(driver.cuCtxSynchronize())
        into = (ctypes.c_double * (2 * self.count))()
        check(driver.cuMemcpyDtoH(into, self.memory, 16 * self.count))
        return list(zip(into[::2], into[1::2], strict=True))


def one_by_one(stretches: Iterable[tuple[float, float]]) -> bool:
    last = 0.0
    for begin, end in sorted(stretches):
        if begin < last - 1e-6:
            return False
        last = end
    return True


def filled(stream: Any, memory: int, value: float, count: int) -> None:
    """Queues a kernel that writes so many floats, in more blocks than fit at once."""
    types = (ctypes.c_uint64, ctypes.c_float, ctypes.c_uint64)
    check(driver.cuLaunchKernel(fill, MANY, 1, 1, 1024, 1, 1, 0, stream, ((memory, value, count), types), 0))


def say(*words: object) -> str:
    print(*words, flush=True)
    return input()
