"""The parts of guard, each alone: what an operation costs, the lever's rules, its mixing, and what company is worth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cotenant.classes import TenantClass
from cotenant.policies.back_off import BackOff
from cotenant.policies.guard.allowance import SAVED_US, SHARE, Allowance
from cotenant.policies.guard.cost import Alone, Below, Meter, Window
from cotenant.policies.guard.duty import RECENT_US, Duty
from cotenant.policies.guard.job import Job
from cotenant.policies.guard.policy import Guard
from cotenant.policies.guard.position import HOLD_US, SHUT, STRICT, TOLERANT, Mixer, in_words
from cotenant.policies.guard.promise import (
    Promise,
)
from cotenant.policies.guard.reserve import Reserve
from cotenant.policies.guard.worth import Harvest, Worth
from cotenant.policies.interface import Tenant

TICK_US = 10_000.0
NOBODY = Below(ran_us=0.0, floors=0.0, want=False, level=STRICT, duty=1.0, moves=False)
COMPANY = Below(ran_us=5_000.0, floors=0.0, want=True, level=STRICT, duty=1.0, moves=False)


@pytest.mark.parametrize("position", [1.0, 1.25, 1.5, 2.0])
def test_the_mean_of_the_levels_is_the_position(position: float) -> None:
    mixer, levels = Mixer(), []
    for turn in range(1000):
        mixer.follow(position, TICK_US, turn * TICK_US)
        levels.append(mixer.level)
    assert sum(levels) / 1000 == pytest.approx(position, abs=0.005)
    assert set(levels) <= {STRICT, TOLERANT} and mixer.duty == 1.0


@pytest.mark.parametrize("position", [0.001, 0.1, 0.5, 0.9])
def test_below_strict_the_lower_classes_have_the_same_part_of_every_pause(position: float) -> None:
    mixer = Mixer()
    for turn in range(100):
        mixer.follow(position, TICK_US, turn * TICK_US)
        assert (mixer.level, mixer.duty) == (STRICT, position)


def test_turns_are_short() -> None:
    mixer, levels = Mixer(), []
    for turn in range(100):
        mixer.follow(1.5, TICK_US, turn * TICK_US)
        levels.append(mixer.level)
    assert "".join(str(round(one)) for one in levels).count("12") >= 100 * TICK_US / (2 * HOLD_US) - 1


def test_what_learning_took_is_given_back() -> None:
    mixer, duties = Mixer(), []
    for turn in range(2000):
        if turn % 400 < 30:
            mixer.learn(0.5, TICK_US, turn * TICK_US)
            assert mixer.level == SHUT
        else:
            mixer.follow(0.5, TICK_US, turn * TICK_US)
        duties.append(mixer.duty if mixer.level else 0.0)
    assert sum(duties) / 2000 == pytest.approx(0.5, abs=0.02)
    # And slowly: what is given back costs production as much as it costs at that share.
    assert max(duties) < 0.6


def had(duty: Duty, allowed: float, ran: float, ticks: int) -> list[float]:
    """The parts of pauses of half of the time, in which the lower classes ran for `ran` of that."""
    half = TICK_US / 2
    return [duty.see(ran * half, half, TICK_US, allowed, works=True) for _ in range(ticks)]


def test_the_part_of_the_pauses_that_counts_is_what_the_lower_classes_ran() -> None:
    duty = Duty()
    assert set(had(duty, STRICT, 0.7, 50)) == {STRICT}
    # They wait for their own CPU, and use less than they may.
    parts = had(duty, 0.5, 0.2, round(5 * RECENT_US / TICK_US))
    assert parts[0] == pytest.approx(0.5, abs=0.05) and parts[-1] == pytest.approx(0.2, abs=0.01)
    assert parts == sorted(parts, reverse=True)
    # Without a limit everything that was is forgotten.
    assert had(duty, STRICT, 0.0, 1) == [STRICT]
    assert had(duty, 0.1, 0.1, 1)[0] == pytest.approx(0.1)


def test_turns_even_out_and_production_that_is_never_idle_leaves_no_part() -> None:
    duty = Duty()
    had(duty, STRICT, 1.0, 50)
    turns = [
        part
        for _ in range(20)
        for ran in (1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        for part in had(duty, 0.25, ran, 1)
    ]
    assert sum(turns[-80:]) / 80 == pytest.approx(0.25, abs=0.01) and max(turns) < 0.5
    never_idle = [duty.see(0.0, 0.0, TICK_US, 0.3, works=True) for _ in range(100)]
    assert never_idle[0] > 0 and never_idle[-1] == 0 and duty.idle < 0.1


def test_a_pause_of_production_says_nothing_about_its_gaps() -> None:
    duty = Duty()
    had(duty, 0.5, 0.5, 200)
    assert duty.idle == pytest.approx(0.5)
    for _ in range(100):
        duty.see(0.0, TICK_US, TICK_US, 0.5, works=False)
    assert duty.idle == pytest.approx(0.5)


def test_every_position_has_words_of_its_own() -> None:
    words = [in_words(position / 20) for position in range(41)]
    assert len(set(words)) == len(words)
    assert words[5] == "others have 25% of its gaps"
    assert words[25] == "others may overlap 25% of the time"


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


class Bench:
    """A meter, shown a job tick by tick."""

    def __init__(self) -> None:
        self.now_us, self.tenant = 0.0, production()
        self.meter = Meter.of(self.tenant, 0.0, lambda _: None)
        self.windows: list[Window] = []

    def tick(self, below: Below, **grown: Any) -> None:
        self.now_us += TICK_US
        has_work = grown.pop("has_work", False)
        counts = {name: getattr(self.tenant, name) + more for name, more in grown.items()}
        self.tenant = replace(self.tenant, has_work=has_work, **counts)
        window = self.meter.look(self.tenant, self.now_us, TICK_US, below)
        if window is not None:
            self.windows.append(window)

    def bursts(self, operation_us: float, below: Below, ticks: int = 100) -> Bench:
        """Of 10 operations in every tick."""
        for _ in range(ticks):
            self.tick(below, operations=10, bursts=1, busy_us=10 * operation_us)
        return self


def test_windows_are_of_the_level_that_was_held() -> None:
    bench = Bench().bursts(100.0, NOBODY).bursts(130.0, COMPANY)
    costs = {level: [one.cost for one in bench.windows if one.level == level] for level in (SHUT, STRICT)}
    assert costs[SHUT] == pytest.approx([100.0] * len(costs[SHUT])) and len(costs[SHUT]) >= 9
    assert costs[STRICT] == pytest.approx([130.0] * len(costs[STRICT])) and len(costs[STRICT]) >= 9
    assert all(one.share == 1.0 for one in bench.windows if one.level == STRICT)


def test_a_class_has_the_whole_rate_while_those_below_it_wait_for_it() -> None:
    guard = Guard()
    guard.mixer.duty, guard.duty.idle = 0.5, 0.4
    standard, opportunistic = TenantClass.standard, TenantClass.opportunistic
    others = [
        Tenant(2, standard, has_work=True),
        Tenant(3, opportunistic, has_work=True),
        Tenant(4, opportunistic, weight=3.0, has_work=True),
        Tenant(5, opportunistic),  # as if it had
    ]
    rates = {number: knobs.rate for number, knobs in guard.rates(others).items()}
    assert rates == pytest.approx({2: 0.2, 3: 0.05, 4: 0.15, 5: 0.04})


def test_a_window_beside_a_rate_is_of_that_share() -> None:
    bench = Bench().bursts(104.0, replace(COMPANY, duty=0.25))
    assert bench.windows and all(one.share == pytest.approx(0.25) for one in bench.windows)


def test_what_follows_company_at_once_is_not_the_cost_alone() -> None:
    bench = Bench().bursts(130.0, COMPANY, 10).bursts(120.0, replace(COMPANY, level=SHUT, ran_us=0.0), 9)
    assert all(one.level == STRICT for one in bench.windows)


def test_a_pause_is_no_part_of_a_window_and_none_closes_amid_a_burst() -> None:
    """Operations are counted when they are launched: a window that closes then measures -46 % where is nothing."""
    bench = Bench()
    for _ in range(10):
        for _ in range(5):
            # A burst of two ticks: all of it is launched in the first.
            bench.tick(COMPANY, operations=100, bursts=1, busy_us=5_000.0, has_work=True)
            bench.tick(COMPANY, busy_us=5_000.0)
        for _ in range(80):
            bench.tick(COMPANY)
    assert len(bench.windows) >= 3
    assert [one.cost for one in bench.windows] == pytest.approx([100.0] * len(bench.windows))


def test_every_stretch_is_told_with_its_slowdown() -> None:
    bench, told = Bench(), []
    for cost in (None, alone(40.0)):  # at first nothing is known that it could be slower than
        bench.meter.alone = cost
        bench.bursts(50, COMPANY, ticks=1)
        told.append(bench.meter.ended)
    bench.tick(COMPANY, has_work=True, operations=10, bursts=1, busy_us=400)
    told.append(bench.meter.ended)
    bench.tick(COMPANY)
    told.append(bench.meter.ended)
    assert [one and (round(one.slowdown, 6), one.worked_us) for one in told] == [
        None,
        (0.25, TICK_US),
        None,
        (0.0, TICK_US),
    ]


def test_a_job_that_is_never_idle_is_measured_too() -> None:
    bench = Bench()
    for _ in range(200):
        bench.tick(COMPANY, operations=100, busy_us=TICK_US, has_work=True)
    assert bench.windows and bench.windows[-1].cost == pytest.approx(100.0)


def test_what_happens_while_memory_moves_is_left_out() -> None:
    bench = Bench().bursts(100.0, COMPANY, 5)
    bench.bursts(500.0, replace(COMPANY, moves=True), 50).bursts(100.0, COMPANY, 50)
    assert [one.cost for one in bench.windows] == pytest.approx([100.0] * len(bench.windows))


def alone(cost: float, **about: Any) -> Alone:
    return replace(Alone(cost, 0.0, spread=0.005, windows=4), **about)


def window(cost: float, level: float = STRICT, share: float = 1.0, mhz: float = 0.0) -> Window:
    return Window(level, cost, share, mhz, 8, 0.0)


@pytest.mark.parametrize(
    ("costs", "becomes"), [([150.0], 100.0), ([150.0, 150.0], 150.0), ([60.0, 60.0], 60.0)]
)
def test_the_cost_alone_has_changed_where_it_is_the_same_other_one_twice(
    costs: list[float], becomes: float
) -> None:
    known = alone(100.0)
    changed = [known.learn(window(cost, SHUT), 1e6) for cost in costs]
    assert known.cost == pytest.approx(becomes) and changed[-1] == (becomes != 100.0)


def test_one_window_that_is_far_off_is_chance() -> None:
    known = alone(100.0)
    assert not any(known.learn(window(cost, SHUT), 1e6) for cost in (150.0, 100.0, 260.0, 100.0))
    assert known.spread > 0.005


def test_doubt_shrinks_with_windows_and_with_what_is_known() -> None:
    known = alone(100.0)
    assert known.doubt(1) > known.doubt(4) > known.doubt(16)
    assert known.doubt(4) > replace(known, windows=10).doubt(4)


def test_learning_is_capped() -> None:
    allowance, learned_us = Allowance(), 0.0
    for _ in range(10_000):
        learning = allowance.left_us > 0
        allowance.pass_time(TICK_US, learning)
        learned_us += TICK_US * learning
    assert learned_us <= SHARE * 10_000 * TICK_US + SAVED_US + TICK_US


def job(level: float, *slowdowns: float) -> Job:
    """Without a promise."""
    made = Job.of(production(has_work=True), 0.0, lambda _: None)
    made.meter.alone = alone(100.0)
    made.trials.level = level
    made.trials.slowdowns = list(slowdowns)
    return made


@pytest.mark.parametrize(
    ("shared_s", "highest", "becomes"),
    [(59, TOLERANT, STRICT), (61, STRICT, STRICT), (61, TOLERANT, TOLERANT)],
)
def test_without_a_promise_company_is_tried_after_a_minute_if_it_may_be(
    shared_s: float, highest: float, becomes: float
) -> None:
    guarded = job(STRICT, *[0.0] * 3)
    guarded.trials.shared_us = shared_s * 1e6
    guarded.meet(window(100.0), 1e6, highest)
    assert guarded.position == becomes and guarded.trials.is_on_trial == (becomes == TOLERANT)


def test_two_gross_bursts_end_a_trial() -> None:
    guarded = job(TOLERANT)
    guarded.trials.is_on_trial, guarded.trials.shared_us = True, 61e6
    tolerated = replace(COMPANY, level=TOLERANT)
    for number, position in ((1, TOLERANT), (2, STRICT)):
        tenant = production(operations=10 * number, bursts=number, busy_us=2_000.0 * number)
        guarded.meter.look(tenant, number * TICK_US, TICK_US, tolerated)
        guarded.end_gross_company(tenant, 0.0)
        assert guarded.position == position
    assert guarded.trials.back_off.until_us == 121e6


def test_a_pause_of_many_of_its_gaps_is_given_away() -> None:
    guarded = Job.of(production(slowdown=0.05, has_work=True), 0.0, lambda _: None)
    now_us = 0.0
    for number in range(1, 50):
        now_us = number * 20_000.0
        guarded.see(production(slowdown=0.05, operations=number, bursts=number), now_us)
    assert guarded.is_at_work(now_us + 300_000) and not guarded.is_at_work(now_us + 500_000)


@pytest.mark.parametrize(("in_company", "is_worth_it"), [(100, False), (104, False), (106, True)])
def test_company_is_worth_it_from_five_percent_on(in_company: int, is_worth_it: bool) -> None:
    worth = Worth()
    assert not worth.may_be_tried(0.0)
    assert worth.weigh(STRICT, Harvest(100, 1e6), 1e6) is None
    assert worth.may_be_tried(1e6)
    gain = worth.weigh(TOLERANT, Harvest(in_company, 1e6), 2e6)
    assert (gain is None) == is_worth_it == worth.may_be_tried(2e6)
    assert worth.may_be_tried(62e6)


# At STRICT production was busy for two fifths of the time, with what takes three tenths of it alone, and the lower
# classes did 100 in the rest.
@pytest.mark.parametrize(
    ("work", "in_company", "is_worth_it"),
    [(0.3, 104, False), (0.3, 106, True), (0.6, 34, False), (0.6, 36, True), (1.5, 2, True), (0, 170, False)],
)
def test_what_company_is_worth_is_not_how_much_production_had_to_do(
    work: float, in_company: int, is_worth_it: bool
) -> None:
    worth = Worth()
    worth.weigh(STRICT, Harvest(100, 1e6, 0.4e6, 0.3e6), 1e6)
    gain = worth.weigh(TOLERANT, Harvest(in_company, 1e6, 0.9e6, work * 1e6), 2e6)
    assert (gain is None) == is_worth_it


def test_overlap_beside_other_tenants_or_with_other_sms_begins_anew() -> None:
    promise = Promise(0.05, position=1.5)
    promise.begin_anew(come_anew=False)
    assert promise.position == STRICT
    promise.position = 1.5
    Reserve().take(0.5, promise)
    assert promise.position == STRICT
    promise.position = 0.3
    Reserve().take(0.5, promise)
    promise.begin_anew(come_anew=False)
    assert promise.position == 0.3
