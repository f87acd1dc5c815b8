"""A job that shares memory by cuIpcGetMemHandle. It does what stdin says: a call a line, its answer a line."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from typing import Any

from soft import Gpu, check, driver  # type: ignore[import-not-found]

LAZY = driver.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS


class Sharing:
    """Each method takes words and returns what is said."""

    def __init__(self) -> None:
        self.gpu = Gpu()

    def alloc(self, size: str) -> int:
        return int(check(driver.cuMemAlloc(int(size))))

    def free(self, pointer: str) -> int:
        return int(driver.cuMemFree(int(pointer))[0])

    def get(self, pointer: str) -> str:
        result, handle = driver.cuIpcGetMemHandle(int(pointer))
        return ctypes.string_at(handle.getPtr(), 64).hex() if int(result) == 0 else f"error {int(result)}"

    def open(self, handle: str, flags: str = str(int(LAZY))) -> str:
        given = driver.CUipcMemHandle()
        ctypes.memmove(given.getPtr(), bytes.fromhex(handle), 64)
        result, pointer = driver.cuIpcOpenMemHandle(given, int(flags))
        return str(int(pointer)) if int(result) == 0 else f"error {int(result)}"

    def open_at_once(self, handle: str, threads: str) -> int:
        """How many addresses as many threads get."""
        start, got = threading.Barrier(int(threads)), []

        def opens() -> None:
            self.gpu.use()
            start.wait()
            got.append(self.open(handle))

        running = [threading.Thread(target=opens) for _ in range(int(threads))]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        return len(set(got)) if len(got) == len(running) else -1

    def close(self, pointer: str) -> int:
        return int(driver.cuIpcCloseMemHandle(int(pointer))[0])

    def write(self, pointer: str, text: str) -> int:
        return int(driver.cuMemcpyHtoD(int(pointer), text.encode(), len(text))[0])

    def read(self, pointer: str, size: str) -> str:
        there = bytearray(int(size))
        (result,) = driver.cuMemcpyDtoH(there, int(pointer), len(there))
        return there.decode() if int(result) == 0 else f"error {int(result)}"

    def range(self, pointer: str) -> str:
        base, size = check(driver.cuMemGetAddressRange(int(pointer)))
        return f"{int(pointer) - int(base)} {size}"

    def attribute(self, name: str, pointer: str) -> str:
        which = getattr(driver.CUpointer_attribute, f"CU_POINTER_ATTRIBUTE_{name}")
        return str(int(check(driver.cuPointerGetAttribute(which, int(pointer)))))

    def registered_with_a_card(self, pointer: str) -> int:
        which = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
        return int(driver.cuPointerSetAttribute(1, which, int(pointer))[0])

    def reset(self) -> str:
        check(driver.cuDevicePrimaryCtxReset(self.gpu.device))
        self.gpu = Gpu()
        return "reset"

    def used(self) -> int:
        free, total = check(driver.cuMemGetInfo())
        return int(total - free)

    def fork(self) -> int:
        """A child that lives until this process ends, and does nothing."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
        os.close(reading)
        self.held = writing
        return child

    def files(self) -> int:
        return len(os.listdir("/proc/self/fd"))


def serve() -> None:
    sharing: Any = Sharing()
    print("ready", flush=True)
    for line in sys.stdin:
        call, *words = line.split()
        print(getattr(sharing, call)(*words), flush=True)


if __name__ == "__main__":
    serve()
