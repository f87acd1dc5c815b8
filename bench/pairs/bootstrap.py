"""Confidence intervals by resampling: rounds with replacement, and within a round blocks of consecutive requests.

Blocks, because neighbouring requests share a queue and are not independent. Where both sides of a ratio saw the same
arrivals (as many samples in every round), the same requests are drawn on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy

RESAMPLES = 500
Interval = tuple[float, float]
Rounds = Sequence[Sequence[float]]


def statistic(samples: numpy.ndarray[tuple[int], numpy.dtype[numpy.float64]], percent: float | None) -> float:
    """The percentile; None: the mean."""
    return float(samples.mean() if percent is None else numpy.percentile(samples, percent))


def ratio_interval(above: Rounds, below: Rounds, percent: float | None, seed: int = 0) -> Interval:
    """The 95 % interval of percentile(above) / percentile(below), or of the means, all rounds together."""
    source = numpy.random.default_rng(seed)
    top = [numpy.asarray(samples, dtype=float) for samples in above]
    bottom = [numpy.asarray(samples, dtype=float) for samples in below]
    paired = [len(samples) for samples in top] == [len(samples) for samples in bottom]

    def once() -> float:
        chosen = source.integers(len(top), size=len(top))
        drawn_top, drawn_bottom = [], []
        for index in chosen:
            indices = _block_indices(len(top[index]), source)
            drawn_top.append(top[index][indices])
            if not paired:
                indices = _block_indices(len(bottom[index]), source)
            drawn_bottom.append(bottom[index][indices])
        return statistic(numpy.concatenate(drawn_top), percent) / statistic(
            numpy.concatenate(drawn_bottom), percent
        )

    return _interval(once)


def rate_ratio_interval(above: Rounds, below: Rounds, seed: int = 0) -> Interval:
    """The 95 % interval of sum(above) / sum(below), a row for each process and in it a figure for each round: processes
    are drawn, then rounds, both as they were: in twos."""
    source = numpy.random.default_rng(seed)
    top, bottom = numpy.asarray(above, dtype=float), numpy.asarray(below, dtype=float)
    processes, rounds = top.shape

    def once() -> float:
        chosen = source.integers(processes, size=(processes, 1)), source.integers(rounds, size=top.shape)
        return float(top[chosen].sum() / bottom[chosen].sum())

    return _interval(once)


def _interval(once: Callable[[], float]) -> Interval:
    low, high = numpy.percentile([once() for _ in range(RESAMPLES)], [2.5, 97.5])
    return float(low), float(high)


def _block_indices(
    count: int, source: numpy.random.Generator
) -> numpy.ndarray[tuple[int], numpy.dtype[numpy.int64]]:
    """`count` indices in consecutive runs that begin anywhere and wrap at the end."""
    length = max(1, round(count ** (1 / 3)))
    starts = source.integers(count, size=-(-count // length))
    indices = (starts[:, None] + numpy.arange(length)[None, :]).ravel()[:count] % count
    chosen: numpy.ndarray[tuple[int], numpy.dtype[numpy.int64]] = indices.astype(numpy.int64)
    return chosen
