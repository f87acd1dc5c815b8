"""A stated promise (promise.py): what windows teach, and where the position goes."""

from __future__ import annotations

import math
import random

import pytest

from cotenant.policies.guard.cost import Alone, Ended
from cotenant.policies.guard.position import SHUT, STRICT, TOLERANT
from cotenant.policies.guard.promise import (
    AIM,
    LATER,
    MOST_ASIDE,
    SUSPICIOUS,
    Effect,
    Promise,
)
from tests.policies.test_guard_parts import alone, window


@pytest.mark.parametrize(("limit", "aim"), [(0.2, 0.184), (0.05, 0.046), (0.02, 0.017), (0.005, 0.0025)])
def test_what_is_aimed_at_is_below_the_promise_by_what_cannot_be_known(limit: float, aim: float) -> None:
    assert Promise(limit).aim == pytest.approx(aim)


@pytest.mark.parametrize(("cost", "position"), [(150.0, 0.2 * AIM), (110.0, AIM), (102.0, 1.2)])
def test_one_window_shows_where_the_promise_is(cost: float, position: float) -> None:
    promise, known = Promise(0.1), alone(100.0)
    assert promise.see(window(cost), known)
    promise.move(1e6, known, TOLERANT)
    assert promise.position == pytest.approx(position)


def test_the_position_does_not_wind_up_while_another_rules() -> None:
    """What was held is what counts: a tenth of the time at 50 %."""
    promise, known = Promise(0.1), alone(100.0)
    for _ in range(50):
        promise.see(window(105.0, share=0.1), known)
        promise.move(1e6, known, TOLERANT)
    assert promise.position == pytest.approx(0.2 * AIM, rel=0.001)


@pytest.mark.parametrize("seed", range(4))
def test_a_job_that_was_slow_by_itself_does_not_keep_the_lower_classes_away_for_good(seed: int) -> None:
    """For six seconds it is half as slow again, whatever they do. They are left so little that a window of chance
    seemed to show endless harm, and for minutes nothing else did."""
    promise, known = Promise(0.05), alone(100.0, spread=0.02, windows=16)
    draw = random.Random(seed)

    def see(number: int, slowdown: float) -> None:
        known.learned_us = number * 1e5
        cost = 100.0 * (1 + slowdown) * draw.gauss(1.0, 0.02)
        better = promise.see(window(cost, share=min(promise.position, STRICT)), known)
        if number % 40 == 0:
            better |= promise.looked(known, changed=False)
        if better:
            promise.move(number * 1e5, known, STRICT)

    for number in range(60):
        see(number, 0.5)
    assert promise.position < 0.05
    for number in range(60, 160):
        see(number, 0.01 * promise.position)
    assert promise.position > 0.5


def test_a_clearly_negative_slowdown_is_no_room() -> None:
    promise, known = Promise(0.2), alone(100.0)
    for _ in range(3):
        promise.see(window(118.0), known)
        promise.move(1e6, known, TOLERANT)
    before = promise.position
    for _ in range(20):
        if promise.see(window(118.0 / 2), known):
            promise.move(1e6, known, TOLERANT)
    assert promise.wants_look and promise.position <= before
    assert known.cost == pytest.approx(
        50.0, rel=0.02
    )  # the same slowdown of a cheaper job, until somebody looks


def test_odd_windows_count_once_the_cost_alone_was_seen_to_be_as_it_was() -> None:
    promise, known = Promise(0.1), alone(100.0)
    promise.see(window(105.0), known)
    for _ in range(MOST_ASIDE - 1):
        assert not promise.see(window(150.0), known)
    assert promise.wants_look
    assert promise.looked(known, changed=False)
    assert promise.strict.value == pytest.approx(0.4, abs=0.06)
    promise.see(window(900.0), known)
    assert not promise.looked(known, changed=True) and not promise.aside


@pytest.mark.parametrize(
    ("later", "becomes"), [([871.0, 872.0], 871.5), ([990.0], 983.5), ([971.0, 865.0], 865.0)]
)
def test_of_the_first_windows_alone_the_cheapest_counts(later: list[float], becomes: float) -> None:
    known = alone(977.0, windows=1, spread=0.05)
    for cost in later:
        known.learn(window(cost, SHUT), 1e6)
    assert known.cost == pytest.approx(becomes, abs=0.5)


