"""From what was seen of crowds to figures and to what is wanted of them. Pure.

share of a job      its steps a second, of its rate alone in the same round
sum of work         the sum of the crowd's shares; one after the other they would reach 1
better              of time slicing's sum and 1, whichever is more
executed            GPU time that was executed for a job: as the segment charges it, and steps x solo step time
Jain's index        (sum x)^2 / (n sum x^2) over what was executed in all rounds for each that always wants the GPU
                    (not crowds.MODEST): 1 when all had the same
wait                the longest time between two steps that ended, less a step alone
ideal               1 - what production's requests keep the GPU busy for
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from catalogue import Job
from crowds import ALONE, COTENANT, MODEST, SOLO, TIMESLICE, WEIGHTED, WEIGHTS, Case, Crowd, kind
from intervals import MET, MISSED, Estimate, of_ratios, of_shares, shown
from outcome import DIFFERS, NOTHING, SAME, UNSTEADY, compare, mean_of, tail_name, tail_percent
from windows import Seen

from cotenant.demo.figures import percentile

Rounds = Mapping[Case, Sequence[Seen]]

LEAST_OF_BETTER = 0.95
LEAST_JAIN = 0.97
LONGEST_WAIT_MS = 1000.0
WEIGHT_POINTS = 3.0
LEAST_OF_IDEAL = 0.90
NO_WORSE = 1.02  # two ratios that are nearer than this are not told apart


def jain(parts: Sequence[float]) -> float:
    squares = sum(part * part for part in parts)
    return sum(parts) ** 2 / (len(parts) * squares) if squares else 0.0


def points_off(parts: Sequence[float], weights: Sequence[float]) -> float:
    """By how many percentage points the worst part is not what its weight asks for."""
    total = sum(parts)
    if not total:
        return 100.0
    wanted = [weight / sum(weights) for weight in weights]
    return max(100 * abs(part / total - share) for part, share in zip(parts, wanted, strict=True))


@dataclasses.dataclass(frozen=True)
class Row:
    """A crowd in a mode, beside production or nobody."""

    crowd: str
    jobs: list[str]
    production: str | None
    mode: str
    shares: list[float]  # of their solo rates, in the order of `jobs`
    share_estimates: list[Estimate]
    sum: Estimate
    sum_of_better: Estimate | None  # without production
    sum_of_ideal: Estimate | None  # with
    executed_charged_s: list[float] | None  # by the segment
    executed_steps_s: list[float]
    longest_wait_ms: list[float]
    service_p50_ratio: Estimate | None
    tail: str
    tail_ratio: Estimate | None
    beside_one: str | None  # of the crowd, the one beside which production is slowest
    service_p50_beside_one: Estimate | None  # beside the crowd / beside that one
    tail_beside_one: Estimate | None
    production_results: str
    results: str
    sm_mhz: float | None

    @property
    def jain_charged(self) -> float | None:
        return None if self.executed_charged_s is None else jain(self._of_wanting(self.executed_charged_s))

    @property
    def jain_steps(self) -> float:
        return jain(self._of_wanting(self.executed_steps_s))

    def _of_wanting(self, parts: Sequence[float]) -> list[float]:
        """Of those that always want the GPU, where there are several; else of all."""
        wanting = [part for job, part in zip(self.jobs, parts, strict=True) if job not in MODEST]
        return wanting if len(wanting) > 1 else list(parts)

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"jain_charged": self.jain_charged, "jain_steps": self.jain_steps}


@dataclasses.dataclass(frozen=True)
class Target:
    """Something that is wanted of Cotenant: met, missed, or open (the interval holds both)."""

    who: str
    what: str
    verdict: str


class Standing:
    """`busy_ms`: what one request of a production job keeps the GPU busy for; its service time where nobody knows."""

    def __init__(self, rounds: Rounds, busy_ms: Mapping[str, float | None]) -> None:
        self.rounds = rounds
        self._busy_ms = busy_ms

    def solo_rates(self, job: Job) -> list[float]:
        """Steps a second, by round; of the first of its kind."""
        (case,) = (case for case in self.rounds if case.mode == SOLO and case.jobs[0].name == kind(job))
        return [seen.jobs[0].steps / seen.seconds for seen in self.rounds[case]]

    def solo_step_s(self, job: Job) -> float:
        return 1.0 / statistics.fmean(self.solo_rates(job))

    def busy_shares(self, production: Job) -> list[float]:
        """Of the GPU's time, by round, as the requests of the windows alone came."""
        found = []
        for seen in self.rounds[Case(ALONE, production, ())]:
            each = self._busy_ms.get(production.name)
            total = sum(seen.services_ms) if each is None else each * len(seen.services_ms)
            found.append(min(1.0, total / 1000 / seen.seconds))
        return found

    def sums(self, case: Case) -> list[float]:
        by_job = [self._shares(case, index) for index in range(len(case.jobs))]
        return [sum(shares) for shares in zip(*by_job, strict=True)]

    def _shares(self, case: Case, index: int) -> list[float]:
        rates = self.solo_rates(case.jobs[index])
        windows = self.rounds[case]
        return [
            seen.jobs[index].steps / seen.seconds / rate for seen, rate in zip(windows, rates, strict=True)
        ]

    def _better(self, jobs: tuple[Job, ...], count: int) -> list[float]:
        sliced = Case(TIMESLICE, None, jobs)
        sums = self.sums(sliced) if sliced in self.rounds else [1.0] * count
        return sums if statistics.fmean(sums) > 1.0 else [1.0] * count

    def row(self, crowd: Crowd, case: Case) -> Row:
        windows = self.rounds[case]
        estimates = [of_shares(self._shares(case, index)) for index in range(len(case.jobs))]
        sums = self.sums(case)
        step_s = [self.solo_step_s(job) for job in case.jobs]
        charged = [[seen.jobs[index].used_s for seen in windows] for index in range(len(case.jobs))]
        is_charged = case.mode in (COTENANT, WEIGHTED) and all(None not in by_round for by_round in charged)
        production = case.production
        beside_nobody = production is None
        shared = self._production_figures(crowd, case) if production else {}
        ideal = [1.0 - busy for busy in self.busy_shares(production)] if production else []
        return Row(
            crowd=crowd.name,
            jobs=[kind(job) for job in case.jobs],
            production=production.name if production else None,
            mode=case.mode,
            shares=[estimate.value for estimate in estimates],
            share_estimates=estimates,
            sum=of_shares(sums),
            sum_of_better=_quotient(sums, self._better(case.jobs, len(sums))) if beside_nobody else None,
            sum_of_ideal=None if beside_nobody else _quotient(sums, ideal),
            executed_charged_s=[sum(used or 0.0 for used in by_round) for by_round in charged]
            if is_charged
            else None,
            executed_steps_s=[
                sum(seen.jobs[index].steps for seen in windows) * step for index, step in enumerate(step_s)
            ],
            longest_wait_ms=[
                max(0.0, max(seen.jobs[index].longest_gap_ms for seen in windows) - 1000 * step)
                for index, step in enumerate(step_s)
            ],
            service_p50_ratio=shared.get("service_p50_ratio"),
            tail=shared.get("tail", ""),
            tail_ratio=shared.get("tail_ratio"),
            beside_one=shared.get("beside_one"),
            service_p50_beside_one=shared.get("service_p50_beside_one"),
            tail_beside_one=shared.get("tail_beside_one"),
            production_results=shared.get("production_results", ""),
            results=self._results(case),
            sm_mhz=mean_of([seen.sm_mhz for seen in windows]),
        )

    def _production_figures(self, crowd: Crowd, case: Case) -> dict[str, Any]:
        production = case.production
        assert production is not None
        windows, alone = self.rounds[case], self.rounds[Case(ALONE, production, ())]
        if not all(seen.services_ms for seen in (*windows, *alone)):
            return {"tail": "no request in some window"}
        count = min(sum(len(seen.latencies_ms) for seen in some) for some in (windows, alone))
        percent = tail_percent(count)

        def medians(seen: Sequence[Seen]) -> list[float]:
            return [percentile(one.services_ms, 50) for one in seen]

        def tails(seen: Sequence[Seen]) -> list[float]:
            return [percentile(one.latencies_ms, percent) for one in seen]

        found: dict[str, Any] = {
            "service_p50_ratio": of_ratios(medians(windows), medians(alone)),
            "tail": tail_name(count),
            "tail_ratio": of_ratios(tails(windows), tails(alone)),
            "production_results": compare(
                [seen.production_digests for seen in alone], [seen.production_digests for seen in windows]
            ),
        }
        singles = {
            kind(job): self.rounds[one]
            for job in crowd.kinds
            if (one := Case(case.mode, production, (job,))) in self.rounds
            and all(seen.services_ms for seen in self.rounds[one])
        }
        if singles and len(case.jobs) > 1:
            worst = max(singles, key=lambda name: statistics.geometric_mean(medians(singles[name])))
            worst_tail = max(singles, key=lambda name: statistics.geometric_mean(tails(singles[name])))
            found |= {
                "beside_one": worst,
                "service_p50_beside_one": of_ratios(medians(windows), medians(singles[worst])),
                "tail_beside_one": of_ratios(tails(windows), tails(singles[worst_tail])),
            }
        return found

    def _results(self, case: Case) -> str:
        """The crowd's, in a word: the worst of its jobs'."""
        verdicts = set()
        for index, job in enumerate(case.jobs):
            (solo,) = (one for one in self.rounds if one.mode == SOLO and one.jobs[0].name == kind(job))
            reference = [seen.jobs[0].digests for seen in self.rounds[solo]]
            verdicts.add(compare(reference, [seen.jobs[index].digests for seen in self.rounds[case]]))
        return next((word for word in (DIFFERS, UNSTEADY, SAME) if word in verdicts), NOTHING)

    def rows(self, crowds: Sequence[Crowd], modes: Sequence[str], productions: Sequence[Job]) -> list[Row]:
        found = []
        for crowd in crowds:
            for production in (None, *productions):
                wanted = [Case(mode, production, crowd.jobs) for mode in modes]
                if production:
                    wanted += [
                        Case(COTENANT, production, (job,)) for job in crowd.kinds if (job,) != crowd.jobs
                    ]
                found += [self.row(crowd, case) for case in wanted if case in self.rounds]
        return found


