"""More memory than the GPU has: who matters less makes room, and nothing of it is lost."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from cotenant.segment import Refusal, Where
from tests.interposer.conftest import MOVING_JOB, OUT_OF_MEMORY, MiB, of, tell
from tests.interposer.namespaces import skip_unless_allowed
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import Run
    from tests.interposer.conftest import Tenant

    Start = Callable[..., Tenant]
    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

pytestmark = pytest.mark.usefixtures("knobs")

PAGE = 2 * MiB


@pytest.mark.parametrize("way", ["alloc", "ordered", "mapped"])
def test_production_gets_what_an_opportunistic_job_has(job: Start, tenants_now: TenantsNow, way: str) -> None:
    below, above = job("opportunistic"), job("production")
    tell(below, f"add {way} {44 * MiB}", "added")
    tell(above, f"add alloc {38 * MiB}", "added")
    assert of(below, tenants_now()).where == Where.evicted
    tell(above, "check", "whole")
    below.say("check")  # waits for its memory
    tell(above, "free", "freed")
    assert below.hear() == "whole"
    assert of(below, tenants_now()).evictions == 1


def test_production_gets_it_where_only_the_driver_knows_that_none_is_left(
    job: Start, tenants_now: TenantsNow, tmp_path: Path
) -> None:
    below, above = (job(name, COTENANT_CAPACITY="") for name in ("opportunistic", "production"))
    # What nobody counts: 64 MiB are left.
    other = job("standard", COTENANT_CAPACITY="", COTENANT_SEGMENT=str(tmp_path / "apart"))
    tell(other, "check(driver.cuMemAlloc(960 << 20)); say(1)", "1")
    tell(below, f"add alloc {44 * MiB}", "added")
    tell(above, f"add alloc {38 * MiB}", "added")
    # Now and then it tries to come back: the driver's word is all that says that there is no room.
    wait_for(lambda: of(below, tenants_now()).where == Where.evicted)
    tell(above, f"add alloc {38 * MiB}", OUT_OF_MEMORY)
    tell(above, "free", "freed")
    tell(below, "check", "whole")


def test_whatever_way_production_asks(job: Start) -> None:
    below, above = job("opportunistic"), job("production")
    for way in ("ordered", "mapped"):
        tell(below, f"add alloc {32 * MiB}", "added")
        tell(above, f"add {way} {44 * MiB}", "added")
        above.say(
            "check(driver.cuMemFree(memory.pieces.pop()[0])) if "
            + f"{way == 'ordered'} else None; say('done')"
        )
        assert above.hear() == "done"
        if way == "ordered":
            tell(
                above,
                "check(driver.cuMemPoolTrimTo(check(driver.cuDeviceGetDefaultMemPool(0)), 0)); say(1)",
                "1",
            )
            tell(below, "check", "whole")
            tell(below, "free", "freed")


def test_as_few_leave_as_are_needed_and_the_least_valuable_first(
    job: Start, tenants_now: TenantsNow, knobs: Callable[..., None]
) -> None:
    knobs("--stay", "600s")
    light, heavy, above = job("opportunistic", COTENANT_WEIGHT="0.5"), job("opportunistic"), job("standard")
    tell(heavy, f"add alloc {26 * MiB}", "added")
    tell(light, f"add alloc {26 * MiB}", "added")
    tell(above, f"add alloc {32 * MiB}", "added")
    seen = tenants_now()
    assert (of(light, seen).where, of(heavy, seen).where) == (Where.evicted, Where.resident)
    tell(heavy, "check", "whole")
    tell(above, f"add alloc {26 * MiB}", "added")
    assert of(heavy, tenants_now()).where == Where.evicted
    for _ in range(2):
        tell(above, "free", "freed")
    for one in (light, heavy):
        tell(one, "check", "whole")


def test_with_nobody_to_make_room_it_is_the_drivers_error(job: Start) -> None:
    pinned, above = job("opportunistic", COTENANT_OVERSUBSCRIBE="0"), job("production")
    tell(pinned, f"add alloc {44 * MiB}", "added")
    tell(above, f"add alloc {38 * MiB}", OUT_OF_MEMORY)
    tell(above, f"add alloc {20 * MiB}", "added")
    # Equals in the class that matters most do not displace each other, nor does a lower class.
    other, below = job("production"), job("opportunistic")
    tell(other, f"add alloc {6 * MiB}", OUT_OF_MEMORY)
    tell(below, f"add alloc {6 * MiB}", OUT_OF_MEMORY)
    tell(pinned, "check", "whole")


def test_without_room_on_the_host_nobody_leaves(
    job: Start, knobs: Callable[..., None], tenants_now: TenantsNow, cotenant: Run
) -> None:
    knobs("--host-memory", "32M")
    below, above = job("opportunistic"), job("production")
    tell(below, f"add alloc {44 * MiB}", "added")
    tell(above, f"add alloc {38 * MiB}", OUT_OF_MEMORY)
    about = of(below, tenants_now())
    assert (about.where, about.host_bytes) == (Where.resident, 0)
    assert about.host_pinned_bytes <= 32 * MiB
    words = cotenant("explain", str(about.pid), env=below.env).stdout
    assert "the host memory budget is used up" in words
    tell(below, "check", "whole")
    knobs("--host-memory", "256M")
    wait_for(lambda: not tenants_now()[0].refusal or say_and_hear(above, f"add alloc {38 * MiB}") == "added")
    tell(below, "say(1)", "1")


IN_MOUNTS_OF_ITS_OWN = ["unshare", "--user", "--map-root-user", "--mount"]


def test_where_the_machine_has_too_little_memory_left_nobody_leaves(
    job: Start, tenant: Start, tenants_now: TenantsNow, tmp_path: Path
) -> None:
    """The kernel would end a process for what an eviction takes."""
    skip_unless_allowed(IN_MOUNTS_OF_ITS_OWN, "user and mount")
    machine = tmp_path / "meminfo"
    machine.write_text("MemTotal: 24682416 kB\nMemAvailable: 65536 kB\n")
    pretend = ["sh", "-c", 'mount --bind "$0" /proc/meminfo && exec "$@"', str(machine)]
    command = [*IN_MOUNTS_OF_ITS_OWN, *pretend, *MOVING_JOB]
    below, above = tenant("opportunistic", command, COTENANT_CAPACITY="64M"), job("production")
    assert below.hear() == "ready"
    tell(below, f"add alloc {44 * MiB}", "added")
    tell(above, f"add alloc {38 * MiB}", OUT_OF_MEMORY)
    about = of(below, tenants_now())
    assert (about.where, about.host_bytes, about.refusal) == (Where.resident, 0, Refusal.host_memory)
    tell(below, "check", "whole")
    machine.write_text("MemTotal: 24682416 kB\nMemAvailable: 24682416 kB\n")
    wait_for(lambda: say_and_hear(above, f"add alloc {38 * MiB}") == "added")
    assert of(below, tenants_now()).where == Where.evicted


def say_and_hear(one: Tenant, line: str) -> str:
    one.say(line)
    return one.hear()


def test_jobs_that_do_not_fit_together_take_turns(job: Start, tenants_now: TenantsNow) -> None:
    """Three of 36 MiB each on 64 MiB: each allocates, works and checks, and is evicted again and again."""
    work = (
        "for round in range(3): memory.add('alloc', 2 << 20); assert memory.is_whole(); memory.free_last()\n"
        "say('done')\n"
    )
    jobs = [job("opportunistic") for _ in range(3)]
    for one in jobs:
        one.say(f"add alloc {36 * MiB}")
    line = "exec(" + repr(work) + ")"
    for one in jobs:
        one.say(line)
    for one in jobs:
        assert one.hear() == "added"
    for one in jobs:
        assert one.hear() == "done"
        assert sum(use.memory_bytes for t in tenants_now() for use in t.uses) <= 64 * MiB
    for _ in range(2):
        for one in jobs:
            one.say("check")
        assert [one.hear() for one in jobs] == ["whole"] * 3
    assert sum(t.evictions for t in tenants_now()) >= 3


def test_production_grows_while_others_come_and_go(job: Start) -> None:
    """Also in the moment when one has just claimed the place of the other."""
    jobs, above = [job("opportunistic") for _ in range(2)], job("production")
    for one in jobs:
        one.say(f"add alloc {40 * MiB}")
    assert [one.hear() for one in jobs] == ["added"] * 2
    line = "[memory.is_whole() or say('torn') for _ in range(12)]; say('done')"
    for one in jobs:
        one.say(line)
    for _ in range(5):
        for _ in range(5):
            tell(above, f"add alloc {4 * MiB}", "added")
        for _ in range(5):
            tell(above, "free", "freed")
    assert [one.hear() for one in jobs] == ["done"] * 2


@pytest.mark.parametrize("need", ["more than there is", "a part of its headroom"])
def test_one_that_is_coming_back_turns_round_for_production(
    job: Start, knobs: Callable[..., None], tenants_now: TenantsNow, native: Path, tmp_path: Path, need: str
) -> None:
    slow = tmp_path / "slow.gpu"
    device = (native / "devices" / "small.gpu").read_text()
    slow.write_text(device.replace("bus_gbps = 10", "bus_gbps = 0.2"))  # it takes over a second each way
    settings = {"COTENANT_CAPACITY": "400M", "COTENANT_SOFTGPU": str(slow)}
    knobs("--headroom", "60M")
    below, above = job("opportunistic", **settings), job("production", **settings)
    tell(below, "memory.big = int(check(driver.cuMemAlloc(300 << 20))); say(1)", "1")
    tell(below, "check(driver.cuMemsetD8(memory.big, 7, 300 << 20)); gpu.synchronize(); say(1)", "1")
    take = "memory.more = check(driver.cuMemAlloc({} << 20)); say(1)"
    tell(above, take.format(200), "1")
    tell(above, "check(driver.cuMemFree(memory.more)); say(1)", "1")
    wait_for(lambda: of(below, tenants_now()).where == Where.restoring)
    tell(above, take.format(200 if need == "more than there is" else 80), "1")
    wait_for(lambda: of(below, tenants_now()).where == Where.evicted)
    assert of(below, tenants_now()).evictions == 1
    tell(above, "check(driver.cuMemFree(memory.more)); say(1)", "1")
    look = "there = bytearray(4); check(driver.cuMemcpyDtoH(there, memory.big + {}, 4)); say(there.hex())"
    for at in (0, 150 * MiB + 5, 300 * MiB - 4):
        tell(below, look.format(at), "07070707")


def test_production_that_breathes_does_not_keep_a_job_away(
    job: Start, knobs: Callable[..., None], tenants_now: TenantsNow
) -> None:
    """It grows into its headroom and shrinks again, faster than the job can come back."""
    knobs("--headroom", "32M")
    size = {"COTENANT_CAPACITY": "512M"}
    below, above = job("opportunistic", **size), job("production", **size)
    tell(below, "check(driver.cuMemAlloc(400 << 20)); say(1)", "1")
    tell(above, f"add alloc {64 * MiB}", "added")

    grow = "memory.more = check(driver.cuMemAlloc(24 << 20)); say(1)"
    shrink = "check(driver.cuMemFree(memory.more)); say(1)"
    tell(above, grow, "1")
    wait_for(lambda: of(below, tenants_now()).where == Where.evicted)
    has_grown = True

    def has_come_back() -> bool:
        nonlocal has_grown
        where = of(below, tenants_now()).where
        if (where == Where.restoring) != has_grown:
            tell(above, shrink if has_grown else grow, "1")
            has_grown = not has_grown
        return where == Where.resident

    wait_for(has_come_back)


def test_a_job_that_the_driver_takes_over_its_limit_runs_on(
    job: Start, cotenant: Run, tenants_now: TenantsNow
) -> None:
    """Evicted, it could free nothing, and would never be restored."""
    one = job("opportunistic", COTENANT_MEMORY="60M", COTENANT_CAPACITY="")
    # Of so many pools the last is not counted by itself, but found by NVML, as the driver's own memory is.
    pool = "check(driver.cuMemPoolCreate(memory_ways.pool_properties()))"
    tell(one, f"import memory_ways; memory.pools = [{pool} for _ in range(260)]; say(1)", "1")
    take = "check(driver.cuMemAllocFromPoolAsync(1 << 20, memory.pools[-1], 0))"
    tell(one, f"{take}; memory.add('alloc', 40 << 20); say(1)", "1")
    wait_for(lambda: of(one, tenants_now()).uses[0].memory_bytes > 60 * MiB)
    for command in ("pause", "resume"):
        assert one.process
        done = cotenant(command, str(one.process.pid), env=one.env)
        assert done.returncode == 0, done.stderr
    tell(one, "check", "whole")
    assert of(one, tenants_now()).evictions == 1


def test_what_one_process_has_evicted_counts_for_the_limit_of_the_others_of_its_run(
    job: Start, knobs: Callable[..., None], tenants_now: TenantsNow
) -> None:
    """It would not be restored as long as they have its part of the limit."""
    knobs("--stay", "600s")
    size = {"COTENANT_CAPACITY": "200M"}
    above, one = job("production", **size), job("opportunistic", COTENANT_MEMORY="70M", **size)
    answer_of_child = "say(memory.child.stdout.readline().strip())"
    begin = f"memory.child = subprocess.Popen({MOVING_JOB}, stdin=-1, stdout=-1, text=True)"
    tell(one, f"import subprocess; {begin}; {answer_of_child}", "ready")

    def tell_child(line: str, answer: str) -> None:
        to_child = f"memory.child.stdin.write({line!r} + chr(10)); memory.child.stdin.flush()"
        tell(one, f"{to_child}; {answer_of_child}", answer)

    tell(one, f"add alloc {40 * MiB}", "added")
    tell_child(f"add alloc {20 * MiB}", "added")
    tell(above, f"add alloc {164 * MiB}", "added")
    assert of(one, tenants_now()).where == Where.evicted
    tell_child(f"add alloc {14 * MiB}", OUT_OF_MEMORY)
    tell_child(f"add alloc {10 * MiB}", "added")
    tell(above, "free", "freed")
    tell(one, "check", "whole")
    tell_child("check", "whole")
    tell(one, "memory.child.stdin.close(); say(memory.child.wait())", "0")


def test_nobody_leaves_for_one_that_its_own_limit_keeps_away(
    job: Start, cotenant: Run, tenants_now: TenantsNow
) -> None:
    limited, other = job("opportunistic"), job("opportunistic")
    tell(limited, f"add alloc {40 * MiB}", "added")
    assert limited.process
    done = cotenant("ctl", str(limited.process.pid), "--memory", "4M", env=limited.env)
    assert done.returncode == 0, done.stderr
    wait_for(lambda: of(limited, tenants_now()).where == Where.evicted)
    tell(other, f"add alloc {40 * MiB}", "added")
    began = time.monotonic()
    wait_for(lambda: time.monotonic() - began > 0.5)  # ten stays of 50 ms
    assert of(other, tenants_now()).evictions == 0
    tell(other, "check", "whole")


# With no work on the first of them.
ON_BOTH = "check(driver.cuMemAlloc(40 << 20)); type(gpu)(1); memory.add('alloc', 40 << 20); say(1)"


def test_one_that_was_evicted_from_two_gpus_is_waited_for_on_both(
    job: Start, cotenant: Run, tenants_now: TenantsNow
) -> None:
    settings = {"COTENANT_SOFTGPU": "small,small"}
    both, first, second = (job("opportunistic", **settings) for _ in range(3))
    tell(both, ON_BOTH, "1")
    assert both.process
    assert cotenant("pause", str(both.process.pid), env=both.env).returncode == 0
    tell(first, f"add alloc {40 * MiB}", "added")
    tell(second, "type(gpu)(1); memory.add('alloc', 40 << 20); say(1)", "1")
    segment.ask(Path(both.env["COTENANT_SEGMENT"]), both.process.pid, {"pause": 0})
    # Each of the others makes space on its GPU, and has its own again later.
    for one in (both, first, second, both):
        tell(one, "check", "whole")


def test_one_that_cannot_be_served_on_one_of_its_gpus_lets_others_pass_on_the_other(
    job: Start, cotenant: Run, tenants_now: TenantsNow
) -> None:
    settings = {"COTENANT_SOFTGPU": "small,small"}
    both, equal, late = (job("opportunistic", **settings) for _ in range(3))
    above = job("production", **settings)
    tell(both, ON_BOTH, "1")
    assert both.process
    assert cotenant("pause", str(both.process.pid), env=both.env).returncode == 0
    tell(above, "type(gpu)(1); memory.add('alloc', 40 << 20); say(1)", "1")
    tell(equal, f"add alloc {40 * MiB}", "added")
    segment.ask(Path(both.env["COTENANT_SEGMENT"]), both.process.pid, {"pause": 0})
    wait_for(lambda: of(both, tenants_now()).wanted_bytes == 80 * MiB)
    for one in (late, equal, late):
        tell(one, "memory.pieces or memory.add('alloc', 40 << 20); say(memory.is_whole())", "True")
    assert of(both, tenants_now()).where == Where.evicted
    tell(above, "free", "freed")
    tell(both, "check", "whole")


CONTEXTS = """
from moving import *
Gpu()
jobs = [(check(driver.cuCtxCreate(None, 0, 0)), Memory(seed)) for seed in range(20)]
for context, memory in jobs:
    check(driver.cuCtxSetCurrent(context))
    memory.add('alloc', 9 << 20)
