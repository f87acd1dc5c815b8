"""Equals take turns: one at a time is on the GPU, each by its weight, and nobody waits for one that cannot run.

What ran when is what the software GPU says, in its modelled time: a machine that is busy with other things changes
nothing in it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from cotenant import segment
from cotenant.segment.wire import Ready
from tests.interposer.conftest import set_stale_ms
from tests.interposer.test_gates import OBEDIENT, order, ready, rested, use
from tests.interposer.test_host_copies import slot_of
from tests.interposer.test_sharing import busy, goes_on, set_knob
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.interposer.conftest import Tenant

    Start = Callable[..., Tenant]
    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

# Runs kernels of so many microseconds, a few ahead, until it hears something; then prints when each of them ran. Where
# it is told to, it waits for each and does something else for so many milliseconds.
CLOCKED = """
import ctypes, select, sys, time
from soft import Gpu, check, driver
gpu = Gpu(); kernel = gpu.kernel('clock'); stream = gpu.stream()
microseconds, ahead, away_ms, most = (int(one) for one in sys.argv[1:5])
host = check(driver.cuMemHostAlloc(16 * most, driver.CU_MEMHOSTALLOC_DEVICEMAP))
times = (ctypes.c_double * (2 * most)).from_address(int(host))
at = int(check(driver.cuMemHostGetDevicePointer(host, 0)))
place, length = ctypes.c_uint64(at), ctypes.c_uint64(microseconds)
parameters = (ctypes.c_void_p * 2)(ctypes.addressof(place), ctypes.addressof(length))
events = [check(driver.cuEventCreate(0)) for _ in range(ahead)]
for event in events: check(driver.cuEventRecord(event, stream))
gpu.launch(kernel, stream, ctypes.addressof(parameters)); gpu.synchronize()
print('ready', flush=True)
number = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    event = events[number % ahead]; place.value = at + 16 * (number % most); number += 1
    check(driver.cuEventSynchronize(event))
    gpu.launch(kernel, stream, ctypes.addressof(parameters)); check(driver.cuEventRecord(event, stream))
    if away_ms: gpu.synchronize(); time.sleep(away_ms / 1000)
gpu.synchronize()
for i in range(min(number, most)): print(times[2 * i], times[2 * i + 1])
print('over', flush=True)
"""


def clocked(
    tenant: Start,
    microseconds: int,
    ahead: int = 4,
    away_ms: int = 0,
    tenant_class: str = "opportunistic",
    **settings: str,
) -> Tenant:
    command = [sys.executable, "-u", "-c", CLOCKED, str(microseconds), str(ahead), str(away_ms), "20000"]
    return ready(tenant(tenant_class, command, **settings))


def used_ms(tenants_now: TenantsNow, one: Tenant) -> float:
    return use(tenants_now(), one).used_ns / 1e6


def uses(tenants_now: TenantsNow, one: Tenant, milliseconds: float) -> None:
    before = used_ms(tenants_now, one)
    wait_for(lambda: used_ms(tenants_now, one) > before + milliseconds)


def ran(one: Tenant) -> list[tuple[float, float]]:
    """When its kernels ran, in microseconds."""
    one.say("")
    lines = list(iter(one.hear, "over"))
    return [(float(start), float(end)) for start, end in (line.split() for line in lines)]


def overlaps(
    these: Iterable[tuple[float, float]], those: Iterable[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Of `these`, the ones in whose time one of `those` ran too."""
    others = list(those)
    return [one for one in these if any(one[0] < end and start < one[1] for start, end in others)]


