"""The published rules that are asked at each launch, orion and reef, as live tenants follow them."""

from __future__ import annotations

import mmap
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from cotenant.policies.interface import Rule
from cotenant.profile import store, tables_for_tenants
from cotenant.profile.columns import Columns, KernelClass
from cotenant.profile.kernel import Kernel
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import Run
    from tests.interposer.conftest import Tenant

    Start = Callable[..., Tenant]
    SetRule = Callable[..., None]
    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

SMS = 8  # of the GPU
FILLING = 100_000  # blocks of one thread, of which an SM holds many

EXPLAINED = {
    "orion": "may hold all SMs, if they want another resource (no profile tells which one its kernels want: any does)",
    "reef": "nothing can be killed; beside its kernels only runs what ends no later",
}
LAUNCH = """
import ctypes, os, time
from soft import Gpu, check, driver
gpu = Gpu(); spin = gpu.kernel('spin'); stream = gpu.stream()
length = ctypes.c_uint64(); parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length))
def launch(us, blocks):
    length.value = us
    check(driver.cuLaunchKernel(spin, blocks, 1, 1, 1, 1, 1, 0, stream, ctypes.addressof(parameters), 0))
"""
# Runs kernels of 50 ms, of as many blocks as it is told; a few, so that they are timed, and then half a minute of them.
BUSY = f"""{LAUNCH}
blocks = int(input())
for _ in range(4):
    launch(50_000, blocks); check(driver.cuStreamSynchronize(stream))
for _ in range(600): launch(50_000, blocks)
print('busy', flush=True); input()
os._exit(0)
"""
# Launches kernels as it is told ("MICROSECONDS BLOCKS TIMES"), one after the other without a pause. It says when the
# last launch has returned, and how many kernels had ended by then.
LAUNCHER = f"""{LAUNCH}
print('ready', flush=True)
while True:
    us, blocks, times = map(int, input().split())
    events = [check(driver.cuEventCreate(0)) for _ in range(times)]
    for event in events:
        launch(us, blocks)
        last = time.monotonic_ns()
        ended = sum(driver.cuEventQuery(one)[0] == 0 for one in events[:-1])
        check(driver.cuEventRecord(event, stream))
    print(last, ended, flush=True)
    check(driver.cuStreamSynchronize(stream))
"""
HOLDS_MEMORY = """
check(driver.cuMemAlloc(8 << 20)); launch(1000, 1); check(driver.cuStreamSynchronize(stream)); print('ready'"""


@pytest.fixture
def set_rule(softgpu_env: dict[str, str]) -> SetRule:
    def set_in_header(rule: Rule, *parameters: float) -> None:
        with Path(softgpu_env["COTENANT_SEGMENT"]).open("r+b") as file:
            header = segment.Header.from_buffer(mmap.mmap(file.fileno(), segment.PLACE))
        header.parameters = (header.parameters._type_ * len(header.parameters))(
            *struct.unpack(f"={len(parameters)}I", struct.pack(f"={len(parameters)}f", *parameters))
        )
        header.knobs.rule = rule

    return set_in_header


def started(one: Tenant) -> Tenant:
    assert one.hear() == "ready"
    return one


def launched(one: Tenant) -> tuple[int, int]:
    """When its last launch returned, and how many of its kernels had ended."""
    at, ended = map(int, one.hear().split())
    return at, ended


def nothing_escaped(tenants_now: TenantsNow) -> bool:
    """No launch has gone because it had waited for too long."""
    return all(use.figures["escaped"] == 0 for one in tenants_now() for use in one.uses)


def busy(tenant: Start, blocks: int, **settings: str) -> Tenant:
    one = tenant("production", BUSY, **settings)
    one.say(str(blocks))
    assert one.hear() == "busy"
    return one


def end(production: Tenant) -> int:
    """Says when it was told to."""
    at = time.monotonic_ns()
    production.say("end")
    return at


