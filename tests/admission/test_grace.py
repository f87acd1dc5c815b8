"""The grace before a job counts as idle is learned from its own pauses."""

from __future__ import annotations

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

    def learn(*pauses: float | str) -> float:
        return float(
            subprocess.run([str(program), *map(str, pauses)], capture_output=True, check=True).stdout
        )

    return learn


def test_with_nothing_seen_the_given_one_holds(grace_after: Learn) -> None:
    assert grace_after() == 300


def test_pauses_inside_a_burst_are_waited_out_and_those_between_given_away(grace_after: Learn) -> None:
    # An eager model: gaps of 100 and 250 us within a request, 20 ms between requests.
    assert 250 < grace_after(100, 250, 100, 250, 20_000) < 2_000


def test_long_pauses_alone_are_given_away_at_once(grace_after: Learn) -> None:
    assert grace_after(20_000, 30_000) <= 50


def test_pauses_too_short_to_be_worth_a_return_are_kept(grace_after: Learn) -> None:
    # A decode loop with 1 ms of Python between tokens.
    assert grace_after(1_000, 1_100, 900) > 1_100


def test_a_job_of_two_minds_keeps_the_short_ones(grace_after: Learn) -> None:
    assert 1_500 < grace_after(1_500, 1_500, 1_500, 50_000) < 10_000


def test_a_job_that_changes_its_ways_is_learned_anew(grace_after: Learn) -> None:
    # As many long pauses as there were short ones: only who forgets the old ones gives the new ones away.
    assert grace_after(1_000, 1_000, 1_000, "then", 20_000, 20_000, 20_000) <= 50
    assert grace_after(20_000, 20_000, 20_000, "then", 1_000, 1_000, 1_000) > 1_000
