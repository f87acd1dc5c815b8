"""Lanes of one process against each other and against its own work: who waits at a gate, and who is let through."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Run
    from tests.interposer.lanes.conftest import RunToEnd, Start, TenantsNow


def test_production_goes_on_while_its_greedy_lane_waits(runs: RunToEnd) -> None:
    runs("""
lane = cotenant.tenant('opportunistic')
with lane: launch(lane.stream); finish(lane.stream)
launched = 0
def greedy():
    global launched, stream
    with lane:
        stream = lane.stream
        while launched < 2000:
            launch(stream); launched += 1
with Production() as production:
    thread = in_thread(greedy)
    until(lambda: launched > 100)
    before = launched
    production.does(300)
    assert production.stood_still or (not is_done(stream) and launched < 2000), launched
thread.join()
finish(stream)
""")


@pytest.mark.parametrize(("channels", "stand"), [("", 4), ("1", 0), ("6", 3)])
def test_few_streams_of_lanes_stand_at_gates_and_the_others_wait_on_the_cpu(
    runs: RunToEnd, channels: str, stand: int
) -> None:
    """A stream that stands keeps one of the driver's channels from all others of the process."""
    settings = {"CUDA_DEVICE_MAX_CONNECTIONS": channels} if channels else {}
    runs(
        f"""
launched, finished = [], []
def work():
    with cotenant.tenant('opportunistic' if len(finished) % 2 else 'standard') as lane:
        launch(lane.stream); launched.append(lane.stream)
        finish(lane.stream); finished.append(lane.stream)
in_thread(work).join()
in_thread(work).join()
assert len(finished) == 2
until(are_idle)
with Production() as production:
    threads = [in_thread(work) for _ in range(10)]
    until(lambda: len(launched) >= 2 + {stand})
    production.does(100)
    assert production.stood_still or (len(launched) == 2 + {stand} and len(finished) == 2), (launched, finished)
for thread in threads: thread.join()
assert len(finished) == 12
""",
        **settings,
    )


def test_a_launch_that_waits_on_the_cpu_looks_ever_less_often(runs: RunToEnd) -> None:
    """Each look is a sleep; at first of 50 us, and once it has waited for 16 ms of 1 ms."""
    runs(
        """
import re, time
threads = []
def work():
    with cotenant.tenant('opportunistic') as lane:
        threads.append(threading.get_native_id())
        launch(lane.stream); finish(lane.stream)
def sleeps():
    with open(f'/proc/self/task/{threads[1]}/status') as file:
        return int(re.search(r'^voluntary_ctxt_switches:\\s*(\\d+)', file.read(), re.M)[1])
in_thread(work).join()
with Production() as production:
    thread = in_thread(work)
    until(lambda: len(threads) == 2)
    before, began = sleeps(), time.monotonic()
    until(lambda: time.monotonic() > began + 0.5)
    if not production.stood_still:
        slept, waited = sleeps() - before, time.monotonic() - began
        assert slept < 1000 * waited + 200, (slept, waited)
thread.join()
""",
        CUDA_DEVICE_MAX_CONNECTIONS="1",
    )


def test_a_lane_runs_when_production_is_idle_and_not_while_it_is_busy(runs: RunToEnd) -> None:
    runs("""
lane = cotenant.tenant('opportunistic')
with lane:
    stream = lane.stream
    launch(stream, 5); finish(stream)
for _ in range(3):
    with Production() as production:
        with lane: launch(stream, 5)
        production.does(50)
        assert production.stood_still or not is_done(stream)
    finish(stream)
""")


def test_production_that_only_works_off_what_it_launched_does_not_stand_still(runs: RunToEnd) -> None:
    runs("""
import time
lane = cotenant.tenant('opportunistic')
with lane:
    stream = lane.stream
    launch(stream, 5); finish(stream)
streams, long = [gpu.stream() for _ in range(40)], gpu.kernel('long'); event = check(driver.cuEventCreate(0))
def lane_ran_too_soon():
    for one in (*streams, stream): finish(one)
    # For three times as long as it takes to be taken for that, a kernel after the other, each in a stream of its own.
    for number, one in enumerate(streams):
        if number: check(driver.cuStreamWaitEvent(one, event, 0))
        gpu.launch(long, one); check(driver.cuEventRecord(event, one))
    with lane: launch(stream, 5)
    while not is_done(streams[-1]):
        if is_done(stream) and not is_done(streams[-1]): return True
        time.sleep(0.001)
    return False
# A machine that is busy with other things may stand still for as long by itself.
assert not all(lane_ran_too_soon() for _ in range(3))
""")


