"""What cannot be held back is passed on as it is, and counted; what can be in spite of its looks, is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from tests.conftest import REAL_GPU
from tests.interposer.conftest import COMPANY
from tests.interposer.test_graph_updates import steer
from tests.interposer.test_moving_contexts import PRELUDE

if TYPE_CHECKING:
    from tests.conftest import RunPython
    from tests.interposer.conftest import Tenant

    Start = Callable[..., Tenant]

pytestmark = pytest.mark.skipif(REAL_GPU, reason="made of what the software GPU has")


EXPORT_TABLE = """
import ctypes
from soft import Gpu, check, driver
library = ctypes.CDLL('libcuda.so.1'); table = ctypes.c_void_p()
for name in (b"softgpu's table ", b"somebody else's "):
    print(library.cuGetExportTable(ctypes.byref(table), ctypes.create_string_buffer(name)), bool(table.value))
gpu = Gpu(); gpu.launch(gpu.kernel('empty')); gpu.synchronize()
library.cuGetExportTable(ctypes.byref(table), ctypes.create_string_buffer(b"softgpu's table "))
entries = (ctypes.c_void_p * 2).from_address(table.value); version = ctypes.c_int()
print(ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(entries[1])(ctypes.addressof(version)), version.value > 12000)
"""


def test_tables_of_private_functions_are_handed_out_and_counted(tenant: Start) -> None:
    one = tenant("standard", EXPORT_TABLE)
    assert one.finish().splitlines() == ["0 True", "500 False", "0 True"]
    assert one.total("export_tables") == 2


NEWER = """
static int from_the_future(void) { return 42; }
int cuGetProcAddress_v2(const char* name, void** out, int version, unsigned long flags, int* status) {
    int (*real)(const char*, void**, int, unsigned long, int*) = dlsym(RTLD_NEXT, "cuGetProcAddress_v2");
    if (!strcmp(name, "cuNobodys")) return *out = 0, 0;
    if (strcmp(name, "cuFromTheFuture")) return real(name, out, version, flags, status);
    *out = (void*)from_the_future;
    return *status = 0;
}
"""
ASKING = """
import ctypes, os, sys
from pathlib import Path
from cotenant import segment
from soft import Gpu
library = ctypes.CDLL('libcuda.so.1'); found, status = ctypes.c_void_p(), ctypes.c_int()
def ask(times):
    arguments = ctypes.byref(found), 12000, ctypes.c_uint64(0), ctypes.byref(status)
    for _ in range(times):
        result = library.cuGetProcAddress_v2(b'cuFromTheFuture', *arguments)
        print(result, ctypes.CFUNCTYPE(ctypes.c_int)(found.value)())
        print(library.cuGetProcAddress_v2(b'cuNobodys', *arguments), found.value)
ask(int(sys.argv[1]))
gpu = Gpu(); gpu.launch(gpu.kernel('empty')); gpu.synchronize()
ask(int(sys.argv[2]))
(own,) = segment.read(Path(os.environ['COTENANT_SEGMENT'])).tenants
print(own.sms_refused)
"""


def test_functions_newer_than_the_driver_that_we_know_are_handed_out_and_counted(
    preloaded: dict[str, str], run_python: RunPython, driver_with: Callable[[str], Path], tmp_path: Path
) -> None:
    driver, counts = driver_with(NEWER), []
    # Both before the process is a tenant and after.
    for before, after in ((0, 0), (3, 0), (3, 2)):
        report = tmp_path / f"report-{before}-{after}"
        told = {"COTENANT_DRIVER": str(driver), "COTENANT_REPORT": str(report)}
        done = run_python(ASKING, preloaded | told, str(before), str(after))
        *answers, refused = done.stdout.splitlines()
        assert answers == ["0 42", "0 None"] * (before + after), done.stderr
        assert refused == "5"  # the bindings have some, too: no stream of theirs takes a detour
        counts.append(json.loads(report.read_text())["unknown_functions"])
    assert [count - counts[0] for count in counts] == [0, 3, 5]


# A chain of kernels behind something that keeps the graph from being cloned.
HIDDEN = """
import sys
from graphs import Chains, check, driver
chains = Chains(); what = sys.argv[1]; graph = check(driver.cuGraphCreate(0)); last = chains.begin(graph)
if what.startswith('conditional'):
    handle = check(driver.cuGraphConditionalHandleCreate(graph, chains.gpu.context, int(what[-1]), 1))
    wanted = driver.CUgraphNodeParams(); wanted.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
    wanted.conditional.handle = handle; wanted.conditional.ctx = chains.gpu.context; wanted.conditional.size = 1
    wanted.conditional.type = driver.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_IF
    last = check(driver.cuGraphAddNode(graph, [last], None, 1, wanted))
    chains.steps(wanted.conditional.phGraph_out[0], 0.5, 1, None)
