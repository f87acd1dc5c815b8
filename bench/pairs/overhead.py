"""What the interposer costs a job that runs alone: steps a second with it and without, in turns.

Two equal processes differ by more than the interposer costs, so there are several of each; and a window's rate is that
of its median step, which a disturbance now and then does not change.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Sequence
from typing import Any

from catalogue import AS_OPPORTUNISTIC, AS_PRODUCTION, PLAIN, parse_job
from crew import Crew
from intervals import of_ratios
from pace import Pace
from rounds import Narrate, Window, run_window

from cotenant.demo.workers import Worker
from cotenant.errors import Problem

MOST = {AS_PRODUCTION: 0.015, AS_OPPORTUNISTIC: 0.03}
STARTS = (PLAIN, *MOST)


def measure(
    crew: Crew, jobs: list[str], rounds: int, seconds: float, narrate: Narrate, processes: int
) -> dict[str, Any]:
    """Each job in each class, against itself without the interposer."""
    rows = []
    about: dict[str, Any] = {}
    for name in jobs:
        job = parse_job(name, "opportunistic")
        copies = [dataclasses.replace(job, name=f"{name}#{number + 1}") for number in range(processes)]
        about = crew.gather((copy, start) for copy in copies for start in STARTS)
        rates: dict[str, list[list[float]]] = {start: [[] for _ in copies] for start in STARTS}
        for copy, start in itertools.product(copies, STARTS):
            step_lengths(crew.worker(copy, start), crew.pace.warm_up, 0, crew.pace)
        orders = list(itertools.permutations(STARTS))
        for number in range(rounds):
            narrate(f"overhead of {name}: round {number + 1} of {rounds}")
            for index, copy in enumerate(copies):
                for start in orders[(number + index) % len(orders)]:
                    rate = steps_a_second(crew.worker(copy, start), seconds, number, crew.pace)
                    rates[start][index].append(rate)
        rows += [row(name, class_, rates[PLAIN], rates[class_]) for class_ in MOST]
    return {"rows": rows, "about": about}


def step_lengths(worker: Worker, seconds: float, seed: int, pace: Pace) -> Sequence[float]:
    return run_window(None, 0.0, worker, Window("solo", seconds, seed), pace).step_seconds


def steps_a_second(worker: Worker, seconds: float, seed: int, pace: Pace) -> float:
    lengths = step_lengths(worker, seconds, seed, pace)
    if not lengths:
        raise Problem("no step ended in a window", "give more --seconds")
    return 1.0 / statistics.median(lengths)


Rates = Sequence[Sequence[float]]  # by process, and in it by round


def row(job: str, class_: str, plain: Rates, tenant: Rates) -> dict[str, Any]:
    """The cost as a part of the plain rate; negative where the tenant was quicker. The process is the unit: it differs
    from an equal one by more than a round from the next."""
    kept = of_ratios(*([statistics.fmean(rounds) for rounds in rates] for rates in (tenant, plain)))
    mean_plain, mean_tenant = (statistics.mean(itertools.chain(*rates)) for rates in (plain, tenant))
    return {
        "job": job,
        "class": class_,
        "plain_per_second": mean_plain,
        "tenant_per_second": mean_tenant,
        "cost": 1.0 - kept.value,
        "cost_interval": kept.interval and [1.0 - kept.interval[1], 1.0 - kept.interval[0]],
        "wanted": MOST[class_],
        "by_process": {"plain": plain, "tenant": tenant},
    }
