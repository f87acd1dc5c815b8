"""Memory that is allocated and freed in a stream's order, and moves: as with the driver's own pools."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import REAL_GPU

if TYPE_CHECKING:
    from tests.conftest import RunPython
    from tests.interposer.conftest import Tenant

    Start = Callable[..., Tenant]

pytestmark = pytest.mark.skipif(REAL_GPU, reason="two GPUs of the software GPU")

# `hold(stream)`: it waits until `release()`.
PRELUDE = """
from moving import *
import ctypes, threading
gpu = Gpu(); word = check(driver.cuMemHostAlloc(64, driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP))
value = ctypes.c_uint32.from_address(word); value.value = 0
def hold(stream):
    check(driver.cuStreamWaitValue32(stream, word, 1, driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ))
def release(): value.value = 1
MODES = driver.CUstreamCaptureMode
"""


@pytest.fixture
def outcome(tenant: Start) -> Callable[..., str]:
    """What the program says at its end."""

    def run(source: str, **settings: str) -> str:
        return tenant("opportunistic", PRELUDE + source, COTENANT_OVERSUBSCRIBE="1", **settings).finish(120)

    return run


def test_any_number_of_frees_may_be_pending(outcome: Callable[..., str]) -> None:
    said = outcome("""
streams = [gpu.stream() for _ in range(20)]; each = range(250)
pieces = [(check(driver.cuMemAllocAsync(512, stream)), stream) for stream in streams for _ in each]
free = check(driver.cuMemGetInfo())[0]; [hold(stream) for stream in streams]
results = {driver.cuMemFreeAsync(piece, stream)[0].name for piece, stream in pieces}
print(*results, check(driver.cuMemGetInfo())[0] == free); release(); gpu.synchronize()
tries = 0
while check(driver.cuMemGetInfo())[0] <= free and (tries := tries + 1) < 10_000:
    check(driver.cuMemFree(check(driver.cuMemAlloc(512))))
print(tries < 10_000)
""")
    assert said.split() == ["CUDA_SUCCESS", "True", "True"]


def test_free_memory_includes_what_was_freed_in_streams_that_have_been_waited_for(
    outcome: Callable[..., str],
) -> None:
    said = outcome("""
free = lambda: check(driver.cuMemGetInfo())[0]
before = free(); streams = [gpu.stream() for _ in range(3)]
pieces = [(check(driver.cuMemAllocAsync(4 << 20, stream)), stream) for stream in streams]
[hold(stream) for stream in streams]; [check(driver.cuMemFreeAsync(*piece)) for piece in pieces]
print(before - free() == 12 << 20); release(); gpu.synchronize(); print(before == free())
""")
    assert said.split() == ["True", "True"]


def test_what_has_ended_in_its_streams_order_is_free_at_the_next_free_or_trim(
    outcome: Callable[..., str],
) -> None:
    """A program that neither asks how much is free nor allocates again does not hold all that it has freed."""
    said = outcome("""
from memory_ways import counted
one, other = gpu.stream(), gpu.stream(); pool = check(driver.cuDeviceGetDefaultMemPool(gpu.device))
streams = [gpu.stream() for _ in range(10)]; pieces = [check(driver.cuMemAllocAsync(4 << 20, each)) for each in streams]
small = [check(driver.cuMemAllocAsync(512, other)) for _ in range(30)]
for piece, each in zip(pieces, streams): hold(each); check(driver.cuMemFreeAsync(piece, each))
print(counted(False) >= 40 << 20); release(); gpu.synchronize()
for piece in small: check(driver.cuMemFreeAsync(piece, other))
print(counted(False) <= 4 << 20); value.value = 0; hold(one)
last = check(driver.cuMemAllocAsync(6 << 20, one)); check(driver.cuMemFreeAsync(last, one))
check(driver.cuMemPoolTrimTo(pool, 0)); print(counted(False) >= 6 << 20); release(); gpu.synchronize()
check(driver.cuMemPoolTrimTo(pool, 0)); print(counted(False))
""")
    assert said.split() == ["True", "True", "True", "0"]


def test_a_stream_has_at_once_what_it_has_freed_and_no_other_stream_has(outcome: Callable[..., str]) -> None:
    said = outcome("""
