"""Each published policy does in simulation what its paper says of it. Ratios, not figures: the margins are wide."""

from __future__ import annotations

from functools import cache

import pytest

from cotenant.policies import registry
from cotenant.simulator import (
    ArrivalKind,
    Arrivals,
    Job,
    Op,
    OpKind,
    Outcome,
    Study,
    TenantClass,
    TenantOutcome,
    Workload,
    find_workload,
)
from tests.simulator.small import listed, once, small_gpu

GIB = 2**30


def serving(us: float = 20, sms: float = 1.0, gbps: float = 0.0) -> Job:
    """Requests of 1 ms, 200 a second: a fifth of the GPU's time."""
    arrivals = Arrivals(ArrivalKind.poisson, rate=200)
    return Job("serving", ops=(Op(us=us, repeat=round(1000 / us), sms=sms, gbps=gbps),), arrivals=arrivals)


def training(us: float = 400, sms: float = 1.0, gbps: float = 0.0) -> Job:
    ops = (Op(us=us, repeat=round(40_000 / us), sms=sms, gbps=gbps),)
    return Job("training", TenantClass.opportunistic, ops=ops, waits=False, trains=True)


@cache
def run(policy: str, *jobs: Job, seconds: float = 5) -> Outcome:
    return Study(Workload("test", jobs), seconds=seconds).run(policy)


def first(outcome: Outcome) -> TenantOutcome:
    return outcome.tenants[0]


@pytest.mark.parametrize("policy", registry.BUILT_IN)
def test_every_policy_runs_and_serves_production(policy: str) -> None:
    outcome = run(policy, serving(sms=0.4), training(sms=0.4))
    assert first(outcome).requests > 0.8 * 5 * 200
    assert all(one.work_us >= 0 for one in outcome.tenants)


FULL = (serving(), training())


@pytest.mark.parametrize("policy", ["orion", "reef", "chimera"])
def test_those_that_see_kernels_keep_the_tail_where_mps_and_time_slices_lose_it(policy: str) -> None:
    ours = run(policy, *FULL)
    assert first(ours).slowdown_p99 < 2
    assert first(ours).slowdown_p99 < first(run("mps", *FULL)).slowdown_p99 / 3
    assert first(ours).slowdown_p99 < first(run("timeslice", *FULL)).slowdown_p99 / 3
    assert ours.opportunistic_share > 0.6


def test_orion_lets_the_opposite_class_in_and_not_the_same() -> None:
    other = run("orion", serving(sms=0.4, gbps=0.7), training(sms=0.4))
    same = run("orion", serving(sms=0.4), training(sms=0.4))
    assert other.opportunistic_share > 0.95
    assert same.opportunistic_share < 0.9
    assert first(other).slowdown_p99 < 1.1


def test_reef_pads_with_short_kernels_and_not_with_long_ones() -> None:
    short = run("reef", serving(sms=0.5), training(us=10, sms=0.3))
    long = run("reef", serving(sms=0.5), training(us=400, sms=0.3))
    assert short.opportunistic_share > 0.9
    assert long.opportunistic_share < 0.8
    assert first(short).slowdown_p99 < 1.15 and first(long).slowdown_p99 < 1.15
    assert long.tenants[1].wasted_us > short.tenants[1].wasted_us > 0


def test_chimera_cuts_long_kernels_and_drains_short_ones() -> None:
    assert run("chimera", serving(), training(us=5000)).preemptions > 100
    assert run("chimera", serving(), training(us=10)).preemptions == 0


def test_muxflow_spares_online_work_more_than_mps_does() -> None:
    assert first(run("muxflow", *FULL)).slowdown_p99 < 0.8 * first(run("mps", *FULL)).slowdown_p99


def test_tgs_holds_a_training_job_to_its_speed_and_lets_the_other_in_slowly() -> None:
    important = Job("important", ops=(Op(us=300, repeat=100),), think_ms=(15, 35), trains=True)
    early = run("tgs", important, training(), seconds=24)
    late = run("tgs", important, training(), seconds=300)
    assert early.opportunistic_share == 0
    assert late.opportunistic_share > 0.05
    assert first(late).share > 0.95
    assert first(run("mps", important, training())).share < 0.8


def test_antman_spares_production_more_than_time_slices_do() -> None:
    important = Job("important", ops=(Op(us=300, repeat=100),), think_ms=(15, 35), trains=True)
    stretched = run("antman", important, training(), seconds=30)
    assert first(stretched).share > 0.9 > first(run("timeslice", important, training())).share
    assert stretched.opportunistic_share > 0.1


def test_gemini_gives_what_was_requested_and_never_more_than_the_limit() -> None:
    def pod(name: str, request: float, limit: float = 1.0) -> Job:
        ops = (Op(us=400, repeat=100),)
        return Job(name, TenantClass.standard, ops=ops, trains=True, share_request=request, share_limit=limit)

    shares = [
        one.share for one in run("gemini", pod("a", 0.2), pod("b", 0.5), pod("c", 0.3), seconds=30).tenants
    ]
    assert shares == pytest.approx([0.2, 0.5, 0.3], abs=0.03)
    limited = run("gemini", pod("a", 0.2, 0.3), pod("b", 0.2, 0.4), seconds=30)
    assert [one.share for one in limited.tenants] == pytest.approx([0.3, 0.4], abs=0.03)


