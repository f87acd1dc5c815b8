"""In one MPS daemon guard finds how many SMs a neighbour may have beside production: as many as are harmless, and where
none are, what does production the least harm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import pytest

from cotenant.policies.guard.policy import Guard
from cotenant.policies.guard.position import STRICT, TOLERANT
from cotenant.policies.guard.reserve import ALL, SHARES, Reserve
from cotenant.policies.interface import Knobs, Met, Pair, TenantKnobs, View
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


def test_knobs_say_a_share_for_the_lower_classes_only() -> None:
    plant, guard = beside(0.3, 0.02, 0.01), Guard()
    seen: list[Knobs] = []
    plant.play(guard, 15, after_tick=seen.append)
    assert guard.jobs[PRODUCTION].position == TOLERANT
    assert all(knobs.tenants.get(PRODUCTION, TenantKnobs()).sm_share is None for knobs in seen)
    plant.has_neighbour = False
    assert not guard.tick(plant.view()).tenants.get(NEIGHBOUR)