one, other = gpu.stream(), gpu.stream(); sizes = (4 << 20, 5000, 4 << 20)
first, small, second = (int(check(driver.cuMemAllocAsync(size, one))) for size in sizes)
hold(one); [check(driver.cuMemFreeAsync(piece, one)) for piece in (first, small, second)]
take = lambda size, stream: int(check(driver.cuMemAllocAsync(size, stream)))
print(take(4 << 20, other) in (first, second), take(4 << 20, one) == second, take(5000, one) == small)
print(take(4 << 20, one) == first, take(4 << 20, one) in (first, second)); release(); gpu.synchronize()
""")
    assert said.split() == ["False", "True", "True", "True", "False"]


def test_what_was_freed_once_is_not_freed_again(outcome: Callable[..., str]) -> None:
    said = outcome("""
stream = gpu.stream(); piece = check(driver.cuMemAllocAsync(4 << 20, stream)); hold(stream)
check(driver.cuMemFreeAsync(piece, stream)); print(driver.cuMemFreeAsync(piece, stream)[0].name)
threading.Timer(0.2, release).start(); print(driver.cuMemFree(piece)[0].name)
""")
    assert said.split() == ["CUDA_ERROR_INVALID_VALUE"] * 2


def test_a_graph_frees_only_what_a_graph_has_allocated(outcome: Callable[..., str]) -> None:
    said = outcome("""
stream = gpu.stream(); pieces = check(driver.cuMemAllocAsync(4 << 20, stream)), check(driver.cuMemAlloc(512))
def free(): print(*(driver.cuMemFreeAsync(piece, stream)[0].name for piece in pieces))
check(driver.cuStreamBeginCapture(stream, MODES.CU_STREAM_CAPTURE_MODE_RELAXED)); free()
driver.cuStreamEndCapture(stream); free()
""")
    assert said.split() == ["CUDA_ERROR_INVALID_VALUE"] * 2 + ["CUDA_SUCCESS"] * 2


def test_the_driver_is_not_asked_about_what_was_freed_before(
    run_python: RunPython, preloaded: dict[str, str], driver_with: Callable[[str], Path]
) -> None:
    """It may know the address by then: as somebody else's."""
    lax = driver_with("int cuMemFree_v2(unsigned long long address) { (void)address; return 0; }")
    source = """
stream = gpu.stream(); piece = check(driver.cuMemAllocAsync(4 << 20, stream)); hold(stream)
check(driver.cuMemFreeAsync(piece, stream))
free = ctypes.CDLL('libcuda.so.1').cuMemFree_v2  # the bindings would find the software GPU's own
print(free(ctypes.c_uint64(int(piece)))); release(); gpu.synchronize()
"""
    env = preloaded | {
        "COTENANT_DRIVER": os.fspath(lax),
        "COTENANT_CLASS": "opportunistic",
        "COTENANT_OVERSUBSCRIBE": "1",
    }
    done = run_python(PRELUDE + source, env)
    assert done.stdout.split() == ["1"], done.stderr


def test_a_stream_with_the_handle_of_one_that_is_gone_has_nothing_of_what_that_freed(
    run_python: RunPython, preloaded: dict[str, str], driver_with: Callable[[str], Path]
) -> None:
    """The earlier one's work may still use it."""
    again = driver_with("""
static void* gone;
int cuStreamDestroy_v2(void* stream) { gone = stream; return 0; }
int cuStreamCreate(void** out, unsigned int flags) { (void)flags; *out = gone; return 0; }
""")
    source = """
stream = gpu.stream(); piece = int(check(driver.cuMemAllocAsync(4 << 20, stream))); hold(stream)
check(driver.cuMemFreeAsync(piece, stream))
interposer, new = ctypes.CDLL('libcuda.so.1'), ctypes.c_void_p()  # the bindings would find the software GPU's own
interposer.cuStreamDestroy_v2(ctypes.c_void_p(int(stream))); interposer.cuStreamCreate(ctypes.byref(new), 1)
print(new.value == int(stream), int(check(driver.cuMemAllocAsync(4 << 20, stream))) == piece)
release(); gpu.synchronize()
"""
    env = preloaded | {
        "COTENANT_DRIVER": os.fspath(again),
        "COTENANT_CLASS": "opportunistic",
        "COTENANT_OVERSUBSCRIBE": "1",
    }
    done = run_python(PRELUDE + source, env)
    assert done.stdout.split() == ["True", "False"], done.stderr


def test_what_has_been_freed_can_be_had_in_another_size(outcome: Callable[..., str]) -> None:
    said = outcome(
        """
stream = gpu.stream(); piece = check(driver.cuMemAllocAsync(40 << 20, stream)); hold(stream)
check(driver.cuMemFreeAsync(piece, stream)); print(driver.cuMemAlloc(44 << 20)[0].name)
release(); check(driver.cuStreamSynchronize(stream)); print(driver.cuMemAlloc(44 << 20)[0].name)
""",
        COTENANT_MEMORY="64M",
    )
    assert said.split() == ["CUDA_ERROR_OUT_OF_MEMORY", "CUDA_SUCCESS"]


