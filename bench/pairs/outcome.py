"""From what was seen to the figures of the report. Pure."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bursts import together
from catalogue import CONTROL, PROMISED, SOLO, Pair
from intervals import MET, MISSED, Estimate, of_ratios, of_shares, shown
from rounds import Observation

from cotenant.demo.figures import percentile
from cotenant.tenants.breakdown import Breakdown

# Two tails that are nearer than this are not told apart.
NOTICEABLE = 1.02
ENOUGH_FOR_P99 = 1000
SAME, DIFFERS, UNSTEADY, NOTHING = "same", "differs", "not deterministic", "nothing to compare"


@dataclasses.dataclass(frozen=True)
class ModeFigures:
    """Ratios are to running alone in the same run, shares of the rate alone."""

    requests: int
    unanswered: int
    latency_p50_ms: float
    latency_p95_ms: float
    latency_tail_ms: float  # PairFigures.tail says which
    latency_max_ms: float
    service_p50_ms: float
    service_p50_ratio: Estimate
    service_mean_ratio: Estimate  # what a promised slowdown is about
    tail_ratio: Estimate
    # The same two as if the clock had been that of the windows alone; None where nobody saw it.
    service_p50_at_clock: Estimate | None
    tail_at_clock: Estimate | None
    opportunistic_share: Estimate | None  # None in `alone`
    share_of_ideal: Estimate | None
    production_results: str
    opportunistic_results: str
    late_ms: float
    sm_mhz: float | None = None  # mean
    breakdown: Breakdown | None = None  # of a burst of production under Cotenant


@dataclasses.dataclass(frozen=True)
class PairFigures:
    pair: str
    tail: str  # what the figures of the tail are: "p99", or "p95 of 320"
    ideal_share: float  # 1 - the part of the time in which production, alone, keeps the GPU busy
    ideal_from: str
    solo_steps_per_second: float
    modes: dict[str, ModeFigures]
    misses: list[str]

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def tail_percent(requests: int) -> float:
    return 99.0 if requests >= ENOUGH_FOR_P99 else 95.0


def tail_name(requests: int) -> str:
    """Called what it is: of fewer than a thousand requests a p99 is the figure of a handful."""
    return "p99" if requests >= ENOUGH_FOR_P99 else f"p95 of {requests}"


def mean_of(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def pooled(observations: Sequence[Observation], field: str) -> list[float]:
    return [value for seen in observations for value in getattr(seen.samples, field)]


def by_round(observations: Sequence[Observation], field: str, percent: float | None) -> list[float]:
    """Each round's percentile; its mean where there is no percent."""
    rounds = [getattr(seen.samples, field) for seen in observations]
    return [statistics.fmean(values) if percent is None else percentile(values, percent) for values in rounds]


def ratio(
    mode: Sequence[Observation], alone: Sequence[Observation], field: str, percent: float | None
) -> Estimate:
    return of_ratios(by_round(mode, field, percent), by_round(alone, field, percent))


def ratio_at_clock(
    mode: Sequence[Observation], alone: Sequence[Observation], field: str, percent: float
) -> Estimate | None:
    """As if all of the time were cycles of the SMs, which at a lower clock last longer: what memory or the host limits
    does not, so this is the least that sharing itself costs."""
    above = by_round(mode, field, percent)
    for number, (seen, base) in enumerate(zip(mode, alone, strict=True)):
        if seen.sm_mhz is None or base.sm_mhz is None:
            return None
        above[number] *= min(1.0, seen.sm_mhz / base.sm_mhz)
    return of_ratios(above, by_round(alone, field, percent))


def compare(reference: Sequence[Sequence[str]], seen: Sequence[Sequence[str]]) -> str:
    """Digests of one job's windows against those of its windows alone, as far as both go."""
    known = max(reference, key=len, default=[])

    def agree(digests: Sequence[str]) -> bool:
        return all(ours == theirs for ours, theirs in zip(digests, known, strict=False))

    if not known or not any(seen):
        return NOTHING
    if not all(agree(digests) for digests in reference):
        return UNSTEADY
    return SAME if all(agree(digests) for digests in seen) else DIFFERS


def ideals(alone: Sequence[Observation], gpu_ms: float | None) -> list[float]:
    """What production leaves of the GPU's time, by round; by its service time where nobody knows its GPU time."""
    found = []
    for seen in alone:
        services = seen.samples.services_ms
        busy_ms = sum(services) if gpu_ms is None else gpu_ms * len(services)
        found.append(1.0 - min(1.0, busy_ms / 1000.0 / seen.samples.seconds))
    return found


