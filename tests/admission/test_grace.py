"""The grace before a job counts as idle is learned from its own pauses."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable

import pytest

from tests.compiling import compile_program

Learn = Callable[..., float]


@pytest.fixture(scope="module")
def grace_after(tmp_path_factory: pytest.TempPathFactory) -> Learn:
    program = compile_program(
        tmp_path_factory.mktemp("admission"), "tests/admission/grace.cpp", "native/admission/grace.cpp"
    )

    def learn(*pauses: float | str, work: float = 1_000) -> float:
        command = [str(program), str(work), *map(str, pauses)]
        return float(subprocess.run(command, capture_output=True, check=True).stdout)

    return learn


def test_with_nothing_seen_the_given_one_holds(grace_after: Learn) -> None:
    assert grace_after() == 300


def test_pauses_inside_a_burst_are_waited_out_and_those_between_given_away(grace_after: Learn) -> None:
    # An eager model: gaps of 100 and 250 us within a request, 20 ms between requests.
    assert 250 < grace_after(100, 250, 100, 250, 20_000) < 2_000


def test_long_pauses_alone_are_given_away_at_once(grace_after: Learn) -> None:
    assert grace_after(20_000, 30_000) <= 50


def test_pauses_too_short_to_be_worth_a_return_are_kept(grace_after: Learn) -> None:
    # 0.3 ms of Python between any two kernels: two changes of contexts take as long.
    assert grace_after(300, 330, 270, work=5_000) > 330


@pytest.mark.parametrize("seed", range(20))
def test_it_is_not_much_longer_than_the_pauses_that_are_kept(grace_after: Learn, seed: int) -> None:
    draw = random.Random(seed)
    pauses = [draw.uniform(60, 300) for _ in range(draw.randint(1, 9))]
    assert grace_after(*pauses, work=5_000) < 1.5 * max(pauses)


def test_a_job_of_two_minds_keeps_the_short_ones(grace_after: Learn) -> None:
    assert 1_500 < grace_after(1_500, 1_500, 1_500, 50_000) < 10_000


def test_requests_without_a_long_pause_leave_others_their_pauses(grace_after: Learn) -> None:
    # A decode loop that never rests, 400 requests/s, and 800 tiny ones: others would get nothing at all.
    assert grace_after(2_000, 2_100, 1_900, work=15_000) < 100
    assert grace_after(300, 900, 1_600, 3_000, work=1_400) < 700
    assert grace_after(150, 600, 1_200, 2_500, work=30) < 700


def test_the_more_others_have_the_longer_are_the_pauses_that_are_kept(grace_after: Learn) -> None:
    kept = [grace_after(*20 * [1_500], rest, work=1_000) >= 1_500 for rest in (10_000, 1_000_000)]
    assert kept == [False, True]


def test_a_job_that_changes_its_ways_is_learned_anew(grace_after: Learn) -> None:
    # As many long pauses as there were short ones: only who forgets the old ones gives the new ones away.
    assert grace_after(300, 300, 300, "then", 20_000, 20_000, 20_000) <= 50
    assert grace_after(20_000, 20_000, 20_000, "then", 300, 300, 300, work=5_000) > 300


def test_nights_at_rest_are_forgotten(grace_after: Learn) -> None:
    assert grace_after(36_000_000_000, 2_000, "then", *10 * [2_000], work=15_000) < 100
