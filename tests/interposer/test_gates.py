"""Who runs when: a class goes only while every class above it is idle, and nobody stays shut out by the dead."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from tests.interposer.conftest import COMPANY, mapped_slot, set_stale_ms
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import Run
    from tests.interposer.conftest import Tenant

    Start = Callable[..., Tenant]
    TenantsNow = Callable[[], tuple[segment.Tenant, ...]]

# Does as it is told, a line at a time: "work N" launches N kernels and waits, "begin" keeps the GPU busy until "end".
OBEDIENT = """
import ctypes, os, sys
from soft import Gpu, check, driver
gpu = Gpu(); kernel = gpu.kernel('empty'); stream = gpu.stream()
word = check(driver.cuMemHostAlloc(64, driver.CU_MEMHOSTALLOC_DEVICEMAP))
held = ctypes.c_uint32.from_address(int(word)); address = check(driver.cuMemHostGetDevicePointer(word, 0))
gpu.launch(kernel, stream); check(driver.cuStreamSynchronize(stream))
print('ready')
for line in sys.stdin:
    order, *rest = line.split()
    if order == 'work':
        for _ in range(int(rest[0])): gpu.launch(kernel, stream)
        check(driver.cuStreamSynchronize(stream))
    elif order == 'queue':
        for _ in range(int(rest[0])): gpu.launch(kernel, stream)
    elif order == 'begin':
        held.value = 0
        gpu.launch(kernel, stream)
        check(driver.cuStreamWaitValue32(stream, address, 1, 0))
    elif order == 'end':
        held.value = 1
        check(driver.cuStreamSynchronize(stream))
    elif order == 'done?':
        print(driver.cuStreamQuery(stream)[0] == driver.CUresult.CUDA_SUCCESS); continue
    elif order == 'fork':
        child = os.fork()
        if child == 0: ctypes.CDLL(None).exit(0)
        assert os.waitpid(child, 0)[1] == 0
    elif order == 'quit':
        break
    print('did', order)
