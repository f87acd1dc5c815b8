"""Production beside standard jobs: as beside opportunistic ones."""

from __future__ import annotations

import pytest

from cotenant.simulator import ArrivalKind, Arrivals, Job, Op, Study, Workload
from tests.simulator.drawn import Drawn
from tests.simulator.small import OPPORTUNISTIC, PRODUCTION, STANDARD


@pytest.mark.parametrize("seed", range(24))
def test_production_waits_no_longer_for_a_standard_job_than_for_an_opportunistic_one(seed: int) -> None:
    """Once only opportunistic kernels were cut: up to 1.9 times the service time."""
    drawn = Drawn.of(seed)
    arrivals = Arrivals(ArrivalKind.poisson, rate=drawn.rate)
    serving = Job("serving", PRODUCTION, drawn.ops, arrivals=arrivals)
    service_us = []
    for tenant_class in (STANDARD, OPPORTUNISTIC):
        below = Job("below", tenant_class, (Op(us=drawn.kernels_us[0]),), waits=False, trains=True)
        outcome = Study(Workload("standard", (serving, below)), seconds=8.0, seed=seed).run("strict")
        service_us.append(outcome.tenants[0].service.mean_us)
    assert service_us[0] <= 1.02 * service_us[1]