@pytest.mark.parametrize("moves", ["0", "1"])
@pytest.mark.parametrize("bound", ["COTENANT_MEMORY", "COTENANT_CAPACITY"])
def test_what_a_stream_has_freed_it_has_in_another_size_where_no_more_is_left(
    tenant: Start, moves: str, bound: str
) -> None:
    """Also before the GPU has got there, as from the driver's own pools."""
    one = tenant(
        "opportunistic",
        PRELUDE
        + """
stream = gpu.stream(); piece = check(driver.cuMemAllocAsync(40 << 20, stream))
gpu.launch(gpu.kernel('spin'), stream, ((500_000,), (ctypes.c_uint64,)))
check(driver.cuMemFreeAsync(piece, stream)); print(driver.cuMemAllocAsync(30 << 20, stream)[0].name)
""",
        **{bound: "64M", "COTENANT_OVERSUBSCRIBE": moves},
    )
    assert one.finish().split() == ["CUDA_SUCCESS"]


CAPTURE_AND_FREE = """
capturing, held = gpu.stream(), gpu.stream(); piece = check(driver.cuMemAlloc(4 << 20)); hold(held)
def free():
    gpu.use(); check(driver.cuThreadExchangeStreamCaptureMode(MODES.CU_STREAM_CAPTURE_MODE_RELAXED))
    check(driver.cuMemFree(piece))
check(driver.cuStreamBeginCapture(capturing, MODES.CU_STREAM_CAPTURE_MODE_GLOBAL))
thread = threading.Thread(target=free); thread.start(); thread.join()
graph = check(driver.cuStreamEndCapture(capturing))
"""


def test_what_was_freed_during_a_capture_keeps_nobody_waiting(outcome: Callable[..., str]) -> None:
    """Nor is it free before all that could use it has ended."""
    said = outcome(
        CAPTURE_AND_FREE
        + """
free = lambda: check(driver.cuMemGetInfo())[0]
before = free(); late = threading.Timer(20, release); late.start()
small = check(driver.cuMemAlloc(512)); print(value.value); late.cancel()
for _ in range(3): check(driver.cuMemFreeAsync(check(driver.cuMemAllocAsync(512, capturing)), capturing))
print(free() <= before); release(); gpu.synchronize()
tries = 0
while free() < before + (2 << 20) and (tries := tries + 1) < 10_000:
    check(driver.cuMemFreeAsync(check(driver.cuMemAllocAsync(512, capturing)), capturing))
print(tries < 10_000)
"""
    )
    assert said.split() == ["0", "True", "True"]


def test_what_was_freed_during_a_capture_counts_until_it_is_free(outcome: Callable[..., str]) -> None:
    said = outcome(
        CAPTURE_AND_FREE
        + """
from memory_ways import counted
print(counted() >> 20); release(); gpu.synchronize()
tries = 0
while counted() >= 4 << 20 and (tries := tries + 1) < 10_000:
    check(driver.cuMemFree(check(driver.cuMemAlloc(512))))
print(counted() >> 20)
"""
    )
    assert said.split() == ["4", "0"]


def test_frees_beside_captures_break_none(outcome: Callable[..., str]) -> None:
    said = outcome("""
stop = False; counts = [0, 0]
def frees():
    gpu.use(); streams = [gpu.stream() for _ in range(4)]
    while not stop:
        for stream in streams:
            check(driver.cuMemFreeAsync(check(driver.cuMemAllocAsync(3 << 20, stream)), stream)); counts[0] += 1
thread = threading.Thread(target=frees); thread.start(); stream = gpu.stream(); broken = 0
while counts[1] < 300 or counts[0] < 300:
    check(driver.cuStreamBeginCapture(stream, MODES.CU_STREAM_CAPTURE_MODE_GLOBAL)); counts[1] += 1
    broken += driver.cuStreamEndCapture(stream)[0] != driver.CUresult.CUDA_SUCCESS
stop = True; thread.join(); gpu.synchronize(); print(broken)
""")
    assert said.split() == ["0"]


