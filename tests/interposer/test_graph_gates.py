"""A long graph of a lower class can be stopped inside, and still computes what it would have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import REAL_GPU
from tests.interposer.test_gates import OBEDIENT, order, ready, use
from tests.interposer.test_graph_updates import steer
from tests.interposer.test_host_copies import slot_of
from tests.waiting import wait_for

if TYPE_CHECKING:
    from cotenant import segment
    from tests.conftest import RunPython
    from tests.interposer.conftest import Tenant

    Start = Callable[..., Tenant]
    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

# A chain of kernels, each adding to what the one before has made, as a graph; with a fork in the middle. What it
# computes is printed after a launch, after new parameters for one node, and after an update from another graph.
COMPUTING = """
import ctypes, hashlib
from soft import Gpu, check, driver
gpu = Gpu(); n = 4096; stream, side = gpu.stream(), gpu.stream()
u64, f32 = ctypes.c_uint64, ctypes.c_float
a, b, c = (check(driver.cuMemAlloc(4 * n)) for _ in range(3))
add, fill, scale = (gpu.kernel(name) for name in ('add', 'fill', 'scale'))
def launch(kernel, values, types, where): gpu.launch(kernel, where, (tuple(values), tuple(types)))
def capture(factor):
    check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    launch(fill, (int(a), 1.5, n), (u64, f32, u64), stream)
    for i in range(20):
        launch(scale, (int(b), int(a), factor, n), (u64, u64, f32, u64), stream)
        if i == 10:
            fork, join = (check(driver.cuEventCreate(2)) for _ in range(2))
            check(driver.cuEventRecord(fork, stream)); check(driver.cuStreamWaitEvent(side, fork, 0))
            launch(fill, (int(c), 0.25, n), (u64, f32, u64), side)
            check(driver.cuEventRecord(join, side)); check(driver.cuStreamWaitEvent(stream, join, 0))
        launch(add, (int(a), int(a), int(b), n), (u64, u64, u64, u64), stream)
    launch(add, (int(a), int(a), int(c), n), (u64, u64, u64, u64), stream)
    return check(driver.cuStreamEndCapture(stream))
def show(executable):
    check(driver.cuGraphLaunch(executable, stream)); check(driver.cuStreamSynchronize(stream))
    out = bytearray(4 * n); check(driver.cuMemcpyDtoH(out, a, 4 * n)); print(hashlib.sha256(out).hexdigest())
graph = capture(0.5)
_, count = check(driver.cuGraphGetNodes(graph, 0)); print(count)
executable = check(driver.cuGraphInstantiate(graph, 0))
show(executable)
nodes, count = check(driver.cuGraphGetNodes(graph, count))
parameters = check(driver.cuGraphKernelNodeGetParams(nodes[0]))
value = (ctypes.c_uint64(int(a)), ctypes.c_float(7.0), ctypes.c_uint64(n))
pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(v) for v in value))
parameters.kernelParams = ctypes.addressof(pointers)
check(driver.cuGraphExecKernelNodeSetParams(executable, nodes[0], parameters))
show(executable)
other = capture(0.25)
check(driver.cuGraphExecUpdate(executable, other))
show(executable)
shorter = check(driver.cuGraphCreate(0))
empty = check(driver.cuGraphAddEmptyNode(shorter, None, 0))
print(driver.cuGraphExecUpdate(executable, shorter)[0])
show(executable)
check(driver.cuGraphExecDestroy(executable))
for g in (graph, other, shorter): check(driver.cuGraphDestroy(g))
"""


@pytest.mark.usefixtures("company")
def test_results_are_the_same_after_launch_new_parameters_and_update(
    tenant: Start, run_python: RunPython
) -> None:
    low = tenant("opportunistic", COMPUTING)
    gated = low.finish().splitlines()
    alone = run_python(COMPUTING, low.env)
    assert alone.returncode == 0, alone.stderr
    assert gated == alone.stdout.splitlines()
    assert len(set(gated[1:4])) == 3
    # Four launches and four copies have a gate at most, each; the two graphs hold the rest.
    assert low.total("gates") > 8


# A graph of kernels of 20 ms each, launched once: long enough to be stopped in the middle. TIMES: how often the kernel
# was launched before. A kernel that never was is taken for a short one, and so the gates stand aside.
LONG = """
import sys
from soft import Gpu, check, driver
gpu = Gpu(); stream = gpu.stream(); kernel = gpu.kernel('long')
for _ in range(TIMES): gpu.launch(kernel, stream)
check(driver.cuStreamSynchronize(stream))
print('ready')
def chain(kernels):
    check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    for _ in range(kernels): gpu.launch(kernel, stream)
    return check(driver.cuStreamEndCapture(stream))
