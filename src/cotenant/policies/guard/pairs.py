"""What guard remembers of pairs of programs over runs: how much overlap slowed production down.

    known      every lower-class program has been beside this production program before, and what was seen of each is
               worth at least LEAST_TRUST (two weeks; the trust halves every week)
    harmless   the largest slowdown of these is within the limit: lower classes may overlap from the first tick on, and
               5 s later the cost alone is measured and overlap is on trial as ever
    harmful    one of them is over the limit: the first trial is trust x the longest back-off away
    promise    the position is computed from what was seen at once, and the cost alone is measured 1 s later

What a trial shows is noted of every program that took part, where it was harmless; where it was not, only of one that
was alone with production: of several nobody knows which it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cotenant.policies.interface import Met, Pair

LEAST_TRUST = 0.25
MOST_PAIRS = 1000
TRUSTED_US, TRUSTED_WITH_PROMISE_US = 5_000_000, 1_000_000


@dataclass(frozen=True, slots=True)
class Company:
    """A production job's program, those of all lower classes on its GPU, and whether one MPS daemon has them all."""

    production: str
    beside: frozenset[str]
    together: bool

    @property
    def pairs(self) -> list[Pair]:
        if not self.production or "" in self.beside:
            return []
        return [Pair(self.production, one, self.together) for one in sorted(self.beside)]

    def in_words(self) -> str:
        return ", ".join(sorted(self.beside))


@dataclass(slots=True)
class Pairs:
    met: dict[Pair, Met] = field(default_factory=dict)
    new: dict[Pair, Met] = field(default_factory=dict)  # since they were last asked for

    def recall(self, pairs: Mapping[Pair, Met]) -> None:
        self.met.update(pairs)

    def known(self, company: Company, limit: float) -> Met | None:
        """The worst of what was seen of this company; None: of one of them nothing is known, and of none any harm."""
        seen = [self.met.get(pair) for pair in company.pairs]
        trusted = [one for one in seen if one is not None and one.trust >= LEAST_TRUST]
        worst = max(trusted, key=lambda one: one.overlap, default=None)
        if worst is None or (len(trusted) < len(seen) and worst.overlap <= limit):
            return None
        return worst

    def note(self, company: Company, met: Met, limit: float) -> None:
        pairs = company.pairs
        if met.overlap > limit and len(pairs) > 1:
            return
        for known in (self.met, self.new):
            for pair in pairs:
                known.pop(pair, None)
                known[pair] = met
            # Under Slurm or Kubernetes each job has a name of its own: what was noted longest ago goes.
            for eldest in list(known)[:-MOST_PAIRS]:
                del known[eldest]

    def take_new(self) -> dict[Pair, Met]:
        new, self.new = self.new, {}
        return new
