"""Requests of a millisecond or two as serving programs make them: behind copies, graphs, and a few launches after them.
From the first copy to the end of the last launch others are kept out, and are let in once in between at most."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.interposer.test_gates import OBEDIENT, order, ready, use, wait_until_idle
from tests.interposer.test_sharing import busy, set_knob, stands_still
from tests.waiting import wait_for

if TYPE_CHECKING:
    from cotenant import segment
    from tests.interposer.conftest import Tenant

    Start = Callable[..., Tenant]
    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

# A request of several steps, one a line. Each waits for the one before it where it says so, as `.cpu()` does.
SERVING = """
import ctypes, sys
from soft import Gpu, check, driver
gpu = Gpu(); kernel = gpu.kernel('empty'); stream, aside = gpu.stream(), gpu.stream()
n = 1 << 16
host = check(driver.cuMemHostAlloc(n, 0)); device = check(driver.cuMemAlloc(n))
large = check(driver.cuMemAlloc(64 << 20))
back = bytearray(n)
check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
for _ in range(8): gpu.launch(kernel, stream)
graph = check(driver.cuGraphInstantiate(check(driver.cuStreamEndCapture(stream)), 0))
word = check(driver.cuMemHostAlloc(64, driver.CU_MEMHOSTALLOC_DEVICEMAP))
held = ctypes.c_uint32.from_address(int(word)); address = check(driver.cuMemHostGetDevicePointer(word, 0))
def wait_in(s): check(driver.cuStreamWaitValue32(s, address, 1, 0))
def request(steps):
    for step in steps:
        if step == 'copy': check(driver.cuMemcpyHtoDAsync(device, int(host), n, stream))
        elif step == 'copy-now': check(driver.cuMemcpyHtoD(large, bytes(64 << 20), 64 << 20))
        elif step == 'copy-aside':
            check(driver.cuMemcpyHtoDAsync(device, int(host), n, aside))
            event = check(driver.cuEventCreate(2)); check(driver.cuEventRecord(event, aside))
            check(driver.cuStreamWaitEvent(stream, event, 0))
        elif step == 'graph': check(driver.cuGraphLaunch(graph, stream))
        elif step == 'kernel': gpu.launch(kernel, stream)
        elif step == 'hold': held.value = 0; wait_in(stream)
        elif step == 'hold-aside': held.value = 0; wait_in(aside)
        elif step == 'release': held.value = 1
        elif step == 'back':
            check(driver.cuMemcpyDtoHAsync(back, device, n, stream)); check(driver.cuStreamSynchronize(stream))
request(['copy', 'graph', 'kernel', 'back'])
print('ready', flush=True)
for line in sys.stdin:
    request(line.split()); print('did', line.strip(), flush=True)
"""


# Captures one after the other, with work of another stream before and amid them.
CAPTURING = """
import select, time
mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_@
def capture(before, amid):
    if before: gpu.launch(kernel, aside)
    check(driver.cuStreamBeginCapture(stream, mode)); gpu.launch(kernel, stream)
    if amid: gpu.launch(kernel, aside)
    time.sleep(0.001)
    again = check(driver.cuGraphInstantiate(check(driver.cuStreamEndCapture(stream)), 0))
    check(driver.cuGraphLaunch(again, stream)); gpu.synchronize(); check(driver.cuGraphExecDestroy(again))
print('ready', flush=True)
while not select.select([sys.stdin], [], [], 0.025)[0]:
    for before, amid in ((True, False), (False, True), (False, False)):
        capture(before, amid); time.sleep(0.025)
print('done')
"""


def serving(tenant: Start) -> Tenant:
    return ready(tenant("production", SERVING))


@pytest.mark.parametrize("first", ["copy", "copy-aside"])
def test_the_copy_that_begins_a_request_keeps_others_out(
    tenant: Start, tenants_now: TenantsNow, first: str
) -> None:
    one = serving(tenant)
    low = ready(tenant("opportunistic", OBEDIENT))
    wait_until_idle(one)
    # Nothing but a copy has been launched, and it has not ended.
    hold = "hold-aside" if first == "copy-aside" else "hold"
    assert order(one, f"{hold} {first}") == f"did {hold} {first}"
    assert use(tenants_now(), one).busy and use(tenants_now(), low).gated
    assert order(low, "queue 5") == "did queue"
    for _ in range(20):
        assert order(low, "done?") == "False"
    assert order(one, "release graph kernel kernel back") == "did release graph kernel kernel back"
    wait_for(lambda: order(low, "done?") == "True")


def test_a_copy_that_returns_when_it_is_done_keeps_others_out_till_then(
    tenant: Start, tenants_now: TenantsNow
) -> None:
    one = serving(tenant)
    wait_until_idle(one)
    # Such a copy is in no stream that could be asked. It lasts longer than the grace: others would be let in amid it,
    # and put out again at its end.
    set_knob(one, "grace_us", 100)
    before = use(tenants_now(), one).figures["bursts"]
    assert order(one, "copy-now") == "did copy-now"
    assert use(tenants_now(), one).figures["bursts"] == before + 1


@pytest.mark.parametrize(
    "request_", ["copy graph kernel kernel back", "copy-aside graph kernel back kernel back"]
)
def test_a_request_of_several_steps_is_one_burst(
    tenant: Start, tenants_now: TenantsNow, request_: str
) -> None:
    one = serving(tenant)
    low = busy(tenant, "opportunistic", 100)
    # On a machine that is busy with other things the steps may be far apart.
    set_knob(one, "grace_us", 30_000_000)
    wait_for(lambda: use(tenants_now(), low).figures["kernels"] > 50)
    assert order(one, request_) == f"did {request_}"
    before = use(tenants_now(), one).figures["bursts"]
    for _ in range(5):
        assert order(one, request_) == f"did {request_}"
    assert use(tenants_now(), one).figures["bursts"] == before
    stands_still(tenants_now, low)


@pytest.mark.parametrize("mode", ["GLOBAL", "THREAD_LOCAL", "RELAXED"])
def test_captures_between_bursts_that_are_timed_stay_whole(
    tenant: Start, tenants_now: TenantsNow, mode: str
) -> None:
    capturing = SERVING[: SERVING.index("print('ready'")] + CAPTURING.replace("@", mode)
    low = busy(tenant, "opportunistic", 100)
    one = ready(tenant("production", capturing))
    wait_for(lambda: use(tenants_now(), one).waits > 5)
    one.say("enough")
    assert one.finish() == "done\n"
    assert low.process and low.process.poll() is None
