"""Turns among equals, worked out by hand: who starts when, and what is charged."""

from __future__ import annotations

from itertools import pairwise

import pytest

from cotenant.policies.interface import Knobs, Rule
from cotenant.simulator import ArrivalKind, Arrivals, Job, Op, OpKind, Span
from tests.simulator.small import (
    CUT_US,
    DRAIN_US,
    LOOK_US,
    OPEN_US,
    OPPORTUNISTIC,
    STANDARD,
    STRICT,
    WATCH_US,
    listed,
    once,
    policy,
    run,
)

FAIR = policy(Knobs(rule=Rule.fair))
LONG = Op(us=11_000)


def spans_of(spans: tuple[Span, ...], name: str) -> list[Span]:
    return [span for span in spans if span.tenant == name]


@pytest.mark.parametrize("under", [STRICT, FAIR])
def test_kernels_of_equals_never_cut_each_other(under: type) -> None:
    jobs = [Job(name, OPPORTUNISTIC, (LONG,), waits=False) for name in ("a", "b")]
    outcome = run(*jobs, under=under, seconds=2)
    assert outcome.preemptions == 0
    assert outcome.busy > 0.98
    for one in outcome.tenants:
        assert one.share == pytest.approx(0.5, abs=0.01)
    for span in outcome.spans:
        assert span.end_us - span.start_us == pytest.approx(11_000, abs=3)


def test_a_switch_between_equals_takes_a_look_a_drained_switch_and_an_opened_gate() -> None:
    jobs = [Job(name, OPPORTUNISTIC, (LONG,), waits=False) for name in ("a", "b")]
    spans = run(*jobs, under=STRICT, seconds=0.2).spans
    for before, after in pairwise(spans):
        if before.tenant != after.tenant:
            seen_after_us = after.start_us - before.end_us - DRAIN_US - OPEN_US
            assert 0 < seen_after_us <= 1.5 * (WATCH_US + LOOK_US)


def test_a_kernel_that_does_not_end_is_passed_after_a_tenth_of_a_second() -> None:
    endless = once("endless", Op(us=5e6), tenant_class=OPPORTUNISTIC)
    other = Job("other", OPPORTUNISTIC, (Op(us=100, repeat=10),), waits=False, begins_s=0.05)
    outcome = run(endless, other, under=STRICT, seconds=1)
    first = spans_of(outcome.spans, "other")[0]
    assert 0.15e6 < first.start_us < 0.17e6
    assert outcome.tenants[1].share > 0.3


def test_copies_over_the_host_link_take_no_turns() -> None:
    kernels = Job("kernels", OPPORTUNISTIC, (LONG,), waits=False)
    copies = Job("copies", OPPORTUNISTIC, (Op(OpKind.copy_to_device, bytes=10_000_000),), waits=False)
    outcome = run(kernels, copies, under=STRICT)
    assert [one.share for one in outcome.tenants] == pytest.approx([1, 1], abs=0.01)


def test_what_is_charged_is_executed_and_not_the_time_in_which_production_ran() -> None:
    # One's kernels are cut by production again and again, the other's stop at gates: both are to execute the same.
    production = Job("production", ops=(Op(us=3000),), arrivals=Arrivals(ArrivalKind.uniform, rate=100))
    jobs = [
        Job("long", OPPORTUNISTIC, (Op(us=8_000),), waits=False),
        Job("short", OPPORTUNISTIC, (Op(us=20, repeat=100),), waits=False),
    ]
    _, long, short = run(production, *jobs, under=STRICT, seconds=5).tenants
    assert long.preemptions > 100
    assert long.executed_s == pytest.approx(short.executed_s, rel=0.03)


def test_a_turn_survives_a_burst_of_the_class_above() -> None:
    # a's kernel began at 2 us and is cut at 3 ms; when production is done a goes on, though b has waited as long.
    production = Job("production", ops=(Op(us=1000),), arrivals=listed(0.003), requests=1)
    jobs = [Job(name, OPPORTUNISTIC, (Op(us=6_000),), waits=False) for name in ("a", "b")]
    outcome = run(production, *jobs, under=STRICT, seconds=0.1)
    first = spans_of(outcome.spans, "a")[0]
    assert outcome.tenants[1].preemptions == 1
    assert first.end_us < spans_of(outcome.spans, "b")[0].start_us
    assert first.end_us == pytest.approx(6000 + 1000 + CUT_US + DRAIN_US, abs=500)


def test_one_that_a_higher_class_keeps_from_draining_is_not_passed() -> None:
    # a's turn is over when production comes for longer than anybody may take to drain; b waits for a's kernel still.
    production = Job("production", ops=(Op(us=150_000),), arrivals=listed(0.02), requests=1)
    jobs = [Job(name, OPPORTUNISTIC, (Op(us=40_000),), waits=False) for name in ("a", "b")]
    outcome = run(production, *jobs, under=STRICT, seconds=0.3)
    first = spans_of(outcome.spans, "a")[0]
    assert first.end_us < spans_of(outcome.spans, "b")[0].start_us
    assert (outcome.tenants[1].preemptions, outcome.tenants[2].preemptions) == (1, 0)
    assert first.end_us == pytest.approx(40_000 + 150_000 + CUT_US + DRAIN_US, abs=500)


def test_one_that_runs_empty_gives_the_gpu_away_and_pays_no_more_than_its_gap() -> None:
    # 200 us of every 2200: while one waits for its CPU the other runs.
    jobs = [
        Job(name, STANDARD, (Op(us=200, sync=True, gap_us=2000),), waits=True) for name in ("a", "b", "c")
    ]
    for one in run(*jobs, under=STRICT, seconds=2).tenants:
        assert one.share > 0.85


def test_one_that_pauses_is_not_let_off_what_it_is_ahead() -> None:
    # Each of its requests is 40 ms of kernels and a copy of 4 ms; another needs next to nothing. The third had a
    # twentieth of the first while the least key of those with work bounded what one was ahead.
    pausing = Job(
        "pausing", OPPORTUNISTIC, (Op(OpKind.copy_to_device, bytes=40_000_000), Op(us=4_000, repeat=10))
    )
    little = Job("little", OPPORTUNISTIC, (Op(us=70, sync=True, gap_us=3000),))
    endless = Job("endless", OPPORTUNISTIC, (Op(us=18_000),), waits=False)
    first, _, third = run(pausing, little, endless, under=STRICT, seconds=4).tenants
    assert third.executed_s > 0.9 * first.executed_s
    assert third.longest_wait_s < 0.1


def test_a_turn_does_not_outlast_its_kernels_where_a_lower_class_waits_behind_copies() -> None:
    """Once the turn was kept for ever: the copy that followed the kernel had the gates of lower classes looked at."""
    copy = Op(OpKind.copy_to_device, bytes=10_000_000)
    copies = Job("copies", ops=(copy, Op(us=50), copy))
    kernels = Job("kernels", OPPORTUNISTIC, (Op(us=200, repeat=20),), waits=False)
    assert run(copies, kernels, under=FAIR, seconds=0.5).tenants[1].share > 0.6
