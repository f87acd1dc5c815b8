"""What `with cotenant.tenant(...)` means in Python: whose work a block's is, and when a block is refused."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from cotenant.classes import TenantClass
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import Run, RunPython
    from tests.interposer.lanes.conftest import RunToEnd, Start, TenantsNow


def test_a_lane_has_a_slot_and_figures_of_its_own(starts: Start, tenants_now: TenantsNow) -> None:
    one = starts(
        """
stream = gpu.stream(); launch(stream, 7); finish(stream)
with cotenant.tenant('opportunistic', weight=2, floor='5%'):
    inside = gpu.stream(); launch(inside, 11); finish(inside)
with cotenant.tenant('standard', name='index'):
    inside = gpu.stream(); launch(inside, 3); finish(inside)
launch(stream, 2); finish(stream)
print('ready', flush=True); input()
"""
    )
    assert one.hear() == "ready" and one.process
    own, index, lane = sorted(tenants_now(), key=lambda found: found.tenant_class)
    assert own.pid == one.process.pid
    assert {found.process for found in (own, lane, index)} == {own.pid}
    assert (own.lane, lane.lane, index.lane) == (0, 1, 2)
    assert [found.uses[0].figures["kernels"] for found in (own, lane, index)] == [9, 11, 3]
    assert [TenantClass(found.tenant_class).name for found in (own, lane, index)] == [
        "production",
        "opportunistic",
        "standard",
    ]
    assert (lane.weight, lane.floor, own.weight, own.floor) == (2000, 50, 1000, 0)
    assert own.uses[0].figures["gates"] == 0 and lane.uses[0].figures["gates"] > 0
    assert len({found.pid for found in (own, lane, index)}) == 3
    assert len({found.run_id for found in (own, lane, index)}) == 3
    assert lane.job == f"{own.job}/opportunistic" and index.job == f"{own.job}/index"
    assert lane.uses[0].memory_bytes == 0
    one.say("")
    one.finish()
    assert tenants_now() == ()
    assert sorted(line["kernels"] for line in one.figures()) == [3, 9, 11]


def test_a_lanes_streams_come_and_go(starts: Start) -> None:
    """More of them than a tenant can watch at a time."""
    one = starts("""
with cotenant.tenant('opportunistic'):
    for _ in range(3200): stream = gpu.stream(); launch(stream); check(driver.cuStreamDestroy(stream))
""")
    one.finish()
    assert (one.total("kernels"), one.total("escaped")) == (3200, 0)


def test_blocks_nest_and_are_left_by_exceptions(starts: Start, tenants_now: TenantsNow) -> None:
    one = starts(
        """
own = gpu.stream(); launch(own); finish(own)
enter = ctypes.CDLL(None).cotenant_lane_enter
low, middle = cotenant.tenant('opportunistic'), cotenant.tenant('standard')
with low:
    launch(low.stream, 2)
    try:
        with middle:
            launch(middle.stream, 3)
            with low: launch(low.stream, 5)
            raise KeyError
    except KeyError: pass
    launch(low.stream, 7)
    gpu.synchronize()
@low
def work(times):
    'its text'
    launch(low.stream, times); gpu.synchronize()
    return times
assert work(11) == 11 and work.__doc__ == 'its text'
@middle
def fails(): raise OSError
try: fails()
except OSError: pass
assert enter(0) == 0
launch(own, 13); gpu.synchronize()
try: low.__exit__(None, None, None)
except RuntimeError: pass
else: raise AssertionError
try:
    @low
    async def coroutine(): pass
except TypeError: pass
else: raise AssertionError
print('ready', flush=True); input()
"""
    )
    assert one.hear() == "ready"
    counted = {found.tenant_class: found.uses[0].figures["kernels"] for found in tenants_now()}
    assert counted == {0: 1 + 13, 1: 3, 2: 2 + 5 + 7 + 11}


def test_threads_are_in_lanes_each_by_itself(starts: Start, tenants_now: TenantsNow) -> None:
    one = starts(
        """
def work(lane, times):
    with lane:
        assert lane.stream == lane.stream
        streams.append(lane.stream)
        launch(lane.stream, times); finish(lane.stream)
streams = []
low = cotenant.tenant('opportunistic')
with low:  # not inherited by threads
    def plain():
        stream = gpu.stream(); launch(stream, 5); finish(stream)
    in_thread(plain).join()
