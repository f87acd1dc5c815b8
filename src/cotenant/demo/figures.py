"""From samples to the figures of the report. Pure."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

PHASES = ("alone", "shared", "cotenant")
AS_GOOD_AS_ALONE = 1.05
BLOCK = 10
DRAWS = 200


def percentile(samples: Sequence[float], percent: float) -> float:
    """Linear between the two nearest samples, as numpy's default is."""
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    position = (len(ordered) - 1) * percent / 100.0
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def ratio_interval(samples: Sequence[float], base: Sequence[float], percent: float) -> tuple[float, float]:
    """Where the ratio of two percentiles lies, with 95 % confidence: a bootstrap over blocks of requests.

    Neighbouring requests are not independent (one that is late delays the next), so blocks of them are drawn; and
    both phases met the same arrivals, so the same blocks are drawn from both.
    """
    draw = random.Random(0)
    count = min(len(samples), len(base))
    blocks = max(1, count // BLOCK)
    ratios = []
    for _ in range(DRAWS):
        starts = [draw.randrange(max(1, count - BLOCK + 1)) for _ in range(blocks)]
        chosen = [i for start in starts for i in range(start, min(start + BLOCK, count))]
        ratios.append(
            percentile([samples[i] for i in chosen], percent) / percentile([base[i] for i in chosen], percent)
        )
    return percentile(ratios, 2.5), percentile(ratios, 97.5)


@dataclasses.dataclass
class Samples:
    """Everything measured in one phase, all rounds together."""

    latencies_ms: list[float] = dataclasses.field(default_factory=list)
    services_ms: list[float] = dataclasses.field(default_factory=list)
    steps: float = 0.0
    seconds: float = 0.0
    stalls_ms: list[float] = dataclasses.field(default_factory=list)  # of the machine, as stillness.py has it

    @property
    def steps_per_second(self) -> float:
        return self.steps / self.seconds if self.seconds else 0.0


@dataclasses.dataclass(frozen=True)
class Figures:
    """One phase of the report; the field names are those of summary.json."""

    p50_ms: float
    p99_ms: float
    opportunistic_share: float  # of the rate that the same job reached alone in the same run
    p95_ms: float
    max_ms: float
    service_p50_ms: float  # from the request's start, without its wait for the one before it
    p99_ratio: float  # to running alone, in the same run
    p99_ratio_low: float  # its 95 % interval
    p99_ratio_high: float
    requests: int
    seconds: float
    stalls: int  # moments in which the machine stood still
    longest_stall_ms: float


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What the rounds found."""

    gpu: str
    software_gpu: bool
    driver_version: int
    phases: dict[str, Samples]  # by the names in PHASES
    opportunistic_alone: Samples
    rounds: int
    load_average: float  # of the machine when it began: how many wanted its CPUs

    def figures(self, phase: str) -> Figures:
        samples = self.phases[phase]
        solo = self.opportunistic_alone.steps_per_second
        alone = self.phases["alone"].latencies_ms
        low, high = ratio_interval(samples.latencies_ms, alone, 99)
        return Figures(
            p50_ms=percentile(samples.latencies_ms, 50),
            p99_ms=percentile(samples.latencies_ms, 99),
            opportunistic_share=samples.steps_per_second / solo if solo else 0.0,
            p95_ms=percentile(samples.latencies_ms, 95),
            max_ms=max(samples.latencies_ms),
            service_p50_ms=percentile(samples.services_ms, 50),
            p99_ratio=percentile(samples.latencies_ms, 99) / percentile(alone, 99),
            p99_ratio_low=low,
            p99_ratio_high=high,
            requests=len(samples.latencies_ms),
            seconds=samples.seconds,
            stalls=len(samples.stalls_ms),
            longest_stall_ms=max(samples.stalls_ms, default=0.0),
        )

    @property
    def production_busy_share(self) -> float:
        """The part of the time in which the production job, alone, needs the GPU."""
        alone = self.phases["alone"]
        return sum(alone.services_ms) / 1000.0 / alone.seconds

    def conclusion(self) -> str:
        """The result in a sentence, as the figures have it."""
        without, with_it = self.figures("shared").p99_ratio, self.figures("cotenant").p99_ratio
        slow = f"Sharing makes the slowest requests {without:.1f} times as slow"
        if with_it >= without:
            return f"Cotenant did not help: {with_it:.1f} times the p99 of running alone, {without:.1f} without it"
        if with_it < AS_GOOD_AS_ALONE:
            return f"{slow}; not so with Cotenant"
        return f"{slow}; with Cotenant, {with_it:.1f} times"