# What cuMemAlloc and cuMemFree say to the thread that captures and to another, each in every mode, and whether the
# capture ends well.
BESIDE_A_CAPTURE = """
import itertools
def beside(capture, mode, act, same_thread):
    stream, said = gpu.stream(), []
    def call():
        gpu.use(); before = check(driver.cuThreadExchangeStreamCaptureMode(mode)); said.append(act()[0].name)
        check(driver.cuThreadExchangeStreamCaptureMode(before))
    check(driver.cuStreamBeginCapture(stream, capture))
    if same_thread: call()
    else: thread = threading.Thread(target=call); thread.start(); thread.join()
    said.append(driver.cuStreamEndCapture(stream)[0].name); return said
for capture, mode, same_thread in itertools.product(MODES, MODES, (True, False)):
    piece = check(driver.cuMemAlloc(3 << 20))
    for act in (lambda: driver.cuMemAlloc(3 << 20), lambda: driver.cuMemFree(piece)):
        print(capture.name, mode.name, same_thread, *beside(capture, mode, act, same_thread))
"""


def test_captures_let_allocate_and_free_whom_cuda_lets(tenant: Start) -> None:
    """Whether memory moves or not: where it does not, the driver itself answers."""
    moves, stays = (
        tenant("opportunistic", PRELUDE + BESIDE_A_CAPTURE, COTENANT_OVERSUBSCRIBE=moves).finish(120)
        for moves in ("1", "0")
    )
    assert moves.splitlines() == stays.splitlines()
    assert 0 < moves.count("CUDA_SUCCESS CUDA_SUCCESS") < len(moves.splitlines())


def test_memory_that_is_allocated_beside_anothers_capture_can_move(outcome: Callable[..., str]) -> None:
    said = outcome("""
import os; from cotenant import segment; from pathlib import Path
def movable():
    tenants = segment.read(Path(os.environ["COTENANT_SEGMENT"])).tenants
    return sum(use.movable_bytes for tenant in tenants for use in tenant.uses) >> 20
def allocate(): gpu.use(); check(driver.cuMemAlloc(40 << 20))
check(driver.cuMemAlloc(40 << 20)); stream, before = gpu.stream(), movable()
check(driver.cuStreamBeginCapture(stream, MODES.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
thread = threading.Thread(target=allocate); thread.start(); thread.join()
check(driver.cuStreamEndCapture(stream)); print(movable() - before)
""")
    assert said.split() == ["40"]


ELSEWHERE = """
other = Gpu(1); stream = other.stream(); gpu.use(); mine = gpu.stream()
ordinal = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
def where(piece): return int(check(driver.cuPointerGetAttribute(ordinal, piece)))
def used():
    other.use(); free, total = check(driver.cuMemGetInfo()); gpu.use(); return (total - free) >> 20
pool = check(driver.cuDeviceGetDefaultMemPool(1)); before = used()
pooled = check(driver.cuMemAllocFromPoolAsync(1 << 20, pool, mine)); print(where(pooled), used() > before)
before = used()
piece = check(driver.cuMemAllocAsync(40 << 20, stream)); print(where(piece), used() - before)
print(int(check(driver.cuCtxGetCurrent())) == int(gpu.context))
other.use(); check(driver.cuMemsetD8Async(piece, 1, 100, stream)); gpu.use()
check(driver.cuMemFreeAsync(piece, stream))
again = check(driver.cuMemAllocAsync(40 << 20, stream)); print(where(again), used() - before)
check(driver.cuMemFreeAsync(again, stream)); print(where(check(driver.cuMemAllocAsync(1 << 20, mine))))
print(driver.cuMemAllocAsync(40 << 20, mine)[0].name)
"""


@pytest.mark.parametrize("moves", ["1", "0"])
def test_memory_in_a_streams_order_is_on_the_streams_gpu(tenant: Start, moves: str) -> None:
    one = tenant(
        "opportunistic",
        PRELUDE + ELSEWHERE,
        COTENANT_SOFTGPU="small,small",
        COTENANT_OVERSUBSCRIBE=moves,
        COTENANT_MEMORY="256M",
    )
    assert one.finish(120).split() == ["1", "True", "1", "40", "True", "1", "40", "0", "CUDA_SUCCESS"]


def test_an_allocation_in_a_stream_that_is_gone_is_refused_as_the_driver_refuses_it(
    outcome: Callable[..., str],
) -> None:
    said = outcome("""
stream = gpu.stream()
check(driver.cuMemFreeAsync(check(driver.cuMemAllocAsync(512, stream)), stream))
check(driver.cuStreamDestroy(stream)); free = check(driver.cuMemGetInfo())[0]
print(driver.cuMemAllocAsync(512, stream)[0].name, driver.cuStreamSynchronize(stream)[0].name)
print(check(driver.cuMemGetInfo())[0] >= free)  # more, where what was freed has gone since
""")
    assert said.split() == ["CUDA_ERROR_INVALID_HANDLE", "CUDA_ERROR_INVALID_HANDLE", "True"]
