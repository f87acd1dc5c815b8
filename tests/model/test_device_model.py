"""Claims about the GPU in virtual time: exact, since nothing here depends on a clock."""

from __future__ import annotations

import hashlib
import math
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.compiling import compile_program
from tests.model.modelled_device import (
    ON_DEVICE,
    TO_DEVICE,
    TO_HOST,
    ModelledDevice,
    Span,
    Work,
    read_device_file,
)

Make = Callable[..., ModelledDevice]


@pytest.fixture
def make(native: Path) -> Make:
    return lambda **figures: ModelledDevice(native, **figures)


def near(start: float, end: float) -> Span:
    """A span to compare with: equal up to rounding."""

    def about(value: float) -> Any:
        return pytest.approx(value, abs=1e-6)

    return Span(about(start), about(end))


# ---- kernels, SMs, priorities ---------------------------------------------------------------------------------------


def test_a_kernel_alone_takes_its_time(make: Make) -> None:
    gpu = make()
    op = gpu.kernel(gpu.queue(gpu.context()), 100)
    gpu.run()
    assert gpu.ended[op] == near(0, 100)


def test_a_queue_runs_in_order_without_gaps(make: Make) -> None:
    gpu = make(launch_us=2)
    queue = gpu.queue(gpu.context())
    ops = [gpu.kernel(queue, 10) for _ in range(3)]
    gpu.run()
    assert [gpu.ended[op] for op in ops] == [near(2, 12), near(12, 22), near(22, 32)]


def test_the_launch_cost_comes_back_when_the_queue_ran_empty(make: Make) -> None:
    gpu = make(launch_us=2)
    queue = gpu.queue(gpu.context())
    gpu.kernel(queue, 10)
    gpu.advance(50)
    late = gpu.kernel(queue, 10)
    gpu.run()
    assert gpu.ended[late] == near(52, 62)


def test_two_equal_kernels_that_fill_the_device_take_twice_as_long(make: Make) -> None:
    gpu = make()
    context = gpu.context()
    a = gpu.kernel(gpu.queue(context), 100)
    b = gpu.kernel(gpu.queue(context), 100)
    gpu.run()
    assert gpu.ended[a] == gpu.ended[b] == near(0, 200)


def test_kernels_that_fit_side_by_side_do_not_disturb_each_other(make: Make) -> None:
    gpu = make()
    context = gpu.context()
    a = gpu.kernel(gpu.queue(context), 100, sms=5)
    b = gpu.kernel(gpu.queue(context), 100, sms=3)
    gpu.run()
    assert gpu.ended[a] == gpu.ended[b] == near(0, 100)


def test_a_kernel_that_asks_for_more_sms_than_there_are_is_slower(make: Make) -> None:
    gpu = make()
    op = gpu.kernel(gpu.queue(gpu.context()), 100, sms=16)
    gpu.run()
    assert gpu.ended[op] == near(0, 200)


def test_the_more_urgent_queue_gets_its_sms_first(make: Make) -> None:
    gpu = make()
    context = gpu.context()
    low = gpu.kernel(gpu.queue(context, priority=0), 100, sms=8)
    gpu.advance(40)
    urgent = gpu.kernel(gpu.queue(context, priority=-5), 30, sms=6)
    gpu.run()
    assert gpu.ended[urgent] == near(40, 70)
    # 40 us at full speed, 30 us with two of eight SMs, and the rest at full speed again.
    assert gpu.ended[low] == near(0, 70 + 100 - 40 - 30 / 4)


def test_a_kernel_that_gets_no_sm_has_not_started(make: Make) -> None:
    gpu = make()
    context = gpu.context()
    gpu.kernel(gpu.queue(context, priority=-1), 50)
    waiting = gpu.kernel(gpu.queue(context, priority=0), 10)
    gpu.run()
    assert gpu.ended[waiting] == near(50, 60)


def test_memory_bandwidth_is_shared_in_proportion(make: Make) -> None:
    gpu = make()
    context = gpu.context()
    a = gpu.kernel(gpu.queue(context), 100, sms=2, gbps=80)
    b = gpu.kernel(gpu.queue(context), 100, sms=2, gbps=80)
    untouched = gpu.kernel(gpu.queue(context), 100, sms=2)
    gpu.run()
    assert gpu.ended[a] == gpu.ended[b] == near(0, 160)
    assert gpu.ended[untouched] == near(0, 100)