def test_two_jobs_of_long_kernels_do_not_cut_each_other(tenant: Start, tenants_now: TenantsNow) -> None:
    jobs = [clocked(tenant, 11_000), clocked(tenant, 11_000)]
    for job in jobs:
        uses(tenants_now, job, 400)
    times = [ran(job) for job in jobs]
    # From when both were there to when the first of them was told to end.
    begin, end = max(one[0][0] for one in times) + 3e5, min(one[-1][1] for one in times)
    first, second = ([one for one in job if begin < one[0] and one[1] < end] for job in times)
    assert len(first) + len(second) > 20
    # The software GPU hears of an open gate when its client's process gets a processor: so a stream may pass one that
    # was closed meanwhile. Where equals cut each other, all kernels are cut.
    cut = [one for one in first + second if one[1] - one[0] > 11_000 + 1]
    assert len(cut) + len(overlaps(first, second)) < (len(first) + len(second)) / 4


def test_one_that_runs_empty_passes_its_turn(tenant: Start, tenants_now: TenantsNow) -> None:
    """However long a turn may be."""
    waiting_for_itself = clocked(tenant, 500, ahead=1, away_ms=1)
    set_knob(waiting_for_itself, "turn_us", 10_000_000)
    other = clocked(tenant, 500, ahead=1, away_ms=1)
    for _ in range(3):
        goes_on(tenants_now, other)
        goes_on(tenants_now, waiting_for_itself)


# Destroys streams in which its kernel has yet to run, and waits for it.
LEAVES_STREAMS = """
from soft import Gpu, check, driver
gpu = Gpu(); kernel = gpu.kernel('empty'); gpu.launch(kernel, gpu.stream()); gpu.synchronize()
print('ready', flush=True); input()
for _ in range(5):
    stream = gpu.stream(); gpu.launch(kernel, stream); check(driver.cuStreamDestroy(stream)); gpu.synchronize()
print('did', flush=True)
"""


def test_work_in_destroyed_streams_gets_its_turn(tenant: Start, tenants_now: TenantsNow) -> None:
    """The other one always has work; and a class above comes now and then, so that nobody runs beside it."""
    above = ready(tenant("production", OBEDIENT))
    assert order(above, "work 1") == "did work"
    always, leaves = clocked(tenant, 2_000), ready(tenant("opportunistic", LEAVES_STREAMS))
    uses(tenants_now, always, 100)
    leaves.say("")
    assert leaves.hear() == "did"
    assert (leaves.finish(), leaves.total("kernels"), leaves.total("escaped")) == ("", 6, 0)


def test_one_that_returns_from_its_cpu_does_not_wait_for_a_whole_turn(tenant: Start) -> None:
    """The other, which always has work, gives way after as much as makes its turn worth the switch: a tenth."""
    above = ready(tenant("production", OBEDIENT))
    assert order(above, "work 1") == "did work"
    always, _ = clocked(tenant, 200), clocked(tenant, 300, ahead=1, away_ms=20)

    def is_short() -> bool:
        here = slot_of(always).gpus[0]
        return bool(0 < here.turn_us < max(20 * here.switch_us, 5_000))

    wait_for(is_short)


def test_where_nobody_is_above_one_that_returns_from_its_cpu_runs_beside_the_other(
    tenant: Start, tenants_now: TenantsNow
) -> None:
    always, returns = clocked(tenant, 200), clocked(tenant, 300, ahead=1, away_ms=20)

    def runs_beside() -> bool:
        return bool(slot_of(returns).gpus[0].ready == Ready.beside)

    wait_for(runs_beside)
    # And has no turn: the other keeps its own.
    wait_for(lambda: runs_beside() and slot_of(always).gpus[0].holds_turn and runs_beside())
    wait_for(lambda: bool(slot_of(returns).gpus[0].beside_ns > 0))
    above = ready(tenant("production", OBEDIENT))
    assert order(above, "work 1") == "did work"
    goes_on(tenants_now, returns)
    before = slot_of(returns).gpus[0].beside_ns
    for _ in range(5):
        goes_on(tenants_now, returns)
    assert slot_of(returns).gpus[0].beside_ns == before


def test_one_that_does_not_drain_is_passed(tenant: Start) -> None:
    held, other = ready(tenant("opportunistic", OBEDIENT)), ready(tenant("opportunistic", OBEDIENT))
    assert order(held, "begin") == "did begin"  # its stream waits for what the program does next
    assert order(other, "work 20") == "did work"
    assert order(held, "end") == "did end"


