"""A production job and the kernels of those below it, drawn at random."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

from cotenant.simulator import ArrivalKind, Arrivals, Job, Op
from tests.simulator.small import OPPORTUNISTIC, PRODUCTION, STANDARD


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


@dataclass(frozen=True)
class Drawn:
    ops: tuple[Op, ...]  # of a request
    rate: float
    kernels_us: tuple[float, ...]  # of each job below

    @classmethod
    def of(cls, seed: int) -> Drawn:
        draw = Draw(seed)
        ops = draw.ops()
        rate = min(draw.uniform(0.02, 0.7) / length_us(ops) * 1e6, 1000)
        return cls(ops, rate, tuple(draw.between(10, 20_000) for _ in range(draw.randint(1, 2))))

    @property
    def request_us(self) -> float:
        return length_us(self.ops)


def length_us(ops: tuple[Op, ...]) -> float:
    return sum((one.us + one.gap_us) * one.repeat for one in ops)


def crowd(seed: int) -> list[Job]:
    """One to five jobs of the lower classes that train or serve; some wait for their CPU."""
    draw = Draw(seed + 10_000)
    jobs = []
    for number in range(draw.randint(1, 5)):
        us = draw.between(8, 20_000)
        gap_us = draw.choice([0.0, 0.0, draw.between(3, 300), draw.between(100, 20_000)])
        op = Op(
            us=us,
            gap_us=gap_us,
            sync=draw.random() < 0.4,
            repeat=draw.choice([1, 10, 100]) if us < 2000 else 1,
        )
        name, tenant_class = f"below {number}", draw.choice([STANDARD, OPPORTUNISTIC, OPPORTUNISTIC])
        if draw.random() < 0.7:
            jobs.append(Job(name, tenant_class, (op,), trains=True))
        else:
            rate = min(draw.uniform(0.05, 0.6) / length_us((op,)) * 1e6, 500)
            arrivals = Arrivals(ArrivalKind.poisson, rate=rate)
            jobs.append(Job(name, tenant_class, (op,), arrivals=arrivals))
    return jobs


def with_floors(seed: int) -> list[Job]:
    """One to five jobs of the lower classes that always have work, some with a floor, beside production that serves,
    trains or is not there. All have weights."""
    draw = Draw(seed + 20_000)

    def kernels() -> tuple[Op, ...]:
        us = draw.between(5, 30_000)
        return (Op(us=us, gap_us=us * draw.uniform(0, 0.5), repeat=max(1, round(1000 / us))),)

    jobs = []
    ops, weight = draw.ops(), draw.choice([0.5, 1.0, 4.0])
    if draw.random() < 0.5:
        arrivals = Arrivals(
            ArrivalKind.poisson, rate=min(draw.uniform(0.05, 0.6) / length_us(ops) * 1e6, 1000)
        )
        jobs.append(Job("serving", PRODUCTION, ops, arrivals=arrivals, weight=weight))
    elif draw.random() < 0.5:
        jobs.append(Job("training", PRODUCTION, kernels(), trains=True, weight=weight))
    promised = 0.0
    for number in range(draw.randint(1, 5)):
        floor = round(draw.choice([0.0, draw.uniform(0.03, 0.6)]), 3)
        floor = floor if promised + floor <= 0.85 else 0.0
        promised += floor
        tenant_class, weight = draw.choice([STANDARD, OPPORTUNISTIC]), draw.choice([0.5, 1.0, 2.0, 4.0])
        jobs.append(
            Job(
                f"below {number}",
                tenant_class,
                kernels(),
                waits=False,
                trains=True,
                weight=weight,
                floor=floor,
            )
        )
    return jobs