threads = [in_thread(lambda: work(low, 10)) for _ in range(4)]
threads += [in_thread(lambda: work(cotenant.tenant('standard'), 100)) for _ in range(4)]
for thread in threads: thread.join()
print('ready', flush=True); input()
""",
        COTENANT_NAME="n" * 60,
    )
    assert one.hear() == "ready"
    counted = {found.tenant_class: found.uses[0].figures["kernels"] for found in tenants_now()}
    assert counted == {0: 5, 1: 400, 2: 40}
    # Of a name that is too long the process's part is cut, not the lane's.
    names = {found.tenant_class: found.job for found in tenants_now()}
    assert names == {0: "n" * 60, 1: "n" * 54 + "/standard", 2: "n" * 49 + "/opportunistic"}


def test_work_in_the_default_stream_stays_the_processs_and_is_warned_of(
    starts: Start, tenants_now: TenantsNow
) -> None:
    one = starts(
        """
blocking = check(driver.cuStreamCreate(0))
lane = cotenant.tenant('opportunistic')
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter('always')
    with lane:
        launch(0, 2); launch(driver.CUstream(2), 3); launch(blocking, 4); launch(lane.stream, 5)
        gpu.synchronize()
assert len(told) == 1 and '9 operations' in str(told[0].message), told
with lane: launch(lane.stream); finish(lane.stream)
print('ready', flush=True); input()
"""
    )
    assert one.hear() == "ready"
    counted = {found.tenant_class: found.uses[0].figures for found in tenants_now()}
    assert counted[0]["kernels"] == 9 and counted[0]["escaped"] == 0
    assert counted[2]["kernels"] == 6 and counted[2]["escaped"] == 9


def test_the_lanes_streams_have_the_priority_of_their_class(runs: RunToEnd) -> None:
    runs("""
least, greatest = check(driver.cuCtxGetStreamPriorityRange())
assert greatest < least
for name in ('production', 'standard', 'opportunistic'):
    with cotenant.tenant(name) as lane:
        priority = check(driver.cuStreamGetPriority(lane.stream))
        assert check(driver.cuStreamGetFlags(lane.stream)) == 1
    assert (name == 'production') == (priority == greatest), (name, priority)
    assert (name == 'opportunistic') == (priority == least), (name, priority)
""")


def test_a_fork_in_a_block_leaves_both_in_it(starts: Start, tenants_now: TenantsNow) -> None:
    one = starts(
        """
with cotenant.tenant('opportunistic') as lane:
    launch(lane.stream); finish(lane.stream)
    child = os.fork()
    if child == 0:
        assert ctypes.CDLL(None).cotenant_lane_enter(1) == 1
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    launch(lane.stream, 4); finish(lane.stream)
print('ready', flush=True); input()
"""
    )
    assert one.hear() == "ready"
    (lane,) = [found for found in tenants_now() if found.tenant_class == 2]
    assert lane.uses[0].figures["kernels"] == 5


@pytest.mark.parametrize("end", ["sys.exit(0)", "ctypes.CDLL(None).exit(0)", "os._exit(0)"])
def test_a_process_that_ends_inside_a_block_leaves_no_tenant(
    starts: Start, tenants_now: TenantsNow, end: str
) -> None:
    one = starts(
        f"""
with Production() as production:
    with cotenant.tenant('opportunistic') as lane:
        launch(lane.stream, 5)
        production.word.value, production.stops = 1, True
        {end}
"""
    )
    assert one.process
    assert one.process.wait(timeout=60) == 0
    assert tenants_now() == ()


def test_a_killed_process_leaves_no_tenant(starts: Start, tenants_now: TenantsNow) -> None:
    one = starts(
        """
with cotenant.tenant('opportunistic') as lane:
    launch(lane.stream); finish(lane.stream)
    print('ready', flush=True); input()
"""
    )
    assert one.hear() == "ready" and one.process
    assert len(tenants_now()) == 2
    os.kill(one.process.pid, signal.SIGKILL)
    one.process.wait(timeout=60)
    wait_for(lambda: tenants_now() == ())


def test_a_lane_is_not_above_its_process_and_a_name_is_one_lane(runs: RunToEnd) -> None:
    runs(
        """
def problem(*args, **more):
    try:
        with cotenant.tenant(*args, **more): raise AssertionError
    except cotenant.Problem as told: return f'{told.message}: {told.hint}'
assert 'cotenant run --class production' in problem('production')
with cotenant.tenant('standard', name='a'): pass
assert "'a' with other terms" in problem('opportunistic', name='a')
assert "'a' with other terms" in problem('standard', name='a', weight=3)
assert "'a' with other terms" in problem('standard', name='a', floor='5%')
for number in range(7):
    with cotenant.tenant('standard', name=f'b{number}'): pass
assert 'eight lanes' in problem('standard', name='one more')
with cotenant.tenant('standard', name='a'): pass
assert "did you mean 'standard'" in problem('standart')
assert 'no name' in problem('standard', name='x/y') and 'no name' in problem('standard', name='x' * 32)
assert 'floor is for' in problem('production', floor=0.1)
assert 'slowdown is for' in problem('standard', slowdown='5%')
assert 'no weight' in problem('standard', weight=1000)
""",
        tenant_class="standard",
    )


def test_ctl_and_explain_tell_a_lane_from_its_process(
    starts: Start, tenants_now: TenantsNow, cotenant: Run
) -> None:
    one = starts(
        """