def test_under_orion_no_more_than_the_threshold_is_outstanding(tenant: Start, set_rule: SetRule) -> None:
    below = started(tenant("opportunistic", LAUNCHER))
    below.say("200000 1 6")
    assert launched(below)[1] < 5  # it runs ahead
    set_rule(Rule.orion, float("inf"), 50)
    busy(tenant, 1)
    below.say("1000 1 6")
    assert launched(below)[1] == 5


def test_under_orion_a_kernel_that_fills_too_many_sms_waits_for_production_to_be_idle(
    tenant: Start, set_rule: SetRule
) -> None:
    large, small = (started(tenant("opportunistic", LAUNCHER)) for _ in range(2))
    set_rule(Rule.orion, SMS - 2, float("inf"))
    production = busy(tenant, 1)
    large.say(f"1000 {FILLING} 1")
    small.say("1000 1 1")
    launched(small)
    told = end(production)
    assert launched(large)[0] > told


def test_the_memory_of_a_job_whose_launch_waits_can_be_evicted(
    tenant: Start, set_rule: SetRule, tenants_now: TenantsNow, cotenant: Run
) -> None:
    below = started(tenant("opportunistic", LAUNCHER.replace("print('ready'", HOLDS_MEMORY, 1)))
    set_rule(Rule.orion, SMS - 2, float("inf"))
    production = busy(tenant, 1)
    below.say(f"1000 {FILLING} 1")
    assert below.process
    pid = below.process.pid
    wait_for(lambda: [one.uses[0].figures["kernels"] for one in tenants_now() if one.pid == pid] == [2])
    paused = cotenant("pause", str(pid), env=below.env)
    assert paused.returncode == 0, paused.stderr
    end(production)
    assert cotenant("resume", str(pid), env=below.env).returncode == 0
    launched(below)


# One kernel waits for a word in host memory until 20 others have run, one after the other.
ONE_HELD = f"""{LAUNCH}
word = int(check(driver.cuMemHostAlloc(64, driver.CU_MEMHOSTALLOC_DEVICEMAP))); held, other = gpu.stream(), stream
launch(1000, 1); check(driver.cuStreamSynchronize(stream)); print('ready', flush=True); input()
check(driver.cuStreamWaitValue32(held, word, 1, 0)); stream = held; launch(1000, 1); stream = other
for _ in range(20): launch(1000, 1); check(driver.cuStreamSynchronize(stream))
ctypes.c_uint32.from_address(word).value = 1; check(driver.cuStreamSynchronize(held))
"""


def test_under_orion_the_sms_of_a_kernel_that_has_ended_count_no_more(
    tenant: Start, set_rule: SetRule
) -> None:
    below = started(tenant("opportunistic", ONE_HELD))
    set_rule(Rule.orion, SMS - 2, float("inf"))
    busy(tenant, 1)
    below.say("go")
    below.finish()
    assert below.total("escaped") == 0


def test_reef_pads_with_what_ends_sooner_on_the_sms_that_production_leaves(
    tenant: Start, set_rule: SetRule, tenants_now: TenantsNow
) -> None:
    below = started(tenant("opportunistic", LAUNCHER))
    below.say("1000 1 6")
    launched(below)
    set_rule(Rule.reef, 2, 1)
    production = busy(tenant, 1)
    below.say("1000 1 1")
    launched(below)
    assert nothing_escaped(tenants_now)
    # One that was never timed may take longer than production's.
    below.say("1000 2 1")
    told = end(production)
    assert launched(below)[0] > told


def test_reef_has_nothing_run_beside_a_kernel_that_fills_the_gpu(tenant: Start, set_rule: SetRule) -> None:
    below = started(tenant("opportunistic", LAUNCHER))
    below.say("1000 1 6")
    launched(below)
    set_rule(Rule.reef, 2, 1)
    production = busy(tenant, FILLING)
    below.say("1000 1 1")
    told = end(production)
    assert launched(below)[0] > told


