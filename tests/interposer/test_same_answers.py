"""The program gets the driver's own answers, to right calls and to wrong ones, however it runs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from tests.conftest import REAL_GPU
from tests.interposer.conftest import PROGRAMS
from tests.softgpu.test_null_arguments import exported

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Run, RunPython

ASKS = """
import ctypes
from soft import Gpu, check, driver
gpu = Gpu(); stream, other = gpu.stream(), gpu.stream(); empty = gpu.kernel('empty')
host = ctypes.create_string_buffer(4096); MODES = driver.CUstreamCaptureMode
event = check(driver.cuEventCreate(0))
def told(name, *calls):
    print(name, *(answer[0].name for answer in calls))
def launch(grid=1, block=1, shared=0, where=stream):
    return driver.cuLaunchKernel(empty, grid, 1, 1, block, 1, 1, shared, where, 0, 0)
told('launches', launch(), launch(0), launch(1, 4096), launch(1, 1, 1 << 30), launch(where=0), launch(where=2))

module = check(driver.cuModuleLoadData(b'softgpu 1\\nkernel one time=1us\\n'))
function = check(driver.cuModuleGetFunction(module, b'one'))
told('modules', driver.cuModuleGetFunction(module, b'two'), driver.cuModuleUnload(module),
     driver.cuModuleGetFunction(module, b'one'), driver.cuModuleUnload(module),
     driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0))

memory = check(driver.cuMemAlloc(1 << 20)); address = int(memory)
told('memory', driver.cuMemAlloc(0), driver.cuMemAlloc(1 << 50), driver.cuMemFree(address + 512), driver.cuMemFree(0))
told('copies', driver.cuMemcpyHtoD(address, host, 4096), driver.cuMemcpyDtoH(host, address, 4096),
     driver.cuMemcpyDtoD(address + 8192, address, 4096), driver.cuMemcpyHtoDAsync(address, host, 4096, stream),
     driver.cuMemcpyDtoHAsync(host, address, 4096, stream),
     driver.cuMemcpyDtoDAsync(address + 8192, address, 64, other))
told('fills', driver.cuMemsetD8(address, 1, 64), driver.cuMemsetD16(address, 2, 64), driver.cuMemsetD32(address, 3, 64),
     driver.cuMemsetD2D8(address, 64, 4, 8, 4), driver.cuCtxSynchronize(),
     driver.cuMemsetD32Async(address, 5, 64, stream), driver.cuMemsetD16(address + 1, 2, 64),
     driver.cuMemsetD32(address + 2, 2, 64))
told('waits', driver.cuStreamSynchronize(stream), driver.cuStreamSynchronize(other), driver.cuCtxSynchronize(),
     driver.cuEventSynchronize(event), driver.cuStreamQuery(stream), driver.cuEventQuery(event))
into = ctypes.create_string_buffer(64); check(driver.cuMemcpyDtoH(into, address, 64)); print(into.raw.hex())
told('events', driver.cuEventRecord(event, stream), driver.cuStreamWaitEvent(other, event, 0),
     driver.cuStreamWaitEvent(other, 0, 0), driver.cuEventSynchronize(event))

told('in order', driver.cuMemFreeAsync(address + 512, stream), driver.cuMemAllocAsync(1 << 50, stream))
piece = check(driver.cuMemAllocAsync(4096, stream))
told('pieces', driver.cuMemsetD8Async(piece, 1, 4096, stream), driver.cuMemFreeAsync(piece, stream),
     driver.cuStreamSynchronize(stream), driver.cuMemFreeAsync(piece, stream))
told('freed', driver.cuMemFree(memory), driver.cuMemFree(memory), driver.cuMemFree(piece))

told('captures', driver.cuStreamEndCapture(stream), driver.cuStreamBeginCapture(0, MODES.CU_STREAM_CAPTURE_MODE_GLOBAL),
     driver.cuStreamBeginCapture(stream, MODES.CU_STREAM_CAPTURE_MODE_GLOBAL),
     driver.cuStreamBeginCapture(stream, MODES.CU_STREAM_CAPTURE_MODE_GLOBAL), launch(), driver.cuStreamQuery(stream))
told('broken', driver.cuStreamEndCapture(stream))
check(driver.cuStreamBeginCapture(stream, MODES.CU_STREAM_CAPTURE_MODE_GLOBAL)); launch(); launch()
graph = check(driver.cuStreamEndCapture(stream)); print(check(driver.cuGraphGetNodes(graph))[1])
told('instances', driver.cuGraphInstantiate(0, 0), driver.cuGraphInstantiate(graph, 1 << 20))
made = check(driver.cuGraphInstantiate(graph, 0)); empty_graph = check(driver.cuGraphCreate(0))
told('graphs', driver.cuGraphLaunch(made, stream), driver.cuGraphLaunch(made, 0), driver.cuGraphUpload(made, stream),
     driver.cuGraphExecUpdate(made, graph), driver.cuGraphExecUpdate(made, empty_graph),
     driver.cuGraphExecUpdate(made, 0), driver.cuGraphLaunch(0, stream))
