"""A GPU with round numbers, and policies that do one thing."""

from __future__ import annotations

from typing import ClassVar

from cotenant.policies.interface import Knobs, Policy, Rule, View
from cotenant.simulator import (
    ArrivalKind,
    Arrivals,
    Interference,
    Job,
    Op,
    Outcome,
    Recording,
    SimulatedGpu,
    Study,
    TenantClass,
    Workload,
)

PRODUCTION, STANDARD, OPPORTUNISTIC = TenantClass
LAUNCH_US = 2.0
CUT_US, DRAIN_US, OPEN_US = 200.0, 150.0, 7.0
WATCH_US, LOOK_US = Interference().watch_us, Interference().look_us


def small_gpu(**costs: float) -> SimulatedGpu:
    return SimulatedGpu(
        name="small",
        sms=10,
        memory_bytes=10 << 30,
        memory_gbps=100,
        bus_gbps=10,
        slice_us=1000,
        switch_us=DRAIN_US,
        launch_us=LAUNCH_US,
        interference=Interference(**{"cut_us": CUT_US, "open_us": OPEN_US, **costs}),
    )


class Fixed(Policy):
    """A policy that never changes its mind."""

    name = "fixed"
    title = "for tests"
    every_ms = 10.0
    rule = Rule.none
    knobs: ClassVar[Knobs] = Knobs(rule=Rule.none)

    def tick(self, view: View) -> Knobs:
        return self.knobs


def policy(
    knobs: Knobs, sharing: str = "timeslice", priorities: bool = False, every_ms: float = 10.0
) -> type[Fixed]:
    about = {
        "knobs": knobs,
        "rule": knobs.rule,
        "sharing": sharing,
        "priorities": priorities,
        "every_ms": every_ms,
    }
    return type("Policy", (Fixed,), about)


NONE = policy(Knobs(rule=Rule.none))
STRICT = policy(Knobs(rule=Rule.strict))
TOGETHER = policy(Knobs(rule=Rule.none), sharing="together")
URGENT_FIRST = policy(Knobs(rule=Rule.none), sharing="together", priorities=True)


def listed(*at_s: float) -> Arrivals:
    return Arrivals(ArrivalKind.listed, at_s=at_s)


def once(name: str, *ops: Op, tenant_class: TenantClass = PRODUCTION) -> Job:
    return Job(name, tenant_class, ops, requests=1)


def run(
    *jobs: Job,
    under: type[Fixed] = NONE,
    gpu: SimulatedGpu | None = None,
    seconds: float = 1.0,
    seed: int = 0,
) -> Outcome:
    study = Study(Workload("test", jobs), gpu or small_gpu(), seconds, seed, Recording(most_spans=200_000))
    return study.run(under)