def test_production_that_waits_for_a_lanes_event_is_let_through_while_its_other_streams_go_on(
    runs: RunToEnd,
) -> None:
    runs("""
lane = cotenant.tenant('opportunistic')
default, event = driver.CUstream(0), check(driver.cuEventCreate(0))
launch(gpu.stream())
with Production() as production:
    for stream in (gpu.stream(), default, gpu.stream()):
        with lane:
            launch(lane.stream, 5)
            check(driver.cuEventRecord(event, lane.stream))
        check(driver.cuCtxSetCurrent(driver.CUcontext(0)))  # what is refused has recorded nothing
        assert driver.cuEventRecord(event, default)[0] != driver.CUresult.CUDA_SUCCESS
        gpu.use()
        check(driver.cuStreamWaitEvent(stream, event, 0))
        launch(stream)
        until(lambda: is_done(stream))
    def is_held():
        with lane: launch(lane.stream)
        production.does(2)
        with lane: return not is_done(lane.stream)
    until(is_held)  # once production is past, the lane's gate closes again
""")


def test_the_memory_of_a_process_goes_while_its_lane_waits_at_a_gate(
    starts: Start, tenants_now: TenantsNow, cotenant: Run
) -> None:
    below = starts(
        """
lane = cotenant.tenant('opportunistic')
check(driver.cuMemAlloc(8 << 20)); stream = gpu.stream(); launch(stream); finish(stream)
with lane: launch(lane.stream); finish(lane.stream)
print('ready', flush=True); input()
with lane: launch(lane.stream, 5)
print('launched', flush=True); input()
with lane: finish(lane.stream)
""",
        tenant_class="opportunistic",
    )
    assert below.hear() == "ready" and below.process
    above = starts("with Production(): print('busy', flush=True); input()")
    assert above.hear() == "busy"
    below.say("go")
    assert below.hear() == "launched"
    own, lane = sorted(
        (one for one in tenants_now() if one.process == below.process.pid), key=lambda one: one.lane
    )
    assert lane.uses[0].busy and not own.uses[0].busy
    paused = cotenant("pause", str(own.pid), env=below.env)
    assert paused.returncode == 0, paused.stderr
    above.say("stop")
    above.finish()
    assert cotenant("resume", str(own.pid), env=below.env).returncode == 0
    below.say("stop")
    below.finish()


def test_an_event_that_is_done_or_no_lanes_any_more_opens_no_gate(runs: RunToEnd) -> None:
    runs("""
lane = cotenant.tenant('opportunistic')
stream, events = gpu.stream(), [check(driver.cuEventCreate(0)) for _ in range(2)]
launch(stream); finish(stream)
with lane:
    held = lane.stream
    launch(held); check(driver.cuEventRecord(events[0], held)); finish(held)
with Production() as production:
    with lane:
        launch(held, 5); check(driver.cuEventRecord(events[1], held))
    check(driver.cuEventRecord(events[1], stream))
    for event in events:
        check(driver.cuStreamWaitEvent(stream, event, 0)); launch(stream)
        until(lambda: is_done(stream))
    check(driver.cuEventRecord(events[1], production.stream))  # which it gets to in the end
    check(driver.cuStreamWaitEvent(stream, events[1], 0))
    production.does(50)
    assert production.stood_still or not is_done(held)
finish(held)
""")


def test_a_wait_for_a_lanes_event_becomes_part_of_a_capture_as_ever(runs: RunToEnd) -> None:
    runs("""
lane = cotenant.tenant('opportunistic')
stream, joined, event = gpu.stream(), gpu.stream(), check(driver.cuEventCreate(0))
launch(stream); launch(joined); finish(stream); finish(joined)
with Production():
    with lane:
        held = lane.stream
        launch(held, 5); check(driver.cuEventRecord(event, held))
    check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
    launch(stream)
    check(driver.cuEventRecord(event, stream)); check(driver.cuStreamWaitEvent(joined, event, 0))
    launch(joined)
    check(driver.cuEventRecord(event, joined)); check(driver.cuStreamWaitEvent(stream, event, 0))
    graph = check(driver.cuStreamEndCapture(stream))
    assert check(driver.cuGraphGetNodes(graph))[1] == 2
finish(held)
""")