"""


def ready(one: Tenant) -> Tenant:
    assert one.hear() == "ready"
    return one


def rested(one: Tenant) -> Tenant:
    """Ready, and known to be idle. In an administrator's segment each looks after its own gate: at once when it sets to
    work, and a moment later where it has been at work already."""
    wait_until_idle(ready(one))
    return one


def wait_until_idle(one: Tenant) -> None:
    wait_for(lambda: not use(segment.read(Path(one.env["COTENANT_SEGMENT"])).tenants, one).busy)


def order(one: Tenant, text: str) -> str:
    one.say(text)
    return one.hear()


def use(tenants: tuple[segment.Tenant, ...], one: Tenant) -> segment.Use:
    assert one.process
    (found,) = [t for t in tenants if t.pid == one.process.pid]
    (only,) = found.uses
    return only


@pytest.mark.parametrize(
    ("above", "below"),
    [("production", "opportunistic"), ("production", "standard"), ("standard", "opportunistic")],
)
def test_the_lower_class_waits_while_the_higher_is_busy(
    tenant: Start, tenants_now: TenantsNow, above: str, below: str
) -> None:
    high, low = rested(tenant(above, OBEDIENT)), rested(tenant(below, OBEDIENT))
    assert order(low, "work 5") == "did work"
    wait_until_idle(low)

    assert order(high, "begin") == "did begin"
    assert order(low, "queue 5") == "did queue"
    assert use(tenants_now(), high).busy and use(tenants_now(), low).gated
    for _ in range(20):
        assert order(low, "done?") == "False"

    assert order(high, "end") == "did end"
    wait_for(lambda: not use(tenants_now(), low).gated)
    wait_for(lambda: order(low, "done?") == "True")


def test_an_equal_that_stands_still_hands_on_its_turn(tenant: Start) -> None:
    one, other = rested(tenant("opportunistic", OBEDIENT)), rested(tenant("opportunistic", OBEDIENT))
    assert order(one, "begin") == "did begin"
    assert order(other, "work 5") == "did work"
    order(one, "end")


def test_production_never_waits_for_the_lower_classes(tenant: Start) -> None:
    low, high = rested(tenant("opportunistic", OBEDIENT)), rested(tenant("production", OBEDIENT))
    assert order(low, "begin") == "did begin"
    assert order(high, "work 50") == "did work"
    order(low, "end")


def test_a_gate_stays_shut_until_the_last_of_several_is_idle(tenant: Start, tenants_now: TenantsNow) -> None:
    first, second = rested(tenant("production", OBEDIENT)), rested(tenant("production", OBEDIENT))
    low = rested(tenant("opportunistic", OBEDIENT))
    order(first, "begin")
    order(second, "begin")
    order(low, "queue 1")
    order(first, "end")
    wait_for(lambda: not use(tenants_now(), first).busy)
    assert use(tenants_now(), low).gated
    assert order(low, "done?") == "False"
    order(second, "end")
    wait_for(lambda: order(low, "done?") == "True")


@pytest.mark.parametrize(
    "stream",
    ["gpu.stream()", "driver.CUstream(1)", "driver.CUstream(2)"],
    ids=["own", "legacy", "per-thread"],
)
def test_work_in_every_kind_of_stream_keeps_a_job_busy(
    tenant: Start, tenants_now: TenantsNow, stream: str
) -> None:
    high = rested(tenant("production", OBEDIENT.replace("gpu.stream()", stream)))
    low = rested(tenant("opportunistic", OBEDIENT))
    assert order(high, "begin") == "did begin"
    assert order(low, "queue 1") == "did queue"
    # For as long as it takes to go round many times: a job that is taken for idle is found out after its grace.
    for _ in range(200):
        assert order(low, "done?") == "False"
    assert use(tenants_now(), high).busy
    assert order(high, "end") == "did end"
    wait_for(lambda: order(low, "done?") == "True")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_dead_production_job_releases_the_others(
    tenant: Start, tenants_now: TenantsNow, number: signal.Signals
) -> None:
    high, low = rested(tenant("production", OBEDIENT)), rested(tenant("opportunistic", OBEDIENT))
    order(high, "begin")
    order(low, "queue 3")
    assert high.process
    os.kill(high.process.pid, number)
    assert high.process.wait(timeout=60) == -number
    wait_for(lambda: order(low, "done?") == "True")
    assert [t.tenant_class for t in tenants_now()] == [2]
    # Its slot is cleared by whoever has work.
    path = Path(low.env["COTENANT_SEGMENT"])
    wait_for(lambda: order(low, "work 1") == "did work" and segment.read(path).lost == 0)


def test_a_stopped_production_job_releases_the_others_until_it_goes_on(
    tenant: Start, tenants_now: TenantsNow
) -> None:
    high, low = rested(tenant("production", OBEDIENT)), rested(tenant("opportunistic", OBEDIENT))
    order(high, "begin")
    order(low, "queue 3")
    assert high.process
    os.kill(high.process.pid, signal.SIGSTOP)
    set_stale_ms(Path(low.env["COTENANT_SEGMENT"]), 60)
    wait_for(lambda: order(low, "done?") == "True")
    os.kill(high.process.pid, signal.SIGCONT)

    def is_held() -> bool:
        # In an administrator's segment one that is idle does not see it: when it sets to work it does.
        return order(low, "queue 1") == "did queue" and use(tenants_now(), low).gated

    wait_for(is_held)
    set_stale_ms(Path(low.env["COTENANT_SEGMENT"]), 60_000)
    wait_for(is_held)
    assert order(low, "done?") == "False"
    order(high, "end")
    wait_for(lambda: order(low, "done?") == "True")


@pytest.mark.parametrize("who", ["the one that waits", "the one it waits for"])
def test_a_child_forked_while_a_gate_is_closed_changes_nothing(
    tenant: Start, tenants_now: TenantsNow, who: str
) -> None:
    high, low = rested(tenant("production", OBEDIENT)), rested(tenant("opportunistic", OBEDIENT))
    order(high, "begin")
    order(low, "queue 3")
    assert order(low if who == "the one that waits" else high, "fork") == "did fork"
    assert use(tenants_now(), high).busy and use(tenants_now(), low).gated
    assert order(low, "done?") == "False"
    order(high, "end")
    wait_for(lambda: order(low, "done?") == "True")
    assert order(low, "work 5") == "did work"


def test_an_opportunistic_job_that_ends_behind_a_closed_gate_does_end(tenant: Start) -> None:
    high, low = rested(tenant("production", OBEDIENT)), rested(tenant("opportunistic", OBEDIENT))
    order(high, "begin")
    order(low, "queue 3")
    low.say("quit")
    low.finish()
    order(high, "end")


# Two contexts, whose gates are closed when the first ends.
TWO_CONTEXTS = """
import sys
from soft import MODULE, Gpu, check, driver
gpu = Gpu(); kernel = gpu.kernel('empty'); stream = gpu.stream()
second = check(driver.cuCtxCreate(None, 0, gpu.device))
check(driver.cuCtxSetCurrent(second))
there = check(driver.cuModuleGetFunction(check(driver.cuModuleLoadData(MODULE)), b'empty')); other = gpu.stream()
gpu.use(); gpu.launch(kernel, stream); gpu.synchronize()
check(driver.cuCtxSetCurrent(second)); gpu.launch(there, other); gpu.synchronize()
print('ready', flush=True)
for line in sys.stdin:
    if line == 'queue\\n':
        for _ in range(3): gpu.launch(there, other)
    elif line == 'end the first\\n':
        check(driver.cuDevicePrimaryCtxReset(gpu.device))
    elif line == 'end the second\\n':
        check(driver.cuCtxDestroy(second)); gpu.use(); there, other = kernel, stream
    elif line == 'done?\\n':
        print(int(driver.cuStreamQuery(other)[0])); continue
    print('did', line, end='')
