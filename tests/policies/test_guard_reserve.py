"""In one MPS daemon guard finds how many SMs a neighbour may have beside production: as many as are harmless, and where
none are, what does production the least harm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.classes import TenantClass
from cotenant.policies.guard.policy import Guard
from cotenant.policies.guard.position import STRICT, TOLERANT
from cotenant.policies.guard.reserve import ALL, MORE, SHARES, Reserve, best_share, work
from cotenant.policies.guard.spatial import GuardSpatial
from cotenant.policies.interface import Knobs, Met, Pair, TenantKnobs, View
from cotenant.simulator import ArrivalKind, Arrivals, Job, Op, OpKind, Study, Workload
from tests.policies.bench import NEIGHBOUR, PRODUCTION, TICK_US, Plant

SERVE, TRAIN = "serve.py", "train.py"
PAIR = Pair(SERVE, TRAIN, True)
WORK = {1.0: 0.9, 0.75: 0.85, 0.5: 0.75}  # the neighbour's speed beside production


class Seen(NamedTuple):
    tolerant: bool
    sm_share: float
    shut: bool


@dataclass
class Reserved(Plant):
    """What overlap costs production depends on the SMs that the neighbour's kernels get. What it had launched before
    its limit changed still runs for `queued_us`."""

    harm: Mapping[float, float] = field(default_factory=dict)
    mps_daemon: int = 7
    every_us: float = 20_000.0
    operations: int = 50
    queued_us: float = 100_000.0
    seen: list[Seen] = field(default_factory=list)
    takes_sm_share: bool = True

    def advance(self, until_us: float) -> None:
        neighbour = self.knobs.tenants.get(NEIGHBOUR, TenantKnobs())
        production = self.knobs.tenants.get(PRODUCTION, TenantKnobs())
        self.seen.append(Seen(production.tolerant, neighbour.sm_share or ALL, neighbour.shut))
        recent = self.seen[-max(round(self.queued_us / TICK_US), 1) :]
        sm_share = max(one.sm_share for one in recent) if self.takes_sm_share else ALL
        self.tolerant_slowdown, self.overlap = self.harm[sm_share], WORK[sm_share]
        super().advance(until_us)

    def view(self) -> View:
        seen = super().view()
        for one in seen.tenants:
            one.__dict__["takes_sm_share"] = self.takes_sm_share
        return seen


def beside(all_sms: float, three_quarters: float, half: float, **about: Any) -> Reserved:
    return Reserved(harm=dict(zip(SHARES, (all_sms, three_quarters, half), strict=True)), **about)


def held(plant: Reserved, guard: Guard, seconds: float) -> set[tuple[bool, float]]:
    """What holds while nothing is measured."""
    begin = len(plant.seen)
    plant.play(guard, seconds)
    return {(one.tolerant, one.sm_share) for one in plant.seen[begin:] if not one.shut}


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (beside(0.01, 0.0, 0.0), (True, 1.0)),
        (beside(0.12, 0.02, 0.01), (True, 0.75)),
        (beside(0.5, 0.12, 0.01), (True, 0.5)),
        (beside(0.3, 0.3, 0.3), (False, 1.0)),
        (beside(0.5, 0.4, 0.3, strict_slowdown=0.08), (False, 1.0)),
        # Turns cost more than overlap does: the least harm, and where that is the same the most work.
        (beside(0.23, 0.14, 0.10, strict_slowdown=0.4), (True, 0.5)),
        (beside(0.23, 0.225, 0.22, strict_slowdown=0.4), (True, 1.0)),
        (beside(0.23, 0.02, 0.01, strict_slowdown=0.4), (True, 0.75)),
    ],
    ids=["harmless", "three quarters", "half", "no effect", "turns", "lesser evil", "all the same", "better"],
)
def test_the_most_sms_that_are_harmless_are_found_in_seconds(
    plant: Reserved, found: tuple[bool, float]
) -> None:
    guard = Guard()
    plant.play(guard, 18)
    assert held(plant, guard, 10) == {found}


@pytest.mark.parametrize(("least", "goes_on"), [(2.7, True), (2.9, False)])
def test_overlap_that_is_about_as_bad_as_turns_is_no_lesser_evil(least: float, goes_on: bool) -> None:
    reserve = Reserve(strict=3.0)
    for _ in SHARES[1:]:
        reserve.prepare(3.0)
        assert not reserve.fail(3.1)
    reserve.prepare(3.0)
    assert reserve.fail(least) is goes_on and reserve.is_lesser_evil is goes_on


def test_a_share_is_in_force_before_its_trial_so_that_what_was_queued_does_not_end_it() -> None:
    plant, guard = beside(0.5, 0.02, 0.01), Guard()
    plant.play(guard, 20)
    runs = [key for key, _ in groupby(plant.seen)]
    before = [one for one, after in pairwise(runs) if after.tolerant and after.sm_share < ALL]
    assert before and all(one.sm_share == 0.75 for one in before)


def test_harm_ends_a_trial_of_any_share_within_a_few_bursts() -> None:
    plant, guard = beside(0.6, 0.5, 0.4), Guard()
    plant.play(guard, 60)
    tries = [(one.sm_share, len(list(run))) for one, run in groupby(plant.seen) if one.tolerant]
    assert {share for share, _ in tries} == set(SHARES)
    assert max(ticks for _, ticks in tries) * TICK_US <= 100_000


def test_a_neighbour_without_effect_is_tried_no_more_often_than_before() -> None:
    plant, guard = beside(0.5, 0.5, 0.5), Guard()
    plant.play(guard, 120)
    assert sum(one.tolerant for one in plant.seen) < 0.01 * len(plant.seen)


def test_a_neighbour_that_cannot_be_limited_is_given_no_share() -> None:
    plant, guard = beside(0.3, 0.01, 0.01, takes_sm_share=False), Guard()
    plant.play(guard, 30)
    assert {one.sm_share for one in plant.seen} == {ALL}


@pytest.mark.parametrize("promise", [None, 0.1])
def test_without_one_mps_daemon_there_is_no_share(promise: float | None) -> None:
    plant, guard = beside(0.12, 0.01, 0.0, mps_daemon=0, promise=promise), Guard()
    plant.play(guard, 150)
    assert {one.sm_share for one in plant.seen} == {ALL}


def test_more_sms_are_tried_again_and_kept_when_they_have_become_harmless() -> None:
    plant, guard = beside(0.3, 0.02, 0.01), Guard()
    plant.play(guard, 20)
    plant.harm = dict.fromkeys(SHARES, 0.01)
    assert held(plant, guard, 20) == {(True, 0.75)}
    plant.play(guard, 60)
    assert held(plant, guard, 10) == {(True, 1.0)}
    assert any("more SMs is tried again" in one for one in guard.explain(PRODUCTION))


def test_a_new_phase_of_production_begins_another_round() -> None:
    plant, guard = beside(0.3, 0.02, 0.01), Guard()
    plant.play(guard, 15)
    plant.operation_us, plant.harm = 60.0, dict.fromkeys(SHARES, 0.01)
    plant.play(guard, 35)
    assert held(plant, guard, 5) == {(True, 1.0)}


def test_a_neighbour_that_begins_to_hurt_gets_fewer_sms_and_then_none_beside_production() -> None:
    plant, guard = beside(0.3, 0.02, 0.01), Guard()
    plant.play(guard, 15)
    plant.harm = {1.0: 0.4, 0.75: 0.3, 0.5: 0.01}
    plant.play(guard, 15)
    assert held(plant, guard, 5) == {(True, 0.5)}
    plant.harm = dict.fromkeys(SHARES, 0.4)
    plant.play(guard, 1)
    assert guard.jobs[PRODUCTION].position == STRICT
    assert plant.play(guard, 20).slowdown < 0.02


def test_a_share_that_brings_the_neighbour_nothing_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WORK, 0.5, 0.0)
    plant, guard = beside(0.3, 0.3, 0.01, every_us=100_000.0), Guard()
    plant.play(guard, 30)
    assert held(plant, guard, 10) == {(False, 1.0)}


def test_a_pair_begins_with_the_share_of_its_last_run_and_explain_says_so() -> None:
    first, second = Guard(), Guard()
    beside(0.3, 0.02, 0.01, programs=(SERVE, TRAIN)).play(first, 15)
    met = first.learned()
    assert met[PAIR].sm_share == 0.75 and met[PAIR].overlap < 0.05
    second.recall(met)
    again = beside(0.3, 0.02, 0.01, programs=(SERVE, TRAIN))
    again.play(second, 0.1)
    assert held(again, second, 5) == {(True, 0.75)}
    assert any("75% of the SMs from the beginning" in one for one in second.explain(PRODUCTION))
    assert second.explain(NEIGHBOUR) == second.explain(PRODUCTION)


def test_a_pair_whose_turns_cost_more_overlaps_from_the_beginning() -> None:
    guard = Guard()
    guard.recall({PAIR: Met(0.2, strict=0.4, sm_share=0.5)})
    plant = beside(0.3, 0.25, 0.2, strict_slowdown=0.4, programs=(SERVE, TRAIN))
    plant.play(guard, 0.1)
    assert held(plant, guard, 20) == {(True, 0.5)}
    alike = Guard()
    alike.recall({PAIR._replace(together=False): Met(0.2, strict=0.4, sm_share=0.5)})
    apart = beside(0.3, 0.25, 0.2, strict_slowdown=0.4, programs=(SERVE, TRAIN), mps_daemon=0)
    assert held(apart, alike, 20) == {(False, 1.0)}


# With a promise


def busy(*harm: float, **about: Any) -> Reserved:
    """Production is at work for 5 of 6 ms: what the neighbour gets, it gets beside it."""
    return beside(*harm, promise=0.1, every_us=6000.0, **about)


@pytest.mark.parametrize(
    ("plant", "share"),
    [
        (busy(0.05, 0.02, 0.01), 1.0),
        (busy(0.5, 0.12, 0.01), 0.75),
        (busy(2.0, 0.5, 0.01), 0.5),
        (busy(2.0, 2.0, 2.0), 1.0),
        # It would lose more of production's pauses than it gains beside it.
        (beside(2.0, 0.5, 0.01, promise=0.1, every_us=40_000.0), 1.0),
    ],
    ids=["harmless", "three quarters", "half", "no effect", "seldom at work"],
)
def test_with_a_promise_the_share_holds_with_which_the_neighbour_does_most(
    plant: Reserved, share: float
) -> None:
    guard = Guard()
    plant.play(guard, 12)
    begin = len(plant.seen)
    outcome = plant.play(guard, 12)
    assert {one.sm_share for one in plant.seen[begin:]} == {share}
    assert outcome.slowdown <= 0.1 or share == ALL


def test_with_a_promise_a_share_is_in_force_before_it_is_tried() -> None:
    plant, guard = busy(0.5, 0.12, 0.01), Guard()
    plant.play(guard, 12)
    for (before, _), (after, run) in pairwise((one, len(list(run))) for one, run in groupby(plant.seen)):
        assert not (after.tolerant and before.sm_share != after.sm_share), run


def test_with_a_promise_gross_harm_of_the_first_overlap_is_learned_from_two_bursts() -> None:
    plant, guard = beside(2.0, 2.0, 2.0, promise=0.1), Guard()
    plant.play(guard, 20)
    first = next(i for i, one in enumerate(plant.seen) if one.tolerant)
    begins = [one.tolerant for one in plant.seen[first : first + 100]]
    assert sum(begins) * TICK_US <= 100_000  # 20 % of this second would be twice as much


def test_with_a_promise_a_pair_begins_with_the_share_of_its_last_run() -> None:
    first, second = Guard(), Guard()
    busy(2.0, 0.5, 0.01, programs=(SERVE, TRAIN)).play(first, 20)
    met = first.learned()
    assert met[PAIR].sm_share == 0.5
    second.recall(met)
    again = busy(2.0, 0.5, 0.01, programs=(SERVE, TRAIN))
    again.play(second, 15)
    assert {one.sm_share for one in again.seen if one.tolerant} == {0.5}
    assert held(again, second, 5) == {(True, 0.5)}


@given(
    positions=st.lists(st.floats(0.0, TOLERANT), min_size=3, max_size=3),
    production=st.floats(0.05, 0.95),
)
def test_the_share_of_the_most_work_is_found_with_no_trial_that_could_not_pay(
    positions: list[float], production: float
) -> None:
    truth = dict(zip(SHARES, sorted(positions), strict=True))  # fewer SMs do less harm

    def brings(share: float, position: float) -> float:
        return work(share, position, production)

    known = {ALL: truth[ALL]}
    while (share := best_share(brings, known)) not in known:
        assert brings(share, TOLERANT) > max(brings(one, at) for one, at in known.items())
        known[share] = truth[share]
    most = max(brings(one, at) for one, at in truth.items())
    assert brings(share, truth[share]) >= most / MORE


# Kernels that nothing cuts


def test_where_turns_in_mps_do_gross_harm_the_neighbour_is_kept_off_within_a_window() -> None:
    plant, guard = beside(2.8, 2.8, 2.8, has_neighbour=False), Guard()
    plant.play(guard, 2)
    plant.has_neighbour, plant.strict_slowdown = True, 2.7
    plant.play(guard, 0.3)
    assert guard.jobs[PRODUCTION].position < 0.1
    assert plant.play(guard, 20).slowdown <= 0.07
    assert any("MPS cuts no kernel" in one for one in guard.explain(PRODUCTION))
    # It is not a promise, and ends when turns are fair.
    plant.strict_slowdown, plant.harm = 0.0, dict.fromkeys(SHARES, 0.01)
    plant.play(guard, 40)
    assert guard.jobs[PRODUCTION].promise is None
    assert held(plant, guard, 5) == {(True, 1.0)}


def test_long_kernels_in_simulated_mps_are_kept_off_and_turns_that_cut_them_are_not_needed() -> None:
    """`small` beside `longk` of bench/pairs, whose kernels hold 80 % of the SMs for 10 ms."""
    requests = Arrivals(ArrivalKind.poisson, rate=100)
    graph, product = Op(kind=OpKind.graph, us=600, sms=0.7), Op(us=10_000, sms=0.8, repeat=4)
    small = Job("small", TenantClass.production, ops=(graph,), arrivals=requests)
    longk = Job("longk", TenantClass.opportunistic, ops=(product,), waits=False, trains=True, begins_s=2.0)
    positions: dict[float, float] = {}

    class Watched(GuardSpatial):
        def tick(self, view: View) -> Knobs:
            knobs = super().tick(view)
            positions[view.now_us / 1e6] = min((job.position for job in self.jobs.values()), default=STRICT)
            return knobs

    Study(Workload("uncut", (small, longk)), seconds=8).run(Watched)
    assert all(position == STRICT for at, position in positions.items() if at < 2)
    assert all(position < 0.1 for at, position in positions.items() if at > 2.3)


def test_gross_harm_of_turns_is_remembered_and_kept_off_from_the_beginning() -> None:
    first, second = Guard(), Guard()
    about = {"strict_slowdown": 2.7, "programs": (SERVE, TRAIN)}
    beside(2.8, 2.8, 2.8, **about).play(first, 10)
    met = first.learned()
    assert met[PAIR].overlap > 0.5 and met[PAIR].strict > 0.5
    second.recall(met)
    again = beside(2.8, 2.8, 2.8, **about)
    again.play(second, 0.1)
    assert second.jobs[PRODUCTION].position < 0.1
    assert again.play(second, 20).slowdown <= 0.08


def test_outside_of_mps_turns_are_as_ever() -> None:
    plant, guard = beside(2.8, 2.8, 2.8, strict_slowdown=2.7, mps_daemon=0), Guard()
    plant.play(guard, 20)
    assert guard.jobs[PRODUCTION].position == STRICT


def test_overlap_that_has_become_gross_ends_within_a_few_bursts() -> None:
    plant, guard = beside(0.01, 0.01, 0.01), Guard()
    plant.play(guard, 20)
    plant.harm = dict.fromkeys(SHARES, 2.0)
    plant.play(guard, 0.1)
    assert guard.jobs[PRODUCTION].position == STRICT


def test_a_round_of_trials_is_over_within_seconds_of_its_first() -> None:
    plant, guard = beside(0.5, 0.5, 0.01), Guard()
    plant.play(guard, 20)
    first, last = (
        next(i for i, one in enumerate(plant.seen) if one.tolerant and one.sm_share == share)
        for share in (1.0, 0.5)
    )
    assert (last - first) * TICK_US <= 1_500_000


def test_knobs_say_a_share_for_the_lower_classes_only() -> None:
    plant, guard = beside(0.3, 0.02, 0.01), Guard()
    seen: list[Knobs] = []
    plant.play(guard, 15, after_tick=seen.append)
    assert guard.jobs[PRODUCTION].position == TOLERANT
    assert all(knobs.tenants.get(PRODUCTION, TenantKnobs()).sm_share is None for knobs in seen)
    plant.has_neighbour = False
    assert not guard.tick(plant.view()).tenants.get(NEIGHBOUR)
