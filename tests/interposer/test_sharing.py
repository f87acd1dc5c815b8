"""What is divided and how: turns by weight, the work in flight, floors, and what a policy's controller steers."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from tests.interposer.test_gates import LAUNCHING, OBEDIENT, order, ready, use
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.interposer.conftest import Tenant

    Start = Callable[..., Tenant]
    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

# Keeps the GPU busy with kernels of as many microseconds as it is told, a few ahead, until it hears something.
BUSY = """
import ctypes, select, sys
from soft import Gpu, check, driver
gpu = Gpu(); kernel = gpu.kernel('spin'); stream = gpu.stream()
length = ctypes.c_uint64(int(sys.argv[1]))
parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length))
events = [check(driver.cuEventCreate(0)) for _ in range(4)]
for event in events: check(driver.cuEventRecord(event, stream))
gpu.launch(kernel, stream, ctypes.addressof(parameters)); gpu.synchronize()
print('ready', flush=True)
turn = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    event = events[turn % 4]; turn += 1
    check(driver.cuEventSynchronize(event))
    gpu.launch(kernel, stream, ctypes.addressof(parameters)); check(driver.cuEventRecord(event, stream))
gpu.synchronize()
"""


def busy(tenant: Start, tenant_class: str, microseconds: int, **settings: str) -> Tenant:
    return ready(tenant(tenant_class, [sys.executable, "-u", "-c", BUSY, str(microseconds)], **settings))


def set_knob(one: Tenant, name: str, value: int) -> None:
    with Path(one.env["COTENANT_SEGMENT"]).open("r+b") as file:
        file.seek(segment.Header.knobs.offset + getattr(segment.Knobs, name).offset)
        file.write(value.to_bytes(4, "little"))


def steer(one: Tenant, name: str, value: int) -> None:
    """As a controller does: writes a field of the tenant's slot, for the first GPU."""
    assert one.process
    field = getattr(segment.OnGpu, name)
    with Path(one.env["COTENANT_SEGMENT"]).open("r+b") as file:
        for at in range(segment.PLACE, segment.SEGMENT_BYTES, segment.PLACE):
            file.seek(at)
            slot = segment.Slot.from_buffer_copy(file.read(segment.PLACE))
            if segment.is_live(slot) and slot.pid == one.process.pid:
                file.seek(at + segment.Slot.gpus.offset + field.offset)
                file.write(value.to_bytes(field.size, "little"))
                return
    pytest.fail("no such tenant")


def in_a_while() -> int:
    return time.monotonic_ns() + 50 * 10**9


def kernels(tenants_now: TenantsNow, one: Tenant) -> int:
    return use(tenants_now(), one).figures["kernels"]


def goes_on(tenants_now: TenantsNow, one: Tenant) -> None:
    before = kernels(tenants_now, one)
    wait_for(lambda: kernels(tenants_now, one) > before + 20)


def stands_still(tenants_now: TenantsNow, one: Tenant) -> None:
    """It is held at its gate, and what was let through has ended. One that only gets no processor is not held."""

    def no_further() -> bool:
        before = kernels(tenants_now, one)
        gated = [use(tenants_now(), one).gated for _ in range(50)]
        return all(gated) and kernels(tenants_now, one) == before

    wait_for(no_further)


def test_equals_divide_the_gpu_by_weight(tenant: Start, tenants_now: TenantsNow) -> None:
    # So long that a job whose process has to wait for a processor does not run empty: then it has no claim.
    heavy = busy(tenant, "opportunistic", 20_000, COTENANT_WEIGHT="3")
    light = busy(tenant, "opportunistic", 20_000)

    def used_ms(one: Tenant) -> float:
        return use(tenants_now(), one).used_ns / 1e6

    heavy_before, light_before = used_ms(heavy), used_ms(light)
    wait_for(lambda: used_ms(light) > light_before + 500)
    share = (used_ms(heavy) - heavy_before) / (used_ms(light) - light_before)
    assert 2 < share < 4.5


def test_a_launch_waits_while_too_much_is_in_flight(tenant: Start, tenants_now: TenantsNow) -> None:
    high, low = ready(tenant("production", OBEDIENT)), ready(tenant("opportunistic", OBEDIENT))
    set_knob(low, "in_flight_us", 50)
    set_knob(low, "patience_ms", 10_000)
    assert order(high, "begin") == "did begin"
    before = kernels(tenants_now, low)
    # Of 1 us each at least: fewer than the driver itself takes before it makes a launch wait.
    low.say("queue 900")
    wait_for(lambda: use(tenants_now(), low).in_flight_us > 40)
    stands_still(tenants_now, low)
    assert kernels(tenants_now, low) - before < 150
    assert order(high, "end") == "did end"
    # No launch waits its patience out now: it sees that the stream runs empty behind the gate, too.
    released = time.monotonic()
    assert low.hear() == "did queue"
    assert time.monotonic() - released < 10
    wait_for(lambda: order(low, "done?") == "True")


def test_a_launch_does_not_wait_for_what_its_own_thread_must_do(tenant: Start) -> None:
    """The stream stands still, but nobody holds it: the thread that launches is the one that would release it."""
    ready(tenant("production", OBEDIENT))
    low = ready(tenant("opportunistic", OBEDIENT))
    set_knob(low, "in_flight_us", 1)
    assert order(low, "begin") == "did begin"
    # Each may have a gate of three operations in front of it: fewer than the driver takes before a launch waits in it.
    assert order(low, "queue 200") == "did queue"
    assert order(low, "end") == "did end"


