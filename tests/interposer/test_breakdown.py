"""Where a production job's time goes: waiting for the GPU, waiting for itself, running."""

from __future__ import annotations

import dataclasses
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant.tenants import breakdown
from tests.interposer.conftest import mapped_slot
from tests.interposer.test_gates import OBEDIENT, order, ready, rested, use, wait_until_idle
from tests.interposer.test_sharing import busy, set_knob
from tests.waiting import wait_for

if TYPE_CHECKING:
    from cotenant import segment
    from tests.interposer.conftest import Tenant

    Start = Callable[..., Tenant]
    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

# Bursts of two kernels of so many microseconds, so many microseconds apart by the CPU, and then a rest of 25 ms. Each
# burst in the stream that it is told of: one of its own, the legacy or the per-thread default stream.
BURSTS = """
import ctypes, select, sys, time
from soft import Gpu, check, driver
gpu = Gpu(); kernel = gpu.kernel('spin')
streams = {'own': gpu.stream(), 'legacy': driver.CUstream(1), 'per-thread': driver.CUstream(2)}
stream = streams[sys.argv[3]]
length = ctypes.c_uint64(int(sys.argv[1])); gap = int(sys.argv[2]) / 1e6
parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length))
def burst():
    gpu.launch(kernel, stream, ctypes.addressof(parameters)); check(driver.cuStreamSynchronize(stream))
    if gap: time.sleep(gap)
    gpu.launch(kernel, stream, ctypes.addressof(parameters)); check(driver.cuStreamSynchronize(stream))
burst()
print('ready', flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    burst(); time.sleep(0.025)
"""


def bursts(tenant: Start, kernel_us: int, gap_us: int, stream: str = "own", **settings: str) -> Tenant:
    command = [sys.executable, "-u", "-c", BURSTS, str(kernel_us), str(gap_us), stream]
    one = tenant("production", command, **settings)
    assert one.hear() == "ready"
    return one


def timed(tenants_now: TenantsNow, one: Tenant, starts: int) -> breakdown.Breakdown:
    before = use(tenants_now(), one).waits
    wait_for(lambda: use(tenants_now(), one).waits >= before + starts)
    found = breakdown.of(use(tenants_now(), one))
    assert found
    return found


@pytest.mark.parametrize("stream", ["own", "legacy", "per-thread"])
def test_starts_of_bursts_are_timed_in_every_kind_of_stream(
    tenant: Start, tenants_now: TenantsNow, stream: str
) -> None:
    one = bursts(tenant, 100, 0, stream)
    other = busy(tenant, "opportunistic", 20_000)
    found = timed(tenants_now, one, 10)
    seen = use(tenants_now(), one)
    assert seen.preemptions == 0 and sum(seen.wait_counts) >= 10
    held = use(tenants_now(), other)
    assert held.preemptions > 0 and sum(held.wait_counts) > 0 and held.wait_sum_ns > 0
    # A mean of the timed bursts; the others may have been shorter.
    assert found.wait_us is not None and 0 < found.wait_us < 1_000_000


def test_with_nobody_below_no_start_is_timed(tenant: Start, tenants_now: TenantsNow) -> None:
    one = bursts(tenant, 100, 0)
    before = use(tenants_now(), one).figures["bursts"]
    wait_for(lambda: use(tenants_now(), one).figures["bursts"] > before + 20)
    assert use(tenants_now(), one).waits == 0
    found = breakdown.of(use(tenants_now(), one))
    assert found and found.wait_us is None
    # Nor is one when the lower class has gone again.
    other = busy(tenant, "opportunistic", 1000)
    wait_for(lambda: use(tenants_now(), one).waits > 0)
    assert other.process
    other.process.kill()

    def times_none() -> bool:
        waits, before = use(tenants_now(), one).waits, use(tenants_now(), one).figures["bursts"]
        wait_for(lambda: use(tenants_now(), one).figures["bursts"] > before + 20)
        return use(tenants_now(), one).waits == waits

    wait_for(times_none)


def test_a_gap_inside_a_burst_is_waiting_for_itself(
    tenant: Start, tenants_now: TenantsNow, tmp_path: Path
) -> None:
    one = bursts(tenant, 1000, 10_000, XDG_CACHE_HOME=str(tmp_path))
    set_knob(one, "grace_us", 15_000)  # the gap is inside the burst, and the rest is not
    busy(tenant, "opportunistic", 100)
    wait_for(lambda: use(tenants_now(), one).gap_ns > 100_000_000)
    seen = use(tenants_now(), one)
    assert seen.gap_ns < seen.busy_ns
    one.say("stop")
    one.finish()
    # Its next run is told of it (cotenant.mps.last_runs).
    [kept] = (tmp_path / "cotenant" / "runs").iterdir()
    seconds, filled = map(float, kept.read_text().split()[2:4])
    assert 0 <= filled <= seconds - seen.gap_ns / 1e9 + 0.002


