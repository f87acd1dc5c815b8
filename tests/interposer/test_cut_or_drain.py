"""Whether a lower class is cut or drained when a class above goes busy: by the kernels that it runs, as they change."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from cotenant.policies.interface import Rule
from tests.interposer.conftest import COMPANY
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.interposer.conftest import Compile, Tenant

    Start = Callable[..., Tenant]
    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

DRIVERS_US, DRAIN_US, STANDSTILL_US, CUT_US = 2048, 1000, 500, 30
QUEUED = 6  # kernels, by STEADY

# Runs kernels of as many microseconds as it was last told: one by one ("kernels 100"), fifty of them as a graph ("graph
# 100"), six of them one behind the other ("queue 100"), or none ("rest 0"); or its stream waits for so many
# milliseconds ("block 100"; "hold 100" says when it begins), or does before a kernel of a millisecond ("late 100"). Its
# driver has asked the kernel module for a time slice, as the real one does.
STEADY = """
import ctypes, select, struct, sys, time
from soft import Gpu, check, driver
slice_us = ctypes.c_uint64(2048)
control = (ctypes.c_ubyte * 32)(*struct.pack('IIIIQII', 1, 2, 0xa06c0103, 0, ctypes.addressof(slice_us), 8, 0))
assert ctypes.CDLL(None).ioctl(99, ctypes.c_ulong(0xc020462a), control) == 0
def say(text): sys.stdout.write(f'{text}\\n')  # at once: the kernel module's lines come between two writes
gpu = Gpu(); spin = gpu.kernel('spin'); stream = gpu.stream(); kept = []
def kernels(us):
    length = ctypes.c_uint64(us); parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length))
    kept.extend((length, parameters))
    # The time of a kernel is known by its shape, which its parameters are no part of.
    return lambda: check(driver.cuLaunchKernel(spin, us, 1, 1, 1, 1, 1, 0, stream, ctypes.addressof(parameters), 0))
def graph(us):
    launch = kernels(us)
    for _ in range(8): launch()
    check(driver.cuStreamSynchronize(stream))
    check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    for _ in range(50): launch()
    exec = check(driver.cuGraphInstantiate(check(driver.cuStreamEndCapture(stream)), 0))
    return lambda: check(driver.cuGraphLaunch(exec, stream))
def queue(us):
    launch = kernels(us)
    return lambda: [launch() for _ in range(6)]
def rest(_): return lambda: time.sleep(0.001)
def block(ms, begin=lambda: None):
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: begin() or time.sleep(ms / 1000))
    kept.append(function)
    address = driver.CUhostFn(ctypes.cast(function, ctypes.c_void_p).value)
    return lambda: check(driver.cuLaunchHostFunc(stream, address, 0))
def late(ms):
    wait, launch = block(ms), kernels(1000)
    return lambda: wait() or launch()
def hold(ms): return block(ms, lambda: say('holds'))
launch = lambda: None
say('ready')
while True:
    if select.select([sys.stdin], [], [], 0)[0]:
        what, us = sys.stdin.readline().split()
        launch = globals()[what](int(us))
        say(f'does {what} {us}')
    launch(); check(driver.cuStreamSynchronize(stream))
