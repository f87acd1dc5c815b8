"""Whatever call of the driver fails while memory leaves or comes back, and wherever the job dies: nothing is torn.

A leave and a return are learned once, call by call. Then each of these calls fails, in every manner, in a job that goes
on: it is whole on the GPU, or it is away and whole when it is back. And at each of them a job is killed, on both sides
of the call: what it had is free for others.
"""

from __future__ import annotations

import re
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cotenant import segment
from cotenant.errors import Problem
from cotenant.segment import Where
from cotenant.tenants import pausing
from tests.conftest import REAL_GPU, TREE
from tests.interposer.failing import FUNCTIONS, Built, Job, Machine, Manner, MiB
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.conftest import Run

pytestmark = pytest.mark.skipif(REAL_GPU, reason="the driver that fails stands before the software GPU")

MOVED_BY = ("eviction", "mover", "host_pool", "chunks", "deferred_free", "unused_ranges", "used_contexts")
# Where one of these fails though it was done, nobody but the driver knows what it has made.
MAKES = ("cuMemCreate", "cuStreamCreate", "cuEventCreate")
# Asked until the work is done: how often is chance.
POLLS = ("cuEventQuery", "cuStreamQuery")
# Called before each of these, and elsewhere: its last ones may not come.
WITH_POLLS = (*POLLS, "cuCtxSetCurrent")
# Whole allocations, stream-ordered ones, mapped pages, and small ones in a slab.
MEMORY = (f"add alloc {3 * MiB}", f"add ordered {2 * MiB + 5}", f"add mapped {4 * MiB}", "add alloc 700 20")
LESS_MEMORY = (f"add alloc {3 * MiB}", "add ordered 700", f"add mapped {2 * MiB}")

# On machines of their own, side by side: an idle tenant takes up to half a second to see a request.
FAULT_PARTS = 4


