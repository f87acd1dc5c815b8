"""Production whose requests follow each other closely, on a simulated H200: what lies between them is not lost, and
production waits no longer than for a change of contexts. Also of production drawn at random."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import pytest

from cotenant.simulator import ArrivalKind, Arrivals, Job, Op, Outcome, Study, Workload
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


class Draw(random.Random):
    def between(self, least: float, most: float) -> float:
        """Of every order of magnitude as often."""
        return math.exp(self.uniform(math.log(least), math.log(most)))

    def ops(self) -> tuple[Op, ...]:
        """A graph or a kernel; steps that are waited for; eager code; a graph with launches behind it."""
        graph = Op(us=self.between(20, 20_000), sync=True)
        steps = Op(us=self.between(30, 5000), gap_us=self.between(10, 4000), sync=True)
        eager = Op(us=self.between(5, 100), gap_us=self.between(5, 100))
        return self.choice(
            [
                (graph,),
                (replace(steps, repeat=self.randint(2, 20)),),
                (replace(eager, repeat=self.randint(20, 300)),),
                (steps, replace(eager, repeat=self.randint(5, 80), sync=True)),
            ]
        )


@pytest.mark.parametrize("seed", range(80))
def test_whatever_production_does_it_is_hardly_delayed_and_the_rest_is_used(seed: int) -> None:
    draw = Draw(seed)
    ops = draw.ops()
    request_us = sum((one.us + one.gap_us) * one.repeat for one in ops)
    rate = min(draw.uniform(0.02, 0.7) / request_us * 1e6, 1000)
    kernels_us = [draw.between(10, 20_000) for _ in range(draw.randint(1, 2))]
    serving, *below = outcome(ops, rate, *kernels_us).tenants
    # Between requests, less two changes of contexts and a cut.
    left = 1 - rate * (request_us + 400) / 1e6
    assert sum(one.work_us / one.alone.work_us for one in below) > 0.4 * left
    alone_us = serving.alone.latency.p50_us
    assert serving.latency.p50_us < max(1.25 * alone_us, alone_us + 500)
