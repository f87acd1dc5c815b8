"""A limit of SMs that changes while a job runs: its kernels take a detour by way of a green context, and the program
sees nothing of it but the time that they take (native/tenant/detour.h)."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from tests.interposer.test_sharing import in_a_while, steer
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import Run
    from tests.interposer.conftest import Tenant

    Start = Callable[..., Tenant]
    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

# The H200 of the software GPU has 132 SMs; half of them are 64, in groups of 8.
GPU, SMS, HALF = "h200", 132, 64
BEGIN = """
import ctypes, threading
from cuda.bindings import driver
from detours import *
stream, blocking = gpu.stream(), check(driver.cuStreamCreate(0))
probe = Clocks(3)
def lasts(number=0, in_stream=stream, **how):
    probe.launch(number, in_stream, **how)
    begin, end = probe.read()[number]
    return end - begin
def configured():
    probe.launch_with(driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_IGNORE, stream)
    return -float.__sub__(*probe.read()[0])
def until_limited(*streams):
    while min(lasts(i, one) for i, one in enumerate(streams or (stream, blocking, 0))) < 1.5 * probe.us: pass
for one in (stream, blocking, 0): lasts(0, one)
say('here')
"""


@pytest.fixture
def start(tenant: Start) -> Start:
    """A program that has used the GPU, and waits to be told to go on."""

    def start(source: str, tenant_class: str = "opportunistic", **settings: str) -> Tenant:
        one = tenant(tenant_class, BEGIN + source, COTENANT_SOFTGPU=GPU, **settings)
        assert one.hear() == "here"
        return one

    return start


@pytest.fixture
def told(cotenant: Run) -> Callable[..., str]:
    """`cotenant ctl` about a tenant's SMs; what it says."""

    def told(one: Tenant, sms: str, returns: int = 0) -> str:
        assert one.process
        done = cotenant("ctl", str(one.process.pid), "--sms", sms, env=one.env)
        assert done.returncode == returns, done.stderr
        return done.stderr

    return told


@pytest.fixture
def limited(start: Start, told: Callable[..., str]) -> Callable[..., Tenant]:
    """A program that goes on with half of the SMs."""

    def limited(source: str, **settings: str) -> Tenant:
        one = start("until_limited()\n" + source, **settings)
        told(one, "50%")
        one.say("")
        return one

    return limited


def linked_with_softgpu(source: Path, native: Path, folder: Path) -> Path:
    """By its path: by the name libcuda.so.1 the loader would find the interposer."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler")
    by_path, made = folder / "by_path.so", folder / "driver.so"
    options = [compiler, "-shared", "-fPIC", "-Wl,-Bsymbolic,--no-as-needed"]
    softgpu = native / "softgpu" / "libcuda.so.1"
    subprocess.run([*options, "-x", "c", os.devnull, f"-Wl,-soname,{softgpu}", "-o", by_path], check=True)
    subprocess.run([*options, source, by_path, "-ldl", "-o", made], check=True)
    (folder / "software_gpu.so").symlink_to(softgpu.resolve())
    return made


def test_kernels_get_the_share_and_all_sms_again(
    start: Start, told: Callable[..., str], tenants_now: TenantsNow, cotenant: Run
) -> None:
    one = start("while True: say(lasts(), lasts(0, 0))")

    def last(expected: float) -> Callable[[], bool]:
        def so_long() -> bool:
            one.say("")
            return [float(word) for word in one.hear().split()] == pytest.approx([expected] * 2, rel=1e-3)

        return so_long

    wait_for(last(1000))
    said = told(one, "50%")
    assert "50% of the SMs; it takes turns" in said
    wait_for(last(1000 * SMS / HALF))
    (tenant,) = tenants_now()
    assert (tenant.sms, tenant.uses[0].sms_now) == (500, HALF)
    assert "kernels get 64 SMs of GPU 0" in cotenant("explain", str(tenant.pid), env=one.env).stdout
    told(one, "25%")
    wait_for(last(1000 * SMS / 32))
    # A controller may give it less, not more.
    for share, sms in ((125, 16), (500, 32)):
        steer(one, "sms", share)
        steer(one, "sms_until_ns", in_a_while())
        wait_for(last(1000 * SMS / sms))
    steer(one, "sms_until_ns", 1)
    assert "all SMs" in told(one, "all")
    wait_for(last(1000))
    (tenant,) = tenants_now()
    assert (tenant.sms, tenant.uses[0].sms_now, tenant.uses[0].undetoured) == (0, 0, 0)
    assert tenant.uses[0].detours > 0


def test_what_a_controller_sets_holds_until_it_expires(start: Start, tenants_now: TenantsNow) -> None:
    one = start("while True: say(lasts() > 1.5 * probe.us)")

    def is_limited() -> bool:
        one.say("")
        return one.hear() == "True"

    assert not is_limited()
    steer(one, "sms", 500)
    assert not is_limited()
    steer(one, "sms_until_ns", in_a_while())
    wait_for(is_limited)
    assert tenants_now()[0].sms == 0, "the job itself was told nothing"
    steer(one, "sms_until_ns", 1)
    wait_for(lambda: not is_limited())


def test_a_kernel_whose_blocks_need_all_sms_at_once_gets_them(
    limited: Callable[..., Tenant], tenants_now: TenantsNow
) -> None:
    """It may have a barrier of its own, which would never be passed."""
    one = limited("""