# ---- copies ---------------------------------------------------------------------------------------------------------


def test_each_direction_of_the_link_is_an_engine_of_its_own(make: Make) -> None:
    gpu = make()
    context = gpu.context()
    down = gpu.copy(gpu.queue(context), TO_DEVICE, 1_000_000)
    up = gpu.copy(gpu.queue(context), TO_HOST, 1_000_000)
    gpu.run()
    assert gpu.ended[down] == gpu.ended[up] == near(0, 100)  # 1 MB at 10 GB/s


def test_copies_of_one_direction_share_the_link(make: Make) -> None:
    gpu = make()
    context = gpu.context()
    a = gpu.copy(gpu.queue(context), TO_DEVICE, 1_000_000)
    b = gpu.copy(gpu.queue(context), TO_DEVICE, 500_000)
    gpu.run()
    assert gpu.ended[b] == near(0, 100)
    assert gpu.ended[a] == near(0, 150)


def test_a_copy_on_the_device_takes_bandwidth_from_kernels(make: Make) -> None:
    gpu = make()
    context = gpu.context()
    kernel = gpu.kernel(gpu.queue(context), 100, gbps=100)
    copy = gpu.copy(gpu.queue(context), ON_DEVICE, 10_000_000)  # 100 us alone
    gpu.run()
    assert gpu.ended[kernel] == gpu.ended[copy] == near(0, 200)


def test_copies_go_on_whoever_has_the_turn(make: Make) -> None:
    gpu = make()
    one, other = gpu.context(), gpu.context()
    gpu.kernel(gpu.queue(one), 1500)
    copy = gpu.copy(gpu.queue(other), TO_DEVICE, 1_000_000)
    gpu.run()
    assert gpu.ended[copy] == near(0, 100)


# ---- contexts take turns --------------------------------------------------------------------------------------------


def test_slices_alternate_and_each_context_gets_half(make: Make) -> None:
    gpu = make(slice_us=1000)
    a = gpu.kernel(gpu.queue(gpu.context()), 2500)
    b = gpu.kernel(gpu.queue(gpu.context()), 2500)
    gpu.run()
    # a: 0-1000, 2000-3000, 4000-4500; b: 1000-2000, 3000-4000, 4500-5000
    assert gpu.ended[a] == near(0, 4500)
    assert gpu.ended[b] == near(1000, 5000)


def test_every_change_of_context_costs_switch_time(make: Make) -> None:
    gpu = make(slice_us=1000, switch_us=100)
    a = gpu.kernel(gpu.queue(gpu.context()), 1500)
    b = gpu.kernel(gpu.queue(gpu.context()), 800)
    gpu.run()
    # a: 0-1000; switch; b: 1100-1900 (done, so its turn ends); switch; a: 2000-2500
    assert gpu.ended[b] == near(1100, 1900)
    assert gpu.ended[a] == near(0, 2500)


def test_a_context_alone_is_never_interrupted(make: Make) -> None:
    gpu = make(slice_us=10, switch_us=100)
    gpu.context()
    op = gpu.kernel(gpu.queue(gpu.context()), 1000)
    gpu.run()
    assert gpu.ended[op] == near(0, 1000)


def test_whoever_comes_waits_for_the_end_of_the_present_slice(make: Make) -> None:
    gpu = make(slice_us=1000)
    gpu.kernel(gpu.queue(gpu.context()), 10_000)
    gpu.advance(2300)
    late = gpu.kernel(gpu.queue(gpu.context()), 100)
    gpu.run()
    assert gpu.ended[late] == near(3000, 3100)


def test_a_context_whose_queue_is_held_gives_up_its_turn(make: Make) -> None:
    gpu = make(slice_us=1000)
    held, other = gpu.queue(gpu.context()), gpu.queue(gpu.context())
    gpu.kernel(held, 100)
    gate = gpu.hold(held)
    behind = gpu.kernel(held, 50)
    op = gpu.kernel(other, 500)
    gpu.advance(5000)
    assert gpu.ended[op] == near(100, 600)
    assert gpu.reached == {gate: 100} and behind not in gpu.ended
    gpu.release(gate)
    gpu.run()
    assert gpu.ended[gate] == near(100, 5000)
    assert gpu.ended[behind] == near(5000, 5050)