"""


@pytest.mark.parametrize("which", ["first", "second"])
def test_the_gates_of_a_context_outlive_the_other_contexts(
    tenant: Start, tenants_now: TenantsNow, which: str
) -> None:
    high, low = rested(tenant("production", OBEDIENT)), rested(tenant("opportunistic", TWO_CONTEXTS))
    # GIVEN a stream that waits at a closed gate
    order(high, "begin")
    if which == "first":
        order(low, "queue")
    # WHEN another context of the process ends
    assert order(low, f"end the {which}") == f"did end the {which}"
    if which == "second":
        order(low, "queue")
    # THEN it waits on, and goes on when the gate opens
    assert order(low, "done?") == "600"
    order(high, "end")
    wait_for(lambda: order(low, "done?") == "0")
    # and gates that come later close and open as well
    order(high, "begin")
    order(low, "queue")
    assert order(low, "done?") == "600"
    order(high, "end")
    wait_for(lambda: order(low, "done?") == "0")
    assert use(tenants_now(), low).figures["escaped"] == 0


CAPTURE = """
from soft import Gpu, check, driver
gpu = Gpu(); kernel = gpu.kernel('empty'); stream, other = gpu.stream(), gpu.stream()
gpu.launch(kernel, stream); gpu.launch(kernel, other); gpu.synchronize()
check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
for _ in range(10): gpu.launch(kernel, stream)
graph = check(driver.cuStreamEndCapture(stream))
_, count = check(driver.cuGraphGetNodes(graph, 0))
graph_exec = check(driver.cuGraphInstantiate(graph, 0))
for _ in range(3): check(driver.cuGraphLaunch(graph_exec, stream))
gpu.launch(kernel, other)
gpu.synchronize()
print(count)
"""


@pytest.mark.parametrize("tenant_class", ["production", "standard", "opportunistic"])
@pytest.mark.usefixtures("company")
def test_a_captured_graph_is_what_the_program_made_it(tenant: Start, tenant_class: str) -> None:
    one = tenant(tenant_class, CAPTURE)
    assert one.finish() == "10\n"
    gated = tenant_class != "production"
    assert (one.total("kernels"), one.total("graphs"), one.total("gates") > 0) == (3, 3, gated)
    assert one.total("escaped") == 0


@pytest.mark.parametrize(
    "ending",
    [
        "assert int(driver.cuStreamEndCapture(other)[0]) != 0",
        "import ctypes; assert ctypes.CDLL('libcuda.so.1').cuStreamEndCapture(ctypes.c_void_p(int(stream)), None) != 0",
    ],
    ids=["where there is none", "without a place for the graph"],
)
@pytest.mark.usefixtures("company")
def test_a_call_that_ends_no_capture_leaves_the_open_one_alone(tenant: Start, ending: str) -> None:
    one = tenant("opportunistic", CAPTURE.replace("for _ in range(10):", f"{ending}\nfor _ in range(10):"))
    assert one.finish() == "10\n"
    assert one.total("kernels") == 3


CAPTURE_THAT_ENDS = """
from soft import Gpu, check, driver
gpu = Gpu(); kernel = gpu.kernel('empty'); other = gpu.stream()
gpu.launch(kernel, other); gpu.synchronize()
def begin(stream):
    check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    gpu.launch(kernel, stream)
