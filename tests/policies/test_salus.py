"""Salus admits a job only where its iterations always find their memory, and never interleaves two in a lane."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.classes import TenantClass
from cotenant.policies.interface import Policy, Rule, Tenant, TenantId, View
from cotenant.policies.salus import Lanes, Need, Salus
from cotenant.policies.salus_fair import SalusFair
from cotenant.policies.salus_fifo import SalusFifo
from cotenant.policies.salus_pack import SalusPack
from cotenant.policies.salus_rr import SalusRr
from cotenant.policies.salus_srtf import SalusSrtf
from tests.policies.conftest import Ask

MEMORY = 100


def is_safe(lanes: Lanes) -> bool:
    """All weights are there, and in every lane the hungriest iteration."""
    needs = [list(lane.jobs.values()) for lane in lanes.lanes]
    weights = sum(need.persistent for lane in needs for need in lane)
    return weights + sum(max(need.ephemeral for need in lane) for lane in needs) <= MEMORY


def test_jobs_get_lanes_of_their_own_while_memory_is_free() -> None:
    lanes = Lanes(MEMORY)
    first, second = lanes.admit(1, Need(10, 40)), lanes.admit(2, Need(10, 40))
    assert first and second and first.number != second.number
    assert lanes.free() == 0


def test_then_a_lane_where_it_fits_best_is_shared() -> None:
    lanes = Lanes(MEMORY)
    wide, narrow = lanes.admit(1, Need(10, 40)), lanes.admit(2, Need(5, 30))
    assert wide and narrow and lanes.free() == 15
    # The activations that a job of the lane gives back are used again; only its weights are more.
    assert lanes.admit(3, Need(5, 30)) is narrow
    assert lanes.admit(4, Need(5, 35)) is wide
    assert lanes.free() == 5
    assert lanes.admit(5, Need(0, 45)) is wide  # wider by 5
    assert lanes.free() == 0


def test_an_unsafe_admission_is_refused_though_some_memory_looks_free() -> None:
    lanes = Lanes(MEMORY)
    lanes.admit(1, Need(20, 50))
    # 30 are free, and 50 more between the iterations of the first; but 25 would be kept, and 60 needed of 55.
    assert lanes.admit(2, Need(25, 60)) is None
    assert is_safe(lanes)
    assert lanes.admit(3, Need(25, 50)) is not None
    lanes.leave(1)
    lanes.leave(3)
    assert lanes.admit(2, Need(25, 60)) is not None


def finish(order: list[TenantId], whole: bool) -> set[TenantId]:
    """Two iterations on a GPU of 100, each taking 40 and then 40 more of ephemeral memory beside nothing persistent.

    `whole`: an iteration begins only when Lanes admits all of it. Otherwise each takes what it can get, in turns, and
    waits with what it has. Returns who finished.
    """
    held: dict[TenantId, int] = {}
    finished: set[TenantId] = set()
    lanes = Lanes(MEMORY)
    for _ in range(10):
        for job in order:
            if job in finished:
                continue
            if whole and lanes.lane_of(job) is None and lanes.admit(job, Need(0, 80)) is None:
                continue
            lane = lanes.lane_of(job)
            if whole and lane and any(held.get(other) for other in lane.jobs if other != job):
                continue
            if sum(held.values()) + 40 <= MEMORY:
                held[job] = held.get(job, 0) + 40
            if held.get(job) == 80:
                held[job] = 0
                finished.add(job)
    return finished


def test_the_deadlock_of_half_allocated_iterations_is_avoided() -> None:
    assert finish([1, 2], whole=False) == set()
    assert finish([1, 2], whole=True) == {1, 2}


needs = st.builds(Need, st.integers(0, 60), st.integers(0, 60))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(needs, st.integers(0, 30)), max_size=60))
def test_whatever_comes_and_goes_memory_suffices(story: list[Need | int]) -> None:
    lanes = Lanes(MEMORY)
    for number, event in enumerate(story):
        if isinstance(event, int):
            lanes.leave(event)
        else:
            lanes.admit(number, event)
        assert is_safe(lanes)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(needs.filter(lambda need: need.persistent + need.ephemeral <= MEMORY), min_size=1, max_size=20)
)
def test_everybody_that_fits_the_gpu_runs_in_the_end(jobs: list[Need]) -> None:
    policy = SalusPack()
    left = dict(enumerate(jobs))
    for round_number in range(len(jobs) + 1):
        tenants = [tenant(i, arrived=i, need=need) for i, need in left.items()]
        knobs = policy.tick(View(round_number, tenants, memory_bytes=MEMORY)).tenants
        running = [i for i in left if not knobs[i].shut]
        assert running or not left
        for job in running:
            del left[job]
    assert not left


def tenant(
    number: TenantId,
    arrived: float = 0,
    used: float = 0,
    remaining: float = 0,
    need: Need = Need(10, 30),  # noqa: B008  (frozen)
) -> Tenant:
    return Tenant(
        number,
        TenantClass.standard,
        has_work=True,
        arrived_us=arrived,
        used_us=used,
        remaining_us=remaining,
        persistent_bytes=need.persistent,
        ephemeral_bytes=need.ephemeral,
    )


def order(policy: Policy, tenants: list[Tenant]) -> list[TenantId]:
    knobs = policy.tick(View(0, tenants, memory_bytes=MEMORY)).tenants
    return sorted((i for i in knobs if not knobs[i].shut), key=lambda i: knobs[i].rank)


JOBS = [
    tenant(1, arrived=3, used=100, remaining=500),
    tenant(2, arrived=1, used=300, remaining=700),
    tenant(3, arrived=2, used=200, remaining=600),
]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(SalusPack(), [2, 3, 1]), (SalusFair(), [1, 3, 2]), (SalusSrtf(), [1, 3, 2]), (SalusFifo(), [2])],
)
def test_who_begins_the_next_iteration(policy: Salus, expected: list[TenantId]) -> None:
    assert order(policy, JOBS) == expected


def test_in_turn_nobody_is_ranked_and_memory_is_given_in_order_of_arrival() -> None:
    knobs = SalusRr().tick(View(0, JOBS, memory_bytes=MEMORY)).tenants
    assert {knobs[one.id].rank for one in JOBS} == {0}
    jobs = [tenant(1, arrived=2, need=Need(60, 0)), tenant(2, arrived=1, need=Need(60, 0))]
    assert order(SalusRr(), jobs) == [2]


def test_fair_puts_first_who_fell_behind_and_srtf_who_is_nearly_done() -> None:
    later = [tenant(1, used=900, remaining=5), tenant(2, used=300, remaining=700)]
    assert order(SalusFair(), later) == [2, 1]
    assert order(SalusSrtf(), later) == [1, 2]


def test_a_job_without_an_end_comes_last_under_srtf() -> None:
    assert order(SalusSrtf(), [tenant(1, remaining=0), tenant(2, remaining=1e9)]) == [2, 1]


def test_fifo_starts_the_next_when_the_first_has_left_and_skips_what_never_fits() -> None:
    policy = SalusFifo()
    impossible = tenant(9, arrived=0, need=Need(90, 90))
    assert order(policy, [impossible, *JOBS]) == [2]
    assert order(policy, [impossible, JOBS[0], JOBS[2]]) == [3]
    assert "never holds" in policy.explain(9)[0]


def test_pack_lets_a_small_job_past_one_that_waits() -> None:
    policy = SalusPack()
    jobs = [
        tenant(1, arrived=1, need=Need(40, 30)),
        tenant(2, arrived=2, need=Need(40, 30)),
        tenant(3, arrived=3, need=Need(10, 10)),
    ]
    assert order(policy, jobs) == [1, 3]
    assert "no lane is safe" in policy.explain(2)[0]


def test_who_shares_a_lane_is_told_the_same_number() -> None:
    jobs = [tenant(1, arrived=1, need=Need(10, 80)), tenant(2, arrived=2, need=Need(5, 70))]
    knobs = SalusPack().tick(View(0, jobs, memory_bytes=MEMORY)).tenants
    assert knobs[1].lane == knobs[2].lane != 0


def test_an_iteration_begins_when_its_lane_is_empty_and_it_is_next(decide: Ask) -> None:
    first = {"number": 4, "begins_request": 1, "lane_next": 4}
    assert decide(Rule.lanes, **first) == "go"
    assert decide(Rule.lanes, **first, lane_is_taken=1) == "wait"
    assert decide(Rule.lanes, **(first | {"lane_next": 5})) == "wait"


def test_an_iteration_that_began_is_never_interrupted(decide: Ask) -> None:
    assert decide(Rule.lanes, number=4, begins_request=0, lane_next=5, lane_is_taken=1) == "go"


def test_a_job_keeps_its_lane_while_it_has_nothing_to_do_and_leaves_it_with_its_end() -> None:
    policy = SalusFifo()

    def lanes_of(*tenants: Tenant) -> dict[TenantId, bool]:
        knobs = policy.tick(View(0, tenants, memory_bytes=MEMORY)).tenants
        return {one.id: not knobs[one.id].shut for one in tenants}

    first, second = (
        Tenant(number, TenantClass.opportunistic, has_work=True, persistent_bytes=60) for number in (1, 2)
    )
    assert lanes_of(first, second) == {1: True, 2: False}
    for _ in range(2):
        assert lanes_of(replace(first, has_work=False), second) == {1: True, 2: False}
    assert lanes_of(second) == {2: True}