def test_slices_of_their_own_length(make: Make) -> None:
    gpu = make(slice_us=1000)
    production, opportunistic = gpu.context(), gpu.context()
    gpu.set_slice(production, 1_000_000)
    gpu.set_slice(opportunistic, 100)
    background = gpu.kernel(gpu.queue(opportunistic), 10_000)
    gpu.advance(250)
    request = gpu.kernel(gpu.queue(production), 3000)
    gpu.run()
    assert gpu.ended[request] == near(300, 3300)
    assert gpu.ended[background] == near(0, 13_000)


def test_a_new_slice_holds_for_the_present_turn(make: Make) -> None:
    gpu = make(slice_us=1000)
    present, waiting = gpu.context(), gpu.context()
    gpu.kernel(gpu.queue(present), 5000)
    other = gpu.kernel(gpu.queue(waiting), 100)
    gpu.advance(100)
    gpu.set_slice(present, 300)
    gpu.run()
    assert gpu.ended[other] == near(300, 400)


def test_all_at_once_knows_no_turns_and_mixes_priorities(make: Make) -> None:
    gpu = make(all_at_once=True, slice_us=10, switch_us=1000)
    a = gpu.kernel(gpu.queue(gpu.context()), 100, sms=4)
    b = gpu.kernel(gpu.queue(gpu.context()), 100, sms=4)
    urgent = gpu.kernel(gpu.queue(gpu.context(), priority=-1), 50, sms=4)
    gpu.run()
    assert gpu.ended[urgent] == near(0, 50)
    assert gpu.ended[a] == gpu.ended[b] == near(0, 125)


# ---- order ----------------------------------------------------------------------------------------------------------


def test_a_hold_blocks_only_its_queue(make: Make) -> None:
    gpu = make()
    context = gpu.context()
    held = gpu.queue(context)
    gate = gpu.hold(held)
    behind = gpu.kernel(held, 10)
    free = gpu.kernel(gpu.queue(context), 10)
    gpu.run()
    assert gpu.ended[free] == near(0, 10)
    assert behind not in gpu.ended and gate not in gpu.ended
    assert math.isinf(gpu.next_event())


def test_a_hold_released_before_it_is_reached_does_not_stop_anyone(make: Make) -> None:
    gpu = make()
    queue = gpu.queue(gpu.context())
    gpu.kernel(queue, 10)
    gate = gpu.hold(queue)
    behind = gpu.kernel(queue, 10)
    gpu.release(gate)
    gpu.run()
    assert gpu.ended[behind] == near(10, 20)
    assert not gpu.reached


def test_an_operation_waits_for_all_it_comes_after(make: Make) -> None:
    gpu = make()
    context = gpu.context()
    short = gpu.kernel(gpu.queue(context), 10, sms=1)
    long = gpu.kernel(gpu.queue(context), 30, sms=1)
    joined = gpu.marker(gpu.queue(context), after=[short, long])
    then = gpu.kernel(gpu.queue(context), 5, after=[joined])
    gpu.run()
    assert gpu.ended[joined] == near(30, 30)
    assert gpu.ended[then] == near(30, 35)
    assert gpu.ended_in_order == [short, long, joined, then]


def test_coming_after_something_done_is_coming_after_nothing(make: Make) -> None:
    gpu = make()
    queue = gpu.queue(gpu.context())
    first = gpu.kernel(queue, 10)
    gpu.advance(100)
    second = gpu.kernel(queue, 10, after=[first, 0])
    gpu.run()
    assert gpu.ended[second] == near(100, 110)


def test_a_long_chain_of_markers_ends_at_once(make: Make) -> None:
    gpu = make()
    queue = gpu.queue(gpu.context())
    gate = gpu.hold(queue)
    chain = [gpu.marker(queue) for _ in range(20_000)]
    gpu.release(gate)
    gpu.advance(0)
    assert gpu.ended_in_order == [gate, *chain]


