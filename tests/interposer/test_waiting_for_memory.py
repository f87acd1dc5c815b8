"""More memory than the GPU has: tenants that wait for memory, and what happens to them meanwhile."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from cotenant.segment import Where
from tests.interposer.conftest import MiB, mapped_slot, of, set_stale_ms, tell
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import Run
    from tests.interposer.conftest import Tenant

    Start = Callable[..., Tenant]
    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

pytestmark = pytest.mark.usefixtures("knobs")


def test_one_that_comes_back_has_counted_what_it_waited_for(
    job: Start, cotenant: Run, tenants_now: TenantsNow, native: Path, tmp_path: Path
) -> None:
    """There is room for both: nobody leaves for it."""
    slow = tmp_path / "slow.gpu"
    device = (native / "devices" / "small.gpu").read_text()
    slow.write_text(device.replace("bus_gbps = 10", "bus_gbps = 0.1"))
    settings = {"COTENANT_SOFTGPU": str(slow)}
    one, other = (job("opportunistic", **settings) for _ in range(2))
    for each in (one, other):
        tell(each, f"check(driver.cuMemAlloc({28 * MiB})); say(1)", "1")
    for command in ("pause", "resume"):
        assert one.process
        done = cotenant(command, str(one.process.pid), env=one.env)
        assert done.returncode == 0, done.stderr
    assert [of(each, tenants_now()).evictions for each in (one, other)] == [1, 0]


def test_one_that_has_to_leave_while_it_waits_for_more_stands_in_line_with_what_it_had(
    job: Start, knobs: Callable[..., None], tenants_now: TenantsNow
) -> None:
    knobs("--stay", "1000s")
    equal, one, above = job("opportunistic"), job("opportunistic"), job("production")
    tell(equal, f"add alloc {40 * MiB}", "added")
    tell(one, f"add alloc {16 * MiB}", "added")
    one.say(f"add alloc {30 * MiB}")  # when the equal's stay is over
    wait_for(lambda: of(one, tenants_now()).wanted_bytes == 30 * MiB)
    # Meanwhile it does not try: what it counts for that, even for a moment, would keep others out.
    slot, looks = mapped_slot(one), set[int]()
    for _ in range(5_000_000):
        assert slot.gpus[0].memory_bytes < 30 * MiB
        looks.add(slot.heartbeat_ns)
        if len(looks) > 200:
            break
    tell(above, f"add alloc {50 * MiB}", "added")
    # Beside that there is no hope for more.
    wait_for(lambda: of(one, tenants_now()).wanted_bytes == 16 * MiB)
    tell(above, "check", "whole")
    assert of(one, tenants_now()).where == Where.evicted
    assert of(one, tenants_now()).waiting_since_ns > 0
    tell(above, "free", "freed")
    tell(equal, "free", "freed")
    assert one.hear() == "added"
    tell(one, "check", "whole")


def test_one_that_finds_no_space_on_one_of_its_gpus_counts_nothing_until_there_is(
    job: Start, cotenant: Run, tenants_now: TenantsNow
) -> None:
    settings = {"COTENANT_SOFTGPU": "small,small"}
    below, above = job("opportunistic", **settings), job("production", **settings)
    tell(below, f"add alloc {40 * MiB}", "added")
    tell(below, "type(gpu)(1); check(driver.cuMemAlloc(8 << 20)); gpu.use(); say(1)", "1")

    def counted() -> list[int]:
        return [use.memory_bytes for use in of(below, tenants_now()).uses]

    before = counted()
    assert below.process
    assert cotenant("pause", str(below.process.pid), env=below.env).returncode == 0
    tell(above, f"add alloc {40 * MiB}", "added")
    segment.ask(Path(below.env["COTENANT_SEGMENT"]), below.process.pid, {"pause": 0})
    wait_for(lambda: not of(below, tenants_now()).paused)
    tell(above, "check", "whole")
    assert of(below, tenants_now()).where == Where.evicted
    tell(above, "free", "freed")
    wait_for(lambda: of(below, tenants_now()).where == Where.resident)
    assert counted() == before
    tell(below, "check", "whole")


def test_one_that_was_stopped_while_it_waits_lets_the_others_pass(
    job: Start, tenants_now: TenantsNow, knobs: Callable[..., None], cotenant: Run
) -> None:
    knobs("--stay", "1000s")
    first, stopped, behind = job("opportunistic"), job("opportunistic"), job("opportunistic")
    assert stopped.process and behind.process
    path = Path(behind.env["COTENANT_SEGMENT"])
    tell(first, f"add alloc {36 * MiB}", "added")
    tell(behind, f"add alloc {16 * MiB}", "added")
    stopped.say(f"add alloc {40 * MiB}")  # until the first one's stay is over
    wait_for(lambda: any(one.wanted_bytes == 40 * MiB for one in tenants_now()))
    assert cotenant("pause", str(behind.process.pid), env=behind.env).returncode == 0
    segment.ask(path, behind.process.pid, {"pause": 0})
    deadline = time.monotonic() + 0.3
    while time.monotonic() < deadline:
        assert of(behind, tenants_now()).where == Where.evicted  # stands in line
    stopped.process.send_signal(signal.SIGSTOP)
    set_stale_ms(path, 60)
    wait_for(lambda: of(behind, tenants_now()).where == Where.resident)
    set_stale_ms(path, 60_000)
    stopped.process.send_signal(signal.SIGCONT)
    tell(first, "free", "freed")
    assert stopped.hear() == "added"
    tell(behind, "check", "whole")


SLOW_DRIVER = """
#include <stdio.h>
#include <unistd.h>
// Says when it is first called.
static int slow(const char* name, int* said, long a, long b, long c, long d) {
    if (!(*said)++) dprintf(1, "%s\\n", name);
    usleep(500000);
    return ((int (*)(long, long, long, long))dlsym(RTLD_NEXT, name))(a, b, c, d);
}
static int releasing, giving_access;
int cuMemRelease(long a) { return slow("cuMemRelease", &releasing, a, 0, 0, 0); }
int cuMemSetAccess(long a, long b, long c, long d) { return slow("cuMemSetAccess", &giving_access, a, b, c, d); }
"""


@pytest.mark.parametrize("call", ["cuMemSetAccess", "cuMemRelease"])
def test_who_waits_is_not_refused_because_a_call_of_anothers_takes_long(
    job: Start, driver_with: Callable[[str], Path], native: Path, call: str
) -> None:
    driver = driver_with(SLOW_DRIVER)
    (driver.parent / "softgpud").symlink_to(
        native / "softgpu" / "softgpud"
    )  # `run` takes it for the software GPU
    slow, other = job("opportunistic", COTENANT_DRIVER=str(driver)), job("opportunistic")
    # Its bytes are counted before the driver is asked for them, and until it has freed them.
    tell(slow, f"add alloc {36 * MiB}", "cuMemSetAccess")
    if call == "cuMemRelease":
        assert slow.hear() == "added"
        tell(slow, "free", call)
    tell(other, f"add alloc {40 * MiB}", "added")


def test_production_that_was_stopped_for_long_while_it_waits_is_served_when_it_goes_on(
    job: Start, tenants_now: TenantsNow
) -> None:
    above, below = job("production"), job("opportunistic")
    assert above.process and below.process
    tell(below, f"add alloc {44 * MiB}", "added")
    below.process.send_signal(signal.SIGSTOP)  # so that it makes no room yet
    above.say(f"add alloc {38 * MiB}")
    wait_for(lambda: any(one.wanted_bytes == 38 * MiB for one in tenants_now()))
    above.process.send_signal(signal.SIGSTOP)
    set_stale_ms(Path(above.env["COTENANT_SEGMENT"]), 60)
    stopped = time.monotonic()
    below.process.send_signal(signal.SIGCONT)
    # For longer than it would have waited for one that does not answer.
    wait_for(lambda: time.monotonic() - stopped > 10.5)
    above.process.send_signal(signal.SIGCONT)
    assert above.hear() == "added"