def test_one_that_a_higher_class_cuts_is_not_late(tenant: Start, tenants_now: TenantsNow) -> None:
    """What it has on the GPU cannot end meanwhile: its equals wait for it from when it can."""
    # Its stream has passed its gate before it waits for the program.
    past_its_gate = OBEDIENT.replace(
        "check(driver.cuStreamWaitValue32",
        "check(driver.cuStreamSynchronize(stream)); check(driver.cuStreamWaitValue32",
    )
    low, high = ready(tenant("opportunistic", past_its_gate)), rested(tenant("production", OBEDIENT))
    assert order(low, "begin") == "did begin"
    wait_for(lambda: use(tenants_now(), low).holds_turn)
    assert order(high, "begin") == "did begin"

    def stopped_ns() -> int:
        return int(slot_of(low).gpus[0].stop_ns)

    wait_for(lambda: stopped_ns() > 0)
    before = stopped_ns()
    wait_for(lambda: stopped_ns() > before)
    for one in (high, low):
        assert order(one, "end") == "did end"


def test_one_that_was_stopped_is_passed(tenant: Start, tenants_now: TenantsNow) -> None:
    stopped, other = busy(tenant, "opportunistic", 500), busy(tenant, "opportunistic", 500)
    assert stopped.process
    goes_on(tenants_now, other)
    set_stale_ms(Path(other.env["COTENANT_SEGMENT"]), 500)
    os.kill(stopped.process.pid, signal.SIGSTOP)
    try:
        goes_on(tenants_now, other)
    finally:
        os.kill(stopped.process.pid, signal.SIGCONT)
    goes_on(tenants_now, stopped)


def test_weights_hold_in_what_was_executed(tenant: Start, tenants_now: TenantsNow) -> None:
    weights = (1, 2, 4)
    jobs = [clocked(tenant, 2000, COTENANT_WEIGHT=str(weight)) for weight in weights]
    for job in jobs:
        set_knob(job, "turn_us", 10_000)
        uses(tenants_now, job, 20)
    before = [used_ms(tenants_now, job) for job in jobs]
    uses(tenants_now, jobs[0], 300)
    got = [used_ms(tenants_now, job) - was for job, was in zip(jobs, before, strict=True)]
    shares = [one / sum(got) for one in got]
    assert all(
        abs(share - weight / sum(weights)) < 0.08 for share, weight in zip(shares, weights, strict=True)
    ), shares


def test_what_production_used_is_not_charged(tenant: Start, tenants_now: TenantsNow) -> None:
    high, low = ready(tenant("production", OBEDIENT)), clocked(tenant, 500)
    uses(tenants_now, low, 50)
    assert order(high, "begin") == "did begin"
    wait_for(lambda: use(tenants_now(), low).gated)
    before = use(tenants_now(), low)
    wait_for(lambda: use(tenants_now(), low).busy_ns > before.busy_ns + 300_000_000)
    assert use(tenants_now(), low).used_ns - before.used_ns < 30_000_000
    assert order(high, "end") == "did end"
    uses(tenants_now, low, 50)


BRIEF = """
import ctypes
from soft import Gpu
gpu = Gpu(); kernel = gpu.kernel('spin'); stream = gpu.stream()
length = ctypes.c_uint64(1000); parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length))
for _ in range(40): gpu.launch(kernel, stream, ctypes.addressof(parameters))
gpu.synchronize()
print('over', flush=True)
"""


def test_a_crowd_of_short_jobs_ends_though_some_are_killed(tenant: Start) -> None:
    endless = [clocked(tenant, 1000) for _ in range(2)]
    jobs = [tenant("opportunistic", BRIEF) for _ in range(6)]
    for job in endless:
        assert job.process
        job.process.kill()
    for job in jobs:
        assert job.hear() == "over"
        job.finish()