@pytest.fixture(scope="module")
def built(native: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(tmp_path_factory.mktemp("failing"), native)


@pytest.fixture
def machines(
    built: Built, softgpu_env: dict[str, str], softgpu_folders: list[Path], tmp_path: Path
) -> Iterator[Callable[[], Machine]]:
    """Makes machines that have nothing in common."""
    made: list[Machine] = []

    def make() -> Machine:
        folder, gpu = tmp_path / f"machine-{len(made)}", Path(tempfile.mkdtemp(prefix="cotenant-test-"))
        folder.mkdir()
        softgpu_folders.append(gpu)
        of_its_own = {"COTENANT_SEGMENT": str(folder / "segment"), "COTENANT_SOFTGPU_DIR": str(gpu)}
        made.append(Machine(built, softgpu_env | of_its_own, folder))
        made[-1].set_memory_knobs(headroom=1, stay_ms=50)
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.fixture
def machine(machines: Callable[[], Machine]) -> Machine:
    return machines()


def side_by_side(acts: Iterable[Callable[[], None]]) -> None:
    """What one of them raises is raised here, when all have ended."""
    acts = list(acts)
    with ThreadPoolExecutor(len(acts)) as pool:
        for done in [pool.submit(act) for act in acts]:
            done.result()


def attending_job(machine: Machine) -> Job:
    """One that uses all of its memory as soon as that begins to move."""
    one = machine.start("opportunistic")
    for line in MEMORY:
        one.tell(line, "added")
    one.tell("attend", "attends")
    machine.faults.wanted_checks += 1
    wait_for(lambda: machine.faults.checks == machine.faults.wanted_checks)
    return one


def pause(one: Job) -> bool:
    """Whether it left."""
    try:
        return pausing.pause(one.path, one.pid).where == Where.evicted
    except Problem:
        return False


def bytes_on_gpu(one: segment.Tenant) -> int:
    return sum(use.memory_bytes for use in one.uses)


def agrees(machine: Machine, one: Job) -> bool:
    """Whether what is counted is what the software GPU and the driver have given out."""
    seen = one.seen()
    return (bytes_on_gpu(seen), seen.host_pinned_bytes) == (machine.faults.used, machine.faults.pinned())


def leave_and_return(machine: Machine, one: Job) -> bool:
    """With what is armed: in the end all is on the GPU and whole, and counted as it was before. Whether it left."""
    try:
        return go_and_come(machine, one)
    except BaseException as error:
        error.add_note(f"{machine.faults.what()}: {one.seen_if_there()}")
        raise


def go_and_come(machine: Machine, one: Job) -> bool:
    faults, before = machine.faults, one.seen()
    faults.wanted_checks += 1
    has_left = pause(one)
    wait_for(lambda: agrees(machine, one))
    if faults.lasting:
        # It tries again and again, and stays as it is, until the driver is itself again.
        pausing.resume(one.path, one.pid, 0.02)
        wait_for(lambda: bool(faults.fired))
        wait_for(lambda: one.seen().where in (Where.resident, Where.evicted) and agrees(machine, one))
        faults.armed = 0
    assert pausing.resume(one.path, one.pid, 30).where == Where.resident
    wait_for(lambda: bool(faults.checks == faults.wanted_checks))
    assert faults.torn == 0
    wait_for(lambda: agrees(machine, one))
    after = one.seen()
    assert (bytes_on_gpu(after), after.host_bytes) == (bytes_on_gpu(before), 0)
    assert [use.movable_bytes for use in after.uses] == [use.movable_bytes for use in before.uses]
    return has_left


def learn(machine: Machine, one: Job) -> list[str]:
    """The calls of a leave and a return that go well."""
    for _ in range(10):  # on a busy machine its work may not drain in time: then it stays
        machine.faults.arm()
        if leave_and_return(machine, one):
            return machine.faults.called()
    pytest.fail("it never left")


def numbered(calls: list[str]) -> list[tuple[str, int]]:
    """Each call as (function, which of this function's), but for those whose number is chance."""
    seen: Counter[str] = Counter()
    each = [(name, seen[name]) for name in calls if seen.update((name,)) is None]
    return [(name, which) for name, which in each if which == 1 or name not in POLLS]


def without_polls(calls: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return [(name, which) for name, which in calls if name not in WITH_POLLS]


def manners(function: str) -> list[Manner]:
    return [Manner.instead] if function in MAKES else [Manner.instead, Manner.after]


def test_the_failing_driver_knows_all_that_moving_calls() -> None:
    sources = [TREE / "native" / "tenant" / "memory" / name for name in MOVED_BY]
    files = [path for source in sources for path in (source.with_suffix(".cpp"), source.with_suffix(".h"))]
    called = {name for f in files if f.exists() for name in re.findall(r"driver\.(cu\w+)", f.read_text())}
    of_pools = {"cuCtxGetDevice", "cuDeviceGetMemPool", "cuDeviceGetDefaultMemPool"}
    assert called and called - of_pools <= set(FUNCTIONS)


def test_each_call_that_fails_leaves_the_job_whole(machines: Callable[[], Machine]) -> None:
    side_by_side(partial(each_call_fails, machines(), part) for part in range(FAULT_PARTS))


def each_call_fails(machine: Machine, part: int) -> None:
    one = attending_job(machine)
    learn(machine, one)
    streams, pinned = machine.faults.streams, machine.faults.pinned()
    calls = numbered(learn(machine, one))
    assert len(calls) > 40 and {"cuMemUnmap", "cuMemMap", "cuMemSetAccess"} <= {name for name, _ in calls}
    for function, occurrence in calls[part::FAULT_PARTS]:
        for manner in manners(function):
            machine.faults.arm(function, occurrence, manner)
            leave_and_return(machine, one)
            assert machine.faults.fired or function in WITH_POLLS, (function, occurrence, manner)
    # Nothing has leaked on the way: one leave and return is what it was.
    assert (machine.faults.streams, machine.faults.pinned()) == (streams, pinned)
    assert without_polls(numbered(learn(machine, one))) == without_polls(calls)
    one.tell("check", "whole")


def test_a_function_that_goes_on_failing_leaves_the_job_whole(machines: Callable[[], Machine]) -> None:
    side_by_side(partial(functions_go_on_failing, machines(), part) for part in range(FAULT_PARTS))


def functions_go_on_failing(machine: Machine, part: int) -> None:
    one = attending_job(machine)
    learn(machine, one)
    calls = numbered(learn(machine, one))
    last = dict(calls)
    # From its first call on, and from its last: as eviction and restore call the same.
    ends = [(function, which) for function, which in calls if which in (1, last[function])]
    for function, occurrence in ends[part::FAULT_PARTS]:
        machine.faults.arm(function, occurrence, lasting=True)
        leave_and_return(machine, one)
    one.tell("check", "whole")


def test_what_only_a_first_leave_calls(machine: Machine) -> None:
    one = attending_job(machine)
    first = numbered(learn(machine, one))
    later = numbered(learn(machine, one))
    once = [call for call in first if call not in later]
    assert {"cuMemHostRegister_v2", "cuStreamCreate"} <= {name for name, _ in once}
    for function, occurrence in once:
        for manner in manners(function):
            one.kill()
            machine.bury(one)
            machine.faults.streams = 0
            one = attending_job(machine)
            machine.faults.arm(function, occurrence, manner)
            leave_and_return(machine, one)
            assert machine.faults.fired
            learn(machine, one)
            assert machine.faults.streams == 1


def test_a_pending_free_costs_the_same_however_many_there_are(machine: Machine) -> None:
    one = machine.start("opportunistic")
    one.tell("add ordered 512 600", "added")
    one.tell("hold", "held")
    before = machine.faults.event_queries
    for _ in range(600):
        one.tell("free", "freed")
    asked = machine.faults.event_queries - before
    assert asked <= 4 * 600
    one.tell("release", "released")


def test_what_is_bound_to_a_multicast_object_stays(machine: Machine) -> None:
    """Others write to it over the network of GPUs: by address or by handle, and all of a range."""
    one = machine.start("opportunistic")
    for line in (
        f"add alloc {2 * MiB}",
        f"add mapped {4 * MiB}",
        f"add mapped {2 * MiB}",
        f"add alloc {8 * MiB}",
    ):
        one.tell(line, "added")
    for line in ("bind address 0", "bind address 1", "bind handle 2"):
        one.tell(line, "bound")
    # Nor does it move after its rights were set again.
    one.tell("access 1", "set")
    assert pause(one)
    seen = one.seen()
    assert (bytes_on_gpu(seen), seen.host_bytes) == (8 * MiB, 8 * MiB)
    assert pausing.resume(one.path, one.pid, 30).where == Where.resident
    one.tell("check", "whole")


def test_a_version_of_binding_that_is_newer_than_we_know_gets_handles_that_the_driver_knows(
    machine: Machine,
) -> None:
    one = machine.start("opportunistic")
    one.tell(f"add alloc {2 * MiB}", "added")
    one.tell("bind_newer", "bound")
    # What such a program maps by itself stays; the rest moves.
    one.tell(f"add mapped {4 * MiB}", "added")
    assert pause(one) and bytes_on_gpu(one.seen()) == 4 * MiB


def test_what_could_not_be_bound_moves(machine: Machine) -> None:
    one = machine.start("opportunistic")
    one.tell(f"add mapped {2 * MiB}", "added")
    one.tell("bind nowhere 0", "error 1")
    assert pause(one) and bytes_on_gpu(one.seen()) == 0


def test_what_goes_wrong_with_host_memory_is_counted_as_it_is(machines: Callable[[], Machine]) -> None:
    """Blocks that are not needed any more are given back; one that the driver keeps stays counted."""
    either = (Manner.instead, Manner.after)
    side_by_side(partial(host_memory_goes_wrong, machines(), manner) for manner in either)


def host_memory_goes_wrong(machine: Machine, manner: Manner) -> None:
    one = machine.start("opportunistic")
    for _ in range(4):
        one.tell(f"add alloc {32 * MiB}", "added")
    assert pause(one) and pausing.resume(one.path, one.pid, 30).where == Where.resident
    assert agrees(machine, one) and machine.faults.pinned() == 128 * MiB
    machine.faults.arm("cuMemHostUnregister", 2, manner)
    for _ in range(4):
        one.tell("free", "freed")
    wait_for(lambda: bool(machine.faults.fired) and machine.faults.pinned() == 0)
    wait_for(lambda: agrees(machine, one))
    one.tell(f"add alloc {40 * MiB}", "added")
    assert pause(one) and pausing.resume(one.path, one.pid, 30).where == Where.resident
    one.tell("check", "whole")
    assert agrees(machine, one)


def test_host_memory_that_is_not_to_be_had_is_not_asked_for_all_the_time(machine: Machine) -> None:
    machine.faults.arm("cuMemHostRegister_v2", 1, lasting=True)
    above, below = (machine.start(name, COTENANT_CAPACITY="64M") for name in ("production", "opportunistic"))
    above.tell(f"add alloc {4 * MiB}", "added")
    below.tell(f"add alloc {56 * MiB}", "added")  # crowded: it is pinned ahead
    wait_for(lambda: bool(machine.faults.fired))
    before, deadline = machine.faults.calls_of_function, time.monotonic() + 0.5
    while time.monotonic() < deadline:
        assert machine.faults.calls_of_function <= before + 1
    machine.faults.armed = 0
    below.tell("check", "whole")


def victim(machine: Machine) -> Job:
    machine.faults.armed = 0
    one = machine.start("opportunistic", COTENANT_CAPACITY="16M")
    for line in LESS_MEMORY:
        one.tell(line, "added")
    # At rest: how often the mover asks whether the streams are empty is no chance then.
    one.tell("check", "whole")
    return one


def test_production_gets_its_memory_though_a_leave_was_stopped_half_way(machine: Machine) -> None:
    above = machine.start("production", COTENANT_CAPACITY="208M")
    below = machine.start("opportunistic", COTENANT_CAPACITY="208M")
    for _ in range(6):
        below.tell(f"add alloc {32 * MiB}", "added")
    machine.faults.arm("cuMemcpyDtoHAsync_v2", 6)  # when a batch of four has gone
    above.tell(f"add alloc {200 * MiB}", "added")
    assert machine.faults.fired
    seen = below.seen()
    assert (seen.where, seen.evictions, seen.saved_bytes) == (Where.evicted, 1, 192 * MiB)
    above.tell("free", "freed")
    below.tell("check", "whole")


def test_what_a_pause_that_was_stopped_half_way_says(machine: Machine, cotenant: Run) -> None:
    one = machine.start("opportunistic")
    for _ in range(6):
        one.tell(f"add alloc {32 * MiB}", "added")
    for lasting, said in (
        (False, "192M on the host\n"),
        (True, "128M on the host; 64M are not evicted yet: a driver call failed; the tenant tries again\n"),
    ):
        machine.faults.arm("cuMemcpyDtoHAsync_v2", 6, lasting=lasting)
        done = cotenant("pause", str(one.pid), env=machine.env)
        assert done.returncode == 0 and done.stderr.endswith(said), done.stderr
        assert machine.faults.fired
        machine.faults.armed = 0
        assert pausing.resume(one.path, one.pid, 30).where == Where.resident
    one.tell("check", "whole")


def test_a_leave_that_gets_no_further_is_refused_and_what_has_gone_comes_back(machine: Machine) -> None:
    above = machine.start("production", COTENANT_CAPACITY="208M")
    below = machine.start("opportunistic", COTENANT_CAPACITY="208M")
    for _ in range(6):
        below.tell(f"add alloc {32 * MiB}", "added")
    machine.faults.arm("cuMemcpyDtoHAsync_v2", 6, lasting=True)
    above.tell(f"add alloc {200 * MiB}", "error 2")  # out of memory
    machine.faults.armed = 0
    below.tell("check", "whole")
    assert below.seen().where == Where.resident


def test_whoever_dies_on_the_way_leaves_nothing_behind(machine: Machine) -> None:
    """At each call of its leave and its return, before it and after it: production goes on as if it had never been."""
    above = machine.start("production", COTENANT_CAPACITY="16M")
    below = victim(machine)
    machine.faults.arm()
    above.tell(f"add alloc {10 * MiB}", "added")
    assert below.seen().where == Where.evicted
    calls = machine.faults.called()
    above.tell("free", "freed")
    below.tell("check", "whole")
    on_the_way_back = machine.faults.called()[len(calls) :]
    assert len(calls) > 12 and len(on_the_way_back) > 12
    for function, occurrence in numbered(calls + on_the_way_back):
        for manner in Manner.killed_before, Manner.killed_after:
            below.kill()
            machine.bury(below)
            below = victim(machine)
            machine.faults.arm(function, occurrence, manner)
            for _ in range(3):
                above.tell(f"add alloc {10 * MiB}", "added")
                above.tell("free", "freed")
                wait_for(lambda: is_dead(below) or is_resident(below))  # noqa: B023
                if is_dead(below):
                    break
            else:
                # Host memory is pinned ahead, if there was time.
                assert function == "cuMemHostRegister_v2" or function in WITH_POLLS
                continue
            assert below.process.returncode == -signal.SIGKILL
            above.tell(f"add alloc {16 * MiB}", "added")
            above.tell("free", "freed")
            (left,) = segment.read(machine.path).tenants
            assert (left.pid, bytes_on_gpu(left), left.host_bytes) == (above.pid, 0, 0)
    below.kill()
    machine.bury(below)
    # All of them had the same place, one after another.
    assert segment.read(machine.path).lost <= 1
    victim(machine).tell("check", "whole")


def is_dead(one: Job) -> bool:
    return one.process.poll() is not None


def is_resident(one: Job) -> bool:
    seen = one.seen_if_there()
    return seen is not None and seen.where == Where.resident


@pytest.mark.parametrize("manner", [Manner.killed_before, Manner.killed_after])
@pytest.mark.parametrize("function", ["cuMemHostRegister_v2", "cuStreamCreate"])
def test_whoever_dies_in_its_first_leave_leaves_nothing_behind(
    machine: Machine, function: str, manner: Manner
) -> None:
    one = victim(machine)
    machine.faults.arm(function, 1, manner)
    segment.ask(machine.path, one.pid, {"pause": 1})
    assert one.process.wait(timeout=60) == -signal.SIGKILL
    machine.bury(one)
    other = victim(machine)
    other.tell(f"add alloc {8 * MiB}", "added")
    assert agrees(machine, other)