say('before')
lasts(blocks=128); lasts(blocks=264 + 1)   # two blocks to an SM: all fit on 64 SMs, or do not fit on 132
say('harmless')
assert abs(lasts(blocks=129) - probe.us) < 1 and abs(lasts(blocks=264) - probe.us) < 1
say('in between')
""")
    seen = {}
    for name in ("before", "harmless", "in between"):
        assert one.hear() == name
        use = tenants_now()[0].uses[0]
        seen[name] = (use.detours, use.undetoured)
        one.say("")
    one.finish()
    detours, undetoured = seen["before"]
    assert seen["harmless"] == (detours + 2, undetoured)
    assert seen["in between"] == (detours + 2, undetoured + 2)


MEAN_THE_SAME = (
    "IGNORE", "ACCESS_POLICY_WINDOW", "SYNCHRONIZATION_POLICY",
    "CLUSTER_SCHEDULING_POLICY_PREFERENCE", "PROGRAMMATIC_STREAM_SERIALIZATION", "PRIORITY", "MEM_SYNC_DOMAIN",
    "MEM_SYNC_DOMAIN_MAP", "PREFERRED_SHARED_MEMORY_CARVEOUT",
)  # fmt: skip
MEAN_ANOTHER = (
    "COOPERATIVE",
    "PROGRAMMATIC_EVENT",
    "LAUNCH_COMPLETION_EVENT",
    "DEVICE_UPDATABLE_KERNEL_NODE",
)


def test_a_launch_whose_attributes_mean_something_else_elsewhere_stays_in_its_stream(
    limited: Callable[..., Tenant], tenants_now: TenantsNow
) -> None:
    one = limited(f"""
say('before')
for attribute in {(*MEAN_THE_SAME, *MEAN_ANOTHER)}:
    probe.launch_with(getattr(driver.CUlaunchAttributeID, 'CU_LAUNCH_ATTRIBUTE_' + attribute), stream)
    probe.read(); say(attribute)
""")

    def seen() -> tuple[str, int, int]:
        name = one.hear()
        use = tenants_now()[0].uses[0]
        one.say("")
        return name, use.detours, use.undetoured

    _, detours, undetoured = seen()
    for count, name in enumerate(MEAN_THE_SAME, 1):
        assert seen() == (name, detours + count, undetoured)
    for count, name in enumerate(MEAN_ANOTHER, 1):
        assert seen() == (name, detours + len(MEAN_THE_SAME), undetoured + count)
    one.finish()


WAYS = """
COUNT = 4096
memory, elsewhere = (int(check(driver.cuMemAlloc(4 * COUNT))) for _ in range(2))
other = gpu.stream()
host = (ctypes.c_float * COUNT)()
there = int(check(driver.cuMemHostAlloc(4 * COUNT, 0)))
event = check(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))