HOW
gpu.launch(kernel, other); gpu.synchronize()
print('ready'); input()
"""
ENDINGS = {
    "before it began": """
assert int(driver.cuStreamBeginCapture(0, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)[0]) != 0""",
    "with its stream": "stream = gpu.stream(); begin(stream); check(driver.cuStreamDestroy(stream))",
    "with its context": """
own = check(driver.cuCtxCreate(None, 0, gpu.device)); stream = gpu.stream()
check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
check(driver.cuCtxDestroy(own)); gpu.use()""",
    "with its green context": """
whole = check(driver.cuDeviceGetDevResource(0, driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM))
groups, _, _ = check(driver.cuDevSmResourceSplitByCount(1, whole, 0, 1))
flags = driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
green = check(driver.cuGreenCtxCreate(check(driver.cuDevResourceGenerateDesc(groups, 1)), 0, flags))
stream = check(driver.cuGreenCtxStreamCreate(green, driver.CUstream_flags.CU_STREAM_NON_BLOCKING, 0))
gpu.launch(kernel, stream); gpu.synchronize(); begin(stream)
check(driver.cuGreenCtxDestroy(green))""",
    "with an error": """
stream = gpu.stream(); begin(stream)
assert int(driver.cuMemAlloc(64)[0]) != 0
assert int(driver.cuStreamEndCapture(stream)[0]) != 0""",
    "with an error, in another thread": """
import threading
stream = gpu.stream(); begin(stream); codes = []
def end():
    gpu.use(); codes.append(int(driver.cuStreamEndCapture(stream)[0]))
thread = threading.Thread(target=end); thread.start(); thread.join()
assert codes != [0]""",
    "after a stream that only joined it was ended": """
stream = gpu.stream(); begin(stream)
joined, event = gpu.stream(), check(driver.cuEventCreate(0))
check(driver.cuEventRecord(event, stream)); check(driver.cuStreamWaitEvent(joined, event, 0))
assert int(driver.cuStreamEndCapture(joined)[0]) != 0
assert int(driver.cuStreamEndCapture(stream)[0]) != 0""",
    "in the thread's own stream": """
stream = driver.CUstream(2); begin(stream); check(driver.cuStreamEndCapture(stream))""",
}


@pytest.mark.parametrize("how", ENDINGS)
def test_a_job_is_idle_again_however_its_capture_has_ended(
    tenant: Start, tenants_now: TenantsNow, how: str
) -> None:
    one = ready(tenant("production", CAPTURE_THAT_ENDS.replace("HOW", ENDINGS[how])))
    wait_for(lambda: not use(tenants_now(), one).busy)
    one.say("")
    one.finish()


def test_capturing_again_and_again_while_the_watcher_looks(tenant: Start) -> None:
    # The watcher asks for busy streams; asking for one that captures would end the capture.
    one = tenant(
        "production",
        """