# More graphs have come and gone than can tell at a time that they stand at a gate.
short = chain(2)
hidden = chain(2); said = driver.CUkernelNodeAttrValue(); said.deviceUpdatableKernelNode.deviceUpdatable = 1
updatable = driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE
check(driver.cuGraphKernelNodeSetAttribute(check(driver.cuGraphGetNodes(hidden, 2))[0][0], updatable, said))
for one in (short, hidden):  # the latter cannot have gates
    for _ in range(1100): check(driver.cuGraphExecDestroy(check(driver.cuGraphInstantiate(one, 0))))
executable = check(driver.cuGraphInstantiate(chain(150), 0))
check(driver.cuGraphLaunch(executable, stream))
print('launched')
for line in sys.stdin:
    if line.strip() == 'done?': print(driver.cuStreamQuery(stream)[0] == driver.CUresult.CUDA_SUCCESS)
    else: break
check(driver.cuStreamSynchronize(stream))
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("times", [6, 0])
def test_a_graph_stops_in_the_middle_and_goes_on(tenant: Start, tenants_now: TenantsNow, times: int) -> None:
    high = ready(tenant("production", OBEDIENT))
    low = ready(tenant("opportunistic", LONG.replace("TIMES", str(times))))
    assert low.hear() == "launched"
    before = use(tenants_now(), low).used_ns
    wait_for(lambda: use(tenants_now(), low).used_ns > before)
    # WHEN production comes while the graph (3 s of it) runs
    order(high, "begin")
    assert use(tenants_now(), low).gated
    # THEN production's own work gets through, and the graph is not done for as long as production is busy
    assert order(high, "end") == "did end"
    order(high, "begin")
    wait_for(lambda: use(tenants_now(), low).gated)
    # Without gates inside it would run to its end, and leave the GPU only then.
    wait_for(lambda: not slot_of(low).gpus[0].on)
    assert order(low, "done?") == "False"
    order(high, "end")
    wait_for(lambda: order(low, "done?") == "True")
    low.say("quit")
    low.finish()


# Launches such a graph, and does what it is told while that runs.
TOLD = (
    LONG[: LONG.index("# More graphs")]
    + """
executable = check(driver.cuGraphInstantiate(chain(150), 0))
check(driver.cuGraphLaunch(executable, stream))
print('launched')
for line in sys.stdin:
    order = line.strip()
    if order == 'done?':
        print(driver.cuStreamQuery(stream)[0] == driver.CUresult.CUDA_SUCCESS); continue
    elif order == 'destroy':
        check(driver.cuGraphExecDestroy(executable))
    elif order == 'reset':
        check(driver.cuDevicePrimaryCtxReset(0)); gpu = Gpu(); stream = gpu.stream()
    elif order == 'spin':
        import ctypes
        gpu.launch(gpu.kernel('spin'), stream, ((60_000_000_000,), (ctypes.c_uint64,)))
    print('did', order)
"""
).replace("TIMES", "6")


def runs(tenant: Start, tenants_now: TenantsNow) -> tuple[Tenant, Tenant]:
    """Production, and an opportunistic tenant whose graph runs."""
    high, low = ready(tenant("production", OBEDIENT)), ready(tenant("opportunistic", TOLD))
    assert low.hear() == "launched"
    before = use(tenants_now(), low).used_ns
    wait_for(lambda: use(tenants_now(), low).used_ns > before)
    return high, low


def test_a_graph_stands_at_its_gates_also_when_its_executable_was_destroyed_in_flight(
    tenant: Start, tenants_now: TenantsNow
) -> None:
    high, low = runs(tenant, tenants_now)
    assert order(low, "destroy") == "did destroy"
    order(high, "begin")
    wait_for(lambda: use(tenants_now(), low).gated)
    wait_for(lambda: not slot_of(low).gpus[0].on)
    order(high, "end")


