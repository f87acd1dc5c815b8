"""Memory leaves only when nothing runs in any context of the process, watched or not; and contexts come and go."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from tests.conftest import REAL_GPU
from tests.interposer.test_pause import pause, pid_of, resume

if TYPE_CHECKING:
    from tests.conftest import Run, RunPython
    from tests.interposer.conftest import Tenant

    Start = Callable[..., Tenant]
    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

pytestmark = pytest.mark.skipif(REAL_GPU, reason="two GPUs, and green contexts whose SMs are not set apart")

GREEN_CONTEXT = """
def green_context():
    whole = check(driver.cuDeviceGetDevResource(0, driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM))
    groups, _, _ = check(driver.cuDevSmResourceSplitByCount(1, whole, 0, 1))
    description = check(driver.cuDevResourceGenerateDesc(groups, 1))
    return check(driver.cuGreenCtxCreate(description, 0, driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM))
"""

# `held`: a stream that waits until `release` is called, and then writes into the memory.
PRELUDE = (
    """
from moving import *
import ctypes
gpu = Gpu(); word = check(driver.cuMemHostAlloc(64, driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP))
value = ctypes.c_uint32.from_address(word); value.value = 0
def hold(stream):
    check(driver.cuStreamWaitValue32(stream, word, 1, driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ))
def contents(pointer, size):
    there = bytearray(size); check(driver.cuMemcpyDtoH(there, pointer, size)); return there
"""
    + GREEN_CONTEXT
)


def forget_other_gpus(path: Path) -> None:
    """All places for GPUs are taken: one that the segment has not seen yet stays unknown to it."""
    with path.open("r+b") as file:
        for number in range(1, segment.GPUS):
            gpu = segment.Gpu(known=segment.GPU_VALID)
            gpu.uuid[:] = bytes([number]) * 16
            file.seek(segment.Header.gpus.offset + number * ctypes.sizeof(segment.Gpu))
            file.write(bytes(gpu))


def refused(cotenant: Run, one: Tenant) -> None:
    done = cotenant("pause", pid_of(one), env=one.env)
    assert (done.returncode, "its work on the GPU did not end in time" in done.stderr) == (1, True), (
        done.stderr
    )


def test_work_on_a_gpu_that_the_segment_does_not_know_is_waited_for(
    tenant: Start, cotenant: Run, softgpu_env: dict[str, str]
) -> None:
    one = tenant(
        "opportunistic",
        PRELUDE
        + """
memory = by_mapping(PAGE); access = driver.CUmemAccessDesc(); access.location = device_location()
access.location.id = 1; access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
check(driver.cuMemSetAccess(memory, PAGE, [access], 1)); check(driver.cuMemsetD8(memory, 1, 100))
print('ready', flush=True); input()
other = Gpu(1); stream = other.stream(); check(driver.cuMemsetD8Async(memory, 2, 100, stream)); other.synchronize()
gpu.use(); print('used', flush=True); input()
other.use(); hold(stream); check(driver.cuMemsetD8Async(memory, 7, 100, stream))
gpu.use(); print('held', flush=True); input()
value.value = 1; other.use(); check(driver.cuStreamSynchronize(stream)); gpu.use(); print('done', flush=True); input()
print(set(contents(memory, 100)))
""",
        COTENANT_SOFTGPU="small,small",
        COTENANT_OVERSUBSCRIBE="1",
    )
    assert one.hear() == "ready"
    forget_other_gpus(Path(softgpu_env["COTENANT_SEGMENT"]))
    one.say("")
    assert one.hear() == "used"
    # What was queued before an eviction is no reason to take for done what is queued after it.
    pause(cotenant, one)
    resume(cotenant, one)
    one.say("")
    assert one.hear() == "held"
    refused(cotenant, one)
    one.say("")
    assert one.hear() == "done"
    pause(cotenant, one)
    resume(cotenant, one)
    one.say("")
    assert one.process
    out, _ = one.process.communicate(timeout=60)
    assert (one.process.returncode, out) == (0, "{7}\n")


def test_work_of_a_green_context_is_waited_for(tenant: Start, cotenant: Run) -> None:
    one = tenant(
        "opportunistic",
        PRELUDE
        + """
