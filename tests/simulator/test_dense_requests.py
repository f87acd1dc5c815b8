"""Production whose requests follow each other closely, on a simulated H200: what lies between them is not lost, and
production waits no longer than for a change of contexts. Also of production drawn at random."""

from __future__ import annotations

import itertools

import pytest

from cotenant.simulator import ArrivalKind, Arrivals, Job, Op, Outcome, Study, Workload
from tests.cases import drawn_cases
from tests.simulator.drawn import Drawn
from tests.simulator.small import OPPORTUNISTIC

KERNELS_US = (60, 400, 11_000)  # of the job below


def outcome(ops: tuple[Op, ...], rate: float, *kernels_us: float) -> Outcome:
    serving = Job("serving", ops=ops, arrivals=Arrivals(ArrivalKind.poisson, rate=rate))
    below = [
        Job(f"below {number}", OPPORTUNISTIC, (Op(us=us),), trains=True)
        for number, us in enumerate(kernels_us)
    ]
    return Study(Workload("dense", (serving, *below)), "h200", 4.0, seed=3).run("strict")


@pytest.mark.parametrize(
    ("us", "rate", "kernel_us"),
    [
        *itertools.product([30], [100, 350, 600, 900], KERNELS_US),
        *itertools.product([1400], [100, 350, 500], KERNELS_US),
        *itertools.product([5000], [60, 120, 160], KERNELS_US),
    ],
)
def test_what_requests_leave_of_the_gpu_is_used_at_every_rate(
    us: float, rate: float, kernel_us: float
) -> None:
    serving, below = outcome((Op(us=us, sync=True),), rate, kernel_us).tenants
    left = 1 - us * rate / 1e6
    assert below.work_us / below.alone.work_us > 0.3 * left
    # Each waits for a change of contexts, and perhaps for a cut, as at any rate.
    assert serving.latency.p50_us < serving.alone.latency.p50_us + 500


@pytest.mark.parametrize(("gap_us", "kernel_us"), [*itertools.product([260, 800, 1500], KERNELS_US)])
def test_gaps_of_a_burst_are_waited_out_where_others_have_time_enough(
    gap_us: float, kernel_us: float
) -> None:
    steps = (Op(us=500, gap_us=gap_us, sync=True, repeat=10),)
    serving, below = outcome(steps, 8, kernel_us).tenants
    assert serving.latency.p50_us < 1.05 * serving.alone.latency.p50_us
    assert below.work_us / below.alone.work_us > 0.8


@pytest.mark.parametrize("seed", drawn_cases(80, always=30))
def test_whatever_production_does_it_is_hardly_delayed_and_the_rest_is_used(seed: int) -> None:
    drawn = Drawn.of(seed)
    serving, *below = outcome(drawn.ops, drawn.rate, *drawn.kernels_us).tenants
    # Between requests, less two changes of contexts and a cut.
    left = 1 - drawn.rate * (drawn.request_us + 400) / 1e6
    assert sum(one.work_us / one.alone.work_us for one in below) > 0.4 * left
    alone_us = serving.alone.latency.p50_us
    assert serving.latency.p50_us < max(1.25 * alone_us, alone_us + 500)
