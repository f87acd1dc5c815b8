"""Streams that wait for each other stand at no gates: their launches wait on the CPU, and their kernels are cut."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from tests.interposer.conftest import mapped_slot
from tests.interposer.test_cut_or_drain import CUT_US, DRAIN_US
from tests.interposer.test_gates import OBEDIENT, order, rested, use
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import Run
    from tests.interposer.conftest import Compile, Tenant

    Start = Callable[..., Tenant]
    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

# Step after step in two streams, a few steps ahead, until it hears something; then prints how many steps were launched,
# and what came of them. The streams wait for each other (by an event each way, or as the legacy default stream and
# another one do), or they do not. Each step turns the sign of a number in one stream and adds one in the other: out of
# order, the number would be another one for good.
STEPS = """
import ctypes, select, struct, sys
from soft import Gpu, check, driver
slice_us = ctypes.c_uint64(2048)
control = (ctypes.c_ubyte * 32)(*struct.pack('IIIIQII', 1, 2, 0xa06c0103, 0, ctypes.addressof(slice_us), 8, 0))
assert ctypes.CDLL(None).ioctl(99, ctypes.c_ulong(0xc020462a), control) == 0
gpu = Gpu(); spin, add, scale = gpu.kernel('spin'), gpu.kernel('add'), gpu.kernel('scale'); kept = []
how = sys.argv[1]
flags = driver.CUstream_flags.CU_STREAM_DEFAULT if how == 'legacy' else driver.CUstream_flags.CU_STREAM_NON_BLOCKING
second = check(driver.cuStreamCreate(flags)); first = 0 if how == 'legacy' else check(driver.cuStreamCreate(flags))
def held(*values):
    array = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    kept.append((values, array))
    return ctypes.addressof(array)
def word(value):
    memory = check(driver.cuMemAlloc(4))
    check(driver.cuMemsetD32(memory, struct.unpack('I', struct.pack('f', value))[0], 1))
    return ctypes.c_uint64(int(memory))
number, one, count = word(0), word(1), ctypes.c_uint64(1)
short = held(ctypes.c_uint64(10))
turn = held(number, number, ctypes.c_float(-1), count); increase = held(number, number, one, count)
quiet = driver.CUevent_flags.CU_EVENT_DISABLE_TIMING
there, back, *ends = (check(driver.cuEventCreate(quiet)) for _ in range(6))
def join(event, before, after):
    if how == 'events': check(driver.cuEventRecord(event, before)); check(driver.cuStreamWaitEvent(after, event, 0))
def step(steps):
    check(driver.cuEventSynchronize(ends[steps % 4]))
    gpu.launch(spin, first, short); gpu.launch(scale, first, turn)
    join(there, first, second)
    gpu.launch(spin, second, short); gpu.launch(add, second, increase)
    join(back, second, first)
    check(driver.cuEventRecord(ends[steps % 4], second))