check(driver.cuCtxSynchronize())
told('executables', driver.cuGraphExecDestroy(made), driver.cuGraphExecDestroy(made),
     driver.cuGraphLaunch(made, stream), driver.cuGraphDestroy(graph), driver.cuGraphDestroy(graph))

pool = driver.CUmemPoolProps(); pool.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
pool.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE; mine = check(driver.cuMemPoolCreate(pool))
told('pools', driver.cuMemAllocFromPoolAsync(4096, mine, stream), driver.cuMemPoolTrimTo(mine, 0),
     driver.cuMemPoolDestroy(mine), driver.cuMemPoolTrimTo(mine, 0))
about = driver.CUmemAllocationProp(); about.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
about.location = pool.location; handle = check(driver.cuMemCreate(2 << 20, about, 0))
asks = lambda: driver.cuMemGetAllocationPropertiesFromHandle(handle)
told('physical', asks(), driver.cuMemRelease(handle), asks(), driver.cuMemRelease(handle), driver.cuMemRelease(4711))
told('arrays', driver.cuArrayDestroy(0), driver.cuMemAllocPitch(0, 1, 4), driver.cuMemAllocPitch(100, 3, 4))

second = check(driver.cuCtxCreate(None, 0, 0)); lost = check(driver.cuStreamCreate(0)); check(driver.cuMemAlloc(4096))
told('contexts', launch(where=lost), driver.cuCtxDestroy(second), driver.cuCtxDestroy(second),
     driver.cuStreamSynchronize(lost), driver.cuCtxSetCurrent(gpu.context), driver.cuCtxDestroy(gpu.context))
told('streams', driver.cuStreamDestroy(other), driver.cuStreamDestroy(other), launch(where=other),
     driver.cuStreamSynchronize(other), driver.cuEventDestroy(event), driver.cuEventRecord(event, stream))
told('primary', driver.cuDevicePrimaryCtxReset(gpu.device), launch(), driver.cuCtxSynchronize(), driver.cuMemAlloc(64))
told('again', driver.cuDevicePrimaryCtxRelease(gpu.device), driver.cuDevicePrimaryCtxRelease(gpu.device))
gpu = Gpu(); empty = gpu.kernel('empty'); stream = gpu.stream(); told('anew', launch(), driver.cuCtxSynchronize())
"""


@pytest.fixture
def env(softgpu_env: dict[str, str]) -> dict[str, str]:
    return softgpu_env | {"PYTHONPATH": os.pathsep.join([str(PROGRAMS), softgpu_env["PYTHONPATH"]])}


@pytest.fixture
def plain(run_python: RunPython, env: dict[str, str]) -> str:
    done = run_python(ASKS, env)
    assert done.returncode == 0 and "again" in done.stdout, done.stderr
    return done.stdout


WAYS = (
    ["run", "--class", "production"],
    ["run", "--class", "opportunistic"],
    ["run", "--class", "standard", "--memory", "900M"],
    ["record", "-o", "job.trace"],
)


@pytest.mark.parametrize("how", WAYS, ids=lambda how: " ".join(how[:3]))
def test_every_way_to_run_gives_the_answers_of_the_driver_alone(
    cotenant: Run, env: dict[str, str], plain: str, tmp_path: Path, how: list[str]
) -> None:
    words = [str(tmp_path / word) if word == "job.trace" else word for word in how]
    done = cotenant(*words, "--", sys.executable, "-c", ASKS, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == plain.splitlines()


# Every function that the driver exports, with zeros only; in a process that is a tenant from the first of them on.
WITH_NOTHING = """
import ctypes, sys
library = ctypes.CDLL('libcuda.so.1'); context = ctypes.c_void_p(); nothing = [ctypes.c_void_p(None)] * 13
assert library.cuInit(0) == 0
for name in sys.argv[1].split(','):
    assert library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and library.cuCtxSetCurrent(context) == 0
    library.cuMemsetD8_v2(None, 0, None)
    print(name, getattr(library, name)(*nothing), flush=True)
"""


@pytest.mark.skipif(REAL_GPU, reason="NVIDIA's driver does not survive some of them")
def test_a_call_with_nothing_is_refused_as_the_driver_refuses_it(
    cotenant: Run, run_python: RunPython, env: dict[str, str], native: Path, tmp_path: Path
) -> None:
    # A capture would stay open for the calls behind it, and what a stream is asked depends on how far the device is.
    without = ("cuStreamBeginCapture_v2", "cuStreamQuery")
    names = [
        name for name in exported(native / "softgpu" / "libcuda.so.1", "cu") if not name.startswith(without)
    ]
    asked = ",".join(names)
    plain = run_python(WITH_NOTHING, env, asked)
    assert plain.returncode == 0 and len(plain.stdout.splitlines()) == len(names) > 600, plain.stderr
    for how in (WAYS[0], WAYS[-1], ["run", "--class", "opportunistic", "--memory", "900M"]):
        words = [str(tmp_path / word) if word == "job.trace" else word for word in how]
        done = cotenant(*words, "--", sys.executable, "-c", WITH_NOTHING, asked, env=env)
        assert done.stdout.splitlines() == plain.stdout.splitlines(), (how, done.stderr)
        assert done.returncode == 0, (how, done.stderr)