print('ready', flush=True)
input()
print(all(not check(driver.cuCtxSetCurrent(context)) and memory.is_whole() for context, memory in jobs), flush=True)
"""


def test_memory_of_many_contexts_moves(job: Start, tenant: Start, tenants_now: TenantsNow) -> None:
    size = {"COTENANT_CAPACITY": "256M"}
    below = tenant("opportunistic", CONTEXTS, **size)
    assert below.hear() == "ready"
    above = job("production", **size)
    tell(above, f"add alloc {200 * MiB}", "added")
    assert of(below, tenants_now()).where == Where.evicted
    below.say("")
    tell(above, "free", "freed")
    assert below.hear() == "True"


def test_headroom_is_kept_for_the_classes_above(
    job: Start, knobs: Callable[..., None], tenants_now: TenantsNow
) -> None:
    knobs("--headroom", "12M")
    below, above = job("opportunistic"), job("production")
    # With nobody above on the GPU, all of it can be had.
    tell(below, f"add alloc {56 * MiB}", "added")
    tell(above, f"add alloc {4 * MiB}", "added")
    # What is left is less than the headroom: it is filled up without anybody waiting for it.
    wait_for(lambda: of(below, tenants_now()).where == Where.evicted)
    tell(above, "free", "freed")
    below.say("check")
    assert above.process and above.process.stdin
    above.process.stdin.close()
    above.process.stdin = None
    above.finish()
    assert below.hear() == "whole"


def test_a_job_that_would_fill_the_headroom_is_refused_and_runs_on(
    job: Start, knobs: Callable[..., None], tenants_now: TenantsNow
) -> None:
    """With it the job would be evicted, and restored only when production has left."""
    knobs("--headroom", "12M")
    below, above = (job(name, COTENANT_CAPACITY="") for name in ("opportunistic", "production"))
    tell(above, f"add alloc {4 * MiB}", "added")
    below.say("info")
    free = int(below.hear().split()[0]) // PAGE * PAGE
    take = "say(driver.cuMemAlloc({})[0].name)"
    tell(below, take.format(free - 10 * MiB), "CUDA_ERROR_OUT_OF_MEMORY")
    tell(below, take.format(free - 12 * MiB), "CUDA_SUCCESS")
    tell(below, take.format(PAGE), "CUDA_ERROR_OUT_OF_MEMORY")
    assert of(below, tenants_now()).evictions == 0
    # With nobody above on the GPU, all of it can be had.
    assert above.process and above.process.stdin
    above.process.stdin.close()
    above.process.stdin = None
    above.finish()
    tell(below, take.format(PAGE), "CUDA_SUCCESS")


def test_a_smaller_capacity_holds_for_everybody(job: Start, tenants_now: TenantsNow) -> None:
    both = [job(name, COTENANT_CAPACITY="20M") for name in ("opportunistic", "production")]
    tell(both[0], f"add alloc {12 * MiB}", "added")
    tell(both[0], f"add alloc {26 * MiB}", OUT_OF_MEMORY)
    tell(both[1], f"add alloc {16 * MiB}", "added")
    assert of(both[0], tenants_now()).where == Where.evicted
    tell(both[1], f"add alloc {6 * MiB}", OUT_OF_MEMORY)
    tell(both[1], "free", "freed")
    tell(both[0], "check", "whole")


@pytest.mark.parametrize("tenant_class", ["standard", "opportunistic"])
def test_at_the_capacity_a_job_has_what_its_own_pools_hold_unused(job: Start, tenant_class: str) -> None:
    one = job(tenant_class, COTENANT_OVERSUBSCRIBE="0")
    fill = (
        "import memory_ways; memory_ways.kept_in_pool(40 << 20); say(memory_ways.counted(settle=False) >> 20)"
    )
    one.say(fill)
    assert int(one.hear()) >= 40
    tell(one, f"add alloc {44 * MiB}", "added")


def test_a_job_that_has_become_more_important_comes_back(
    job: Start, cotenant: Run, tenants_now: TenantsNow
) -> None:
    one, other = job("opportunistic"), job("opportunistic")
    tell(one, f"add alloc {44 * MiB}", "added")
    tell(other, f"add alloc {44 * MiB}", "added")
    wait_for(lambda: sum(t.where == Where.evicted for t in tenants_now()) == 1)
    first = of(one, tenants_now())
    done = cotenant("ctl", str(first.pid), "--class", "production", env=one.env)
    assert done.returncode == 0, done.stderr
    wait_for(lambda: of(one, tenants_now()).where == Where.resident)
    tell(one, "check", "whole")
    assert of(other, tenants_now()).where != Where.resident


def test_a_lower_limit_sends_an_opportunistic_job_away(
    job: Start, cotenant: Run, tenants_now: TenantsNow
) -> None:
    one = job("opportunistic", COTENANT_MEMORY="32M")
    tell(one, f"add alloc {20 * MiB}", "added")
    pid = str(tenants_now()[0].pid)
    assert cotenant("ctl", pid, "--memory", "12M", env=one.env).returncode == 0
    wait_for(lambda: tenants_now()[0].where == Where.evicted)
    assert cotenant("ctl", pid, "--memory", "26M", env=one.env).returncode == 0
    tell(one, "check", "whole")


def test_whoever_is_killed_on_the_way_leaves_nothing_behind(job: Start, tenants_now: TenantsNow) -> None:
    """Killed when chance chooses, many times: production always gets its memory, and all is free afterwards."""
    chance = random.Random(4711)
    above = job("production")
    for _ in range(4):
        below = job("opportunistic")
        assert below.process
        tell(below, f"add alloc {44 * MiB}", "added")
        above.say(f"add alloc {38 * MiB}")
        deadline = time.monotonic() + chance.choice((0, 0.001, 0.01, 0.05, 0.2))
        while time.monotonic() < deadline and where_of(below.process.pid, tenants_now()) == Where.resident:
            pass
        os.kill(below.process.pid, signal.SIGKILL)
        below.process.wait()
        assert above.hear() == "added"
        tell(above, "check", "whole")
        tell(above, "free", "freed")
        wait_for(lambda: len(tenants_now()) == 1)
    (left,) = tenants_now()
    assert (left.uses[0].memory_bytes, left.host_bytes) == (0, 0)
    tell(above, f"add alloc {60 * MiB}", "added")


def where_of(pid: int, tenants: tuple[segment.Tenant, ...]) -> Where | None:
    return next((t.where for t in tenants if t.pid == pid), None)


LOOKS = """
from moving import *
from cuda.bindings import driver
gpu = Gpu(); A = driver.CUpointer_attribute
def code(result): return int(result[0])
names = [n for n in dir(A) if n.startswith('CU_POINTER') and 'P2P' not in n]
skipped = ('BUFFER_ID', 'BLOCK_ID', 'RDMA', 'POOL_HANDLE', 'HW_DECOMPRESS')
for size in (1, 100, 512, 513, 5000, 1 << 20, (1 << 20) + 1, 2 << 20, 7 << 20):
    p = int(check(driver.cuMemAlloc(size)))
    base, length = check(driver.cuMemGetAddressRange(p + size - 1))
    print(size, p % 512, int(base) - p, length, code(driver.cuMemGetAddressRange(p + size + (64 << 20))))
    for inside in (p, p + size // 2):
        for name in names:
            if any(word in name for word in skipped): continue
            result, value = driver.cuPointerGetAttribute(getattr(A, name), inside)
            relative = int(value) - p if name.endswith(('_ADDR', 'E_POINTER')) and int(result) == 0 else value
            if name.endswith('CONTEXT') and int(result) == 0: relative = int(value) == int(gpu.context)
            print(name, int(result), relative)
    print(code(driver.cuMemFree(p + 1)) if size > 1 else 1, code(driver.cuMemFree(p)), code(driver.cuMemFree(p)))
print(code(driver.cuMemAlloc(0)), code(driver.cuMemAlloc(1 << 50)))
print(code(driver.cuMemFree(0)), code(driver.cuMemFree(12345)))
p = int(check(driver.cuMemAlloc(3 << 20)))
print(code(driver.cuMemFreeAsync(p, 0)), code(driver.cuMemFreeAsync(p, 0)))
p = int(check(driver.cuMemAllocAsync(3 << 20, 0))); print(code(driver.cuMemFree(p)), code(driver.cuMemFree(p)))
p = int(check(driver.cuMemAlloc(4 << 20)))
print(code(driver.cuMemAllocAsync(0, 0)), code(driver.cuMemRetainAllocationHandle(p)))
other = check(driver.cuCtxCreate(None, 0, 0)); q = int(check(driver.cuMemAlloc(5 << 20)))
check(driver.cuCtxDestroy(other))
gpu.use(); print(code(driver.cuMemFree(q)), [x >> 20 for x in check(driver.cuMemGetInfo())])
mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL; stream = gpu.stream()
check(driver.cuStreamBeginCapture(stream, mode)); print(code(driver.cuMemAlloc(100)))
print(code(driver.cuStreamEndCapture(stream)))
check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
check(driver.cuThreadExchangeStreamCaptureMode(driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
p = int(check(driver.cuMemAlloc(6 << 20))); check(driver.cuMemsetD8Async(p, 1, 10, stream))
print(code(driver.cuMemFree(p)), code(driver.cuStreamEndCapture(stream)))
print(code(driver.cuMemFree(check(driver.cuMemAlloc(100)))), [x >> 20 for x in check(driver.cuMemGetInfo())])
check(driver.cuMemFree(0)); check(driver.cuDevicePrimaryCtxReset(gpu.device))
"""


def test_it_looks_like_the_drivers_own_memory(tenant: Start) -> None:
    own = tenant("opportunistic", LOOKS, COTENANT_OVERSUBSCRIBE="0").finish()
    moving = tenant("opportunistic", LOOKS).finish()
    assert moving.splitlines() == own.splitlines()
    assert len(own.splitlines()) > 100


def test_small_allocations_take_no_more_than_the_drivers(tenant: Start) -> None:
    program = """
import random
from soft import Gpu, check, driver
gpu = Gpu(); chance = random.Random(5); held = []
for _ in range(100_000):
    held.append(check(driver.cuMemAlloc(chance.choice((16, 700, 1024, 4000, 9000, 33_000)))))
    if chance.random() < 0.3: check(driver.cuMemFree(held.pop(chance.randrange(len(held)))))
free, total = check(driver.cuMemGetInfo()); print((total - free) >> 20)
for pointer in held: check(driver.cuMemFree(pointer))
free, total = check(driver.cuMemGetInfo()); print((total - free) >> 20)
"""
    own, own_left = map(int, tenant("opportunistic", program, COTENANT_OVERSUBSCRIBE="0").finish().split())
    moving, left = map(int, tenant("opportunistic", program).finish().split())
    assert moving <= 1.1 * own
    assert (own_left, left) == (0, 0)


def test_a_forked_child_leaves_its_parents_memory_alone(job: Start, tenants_now: TenantsNow) -> None:
    below, above = job("opportunistic"), job("production")
    tell(below, f"add alloc {44 * MiB}", "added")
    tell(below, "import os; pid = os.fork() or os._exit(0); say(os.waitpid(pid, 0)[1])", "0")
    tell(above, f"add alloc {38 * MiB}", "added")
    tell(above, "free", "freed")
    tell(below, "check", "whole")