stream = gpu.stream(); launch(stream); finish(stream)
with cotenant.tenant('standard') as lane: launch(lane.stream); finish(lane.stream)
print('ready', flush=True); input()
"""
    )
    assert one.hear() == "ready" and one.process
    own, lane = sorted(tenants_now(), key=lambda found: found.tenant_class)
    assert own.pid == one.process.pid

    def classes() -> dict[int, str]:
        return {found.pid: TenantClass(found.tenant_class).name for found in tenants_now()}

    for word in (str(os.getpid()), str(own.pid), own.job):
        told = cotenant("explain", word, env=one.env)
        assert told.returncode == 0, told.stderr
        assert f"({own.pid})" in told.stdout and f"({lane.pid})" not in told.stdout
    done = cotenant("ctl", lane.job, "--class", "opportunistic", env=one.env)
    assert done.returncode == 0, done.stderr
    assert classes() == {own.pid: "production", lane.pid: "opportunistic"}
    assert cotenant("ctl", lane.job, "--class", "standard", env=one.env).returncode == 0
    done = cotenant("ctl", str(own.pid), "--class", "opportunistic", env=one.env)
    assert done.returncode == 0, done.stderr
    wait_for(lambda: classes() == {own.pid: "opportunistic", lane.pid: "opportunistic"})
    assert cotenant("ctl", str(own.pid), "--class", "production", env=one.env).returncode == 0
    wait_for(lambda: classes() == {own.pid: "production", lane.pid: "standard"})


# The few names of PyTorch's streams that a block uses, over the software GPU.
TORCH = """
import types
class Stream:
    device = 0
    def __init__(self, handle): self.handle = handle
    def wait_stream(self, other):
        event = check(driver.cuEventCreate(0))
        check(driver.cuEventRecord(event, other.handle)); check(driver.cuStreamWaitEvent(self.handle, event, 0))
    def synchronize(self): finish(self.handle)
default = Stream(driver.CUstream(1)); now = threading.local()
torch = sys.modules['torch'] = types.ModuleType('torch')
torch.cuda = types.SimpleNamespace(
    is_initialized=lambda: True,
    current_device=lambda: 0,
    current_stream=lambda: getattr(now, 'stream', default),
    ExternalStream=lambda handle, device: Stream(driver.CUstream(handle)),
    set_stream=lambda stream: setattr(now, 'stream', stream),
)
"""


def test_a_block_makes_its_stream_pytorchs_and_ends_when_its_work_has(
    starts: Start, tenants_now: TenantsNow
) -> None:
    one = starts(
        TORCH
        + """
def work(times): launch(torch.cuda.current_stream().handle, times)
work(2)
with cotenant.tenant('opportunistic') as lane:
    assert int(torch.cuda.current_stream().handle) == lane.stream
    work(3)
assert torch.cuda.current_stream() is default and is_done(lane.stream)
try:
    with lane:
        work(4)
        raise KeyError
except KeyError: pass
assert torch.cuda.current_stream() is default
def refuse(stream): raise OSError
with cotenant.tenant('standard') as outer:
    switch, torch.cuda.set_stream = torch.cuda.set_stream, refuse
    try:
        with lane: raise AssertionError
    except OSError: pass
    torch.cuda.set_stream = switch
    # A block that could not be entered leaves the thread where it was.
    assert ctypes.CDLL(None).cotenant_lane_enter(outer.number) == outer.number
with Production() as production:
    done = []
    def block():
        with lane: work(5)
        done.append(1)
    thread = in_thread(block)
    production.does(50)
    assert production.stood_still or not done
    work(6); finish(default.handle)  # in the default stream, which the block leaves alone
thread.join()
print('ready', flush=True); input()
"""
    )
    assert one.hear() == "ready"
    counted = {found.tenant_class: found.uses[0].figures for found in tenants_now()}
    assert (counted[2]["kernels"], counted[2]["escaped"]) == (3 + 4 + 5, 0)


OUTSIDE = """
import cotenant
with cotenant.tenant('opportunistic', required=False) as lane: print(lane.number, lane.stream)
try:
    with cotenant.tenant('opportunistic'): pass
except cotenant.Problem as told: print(told.message, told.hint, sep=': ')
"""


def test_outside_cotenant_run_one_error_names_the_remedy(run_python: RunPython) -> None:
    done = run_python(OUTSIDE)
    none, told, *rest = done.stdout.splitlines()
    assert (none, rest, done.returncode) == ("0 0", [], 0), done.stderr
    assert told.startswith(
        "this process was not started under `cotenant run`: start it with: cotenant run -- "
    )
