"""What several jobs on one GPU do to each other, from what is known of pairs. Pure.

    production beside opportunistic jobs        the largest of its slowdowns beside each of them
    opportunistic i beside others o             1 + sum over o of (slowdown of i beside o - 1)
        and beside production p                 that, times the slowdown of i beside p
    production beside production                1 + sum of (slowdown - 1)

On an H200 `longk` and `longk` got 36 % each beside `decode`, where one alone got 72 %: they take turns, so the
opportunistic jobs divide what production leaves. Production was 1.11 times slower beside both, 1.10 beside one of them:
only one of them is on the GPU when production comes back (docs/benchmarks.md, Crowds).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

UNKNOWN = 2.0  # of a pair that nobody has seen: two jobs that take turns


@dataclass(frozen=True, slots=True)
class Part:
    """All that interference depends on: what the job is, and whether it is production."""

    kind: str
    is_production: bool


class Interference(Protocol):
    def slowdowns(self, parts: Sequence[Part]) -> tuple[float, ...]:
        """Of each of the jobs that share one GPU, in their order: 1 is its speed alone, 2 is half of it."""
        ...


@dataclass
class PairTable:
    """Slowdowns of pairs, and of larger groups by the formula above."""

    pairs: Mapping[tuple[Part, Part], float]  # of the first beside the second
    unknown: float = UNKNOWN
    _groups: dict[tuple[Part, ...], tuple[float, ...]] = field(default_factory=dict, repr=False)

    def slowdowns(self, parts: Sequence[Part]) -> tuple[float, ...]:
        key = tuple(parts)
        found = self._groups.get(key)
        if found is None:
            found = tuple(self._one(key, i) for i in range(len(key)))
            self._groups[key] = found
        return found

    def of_pair(self, one: Part, beside: Part) -> float:
        return self.pairs.get((one, beside), self.unknown)

    def _one(self, parts: tuple[Part, ...], i: int) -> float:
        one = parts[i]
        others = [part for j, part in enumerate(parts) if j != i]
        above = [part for part in others if part.is_production]
        below = [part for part in others if not part.is_production]
        if one.is_production:
            equals = 1 + sum(self.of_pair(one, part) - 1 for part in above)
            return max([equals, *(self.of_pair(one, part) for part in below)])
        turns = 1 + sum(self.of_pair(one, part) - 1 for part in below)
        for part in above:
            turns *= self.of_pair(one, part)
        return turns


NO_INTERFERENCE = PairTable({}, unknown=1.0)
