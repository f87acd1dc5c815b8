"""95 % intervals from rounds, and what they say of a limit. Pure.

    x_r          what round r says: the log of a ratio, or a share
    interval     mean(x) ± t(n - 1) * stdev(x) / sqrt(n)

The round is the unit, since what differs between rounds (clock, temperature, the machine's other work) is the same for
all requests of one: pooling the requests would count it as known a hundredfold. A ratio is averaged by its
logarithm, so that twice as slow and twice as fast weigh the same.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Sequence

# With fewer, t makes the interval too wide to decide anything: 4.3 at three rounds, 2.6 at six.
LEAST_ROUNDS = 6
BLOCKS = 8  # of one long series: neighbouring requests share a queue, and are not independent
MET, MISSED, OPEN = "met", "missed", "open"

Interval = tuple[float, float]

# The 97.5 % quantile of Student's t, for 1 to 30 degrees of freedom.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_Z = 1.959964


def t_quantile(freedom: int) -> float:
    if freedom <= len(_T):
        return _T[freedom - 1]
    # The first two terms of its expansion around the normal one; 0.001 off at 30, less beyond.
    return _Z + (_Z**3 + _Z) / (4 * freedom) + (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * freedom**2)


@dataclasses.dataclass(frozen=True)
class Estimate:
    value: float
    interval: Interval | None  # None: one round does not say how rounds differ

    def at_most(self, limit: float) -> str:
        """Met when all of the interval is within the limit, missed when all of it is beyond, else open."""
        low, high = self.interval or (-math.inf, math.inf)
        return MET if high <= limit else MISSED if low > limit else OPEN

    def at_least(self, limit: float) -> str:
        low, high = self.interval or (-math.inf, math.inf)
        return MET if low >= limit else MISSED if high < limit else OPEN


def shown(estimate: Estimate) -> str:
    if estimate.interval is None:
        return f"{estimate.value:.2f}"
    return f"{estimate.value:.2f} [{estimate.interval[0]:.2f}, {estimate.interval[1]:.2f}]"


def of_shares(by_round: Sequence[float]) -> Estimate:
    """The mean of what each round has; it may be nothing in some."""
    mean = statistics.fmean(by_round)
    if len(by_round) < 2:
        return Estimate(mean, None)
    half = t_quantile(len(by_round) - 1) * statistics.stdev(by_round) / math.sqrt(len(by_round))
    return Estimate(mean, (mean - half, mean + half))


def of_ratios(above: Sequence[float], below: Sequence[float]) -> Estimate:
    """The geometric mean of the rounds' ratios. All must be over 0."""
    logs = of_shares([math.log(a / b) for a, b in zip(above, below, strict=True)])
    interval = logs.interval and (math.exp(logs.interval[0]), math.exp(logs.interval[1]))
    return Estimate(math.exp(logs.value), interval)


def of_series(above: Sequence[float], below: Sequence[float]) -> Estimate:
    """The ratio of two series' means where there are no rounds: consecutive blocks of each stand for them."""

    def means(values: Sequence[float]) -> list[float]:
        edges = [len(values) * block // BLOCKS for block in range(BLOCKS + 1)]
        return [statistics.fmean(values[a:b]) for a, b in itertools.pairwise(edges)]

    if min(len(above), len(below)) < BLOCKS:
        return Estimate(statistics.fmean(above) / statistics.fmean(below), None)
    return of_ratios(means(above), means(below))
