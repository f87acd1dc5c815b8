"""A point in a stream that the host opens: what tests use to know that work is still waiting."""

from __future__ import annotations

import ctypes
from typing import Any

from tests.softgpu.calls import value


class Gate:
    """Holds a stream until it is opened by the host."""

    def __init__(self, cuda: Any, stream: Any) -> None:
        self.cuda = cuda
        self.word = value(cuda.cuMemHostAlloc(4, cuda.CU_MEMHOSTALLOC_DEVICEMAP))
        ctypes.memset(int(self.word), 0, 4)
        flags = cuda.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ.value
        value(cuda.cuStreamWaitValue32(stream, value(cuda.cuMemHostGetDevicePointer(self.word, 0)), 1, flags))

    def open(self) -> None:
        ctypes.c_uint32.from_address(int(self.word)).value = 1

    @property
    def is_open(self) -> bool:
        return ctypes.c_uint32.from_address(int(self.word)).value == 1

    def close(self) -> None:
        self.open()
        value(self.cuda.cuCtxSynchronize())
        value(self.cuda.cuMemFreeHost(self.word))
