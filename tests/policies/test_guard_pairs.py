"""guard goes by what earlier runs of the same programs showed, and learns it again where it is no longer so."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.policies.guard.pairs import MOST_PAIRS, Company, Pairs
from cotenant.policies.guard.policy import Guard
from cotenant.policies.interface import Met, Pair
from tests.policies.bench import PRODUCTION, Plant

SERVE, TRAIN = "serve.py", "train.py"
PAIR = Pair(SERVE, TRAIN, False)


def plant(**about: Any) -> Plant:
    return Plant(programs=(SERVE, TRAIN), **about)


def recalling(*met: tuple[Pair, Met]) -> Guard:
    guard = Guard()
    guard.recall(dict(met))
    return guard


def overlapped(guard: Guard, beside: Plant, seconds: float) -> float:
    """Share of the ticks in which the neighbour might overlap."""
    ticks: list[bool] = []
    beside.play(
        guard,
        seconds,
        after_tick=lambda knobs: ticks.append(any(one.tolerant for one in knobs.tenants.values())),
    )
    return sum(ticks) / len(ticks)


def test_a_pair_that_was_harmless_overlaps_from_the_first_second_and_explain_says_so() -> None:
    guard = recalling((PAIR, Met(0.004)))
    assert overlapped(guard, plant(tolerant_slowdown=0.001), 1) > 0.95
    said = guard.explain(PRODUCTION)[0]
    assert "In an earlier run overlap with train.py slowed it down by 0.4%" in said


def test_without_a_memory_nothing_overlaps_at_first() -> None:
    assert overlapped(Guard(), plant(tolerant_slowdown=0.001), 20) == 0


def test_a_pair_that_is_no_longer_harmless_is_found_out_and_remembered_as_such() -> None:
    guard = recalling((PAIR, Met(0.004)))
    overlapped(guard, plant(tolerant_slowdown=0.5), 15)
    assert guard.jobs[PRODUCTION].position == 1
    assert guard.learned()[PAIR].overlap > 0.02


@pytest.mark.parametrize(("trust", "tried"), [(1.0, False), (0.3, True)])
def test_a_harmful_pair_is_not_tried_soon_and_sooner_the_longer_ago_it_was(trust: float, tried: bool) -> None:
    """A pair of which nothing is known is tried after a minute."""
    guard = recalling((PAIR, Met(0.5, trust=trust)))
    assert (overlapped(guard, plant(tolerant_slowdown=0.001), 240) > 0) is tried
    assert any("it is tried again after" in one for one in guard.explain(PRODUCTION)) or tried


def test_what_a_trial_shows_is_learned_once() -> None:
    guard = Guard()
    plant(tolerant_slowdown=0.001).play(guard, 90)
    assert guard.learned()[PAIR].overlap < 0.02
    assert not guard.learned()


def test_a_promise_begins_where_the_last_run_ended() -> None:
    first, second = Guard(), Guard()
    plant(strict_slowdown=0.01, tolerant_slowdown=0.3, promise=0.1).play(first, 30)
    met = first.learned()
    assert met[PAIR].overlap == pytest.approx(0.3, abs=0.1)
    second.recall(met)
    again = plant(strict_slowdown=0.01, tolerant_slowdown=0.3, promise=0.1)
    again.play(second, 0.5)
    assert 1 < second.jobs[PRODUCTION].position < 1.6
    assert again.play(second, 30).slowdown <= 0.1


def test_a_stranger_ends_overlap_that_was_shown_to_be_harmless_with_others() -> None:
    guard, beside = recalling((PAIR, Met(0.004))), plant(tolerant_slowdown=0.001)
    beside.play(guard, 3)
    beside.programs = (SERVE, "stranger.py")
    assert overlapped(guard, beside, 3) == 0


def test_of_names_without_end_the_newest_are_known() -> None:
    pairs = Pairs()
    for number in range(MOST_PAIRS + 10):
        pairs.note(Company(SERVE, frozenset({"first"}), together=True), Met(0.01), limit=0.05)
        pairs.note(Company(SERVE, frozenset({f"job-{number}"}), together=True), Met(0.01), limit=0.05)
    assert len(pairs.met) == len(pairs.take_new()) == MOST_PAIRS
    last = f"job-{MOST_PAIRS + 9}"
    assert Pair(SERVE, "first", True) in pairs.met and Pair(SERVE, last, True) in pairs.met


def test_among_several_only_harmlessness_is_noted_and_all_must_be_known() -> None:
    pairs, both = Pairs(), Company(SERVE, frozenset({"a", "b"}), together=True)
    pairs.note(both, Met(0.3), limit=0.05)
    assert not pairs.met
    pairs.note(both, Met(0.01), limit=0.05)
    assert set(pairs.met) == {Pair(SERVE, "a", True), Pair(SERVE, "b", True)}
    stranger = Company(SERVE, frozenset({"a", "c"}), together=True)
    assert pairs.known(both, 0.05) and pairs.known(stranger, 0.05) is None
    pairs.recall({Pair(SERVE, "c", True): Met(0.4)})
    worst = pairs.known(stranger, 0.05)
    assert worst and worst.overlap == 0.4
    for nameless in (Company("", frozenset({"a"}), True), Company(SERVE, frozenset({"a", ""}), True)):
        pairs.note(nameless, Met(0.01), limit=0.05)
        assert nameless.pairs == [] and pairs.known(nameless, 0.05) is None