def _quotient(above: Sequence[float], below: Sequence[float]) -> Estimate | None:
    """None where one side has nothing."""
    if min(below) <= 0:
        return None
    return (
        of_ratios(above, below)
        if min(above) > 0
        else of_shares([a / b for a, b in zip(above, below, strict=True)])
    )


def targets(rows: Sequence[Row]) -> list[Target]:
    found = []
    for row in rows:
        if row.mode not in (COTENANT, WEIGHTED) or len(row.jobs) < 2:
            continue
        who = f"{row.crowd} beside {row.production or 'nobody'}"
        found += [Target(who, what, verdict) for what, verdict in _wanted(row)]
    return found


def _wanted(row: Row) -> list[tuple[str, str]]:
    found = []
    if row.mode == WEIGHTED:
        for name, parts in (("charged", row.executed_charged_s), ("by steps", row.executed_steps_s)):
            if parts is not None:
                off = points_off(parts, WEIGHTS)
                what = f"weights 1:2:4 delivered within {off:.1f} points ({name}), wanted {WEIGHT_POINTS:.0f}"
                found.append((what, _verdict(off <= WEIGHT_POINTS)))
        return found
    if row.production is None:
        if row.sum_of_better:
            what = f"sum of work {shown(row.sum_of_better)} of the better of time slicing and one after the other"
            found.append((f"{what}, wanted {LEAST_OF_BETTER}", row.sum_of_better.at_least(LEAST_OF_BETTER)))
        for name, index in (("charged", row.jain_charged), ("by steps", row.jain_steps)):
            if index is not None:
                what = f"Jain's index of executed time {index:.3f} ({name}), wanted {LEAST_JAIN}"
                found.append((what, _verdict(index >= LEAST_JAIN)))
        wait = max(row.longest_wait_ms)
        what = f"longest wait for a turn {wait:.0f} ms, wanted {LONGEST_WAIT_MS:.0f}"
        return [*found, (what, _verdict(wait <= LONGEST_WAIT_MS))]
    if row.sum_of_ideal:
        what = f"sum of work {shown(row.sum_of_ideal)} of the ideal, wanted {LEAST_OF_IDEAL}"
        found.append((what, row.sum_of_ideal.at_least(LEAST_OF_IDEAL)))
    for name, estimate in (
        ("service p50", row.service_p50_beside_one),
        (row.tail, row.tail_beside_one),
    ):
        if estimate:
            what = f"{name} {shown(estimate)} of what it is beside one of them, wanted {NO_WORSE}"
            found.append((what, estimate.at_most(NO_WORSE)))
    for name, results in (("production's", row.production_results), ("the crowd's", row.results)):
        if results == DIFFERS:
            found.append((f"{name} results differ from those alone", MISSED))
    return found


def _verdict(reached: bool) -> str:
    return MET if reached else MISSED