if what == 'updatable':
    value = driver.CUkernelNodeAttrValue(); value.deviceUpdatableKernelNode.deviceUpdatable = 1
    attribute = driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE
    check(driver.cuGraphKernelNodeSetAttribute(last, attribute, value))
chains.steps(graph, 0.5, 0 if what.startswith('conditional') else 10, last)
print(chains.expected(graph))
"""


@pytest.mark.usefixtures("company")
@pytest.mark.parametrize(
    ("what", "ungated"), [("plain", 0), ("updatable", 1), ("conditional 1", 1), ("conditional 0", 1)]
)
def test_a_long_graph_that_cannot_have_gates_inside_is_counted(
    tenant: Start, softgpu_env: dict[str, str], what: str, ungated: int
) -> None:
    steer(Path(softgpu_env["COTENANT_SEGMENT"]), gate_every_us=15)
    source = HIDDEN.replace("sys.argv[1]", repr(what))
    low, high = tenant("opportunistic", source), tenant("production", source)
    assert low.finish() == high.finish()
    assert low.total("ungated_graphs") == ungated
    # The launch and the copy have a gate at most, each.
    assert (low.total("gates") > 10) == (ungated == 0)
    assert high.total("ungated_graphs") == 0


SEVERAL = """
import ctypes
from soft import Gpu, check, driver
class Launch(ctypes.Structure):
    _fields_ = [('function', ctypes.c_void_p), ('shape', ctypes.c_uint * 7), ('stream', ctypes.c_void_p)]
    _fields_ += [('parameters', ctypes.c_void_p)]
gpus = [Gpu(0), Gpu(1)]; launches = (Launch * 2)(); streams = []
for gpu, launch in zip(gpus, launches):
    gpu.use(); streams.append(gpu.stream())
    launch.function, launch.stream = int(gpu.kernel('empty')), int(streams[-1])
    launch.shape[:] = [1] * 6 + [0]
on_each = ctypes.CDLL('libcuda.so.1').cuLaunchCooperativeKernelMultiDevice
for _ in range(5): print(on_each(launches, 2, 0))
print(on_each(None, 2, 0), on_each(launches, 0, 0))
for stream in streams: check(driver.cuStreamSynchronize(stream))
print('launched'); input()
"""


def test_a_launch_on_several_devices_counts_on_each(tenant: Start, softgpu_env: dict[str, str]) -> None:
    gpus = {"COTENANT_SOFTGPU": "small,small"}
    assert tenant("production", COMPANY, **gpus).hear() == "here"
    one = tenant("opportunistic", SEVERAL, **gpus)
    assert [one.hear() for _ in range(7)] == ["0"] * 5 + ["1 1", "launched"]
    (now,) = [t for t in segment.read(Path(softgpu_env["COTENANT_SEGMENT"])).tenants if t.tenant_class == 2]
    assert [use.figures["kernels"] for use in now.uses] == [5, 5]
    assert all(use.figures["gates"] > 0 for use in now.uses)
    one.say("")
    one.finish()


GREEN = """
green = green_context(); flags = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
stream = check(driver.cuGreenCtxStreamCreate(green, flags, 0)); kernel = gpu.kernel('empty')
for _ in range(5): gpu.launch(kernel, stream)
check(driver.cuStreamSynchronize(stream))
check(driver.cuCtxSetCurrent(check(driver.cuCtxFromGreenCtx(green)))); gpu.launch(kernel)
gpu.synchronize(); gpu.use()
check(driver.cuStreamDestroy(stream)); check(driver.cuGreenCtxDestroy(green))
gpu.launch(kernel); gpu.synchronize()
"""


@pytest.mark.usefixtures("company")
def test_streams_of_green_contexts_count_and_pass_gates(tenant: Start) -> None:
    one = tenant("opportunistic", PRELUDE + GREEN)
    one.finish()
    assert (one.total("kernels"), one.total("escaped")) == (7, 0)
    assert one.total("gates") > 0


# Functions that the software GPU does not have; these do nothing, and succeed.
MORE_FUNCTIONS = """
int cuCheckpointProcessCheckpoint(int pid, void* args) { return pid < 0; }
int cuCheckpointProcessRestore(int pid, void* args) { return pid < 0; }
int cuWaitExternalSemaphoresAsync(void* semaphores, void* args, unsigned count, void* stream) { return 0; }
int cuSignalExternalSemaphoresAsync(void* semaphores, void* args, unsigned count, void* stream) { return 0; }
"""
CALLING = """
import ctypes
from soft import Gpu, check, driver
gpu = Gpu(); stream = gpu.stream(); library = ctypes.CDLL('libcuda.so.1')
for pid in (1, 1, -1): print(library.cuCheckpointProcessCheckpoint(pid, None))
print(library.cuCheckpointProcessRestore(1, None))
for name in ('Wait', 'Signal', 'Signal'):
    print(getattr(library, f'cu{name}ExternalSemaphoresAsync')(None, None, 0, ctypes.c_void_p(int(stream))))