def copy(into_stream, what=memory):
    check(driver.cuMemcpyDtoHAsync(there, what, 4 * COUNT, into_stream))
    check(driver.cuStreamSynchronize(into_stream))
    seen = set((ctypes.c_float * COUNT).from_address(there))
    assert len(seen) == 1, seen
    return seen.pop()

def by_copy(one): return copy(one)
def by_synchronous_copy(one):
    check(driver.cuMemcpyDtoH(host, memory, 4 * COUNT))
    return min(host) if min(host) == max(host) else None
def by_event(one):
    check(driver.cuEventRecord(event, one)); check(driver.cuStreamWaitEvent(other, event, 0))
    return copy(other)
def by_waiting_for_an_event(one):
    check(driver.cuEventRecord(event, one)); check(driver.cuEventSynchronize(event))
    return copy(other)
def by_synchronizing(one):
    check(driver.cuStreamSynchronize(one))
    return copy(other)
def by_synchronizing_the_context(one):
    check(driver.cuCtxSynchronize())
    return copy(other)
def by_query(one):
    while driver.cuStreamQuery(one)[0] == driver.CUresult.CUDA_ERROR_NOT_READY: pass
    return copy(other)
def by_memset(one):
    check(driver.cuMemsetD32Async(memory, 0, COUNT, one))
    assert copy(one) == 0
    return 7
def by_copy_on_the_device(one):
    check(driver.cuMemcpyDtoDAsync(elsewhere, memory, 4 * COUNT, one))
    return copy(one, elsewhere)
def by_graph(one):
    check(driver.cuGraphLaunch(graph, one))
    return copy(one, elsewhere)
def by_host_function(one):
    check(driver.cuMemcpyDtoHAsync(there, memory, 4 * COUNT, one))
    seen, called = [], threading.Event()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
        lambda _: (seen.append(ctypes.c_float.from_address(there).value), called.set()))
    check(driver.cuLaunchHostFunc(one, driver.CUhostFn(ctypes.cast(function, ctypes.c_void_p).value), 0))
    called.wait(); check(driver.cuStreamSynchronize(one))
    return seen[0]
def by_write_of_a_value(one):
    ctypes.c_uint32.from_address(there).value = 0
    check(driver.cuStreamWriteValue32(one, there, 1, 0))
    while not ctypes.c_uint32.from_address(there).value: pass
    return copy(other)
def by_the_legacy_stream(one): return copy(0)
def by_a_blocking_stream(one): return copy(blocking)