def test_cancelling_a_context_drops_its_work_and_frees_the_device(make: Make) -> None:
    gpu = make(slice_us=1000, switch_us=100)
    doomed = gpu.context()
    queue = gpu.queue(doomed)
    lost = [gpu.kernel(queue, 5000), gpu.kernel(queue, 5000)]
    survivor_queue = gpu.queue(gpu.context())
    survivor = gpu.kernel(survivor_queue, 200)
    orphan = gpu.marker(survivor_queue, after=[lost[1]])
    gpu.advance(500)
    gpu.cancel(doomed)
    gpu.run()
    assert gpu.ended == {survivor: near(500, 700), orphan: near(700, 700)}


def test_what_a_dropped_operation_came_after_releases_nobody_in_its_place(make: Make) -> None:
    gpu = make()
    doomed, context = gpu.context(), gpu.context()
    one, other = (gpu.hold(gpu.queue(context)) for _ in range(2))
    gpu.marker(gpu.queue(doomed), after=[one])
    gpu.cancel(doomed)
    waits = gpu.marker(gpu.queue(context), after=[other])
    gpu.release(one)
    gpu.advance(10)
    assert waits not in gpu.ended
    gpu.release(other)
    gpu.run()
    assert gpu.ended[waits] == near(10, 10)


def test_a_closed_queue_still_completes(make: Make) -> None:
    gpu = make()
    context = gpu.context()
    queue = gpu.queue(context)
    op = gpu.kernel(queue, 10)
    gpu.close(queue)
    assert gpu.submit(99, Work()) == 0
    gpu.run()
    assert gpu.ended[op] == near(0, 10)
    assert gpu.kernel(queue, 10) == 0, "the queue is gone once it is drained"


# ---- properties -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planned:
    queue: int
    kind: str
    us: float
    sms: int
    gbps: float
    after: tuple[int, ...]  # how many operations back
    at: float


QUEUES = 5  # of which the first three belong to one context, the others to another

planned = st.builds(
    Planned,
    queue=st.integers(0, QUEUES - 1),
    kind=st.sampled_from(["kernel", "kernel", "kernel", "marker", "copy", "on device"]),
    us=st.floats(0, 5000),
    sms=st.integers(1, 12),
    gbps=st.sampled_from([0.0, 0.0, 30.0, 150.0]),
    after=st.lists(st.integers(1, 6), max_size=2).map(tuple),
    at=st.floats(0, 500),
)
plans = st.lists(planned, min_size=1, max_size=25)
relaxed = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def play(gpu: ModelledDevice, plan: list[Planned], step: float | None = None) -> list[int]:
    """Submits the plan, each entry `at` after the one before, and runs to the end; in small steps, if asked."""

    def advance(to: float) -> None:
        while step is not None and gpu.now() + step < to:
            gpu.advance(gpu.now() + step)
        gpu.advance(to)

    one, other = gpu.context(), gpu.context()
    queues = [gpu.queue(one if i < 3 else other, priority=-(i % 2)) for i in range(QUEUES)]
    ops: list[int] = []
    at = 0.0
    for entry in plan:
        at += entry.at
        advance(at)
        after = [ops[-back] for back in entry.after if back <= len(ops)]
        queue = queues[entry.queue]
        if entry.kind == "kernel":
            ops.append(gpu.kernel(queue, entry.us, entry.sms, entry.gbps, after))
        elif entry.kind == "marker":
            ops.append(gpu.marker(queue, after))
        else:
            ops.append(
                gpu.copy(queue, TO_HOST if entry.kind == "copy" else ON_DEVICE, int(entry.us * 1e4), after)
            )
    while not math.isinf(event := gpu.next_event()):
        advance(event)
    return ops


@relaxed
@given(plan=plans, all_at_once=st.booleans(), switch_us=st.sampled_from([0, 150]))
def test_everything_ends_in_order_and_not_too_soon(
    make: Make, plan: list[Planned], all_at_once: bool, switch_us: float
) -> None:
    gpu = make(all_at_once=all_at_once, switch_us=switch_us, slice_us=700)
    ops = play(gpu, plan)
    assert sorted(gpu.ended) == sorted(ops)
    previous: dict[int, float] = {}
    at = 0.0
    for i, (entry, op) in enumerate(zip(plan, ops, strict=True)):
        at += entry.at
        span = gpu.ended[op]
        if entry.kind == "kernel":
            assert span.end - span.start >= entry.us * max(1, entry.sms / 8) - 1e-3
        assert span.start >= max(at, previous.get(entry.queue, 0.0)) - 1e-6
        for back in entry.after:
            if back <= i:
                assert span.start >= gpu.ended[ops[i - back]].end - 1e-6
        previous[entry.queue] = span.end