def test_a_stream_of_two_lanes_does_not_hold_production_at_the_others_gate(runs: RunToEnd) -> None:
    runs("""
lane = cotenant.tenant('opportunistic')
shared = gpu.stream()
launch(shared); finish(shared)
with Production() as production:
    with lane:
        launch(shared, 5)
        launch(lane.stream, 5)
    production.does(20)
    assert production.stood_still or not is_done(shared)
    launch(shared); finish(shared)  # behind the gates that the lane has put there
    def is_held():
        launch(shared); production.does(2)
        return not is_done(shared)
    with lane:
        until(is_held)  # once production is past, the lane's gate closes again
        production.does(100)
        assert production.stood_still or not is_done(shared)
finish(shared)
""")


def test_a_graph_with_the_gates_of_a_lane_runs_to_its_end_in_production(starts: Start) -> None:
    one = starts("""
lane = cotenant.tenant('opportunistic')
stream = gpu.stream()
launch(stream); finish(stream)
with lane:
    inside = lane.stream
    check(driver.cuStreamBeginCapture(inside, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
    launch(inside, 1000)
    graph = check(driver.cuStreamEndCapture(inside))
    exec = check(driver.cuGraphInstantiate(graph, 0))
with Production():
    for _ in range(2):
        check(driver.cuGraphLaunch(exec, stream))
        until(lambda: is_done(stream))
""")
    one.finish()
    assert {line["class"]: line["gates"] > 0 for line in one.figures()} == {
        "production": False,
        "opportunistic": True,
    }


def test_results_are_the_same_whoever_computes_them(runs: RunToEnd) -> None:
    assert runs("""
from ctypes import addressof, c_float, c_uint64, c_void_p
N, LANES = 256, ['opportunistic', 'standard', 'production']
add, scale = gpu.kernel('add'), gpu.kernel('scale')
def arguments(*values):
    held = [c_uint64(int(v)) if isinstance(v, int) or hasattr(v, '__int__') and not isinstance(v, float) else c_float(v)
            for v in values]
    array = (c_void_p * len(held))(*[addressof(one) for one in held])
    return array, held
def compute(number, results):
    buffer = check(driver.cuMemAlloc(4 * N)); stream = None
    host = (c_float * N)(*range(N))
    check(driver.cuMemcpyHtoD(buffer, addressof(host), 4 * N))
    done = check(driver.cuEventCreate(0))
    last = None
    # One chain of dependent steps, each in another lane, ordered by events.
    for step in range(12):
        with cotenant.tenant(LANES[(step + number) % 3]) as lane:
            stream = lane.stream
            if last is not None: check(driver.cuStreamWaitEvent(stream, done, 0))
            check(driver.cuMemcpyHtoDAsync(int(buffer) + 4 * step, addressof(host), 4, stream))
            check(driver.cuMemcpyDtoDAsync(int(buffer) + 4 * (N // 2), int(buffer), 4 * (N // 2), stream))
            check(driver.cuMemsetD32Async(int(buffer) + 4 * (N - 1 - step), step, 1, stream))
            check(driver.cuEventRecord(done, stream)); last = stream
    check(driver.cuEventSynchronize(done))
    check(driver.cuMemcpyDtoH(addressof(host), buffer, 4 * N))
    results[number] = bytes(host)
results = {}
threads = [in_thread(lambda number=number: compute(number, results)) for number in range(3)]
for thread in threads: thread.join()
alone = {}
def plain(number):
    host = (c_float * N)(*range(N)); words = (ctypes.c_uint32 * N).from_buffer(host)
    for step in range(12):
        host[step] = 0.0
        for i in range(N // 2): words[N // 2 + i] = words[i]
        words[N - 1 - step] = step
    return bytes(host)
assert results[0] == results[1] == results[2] == plain(0), 'results differ'
print('same')
""").endswith("same\n")
