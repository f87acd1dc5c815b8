"""guard keeps its promise and gives the rest away, whatever it is played against."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cotenant.classes import TenantClass
from cotenant.policies.guard.allowance import SHARE
from cotenant.policies.guard.policy import FIRST_CALIBRATION_US, Guard
from cotenant.policies.guard.position import STRICT, TOLERANT
from cotenant.policies.interface import Knobs, Rule, Tenant, TenantKnobs, View
from tests.policies.bench import NEIGHBOUR, PRODUCTION, TICK_US, Plant


def hurting(**about: Any) -> Plant:
    return Plant(strict_slowdown=0.01, tolerant_slowdown=0.5, **about)


def position(guard: Guard) -> float:
    return guard.jobs[PRODUCTION].position


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("promise", [0.02, 0.2])
def test_the_promise_holds_in_the_long_run(promise: float, seed: int) -> None:
    plant, guard = Plant(strict_slowdown=0.05, tolerant_slowdown=0.5, promise=promise, seed=seed), Guard()
    plant.play(guard, 10)
    # The cost alone is known from a few windows by then, each of which is off by a fifth of the smaller promise.
    assert plant.play(guard, 30).slowdown <= 1.1 * promise


def test_a_larger_promise_gives_the_neighbour_more() -> None:
    shares = {}
    for promise in (0.02, 0.2):
        plant, guard = Plant(strict_slowdown=0.05, tolerant_slowdown=0.5, promise=promise), Guard()
        plant.play(guard, 10)
        shares[promise] = plant.play(guard, 30).share
    assert shares[0.2] > shares[0.02] + 0.1


def test_harmless_company_is_tolerated() -> None:
    plant, guard = Plant(tolerant_slowdown=0.001), Guard()
    plant.play(guard, 120)
    assert position(guard) == 2
    # Half of production's quarter on top of the rest.
    assert plant.play(guard, 20).share > 0.8


def test_a_job_that_is_never_idle_shares_within_its_promise() -> None:
    plant, guard = Plant(tolerant_slowdown=0.5, every_us=0, promise=0.2), Guard()
    plant.play(guard, 10)
    outcome = plant.play(guard, 30)
    assert outcome.slowdown <= 0.2 and outcome.share > 0.1


def test_a_neighbour_that_begins_to_hurt_is_pushed_back() -> None:
    plant, guard = Plant(tolerant_slowdown=0.001, promise=0.05), Guard()
    plant.play(guard, 15)
    assert position(guard) == 2
    plant.tolerant_slowdown, plant.strict_slowdown = 0.8, 0.2
    plant.play(guard, 10)
    assert position(guard) < 1
    assert plant.play(guard, 30).slowdown <= 0.05


def test_who_was_shut_altogether_gets_another_chance() -> None:
    plant, guard = Plant(strict_slowdown=0.9, tolerant_slowdown=0.9, promise=0.02), Guard()
    positions = []
    plant.play(guard, 20, after_tick=lambda _: positions.append(position(guard)))
    assert min(positions) < 0.03
    plant.strict_slowdown = plant.tolerant_slowdown = 0.0
    plant.play(guard, 60)
    assert plant.play(guard, 5).share > 0.8


def test_without_a_stated_promise_every_gap_is_given_away() -> None:
    plant, guard = Plant(strict_slowdown=0.5, tolerant_slowdown=0.9), Guard()
    plant.play(guard, 10)
    outcome = plant.play(guard, 30)
    assert position(guard) == 1
    # The neighbour has what production leaves, but for the moments of learning.
    assert outcome.share > 0.95 * (1 - 0.25 * 1.5) and outcome.shut < 0.02
    assert "--slowdown" in guard.explain(PRODUCTION)[0]


def test_learning_costs_the_neighbour_little() -> None:
    plant, guard = hurting(promise=0.05), Guard()
    plant.play(guard, 10)
    assert plant.play(guard, 60).shut < SHARE


def test_what_is_known_from_pauses_of_the_neighbour_is_not_learned_again() -> None:
    plant, guard = hurting(has_neighbour=False), Guard()
    plant.play(guard, 2)
    plant.has_neighbour = True
    assert plant.play(guard, 5).shut == 0


def test_another_job_is_learned_anew() -> None:
    plant, guard = hurting(promise=0.05), Guard()
    plant.play(guard, 3)
    before = guard.jobs[PRODUCTION].alone
    assert before is not None
    assert before.cost == pytest.approx(100, rel=0.05)
    plant.operations, plant.operation_us = 300, 50.0
    plant.play(guard, 4)
    after = guard.jobs[PRODUCTION].alone
    assert after is not None
    assert after.cost == pytest.approx(50, rel=0.05)
    assert plant.play(guard, 30).slowdown <= 0.05


def test_a_noisy_job_does_not_make_the_lever_flap() -> None:
    plant, guard = Plant(tolerant_slowdown=0.001, noise=0.1), Guard()
    plant.play(guard, 30)
    positions: list[float] = []
    plant.play(guard, 60, after_tick=lambda _: positions.append(position(guard)))
    assert sum(one != other for one, other in pairwise(positions)) <= 2


@pytest.mark.parametrize("promise", [None, 0.2])
def test_company_that_brings_nothing_is_seldom_tolerated(promise: float | None) -> None:
    plant, guard = Plant(tolerant_slowdown=0.01, overlap=0.0, promise=promise), Guard()
    plant.play(guard, 60)
    positions: list[float] = []
    plant.play(guard, 300, after_tick=lambda _: positions.append(position(guard)))
    assert 0 < sum(one > 1 for one in positions) < 0.1 * len(positions)


def test_harmful_company_is_seldom_tried() -> None:
    plant, guard = Plant(tolerant_slowdown=0.5), Guard()
    plant.play(guard, 30)
    positions: list[float] = []
    plant.play(guard, 600, after_tick=lambda _: positions.append(position(guard)))
    assert 0 < sum(one == 2 for one in positions) < 0.01 * len(positions)


def tolerates(knobs: Knobs) -> bool:
    return knobs.tenants.get(PRODUCTION, TenantKnobs()).tolerant


def test_a_try_of_company_costs_production_a_few_bursts() -> None:
    plant, guard = Plant(tolerant_slowdown=1.0), Guard()
    is_try: list[bool] = []
    plant.play(guard, 59, after_tick=lambda knobs: is_try.append(tolerates(knobs)))
    assert not any(is_try)  # what the first minute shows is not risked
    plant.play(guard, 600, after_tick=lambda knobs: is_try.append(tolerates(knobs)))
    tries = [len(list(run)) for tried, run in groupby(is_try) if tried]
    assert tries and max(tries) * TICK_US <= 5 * plant.every_us


def test_company_that_does_not_prove_harmless_soon_is_given_up() -> None:
    plant, guard = Plant(tolerant_slowdown=0.02, noise=0.02), Guard()
    positions: list[float] = []
    plant.play(guard, 600, after_tick=lambda _: positions.append(position(guard)))
    tries = [len(list(run)) for is_try, run in groupby(positions, lambda one: one == 2) if is_try]
    assert tries and max(tries) * TICK_US <= 50 * plant.every_us


def test_a_job_too_noisy_to_judge_is_not_tried() -> None:
    plant, guard = Plant(tolerant_slowdown=0.05, noise=0.3), Guard()
    positions: list[float] = []
    outcome = plant.play(guard, 600, after_tick=lambda _: positions.append(position(guard)))
    assert 2 not in positions and outcome.shut < 0.01


def test_without_a_promise_nothing_is_learned_that_is_not_needed() -> None:
    plant, guard = Plant(tolerant_slowdown=0.5), Guard()
    assert plant.play(guard, 55).shut == 0


def test_a_slow_job_is_learned_in_several_calibrations() -> None:
    plant, guard = Plant(strict_slowdown=0.3, every_us=300_000, promise=0.1), Guard()
    plant.play(guard, 30)
    assert guard.jobs[PRODUCTION].alone is not None
    assert plant.play(guard, 60).slowdown <= 0.1


def cost_alone(guard: Guard) -> float:
    alone = guard.jobs[PRODUCTION].alone
    assert alone is not None
    return alone.cost


@pytest.mark.parametrize("shows_moves", [True, False])
def test_what_memory_that_moves_does_is_no_reason_to_shut_anybody(shows_moves: bool) -> None:
    plant = Plant(promise=0.2, strict_slowdown=0.02, tolerant_slowdown=0.5, shows_moves=shows_moves)
    guard, positions, costs = Guard(), [], []
    plant.play(guard, 5)
    plant.move_us, plant.move_slowdown = 400_000, 0.5

    def look(_: Knobs) -> None:
        positions.append(position(guard))
        costs.append(cost_alone(guard))

    plant.play(guard, 90, after_tick=look)
    if shows_moves:
        assert min(positions) >= 1 and costs == pytest.approx([100] * len(costs), rel=0.02)
    else:
        # The same windows, when nobody is known to move: it goes down for them, and learns them as the cost alone.
        assert min(positions) <= 1 and max(costs) > 110


@pytest.mark.parametrize(("move_us", "every_us"), [(5_000, 105_000), (500_000, 850_000)])
def test_between_moves_the_promise_holds_however_short_the_time_between_them(
    move_us: float, every_us: float
) -> None:
    plant, guard = (
        Plant(strict_slowdown=0.5, every_us=60_000, promise=0.2, move_us=move_us, move_every_us=every_us),
        Guard(),
    )
    plant.play(guard, 20)
    assert cost_alone(guard) == pytest.approx(100, rel=0.02)
    assert plant.play(guard, 60).slowdown <= 0.2 and position(guard) > 0.2


def test_a_job_that_is_never_idle_is_guarded_between_moves() -> None:
    plant, guard = Plant(tolerant_slowdown=0.5, every_us=0, promise=0.2, move_us=500_000), Guard()
    plant.play(guard, 20)
    outcome = plant.play(guard, 30)
    assert outcome.slowdown <= 0.2 and outcome.share > 0.1


@pytest.mark.parametrize(
    ("every_us", "move_us", "move_every_us"), [(18_000, 250_000, 850_000), (35_000, 3_000, 104_000)]
)
def test_what_a_move_of_any_length_delayed_is_left_out(
    every_us: float, move_us: float, move_every_us: float
) -> None:
    plant = Plant(
        every_us=every_us, promise=0.2, move_us=move_us, move_every_us=move_every_us, move_slowdown=2
    )
    guard, costs = Guard(), []
    plant.play(guard, 10)
    plant.play(guard, 60, after_tick=lambda _: costs.append(cost_alone(guard)))
    assert costs == pytest.approx([100] * len(costs), rel=0.01) and position(guard) == 2


def test_a_move_that_never_ends_is_none() -> None:
    plant, guard = Plant(strict_slowdown=0.5, promise=0.2, move_us=1e6, move_every_us=1e6), Guard()
    plant.play(guard, 40)
    assert plant.play(guard, 30).slowdown <= 0.2


def shuts(knobs: Knobs) -> bool:
    return any(one.shut for one in knobs.tenants.values())


def test_a_move_neither_begins_nor_lengthens_a_calibration() -> None:
    plant, guard = Plant(strict_slowdown=0.1, promise=0.2, move_us=2e6, move_every_us=2.2e6), Guard()
    is_shut: list[bool] = []
    plant.play(guard, 1.9, after_tick=lambda knobs: is_shut.append(shuts(knobs)))
    assert not any(is_shut)
    plant.play(guard, 30, after_tick=lambda knobs: is_shut.append(shuts(knobs)))
    lasted = [len(list(run)) * TICK_US for shut, run in groupby(is_shut) if shut]
    assert lasted and max(lasted) <= FIRST_CALIBRATION_US
    assert cost_alone(guard) == pytest.approx(100, rel=0.02)


def test_nothing_stays_behind_when_the_neighbour_or_the_production_job_is_lost() -> None:
    plant, guard = Plant(strict_slowdown=0.5, promise=0.02), Guard()
    plant.play(guard, 20)
    assert position(guard) < 1
    plant.has_neighbour = False
    seen: list[Knobs] = []
    plant.play(guard, 1, after_tick=seen.append)
    assert not any(knobs.tenants for knobs in seen)
    plant.has_neighbour, plant.has_production = True, False
    assert plant.play(guard, 5).shut <= TICK_US / 5e6
    assert guard.jobs == {}


def test_a_production_job_that_pauses_holds_nobody_back() -> None:
    plant, guard = Plant(strict_slowdown=0.5, promise=0.02), Guard()
    plant.play(guard, 20)
    plant.next_us = plant.now_us + 60e6
    plant.play(guard, 3)
    assert plant.play(guard, 5).shut == 0


def test_the_smallest_position_counts() -> None:
    guard = Guard()
    first, second = (
        Plant(strict_slowdown=0.0, tolerant_slowdown=0.0),
        Plant(strict_slowdown=0.5, promise=0.02),
    )
    held = 0
    for tick in range(3000):
        others = [replace(one, id=one.id + 10) for one in second.view().tenants if one.id == PRODUCTION]
        knobs = guard.tick(View(first.now_us, [*first.view().tenants, *others]))
        first.knobs = second.knobs = knobs
        first.advance(first.now_us + TICK_US)
        second.advance(second.now_us + TICK_US)
        held += tick > 1000 and any(each.shut or each.rate for each in knobs.tenants.values())
    assert guard.jobs[PRODUCTION].position > guard.jobs[PRODUCTION + 10].position
    assert held > 1900


def test_a_changed_promise_is_followed() -> None:
    plant, guard = Plant(strict_slowdown=0.2, tolerant_slowdown=0.5, promise=0.02), Guard()
    plant.play(guard, 15)
    assert position(guard) < 1
    plant.promise = None
    plant.play(guard, 1)
    assert position(guard) >= 1


def test_it_says_what_it_does_in_numbers() -> None:
    plant, guard = Plant(strict_slowdown=0.3, promise=0.05), Guard()
    plant.play(guard, 5)
    lines = guard.explain(PRODUCTION)
    assert "operation takes 100." in lines[-1] or "operation takes 9" in lines[-1]
    assert any("its promise is 5.0%" in line and "of its gaps now" in line for line in lines)
    # What it knows now comes first.
    assert "us alone, where windows vary by" in lines[0] and "% lately beside others: " in lines[0]
    assert f"others have {position(guard):.0%} of its gaps now. All of its gaps would cost" in lines[0]
    assert guard.explain(NEIGHBOUR) == lines
    assert guard.explain(99) == []
    plant.play(guard, 120)
    assert len(guard.explain(PRODUCTION)) <= 21


def test_two_of_the_same_make_the_same_decisions() -> None:
    def played() -> list[Knobs]:
        seen: list[Knobs] = []
        hurting(promise=0.05, noise=0.1).play(Guard(), 5, after_tick=seen.append)
        return seen

    assert played() == played()


tenants = st.builds(
    Tenant,
    id=st.integers(1, 5),
    tenant_class=st.sampled_from(TenantClass),
    slowdown=st.none() | st.floats(0.001, 10),
    floor=st.floats(0, 0.9),
    has_work=st.booleans(),
    is_held=st.booleans(),
    used_us=st.floats(0, 1e9),
    busy_us=st.floats(0, 1e9),
    operations=st.integers(0, 10**9),
    bursts=st.integers(0, 10**6),
    moved_us=st.floats(0, 1e8),
)
steps = st.tuples(st.floats(0, 5e6), st.lists(tenants, max_size=5, unique_by=lambda one: one.id))


@settings(max_examples=25, deadline=None)
@given(st.lists(steps, max_size=30))
def test_whatever_it_sees_it_never_turns_against_its_own(seen: list[tuple[float, list[Tenant]]]) -> None:
    """Production is never shut, only production is tolerant, nobody who is not there is named, and no tick fails,
    also where tenants come, go and change their class between two ticks and counts jump."""
    guard, now_us = Guard(), 0.0
    for later_us, there in seen:
        now_us += later_us
        knobs = guard.tick(View(now_us, there))
        assert knobs.rule is Rule.strict
        by_id = {one.id: one for one in there}
        assert set(knobs.tenants) <= set(by_id)
        for number, wanted in knobs.tenants.items():
            is_production = by_id[number].tenant_class is TenantClass.production
            assert not (wanted.shut and is_production)
            assert not (wanted.tolerant and not is_production)
        for job in guard.jobs.values():
            if job.promise is None:
                assert job.position in (STRICT, TOLERANT)
            assert 0 < job.position <= TOLERANT
        if not any(one.tenant_class is TenantClass.production for one in there):
            assert not knobs.tenants
        for one in there:
            guard.explain(one.id)


# Not shrunk: each example is half a minute of a GPU. The same ones each time: strict=0.44, extra=0.003, promise=0.1,
# every_us=60_000, seed=3 is known to be missed, by 0.126 to 0.125.
@settings(max_examples=5, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(
    strict=st.floats(0, 0.5),
    extra=st.floats(0, 0.5),
    promise=st.sampled_from([0.05, 0.1, 0.3]),
    every_us=st.sampled_from([0.0, 15_000.0, 60_000.0]),
    seed=st.integers(0, 5),
)
def test_no_plant_breaks_the_promise_by_much(
    strict: float, extra: float, promise: float, every_us: float, seed: int
) -> None:
    plant = Plant(
        strict_slowdown=strict if every_us else 0.0,
        tolerant_slowdown=strict + extra,
        every_us=every_us,
        operations=40,
        promise=promise,
        seed=seed,
    )
    guard = Guard()
    plant.play(guard, 15)
    assert plant.play(guard, 20).slowdown <= 1.25 * promise


def eager(**about: Any) -> Plant:
    """Its CPU takes eight times as long as the GPU, and never the same time twice."""
    return Plant(every_us=200_000, host_us=800.0, host_noise=0.4, overlap=0.9, promise=0.05, **about)


@pytest.mark.parametrize("seed", range(3))
def test_what_varies_by_a_jobs_own_cpu_is_no_slowdown(seed: int) -> None:
    plant, guard = eager(strict_slowdown=0.1, tolerant_slowdown=0.3, seed=seed), Guard()
    plant.play(guard, 15)
    # A third of a ninth: overlap costs less than the promise, however the CPU varies.
    outcome = plant.play(guard, 30)
    assert outcome.share > 0.75 and outcome.slowdown <= 0.05


@pytest.mark.parametrize("seed", range(2))
def test_in_one_mps_daemon_harmless_overlap_is_found_in_seconds(seed: int) -> None:
    plant, guard = replace(eager(tolerant_slowdown=0.3, seed=seed), promise=None, mps_daemon=7), Guard()
    plant.play(guard, 10)
    assert position(guard) == TOLERANT
    outcome = plant.play(guard, 10)
    assert outcome.share > 0.85 and outcome.slowdown <= 0.05


@pytest.mark.parametrize("polls", [False, True])
def test_gpu_time_that_a_jobs_cpu_runs_ahead_of_costs_it_nothing(polls: bool) -> None:
    """Where it is seen to wait for the GPU. By its GPU time alone such a job would seem slowed down by 22 %."""
    plant = replace(eager(tolerant_slowdown=2.0, hidden=0.9), promise=None, mps_daemon=7, polls=polls)
    guard = Guard()
    plant.play(guard, 10)
    outcome = plant.play(guard, 10)
    assert outcome.slowdown <= 0.05
    assert outcome.share < 0.7 if polls else outcome.share > 0.85


def test_a_job_that_hardly_waits_for_the_gpu_need_not_be_measured_twice() -> None:
    """As seen on an H200: one window alone was known, and the time for another was used up."""
    plant, guard = replace(eager(tolerant_slowdown=2.0, hidden=0.9), promise=None, mps_daemon=7), Guard()
    while PRODUCTION not in guard.jobs or guard.jobs[PRODUCTION].alone is None:
        plant.play(guard, 0.1)
    alone = guard.jobs[PRODUCTION].alone
    assert alone
    alone.windows = 1
    guard.allowance.left_us = -10_000_000.0
    plant.play(guard, 5)
    assert position(guard) == TOLERANT


def test_overlap_that_hurts_is_seen_although_the_job_waits_in_its_own_way() -> None:
    """It waits inside the driver as well, but for nothing."""
    plant, guard = replace(eager(tolerant_slowdown=30.0), promise=None, mps_daemon=7), Guard()

    def view(self: Plant = plant) -> View:
        seen = Plant.view(self)
        tenants = [replace(one, blocked_us=0.0) for one in seen.tenants]
        return replace(seen, tenants=tenants)

    plant.view = view  # type: ignore[method-assign]
    levels: list[float] = []
    plant.play(guard, 40, after_tick=lambda _: levels.append(position(guard)))
    assert levels.count(TOLERANT) < 0.1 * len(levels)


def test_a_job_that_is_faster_beside_others_than_alone_is_measured_again_before_it_overlaps() -> None:
    """As seen on an H200: a cost alone that was three times too high made a ruinous overlap look harmless."""
    plant, guard = replace(eager(tolerant_slowdown=9.0), host_us=20.0, promise=None, mps_daemon=7), Guard()
    plant.play(guard, 4)
    job = guard.jobs[PRODUCTION]
    assert job.alone is not None
    job.alone.cost *= 3
    levels: list[float] = []
    plant.play(guard, 4, after_tick=lambda _: levels.append(position(guard)))
    assert levels.count(TOLERANT) < 0.05 * len(levels)


@pytest.mark.parametrize("about", [{"tolerant_slowdown": 2.0}, {"tolerant_slowdown": 0.3, "mps_daemon": 0}])
def test_overlap_that_hurts_or_only_takes_turns_is_not_kept(about: dict[str, Any]) -> None:
    plant, guard = replace(eager(), promise=None, **({"mps_daemon": 7} | about)), Guard()
    levels: list[float] = []
    outcome = plant.play(guard, 40, after_tick=lambda _: levels.append(position(guard)))
    assert levels.count(TOLERANT) < 0.1 * len(levels) and outcome.slowdown <= 0.05


@pytest.mark.parametrize("seed", range(3))
def test_what_sharing_costs_an_eager_job_is_seen_through_its_cpus_noise(seed: int) -> None:
    plant, guard = eager(strict_slowdown=0.1, tolerant_slowdown=2.0, seed=seed), Guard()
    plant.play(guard, 15)
    outcome = plant.play(guard, 30)
    assert outcome.slowdown <= 1.25 * 0.05 and outcome.share > 0.5
