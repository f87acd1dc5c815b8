"""A point in a stream that the host opens: what tests use to know that work is still waiting."""

from __future__ import annotations

import ctypes
from typing import Any

from tests.softgpu.calls import value


class Gate:
    """Holds a stream until it is opened, so that work behind it is surely unfinished."""

    def __init__(self, cuda: Any) -> None:
        self.cuda = cuda
        self.page = value(cuda.cuMemHostAlloc(4096, cuda.CU_MEMHOSTALLOC_DEVICEMAP))
        self.word = ctypes.c_uint32.from_address(int(self.page))
        self.word.value = 0
        self.address = value(cuda.cuMemHostGetDevicePointer(self.page, 0))
        self.free_stream = value(cuda.cuStreamCreate(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING))

    def hold(self, stream: Any) -> None:
        equal = self.cuda.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ
        value(self.cuda.cuStreamWaitValue32(stream, self.address, 1, equal))

    def settle(self) -> None:
        """Lets the device go round a few times: what is not really held has surely run afterwards."""
        for _ in range(3):
            value(self.cuda.cuStreamWriteValue32(self.free_stream, int(self.address) + 64, 1, 0))
            value(self.cuda.cuStreamSynchronize(self.free_stream))

    def open(self) -> None:
        self.word.value = 1

    @property
    def is_open(self) -> bool:
        return bool(self.word.value)

    def close(self) -> None:
        self.open()
        self.cuda.cuCtxSynchronize()
        self.cuda.cuStreamDestroy(self.free_stream)
        self.cuda.cuMemFreeHost(self.page)
