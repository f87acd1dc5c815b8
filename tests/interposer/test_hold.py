"""Cut kernels stay off the GPU in the gaps of a production burst (native/tenant/hold.h): when that is, and when not.

The software GPU has no channels, so what holds a real one is counted by a driver between the two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interposer.test_cut_or_drain import CUT_US, DRAIN_US, STEADY, told, wait_for_slice
from tests.interposer.test_host_copies import slot_of
from tests.interposer.test_sharing import in_a_while, steer
from tests.waiting import wait_for

if TYPE_CHECKING:
    from cotenant import segment
    from tests.interposer.conftest import Compile, Tenant

    Start = Callable[..., Tenant]
    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

# Those that were told to end have begun, and no others.
COUNTING = """
#define NEXT(name) ((int (*)()) dlsym(RTLD_NEXT, name))
static int module, function; static volatile unsigned *words, launched; static int waits, held_waits;
int cuModuleLoadData(void **out, const char *image) {
    /* What is for a GPU of NVIDIA's. */
    if (image[0] != 0x7f || image[18] != (char)190) return NEXT("cuModuleLoadData")(out, image);
    *out = &module; return 0;
}
int cuModuleGetFunction(void **out, void *from, const char *name) {
    if (from != (void *)&module) return NEXT("cuModuleGetFunction")(out, from, name);
    *out = &function; return 0;
}
int cuLaunchKernel(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned shared,
                   void *stream, void **parameters, void **extra) {
    if (f != (void *)&function)
        return ((int (*)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                         void **)) dlsym(RTLD_NEXT, "cuLaunchKernel"))(f, a, b, c, d, e, g, shared, stream, parameters,
                                                                       extra);
    words = *(volatile unsigned **)parameters[0];
    launched = *(unsigned *)parameters[1];
    words[0] = words[32];
    return 0;
}
static void wait_for_all(void) { ++waits; held_waits += words && words[32] != launched; }
int cuCtxSynchronize(void) { wait_for_all(); return NEXT("cuCtxSynchronize")(); }
int cuMemFree_v2(unsigned long long at) {
    wait_for_all();
    return ((int (*)(unsigned long long)) dlsym(RTLD_NEXT, "cuMemFree_v2"))(at);
}
unsigned holds(void) { return launched; }
unsigned is_held(void) {
    if (words) words[0] = words[32];
    return words && words[32] != launched;
}
unsigned waited(void) { return waits; }
unsigned waited_held(void) { return held_waits; }
"""

# Bursts with gaps of a few microseconds, as requests that wait in a line make them.
SERVING = """
import ctypes, os, sys, time
from soft import Gpu, check, driver
gpu = Gpu(); stream = ctypes.c_void_p(int(gpu.stream())); spin = ctypes.c_void_p(int(gpu.kernel('spin')))
# The bindings would find the software GPU's own.
interposer, counting = ctypes.CDLL('libcuda.so.1'), ctypes.CDLL(os.environ['COTENANT_DRIVER'])
length = ctypes.c_uint64(200); parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length))
def launch():
    assert interposer.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, None) == 0
def request():
    launch(); assert interposer.cuStreamSynchronize(stream) == 0
def until(is_held, act=lambda: None):
    deadline = time.monotonic() + 60
    while counting.is_held() != is_held:
        act(); assert time.monotonic() < deadline
request()
print('here', flush=True)
for line in sys.stdin:
    what = line.strip()
    if what == 'until held':
        until(1, request)
    elif what == 'until released':
        until(0)
    elif what == 'long kernel':
        length.value = 3_000_000; launch(); length.value = 200
        until(0); assert interposer.cuStreamQuery(stream) == 600, 'it has ended'
    elif what == 'wait for all':
        request(); assert interposer.cuCtxSynchronize() == 0
    elif what.startswith('all '):
        for _ in range(int(what.split()[1])):
            launch(); assert interposer.cuCtxSynchronize() == 0
            # The watcher may look once more before the next launch.
            end = time.monotonic() + 0.0003
            while time.monotonic() < end: pass
    elif what == 'free':
        memory = ctypes.c_uint64(int(check(driver.cuMemAlloc(4096)))); request()
        assert interposer.cuMemFree_v2(memory) == 0
    else:
        for _ in range(int(what)): request()
    print(counting.holds(), counting.waited(), counting.waited_held(), flush=True)