def test_salus_ends_many_jobs_sooner_than_one_after_the_other() -> None:
    def search(number: int, iterations: int) -> Job:
        return Job(
            f"trial{number}",
            TenantClass.standard,
            ops=(Op(us=300, repeat=100, sms=0.6),),
            trains=True,
            requests=iterations,
            begins_s=number * 0.1,
            memory_bytes=8 * GIB,
            ephemeral_bytes=50 * GIB,
        )

    jobs = [search(number, iterations) for number, iterations in enumerate((100, 20, 60, 10, 40, 5))]
    took = {
        policy: run(policy, *jobs, seconds=30).completion_s
        for policy in ("salus-fifo", "salus-pack", "salus-fair", "salus-srtf")
    }
    assert took["salus-srtf"] < took["salus-pack"] < took["salus-fifo"]
    assert took["salus-fair"] < took["salus-pack"]
    assert took["salus-srtf"] < took["salus-fifo"] / 2


def test_salus_rr_gives_equal_numbers_of_iterations_and_fair_equal_time() -> None:
    def job(name: str, kernels: int) -> Job:
        ops = (Op(us=100, repeat=kernels),)
        return Job(
            name, TenantClass.standard, ops=ops, requests=10**6, trains=True, ephemeral_bytes=100 * GIB
        )

    jobs = (job("long", 300), job("short", 100), job("other", 100))
    turns = [one.requests for one in run("salus-rr", *jobs, seconds=10).tenants]
    assert max(turns) - min(turns) <= 1
    long, short, other = (one.work_us for one in run("salus-fair", *jobs, seconds=10).tenants)
    assert long == pytest.approx(short, rel=0.05) and short == pytest.approx(other, rel=0.05)


def test_orion_counts_kernels_as_outstanding_and_not_copies() -> None:
    # 2.5 ms may be outstanding. A copy of 20 ms is under way; the kernels, 2 ms of them, do not wait for it.
    production = Job("production", ops=(Op(us=1000, repeat=100),), arrivals=listed(0.5), requests=1)
    copy = once("copy", Op(OpKind.copy_to_device, bytes=200_000_000), tenant_class=TenantClass.opportunistic)
    kernels = once("kernels", Op(us=100, repeat=20), tenant_class=TenantClass.opportunistic)
    outcome = Study(Workload("test", (production, copy, kernels)), small_gpu(), 1.0).run("orion")
    assert outcome.tenants[1].completion_s == pytest.approx(0.02, abs=0.001)
    assert outcome.tenants[2].completion_s == pytest.approx(0.002, abs=0.001)


def test_paella_shortens_the_wait_of_short_requests_under_load() -> None:
    def model(number: int, kernels: int) -> Job:
        arrivals = Arrivals(ArrivalKind.poisson, rate=1000 / kernels)
        ops = (Op(us=100, repeat=kernels),)
        return Job(f"model{number}", TenantClass.standard, ops=ops, arrivals=arrivals, request_spread=0.3)

    jobs = [model(number, kernels) for number, kernels in enumerate((5, 5, 10, 10, 20, 50, 100, 200))]
    paella, mps = run("paella", *jobs), run("mps", *jobs)
    assert paella.tenants[0].latency.p99_us < mps.tenants[0].latency.p99_us / 2
    assert mean_latency_us(paella) < mean_latency_us(mps)


def test_paella_starves_nobody_whose_requests_are_long() -> None:
    def model(name: str, kernels: int) -> Job:
        return Job(name, TenantClass.standard, ops=(Op(us=100, repeat=kernels),), waits=False)

    short, long = run("paella", model("short", 10), model("long", 1000)).tenants
    assert long.share == pytest.approx(0.5, abs=0.05)
    assert short.share == pytest.approx(0.5, abs=0.05)


def mean_latency_us(outcome: Outcome) -> float:
    times = [one.latency for one in outcome.tenants]
    return sum(one.mean_us * one.count for one in times) / sum(one.count for one in times)


@pytest.mark.parametrize("name", ["promise", "promises"])
def test_shipped_workloads_exercise_what_guard_has_over_strict(name: str) -> None:
    study = Study(find_workload(name), seconds=8)
    guard, strict = study.run("guard"), study.run("strict")
    assert guard.opportunistic_share < strict.opportunistic_share - 0.02
    assert first(guard).service.mean_us < first(strict).service.mean_us


def test_a_stream_of_short_jobs_with_a_promise_leaves_the_neighbour_its_time() -> None:
    study = Study(find_workload("short-jobs"), seconds=8)
    assert study.run("guard").opportunistic_share > 0.9 * study.run("strict").opportunistic_share
