"""The parts of guard, each alone: what an operation costs, the lever's rules, its mixing, and what company is worth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cotenant.classes import TenantClass
from cotenant.policies.back_off import BackOff
from cotenant.policies.guard import LONGEST_STEP_US, Guard
from cotenant.policies.guard_cost import (
    BARELY_KNOWN_FOR_US,
    KNOWN_FOR_US,
    RETRY_US,
    Alone,
    Below,
    Meter,
    Window,
)
from cotenant.policies.guard_job import Job
from cotenant.policies.guard_position import (
    HOLD_US,
    SHUT,
    STEPS,
    STRICT,
    TOLERANT,
    Mixer,
    in_words,
    mixing_period_us,
)
from cotenant.policies.guard_worth import Worth
from cotenant.policies.interface import Tenant, View
from cotenant.policies.window import Growth

POSITIONS = range(SHUT, TOLERANT + 1)
NOBODY = Below(ran_us=0.0, done=0, floors=0.0, want=False, may_run=False, moves=False)
COMPANY = Below(ran_us=5_000.0, done=50, floors=0.0, want=True, may_run=True, moves=False)


@pytest.mark.parametrize("position", POSITIONS)
def test_the_mean_of_the_levels_is_the_position(position: int) -> None:
    mixer, levels = Mixer(), []
    for turn in range(STEPS):
        mixer.follow(position, turn * HOLD_US)
        levels.append(mixer.level)
    assert sum(levels) == position * STEPS
    assert set(levels) <= {SHUT, STRICT, TOLERANT} and max(levels) - min(levels) <= STEPS
    if position % STEPS:
        assert len(set(levels[: round(mixing_period_us(position) / HOLD_US + 0.5)])) == 2


def test_a_level_is_held_for_its_time_unless_another_is_taken_at_once() -> None:
    mixer = Mixer()
    mixer.follow(TOLERANT, 0)
    mixer.follow(SHUT, HOLD_US - 1)
    assert mixer.level == TOLERANT
    mixer.take(STRICT)
    mixer.follow(SHUT, HOLD_US - 1)
    assert mixer.level == SHUT


def test_every_position_has_words_of_its_own() -> None:
    words = [in_words(position) for position in POSITIONS]
    assert len(set(words)) == len(words)
    assert words[5] == "others are shut 75% of the time"
    assert words[STRICT + 5] == "others may overlap 25% of the time"


def test_a_back_off_doubles_up_to_its_longest() -> None:
    back_off, lasted = BackOff(5, 30), []
    for now in (0, 100, 200, 300, 400):
        assert not back_off.holds(now)
        back_off.begin(now)
        lasted.append(back_off.until_us - now)
        assert back_off.holds(now)
    assert lasted == [5, 10, 20, 30, 30]


def production(**about: Any) -> Tenant:
    return replace(Tenant(1, TenantClass.production), **about)


def metered(operation_us: float, below: Below, meter: Meter | None = None) -> Meter:
    """A second of bursts of 10 operations every 10 ms."""
    first = meter.window.first if meter else production()
    began_us = meter.window.began_us if meter else 0.0
    meter = meter or Meter(Window(0.0, first), lambda _: None)
    for tick in range(1, 101):
        now = replace(
            first,
            operations=first.operations + 10 * tick,
            bursts=first.bursts + tick,
            busy_us=first.busy_us + 10 * tick * operation_us,
        )
        if meter.watch(now, began_us + tick * 10_000, below, calibrating=False):
            meter.measure(now, began_us + tick * 10_000, 0.0, calibrating=False)
    return meter


def test_the_cost_alone_is_learned_from_pauses_of_the_others() -> None:
    meter = metered(100.0, NOBODY)
    assert meter.alone is not None and not meter.slowdowns
    assert meter.alone.cost == pytest.approx(100) and meter.alone.operations_per_burst == 10
    assert not meter.is_calibration_due(2e6, limit=0.05) and meter.is_calibration_due(60e6, limit=0.05)


@pytest.mark.parametrize("below", [COMPANY, replace(COMPANY, ran_us=0.0), replace(COMPANY, may_run=False)])
def test_beside_others_slowdowns_are_measured_and_nothing_is_learned(below: Below) -> None:
    meter = metered(130.0, below, metered(100.0, NOBODY))
    assert meter.alone is not None and meter.alone.cost == pytest.approx(100)
    assert len(meter.slowdowns) == 10 and meter.slowdowns == pytest.approx([0.3] * 10)


@pytest.mark.parametrize(
    ("ran", "floors", "is_alone"),
    [(0.009, 0.0, True), (0.02, 0.0, False), (0.05, 0.05, True), (0.059, 0.05, True), (0.07, 0.05, False)],
)
def test_what_a_floor_lets_through_is_no_company(ran: float, floors: float, is_alone: bool) -> None:
    below = replace(COMPANY, may_run=False, ran_us=ran * 10_000, floors=floors)
    meter = metered(130.0, below, metered(100.0, NOBODY))
    assert meter.alone is not None
    assert meter.alone.cost == pytest.approx(130 if is_alone else 100)


def test_time_in_which_nobody_ticked_is_not_time_beside_others() -> None:
    """The clock of a machine does not begin at 0, and the daemon sleeps while nobody is at work."""
    guard, began_us = Guard(), 3600e6
    for step, now_us in enumerate((began_us, began_us + 10_000, began_us + 7200e6)):
        tenants = [
            production(has_work=True, operations=step),
            Tenant(2, TenantClass.opportunistic, has_work=True),
        ]
        guard.tick(View(now_us, tenants))
    assert guard.jobs[1].shared_us <= 2 * LONGEST_STEP_US + 10_000
    assert guard.worth.harvest[STRICT].time_us <= 2 * LONGEST_STEP_US + 10_000


@pytest.mark.parametrize("below", [NOBODY, COMPANY])
def test_while_memory_moves_nothing_is_measured_and_nothing_learned(below: Below) -> None:
    meter = metered(150.0, replace(below, moves=True), metered(100.0, NOBODY))
    assert meter.alone is not None and meter.alone.cost == pytest.approx(100) and not meter.slowdowns


def test_a_window_leaves_out_what_happened_since_it_could_last_have_ended() -> None:
    window = Window(0.0, production())
    window.look(production(operations=10, bursts=1, busy_us=1_000.0), 50_000)
    window.look(production(operations=20, bursts=2, busy_us=1_500.0, has_work=True), 60_000)
    window.leave_out(production(operations=30, bursts=3, busy_us=4_000.0), 90_000)
    window.leave_out(production(operations=40, bursts=4, busy_us=7_000.0), 100_000)
    after = production(operations=60, bursts=6, busy_us=9_000.0)
    assert window.grown(after) == Growth(operations=30, bursts=3, busy_us=3_000.0)
    assert window.began_us == 50_000


def test_where_nothing_is_known_alone_there_is_no_slowdown() -> None:
    meter = metered(130.0, COMPANY)
    assert meter.alone is None and not meter.slowdowns and meter.is_calibration_due(1e6, limit=0.05)


def test_short_calibrations_add_up() -> None:
    meter = Meter(Window(0.0, production()), lambda _: None)
    for number in (1, 2, 3):
        assert meter.alone is None
        meter.begin_calibration(production(), 0.0)
        meter.gather(production(operations=7, bursts=1, busy_us=700.0), number * 5e6)
    assert meter.alone is not None and meter.alone.cost == 100 and meter.alone.operations_per_burst == 7
    assert meter.gathered == Growth()


def test_doubt_shrinks_with_windows_and_with_what_is_known() -> None:
    alone = Alone(100.0, 10.0, 0.0)
    assert alone.doubt(1) > alone.doubt(4) > alone.doubt(16)
    assert alone.doubt(4) > replace(alone, windows=10).doubt(4)


def job(position: int, *slowdowns: float, promise: float | None) -> Job:
    made = Job.of(production(slowdown=promise, has_work=True), 0.0, lambda _: None)
    made.meter.alone = Alone(100.0, 10.0, 0.0, spread=0.005, windows=10)
    made.position, made.meter.slowdowns = position, list(slowdowns)
    return made


@pytest.mark.parametrize(
    ("slowdown", "moved"),
    [(0.2, -10), (0.06, -1), (0.05, -1), (0.04, 0), (0.03, 1), (0.0, 2)],
)
def test_it_falls_in_proportion_and_rises_by_a_step_or_two(slowdown: float, moved: int) -> None:
    guarded = job(10, *[slowdown] * 16, promise=0.05)
    guarded.move(1e6, TOLERANT)
    assert guarded.position == 10 + moved and not guarded.meter.slowdowns


def test_where_it_was_too_much_it_does_not_rise_again_for_a_while() -> None:
    guarded = job(10, *[0.06] * 16, promise=0.05)
    guarded.move(1e6, TOLERANT)
    seen = []
    for now_us in (2e6, 3e6, 7e6):
        guarded.meter.slowdowns = [0.0] * 16
        guarded.move(now_us, TOLERANT)
        seen.append(guarded.position)
    assert seen == [9, 9, 11]


def test_one_window_in_doubt_moves_nothing() -> None:
    guarded = job(10, 0.047, promise=0.05)
    guarded.move(1e6, TOLERANT)
    assert guarded.position == 10 and guarded.meter.slowdowns == [0.047]


@pytest.mark.parametrize(
    ("shared_s", "highest", "becomes"),
    [(59, TOLERANT, STRICT), (61, STRICT, STRICT), (61, TOLERANT, TOLERANT)],
)
def test_without_a_promise_company_is_tried_after_a_minute_if_it_may_be(
    shared_s: float, highest: int, becomes: int
) -> None:
    guarded = job(STRICT, *[0.0] * 4, promise=None)
    guarded.shared_us = shared_s * 1e6
    guarded.move(1e6, highest)
    assert guarded.position == becomes and guarded.is_on_trial == (becomes == TOLERANT)


def test_two_gross_bursts_end_a_trial() -> None:
    guarded = job(TOLERANT, promise=None)
    guarded.is_on_trial, guarded.shared_us = True, 61e6
    assert not guarded.end_gross_company(production(operations=10, bursts=1, busy_us=2000.0), 1e4)
    assert not guarded.end_gross_company(production(operations=20, bursts=2, busy_us=2100.0), 2e4)
    assert guarded.end_gross_company(production(operations=20, bursts=2, busy_us=4000.0), 2e4)
    assert guarded.position == STRICT and guarded.try_back_off.until_us == 121e6


@pytest.mark.parametrize(("in_company", "is_worth_it"), [(100, False), (104, False), (106, True)])
def test_company_is_worth_it_from_five_percent_on(in_company: int, is_worth_it: bool) -> None:
    worth = Worth()
    assert not worth.may_be_tried(0.0)
    assert worth.weigh(STRICT, 100, 1e6, 1e6) is None
    assert worth.may_be_tried(1e6)
    gain = worth.weigh(TOLERANT, in_company, 1e6, 2e6)
    assert (gain is None) == is_worth_it == worth.may_be_tried(2e6)
    assert worth.may_be_tried(62e6)


def test_a_calibration_that_saw_too_little_is_not_repeated_at_once() -> None:
    meter = Meter(Window(0.0, production()), lambda _: None)
    meter.gather(production(), 1e6)
    assert meter.alone is None
    assert not meter.is_calibration_due(1e6 + RETRY_US - 1, limit=0.05)
    assert meter.is_calibration_due(1e6 + RETRY_US, limit=0.05)


def test_other_bursts_are_another_job_only_twice_in_a_row() -> None:
    meter, alone = Meter(Window(0.0, production()), lambda _: None), Alone(100, 10, 0)
    same, other = (Growth(operations=10 * each, bursts=10, busy_us=1e3) for each in (10, 30))
    seen = [meter.is_another_job(grown, alone, 1e6) for grown in (other, same, other, other)]
    assert seen == [False, False, False, True]


@pytest.mark.parametrize(("spread", "is_due"), [(0.02, False), (0.2, True)])
def test_what_a_noisy_job_costs_alone_is_learned_more_often(spread: float, is_due: bool) -> None:
    meter = Meter(Window(0.0, production()), lambda _: None, Alone(100, 10, 0, spread, windows=10))
    assert meter.is_calibration_due(BARELY_KNOWN_FOR_US + 1, limit=0.05) is is_due
    assert not meter.is_calibration_due(BARELY_KNOWN_FOR_US - 1, limit=0.05)
    assert meter.is_calibration_due(KNOWN_FOR_US + 1, limit=0.05)


def test_a_position_that_was_too_much_again_is_left_for_twice_as_long() -> None:
    job = Job.of(production(slowdown=0.05), 0.0, lambda _: None)
    lasted = []
    for breached in (STRICT + 5, STRICT + 5, STRICT + 6, STRICT - 5):
        job.hold_below(breached, 0.0)
        lasted.append(job.ceiling_back_off.until_us / 1e6)
    assert lasted == [5, 10, 20, 5]