WAITS = """
import ctypes, sys, threading
from soft import Gpu, check, driver
gpu = Gpu(); kernel = gpu.kernel('spin'); stream = gpu.stream()
event = check(driver.cuEventCreate(0))
pinned = check(driver.cuMemHostAlloc(64, 0)); memory = check(driver.cuMemAlloc(64))
length = ctypes.c_uint64(20_000); parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length))
def work():
    gpu.launch(kernel, stream, ctypes.addressof(parameters)); check(driver.cuEventRecord(event, stream))
ways = {
    'stream': lambda: driver.cuStreamSynchronize(stream), 'event': lambda: driver.cuEventSynchronize(event),
    'context': lambda: driver.cuCtxSynchronize(), 'copy': lambda: driver.cuMemcpyDtoH(pinned, memory, 64),
    'neither': lambda: driver.cuMemcpyHtoD(memory, pinned, 64) + driver.cuMemcpyDtoHAsync(pinned, memory, 64, stream),
}
for line in sys.stdin:
    work(); check(ways[line.strip()]()); print('done', flush=True)
"""


@pytest.mark.parametrize(
    ("way", "calls"), [("stream", 1), ("event", 1), ("context", 1), ("copy", 1), ("neither", 0)]
)
def test_what_a_thread_waits_for_the_gpu_inside_the_driver_is_counted(
    tenant: Start, tenants_now: TenantsNow, way: str, calls: int
) -> None:
    one = tenant("production", [sys.executable, "-u", "-c", WAITS])
    for number in range(1, 4):
        one.say(way)
        assert one.hear() == "done"
        seen = use(tenants_now(), one)
        assert seen.blocking_calls == number * calls
        if way in ("stream", "event", "context"):
            assert seen.blocked_ns >= number * 10_000_000


BETWEEN_WAITS = """
import ctypes, sys, time
from soft import Gpu, check, driver
gpu = Gpu(); kernel = gpu.kernel('spin'); stream = gpu.stream()
length = ctypes.c_uint64(1_000); parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length))
pinned = check(driver.cuMemHostAlloc(64, 0)); memory = check(driver.cuMemAlloc(64))
def work():
    end = time.thread_time() + 0.1
    while time.thread_time() < end: pass
ways = {'works': work, 'sleeps': lambda: time.sleep(0.1)}
for line in sys.stdin:
    ways[line.strip()]()
    gpu.launch(kernel, stream, ctypes.addressof(parameters))
    check(driver.cuMemcpyHtoDAsync(memory, pinned, 64, stream))
    check(driver.cuStreamSynchronize(stream)); print('done', flush=True)
"""


def test_what_production_does_between_two_waits_is_counted_as_work_or_as_sleep(
    tenant: Start, tenants_now: TenantsNow
) -> None:
    one = tenant("production", [sys.executable, "-u", "-c", BETWEEN_WAITS])

    def after(what: str) -> tuple[int, int]:
        before = use(tenants_now(), one)
        one.say(what)
        assert one.hear() == "done"
        now = use(tenants_now(), one)
        assert now.blocking_calls == before.blocking_calls + 1
        return now.own_cpu_ns - before.own_cpu_ns, now.asleep_ns - before.asleep_ns

    one.say("works")  # nothing is known of the time before the first wait
    assert one.hear() == "done"
    assert use(tenants_now(), one).own_cpu_ns == 0
    worked_ns, _ = after("works")
    assert worked_ns >= 95_000_000
    worked_ns, asleep_ns = after("sleeps")
    assert worked_ns < 95_000_000 <= asleep_ns


def test_of_a_lower_class_nobody_asks_what_it_does_between_two_waits(
    tenant: Start, tenants_now: TenantsNow
) -> None:
    one = tenant("opportunistic", [sys.executable, "-u", "-c", BETWEEN_WAITS])
    for _ in range(3):
        one.say("works")
        assert one.hear() == "done"
    seen = use(tenants_now(), one)
    assert seen.blocking_calls == 3 and (seen.own_cpu_ns, seen.asleep_ns) == (0, 0)