def say(text): sys.stdout.write(f'{text}\\n')  # at once: the kernel module's lines come between two writes
say('ready')
steps = 0
while not select.select([sys.stdin], [], [], 0)[0]: step(steps); steps += 1
gpu.synchronize()
host = ctypes.c_float()
check(driver.cuMemcpyDtoH(ctypes.addressof(host), driver.CUdeviceptr(number.value), 4))
say(f'{steps} {host.value}')
"""


@pytest.fixture
def steps(tenant: Start, compiled: Compile) -> Callable[..., Tenant]:
    def start(how: str, **settings: str) -> Tenant:
        preload = str(compiled("kernel_module", "-shared"))
        one = tenant(
            "opportunistic", [sys.executable, "-u", "-c", STEPS, how], LD_PRELOAD=preload, **settings
        )
        while one.hear() != "ready":
            pass  # the kernel module of the test prints what it is asked for
        return one

    return start


def is_right(one: Tenant) -> bool:
    """What it has computed, in the order of its streams."""
    one.say("")
    while (line := one.hear()).endswith("taken"):
        pass
    number, result = line.split()
    return float(result) == int(number) % 2


def kernels(one: Tenant) -> int:
    return int(mapped_slot(one).gpus[0].figures.kernels)


def gates(one: Tenant) -> int:
    return int(mapped_slot(one).gpus[0].figures.gates)


def goes_on(one: Tenant, launches: int = 400) -> None:
    before = kernels(one)
    wait_for(lambda: kernels(one) > before + launches)


@pytest.mark.usefixtures("company")
@pytest.mark.parametrize("how", ["events", "legacy"])
def test_linked_streams_pass_their_gates_on_the_cpu_and_are_cut(
    steps: Callable[..., Tenant], how: str
) -> None:
    one = steps(how)

    def goes_on_without_gates() -> bool:
        before = gates(one)
        goes_on(one)
        return gates(one) == before

    wait_for(goes_on_without_gates)
    # Short kernels, which are drained otherwise.
    wait_for(lambda: mapped_slot(one).time_slice_us == CUT_US)
    assert is_right(one)


@pytest.mark.usefixtures("company")
def test_streams_that_do_not_wait_for_each_other_stand_at_gates_and_are_drained(
    steps: Callable[..., Tenant],
) -> None:
    one = steps("apart")
    wait_for(lambda: mapped_slot(one).time_slice_us == DRAIN_US)
    before = gates(one)
    goes_on(one)
    assert gates(one) > before


@pytest.mark.parametrize("how", ["events", "legacy"])
def test_linked_streams_wait_while_a_higher_class_is_busy_and_leave_the_gpu(
    tenant: Start, tenants_now: TenantsNow, steps: Callable[..., Tenant], how: str
) -> None:
    high, low = rested(tenant("production", OBEDIENT)), steps(how)
    goes_on(low)
    for _ in range(3):
        assert order(high, "begin") == "did begin"
        wait_for(lambda: use(tenants_now(), low).gated and not mapped_slot(low).gpus[0].on)
        assert order(high, "end") == "did end"
        goes_on(low)
    assert is_right(low)


def test_a_thread_does_not_wait_for_its_gate_for_as_long_as_a_higher_class_works(
    tenant: Start, steps: Callable[..., Tenant]
) -> None:
    """It may have more to do than to launch: in the end its stream stands at the gate, as others do."""
    high, low = rested(tenant("production", OBEDIENT)), steps("events")
    goes_on(low)
    assert order(high, "begin") == "did begin"
    before = gates(low)
    wait_for(lambda: gates(low) > before)
    assert order(high, "end") == "did end"
    goes_on(low)
    assert is_right(low)


def test_linked_streams_can_be_paused_while_a_higher_class_is_busy(
    tenant: Start, tenants_now: TenantsNow, steps: Callable[..., Tenant], cotenant: Run
) -> None:
    high, low = rested(tenant("production", OBEDIENT)), steps("events", COTENANT_OVERSUBSCRIBE="1")
    goes_on(low)
    assert order(high, "begin") == "did begin"
    wait_for(lambda: use(tenants_now(), low).gated)
    for command in ("pause", "resume"):
        assert low.process
        done = cotenant(command, str(low.process.pid), env=low.env)
        assert done.returncode == 0, done.stderr
    assert order(high, "end") == "did end"
    goes_on(low)
    assert is_right(low)


def test_two_tenants_of_linked_streams_take_turns(
    tenants_now: TenantsNow, steps: Callable[..., Tenant]
) -> None:
    jobs = [steps("events"), steps("events")]
    for _ in range(3):
        for one in jobs:
            before = use(tenants_now(), one).used_ns
            goes_on(one)
            wait_for(lambda one=one, before=before: use(tenants_now(), one).used_ns > before)  # type: ignore[misc]
    assert all(is_right(one) for one in jobs)
