"""Which trainings leave and return when, as somebody sees it who looks now and then; and the requests meanwhile.

Between two looks there is what was seen before or what was seen after. A request there counts as beside a move, never
as beside none: what is said of trainings that are still is said of nothing else.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf
from typing import NamedTuple

BLIND_SECONDS = 0.05  # nobody has looked for longer: anything may have happened
LEAVES, RETURNS, STILL = "one leaves", "one returns", "both are still"
WHILE = (LEAVES, RETURNS, STILL)
UNSEEN = "unseen"


class Span(NamedTuple):
    """In the figures: the first look that found them so, the last one, and where each training was."""

    began: float
    ended: float
    where: list[str]


def saw(spans: list[Span], now: float, where: list[str]) -> None:
    """Looks come in the order of time."""
    if spans and spans[-1].where == where and now - spans[-1].ended <= BLIND_SECONDS:
        spans[-1] = spans[-1]._replace(ended=now)
    else:
        spans.append(Span(now, now, where))


def states_of(where: Sequence[str]) -> frozenset[str]:
    moving = {LEAVES for one in where if one == "evicting"} | {RETURNS for one in where if one == "restoring"}
    return frozenset(moving or {STILL})


def between(before: Span, after: Span) -> frozenset[str]:
    either = states_of(before.where) | states_of(after.where)
    # Still at both looks, but not in the same place: whatever moved was too quick to be seen.
    if after.began - before.ended > BLIND_SECONDS or either == {STILL}:
        return frozenset({UNSEEN})
    return either


def timeline(spans: Sequence[Span]) -> Iterator[tuple[float, frozenset[str]]]:
    """What there is from when, until the next."""
    yield -inf, frozenset({UNSEEN})
    for before, after in pairwise(spans):
        yield before.began, states_of(before.where)
        yield before.ended, between(before, after)
    for last in spans[-1:]:
        yield last.began, states_of(last.where)
        yield last.ended, frozenset({UNSEEN})


def latency_while(
    spans: Sequence[Span], due: Sequence[float], latency_ms: Sequence[float]
) -> dict[str, list[float]]:
    """The latencies in each of WHILE. A request beside a move and another is in both."""
    changes = list(timeline(spans))
    times = [at for at, _ in changes]
    found: dict[str, list[float]] = {state: [] for state in WHILE}
    for began, took in zip(due, latency_ms, strict=True):
        first, last = bisect_right(times, began) - 1, bisect_right(times, began + took / 1000)
        met = set[str]().union(*(states for _, states in changes[first:last]))
        for state in WHILE:
            if met == {STILL} if state == STILL else state in met:
                found[state].append(took)
    return found
