"""Every way to take GPU memory, for the test programs: each takes some and answers with how to give it back."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
from soft import check, driver  # type: ignore[import-not-found]

from cotenant import segment

MiB = 1 << 20
GiveBack = Callable[[], None]


def counted(settle: bool = True) -> int:
    """What the ledger has for this process, without what the driver took by itself."""
    if settle:
        driver.cuMemGetInfo()  # in a tenant with a limit, brings the counts of pools up to date
    tenants = segment.read(Path(os.environ["COTENANT_SEGMENT"])).tenants
    uses = [use for tenant in tenants if tenant.pid == os.getpid() for use in tenant.uses]
    return sum(use.memory_bytes - use.driver_bytes for use in uses)


def taken(everybody: bool = False) -> int:
    """What the GPU itself says that this process, or all processes, have of it."""
    pynvml.nvmlInit()
    total = 0
    for index in range(pynvml.nvmlDeviceGetCount()):
        device = pynvml.nvmlDeviceGetHandleByIndex(index)
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(device):
            if everybody or process.pid == os.getpid():
                total += process.usedGpuMemory
    pynvml.nvmlShutdown()
    return total


def location(kind: str = "DEVICE") -> Any:
    place = driver.CUmemLocation()
    place.type = getattr(driver.CUmemLocationType, f"CU_MEM_LOCATION_TYPE_{kind}")
    return place


def physical_properties() -> Any:
    properties = driver.CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location = location()
    return properties


def pool_properties() -> Any:
    properties = driver.CUmemPoolProps()
    properties.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location = location()
    return properties


def free(pointer: Any) -> GiveBack:
    return lambda: check(driver.cuMemFree(pointer))


def synchronously(call: Callable[[], Any]) -> GiveBack:
    def give_back() -> None:
        call()
        check(driver.cuCtxSynchronize())

    return give_back


def plain(size: int) -> GiveBack:
    return free(check(driver.cuMemAlloc(size)))


def rows(size: int) -> GiveBack:
    pointer, _ = check(driver.cuMemAllocPitch(size // 100 or 1, 100, 4))
    return free(pointer)


def managed(size: int) -> GiveBack:
    return free(check(driver.cuMemAllocManaged(size, driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value)))


def in_order(size: int) -> GiveBack:
    pointer = check(driver.cuMemAllocAsync(size, 0))
    return synchronously(lambda: check(driver.cuMemFreeAsync(pointer, 0)))


def in_order_freed_at_once(size: int) -> GiveBack:
    pointer = check(driver.cuMemAllocAsync(size, 0))
    return synchronously(lambda: check(driver.cuMemFree(pointer)))


def from_own_pool(size: int) -> GiveBack:
    pool = check(driver.cuMemPoolCreate(pool_properties()))
    pointer = check(driver.cuMemAllocFromPoolAsync(size, pool, 0))

    def end() -> None:
        check(driver.cuMemFreeAsync(pointer, 0))
        check(driver.cuCtxSynchronize())
        check(driver.cuMemPoolDestroy(pool))

    return end


def kept_in_pool(size: int) -> GiveBack:
    """Freed, but the pool keeps it until it is trimmed."""
    pool = check(driver.cuDeviceGetDefaultMemPool(0))
    keep = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    check(driver.cuMemPoolSetAttribute(pool, keep, driver.cuuint64_t(1 << 60)))
    check(driver.cuMemFreeAsync(check(driver.cuMemAllocAsync(size, 0)), 0))
    check(driver.cuCtxSynchronize())

    def trim() -> None:
        check(driver.cuMemPoolSetAttribute(pool, keep, driver.cuuint64_t(0)))
        check(driver.cuMemPoolTrimTo(pool, 0))

    return trim


def physical(size: int) -> GiveBack:
    handle = check(driver.cuMemCreate(whole(size), physical_properties(), 0))
    return lambda: check(driver.cuMemRelease(handle))


def whole(size: int) -> int:
    return -(-size // (2 * MiB)) * 2 * MiB


def mapped(size: int) -> GiveBack:
    """The handle goes first: the mapping keeps the memory."""
    size = whole(size)
    handle = check(driver.cuMemCreate(size, physical_properties(), 0))
    address = check(driver.cuMemAddressReserve(size, 0, 0, 0))
    check(driver.cuMemMap(address, size, 0, handle, 0))
    check(driver.cuMemRelease(handle))

    def unmap() -> None:
        check(driver.cuMemUnmap(address, size))
        check(driver.cuMemAddressFree(address, size))

    return unmap


def retained(size: int) -> GiveBack:
    """The mapping goes first: a second handle keeps the memory."""
    size = whole(size)
    handle = check(driver.cuMemCreate(size, physical_properties(), 0))
    address = check(driver.cuMemAddressReserve(size, 0, 0, 0))
    check(driver.cuMemMap(address, size, 0, handle, 0))
    again = check(driver.cuMemRetainAllocationHandle(int(address) + size // 2))
    check(driver.cuMemRelease(handle))
    check(driver.cuMemUnmap(address, size))
    check(driver.cuMemAddressFree(address, size))
    return lambda: check(driver.cuMemRelease(again))


def array(size: int) -> GiveBack:
    wanted = driver.CUDA_ARRAY_DESCRIPTOR()
    wanted.Width, wanted.Height = 1024, max(-(-size // 4096), 512)
    wanted.Format, wanted.NumChannels = driver.CUarray_format.CU_AD_FORMAT_FLOAT, 1
    handle = check(driver.cuArrayCreate(wanted))
    return lambda: check(driver.cuArrayDestroy(handle))


def box(size: int) -> GiveBack:
    wanted = driver.CUDA_ARRAY3D_DESCRIPTOR()
    wanted.Width, wanted.Height, wanted.Depth = 256, 256, max(-(-size // (4 * 65536)), 8)
    wanted.Format, wanted.NumChannels = driver.CUarray_format.CU_AD_FORMAT_FLOAT, 1
    handle = check(driver.cuArray3DCreate(wanted))
    return lambda: check(driver.cuArrayDestroy(handle))


def graph_node(size: int) -> GiveBack:
    graph = check(driver.cuGraphCreate(0))
    parameters = driver.CUDA_MEM_ALLOC_NODE_PARAMS()
    parameters.poolProps = pool_properties()
    parameters.bytesize = size
    check(driver.cuGraphAddMemAllocNode(graph, None, 0, parameters))
    return synchronously(lambda: check(driver.cuGraphDestroy(graph)))


def captured(size: int) -> GiveBack:
    stream = check(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    check(driver.cuStreamBeginCapture(stream, mode))
    check(driver.cuMemFreeAsync(check(driver.cuMemAllocAsync(size, stream)), stream))
    graph = check(driver.cuStreamEndCapture(stream))
    check(driver.cuStreamDestroy(stream))
    return synchronously(lambda: check(driver.cuGraphDestroy(graph)))


WAYS: dict[str, Callable[[int], GiveBack]] = {
    way.__name__: way
    for way in (
        plain,
        rows,
        managed,
        in_order,
        in_order_freed_at_once,
        from_own_pool,
        kept_in_pool,
        physical,
        mapped,
        retained,
        array,
        box,
        graph_node,
        captured,
    )
}
