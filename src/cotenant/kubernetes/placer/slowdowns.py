"""What pods do to each other on one GPU, by the workload that each pod's label names.

Known are the shipped pairs (cotenant.cluster.simulation). Of a folder of recorded jobs (NAME.trace or NAME.toml),
production beside another is predicted when it is first asked for. Of a pair that nobody knows, production is taken to
keep its speed, which the policy on the node sees to; others take turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cotenant.cluster.placement.interference import UNKNOWN, PairTable, Part
from cotenant.cluster.predict.model import Observation
from cotenant.errors import USAGE, Problem
from cotenant.simulator import Job

SUFFIXES = (".trace", ".toml")


@dataclass
class Known(PairTable):
    """`jobs` are recorded, by workload. Two of them are simulated once."""

    jobs: dict[str, Job] = field(default_factory=dict)
    seen: Sequence[Observation] | None = None
    _predicted: dict[tuple[Part, Part], float] = field(default_factory=dict, repr=False)

    def of_pair(self, one: Part, beside: Part) -> float:
        found = self.pairs.get((one, beside))
        if found is None and one.kind in self.jobs and beside.kind in self.jobs:
            found = self._of_recorded(one, beside)
        if found is not None:
            return found
        return 1.0 if one.is_production else self.unknown

    def _of_recorded(self, one: Part, beside: Part) -> float | None:
        """The prediction knows production beside one other job."""
        from cotenant.cluster.predict import predict

        if one.is_production == beside.is_production:
            return None
        production, other = (one, beside) if one.is_production else (beside, one)
        if (production, other) not in self._predicted:
            said = predict(self.jobs[production.kind], self.jobs[other.kind], seen=self.seen)
            self._predicted[production, other] = said.slowdown
            self._predicted[other, production] = said.other_slowdown
        return self._predicted[one, beside]


def known(recorded: Path | None, observed: Path | None) -> Known:
    """Raises Problem."""
    from cotenant.cluster.predict import observations
    from cotenant.cluster.simulation.kinds import interference

    _, shipped = interference("cotenant")
    jobs = recorded_in(recorded) if recorded else {}
    # A recorded job is meant where a shipped one has the same name.
    pairs = {
        pair: slowdown
        for pair, slowdown in shipped.pairs.items()
        if not {part.kind for part in pair} & jobs.keys()
    }
    seen = [*observations.shipped(), *observations.read(observed)] if observed else None
    return Known(pairs, UNKNOWN, jobs=jobs, seen=seen)


def recorded_in(folder: Path) -> dict[str, Job]:
    from cotenant.cluster.predict.jobs import read

    if not folder.is_dir():
        raise Problem(f"{folder} is no folder", "give a folder with NAME.trace or NAME.toml files", USAGE)
    return {path.stem: read(path) for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES}