"""


@pytest.fixture
def steady(tenant: Start, compiled: Compile, request: pytest.FixtureRequest) -> Tenant:
    """Opportunistic, or of the class that the test names."""
    tenant_class = getattr(request, "param", "opportunistic")
    return tenant(tenant_class, STEADY, LD_PRELOAD=str(compiled("kernel_module", "-shared")))


def told(one: Tenant, what: str) -> None:
    one.say(what)
    heard(one, f"does {what}")


def heard(one: Tenant, what: str) -> None:
    # The kernel module of the test prints what it is asked for.
    while (line := one.hear()) != what:
        assert line == "ready" or line.endswith("taken")


def slot_of(one: Tenant, softgpu_env: dict[str, str]) -> segment.Slot:
    assert one.process
    pid = one.process.pid
    with Path(softgpu_env["COTENANT_SEGMENT"]).open("r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
    slots = (segment.Slot.from_buffer(memory, segment.PLACE * (1 + index)) for index in range(segment.SLOTS))
    return next(slot for slot in slots if slot.pid == pid)


def wait_for_slice(tenants_now: TenantsNow, one: Tenant, us: int) -> None:
    assert one.process
    pid = one.process.pid
    wait_for(lambda: [t.time_slice_us for t in tenants_now() if t.pid == pid] == [us])


@pytest.mark.usefixtures("company")
@pytest.mark.parametrize("steady", ["standard", "opportunistic"], indirect=True)
def test_cut_or_drain_follows_the_kernels_as_they_change(steady: Tenant, tenants_now: TenantsNow) -> None:
    told(steady, "kernels 1000")  # half a millisecond is left of one on average
    wait_for_slice(tenants_now, steady, CUT_US)
    told(steady, "kernels 10")
    wait_for_slice(tenants_now, steady, DRAIN_US)
    told(steady, "kernels 1500")
    wait_for_slice(tenants_now, steady, CUT_US)


@pytest.mark.usefixtures("company")
def test_a_tenant_is_cut_before_its_first_kernel_and_drained_once_it_is_known_to_have_short_ones(
    steady: Tenant, tenants_now: TenantsNow
) -> None:
    told(steady, "block 1")
    wait_for_slice(tenants_now, steady, CUT_US)
    told(steady, "kernels 10")
    wait_for_slice(tenants_now, steady, DRAIN_US)


@pytest.mark.usefixtures("company")
def test_a_tenant_of_graphs_is_cut_however_short_its_kernels_are(
    steady: Tenant, tenants_now: TenantsNow
) -> None:
    for _ in range(2):
        told(steady, "kernels 10")
        wait_for_slice(tenants_now, steady, DRAIN_US)
        told(steady, "graph 10")  # half a millisecond in all, and a gate every 0.1 ms
        wait_for_slice(tenants_now, steady, CUT_US)


def test_with_nobody_above_the_drivers_slice_holds(
    steady: Tenant, tenant: Start, tenants_now: TenantsNow
) -> None:
    told(steady, "kernels 1000")
    wait_for_slice(tenants_now, steady, DRIVERS_US)
    above = tenant("production", COMPANY)
    assert above.hear() == "here"
    wait_for_slice(tenants_now, steady, CUT_US)
    above.say("")
    above.finish()
    wait_for_slice(tenants_now, steady, DRIVERS_US)


def test_two_production_jobs_have_longer_slices_above_kernels_that_are_cut(
    tenant: Start, compiled: Compile, tenants_now: TenantsNow
) -> None:
    """Each end of a slice would let the cut kernel run for a moment, whether or not the other has work."""
    kernel_module = str(compiled("kernel_module", "-shared"))
    first, second = (tenant("production", STEADY, LD_PRELOAD=kernel_module) for _ in range(2))
    for one in (first, second):
        told(one, "kernels 1")
        told(one, "rest 0")
    for one in (first, second):
        wait_for_slice(tenants_now, one, 2000)
    below = tenant("opportunistic", STEADY, LD_PRELOAD=kernel_module)
    told(below, "kernels 2000")
    wait_for_slice(tenants_now, below, CUT_US)
    for one in (first, second):
        wait_for_slice(tenants_now, one, 20_000)
    for one in (first, second):
        told(one, "kernels 1")
    for one in (first, second):
        wait_for_slice(tenants_now, one, 3000)
    for one in (first, second):
        told(one, "rest 0")
    told(below, "kernels 10")
    for one in (first, second):
        wait_for_slice(tenants_now, one, 2000)


@pytest.mark.usefixtures("company")
def test_what_a_cut_costs_can_be_said(tenant: Start, compiled: Compile, tenants_now: TenantsNow) -> None:
    kernel_module = str(compiled("kernel_module", "-shared"))
    one = tenant("opportunistic", STEADY, LD_PRELOAD=kernel_module, COTENANT_CUT_COST="5000")
    told(one, "kernels 1000")
    wait_for_slice(tenants_now, one, DRAIN_US)
    told(one, "kernels 20000")
    wait_for_slice(tenants_now, one, CUT_US)


@pytest.mark.usefixtures("company")
@pytest.mark.parametrize("steady", ["standard", "opportunistic"], indirect=True)
def test_where_nobody_waits_for_anybody_the_slices_are_the_drivers(
    steady: Tenant, tenants_now: TenantsNow, softgpu_env: dict[str, str]
) -> None:
    told(steady, "kernels 1000")
    wait_for_slice(tenants_now, steady, CUT_US)
    with Path(softgpu_env["COTENANT_SEGMENT"]).open("r+b") as file:
        segment.Header.from_buffer(mmap.mmap(file.fileno(), segment.PLACE)).knobs.rule = Rule.none
    wait_for_slice(tenants_now, steady, DRIVERS_US)


@pytest.mark.parametrize("steady", ["standard", "opportunistic"], indirect=True)
def test_beside_processes_that_are_no_tenants_the_drivers_slice_holds_while_production_rests(
    steady: Tenant,
    tenant: Start,
    compiled: Compile,
    tenants_now: TenantsNow,
    softgpu_env: dict[str, str],
) -> None:
    """They have the driver's slice: beside these a tenant with one of 30 us would hardly ever run."""
    above = tenant("production", STEADY, LD_PRELOAD=str(compiled("kernel_module", "-shared")))
    told(above, "kernels 1")
    told(above, "rest 0")
    told(steady, "kernels 1000")
    wait_for_slice(tenants_now, steady, CUT_US)
    with Path(softgpu_env["COTENANT_SEGMENT"]).open("r+b") as file:
        header = segment.Header.from_buffer(mmap.mmap(file.fileno(), segment.PLACE))
    header.gpus[0].outsiders_until_ns = segment.now_ns() + 50 * 10**9
    wait_for_slice(tenants_now, steady, DRIVERS_US)
    told(above, "kernels 1")
    wait_for_slice(tenants_now, steady, CUT_US)
    told(above, "rest 0")
    header.gpus[0].outsiders_until_ns = segment.now_ns() + 50 * 10**9
    wait_for_slice(tenants_now, steady, DRIVERS_US)
    header.gpus[0].outsiders_until_ns = 0
    wait_for_slice(tenants_now, steady, CUT_US)


