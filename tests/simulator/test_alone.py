"""What a job does alone is what it is compared with: where nobody else runs, nothing is missing."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from cotenant.simulator import ArrivalKind, Arrivals, Job, Op, Outcome, Study, Workload
from cotenant.simulator.workload import placed
from tests.simulator.small import NONE, OPPORTUNISTIC, STRICT, run, small_gpu


def on_own_gpus(job: Job, copies: int, seconds: float = 1.0) -> Outcome:
    workload = Workload("test", (job,), gpus=copies)
    return Study(workload, small_gpu(), seconds).run(NONE)


def test_a_job_that_begins_late_has_all_of_the_time_that_was_left() -> None:
    late = Job("late", ops=(Op(us=100, repeat=10),), waits=False, begins_s=0.75)
    assert run(late).tenants[0].share == pytest.approx(1)


def test_a_job_that_begins_late_is_compared_with_the_same_arrivals() -> None:
    arrivals = Arrivals(ArrivalKind.poisson, rate=300)
    late = Job("late", ops=(Op(us=1000),), arrivals=arrivals, request_spread=0.8, begins_s=0.9)
    tenant = run(late).tenants[0]
    assert tenant.requests > 10
    assert tenant.alone.latency == tenant.latency
    assert (tenant.slowdown_p50, tenant.slowdown_p99, tenant.share) == (1, 1, 1)


def test_a_late_job_that_ends_is_as_fast_as_one_that_came_first() -> None:
    job = Job("job", ops=(Op(us=1000),), requests=20, begins_s=0.5)
    tenant = run(job).tenants[0]
    assert tenant.completion_s == pytest.approx(tenant.alone.completion_s, rel=1e-9)
    assert tenant.share == pytest.approx(1)


RANDOM = {
    "operations": Job("job", ops=(Op(us=400, repeat=10),), waits=False, spread=1.0),
    "requests": Job("job", ops=(Op(us=400, repeat=10),), waits=False, request_spread=1.0),
    "how long it takes to the end": Job("job", ops=(Op(us=400, repeat=10),), requests=20, spread=1.0),
    "the program": Job("job", ops=(Op(us=400, sigma=1.0, repeat=3),), waits=False),
    "thinking": Job("job", ops=(Op(us=400),), think_ms=(0.1, 5.0)),
    "arrivals": Job("job", ops=(Op(us=400),), arrivals=Arrivals(ArrivalKind.poisson, rate=200)),
    "bursts": Job("job", ops=(Op(us=400),), arrivals=Arrivals(ArrivalKind.bursty, rate=200)),
}


@pytest.mark.parametrize("what", RANDOM)
def test_each_copy_is_compared_with_itself_whatever_is_drawn(what: str) -> None:
    outcome = on_own_gpus(replace(RANDOM[what], copies=6), 6)
    assert len({tenant.latency.mean_us for tenant in outcome.tenants}) > 1, "the copies are alike"
    assert [tenant.share for tenant in outcome.tenants] == pytest.approx([1] * 6)
    assert [tenant.slowdown_p99 for tenant in outcome.tenants] == pytest.approx([1] * 6)
    assert outcome.fairness == pytest.approx(1)


def test_copies_begin_one_after_the_other_where_fewest_are() -> None:
    job = Job("job", ops=(Op(us=100),), copies=4, begins_s=1, begins_every_s=2)
    gpus = placed(Workload("test", (job,), gpus=2))
    assert [[(one.name, one.begins_s) for one in jobs] for jobs in gpus] == [
        [("job", 1), ("job-3", 5)],
        [("job-2", 3), ("job-4", 7)],
    ]


def test_copies_of_which_nothing_is_drawn_are_simulated_alone_once() -> None:
    study = Study(Workload("test", (Job("job", ops=(Op(us=400),), copies=6),), gpus=6), small_gpu(), 0.1)
    outcome = study.run(NONE)
    assert len({id(tenant.alone) for tenant in outcome.tenants}) == 1


def test_a_job_that_never_came_has_no_share_and_counts_in_no_mean() -> None:
    here = Job("here", OPPORTUNISTIC, (Op(us=100),), waits=False)
    never = Job("never", OPPORTUNISTIC, (Op(us=100),), waits=False, begins_s=5)
    outcome = run(here, never, under=STRICT)
    assert math.isnan(outcome.tenants[1].share)
    assert outcome.fairness == pytest.approx(1)
    assert outcome.opportunistic_share == pytest.approx(outcome.tenants[0].share)


def test_jains_index_of_what_each_has_got() -> None:
    # One has everything: a half. 3 to 1: (3 + 1)^2 / (2 * (9 + 1)).
    serving = Job("serving", ops=(Op(us=100, repeat=10),), waits=False)
    below = Job("below", OPPORTUNISTIC, (Op(us=100, repeat=10),), waits=False)
    assert run(serving, below, under=STRICT).fairness == pytest.approx(0.5, abs=0.001)
    jobs = [
        Job(name, OPPORTUNISTIC, (Op(us=100, repeat=10),), waits=False, weight=weight)
        for name, weight in (("heavy", 3.0), ("light", 1.0))
    ]
    outcome = run(*jobs, under=STRICT, seconds=5)
    assert outcome.fairness == pytest.approx(0.8, abs=0.01)


def test_the_distribution_of_latencies_goes_up_to_all_of_them() -> None:
    arrivals = Arrivals(ArrivalKind.poisson, rate=500)
    latency = run(Job("job", ops=(Op(us=1000),), arrivals=arrivals)).tenants[0].latency
    points = latency.cdf()
    assert points == sorted(points) and points[-1][1] == 1
    assert sum(count for _, count in latency.counts) == latency.count
    median = next(us for us, part in points if part >= 0.5)
    assert median == pytest.approx(latency.p50_us, rel=0.012)


def test_a_gpu_that_nobody_is_on_is_idle() -> None:
    job = Job("job", ops=(Op(us=100, repeat=10),), waits=False, gpu=1)
    outcome = Study(Workload("test", (job,), gpus=2), small_gpu(), 0.1).run(NONE)
    idle, busy = outcome.gpus
    assert (idle.busy, idle.sm_activity, idle.switching, idle.switches, idle.events) == (0, 0, 0, 0, 0)
    assert outcome.busy == pytest.approx(busy.busy / 2) and busy.busy > 0.9
