"""From what was seen to the figures of the report. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bootstrap import Interval, ratio_interval
from catalogue import LEAST_OF_IDEAL, PROMISED, SOLO, Pair
from rounds import Observation

from cotenant.demo.figures import percentile

# Two p99s that are nearer than this are not told apart.
NOTICEABLE = 1.02
ENOUGH_FOR_P99 = 1000
SAME, DIFFERS, UNSTEADY, NOTHING = "same", "differs", "not deterministic", "nothing to compare"


@dataclasses.dataclass(frozen=True)
class Ratio:
    """To running alone in the same run, with its 95 % interval."""

    value: float
    interval: Interval


@dataclasses.dataclass(frozen=True)
class ModeFigures:
    requests: int
    unanswered: int
    latency_p50_ms: float
    latency_p95_ms: float
    latency_p99_ms: float
    latency_max_ms: float
    service_p50_ms: float
    service_p99_ms: float
    service_p50_ratio: Ratio
    service_mean_ratio: Ratio  # what a promised slowdown is about
    latency_p99_ratio: Ratio
    opportunistic_share: float | None  # of its solo rate; None in `alone`
    share_by_round: list[float]
    share_of_ideal: float | None
    production_results: str
    opportunistic_results: str
    late_ms: float
    sm_mhz: float | None = None  # mean


@dataclasses.dataclass(frozen=True)
class PairFigures:
    pair: str
    ideal_share: float  # 1 - the part of the time in which production, alone, needs the GPU
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


def by_round(observations: Sequence[Observation], field: str) -> list[list[float]]:
    return [getattr(seen.samples, field) for seen in observations]


def ratio(
    mode: Sequence[Observation], alone: Sequence[Observation], field: str, percent: float | None
) -> Ratio:
    """Of the percentiles; of the means where there is no percent."""

    def of(observations: Sequence[Observation]) -> float:
        values = pooled(observations, field)
        return sum(values) / len(values) if percent is None else percentile(values, percent)

    interval = ratio_interval(by_round(mode, field), by_round(alone, field), percent)
    return Ratio(of(mode) / of(alone), interval)


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


def pair_figures(pair: Pair, seen: Mapping[str, Sequence[Observation]]) -> PairFigures:
    alone, solo = seen["alone"], seen[SOLO]
    solo_seconds = sum(observation.samples.seconds for observation in solo)
    solo_rate = sum(observation.samples.steps for observation in solo) / solo_seconds
    alone_seconds = sum(observation.samples.seconds for observation in alone)
    ideal = 1.0 - min(1.0, sum(pooled(alone, "services_ms")) / 1000.0 / alone_seconds)

    def figures(mode: str) -> ModeFigures:
        observations = seen[mode]
        latencies, services = pooled(observations, "latencies_ms"), pooled(observations, "services_ms")
        shares = [observation.samples.steps_per_second / solo_rate for observation in observations]
        share = None if mode == "alone" else sum(shares) / len(shares)
        return ModeFigures(
            requests=len(latencies),
            unanswered=sum(observation.unanswered for observation in observations),
            latency_p50_ms=percentile(latencies, 50),
            latency_p95_ms=percentile(latencies, 95),
            latency_p99_ms=percentile(latencies, 99),
            latency_max_ms=max(latencies),
            service_p50_ms=percentile(services, 50),
            service_p99_ms=percentile(services, 99),
            service_p50_ratio=ratio(observations, alone, "services_ms", 50),
            service_mean_ratio=ratio(observations, alone, "services_ms", None),
            latency_p99_ratio=ratio(observations, alone, "latencies_ms", 99),
            opportunistic_share=share,
            share_by_round=[] if share is None else shares,
            share_of_ideal=share / ideal if share is not None and ideal else None,
            production_results=compare(
                [observation.production_digests for observation in alone],
                [observation.production_digests for observation in observations],
            ),
            opportunistic_results=""
            if share is None
            else compare(
                [observation.opportunistic_digests for observation in solo],
                [observation.opportunistic_digests for observation in observations],
            ),
            late_ms=max(observation.late_ms for observation in observations),
            sm_mhz=mean_of([observation.sm_mhz for observation in observations]),
        )

    modes = {mode: figures(mode) for mode in seen if mode != SOLO}
    return PairFigures(pair.name, ideal, solo_rate, modes, misses(pair, modes))


def broken_promises(modes: Mapping[str, ModeFigures]) -> list[str]:
    """Slowdowns that were promised by `--slowdown` and not kept, beyond what the interval allows."""
    found = []
    for mode, seen in modes.items():
        promised = PROMISED.get(mode)
        if promised is not None and seen.service_mean_ratio.interval[0] > 1.0 + promised:
            slowdown = seen.service_mean_ratio.value - 1.0
            found.append(f"{mode}: slowed down by {slowdown:.1%}, promised {promised:.0%}")
    return found


def misses(pair: Pair, modes: Mapping[str, ModeFigures]) -> list[str]:
    """Where Cotenant fell short of what the project wants of it."""
    found = broken_promises(modes)
    ours = modes.get("cotenant")
    if ours is None:
        return found
    promise = pair.production.promise
    if promise:
        if ours.service_p50_ratio.value > promise.service_p50:
            found.append(
                f"service p50 {ours.service_p50_ratio.value:.2f}x alone, wanted {promise.service_p50:.2f}x"
            )
        if ours.latency_p99_ratio.value > promise.latency_p99:
            found.append(f"p99 {ours.latency_p99_ratio.value:.2f}x alone, wanted {promise.latency_p99:.2f}x")
        if ours.share_of_ideal is not None and ours.share_of_ideal < LEAST_OF_IDEAL:
            found.append(f"work {ours.share_of_ideal:.2f} of the ideal, wanted {LEAST_OF_IDEAL:.2f}")
    for mode, other in modes.items():
        if (
            mode not in ("alone", "cotenant", *PROMISED)
            and other.latency_p99_ms * NOTICEABLE < ours.latency_p99_ms
        ):
            found.append(f"p99 {ours.latency_p99_ms:.2f} ms, {mode} {other.latency_p99_ms:.2f} ms")
    for who, results in (
        ("production", ours.production_results),
        ("the opportunistic job", ours.opportunistic_results),
    ):
        if results == DIFFERS:
            found.append(f"the results of {who} differ")
    return found


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
            for observation in observations
        ]
        for mode, observations in seen.items()
    }
