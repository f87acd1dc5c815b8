"""What a simulation found, as typed values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, repeat
from operator import mul

from cotenant.classes import TenantClass
from cotenant.simulator import native


def edge_us(place: int) -> float:
    """Where a place of the engine's histograms begins."""
    return _edges_us()[place]


@cache
def _edges_us() -> tuple[float, ...]:
    """By products, which are the same on every machine; powers are not."""
    growths = repeat(native.HISTOGRAM_GROWTH, native.HISTOGRAM_PLACES)
    return tuple(accumulate(growths, mul, initial=native.HISTOGRAM_LEAST_US))


@dataclass(frozen=True, slots=True)
class Times:
    """Many times in one small histogram: quantiles are right to within 1 %."""

    count: int
    mean_us: float
    least_us: float
    most_us: float
    counts: tuple[tuple[int, int], ...] = field(repr=False, default=())  # place in the histogram, how many

    def quantile_us(self, part: float) -> float:
        if not self.count:
            return math.nan
        rank, seen = part * (self.count - 1), 0
        for place, count in self.counts:
            seen += count
            if seen > rank:
                middle_us = edge_us(place) * math.sqrt(native.HISTOGRAM_GROWTH)
                return min(max(middle_us, self.least_us), self.most_us)
        return self.most_us

    @property
    def p50_us(self) -> float:
        return self.quantile_us(0.50)

    @property
    def p95_us(self) -> float:
        return self.quantile_us(0.95)

    @property
    def p99_us(self) -> float:
        return self.quantile_us(0.99)

    def cdf(self) -> list[tuple[float, float]]:
        """Points (microseconds, part of all that took at most so long)."""
        points, seen = [], 0
        for place, count in self.counts:
            seen += count
            points.append((edge_us(place + 1), seen / self.count))
        return points


@dataclass(frozen=True, slots=True)
class Span:
    tenant: str
    kind: str
    request: int
    start_us: float
    end_us: float


@dataclass(frozen=True, slots=True)
class Alone:
    """The same job with the GPU to itself, from the same moment on, with the same arrivals and lengths."""

    latency: Times
    service: Times
    work_us: float
    completion_s: float | None


@dataclass(frozen=True, slots=True)
class TenantOutcome:
    name: str
    tenant_class: TenantClass
    gpu: int
    latency: Times  # of requests, from their arrival
    service: Times  # from when the job took them up
    alone: Alone
    requests: int
    unanswered: int  # came and were not done at the end; they count in `latency` with what they had waited
    operations: int
    work_us: float  # got done, in time alone
    wasted_us: float  # begun anew
    sm_share: float
    share: float  # of what it gets done alone in the same time; not a number: that is nothing
    completion_s: float | None  # from its begin; None: it had not ended, or never does
    preemptions: int
    gates: int
    bursts: int
    held_s: float
    executed_s: float  # GPU time of its kernels and graphs
    longest_wait_s: float  # for its turn among equals
    timeline: tuple[float, ...] = field(repr=False, default=())  # SMs over `Outcome.timeline_span_s`

    @property
    def slowdown_p50(self) -> float:
        return _ratio(self.latency.p50_us, self.alone.latency.p50_us)

    @property
    def slowdown_p99(self) -> float:
        return _ratio(self.latency.p99_us, self.alone.latency.p99_us)

    @property
    def service_slowdown(self) -> float:
        return _ratio(self.service.p50_us, self.alone.service.p50_us)


@dataclass(frozen=True, slots=True)
class GpuOutcome:
    busy: float  # part of the time in which some kernel ran
    sm_activity: float  # mean part of the SMs at work
    switching: float  # part of the time between contexts
    switches: int
    events: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """One workload under one policy."""

    workload: str
    policy: str
    gpu: str
    seconds: float
    seed: int
    tenants: tuple[TenantOutcome, ...]
    gpus: tuple[GpuOutcome, ...]
    wall_seconds: float
    spans: tuple[Span, ...] = field(repr=False, default=())
    spans_left_out: int = 0
    timeline_span_s: tuple[float, float] = (
        0.0,
        0.0,
    )  # where the tenants' timelines begin, and how long they are

    def of_class(self, *classes: TenantClass) -> list[TenantOutcome]:
        return [tenant for tenant in self.tenants if tenant.tenant_class in classes]

    @property
    def production(self) -> list[TenantOutcome]:
        return self.of_class(TenantClass.production)

    @property
    def below(self) -> list[TenantOutcome]:
        return self.of_class(TenantClass.standard, TenantClass.opportunistic)

    @property
    def fairness(self) -> float:
        """Jain's index of the tenants' shares: 1 where all have the same part of what they get done alone."""
        shares = [tenant.share for tenant in self.tenants if not math.isnan(tenant.share)]
        squares = sum(share * share for share in shares)
        return sum(shares) ** 2 / (len(shares) * squares) if squares else math.nan

    @property
    def busy(self) -> float:
        return mean(gpu.busy for gpu in self.gpus)

    @property
    def sm_activity(self) -> float:
        return mean(gpu.sm_activity for gpu in self.gpus)

    @property
    def opportunistic_share(self) -> float:
        """Mean over the tenants below production."""
        return mean(tenant.share for tenant in self.below if not math.isnan(tenant.share))

    @property
    def completion_s(self) -> float:
        """Mean over the jobs that have ended."""
        return mean(tenant.completion_s for tenant in self.tenants if tenant.completion_s is not None)

    @property
    def operations(self) -> int:
        return sum(tenant.operations for tenant in self.tenants)

    @property
    def preemptions(self) -> int:
        return sum(tenant.preemptions for tenant in self.tenants)


def worst(values: Iterable[float]) -> float:
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def mean(values: Iterable[float]) -> float:
    found: Sequence[float] = list(values)
    return sum(found) / len(found) if found else math.nan


def _ratio(value: float, alone: float) -> float:
    return value / alone if alone else math.nan