from soft import Gpu, check, driver
gpu = Gpu(); kernel = gpu.kernel('empty'); stream = gpu.stream()
for _ in range(300):
    gpu.launch(kernel, stream)
    check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    gpu.launch(kernel, stream)
    graph = check(driver.cuStreamEndCapture(stream))
    check(driver.cuGraphDestroy(graph))
gpu.synchronize()
""",
    )
    one.finish()
    assert one.total("kernels") == 300


LAUNCHING = """
import sys
from soft import Gpu
gpu = Gpu(); kernel = gpu.kernel(sys.argv[1]); stream = gpu.stream()
gpu.launch(kernel, stream); gpu.synchronize()
print('ready', flush=True)
while not __import__('select').select([sys.stdin], [], [], 0)[0]:
    for _ in range(10): gpu.launch(kernel, stream)
    gpu.synchronize()
"""


@pytest.mark.usefixtures("company")
def test_gates_are_placed_by_time(tenant: Start, tenants_now: TenantsNow) -> None:
    # A kernel of 1 us needs no gate of its own, once that is known; some gates there are.
    one = ready(tenant("opportunistic", [sys.executable, "-u", "-c", LAUNCHING, "empty"]))

    def few_gates() -> bool:
        before = use(tenants_now(), one).figures
        wait_for(lambda: use(tenants_now(), one).figures["kernels"] >= before["kernels"] + 2000)
        after = use(tenants_now(), one).figures
        return 0 < after["gates"] - before["gates"] < (after["kernels"] - before["kernels"]) / 4

    wait_for(few_gates)
    one.say("")
    one.finish()


@pytest.mark.usefixtures("company")
def test_a_long_kernel_always_has_a_gate_of_its_own(tenant: Start) -> None:
    one = tenant(
        "opportunistic",
        "from soft import Gpu\ngpu = Gpu()\nfor _ in range(20): gpu.launch(gpu.kernel('long')); gpu.synchronize()",
    )
    one.finish()
    assert (one.total("kernels"), one.total("gates")) == (20, 20)


def test_more_streams_than_can_be_watched_are_served_and_counted(tenant: Start) -> None:
    one = tenant(
        "opportunistic",
        """
from soft import Gpu
gpu = Gpu(); kernel = gpu.kernel('empty')
streams = [gpu.stream() for _ in range(3100)]
for stream in streams: gpu.launch(kernel, stream)
gpu.synchronize()
""",
    )
    one.finish()
    assert one.total("kernels") + one.total("escaped") == 3100
    assert one.total("escaped") > 0


def test_the_kernels_of_a_second_gpu_are_timed_too(tenant: Start, tenants_now: TenantsNow) -> None:
    # The first GPU has so many operations to time at once that it takes all the events there are.
    assert tenant("production", COMPANY, COTENANT_SOFTGPU="small,small").hear() == "here"
    one = tenant(
        "opportunistic",
        """