"""


def test_checkpoints_and_external_semaphores_are_counted(
    preloaded: dict[str, str], run_python: RunPython, driver_with: Callable[[str], Path], tmp_path: Path
) -> None:
    report = tmp_path / "report"
    told = {"COTENANT_DRIVER": str(driver_with(MORE_FUNCTIONS)), "COTENANT_REPORT": str(report)}
    done = run_python(CALLING, preloaded | told)
    assert done.stdout.split() == ["0", "0", "1", "0", "0", "0", "0"], done.stderr
    seen = json.loads(report.read_text())
    assert (seen["checkpoints"], seen["memory_ops"]) == (3, 3)


# What hands memory to a network card: a dma-buf, and the tokens of the older way (attribute 5).
CARDS = """
int cuMemGetHandleForAddressRange(void* out, unsigned long address, unsigned long bytes, int type, long flags) {
    return 0;
}
int cuPointerGetAttribute(void* out, int attribute, unsigned long pointer) {
    int (*real)(void*, int, unsigned long) = dlsym(RTLD_NEXT, "cuPointerGetAttribute");
    return attribute == 5 ? 0 : real(out, attribute, pointer);
}
int cuPointerGetAttributes(unsigned count, int* attributes, void** out, unsigned long pointer) { return 0; }
int cuPointerSetAttribute(const void* value, int attribute, unsigned long pointer) { return 0; }
"""
REGISTERING = """
import ctypes, os
from pathlib import Path
from cotenant import segment
from soft import Gpu, check, driver
MiB = 1 << 20
gpu = Gpu(); library = ctypes.CDLL('libcuda.so.1'); out = (ctypes.c_uint64 * 4)()
pieces = [int(check(driver.cuMemAlloc(8 * MiB))) for _ in range(5)]
def movable():
    (own,) = segment.read(Path(os.environ['COTENANT_SEGMENT'])).tenants
    return own.uses[0].movable_bytes // MiB
address = [ctypes.c_uint64(piece) for piece in pieces]
print(movable())
size, flags = ctypes.c_size_t(8 * MiB), ctypes.c_uint64(0)
print(library.cuMemGetHandleForAddressRange(out, address[0], size, 1, flags), movable())
print(library.cuMemGetHandleForAddressRange(out, address[0], size, 1, flags), movable())
print(library.cuPointerGetAttribute(out, 5, address[1]), movable())
print(library.cuPointerGetAttribute(out, 2, address[2]), movable())
def attributes(*asked, of):
    outs = (ctypes.c_void_p * len(asked))(*[ctypes.addressof(out)] * len(asked))
    return library.cuPointerGetAttributes(len(asked), (ctypes.c_int * len(asked))(*asked), outs, of)
print(attributes(2, 4, of=address[2]), movable())
print(attributes(2, 5, of=address[2]), movable())
# Copies of it shall be synchronous (attribute 6), or shall not; or something else is said of it.
for attribute, value in ((6, 0), (7, 1), (6, 1)):
    print(library.cuPointerSetAttribute(ctypes.byref(ctypes.c_uint(value)), attribute, address[3]), movable())
base, size = ctypes.c_uint64(), ctypes.c_size_t(); either = (ctypes.byref(base), None), (None, ctypes.byref(size))
print([library.cuMemGetAddressRange_v2(*places, address[4]) for places in either])
print(base.value == pieces[4], size.value == 8 * MiB)
# Memory that the program has mapped itself, 2 MiB by 2 MiB.
from moving import by_mapping
mapped = ctypes.c_uint64(int(by_mapping(8 * MiB))); print(movable())
print(attributes(2, 5, of=mapped), movable())
"""


def test_memory_that_a_network_card_may_know_does_not_move(
    preloaded: dict[str, str], run_python: RunPython, driver_with: Callable[[str], Path]
) -> None:
    told = {"COTENANT_DRIVER": str(driver_with(CARDS)), "COTENANT_CLASS": "opportunistic"}
    done = run_python(REGISTERING, preloaded | told | {"COTENANT_OVERSUBSCRIBE": "1"})
    of_one = ["40", "0 32", "0 32", "0 24", "0 24"]
    of_several, copies = ["0 24", "0 16"], ["0 16", "0 16", "0 8"]
    wanted = of_one + of_several + copies + ["[0, 0]", "True True", "16", "0 14"]
    assert done.stdout.splitlines() == wanted, done.stdout + done.stderr
