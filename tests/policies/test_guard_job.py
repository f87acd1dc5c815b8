"""One production job under guard by its own figures: when it is at work, when its cost alone is learned anew, and when
overlap is tried and ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cotenant.classes import TenantClass
from cotenant.policies.guard.cost import Alone, Window
from cotenant.policies.guard.job import Job
from cotenant.policies.guard.pairs import Company
from cotenant.policies.guard.position import SHUT, STRICT, TOLERANT
from cotenant.policies.guard.promise import Effect, Promise
from cotenant.policies.guard.trials import first_try
from cotenant.policies.interface import Met, Tenant

SECOND_US = 1_000_000.0
BESIDE = Company("serve", frozenset({"train"}), False)


def production(**about: Any) -> Tenant:
    return replace(Tenant(1, TenantClass.production), **about)


def known_job(said: list[str] | None = None, promise: float | None = None, **about: Any) -> Job:
    """At work since 0, with a cost alone that is well known."""
    tenant = production(has_work=True, slowdown=promise)
    made = Job.of(tenant, 0.0, said.append if said is not None else lambda _: None)
    made.meter.alone = replace(Alone(100.0, 0.0, spread=0.005, windows=4), **about)
    return made


def window(cost: float, level: float = STRICT, **about: Any) -> Window:
    return replace(Window(level, cost, 1.0, 0.0, 8, 0.0), **about)


@pytest.mark.parametrize(
    ("gap_us", "pause_us"), [(0.0, 400_000), (40_000.0, 400_000), (100_000.0, 800_000), (1e6, 2_000_000)]
)
def test_its_pause_is_8_of_its_gaps_within_bounds(gap_us: float, pause_us: float) -> None:
    job = known_job()
    job.gap_us = gap_us
    assert job.is_at_work(pause_us - 1) and not job.is_at_work(pause_us)
    # Work that is there for longer than that counts only where a promise is to be kept.
    assert known_job(promise=0.05).is_at_work(60 * SECOND_US)
    job.see(production(operations=1), 60 * SECOND_US)
    assert job.is_at_work(60 * SECOND_US + 1)


def test_a_job_without_work_is_not_at_work_before_it_launches_something() -> None:
    job = Job.of(production(), 0.0, lambda _: None)
    assert not job.is_at_work(0.0)
    job.see(production(operations=1, bursts=1), 5.0)
    assert job.is_at_work(6.0) and job.gap_us == 0.0


def test_its_gap_is_a_running_mean_of_those_of_bursts() -> None:
    job = known_job()
    job.see(production(operations=10, bursts=2), 100_000.0)
    assert job.gap_us == pytest.approx(0.2 * 50_000)
    job.see(production(operations=20, bursts=3), 10 * SECOND_US)  # taken for 2 s
    assert job.gap_us == pytest.approx(10_000 + 0.2 * (2 * SECOND_US - 10_000))
    job.see(production(operations=30, bursts=3), 20 * SECOND_US)  # the same burst
    assert job.gap_us == pytest.approx(408_000)


def test_how_busy_it_is_is_a_running_mean_of_half_a_second() -> None:
    job = known_job()
    job.see(production(operations=1, busy_us=10_000.0), 10_000.0, 10_000.0)
    assert job.passed_us == pytest.approx(10_000.0)
    assert job.busy == pytest.approx(0.5 + 0.02 * 0.5)
    for number in range(2, 1000):
        job.see(production(operations=number, busy_us=10_000.0 * number), 10_000.0 * number, 10_000.0)
    assert job.busy == 0.95
    job.see(production(operations=1001, busy_us=9_980_000.0), 10_000_000.0, 20_000.0)  # counts that go back
    assert job.passed_us == pytest.approx(20_000.0 / 0.05 / 2)


@pytest.mark.parametrize(
    ("promise", "about", "knows_for_s"),
    [
        (0.05, {}, 10.0),
        (0.05, {"spread": 0.1}, 5.0),  # barely known
        (0.05, {"windows": 2}, 1.5),
    ],
)
def test_with_a_promise_the_cost_alone_is_learned_again(
    promise: float, about: dict[str, Any], knows_for_s: float
) -> None:
    job = known_job(promise=promise, **about)
    assert not job.needs_calibration(knows_for_s * SECOND_US)
    assert job.needs_calibration(knows_for_s * SECOND_US + 1)


def test_below_most_of_the_gaps_it_is_learned_every_four_seconds() -> None:
    job = known_job(promise=0.05)
    assert job.promise is not None
    for position, knows_for_s in ((0.85, 4.0), (0.86, 10.0)):
        job.promise.position = position
        assert not job.needs_calibration(knows_for_s * SECOND_US)
        assert job.needs_calibration(knows_for_s * SECOND_US + 1)


def test_a_look_that_is_wanted_comes_at_once_but_not_before_its_time_nor_in_a_pause() -> None:
    job = known_job(promise=0.05)
    assert job.promise is not None
    assert not job.needs_calibration(1.0)
    job.promise.wants_look = True
    assert job.needs_calibration(1.0)
    job.learn_from_us = 2.0
    assert not job.needs_calibration(1.0) and job.needs_calibration(2.0)
    job.last = production()
    assert not job.needs_calibration(400_000.0)


def test_without_a_promise_nothing_is_learned_before_the_next_try() -> None:
    job = known_job()
    job.meter.alone = None
    assert not job.needs_calibration(1.0)
    job.trials.shared_us = 60 * SECOND_US
    assert job.needs_calibration(1.0)
    job.trials.shared_us, job.trials.level = 0.0, TOLERANT
    assert job.needs_calibration(1.0)


def test_in_one_mps_daemon_the_cost_alone_is_known_for_half_a_minute_from_two_windows_on() -> None:
    job = known_job()
    job.go_together(True)
    job.trials.shared_us = SECOND_US
    assert not job.needs_calibration(1.0)
    job.meet(window(100.0, SHUT), 1.0, STRICT)
    # At work beside others: what it does in an hour alone does not count.
    job.active_us = 3600 * SECOND_US
    job.trials.shared_us = 31 * SECOND_US
    assert not job.needs_calibration(3600 * SECOND_US)
    job.trials.shared_us += 1
    assert job.needs_calibration(3600 * SECOND_US)
    job.trials.shared_us, job.active_us = SECOND_US, 0.0
    job.meter.alone = Alone(100.0, 0.0, windows=1)
    assert job.needs_calibration(1.0)
    job.meter.alone.part = 0.05  # no error in it can hide more
    assert not job.needs_calibration(1.0)


@pytest.mark.parametrize(("gap_us", "holds_us"), [(0.0, None), (20_000.0, 100_000), (100_000.0, 300_000)])
def test_its_position_counts_for_three_of_its_gaps(gap_us: float, holds_us: float | None) -> None:
    job = known_job(promise=0.05)
    job.gap_us = gap_us
    assert job.holds(60 * SECOND_US)  # it has work
    job.see(production(slowdown=0.05), SECOND_US)
    assert holds_us is None or (job.holds(holds_us - 1) and not job.holds(holds_us))
    assert holds_us is not None or job.holds(60 * SECOND_US)  # not before its gaps are known


def test_an_excess_that_is_made_up_for_is_told() -> None:
    job = known_job(promise=0.1)
    assert job.promise is not None and job.held == job.position and "too much" not in job.figures()[0]
    job.promise.excess = 0.046
    assert "by 4.6% too much" in job.figures()[0]
    assert [job.held, job.position] == pytest.approx([0.5, STRICT])


def test_a_job_in_a_pause_is_not_looked_at() -> None:
    job = known_job(promise=0.05)
    job.gap_us, job.promise.wants_look = 100_000.0, True  # type: ignore[union-attr]
    assert job.needs_calibration(0.45 * SECOND_US)
    job.see(production(slowdown=0.05), 0.0)
    assert job.needs_calibration(0.35 * SECOND_US) and not job.needs_calibration(0.45 * SECOND_US)
    assert job.is_at_work(0.45 * SECOND_US)


@pytest.mark.parametrize(
    ("position", "has_pauses", "little"),
    [(0.86, True, False), (0.85, True, True), (STRICT, False, True), (1.1, False, False)],
)
def test_where_the_lower_classes_get_little_learning_costs_nothing(
    position: float, has_pauses: bool, little: bool
) -> None:
    """Beside a job that is never idle they run only where they overlap with it."""
    job = known_job(promise=0.05)
    job.promise = Promise(0.05, position=position, has_pauses=has_pauses)
    assert job.gives_little == little


@pytest.mark.parametrize(
    ("windows", "learned", "odd", "enough"),
    [(3, 2, None, False), (3, 3, None, True), (4, 0, None, False), (4, 1, None, True), (4, 9, 150.0, False)],
)
def test_a_calibration_has_three_windows_at_first_and_one_later(
    windows: int, learned: int, odd: float | None, enough: bool
) -> None:
    job = known_job(windows=windows, odd=odd)
    job.meter.windows_learned = learned
    assert job.has_learned_enough() == enough
    job.meter.alone = None
    assert not job.has_learned_enough()


def test_the_first_try_is_after_a_minute_and_after_a_second_in_one_mps_daemon() -> None:
    apart, together = first_try(False, 7.0), first_try(True, 7.0)
    assert (apart.until_us, apart.longest_us) == (60 * SECOND_US + 7, 600 * SECOND_US)
    assert (together.until_us, together.longest_us) == (SECOND_US + 7, 60 * SECOND_US)


def test_going_together_begins_anew_and_staying_does_not() -> None:
    job = known_job()
    job.trials.shared_us, job.trials.level = 3.0, TOLERANT
    job.go_together(False)
    assert job.trials.level == TOLERANT and job.trials.back_off.until_us == 60 * SECOND_US
    job.go_together(True)
    assert job.trials.level == STRICT and job.trials.back_off.until_us == SECOND_US + 3
    assert (job.trials.harmless, known_job().trials.harmless) == (0.05, 0.02)


# ---- trials ----


def test_a_trial_that_proves_harmless_is_one_no_more() -> None:
    job = known_job()
    job.trials.level, job.trials.is_on_trial, job.trials.slowdowns = TOLERANT, True, [0.0] * 3
    job.meet(window(100.5, TOLERANT), SECOND_US, TOLERANT)
    assert (job.trials.level, job.trials.is_on_trial) == (TOLERANT, False)
    assert job.trials.proved is not None and job.trials.proved.overlap == pytest.approx(0.005 / 4)


def test_a_trial_is_over_after_four_windows_and_a_company_that_was_proved_has_more() -> None:
    for is_on_trial, becomes in ((True, STRICT), (False, TOLERANT)):
        job = known_job(spread=0.02)
        job.trials.level, job.trials.is_on_trial, job.trials.shared_us = TOLERANT, is_on_trial, 5.0
        for number in range(1, 5):
            assert job.trials.level == TOLERANT
            job.meet(window(101.0, TOLERANT), number * SECOND_US, TOLERANT)
        assert job.trials.level == becomes
        # It was under the limit: nothing was shown.
        assert job.trials.proved is None
        assert job.trials.back_off.until_us == (60 * SECOND_US + 5 if is_on_trial else 60 * SECOND_US)


def test_company_that_does_harm_is_ended_and_told() -> None:
    said: list[str] = []
    job = known_job(said)
    job.trials.level = TOLERANT
    job.meet(window(110.0, TOLERANT, began_us=SECOND_US), 3 * SECOND_US, TOLERANT)
    assert job.trials.level == STRICT and job.trials.slowdowns == []
    assert job.trials.proved is not None and job.trials.proved.overlap == pytest.approx(0.1)
    assert said[0].startswith("It was slowed down by 10.0% over the last 2.0 s, the limit is 2%: ")


@pytest.mark.parametrize(("level", "share"), [(TOLERANT, 0.94), (STRICT, 1.0)])
def test_a_window_of_another_level_or_of_a_part_is_not_judged(level: float, share: float) -> None:
    job = known_job()
    job.trials.level = TOLERANT
    job.meet(window(200.0, level, share=share), SECOND_US, TOLERANT)
    assert job.trials.level == TOLERANT and job.trials.slowdowns == []


def test_a_job_that_is_faster_beside_others_than_alone_is_not_known() -> None:
    job = known_job()
    job.trials.level = TOLERANT
    job.meet(window(97.0, TOLERANT), SECOND_US, TOLERANT)
    assert job.trials.level == STRICT and job.meter.alone is None


def test_too_noisy_a_job_is_not_tried_and_waits_for_the_next_time() -> None:
    job = known_job(spread=0.1, windows=64)
    job.trials.shared_us = 61 * SECOND_US
    for number in range(16):
        assert len(job.trials.slowdowns) == number and not job.trials.back_off.holds(job.trials.shared_us)
        job.meet(window(100.0 + number % 2), number * SECOND_US, TOLERANT)
        assert job.meter.alone is not None
        job.meter.alone.spread = 0.1
    assert (
        job.trials.level == STRICT
        and job.trials.back_off.until_us == 121 * SECOND_US
        and job.trials.slowdowns == []
    )


def test_a_slowdown_over_five_percent_in_the_gaps_is_worth_a_word() -> None:
    for cost, words in ((104.0, 0), (108.0, 1)):
        said: list[str] = []
        job = known_job(said)
        job.meet(window(cost), SECOND_US, TOLERANT)
        assert len(said) == words and job.trials.level == STRICT
        assert not said or "over 5%" in said[0]


def test_gross_company_ends_only_on_trial_between_bursts_and_after_two() -> None:
    def after(is_on_trial: bool, has_work: bool, bursts: int, busy_us: float) -> float:
        job = known_job()
        job.trials.level, job.trials.is_on_trial = TOLERANT, is_on_trial
        part = job.meter.parts[TOLERANT]
        part.grown = replace(part.grown, operations=10, bursts=bursts, busy_us=busy_us)
        job.end_gross_company(production(has_work=has_work), 0.0)
        return job.trials.level

    assert after(True, False, 2, 1_110.0) == STRICT
    assert after(True, False, 2, 1_090.0) == TOLERANT
    assert after(True, False, 1, 1_110.0) == TOLERANT
    assert after(True, True, 2, 1_110.0) == TOLERANT
    assert after(False, False, 2, 1_110.0) == TOLERANT


def test_a_burst_of_a_trial_that_does_not_end_ends_the_trial() -> None:
    for busy_us, becomes in ((1_490.0, TOLERANT), (1_510.0, STRICT)):
        job = known_job()
        job.trials.level, job.trials.is_on_trial = TOLERANT, True
        job.end_gross_company(production(has_work=True, operations=10, busy_us=busy_us), 0.0)
        assert job.trials.level == becomes
        assert job.trials.proved == (Met(0.1) if becomes == STRICT else None)


def test_with_a_promise_two_gross_bursts_of_overlap_in_mps_are_a_window_where_nothing_is_known() -> None:
    def after(
        busy_us: float = 1_400.0, bursts: int = 2, together: bool = True, **about: Any
    ) -> tuple[float, int]:
        job = known_job(promise=0.1)
        job.trials.is_together = together
        assert job.promise is not None
        job.promise.strict = Effect(0.0, windows=4)
        job.promise.position = about.pop("position", 1.5)
        job.promise.extra = Effect(0.01, windows=about.pop("known", 0.0))
        part = job.meter.parts[TOLERANT]
        part.grown = replace(part.grown, operations=10, bursts=bursts, busy_us=busy_us)
        part.at_level_us = busy_us
        job.end_gross_company(production(slowdown=0.1, **about), 0.0)
        return job.promise.extra.windows, job.meter.parts[TOLERANT].grown.bursts

    # 40 % more; gross is 10 % over what was promised.
    assert after() == (1.0, 0)
    assert after(busy_us=1_210.0) == (1.0, 0) and after(busy_us=1_190.0) == (0.0, 2)
    for about in ({"bursts": 1}, {"together": False}, {"has_work": True}, {"position": STRICT}):
        assert after(**about) == (0.0, about.get("bursts", 2)), about
    assert after(known=3.0) == (3.0, 2)


# ---- what earlier runs showed ----


def test_company_that_was_harmless_overlaps_at_once_on_trial() -> None:
    said: list[str] = []
    job = known_job(said)
    job.meet_company(BESIDE, Met(0.02), 7.0)
    assert (job.trials.level, job.trials.is_on_trial) == (TOLERANT, True)
    assert job.learn_from_us == 5 * SECOND_US + 7 and "from the beginning" in said[0]


def test_company_that_was_harmful_is_tried_later_by_how_far_that_is_trusted() -> None:
    said: list[str] = []
    job = known_job(said)
    job.trials.shared_us = SECOND_US
    job.meet_company(BESIDE, Met(0.021, trust=0.5), 7.0)
    assert job.trials.level == STRICT and job.learn_from_us == 0.0
    assert job.trials.back_off.until_us == 301 * SECOND_US and "after 300 s" in said[0]
    job.meet_company(BESIDE, Met(0.021, trust=0.25), 7.0)
    assert job.trials.back_off.until_us == 301 * SECOND_US


def test_with_a_promise_the_position_is_that_of_the_earlier_run() -> None:
    job = known_job(promise=0.1)
    job.meet_company(BESIDE, Met(0.2, 0.0), 7.0)
    assert job.position == pytest.approx(1 + 0.092 / 0.2)
    assert job.learn_from_us == SECOND_US + 7


def test_company_of_which_nothing_is_known_ends_an_overlap_that_others_proved() -> None:
    job = known_job()
    job.trials.level, job.trials.shared_us = TOLERANT, 9.0
    job.trials.prove(0.01)
    job.meet_company(BESIDE, None, 0.0)
    assert (job.trials.level, job.trials.proved, job.trials.back_off.until_us) == (
        STRICT,
        None,
        60 * SECOND_US + 9,
    )
    job.trials.level = TOLERANT
    job.meet_company(None, None, 0.0)
    assert (job.trials.level, job.company) == (TOLERANT, None)
    job.meet_company(Company("", frozenset({"train"}), False), None, 0.0)
    assert job.trials.level == TOLERANT


def test_another_promise_begins_strict_with_what_the_last_has_learned() -> None:
    job = known_job(promise=0.1)
    assert job.promise is not None
    job.promise.strict.add(0.05, 1.0, 1.0)
    job.promise.position = TOLERANT
    job.see(production(slowdown=0.2, has_work=True), 1.0)
    assert job.promise.limit == 0.2 and job.promise.strict.value == pytest.approx(0.05)
    assert job.position == STRICT and job.meter.exact == 0.01
    job.see(production(has_work=True), 2.0)
    assert job.standing.startswith("No slowdown was stated")


def test_windows_alone_are_learned_from_and_a_change_forgets_slowdowns() -> None:
    job = known_job()
    job.trials.slowdowns = [0.1]
    job.meet(window(100.0, SHUT), 5.0, TOLERANT)
    assert job.trials.slowdowns == [0.1] and job.alone is not None and job.alone.learned_us == 5.0
    for _ in range(2):
        job.meet(window(150.0, SHUT), 6.0, TOLERANT)
    assert job.trials.slowdowns == [] and job.alone.cost == 150.0


def test_what_was_counted_against_an_eager_jobs_cost_is_forgotten_when_it_is_no_longer_eager() -> None:
    job = known_job(promise=0.05)
    assert job.promise is not None
    job.meter.is_eager = True
    job.meet(window(110.0), SECOND_US, STRICT)
    assert job.position < STRICT and job.promise.strict.windows
    # Its CPU takes nothing of it now: the cost alone is all of it, and no longer only what the GPU took.
    job.meet(window(870.0, SHUT), 2 * SECOND_US, STRICT)
    assert job.alone is not None and job.alone.cost == 870.0
    assert job.position == STRICT and not job.promise.strict.windows