@pytest.fixture
def cut(steady: Tenant, company: Tenant, tenants_now: TenantsNow) -> Tenant:
    """Its kernels of a millisecond are, for an idle production job."""
    assert company.process
    told(steady, "kernels 1000")
    wait_for_slice(tenants_now, steady, CUT_US)
    return steady


def test_what_stands_still_with_a_short_slice_gets_a_longer_one_and_where_production_rests_the_drivers(
    cut: Tenant, tenants_now: TenantsNow
) -> None:
    """As it does beside a process that is no tenant; here it waits for the CPU."""
    told(cut, "late 150")
    wait_for_slice(tenants_now, cut, STANDSTILL_US)
    wait_for_slice(tenants_now, cut, DRIVERS_US)
    told(cut, "kernels 1000")
    wait_for_slice(tenants_now, cut, CUT_US)


def test_what_has_much_queued_and_gets_on_keeps_the_short_slice(
    cut: Tenant, tenants_now: TenantsNow, softgpu_env: dict[str, str]
) -> None:
    """Kernels so long that a software GPU without a processor for 0.2 s is not taken for standing still."""
    told(cut, "kernels 200000")
    wait_for_slice(tenants_now, cut, STANDSTILL_US)  # for nothing is known of them yet
    wait_for_slice(tenants_now, cut, CUT_US)
    told(cut, "queue 200000")
    slot = slot_of(cut, softgpu_env)
    slices: set[int] = set()
    enough = slot.gpus[0].figures.kernels + 3 * QUEUED

    def have_run() -> bool:
        slices.add(slot.time_slice_us)
        return bool(slot.gpus[0].figures.kernels >= enough)

    wait_for(have_run)
    assert slices == {CUT_US}


