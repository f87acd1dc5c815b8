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


@pytest.mark.parametrize("below_us", [50.0, 300.0, 11_000.0])
@pytest.mark.parametrize("us", [50.0, 500.0, 11_000.0])
def test_a_standard_job_that_is_cut_for_production_is_not_held_up_by_a_lower_class(
    us: float, below_us: float
) -> None:
    """If both had slices shorter than a switch, hardly a kernel would end: 0.21 of its work."""
    arrivals = Arrivals(ArrivalKind.poisson, rate=20)
    serving = Job("serving", PRODUCTION, (Op(us=1500, sync=True),), arrivals=arrivals)
    steps = (Op(us=us, repeat=round(20_000 / us)), Op(us=10, gap_us=5000, sync=True))
    standard = Job("standard", STANDARD, steps, trains=True)
    below = Job("below", OPPORTUNISTIC, (Op(us=below_us),), waits=False, trains=True)
    workload = Workload("standard", (serving, standard, below))
    outcome = Study(workload, seconds=4.0, seed=1).run("strict")
    tenant = outcome.tenants[1]
    assert tenant.work_us > 0.75 * tenant.alone.work_us


def test_a_kernel_that_a_standard_job_has_cut_does_not_stay_on_the_gpu() -> None:
    """The standard job works for half a second at a time. Once production took 1.77 times as long throughout."""
    arrivals = Arrivals(ArrivalKind.poisson, rate=60)
    serving = Job("serving", PRODUCTION, (Op(us=1500, sync=True),), arrivals=arrivals)
    steps = (Op(us=11_000, repeat=45), Op(us=10, gap_us=5000, sync=True))
    standard = Job("standard", STANDARD, steps, trains=True)
    below = Job("below", OPPORTUNISTIC, (Op(us=11_000),), waits=False, trains=True)
    outcome = Study(Workload("standard", (serving, standard, below)), seconds=8.0, seed=1).run("strict")
    served, above = outcome.tenants[:2]
    assert served.service.mean_us < 1.4 * served.alone.service.mean_us
    assert above.work_us > 0.82 * above.alone.work_us