def test_the_time_between_two_bursts_is_no_work(tenant: Start, tenants_now: TenantsNow) -> None:
    one = rested(tenant("production", OBEDIENT))
    for _ in range(2):
        time.sleep(0.3)  # which may be longer
        before_ns, worked_ns = time.monotonic_ns(), use(tenants_now(), one).busy_ns
        order(one, "work 1")
        wait_until_idle(one)
        assert use(tenants_now(), one).busy_ns - worked_ns <= time.monotonic_ns() - before_ns


def test_what_an_operation_takes_is_compared_with_when_it_was_alone(
    tenant: Start, tenants_now: TenantsNow
) -> None:
    one = bursts(tenant, 2000, 0)
    wait_for(lambda: use(tenants_now(), one).operation_alone_ns > 0)
    alone = use(tenants_now(), one).operation_alone_ns
    assert alone >= 2_000_000 * 0.9
    busy(tenant, "opportunistic", 100)
    wait_for(lambda: use(tenants_now(), one).operation_ns != use(tenants_now(), one).operation_alone_ns)
    seen = use(tenants_now(), one)

    def slower(operation_ns: int) -> float | None:
        found = breakdown.of(dataclasses.replace(seen, operation_ns=operation_ns, operation_alone_ns=1000))
        assert found
        return found.slower

    assert slower(1250) == 0.25
    # Other operations than those that it ran alone.
    assert slower(3000) is None and slower(400) is None


# Bursts of a copy, and of a copy and a kernel where it is told to.
COPIES = """
import ctypes, select, sys, time
from soft import Gpu, check, driver
gpu = Gpu(); kernel = gpu.kernel('spin'); stream = gpu.stream()
length = ctypes.c_uint64(100); parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length))
host = check(driver.cuMemHostAlloc(4096, 0)); there = check(driver.cuMemAlloc(4096))
print('ready', flush=True)
computes = False
while True:
    if select.select([sys.stdin], [], [], 0)[0]: sys.stdin.readline(); computes = True; print('computes', flush=True)
    check(driver.cuMemcpyHtoDAsync(there, host, 4096, stream))
    if computes: gpu.launch(kernel, stream, ctypes.addressof(parameters))
    check(driver.cuStreamSynchronize(stream)); time.sleep(0.025)
"""


def test_the_start_of_a_burst_is_its_first_kernel(tenant: Start, tenants_now: TenantsNow) -> None:
    one = tenant("production", [sys.executable, "-u", "-c", COPIES])
    assert one.hear() == "ready"
    busy(tenant, "opportunistic", 20_000)
    before = use(tenants_now(), one).figures["bursts"]
    wait_for(lambda: use(tenants_now(), one).figures["bursts"] > before + 20)
    assert use(tenants_now(), one).waits == 0
    one.say("")
    assert one.hear() == "computes"
    timed(tenants_now, one, 5)


def test_only_the_first_kernel_of_a_burst_is_its_start(tenant: Start, tenants_now: TenantsNow) -> None:
    one, below = ready(tenant("production", OBEDIENT)), ready(tenant("opportunistic", OBEDIENT))
    wait_for(lambda: order(one, "work 1") == "did work" and use(tenants_now(), one).waits > 0)
    assert order(below, "done?") == "True"

    def waits() -> int:
        """When it is idle, and its watcher has looked since at what it times."""
        wait_until_idle(one)
        beats = {t.pid: t.heartbeat_ns for t in tenants_now()}
        assert one.process
        pid = one.process.pid
        wait_for(lambda: any(t.pid == pid and t.heartbeat_ns != beats[pid] for t in tenants_now()))
        return use(tenants_now(), one).waits

    before = waits()
    for number in range(2):
        until = time.monotonic() + 0.03  # one in 20 ms is timed
        while time.monotonic() < until:
            pass
        assert order(one, "queue 1" if number else "begin")
        wait_for(lambda: use(tenants_now(), one).waits > before)
    order(one, "end")
    assert waits() == before + 1


def test_a_burst_of_production_is_measured_as_closely_alone_as_beside_others(tenant: Start) -> None:
    """Otherwise what it takes alone, against which a policy holds all else, would be too much by up to 2 ms."""
    one = busy(tenant, "production", 50_000)
    slot = mapped_slot(one)
    looks = [slot.gpus[0].busy_ns]

    def is_close() -> bool:
        for _ in range(100_000):
            if (busy_ns := slot.gpus[0].busy_ns) != looks[-1]:
                looks.append(busy_ns)
        return any(after - before < 1_000_000 for before, after in itertools.pairwise(looks))

    wait_for(is_close)