@relaxed
@given(plan=plans, all_at_once=st.booleans())
def test_work_is_conserved(make: Make, plan: list[Planned], all_at_once: bool) -> None:
    """Kernels that fill the device and come together keep it busy without a gap: no time is lost or won."""
    gpu = make(all_at_once=all_at_once, slice_us=700)
    filling = [Planned(entry.queue, "kernel", entry.us, 8, 0, (), 0) for entry in plan]
    play(gpu, filling)
    busy = sum(entry.us for entry in filling)
    assert max(span.end for span in gpu.ended.values()) == pytest.approx(busy, abs=1e-3)


@relaxed
@given(plan=plans, step=st.floats(50, 900), all_at_once=st.booleans())
def test_how_often_one_looks_changes_nothing(
    make: Make, plan: list[Planned], step: float, all_at_once: bool
) -> None:
    once, often = (make(all_at_once=all_at_once, switch_us=100, launch_us=2) for _ in range(2))
    assert play(once, plan) == play(often, plan, step)
    assert once.ended == often.ended
    assert once.ended_in_order == often.ended_in_order


@relaxed
@given(plan=plans, looks=st.lists(st.floats(0, 5000), min_size=1, max_size=5))
def test_nothing_ends_before_its_earliest_end(make: Make, plan: list[Planned], looks: list[float]) -> None:
    gpu = make(switch_us=100)
    queues = [gpu.queue(gpu.context()) for _ in range(QUEUES)]
    ops = [gpu.kernel(queues[entry.queue], entry.us, entry.sms, entry.gbps) for entry in plan]
    bounds: list[tuple[int, float]] = []
    for look in sorted(looks):
        gpu.advance(look)
        bounds += [(op, gpu.earliest_end(op)) for op in ops if op not in gpu.ended]
    gpu.run()
    assert all(gpu.ended[op].end >= bound - 1e-3 for op, bound in bounds)


# What companies, shares, slices, priorities, holds, cancelled contexts and ids that are used again do to each other, as
# drawn.cpp has it. Who changes the model on purpose puts the new one here.
DRAWN = "b5473635ebe056e2"


def test_what_is_drawn_comes_as_it_ever_did(tmp_path: Path) -> None:
    program = compile_program(tmp_path, "tests/model/drawn.cpp", "native/model/device_model.cpp")
    said = subprocess.run([program], capture_output=True, check=True).stdout
    assert hashlib.blake2b(said, digest_size=8).hexdigest() == DRAWN


# ---- device files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sms", "memory_gbps"), [("h200", 132, 4800), ("a100", 108, 2039), ("l4", 58, 300)]
)
def test_shipped_devices_have_their_true_size(native: Path, name: str, sms: int, memory_gbps: float) -> None:
    figures = read_device_file(native, native / "devices" / f"{name}.gpu")
    assert (figures.sms, figures.memory_gbps, figures.slice_us) == (sms, memory_gbps, 2048)


GOOD = "name = x\ncompute = 9.0\nsms = 8\nmemory = 1GiB\nmemory_gbps = 100\nbus_gbps = 10\n"


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        (GOOD + "sm = 3\n", ":7", "unknown key 'sm'"),
        (GOOD + "sms = 9\n", ":7", "twice"),
        (GOOD.replace("8", "eight"), ":3", "whole number"),
        (GOOD.replace("1GiB", "1 gig"), ":4", "1GiB"),
        (GOOD.replace("100", "-1"), ":5", "memory_gbps"),
        (GOOD.replace("bus_gbps = 10\n", ""), "", "'bus_gbps' is missing"),
        ("sms\n", ":1", "key = value"),
    ],
)
def test_a_wrong_device_file_is_refused_with_its_line(
    native: Path, tmp_path: Path, text: str, line: str, word: str
) -> None:
    path = tmp_path / "odd.gpu"
    path.write_text(text)
    with pytest.raises(ValueError) as refusal:
        read_device_file(native, path)
    assert str(refusal.value).startswith(f"{path}{line}: ")
    assert word in str(refusal.value)
