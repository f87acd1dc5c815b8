"""Time slices of contexts that take turns, and what production keeps off the GPU in the gaps of its bursts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cotenant.simulator import Job, Op
from tests.simulator.small import CUT_US, LAUNCH_US, OPPORTUNISTIC, STRICT, listed, once, run


def test_an_arrival_cuts_a_long_opportunistic_kernel_at_once() -> None:
    # Who has long kernels has slices of 30 us. One ends at 10022; the request reached the GPU at 10002.
    serving = Job("serving", ops=(Op(us=100, repeat=10),), arrivals=listed(0.01), requests=1)
    training = Job("training", OPPORTUNISTIC, (Op(us=50_000),), waits=False)
    outcome = run(serving, training, under=STRICT)
    assert outcome.tenants[0].latency.most_us == pytest.approx(LAUNCH_US + 20 + CUT_US + 1000)
    assert outcome.tenants[1].preemptions == 1


@pytest.mark.parametrize(("gap_us", "cuts"), [(50, 2), (290, 2), (310, 4)])
def test_a_cut_kernel_runs_on_in_a_gap_unless_production_holds_the_gpu(gap_us: float, cuts: int) -> None:
    # The first gap tells that this is a job with gaps. One that is longer than the grace ends the burst.
    serving = Job(
        "serving", ops=(Op(us=100, gap_us=gap_us, sync=True, repeat=4),), arrivals=listed(0.01), requests=1
    )
    training = Job("training", OPPORTUNISTIC, (Op(us=50_000),), waits=False)
    assert run(serving, training, under=STRICT).tenants[1].preemptions == cuts


def test_jobs_that_have_had_gaps_hold_the_gpu_from_the_start() -> None:
    steps = (Op(us=100, gap_us=50, sync=True, repeat=2),)
    at_s = [0.01 + 0.02 * number for number in range(40)]
    serving = Job("serving", ops=steps, arrivals=listed(*at_s), requests=len(at_s))
    training = Job("training", OPPORTUNISTIC, (Op(us=50_000),), waits=False)
    cuts = run(serving, training, under=STRICT, seconds=1).tenants[1].preemptions
    # Two a burst at first, one from the eighth or so on.
    assert 44 <= cuts <= 50


def test_an_idle_production_job_does_not_let_cut_kernels_into_anothers_request() -> None:
    serving = Job("serving", ops=(Op(us=1000, repeat=15),), arrivals=listed(0.02), requests=1)
    idle = Job("idle", ops=(Op(us=10),), arrivals=listed(0.001, 5), requests=2)
    training = Job("training", OPPORTUNISTIC, (Op(us=50_000),), waits=False, begins_s=0.002)
    outcome = run(serving, idle, training, under=STRICT)
    assert outcome.tenants[0].latency.most_us == pytest.approx(LAUNCH_US + CUT_US + 15_000, abs=40)
    assert outcome.tenants[2].preemptions == 1


def test_production_jobs_that_work_at_the_same_time_have_slices_of_3_ms_above_cut_kernels() -> None:
    ops = (Op(us=1000, repeat=40),)
    jobs = [Job(name, ops=ops, waits=False, begins_s=0.01) for name in ("first", "second")]
    training = Job("training", OPPORTUNISTIC, (Op(us=50_000),), waits=False)
    first, second, below = run(*jobs, training, under=STRICT, seconds=2).tenants
    assert first.work_us == pytest.approx(second.work_us, rel=0.05)
    # A round is two slices and a moment of the cut kernel.
    assert below.preemptions == pytest.approx(2e6 / (6000 + 3 * CUT_US + 30), rel=0.1)


def test_production_has_the_gpu_to_itself_again_when_the_job_with_a_floor_has_gone() -> None:
    # It shares slices while a job with a floor is there: the kernel that it has cut would run between its slices.
    serving = Job("serving", ops=(Op(us=1000, repeat=10),), arrivals=listed(0.02), requests=1)
    training = Job("training", OPPORTUNISTIC, (Op(us=50_000),), waits=False, begins_s=0.001)
    for gone in (), (replace(once("floor", Op(us=50), tenant_class=OPPORTUNISTIC), floor=0.1),):
        outcome = run(serving, training, *gone, under=STRICT)
        assert outcome.tenants[0].latency.most_us == pytest.approx(LAUNCH_US + CUT_US + 10_000, abs=30)
        assert outcome.tenants[1].preemptions == 1


def test_production_jobs_share_slices_by_weight() -> None:
    jobs = [
        Job(name, ops=(Op(us=700, repeat=10),), waits=False, weight=weight)
        for name, weight in (("heavy", 3.0), ("light", 1.0))
    ]
    heavy, light = run(*jobs, under=STRICT, seconds=5).tenants
    assert heavy.work_us / light.work_us == pytest.approx(3, rel=0.05)
