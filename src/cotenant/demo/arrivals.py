"""When requests arrive: a Poisson process, the same for the same seed."""

from __future__ import annotations

import random


def poisson_arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Arrival times in [0, seconds), in order, with exponential gaps of 1/rate on average."""
    if rate <= 0:
        raise ValueError(f"an arrival rate must be positive, not {rate}")
    source = random.Random(seed)
    arrivals = []
    time = source.expovariate(rate)
    while time < seconds:
        arrivals.append(time)
        time += source.expovariate(rate)
    return arrivals
