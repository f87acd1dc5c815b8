"""Placement policies: each alone, on a few GPUs."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.classes import TenantClass
from cotenant.cluster.placement import muxflow, registry
from cotenant.cluster.placement.fleet import Fleet, Job
from cotenant.cluster.placement.interference import PairTable
from cotenant.errors import Problem
from tests.cluster.placing import GB, decide, fleet, opportunistic, part, production, table

SHARING = [name for name in registry.names() if registry.find(name).shares_gpus]


def test_an_unknown_placement_policy_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(Problem) as problem:
        registry.find("bestfit")
    assert "did you mean 'best-fit'?" in problem.value.hint


@pytest.mark.parametrize("name", registry.names())
def test_a_policy_says_its_name_and_what_it_does(name: str) -> None:
    policy = registry.find(name)
    assert policy.name == name and policy.title


# ---- simple fits


def test_exclusive_gives_nobody_a_gpu_that_somebody_has() -> None:
    there = fleet([opportunistic("a", share=0.1)], [])
    assert decide("exclusive", [opportunistic("b", share=0.1), opportunistic("c")], there).placed == {
        "b": (1,)
    }


def test_first_fit_takes_the_first_gpu_with_room() -> None:
    there = fleet([opportunistic("a", share=0.8)], [opportunistic("b", share=0.1)], [])
    assert decide("first-fit", [opportunistic("c", share=0.5)], there).placed == {"c": (1,)}


def test_best_fit_takes_the_fullest_gpu_with_room() -> None:
    there = fleet(
        [], [opportunistic("a", share=0.3)], [opportunistic("b", share=0.5)], [opportunistic("c", 0.8)]
    )
    assert decide("best-fit", [opportunistic("d", share=0.5)], there).placed == {"d": (2,)}


def test_worst_fit_takes_the_emptiest_gpu() -> None:
    there = fleet([opportunistic("a", share=0.3)], [opportunistic("b", share=0.2)], [opportunistic("c", 0.5)])
    assert decide("worst-fit", [opportunistic("d", share=0.2)], there).placed == {"d": (1,)}


@pytest.mark.parametrize("name", SHARING)
def test_opportunistic_work_fits_beside_production_that_reserved_all(name: str) -> None:
    there = fleet([production("serve")])
    assert decide(name, [opportunistic("train")], there).placed == {"train": (0,)}
    assert decide(name, [production("another")], there).placed == {}


@pytest.mark.parametrize("name", registry.names())
def test_a_job_of_several_gpus_gets_all_of_them_or_none(name: str) -> None:
    there = fleet([production("serve", gb=75)], [], [])
    decision = decide(name, [opportunistic("three", gpus=3), opportunistic("two", gpus=2)], there)
    assert {job: sorted(places) for job, places in decision.placed.items()} == {"two": [1, 2]}


LABELS = st.sampled_from(["", "", "x", "y"])
JOBS = st.builds(
    lambda number, cls, share, gb, gpus, a, b, c: Job(
        f"{number}", f"kind{number % 3}", cls, share / 10, gb * GB, gpus, 0.05, a, b, c
    ),
    st.integers(0, 10**9),
    st.sampled_from(TenantClass),
    st.integers(1, 10),
    st.integers(0, 80),
    st.integers(1, 3),
    LABELS,
    LABELS,
    LABELS,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(JOBS, max_size=14, unique_by=lambda job: job.id), st.sampled_from(registry.names()))
def test_nobody_is_given_what_is_not_there(jobs: list[Job], name: str) -> None:
    there = fleet([], [], [], [])
    interference = table(unknown=1.5)
    for batch in (jobs[:7], jobs[7:]):
        before = dict(there.places)
        decision = decide(name, batch, there, interference)
        assert there.places == before, "a decision changed the fleet that it was given"
        running = {job.id: job for job in jobs}
        for id, places in decision.moved.items():
            there.remove(running[id])
            there.add(running[id], places)
        for id, places in decision.placed.items():
            assert len(set(places)) == running[id].gpus
            there.add(running[id], places)
        assert (there.free_bytes >= 0).all() and (there.free_shares > -1e-6).all()
        for residents in there.residents:
            assert len({job.exclusion for job in residents}) <= 1
            words = [job.anti_affinity for job in residents if job.anti_affinity]
            assert len(words) == len(set(words))


# ---- KubeShare


def test_kubeshare_keeps_jobs_of_one_affinity_together_or_waiting() -> None:
    there = fleet([opportunistic("a", share=0.6, affinity="ring")], [opportunistic("b", share=0.1)], [])
    decision = decide("kubeshare", [opportunistic("c", share=0.4, affinity="ring")], there)
    assert decision.placed == {"c": (0,)}
    assert decide("kubeshare", [opportunistic("d", share=0.5, affinity="ring")], there).placed == {}


def test_kubeshare_opens_an_empty_gpu_for_a_new_affinity() -> None:
    there = fleet([opportunistic("a", share=0.1)], [])
    jobs = [opportunistic(id, share=0.2, affinity="ring") for id in "bc"]
    assert decide("kubeshare", jobs, there).placed == {"b": (1,), "c": (1,)}


def test_kubeshare_separates_anti_affinity_and_exclusion() -> None:
    there = fleet(
        [opportunistic("a", share=0.1, anti_affinity="db")], [opportunistic("b", 0.1, exclusion="hr")], []
    )
    one = opportunistic("c", share=0.1, anti_affinity="db")
    two = opportunistic("d", share=0.1, exclusion="hr")
    three = opportunistic("e", share=0.1)
    assert decide("kubeshare", [one, two, three], there).placed == {"c": (2,), "d": (1,), "e": (0,)}


def test_kubeshare_fills_gpus_without_affinity_first_and_keeps_room_where_there_is_one() -> None:
    ring, wide = (opportunistic(id, share=s, affinity=id) for id, s in (("ring", 0.3), ("wide", 0.1)))
    plain = opportunistic("plain", share=0.5)
    there = fleet([ring], [wide], [plain], [])
    assert decide("kubeshare", [opportunistic("a", share=0.5)], there).placed == {"a": (2,)}
    # Worst fit among those with affinity, before an empty one.
    assert decide("kubeshare", [opportunistic("a", share=0.6)], there).placed == {"a": (1,)}
    assert decide("kubeshare", [opportunistic("a", share=1.0)], there).placed == {"a": (3,)}


# ---- by prediction


def test_iadeep_goes_where_both_lose_least() -> None:
    known = table(
        gpt_beside_DECODE=1.4, DECODE_beside_gpt=1.01, gpt_beside_VISION=1.1, VISION_beside_gpt=1.05
    )
    there = fleet([production("decode")], [production("vision")])
    assert decide("iadeep", [opportunistic("gpt")], there, known).placed == {"gpt": (1,)}
    empty = fleet([production("vision")], [])
    assert decide("iadeep", [opportunistic("gpt")], empty, known).placed == {"gpt": (1,)}


def test_iadeep_counts_what_the_residents_lose() -> None:
    known = table(
        longk_beside_ENCODER=1.2, ENCODER_beside_longk=1.3, longk_beside_DECODE=1.4, DECODE_beside_longk=1.0
    )
    there = fleet([production("encoder")], [production("decode")])
    assert decide("iadeep", [opportunistic("longk")], there, known).placed == {"longk": (1,)}


def test_muxflow_gives_up_the_best_place_of_one_for_a_better_sum() -> None:
    # Each alone would take GPU 0; `b` loses more elsewhere than `a` does.
    known = table(a_beside_X=1.0, a_beside_Y=1.25, b_beside_X=1.0, b_beside_Y=4.0)
    there = fleet([production("x")], [production("y")])
    waiting = [opportunistic("a"), opportunistic("b")]
    assert decide("muxflow", waiting, there, known).placed == {"a": (1,), "b": (0,)}
    assert decide("iadeep", waiting, there, known).placed == {"a": (0,), "b": (1,)}


def test_muxflow_does_not_break_a_promise_it_can_foresee() -> None:
    known = table(gpt_beside_X=1.5, X_beside_gpt=1.2)
    there = fleet([production("x", slowdown=0.05)])
    assert decide("muxflow", [opportunistic("gpt")], there, known).placed == {}
    loose = fleet([production("x", slowdown=0.25)])
    assert decide("muxflow", [opportunistic("gpt")], loose, known).placed == {"gpt": (0,)}


def test_muxflow_leaves_out_pairs_that_are_impossible() -> None:
    never = muxflow.IMPOSSIBLE
    # Two can only have the first GPU: one of them has none.
    found = muxflow.matching(np.array([[0.5, never, never], [0.75, never, never], [never, 0.1, 0.2]]))
    assert found == [(1, 0), (2, 2)]
    crossed = np.array([[0.5, 0.4], [0.75, never]])
    assert muxflow.matching(crossed) == [(0, 1), (1, 0)]
    only = np.array([[0.5, never], [never, never]])
    assert muxflow.matching(only) == [(0, 0)] and muxflow.matching(np.zeros((0, 2))) == []


def test_muxflows_matching_is_the_best_of_all() -> None:
    draw = random.Random(7)
    for _ in range(20):
        weights = np.array([[draw.random() for _ in range(6)] for _ in range(5)])
        found = sum(weights[pair] for pair in muxflow.matching(weights))
        best = max(
            sum(weights[row, column] for row, column in enumerate(columns))
            for columns in itertools.permutations(range(6), 5)
        )
        assert found == pytest.approx(best)


def test_muxflow_matches_a_thousand_jobs_with_a_thousand_gpus() -> None:
    draw = random.Random(3)
    kinds = [f"k{i}" for i in range(40)]
    known = PairTable(
        {
            (part(kind), part(online)): 1 + draw.random() * 3
            for kind in kinds
            for online in (k.upper() for k in kinds)
        }
    )
    there = Fleet([80 * GB] * 1000)
    for gpu in range(1000):
        there.add(production(f"p{gpu}", kind=draw.choice(kinds)), (gpu,))
    jobs = [opportunistic(f"j{i}", kind=draw.choice(kinds)) for i in range(1000)]
    # Nobody is promised anything, and production loses nothing known: only the jobs' own speeds count.
    weights = muxflow.weights_of(jobs, there, known)
    pairs = muxflow.matching(weights)
    assert len(pairs) == 1000 == len({gpu for _, gpu in pairs})
    total = sum(weights[pair] for pair in pairs)
    # No assignment can be better than each job on its own best GPU.
    assert total <= weights.max(axis=1).sum() + 1e-6
    greedy = 0.0
    free = weights.copy()
    for row in range(1000):
        column = int(np.argmax(free[row]))
        greedy += weights[row, column]
        free[:, column] = muxflow.IMPOSSIBLE
    assert total > greedy


def test_gandiva_packs_only_where_the_sum_of_the_speeds_grows() -> None:
    known = table(a_beside_slow=2.0, slow_beside_a=2.0, a_beside_light=1.1, light_beside_a=1.1, unknown=2.0)
    slow, light = opportunistic("slow", share=0.5), opportunistic("light", share=0.5)
    waiting = [opportunistic("a", share=0.5)]
    assert decide("gandiva", waiting, fleet([slow]), known).placed == {}
    assert decide("gandiva", waiting, fleet([slow], [light]), known).placed == {"a": (1,)}
    assert decide("gandiva", waiting, fleet([light], []), known).placed == {"a": (1,)}


def test_gandiva_moves_the_slowest_of_a_shared_gpu_to_one_that_became_free() -> None:
    known = table(fast_beside_slow=1.2, slow_beside_fast=1.6)
    there = fleet([opportunistic("fast", share=0.5), opportunistic("slow", share=0.5)], [])
    decision = decide("gandiva", [], there, known)
    assert (decision.placed, decision.moved) == ({}, {"slow": (1,)})


def test_gandiva_leaves_the_free_gpu_to_a_job_that_waits() -> None:
    known = table(fast_beside_slow=1.2, slow_beside_fast=1.6)
    there = fleet([opportunistic("fast", share=0.5), opportunistic("slow", share=0.5)], [])
    decision = decide("gandiva", [opportunistic("new")], there, known)
    assert (decision.placed, decision.moved) == ({"new": (1,)}, {})


def test_gandiva_moves_a_job_away_from_a_promise_that_it_breaks() -> None:
    known = table(X_beside_gpt=1.2, gpt_beside_X=1.3, Y_beside_gpt=1.01, gpt_beside_Y=1.5)
    strict, other = production("x", slowdown=0.05), production("y", slowdown=0.05)
    there = fleet([strict, opportunistic("gpt")], [other])
    assert decide("gandiva", [], there, known).moved == {"gpt": (1,)}


def test_gandiva_moves_one_of_two_and_the_other_has_the_gpu_to_itself() -> None:
    known = table(fast_beside_slow=1.2, slow_beside_fast=1.6)
    there = fleet([opportunistic("fast", share=0.5), opportunistic("slow", share=0.5)], [], [])
    assert decide("gandiva", [], there, known).moved == {"slow": (1,)}
    assert [len(residents) for residents in there.residents] == [2, 0, 0]  # decided, not carried out


def test_gandiva_moves_at_most_sixteen_a_round_and_none_that_has_just_come() -> None:
    pairs = [[opportunistic(f"{side}{number}", share=0.5, kind="a") for side in "lr"] for number in range(17)]
    there = fleet(*pairs, *([] for _ in range(17)))
    moved = decide("gandiva", [], there, table(a_beside_a=1.9)).moved
    assert len(moved) == 16 and len(set(moved.values())) == 16
    assert all(place >= 17 for (place,) in moved.values())


def test_gandiva_moves_nobody_for_less_than_a_tenth_of_a_gpu() -> None:
    def moved(slowdown: float) -> bool:
        there = fleet([opportunistic("a", share=0.5), opportunistic("b", share=0.5)], [])
        return bool(decide("gandiva", [], there, table(a_beside_b=1.0, b_beside_a=slowdown)).moved)

    # Packed they do 1 + 1 / slowdown; apart 2.
    assert not moved(1 / 0.91) and moved(1 / 0.89)


def test_gandiva_moves_no_job_of_several_gpus_and_none_with_a_share_of_its_own() -> None:
    known = table(unknown=2.0)
    wide = fleet([], [], [])
    wide.add(opportunistic("wide", share=0.5, gpus=2), (0, 1))
    wide.add(opportunistic("wide2", share=0.5, gpus=2), (0, 1))
    assert decide("gandiva", [], wide, known).moved == {}
    reserved = fleet([production("p", share=0.5), production("q", share=0.5)], [])
    assert decide("gandiva", [], reserved, known).moved == {}


# ---- more than two on a GPU


def test_opportunistic_jobs_divide_what_production_leaves() -> None:
    known = table(longk_beside_longk=2.0, longk_beside_DECODE=1 / 0.72, DECODE_beside_longk=1.10)
    decode, one, two = known.slowdowns([part("DECODE"), part("longk"), part("longk")])
    assert decode == pytest.approx(1.10)
    assert 1 / one == 1 / two == pytest.approx(0.36)


def test_three_equals_get_a_third_each() -> None:
    known = table(longk_beside_longk=2.0)
    assert known.slowdowns([part("longk")] * 3) == (3.0, 3.0, 3.0)
