"""Floors hold in executed time, whatever the weights, beside whomever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cotenant.simulator import ArrivalKind, Arrivals, Job, Op, Study, Workload
from cotenant.simulator.results import TenantOutcome
from tests.cases import drawn_cases
from tests.simulator.drawn import Drawn, with_floors
from tests.simulator.small import OPPORTUNISTIC, PRODUCTION, STANDARD

SECONDS = 8.0
KEPT = 0.95  # of a floor; the daemon calls it kept from 0.9 on (docs/commands.md)


@pytest.mark.parametrize("seed", drawn_cases(24, always=10))
def test_every_floor_is_kept(seed: int) -> None:
    """Once a tenant's weight made its slices: a fifth of such floors were not kept, one of them to 0.27."""
    jobs = with_floors(seed)
    for policy in ("strict", "guard", "fair"):
        outcome = Study(Workload("floors", tuple(jobs)), seconds=SECONDS, seed=seed).run(policy)
        for job, tenant in zip(jobs, outcome.tenants, strict=True):
            assert tenant.executed_s >= KEPT * job.floor * SECONDS, f"{policy}: {outcome.tenants}"


@pytest.mark.parametrize("floor", [0.02, 0.05, 0.1])
def test_a_floor_is_kept_soon_after_production_has_come(floor: float) -> None:
    """Once the tenant had to make up for all that it had got alone: a floor of 5 % was not kept for 2 s."""
    endless = Job("endless", PRODUCTION, (Op(us=500.0),), waits=False, trains=True, begins_s=1.0)
    below = Job("below", OPPORTUNISTIC, (Op(us=400.0),), waits=False, trains=True, floor=floor)
    executed_s = [
        Study(Workload("floors", (endless, below)), seconds=seconds).run("strict").tenants[1].executed_s
        for seconds in (2.0, 3.0)
    ]
    assert executed_s[1] - executed_s[0] >= KEPT * floor


@pytest.mark.parametrize("seed", drawn_cases(24, always=10))
def test_a_floor_that_is_had_anyway_costs_production_nothing(seed: int) -> None:
    """Once production had short slices beside any floor, and held no gaps: up to 2.8 times the service time."""
    drawn = Drawn.of(seed)
    production = Job(
        "serving", PRODUCTION, drawn.ops, arrivals=Arrivals(ArrivalKind.poisson, rate=drawn.rate)
    )
    below = [
        Job(f"below {number}", (STANDARD, OPPORTUNISTIC)[number], (Op(us=us),), waits=False, trains=True)
        for number, us in enumerate(drawn.kernels_us)
    ]

    def run(jobs: list[Job]) -> tuple[TenantOutcome, ...]:
        return (
            Study(Workload("floors", (production, *jobs)), seconds=SECONDS, seed=seed).run("strict").tenants
        )

    without = run(below)
    floors = [0.5 * tenant.executed_s / SECONDS for tenant in without[1:]]
    beside = run([replace(job, floor=round(floor, 3)) for job, floor in zip(below, floors, strict=True)])
    assert beside[0].service.mean_us <= 1.05 * without[0].service.mean_us
