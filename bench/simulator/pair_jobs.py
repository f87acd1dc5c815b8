"""The jobs of bench/pairs in the simulator's words: from their traces, recorded alone on an H200 (examples/traces)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from cotenant.cluster.predict.jobs import one_request, running_ahead
from cotenant.cluster.predict.pairs import POLICIES
from cotenant.simulator import ArrivalKind, Arrivals, Job, TenantClass
from cotenant.simulator.trace_program import read_program

__all__ = ["CROWD_STEPS", "POLICIES", "SERVING", "STEPS", "hot_job", "opportunistic_job", "production_job"]

TRACES = Path(__file__).parents[2] / "examples" / "traces"

SERVING = ("decode", "encoder", "vision", "training")
RATES = {"decode": 20.0, "encoder": 100.0, "vision": 40.0}
LOADER_MS = {"training": (15.0, 35.0)}
# How long a request takes while its trace is recorded, of unrecorded: events between graphs keep the next from being
# launched ahead. The other traces are as long as unrecorded, within 1 %.
RECORDED = {"decode": 17.27 / 16.2}
# Of the highest SM clock, while the job alone runs: what it draws is at the GPU's power limit.
CLOCKS = {"longk": 1470 / 1980, "gpt": 1910 / 1980}
STEPS = ("gpt", "longk", "graph", "copies", "resnet")
CROWD_STEPS = (*STEPS, "eager")


@cache
def production_job(name: str) -> Job:
    rate = RATES.get(name, 0.0)
    program = one_request(read_program(TRACES / f"{name}.trace"))
    program.ops["us"] /= RECORDED.get(name, 1.0)
    return Job(
        name,
        TenantClass.production,
        program=program,
        arrivals=Arrivals(ArrivalKind.poisson, rate) if rate else Arrivals(),
        think_ms=LOADER_MS.get(name, (0.0, 0.0)),
        trains=not rate,
    )


@cache
def opportunistic_job(name: str) -> Job:
    program = running_ahead(read_program(TRACES / f"{name}.trace"))
    return Job(name, TenantClass.opportunistic, program=program, waits=False, trains=True)


@cache
def hot_job(name: str) -> Job:
    """The same, at the clock that it brings about."""
    return replace(opportunistic_job(name), clock=CLOCKS.get(name, 1.0))