@pytest.fixture
def profiles(tmp_path: Path) -> dict[str, str]:
    """Of kernels with a block, two and three: bound by compute, by compute, by memory."""
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    kernels = [
        Kernel(
            "kernel",
            "spin",
            (blocks, 1, 1),
            (1, 1, 1),
            0,
            0,
            samples=9,
            mean_us=1000.0,
            columns=Columns(bound),
        )
        for blocks, bound in ((1, KernelClass.compute), (2, KernelClass.compute), (3, KernelClass.memory))
    ]
    store.add(environment, store.Model("Cotenant Software GPU", SMS, 0.0), kernels)
    return {tables_for_tenants.VARIABLE: str(tables_for_tenants.folder(environment))}


def test_under_orion_a_kernel_of_productions_own_class_waits_for_production_to_be_idle(
    tenant: Start, set_rule: SetRule, profiles: dict[str, str], tenants_now: TenantsNow
) -> None:
    """By their profiles, from the first launch on. A kernel without one may run beside any."""
    alike, other, unknown = (started(tenant("opportunistic", LAUNCHER, **profiles)) for _ in range(3))
    set_rule(Rule.orion, SMS, float("inf"))
    production = busy(tenant, 1, **profiles)
    other.say("1000 3 1")
    launched(other)
    alike.say("1000 2 1")
    unknown.say("1000 4 1")
    launched(unknown)
    assert nothing_escaped(tenants_now)
    told = end(production)
    assert launched(alike)[0] > told


def test_under_reef_a_kernel_with_a_profile_pads_at_its_first_launch(
    tenant: Start, set_rule: SetRule, profiles: dict[str, str], tenants_now: TenantsNow
) -> None:
    set_rule(Rule.reef, 2, 1)
    below = started(tenant("opportunistic", LAUNCHER, **profiles))
    production = busy(tenant, 1)
    below.say("1000 2 1")
    launched(below)
    assert nothing_escaped(tenants_now)
    # This one has none.
    below.say("1000 4 1")
    told = end(production)
    assert launched(below)[0] > told


def test_under_reef_two_operations_are_ahead_at_most(tenant: Start, set_rule: SetRule) -> None:
    set_rule(Rule.reef, 2, 1)
    below = started(tenant("opportunistic", LAUNCHER))
    below.say("5000 1 8")
    assert launched(below)[1] >= 6  # one more may have ended since


@pytest.mark.parametrize("rule", [Rule.orion, Rule.reef])
def test_without_production_everything_goes_and_nothing_escapes(
    tenant: Start, set_rule: SetRule, rule: Rule, tenants_now: TenantsNow
) -> None:
    set_rule(rule, float("inf") if rule is Rule.orion else 2, float("inf"))
    for one in [started(tenant("opportunistic", LAUNCHER)) for _ in range(2)]:
        one.say("100 1 20")
        launched(one)
    assert nothing_escaped(tenants_now)


def test_another_rule_lets_go_of_a_launch_that_waits(tenant: Start, set_rule: SetRule) -> None:
    below = started(tenant("opportunistic", LAUNCHER))
    set_rule(Rule.orion, 0, 0)
    busy(tenant, 1)
    below.say("100 1 1")
    set_rule(Rule.none)
    launched(below)


@pytest.mark.parametrize("policy", ["orion", "reef"])
def test_the_published_policies_run_live(
    policy: str, tenant: Start, softgpu_env: dict[str, str], cotenant: Run
) -> None:
    path = Path(softgpu_env["COTENANT_SEGMENT"])
    below, above = started(tenant("opportunistic", LAUNCHER)), started(tenant("production", LAUNCHER))
    daemon = subprocess.Popen(
        [sys.executable, "-m", "cotenant", "daemon", "--policy", policy], env=softgpu_env
    )
    try:
        assert below.process
        pid = str(below.process.pid)

        def is_told() -> bool:
            """The daemon looks while a tenant is at work."""
            for one in (above, below):
                one.say("1000 1 10")
            assert launched(above) and launched(below)
            if segment.read(path).rule != Rule[policy]:
                return False
            return EXPLAINED[policy] in cotenant("explain", pid, env=softgpu_env).stdout

        wait_for(is_told)
    finally:
        daemon.kill()
        daemon.wait()