import ctypes, select, sys
from soft import Gpu, check, driver
first, second = Gpu(0), Gpu(1)
first.use(); stream = first.stream(); kernel = first.kernel('empty')
word = check(driver.cuMemHostAlloc(64, driver.CU_MEMHOSTALLOC_DEVICEMAP))
held = ctypes.c_uint32.from_address(int(word)); held.value = 0
check(driver.cuStreamWaitValue32(stream, check(driver.cuMemHostGetDevicePointer(word, 0)), 1, 0))
for size in range(1, 65): check(driver.cuLaunchKernel(kernel, size, 1, 1, 1, 1, 1, 0, stream, 0, 0))
held.value = 1; first.synchronize()
second.use(); stream = second.stream(); kernel = second.kernel('empty')
print('ready', flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(10): second.launch(kernel, stream)
    second.synchronize()
""",
        COTENANT_SOFTGPU="small,small",
    )
    ready(one)

    def figures() -> dict[str, int]:
        (found,) = [t for t in tenants_now() if one.process and t.pid == one.process.pid]
        return min((use.figures for use in found.uses), key=lambda figures: figures["kernels"] == 64)

    def share_gates() -> bool:
        before = figures()
        wait_for(lambda: figures()["kernels"] >= before["kernels"] + 500)
        after = figures()
        return 0 < after["gates"] - before["gates"] < (after["kernels"] - before["kernels"]) / 4

    # A kernel whose time nobody knows has a gate of its own.
    wait_for(share_gates)
    one.say("")
    one.finish()


def test_contexts_come_and_go(tenant: Start, company: Tenant) -> None:
    """More of them than have gates at a time."""
    one = tenant(
        "standard",
        """
from soft import MODULE, Gpu, check, driver
gpu = Gpu()
for _ in range(70):
    own = check(driver.cuCtxCreate(None, 0, gpu.device)); stream = gpu.stream()
    kernel = check(driver.cuModuleGetFunction(check(driver.cuModuleLoadData(MODULE)), b'empty'))
    gpu.launch(kernel, stream); check(driver.cuStreamSynchronize(stream)); check(driver.cuCtxDestroy(own))
""",
    )
    one.finish()
    assert (one.total("kernels"), one.total("escaped")) == (70, 0)


def test_streams_come_and_go(tenant: Start) -> None:
    one = tenant(
        "production",
        """
from soft import Gpu, check, driver
gpu = Gpu(); kernel = gpu.kernel('empty')
for _ in range(3000):
    stream = gpu.stream(); gpu.launch(kernel, stream); check(driver.cuStreamDestroy(stream))
gpu.synchronize()
""",
    )
    one.finish()
    assert (one.total("kernels"), one.total("escaped")) == (3000, 0)


def test_what_somebody_writes_over_a_tenants_terms_is_put_right(tenant: Start) -> None:
    one = ready(tenant("opportunistic", OBEDIENT))
    slot = mapped_slot(one)
    numbers = ("tenant_class", "weight", "slowdown", "floor", "lane", "sms", "mps_daemon")

    def terms() -> list[object]:
        return [*(getattr(slot, name) for name in numbers), slot.name, slot.job, bytes(slot.run_id)]

    before = terms()
    for name in numbers:
        setattr(slot, name, 7 if name != "tenant_class" else 0)
    slot.name, slot.job = b"other", b"other"
    slot.run_id[:] = bytes(range(16))
    assert all(now != then for now, then in zip(terms(), before, strict=True))
    wait_for(lambda: terms() == before)


def test_a_class_changes_while_the_jobs_run(tenant: Start, tenants_now: TenantsNow, cotenant: Run) -> None:
    one, other = rested(tenant("opportunistic", OBEDIENT)), rested(tenant("production", OBEDIENT))
    assert one.process and other.process

    def change(who: Tenant, to: str) -> None:
        assert who.process
        done = cotenant("ctl", str(who.process.pid), "--class", to, env=who.env)
        assert done.returncode == 0, done.stderr

    # GIVEN production at work and the other one waiting
    order(other, "begin")
    order(one, "queue 3")
    assert order(one, "done?") == "False"
    # WHEN the waiting one becomes its equal, THEN it goes on
    change(one, "production")
    wait_for(lambda: order(one, "done?") == "True")
    # and WHEN the first is put below it, THEN that one waits
    change(other, "opportunistic")
    order(other, "end")
    order(one, "begin")
    wait_for(lambda: use(tenants_now(), other).gated)
    order(other, "queue 3")
    assert order(other, "done?") == "False"
    # and WHEN the busy one steps down as well, THEN both run
    change(one, "opportunistic")
    wait_for(lambda: order(other, "done?") == "True")
    order(one, "end")


def test_kernels_that_were_seen_to_be_short_share_gates(
    tenant: Start, tenants_now: TenantsNow, company: Tenant
) -> None:
    one = rested(tenant("opportunistic", OBEDIENT))

    def share_gates() -> bool:
        before = use(tenants_now(), one).figures["gates"]
        assert order(one, "work 100") == "did work"
        return use(tenants_now(), one).figures["gates"] - before < 50

    # Before it is known how long one takes, each has a gate of its own.
    wait_for(share_gates)
