"""What the interposer costs a job that runs alone: steps a second with it and without, in turns."""

from __future__ import annotations

import itertools
from typing import Any

from bootstrap import rate_ratio_interval
from catalogue import AS_OPPORTUNISTIC, AS_PRODUCTION, PLAIN, parse_job
from crew import Crew
from rounds import WARM_UP_SECONDS, Narrate, Window, run_window

MOST = {AS_PRODUCTION: 0.015, AS_OPPORTUNISTIC: 0.03}


def measure(crew: Crew, jobs: list[str], rounds: int, seconds: float, narrate: Narrate) -> dict[str, Any]:
    """Each job in each class, against itself without the interposer."""
    rows = []
    about: dict[str, Any] = {}
    for name in jobs:
        job = parse_job(name, "opportunistic")
        starts = (PLAIN, *MOST)
        about = crew.gather((job, start) for start in starts)
        rates: dict[str, list[float]] = {start: [] for start in starts}
        for start in starts:
            run_window(None, 0.0, crew.worker(job, start), Window("solo", WARM_UP_SECONDS, seed=0))
        orders = list(itertools.permutations(starts))
        for number in range(rounds):
            narrate(f"overhead of {name}: round {number + 1} of {rounds}")
            for start in orders[number % len(orders)]:
                seen = run_window(None, 0.0, crew.worker(job, start), Window("solo", seconds, seed=number))
                rates[start].append(seen.samples.steps_per_second)
        rows += [row(name, class_, rates[PLAIN], rates[class_]) for class_ in MOST]
    return {"rows": rows, "about": about}


def row(job: str, class_: str, plain: list[float], tenant: list[float]) -> dict[str, Any]:
    """The cost as a part of the plain rate; negative where the tenant was quicker."""
    low, high = rate_ratio_interval(tenant, plain)
    return {
        "job": job,
        "class": class_,
        "plain_per_second": sum(plain) / len(plain),
        "tenant_per_second": sum(tenant) / len(tenant),
        "cost": 1.0 - sum(tenant) / sum(plain),
        "cost_interval": [1.0 - high, 1.0 - low],
        "wanted": MOST[class_],
        "by_round": {"plain": plain, "tenant": tenant},
    }
