"""Whether promises are kept, as the daemon decides: for each look of tenants/lately.py what it said, verdicts out. No
clock, no file.

A promise is broken, or kept, when `lately` has said so at SURE looks, one after the other. A verdict stands until the
other one is sure; it ends with its promise, and where nothing could be measured for UNMEASURED_NS.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cotenant import segment

SURE = 3
UNMEASURED_NS = 60_000_000_000

Place = tuple[int, int, int]  # a tenant's PID in its own namespace, when it started, GPU


@dataclass(frozen=True)
class Verdict:
    kept: bool
    since_ns: int  # by the clock of segment.now_ns


NO_VERDICTS: Mapping[Place, Verdict] = {}


REMEMBERED = (-1, -1)  # the terms of a verdict that an earlier daemon told


@dataclass
class _Case:
    terms: tuple[int, int]  # what was promised
    verdict: Verdict | None = None
    says: bool = True  # what the last looks said
    times: int = 0  # in a row
    first_ns: int = 0  # the first of them
    measured_ns: int = 0


class Verdicts:
    def __init__(self) -> None:
        self.cases: dict[Place, _Case] = {}

    def remember(self, place: Place, verdict: Verdict) -> None:
        """An earlier daemon's."""
        self.cases[place] = _Case(REMEMBERED, verdict, measured_ns=verdict.since_ns)

    def find(self, told: Place, place: Place) -> None:
        """An earlier daemon told of a tenant in a container by another PID than its own."""
        case = self.cases.get(told)
        if told != place and case is not None and case.terms == REMEMBERED:
            self.cases[place] = self.cases.pop(told)

    def look(
        self, place: Place, tenant: segment.Tenant, says: bool | None, at_ns: int
    ) -> tuple[Verdict | None, Verdict | None]:
        """The verdict before and after what this look says; None: there is none."""
        terms = (tenant.slowdown, tenant.floor)
        case = self.cases.get(place) or _Case(terms)
        if case.terms == REMEMBERED:
            case.terms, case.measured_ns = terms, at_ns
        before = case.verdict
        if not any(terms):
            self.cases.pop(place, None)
            return before, None
        if case.terms != terms:
            case = _Case(terms)
        self.cases[place] = case
        if says is None:
            if case.verdict and at_ns - case.measured_ns > UNMEASURED_NS:
                case.verdict, case.times = None, 0
            return before, case.verdict
        if says is not case.says or not case.times:
            case.says, case.times, case.first_ns = says, 0, at_ns
        case.times += 1
        case.measured_ns = at_ns
        is_other = case.verdict is None or case.verdict.kept is not says
        if case.times >= SURE and is_other:
            case.verdict = Verdict(says, case.first_ns)
        return before, case.verdict

    def keep_only(self, places: Iterable[Place]) -> None:
        there = set(places)
        self.cases = {place: case for place, case in self.cases.items() if place in there}

    def now(self) -> dict[Place, Verdict]:
        return {place: case.verdict for place, case in self.cases.items() if case.verdict}