"""


@pytest.fixture
def serving(tenant: Start, driver_with: Callable[[str], Path]) -> Callable[..., Tenant]:
    path = str(driver_with(COUNTING))

    def start(**extra: str) -> Tenant:
        # Behind `cotenant run`, which names the driver.
        command = ["env", f"COTENANT_DRIVER={path}", sys.executable, "-u", "-c", SERVING]
        one = tenant("production", command, **extra)
        assert one.hear() == "here"
        return one

    return start


@pytest.fixture
def steady(tenant: Start, compiled: Compile) -> Tenant:
    return tenant("opportunistic", STEADY, LD_PRELOAD=str(compiled("kernel_module", "-shared")))


def does(one: Tenant, what: str) -> tuple[int, int, int]:
    """How many kernels have held the GPU, and how often it waited for all work: at all, and for these as well."""
    one.say(what)
    holds, waits, held = map(int, one.hear().split())
    return holds, waits, held


def be_cut(below: Tenant, tenants_now: TenantsNow) -> None:
    told(below, "kernels 2000")
    wait_for_slice(tenants_now, below, CUT_US)


@pytest.fixture
def holding(serving: Callable[..., Tenant], steady: Tenant, tenants_now: TenantsNow) -> Tenant:
    one = serving()
    be_cut(steady, tenants_now)
    does(one, "until held")
    return one


def test_a_burst_beside_cut_kernels_holds_the_gpu_until_it_ends(holding: Tenant) -> None:
    first, *_ = does(holding, "until released")  # by nothing but its silence
    again, *_ = does(holding, "until held")
    assert again > first >= 1


def test_what_nothing_moves_in_is_not_held(holding: Tenant) -> None:
    """Its blocks may wait for one that finds no place beside what holds the GPU."""
    does(holding, "long kernel")


@pytest.mark.parametrize("call", ["wait for all", "free"])
def test_nobody_waits_for_what_holds_the_gpu(holding: Tenant, call: str) -> None:
    for number in range(1, 20):
        does(holding, "until held")
        _, waits, held = does(holding, call)
        assert waits >= number and held == 0


def test_beside_kernels_that_are_drained_nothing_holds_the_gpu(
    serving: Callable[..., Tenant], tenant: Start, compiled: Compile, tenants_now: TenantsNow
) -> None:
    production = serving()
    kernel_module = str(compiled("kernel_module", "-shared"))
    # However long its kernels take on a busy machine.
    below = tenant("opportunistic", STEADY, LD_PRELOAD=kernel_module, COTENANT_CUT_COST="1000000")
    # It has that slice at first, too, and is cut until something is known of its kernels.
    told(below, "block 1")
    wait_for_slice(tenants_now, below, CUT_US)
    told(below, "kernels 2000")
    wait_for_slice(tenants_now, below, DRAIN_US)
    assert does(production, "300")[0] == 0


def test_beside_a_tenant_that_stands_at_its_gate_nothing_holds_the_gpu(
    holding: Tenant, steady: Tenant
) -> None:
    """None of its kernels was cut: what holds the GPU would be in production's way and in nobody else's."""
    steer(steady, "shut_until_ns", in_a_while())
    wait_for(lambda: not slot_of(steady).gpus[0].on)
    before, *_ = does(holding, "until released")
    assert does(holding, "300")[0] == before
    steer(steady, "shut_until_ns", 1)
    does(holding, "until held")


def test_another_production_job_does_not_wait_for_what_holds_the_gpu(
    holding: Tenant, tenant: Start, compiled: Compile, tenants_now: TenantsNow
) -> None:
    other = tenant("production", STEADY, LD_PRELOAD=str(compiled("kernel_module", "-shared")))
    told(other, "kernels 600000000")
    assert other.process
    pid = other.process.pid
    wait_for(lambda: any(use.busy for t in tenants_now() if t.pid == pid for use in t.uses))
    before, *_ = does(holding, "10")
    assert does(holding, "300")[0] == before


def test_a_job_that_waits_for_its_whole_context_holds_nothing(
    serving: Callable[..., Tenant], steady: Tenant, tenants_now: TenantsNow
) -> None:
    """It would launch for nothing: such a wait has to end what holds the GPU."""
    production = serving()
    be_cut(steady, tenants_now)
    assert does(production, "all 300")[0] == 0
    does(production, "until held")


def test_it_can_be_turned_off(
    serving: Callable[..., Tenant], steady: Tenant, tenants_now: TenantsNow
) -> None:
    production = serving(COTENANT_HOLD="0")
    be_cut(steady, tenants_now)
    assert does(production, "300")[0] == 0