def test_a_stream_that_stands_still_by_itself_is_waited_for_once(
    tenant: Start, tenants_now: TenantsNow
) -> None:
    """Each of the launches would take as long as the patience, all together longer than this test waits."""
    ready(tenant("production", OBEDIENT))
    low = ready(tenant("opportunistic", OBEDIENT))
    set_knob(low, "in_flight_us", 1)
    set_knob(low, "patience_ms", 3000)
    assert order(low, "begin") == "did begin"
    before = kernels(tenants_now, low)
    low.say("queue 50")
    wait_for(lambda: kernels(tenants_now, low) == before + 50)
    assert low.hear() == "did queue"
    assert order(low, "end") == "did end"


def test_a_launch_waits_for_room_no_longer_than_its_patience(tenant: Start) -> None:
    high, low = ready(tenant("production", OBEDIENT)), ready(tenant("opportunistic", OBEDIENT))
    set_knob(low, "in_flight_us", 1)
    set_knob(low, "patience_ms", 1)
    assert order(high, "begin") == "did begin"
    assert order(low, "queue 50") == "did queue"
    assert order(low, "done?") == "False"
    order(high, "end")
    wait_for(lambda: order(low, "done?") == "True")


def test_a_floor_holds_while_production_never_rests(tenant: Start, tenants_now: TenantsNow) -> None:
    high = ready(tenant("production", OBEDIENT))
    starved = busy(tenant, "opportunistic", 500)
    fed = busy(tenant, "opportunistic", 500, COTENANT_FLOOR="20%")
    assert order(high, "begin") == "did begin"
    stands_still(tenants_now, starved)
    goes_on(tenants_now, fed)
    assert use(tenants_now(), high).busy
    stands_still(tenants_now, starved)


def test_who_has_nobody_to_wait_for_passes_few_gates(tenant: Start, tenants_now: TenantsNow) -> None:
    one = ready(tenant("opportunistic", [sys.executable, "-u", "-c", LAUNCHING, "empty"]))

    def no_gates() -> bool:
        before = use(tenants_now(), one).figures
        wait_for(lambda: use(tenants_now(), one).figures["kernels"] >= before["kernels"] + 500)
        return use(tenants_now(), one).figures["gates"] == before["gates"]

    wait_for(no_gates)
    ready(tenant("production", OBEDIENT))
    wait_for(lambda: not no_gates())


def test_a_controller_shuts_a_tenant_until_its_moment_has_passed(
    tenant: Start, tenants_now: TenantsNow
) -> None:
    one = busy(tenant, "opportunistic", 200)
    steer(one, "shut_until_ns", in_a_while())
    stands_still(tenants_now, one)
    assert use(tenants_now(), one).gated
    steer(one, "shut_until_ns", 1)
    goes_on(tenants_now, one)


def test_a_tolerant_tenant_keeps_nobody_waiting(tenant: Start, tenants_now: TenantsNow) -> None:
    high, low = ready(tenant("production", OBEDIENT)), busy(tenant, "opportunistic", 200)
    order(high, "begin")
    stands_still(tenants_now, low)
    steer(high, "tolerant_until_ns", in_a_while())
    goes_on(tenants_now, low)
    steer(high, "tolerant_until_ns", 1)
    stands_still(tenants_now, low)
    order(high, "end")
    goes_on(tenants_now, low)


def test_a_rate_limits_what_a_tenant_uses(tenant: Start, tenants_now: TenantsNow) -> None:
    one = busy(tenant, "opportunistic", 500)
    steer(one, "rate", 200)
    steer(one, "rate_until_ns", in_a_while())

    def share() -> float:
        before = use(tenants_now(), one)
        wait_for(lambda: use(tenants_now(), one).busy_ns > before.busy_ns + 300_000_000)
        after = use(tenants_now(), one)
        return (after.used_ns - before.used_ns) / (after.busy_ns - before.busy_ns)

    wait_for(lambda: 0.1 < share() < 0.35)
    # It runs out: nobody has renewed it.
    steer(one, "rate_until_ns", time.monotonic_ns() + 1)
    wait_for(lambda: share() > 0.8)


def test_a_rate_of_next_to_nothing_holds_a_tenant_that_had_no_limit(
    tenant: Start, tenants_now: TenantsNow
) -> None:
    one = busy(tenant, "opportunistic", 500)
    goes_on(tenants_now, one)
    steer(one, "rate", 1)
    steer(one, "rate_until_ns", in_a_while())
    wait_for(lambda: use(tenants_now(), one).over_rate)
    stands_still(tenants_now, one)


def test_under_fair_production_takes_turns_too(tenant: Start, tenants_now: TenantsNow) -> None:
    low, high = busy(tenant, "opportunistic", 500), busy(tenant, "production", 500)
    stands_still(tenants_now, low)
    set_knob(low, "rule", 2)
    goes_on(tenants_now, low)
    goes_on(tenants_now, high)
    assert use(tenants_now(), high).figures["gates"] > 0


def test_what_a_controller_held_runs_out_though_nobody_takes_it_back(
    tenant: Start, tenants_now: TenantsNow
) -> None:
    """Its daemon was killed: nothing is written any more."""
    one = busy(tenant, "opportunistic", 200)
    steer(one, "shut_until_ns", time.monotonic_ns() + 2 * 10**9)
    stands_still(tenants_now, one)
    goes_on(tenants_now, one)
    high = ready(tenant("production", OBEDIENT))
    assert order(high, "begin") == "did begin"
    stands_still(tenants_now, one)
    steer(high, "tolerant_until_ns", time.monotonic_ns() + 2 * 10**9)
    goes_on(tenants_now, one)
    stands_still(tenants_now, one)
    assert use(tenants_now(), high).busy