def test_a_graph_that_ended_with_its_context_stands_at_no_gate(
    tenant: Start, tenants_now: TenantsNow
) -> None:
    high, low = runs(tenant, tenants_now)
    # GIVEN a graph that stood at a gate inside when its context ended
    order(high, "begin")
    wait_for(lambda: not slot_of(low).gpus[0].on)
    assert order(low, "reset") == "did reset"
    order(high, "end")
    # WHEN production comes while another kernel of the tenant runs
    wait_for(lambda: not use(tenants_now(), low).gated)
    before = use(tenants_now(), low).used_ns
    order(low, "spin")
    wait_for(lambda: slot_of(low).gpus[0].on and use(tenants_now(), low).used_ns > before)
    order(high, "begin")
    wait_for(lambda: use(tenants_now(), low).gated)
    # THEN the tenant is on the GPU for as long as that kernel is not done
    for _ in range(100):
        assert slot_of(low).gpus[0].on
        assert order(low, "done?") == "False"


# Counts the gates that a graph gets, those that are put between two nodes, and the nodes that wait for one.
COUNTING_DRIVER = """
int gates, between, waiting;
int cuGraphAddBatchMemOpNode(void* node, void* graph, void* before, unsigned long count, void* operations) {
    int (*real)(void*, void*, void*, unsigned long, void*) = dlsym(RTLD_NEXT, "cuGraphAddBatchMemOpNode");
    ++gates;
    return real(node, graph, before, count, operations);
}
int cuGraphAddDependencies(void* graph, void* from, void* to, unsigned long count) {
    int (*real)(void*, void*, void*, unsigned long) = dlsym(RTLD_NEXT, "cuGraphAddDependencies");
    ++waiting;
    return real(graph, from, to, count);
}
int cuGraphRemoveDependencies(void* graph, void* from, void* to, unsigned long count) {
    int (*real)(void*, void*, void*, unsigned long) = dlsym(RTLD_NEXT, "cuGraphRemoveDependencies");
    ++between;
    return real(graph, from, to, count);
}
"""
TWO_LENGTHS = """
import ctypes, os
from soft import Gpu, check, driver
gpu = Gpu(); stream = gpu.stream(); kernel = gpu.kernel('long')
interposer = ctypes.CDLL('libcuda.so.1')  # the bindings would find the software GPU's own
own = ctypes.CDLL(os.environ['COTENANT_DRIVER'])
counts = [ctypes.c_int.in_dll(own, name) for name in ('gates', 'between', 'waiting')]
def show():
    check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    for _ in range(33): gpu.launch(kernel, stream)
    graph, made = ctypes.c_void_p(int(check(driver.cuStreamEndCapture(stream)))), ctypes.c_void_p()
    before = [one.value for one in counts]
    assert interposer.cuGraphInstantiateWithFlags(ctypes.byref(made), graph, ctypes.c_uint64(0)) == 0
    print(*(one.value - value for one, value in zip(counts, before)))
show()
for _ in range(6): gpu.launch(kernel, stream)
check(driver.cuStreamSynchronize(stream))
show()
"""


@pytest.mark.usefixtures("company")
@pytest.mark.skipif(REAL_GPU, reason="a driver of the test's own")
@pytest.mark.parametrize(
    ("every_us", "gates"),
    [
        # Never timed: taken for 10 us each, and so a gate, aside, for each eight. Then known to take 20 ms: a gate
        # before each but the first.
        (100, ["4 0 4", "32 32 32"]),
        # No kernel of 20 ms may run between a gate and what waits for it.
        (50_000, ["0 0 0", "16 16 16"]),
    ],
)
def test_gates_stand_aside_where_short_kernels_run_meanwhile(
    preloaded: dict[str, str],
    run_python: RunPython,
    driver_with: Callable[[str], Path],
    every_us: int,
    gates: list[str],
) -> None:
    steer(Path(preloaded["COTENANT_SEGMENT"]), gate_every_us=every_us)
    told = {"COTENANT_DRIVER": str(driver_with(COUNTING_DRIVER)), "COTENANT_CLASS": "opportunistic"}
    done = run_python(TWO_LENGTHS, preloaded | told)
    assert done.stdout.splitlines() == gates, done.stderr