check(driver.cuStreamBeginCapture(other, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
check(driver.cuMemcpyDtoDAsync(elsewhere, memory, 4 * COUNT, other))
graph = check(driver.cuGraphInstantiate(check(driver.cuStreamEndCapture(other)), 0))

always = [by_copy, by_event, by_waiting_for_an_event, by_synchronizing, by_synchronizing_the_context, by_query,
          by_memset, by_copy_on_the_device, by_graph, by_host_function, by_write_of_a_value]
in_order = [by_synchronous_copy, by_the_legacy_stream, by_a_blocking_stream]
until_limited()
delay = Clocks(1, us=500)
say('begin')
for one, ways in ((stream, always), (blocking, always + in_order), (0, always + in_order)):
    for way in ways:
        check(driver.cuMemsetD32(memory, 0, COUNT)); check(driver.cuMemsetD32(elsewhere, 0, COUNT)); gpu.synchronize()
        delay.launch(0, one); filled(one, memory, 7, COUNT)
        assert way(one) == 7, (one, way)
        gpu.synchronize()
say('end', 2 * sum(map(len, (always, always, always, in_order, in_order))))
"""


def test_whatever_follows_a_kernel_in_its_stream_sees_what_it_did(
    limited: Callable[..., Tenant], tenants_now: TenantsNow
) -> None:
    one = limited(WAYS)
    assert one.hear() == "begin"
    before = tenants_now()[0].uses[0]
    one.say("")
    word, kernels = one.hear().split()
    after = tenants_now()[0].uses[0]
    assert word == "end"
    # None of them was just launched without a detour.
    assert after.detours - before.detours == int(kernels)
    assert after.undetoured == before.undetoured
    one.say("")
    one.finish()


def test_what_follows_is_in_order_in_the_second_share_too(start: Start, told: Callable[..., str]) -> None:
    """Its kernels are in another stand-in than those of the first."""
    one = start("""
def until(factor):
    while lasts() < factor * probe.us: pass
long = Clocks(1, us=20000); other = gpu.stream()
event = check(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))
until(1.5); say('half'); until(3.5)
long.launch(0, stream)
assert driver.cuStreamQuery(stream)[0] == driver.CUresult.CUDA_ERROR_NOT_READY, 'a running kernel was missed'
memory = int(check(driver.cuMemAlloc(4 * 64))); check(driver.cuMemsetD32(memory, 0, 64))
long.launch(0, stream); filled(stream, memory, 7, 64)
check(driver.cuEventRecord(event, stream)); check(driver.cuStreamWaitEvent(other, event, 0))
into = (ctypes.c_float * 64)(); check(driver.cuMemcpyDtoHAsync(into, memory, 4 * 64, other))
check(driver.cuStreamSynchronize(other)); assert set(into) == {7.0}, set(into)
""")
    told(one, "50%")
    one.say("")
    assert one.hear() == "half"
    told(one, "25%")
    one.say("")
    one.finish()


def test_kernels_of_several_threads_in_one_stream_still_run_one_by_one(
    limited: Callable[..., Tenant],
) -> None:
    one = limited("""
EACH = 60
clocks = Clocks(3 * EACH, us=50)
graphs = []
capturing = gpu.stream()
for i in range(EACH):
    check(driver.cuStreamBeginCapture(capturing, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    clocks.launch(i, capturing)
    graphs.append(check(driver.cuGraphInstantiate(check(driver.cuStreamEndCapture(capturing)), 0)))
def kernels(first):
    gpu.use()
    for i in range(EACH): clocks.launch(first + i, stream)
def launches_graphs():
    gpu.use()
    for one in graphs: check(driver.cuGraphLaunch(one, stream))
threads = [threading.Thread(target=kernels, args=(EACH,)), threading.Thread(target=kernels, args=(2 * EACH,)),
           threading.Thread(target=launches_graphs)]
for one in threads: one.start()
for one in threads: one.join()
ran = clocks.read()
assert all(end > begin for begin, end in ran)
assert one_by_one(ran), sorted(ran)
""")
    one.finish()


def test_the_legacy_stream_and_those_that_wait_for_it_stay_in_order(limited: Callable[..., Tenant]) -> None:
    one = limited("""
clocks = Clocks(60, us=50)
for i in range(60): clocks.launch(i, (0, blocking)[i % 2])
ran = clocks.read()
assert ran == sorted(ran) and one_by_one(ran), ran
assert all(end - begin > 1.5 * clocks.us for begin, end in ran), 'they had all SMs'
clocks = Clocks(2, us=20000)
clocks.launch(0, stream); clocks.launch(1, blocking)
ran = clocks.read()
assert not one_by_one(ran), 'streams that have nothing to do with each other wait for each other'
""")
    one.finish()


def test_a_stream_may_be_destroyed_while_its_kernels_run(limited: Callable[..., Tenant]) -> None:
    one = limited("""
clocks = Clocks(40, us=200)
for i in range(40):
    mine = gpu.stream()
    clocks.launch(i, mine)
    until_limited(mine) if i % 20 == 0 else None
    clocks.launch(i, mine)
    check(driver.cuStreamDestroy(mine))
assert all(end > begin for begin, end in clocks.read())
""")
    one.finish()


def test_a_primary_context_ends_when_the_program_gives_it_back(limited: Callable[..., Tenant]) -> None:
    """A green context of ours would keep it."""
    one = limited("""
gpu.synchronize()
check(driver.cuDevicePrimaryCtxRelease(gpu.device))
assert check(driver.cuDevicePrimaryCtxGetState(gpu.device))[1] == 0
import detours
detours.gpu.__init__()
detours.clock = check(driver.cuModuleGetFunction(check(driver.cuModuleLoadData(MODULE)), b'clock'))
probe.memory = int(check(driver.cuMemAlloc(64)))
until_limited(0)
""")
    one.finish()


def test_errors_are_the_programs_own(limited: Callable[..., Tenant]) -> None:
    one = limited("""
def refused(blocks, threads, shared):
    parameters = ((probe.memory, probe.us), (ctypes.c_uint64, ctypes.c_uint64))
    return driver.cuLaunchKernel(clock, blocks, 1, 1, threads, 1, 1, shared, stream, parameters, 0)[0]
invalid = driver.CUresult.CUDA_ERROR_INVALID_VALUE
assert [refused(0, 32, 0), refused(1, 4096, 0), refused(MANY, 32, 1 << 30)] == [invalid] * 3
library, config = ctypes.CDLL('libcuda.so.1'), (ctypes.c_uint64 * 8)()
config[:] = [1 << 32 | 1, 1 << 32 | 1, 1 << 32 | 1, 0, int(stream), 0, 1, 0]  # one attribute, at no address
for about in (config, None): print(library.cuLaunchKernelEx(about, ctypes.c_void_p(int(clock)), None, None))
until_limited()
""")
    assert one.finish().split() == ["1", "1"]


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A segment for a driver that is not known to be the software GPU's."""
    with tempfile.TemporaryDirectory(prefix="cotenant-test-", dir="/dev/shm") as folder:
        yield Path(folder) / "segment"


@pytest.mark.parametrize(
    ("what", "lasts"),
    [("no contexts", "lasts()"), ("no launches", "lasts()"), ("no launches", "configured()")],
)
def test_a_driver_that_refuses_costs_the_program_nothing(
    start: Start,
    told: Callable[..., str],
    native: Path,
    tmp_path: Path,
    in_memory: Path,
    what: str,
    lasts: str,
) -> None:
    library = linked_with_softgpu(Path(__file__).parent / "programs" / "green_driver.c", native, tmp_path)
    one = start(
        f"while True: say(round({lasts}))",
        COTENANT_DRIVER=os.fspath(library),
        COTENANT_TEST_GREEN=what,
        COTENANT_TEST_DRIVER=os.fspath(tmp_path / "software_gpu.so"),
        COTENANT_SEGMENT=os.fspath(in_memory),
    )
    told(one, "50%")

    def has_shown() -> bool:
        one.say("")
        assert one.hear() == "1000"
        (tenant,) = segment.read(in_memory).tenants
        return bool(tenant.sms_refused if what == "no contexts" else tenant.uses[0].undetoured)

    wait_for(has_shown)
    assert segment.read(in_memory).tenants[0].uses[0].detours == 0
    if what == "no contexts":
        assert "its driver makes no green contexts" in told(one, "25%", returns=1)


def test_production_has_all_sms(start: Start, told: Callable[..., str]) -> None:
    one = start("", "production")
    assert "a production job keeps all SMs" in told(one, "50%", returns=2)
    one.say("")
    one.finish()


def test_production_that_becomes_opportunistic_keeps_its_sms(
    start: Start, told: Callable[..., str], cotenant: Run
) -> None:
    one = start("", "production")
    assert one.process
    done = cotenant("ctl", str(one.process.pid), "--class", "opportunistic", env=one.env)
    assert done.returncode == 0, done.stderr
    assert "it was started as production" in told(one, "50%", returns=1)
    one.say("")
    one.finish()