@pytest.mark.parametrize(("cost", "is_aside"), [(199.0, False), (201.0, True), (1245.0, True)])
def test_a_first_window_that_turns_make_twice_as_slow_waits_for_a_look(cost: float, is_aside: bool) -> None:
    promise, known = Promise(0.05), alone(100.0)
    promise.see(window(cost), known)
    assert (len(promise.aside), promise.strict.windows) == ((1, 0) if is_aside else (0, 1))


def test_harm_that_is_unheard_of_counts_where_nobody_can_look() -> None:
    promise, known = Promise(0.05), alone(100.0)
    for number in range(MOST_ASIDE):
        assert promise.see(window(300.0), known) == (number == MOST_ASIDE - 1)
    assert promise.strict.value == pytest.approx(2.0)


def test_overlap_that_is_gross_from_the_first_counts_at_once() -> None:
    promise, known = Promise(0.05), alone(100.0)
    promise.see(window(102.0), known)
    assert promise.see(window(300.0, TOLERANT), known) and promise.extra.value == pytest.approx(1.98)


def test_nothing_rises_on_old_knowledge() -> None:
    promise, known = Promise(0.1, position=0.5), alone(100.0)
    promise.see(window(100.0), known)
    promise.move(60e6, known, TOLERANT)
    assert promise.position == 0.5 and promise.wants_look


def test_company_is_tried_a_little_and_then_as_it_proves() -> None:
    promise, known = Promise(0.1), alone(100.0)
    seen = []
    for one in (window(100.0), window(100.0), window(120.0, TOLERANT), window(110.0, TOLERANT, share=0.5)):
        promise.see(one, known)
        promise.move(1e6, known, TOLERANT)
        seen.append(promise.position)
    # Of what is known from few windows in company the worse end counts.
    assert seen == pytest.approx([1.2, 1.2, 1.4, 1 + AIM / 2.05], abs=0.01)


def test_the_part_of_the_clock_is_told_apart() -> None:
    promise, known = Promise(0.1), alone(100.0, mhz=1980.0)
    promise.see(window(120.0, mhz=1800.0), known)
    assert promise.clock(STRICT) == pytest.approx(0.1) and promise.slowdown(STRICT) == pytest.approx(0.2)


def test_an_effect_forgets_and_can_be_faded() -> None:
    effect = Effect()
    for slowdown in [0.5] * 50 + [0.1] * 50:
        effect.add(slowdown, 1.0, 1.0, memory=6)
    assert effect.value == pytest.approx(0.1, abs=0.01)
    effect.fade(1)
    assert effect.windows == 1 and effect.value == pytest.approx(0.1, abs=0.01)


def test_a_window_of_a_smaller_share_moves_an_effect_by_less_and_not_by_more() -> None:
    """The same surprise of 2 %, in windows of all of the share that is held and of a tenth of it."""
    whole, part = Effect(0.1, windows=10.0), Effect(0.1, windows=10.0)
    whole.add(0.12, 1.0, 1.0)
    part.add(0.03, 0.1, 1.0)
    assert 0.1 < part.slope < 0.1 + 0.02 / 10 and whole.slope == pytest.approx(0.1 + 0.02 / (10 + LATER))
    assert part.windows == pytest.approx(10 + 0.01 * LATER)


def test_a_beginning_that_was_different_is_forgotten_sooner_than_its_share_of_the_windows() -> None:
    effect = Effect()
    for slowdown in [1.0] * 6 + [0.1] * 24:
        effect.add(slowdown, 1.0, 1.0)
    assert 0.1 < effect.slope < 0.1 + 0.9 * 6 / 30 * 0.6


def test_what_was_seen_at_another_share_says_less() -> None:
    promise, known = Promise(0.05), alone(100.0)
    for _ in range(20):
        promise.see(window(120.0), known)
    promise.move(1e6, known, TOLERANT)
    # A quarter of the harm is expected at a quarter of the share, and soon the windows there decide.
    assert promise.strict.windows == 1 and promise.strict.value == pytest.approx(0.2)
    for _ in range(3):
        promise.see(window(103.0, share=promise.position), known)
        promise.move(1e6, known, TOLERANT)
    assert promise.slowdown(promise.position) == pytest.approx(promise.aim)