def test_what_stands_still_after_its_gate_was_closed_gets_a_longer_slice_to_end(
    cut: Tenant, tenants_now: TenantsNow, softgpu_env: dict[str, str]
) -> None:
    """It has passed the gate, and drains."""
    told(cut, "hold 1000000")
    heard(cut, "holds")
    slot_of(cut, softgpu_env).gpus[0].shut_until_ns = segment.now_ns() + 50 * 10**9
    wait_for_slice(tenants_now, cut, STANDSTILL_US)


def test_what_stands_still_with_a_longer_slice_too_gets_the_short_one_back(
    cut: Tenant, tenants_now: TenantsNow
) -> None:
    told(cut, "block 1000000")
    wait_for_slice(tenants_now, cut, STANDSTILL_US)
    wait_for_slice(tenants_now, cut, CUT_US)


@pytest.mark.usefixtures("company")
def test_a_kernel_that_is_cut_for_a_standard_job_may_end_after_a_while(
    steady: Tenant, tenant: Start, compiled: Compile, tenants_now: TenantsNow
) -> None:
    told(steady, "kernels 1000")
    wait_for_slice(tenants_now, steady, CUT_US)
    above = tenant("standard", STEADY, LD_PRELOAD=str(compiled("kernel_module", "-shared")))
    # Something of the stream is on its way for a long time, as a kernel would be that is cut again and again.
    told(steady, "block 1000000")
    told(above, "kernels 5000")
    wait_for_slice(tenants_now, steady, DRIVERS_US)


def test_what_a_cut_costs_is_learned_from_how_long_production_waits(
    steady: Tenant, company: Tenant, tenants_now: TenantsNow, softgpu_env: dict[str, str]
) -> None:
    """The kernel module of the test cuts nothing: what production waits for is the test's to say."""
    assert steady.process
    below = steady.process.pid
    above = slot_of(company, softgpu_env)

    def waited_until(us: int, slice_us: int) -> bool:
        """Production's next burst waits so long; whether that is the tenant's slice now."""
        above.gpus[0].waited_ns += us * 1000
        above.gpus[0].waits += 1
        return [t.time_slice_us for t in tenants_now() if t.pid == below] == [slice_us]

    told(steady, "kernels 1000")
    wait_for_slice(tenants_now, steady, CUT_US)
    wait_for(lambda: waited_until(4000, DRAIN_US))
    # A change of contexts turns out to be what took so long, and not the cut.
    wait_for(lambda: waited_until(4480, CUT_US))


@pytest.mark.parametrize("tenant_class", ["standard", "opportunistic"])
@pytest.mark.parametrize("weight", [1, 4])
def test_the_slice_of_a_tenant_below_its_floor_follows_from_that_and_from_productions_weight(
    tenant: Start,
    compiled: Compile,
    tenants_now: TenantsNow,
    tenant_class: str,
    weight: int,
) -> None:
    kernel_module = str(compiled("kernel_module", "-shared"))
    # Its own weight has no part in it.
    below = tenant(
        tenant_class, STEADY, LD_PRELOAD=kernel_module, COTENANT_FLOOR="50%", COTENANT_WEIGHT="0.5"
    )
    above = tenant("production", STEADY, LD_PRELOAD=kernel_module, COTENANT_WEIGHT=str(weight))
    told(below, "kernels 10")
    told(above, "kernels 500")
    wait_for_slice(tenants_now, below, 3000 * weight)
    wait_for_slice(tenants_now, above, 2000 * weight)
    # Where it gets its floor anyway production has the slices that it has beside any other.
    told(above, "rest 0")
    wait_for_slice(tenants_now, below, DRAIN_US)
    wait_for_slice(tenants_now, above, 1_000_000)