memory = check(driver.cuMemAlloc(4 << 20)); green = green_context()
stream = check(driver.cuGreenCtxStreamCreate(green, driver.CUstream_flags.CU_STREAM_NON_BLOCKING, 0))
hold(stream); check(driver.cuMemsetD8Async(memory, 7, 100, stream)); print('held', flush=True); input()
value.value = 1; check(driver.cuStreamSynchronize(stream)); print('done', flush=True); input()
print(set(contents(memory, 100)))
""",
        COTENANT_OVERSUBSCRIBE="1",
    )
    assert one.hear() == "held"
    refused(cotenant, one)
    one.say("")
    assert one.hear() == "done"
    pause(cotenant, one)
    resume(cotenant, one)
    one.say("")
    assert one.finish() == "{7}\n"


def test_a_green_context_takes_nothing_with_it(tenant: Start, cotenant: Run) -> None:
    """What was allocated, used and freed while it was current is the primary context's, and moves without it."""
    one = tenant(
        "opportunistic",
        PRELUDE
        + """
green = green_context(); check(driver.cuCtxSetCurrent(check(driver.cuCtxFromGreenCtx(green))))
stream = check(driver.cuGreenCtxStreamCreate(green, driver.CUstream_flags.CU_STREAM_NON_BLOCKING, 0))
large, small = (check(driver.cuMemAlloc(size)) for size in (4 << 20, 100))
freed = check(driver.cuMemAllocAsync(3 << 20, stream))
for at in large, small: check(driver.cuMemsetD8Async(at, 7, 100, stream))
check(driver.cuStreamSynchronize(stream))  # the default stream does not wait for it
for at in large, small: check(driver.cuMemsetD8Async(at, 8, 50, 0))
check(driver.cuMemFreeAsync(freed, stream)); gpu.synchronize()
print('moves', flush=True); input()
check(driver.cuGreenCtxDestroy(green)); gpu.use()
print('gone', flush=True); input()
print(*(sorted(set(contents(at, 100))) for at in (large, small)))
check(driver.cuMemFree(large)); check(driver.cuMemFree(small))
""",
        COTENANT_OVERSUBSCRIBE="1",
    )
    assert one.hear() == "moves"
    pause(cotenant, one)
    resume(cotenant, one)
    one.say("")
    assert one.hear() == "gone"
    for _ in range(2):
        pause(cotenant, one)
        resume(cotenant, one)
    one.say("")
    assert one.finish() == "[7, 8] [7, 8]\n"


def test_the_last_green_context_ends_the_primary_one(tenant: Start, tenants_now: TenantsNow) -> None:
    """Where nobody else holds it: then its memory is gone, and a limit has space for as much again."""
    one = tenant(
        "opportunistic",
        "from soft import check, driver\ncheck(driver.cuInit(0))\n"
        + GREEN_CONTEXT
        + """
for _ in range(3):
    green = green_context(); check(driver.cuCtxSetCurrent(check(driver.cuCtxFromGreenCtx(green))))
    memory = check(driver.cuMemAlloc(40 << 20)); check(driver.cuMemsetD8Async(memory, 7, 40 << 20, 0))
    check(driver.cuCtxSynchronize()); print('there', flush=True); input()
    check(driver.cuGreenCtxDestroy(green)); print('gone', flush=True); input()
""",
        COTENANT_MEMORY=str(64 << 20),
    )
    for _ in range(3):
        assert one.hear() == "there"
        assert [use.memory_bytes for use in tenants_now()[0].uses] == [40 << 20]
        one.say("")
        assert one.hear() == "gone"
        assert [use.memory_bytes for use in tenants_now()[0].uses] == [0]
        one.say("")
    one.finish()
    assert one.total("escaped") == 0


def test_a_capture_ends_with_its_green_context(tenant: Start, cotenant: Run) -> None:
    """An open capture keeps memory on the GPU."""
    one = tenant(
        "opportunistic",
        PRELUDE
        + """
memory = check(driver.cuMemAlloc(4 << 20)); green = green_context(); kernel = gpu.kernel('empty')
stream = check(driver.cuGreenCtxStreamCreate(green, driver.CUstream_flags.CU_STREAM_NON_BLOCKING, 0))
check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
gpu.launch(kernel, stream); print('captures', flush=True); input()
check(driver.cuGreenCtxDestroy(green)); gpu.use(); print('gone', flush=True); input()
""",
        COTENANT_OVERSUBSCRIBE="1",
    )
    assert one.hear() == "captures"
    done = cotenant("pause", pid_of(one), env=one.env)
    assert done.returncode == 1 and "captured" in done.stderr
    one.say("")
    assert one.hear() == "gone"
    pause(cotenant, one)
    resume(cotenant, one)
    one.say("")
    one.finish()


# Counts, as NVIDIA's driver does, who has attached to the context that a program has made.
ATTACHING_DRIVER = """
static int attached;
int cuCtxAttach(void** out, unsigned flags) {
    int (*current)(void**) = dlsym(RTLD_NEXT, "cuCtxGetCurrent");
    ++attached;
    return current(out);
}
int cuCtxDetach(void* context) {
    int (*destroy)(void*) = dlsym(RTLD_NEXT, "cuCtxDestroy_v2");
    return attached-- > 0 ? 0 : destroy(context);
}
"""


def test_memory_stays_until_the_last_has_detached_from_its_context(
    preloaded: dict[str, str], run_python: RunPython, driver_with: Callable[[str], Path]
) -> None:
    told = {"COTENANT_DRIVER": str(driver_with(ATTACHING_DRIVER)), "COTENANT_CLASS": "opportunistic"}
    source = """
import ctypes
from soft import check, driver
from memory_ways import counted
check(driver.cuInit(0)); context = check(driver.cuCtxCreate(None, 0, 0)); library = ctypes.CDLL('libcuda.so.1')
memory = check(driver.cuMemAlloc(4 << 20)); attached = ctypes.c_void_p()
for _ in range(2): assert library.cuCtxAttach(ctypes.byref(attached), 0) == 0 and attached.value == int(context)
for _ in range(2):
    assert library.cuCtxDetach(attached) == 0; check(driver.cuMemsetD8(memory, 1, 4 << 20)); print(counted() >> 20)
assert library.cuCtxDetach(attached) == 0; print(counted() >> 20)
"""
    done = run_python(source, preloaded | told)
    assert done.stdout.split() == ["4", "4", "0"], done.stderr