def settled(limit: float, slowdown: float, windows: int = 20) -> tuple[Promise, Alone]:
    """A promise that stands where it should, beside neighbours that cost so much of all of its gaps."""
    promise, known = Promise(limit), alone(100.0)
    for _ in range(windows):
        share = min(promise.position, STRICT)
        promise.see(window(100.0 * (1 + slowdown * share), share=share), known)
        promise.move(1e6, known, STRICT)
    return promise, known


def test_what_a_job_was_slowed_down_by_too_much_is_made_up_for() -> None:
    promise, known = settled(0.1, 0.2)
    known.spread = 0.0
    assert promise.held == promise.position == pytest.approx(promise.aim / 0.2)
    for _ in range(20):
        promise.saw_stretch(Ended(promise.aim + 0.05, 50_000.0), known)
    # Of a mean over 2 s that is 40 % of it, and so much less is held.
    assert promise.excess == pytest.approx(0.05 * (1 - math.exp(-0.5)))
    assert promise.held == pytest.approx((promise.aim - promise.excess) / 0.2)
    assert promise.position == pytest.approx(promise.aim / 0.2)
    for _ in range(60):
        promise.saw_stretch(Ended(promise.held * 0.2, 50_000.0), known)
    assert promise.excess < 0.005
    for _ in range(200):
        promise.saw_stretch(Ended(1.0, 50_000.0), known)
    assert 0 < promise.held < 0.01


def test_what_a_job_was_spared_makes_up_for_what_it_was_not_and_moves_nothing() -> None:
    promise, known = settled(0.1, 0.2)
    promise.saw_stretch(Ended(0.0, 1e6), known)
    assert promise.held == promise.position
    promise.saw_stretch(Ended(promise.aim * 1.5, 500_000.0), known)
    assert promise.held == promise.position
    promise.saw_stretch(Ended(promise.aim * 5, 500_000.0), known)
    assert promise.held < promise.position
    promise.looked(known, changed=True)  # it was measured against another cost
    assert promise.held == promise.position


@pytest.mark.parametrize(("spread", "excess"), [(0.0, 0.1), (0.09, 0.1), (0.11, 0.1 - 0.0738), (0.2, 0.0)])
def test_what_may_be_chance_is_no_excess(spread: float, excess: float) -> None:
    """A mean over 2 s is known to 0.22 of the spread of windows. Three times that may be chance where windows are
    noisier than the promise."""
    promise, known = Promise(0.1), alone(100.0, spread=spread)
    promise.saw_stretch(Ended(promise.aim + 0.1, 60e6), known)
    assert promise.excess == pytest.approx(excess, abs=0.0001)


@pytest.mark.parametrize(("excess", "held"), [(0.0, 1.5), (0.02, 1.4), (0.2, STRICT)])
def test_an_excess_of_company_is_made_up_for_by_less_company(excess: float, held: float) -> None:
    """Turns cost it nothing."""
    promise = Promise(0.1, position=1.5, strict=Effect(0.0, windows=9), extra=Effect(0.18, windows=9))
    promise.excess = excess
    assert promise.held == pytest.approx(held)


def test_company_of_which_nothing_is_known_ends_with_an_excess() -> None:
    promise = Promise(0.1, position=1.2, strict=Effect(0.01, windows=9))
    assert promise.held == 1.2
    promise.excess = 0.001
    assert promise.held == STRICT


def test_where_less_is_lost_than_expected_the_cost_alone_is_looked_at_before_others_get_more() -> None:
    promise, known = settled(0.1, 0.2)
    before, share = promise.position, promise.position
    for _ in range(4):
        promise.see(window(107.0, share=share), known)  # 9 were expected
        promise.move(1e6, known, STRICT)
    assert (promise.seems_cheaper, promise.wants_look) == (True, True) and promise.position < 1.1 * before
    # It was as before: the neighbours have changed, and the next windows count.
    promise.looked(known, changed=False)
    assert (promise.seems_cheaper, promise.strict.windows) == (False, SUSPICIOUS)
    promise.see(window(107.0, share=share), known)
    promise.move(1e6, known, STRICT)
    assert promise.position > 1.1 * before


def test_where_its_neighbours_have_changed_nothing_is_expected() -> None:
    promise, known = settled(0.1, 0.2)
    promise.begin_anew(come_anew=False)
    for _ in range(4):
        promise.see(window(107.0, share=promise.position), known)
    assert not promise.seems_cheaper
