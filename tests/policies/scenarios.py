"""Random GPUs for policies that keep promises: kinds of production, phases, pauses, arrivals, neighbours.

python -m tests.policies.scenarios 1000 1150     # guard on the GPUs of these seeds: a minute
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import random
from dataclasses import replace

from cotenant.policies.guard.policy import Guard
from tests.policies.plant import Neighbour, Plant, Production

SECONDS = 24.0
KEPT, MOST = 1.25, 0.8  # of the promise in any window, of what the oracle allows

KINDS = {
    "graph": Production(every_us=50_000, operations=18, operation_us=900),
    "compiled": Production(every_us=20_000, operations=8, operation_us=225),
    "eager": Production(every_us=100_000, operations=2000, operation_us=24, eager=True),
    "serving": Production(every_us=20_000, operations=100, operation_us=50),
    "training": Production(every_us=0, operations=20, operation_us=100),
}
PAUSES = ((0.0, 0.0), (0.0, 0.0), (1.0, 1.0), (1.3, 0.8), (2.0, 0.5))


def production(draw: random.Random, name: str, promise: float | None) -> list[Production]:
    kind = draw.choice(list(KINDS))
    about = replace(KINDS[kind], name=name, promise=promise, noise=draw.uniform(0.005, 0.03))
    about = replace(about, operation_us=about.operation_us * draw.uniform(0.5, 1.3))
    if kind != "training":
        works, idle = draw.choice(PAUSES)
        about = replace(about, works_s=works, idle_s=idle)
    phases, at = [], 0.0
    for _ in range(draw.choice((0, 0, 1, 2))):
        at += draw.uniform(4, 12)
        # Under load it must not be busy all the time: then there is nothing to give away.
        phases.append((at, draw.uniform(0.3, 1.4) if about.every_us else draw.uniform(0.3, 3)))
    about = replace(about, phases=tuple(phases), clock_bound=draw.choice((0.0, 1.0)))
    if kind == "serving" and not about.idle_s and draw.random() < 0.3:
        return [replace(about, begins_s=float(at), ends_s=at + 1.0) for at in range(int(SECONDS))]
    begins = draw.choice((0.0, 0.0, draw.uniform(0, 10)))
    ends = draw.choice((math.inf, math.inf, begins + draw.uniform(6, 20)))
    return [replace(about, begins_s=begins, ends_s=ends)]


def neighbour(draw: random.Random, smallest: float) -> Neighbour:
    """What it does to production in its pauses is harmless, mild or harsh: up to what leaves it a tenth of its time."""
    harm = draw.choice(((0.0, 0.01), (0.02, 0.1), (0.2, 0.5)))
    strict = min(draw.uniform(*harm), 9 * smallest)
    begins = draw.choice((0.0, draw.uniform(0, 8)))
    return Neighbour(
        strict=strict,
        tolerant=strict + draw.uniform(0, 1),
        heat=draw.choice((0.0, 0.0, draw.uniform(0.02, 0.15))),
        begins_s=begins,
        ends_s=draw.choice((math.inf, math.inf, begins + draw.uniform(5, 15))),
    )


def scenario(draw: random.Random) -> Plant:
    promises = [draw.choice((0.05, 0.1, 0.2)) for _ in range(draw.choice((1, 1, 2)))]
    stated: list[float | None] = [*promises, *[None] * draw.choice((0, 0, 1))]
    jobs = [
        job for number, promise in enumerate(stated) for job in production(draw, f"job {number}", promise)
    ]
    neighbours = [neighbour(draw, min(promises)) for _ in range(draw.choice((1, 1, 2, 3)))]
    return Plant(jobs, neighbours, seed=draw.randrange(1000), shows_clock=draw.random() < 0.5)


def judge(seed: int) -> tuple[int, float, float]:
    """The worst window in promises, and the neighbours' work of what the oracle would let them do."""
    plant = scenario(random.Random(seed)).play(Guard(), SECONDS)
    return seed, plant.worst(), plant.work()


def main(first: int, end: int) -> None:
    with multiprocessing.Pool() as pool:
        judged = pool.map(judge, range(first, end), chunksize=4)
    broken = {seed: round(worst, 2) for seed, worst, _ in judged if worst > KEPT}
    wasted = {seed: round(work, 2) for seed, _, work in judged if work < MOST}
    print(f"{len(broken)} of {len(judged)} break a promise: {broken}")
    print(f"{len(wasted)} of {len(judged)} leave the neighbours less than {MOST}: {wasted}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="How guard does on the random GPUs of seeds FIRST to END - 1."
    )
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    asked = parser.parse_args()
    main(asked.first, asked.end)
