"""How long a tenant waited for the GPU with work of its own, as its slot counts it (native/wire/waiting.h): a bucket
for each doubling of the wait, of which quantiles are estimated as Prometheus does, evenly within a bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from cotenant.segment.wire import SHORTEST_WAIT_NS, WAIT_BUCKETS

# A bucket has the waits that are shorter than this, and no shorter than the bound before; the last has no bound.
BOUNDS_US = tuple((SHORTEST_WAIT_NS << number) / 1000 for number in range(WAIT_BUCKETS - 1))


def quantile_us(counts: Sequence[int], part: float) -> float | None:
    """`part`: 0.99 is the 99th percentile. What is longer than the last bound counts as that; None: nothing waited."""
    sums = list(accumulate(counts))
    if not sums or not sums[-1]:
        return None
    wanted = part * sums[-1]
    at = next(number for number, total in enumerate(sums) if total >= wanted and counts[number])
    if at >= len(BOUNDS_US):
        return BOUNDS_US[-1]
    below = BOUNDS_US[at - 1] if at else 0.0
    return below + (BOUNDS_US[at] - below) * (wanted - (sums[at] - counts[at])) / counts[at]


def between(then: Sequence[int], now: Sequence[int]) -> tuple[int, ...]:
    """The waits that ended in between. A tenant writes its slot as it likes: none are fewer than 0."""
    return tuple(max(new - old, 0) for old, new in zip(then, now, strict=True)) if then else tuple(now)