def pair_figures(
    pair: Pair, seen: Mapping[str, Sequence[Observation]], gpu_ms: float | None = None
) -> PairFigures:
    """`gpu_ms`: what one request of production keeps the GPU busy for."""
    alone, solo = seen["alone"], seen[SOLO]
    solo_rates = [observation.samples.steps_per_second for observation in solo]
    ideal = ideals(alone, gpu_ms)
    # The same percentile for all modes, though a job that sets its own pace has more requests in some than in others.
    fewest = min(len(pooled(seen[mode], "latencies_ms")) for mode in seen if mode != SOLO)
    percent = tail_percent(fewest)

    def figures(mode: str) -> ModeFigures:
        observations = seen[mode]
        latencies, services = pooled(observations, "latencies_ms"), pooled(observations, "services_ms")
        shares = [
            observation.samples.steps_per_second / rate
            for observation, rate in zip(observations, solo_rates, strict=True)
        ]
        is_alone = mode == "alone"
        return ModeFigures(
            requests=len(latencies),
            unanswered=sum(observation.unanswered for observation in observations),
            latency_p50_ms=percentile(latencies, 50),
            latency_p95_ms=percentile(latencies, 95),
            latency_tail_ms=percentile(latencies, percent),
            latency_max_ms=max(latencies),
            service_p50_ms=percentile(services, 50),
            service_p50_ratio=ratio(observations, alone, "services_ms", 50),
            service_mean_ratio=ratio(observations, alone, "services_ms", None),
            tail_ratio=ratio(observations, alone, "latencies_ms", percent),
            service_p50_at_clock=ratio_at_clock(observations, alone, "services_ms", 50),
            tail_at_clock=ratio_at_clock(observations, alone, "latencies_ms", percent),
            opportunistic_share=None if is_alone else of_shares(shares),
            share_of_ideal=None
            if is_alone or min(ideal) <= 0
            else of_shares([share / most for share, most in zip(shares, ideal, strict=True)]),
            production_results=compare(
                [observation.production_digests for observation in alone],
                [observation.production_digests for observation in observations],
            ),
            opportunistic_results=""
            if is_alone
            else compare(
                [observation.opportunistic_digests for observation in solo],
                [observation.opportunistic_digests for observation in observations],
            ),
            late_ms=max(observation.late_ms for observation in observations),
            sm_mhz=mean_of([observation.sm_mhz for observation in observations]),
            breakdown=together([observation.bursts for observation in observations]),
        )

    modes = {mode: figures(mode) for mode in seen if mode != SOLO}
    found = PairFigures(
        pair.name,
        tail_name(fewest),
        statistics.fmean(ideal),
        "service time" if gpu_ms is None else "GPU time",
        statistics.fmean(solo_rates),
        modes,
        [],
    )
    return dataclasses.replace(found, misses=misses(pair, found, worse_tails(seen, percent)))


def worse_tails(seen: Mapping[str, Sequence[Observation]], percent: float) -> list[str]:
    """Modes of others that have a shorter tail than Cotenant, beyond what the rounds leave open."""
    ours = seen.get("cotenant")
    if ours is None:
        return []
    others = [mode for mode in seen if mode not in ("alone", CONTROL, SOLO, "cotenant", *PROMISED)]
    return [
        mode
        for mode in others
        if ratio(ours, seen[mode], "latencies_ms", percent).at_most(NOTICEABLE) == MISSED
    ]


def unkept_promises(modes: Mapping[str, ModeFigures]) -> list[str]:
    """Slowdowns that `--slowdown` promised: kept when all of the interval is within."""
    found = []
    for mode, seen in modes.items():
        promised = PROMISED.get(mode)
        if promised is not None:
            verdict = seen.service_mean_ratio.at_most(1.0 + promised)
            slowed = f"{mode}: service mean {shown(seen.service_mean_ratio)} x alone"
            if verdict != MET:
                found.append(f"{slowed}, promised {1 + promised:.2f}: {verdict}")
    return found


def misses(pair: Pair, found: PairFigures, worse: Sequence[str]) -> list[str]:
    """Where Cotenant fell short of what the project wants of it, or where the interval leaves that open."""
    missed = unkept_promises(found.modes)
    ours = found.modes.get("cotenant")
    if ours is None:
        return missed
    promise = pair.production.promise
    if promise:
        p50, tail = ours.service_p50_ratio, ours.tail_ratio
        note = ""
        if promise.at_same_clock and ours.service_p50_at_clock and ours.tail_at_clock:
            p50, tail, note = ours.service_p50_at_clock, ours.tail_at_clock, " at the same clock"
        wanted = [
            ("service p50", f" x alone{note}", p50, promise.service_p50, p50.at_most(promise.service_p50)),
            (found.tail, f" x alone{note}", tail, promise.latency_p99, tail.at_most(promise.latency_p99)),
        ]
        if ours.share_of_ideal is not None:
            least = promise.least_of_ideal
            work = ours.share_of_ideal
            wanted.append(("work", " of the ideal", work, least, work.at_least(least)))
        missed += [
            f"{name} {shown(estimate)}{unit}, wanted {limit:.2f}: {verdict}"
            for name, unit, estimate, limit, verdict in wanted
            if verdict != MET
        ]
    for mode in worse:
        other = found.modes[mode].latency_tail_ms
        missed.append(f"{found.tail} {ours.latency_tail_ms:.2f} ms, {mode} {other:.2f} ms")
    for who, results in (
        ("production", ours.production_results),
        ("the opportunistic job", ours.opportunistic_results),
    ):
        if results == DIFFERS:
            missed.append(f"the results of {who} differ")
    return missed


def observations_as_json(seen: Mapping[str, Sequence[Observation]]) -> dict[str, list[dict[str, Any]]]:
    """The raw samples, to a microsecond."""

    def rounded(values: Sequence[float]) -> list[float]:
        return [round(value, 3) for value in values]

    return {
        mode: [
            {
                "latencies_ms": rounded(observation.samples.latencies_ms),
                "services_ms": rounded(observation.samples.services_ms),
                "steps": round(observation.samples.steps, 3),
                "seconds": observation.samples.seconds,
            }
            | ({"explained": observation.explained} if observation.explained else {})
            for observation in observations
        ]
        for mode, observations in seen.items()
    }
