"""The figures of `cotenant simulate`, declared once: its table, JSON and CSV, and docs/figures.md, have them from here.
What a live tenant has too has the same name and unit there (cotenant/figures.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cotenant.simulator.results import Outcome, TenantOutcome, Times, mean, worst

SCHEMA = 1  # as cotenant.figures.SCHEMA
PARTS = ("p50", "p95", "p99", "max", "mean")


@dataclass(frozen=True)
class Figure:
    name: str
    unit: str
    help: str
    read: Callable[[Any], Any]  # of an Outcome, or of a TenantOutcome; NaN and None: there is none
    heading: str = ""  # in the table; empty: it is not there
    goes: int = 0  # of the table's columns that do not fit, the highest goes first; 0: stays

    def value(self, seen: Any) -> Any:
        """JSON has no word for "not a number"."""
        found = self.read(seen)
        if isinstance(found, float):
            return None if math.isnan(found) else round(found, 6)
        return found

    def cell(self, seen: Any) -> str:
        found = self.value(seen)
        if found is None:
            return ""
        if self.unit == "ms":
            return f"{found:.2f}" if found < 10 else f"{found:.1f}" if found < 100 else f"{found:.0f}"
        if self.unit == "times":
            return f"{found:.2f}x" if found < 10 else f"{found:.0f}x"
        return format(found, {"ratio": ".0%", "seconds": ".1f", "index": ".2f"}.get(self.unit, ""))


def of_times(name: str, what: str, times: Callable[[TenantOutcome], Times]) -> list[Figure]:
    def part_of(part: str) -> Callable[[TenantOutcome], float]:
        field = "most_us" if part == "max" else f"{part}_us"
        return lambda tenant: getattr(times(tenant), field) / 1000

    return [Figure(f"{name}_{part}_ms", "ms", f"{what}: {part}.", part_of(part)) for part in PARTS]


def of_worst(read: Callable[[TenantOutcome], float]) -> Callable[[Outcome], float]:
    return lambda outcome: worst(read(tenant) for tenant in outcome.production)


WORST = "of several production jobs the worst counts"
OF_OUTCOME = (
    Figure("workload", "", "The workload's name.", lambda one: one.workload),
    Figure("policy", "", "The policy.", lambda one: one.policy, "policy"),
    Figure("gpu_model", "", "The simulated GPU.", lambda one: one.gpu),
    Figure("simulated_seconds", "seconds", "How long, in virtual time.", lambda one: one.seconds),
    Figure("seed", "number", "Of the random numbers.", lambda one: one.seed),
    Figure(
        "latency_p50_ms",
        "ms",
        f"Latency of production's requests from their arrival; {WORST}.",
        of_worst(lambda tenant: tenant.latency.p50_us / 1000),
        "p50\nms",
        goes=4,
    ),
    Figure(
        "latency_p99_ms",
        "ms",
        "The same: p99.",
        of_worst(lambda tenant: tenant.latency.p99_us / 1000),
        "p99\nms",
    ),
    Figure(
        "latency_p50_ratio",
        "times",
        "The same against that job alone, which is simulated too.",
        of_worst(lambda tenant: tenant.slowdown_p50),
        "p50\nx alone",
        goes=3,
    ),
    Figure(
        "latency_p99_ratio",
        "times",
        "The same: p99.",
        of_worst(lambda tenant: tenant.slowdown_p99),
        "p99\nx alone",
    ),
    Figure(
        "opportunistic_share",
        "ratio",
        "The work of lower classes as a share of what they do alone; a job that never begins does not count.",
        lambda one: one.opportunistic_share,
        "others'\nshare",
    ),
    Figure(
        "fairness",
        "index",
        "Jain's index of all `work_share`s; with unlike jobs or weights it is below 1, and should be.",
        lambda one: one.fairness,
        "fair-\nness",
        goes=5,
    ),
    Figure(
        "busy",
        "ratio",
        "The share of the time in which a kernel ran.",
        lambda one: one.busy,
        "GPU\nbusy",
        goes=2,
    ),
    Figure(
        "sm_activity", "ratio", "The share of SMs at work.", lambda one: one.sm_activity, "SMs\nbusy", goes=6
    ),
    Figure(
        "switching",
        "ratio",
        "The share of the time between contexts.",
        lambda one: mean(gpu.switching for gpu in one.gpus),
    ),
    Figure(
        "completion_seconds",
        "seconds",
        "Mean completion time of the jobs that end.",
        lambda one: one.completion_s,
        "done\nafter s",
        goes=1,
    ),
    Figure("operations", "count", "Operations of all tenants.", lambda one: one.operations),
    Figure(
        "preemptions",
        "count",
        "How often a kernel was stopped in the middle.",
        lambda one: one.preemptions,
        "pre-\nempted",
        goes=7,
    ),
)
OF_TENANT = (
    Figure("job", "", "Its name.", lambda one: one.name),
    Figure("class", "", "`production`, `standard` or `opportunistic`.", lambda one: one.tenant_class.name),
    Figure("gpu", "number", "Its GPU.", lambda one: one.gpu),
    Figure("requests", "count", "Requests or iterations that it has done.", lambda one: one.requests),
    Figure(
        "unanswered",
        "count",
        "Requests that had come and were not done at the end; they count with what they had waited.",
        lambda one: one.unanswered,
    ),
    Figure("operations", "count", "Its kernels, graphs and copies.", lambda one: one.operations),
    *of_times("latency", "Of a request from its arrival", lambda one: one.latency),
    *of_times("service", "Of a request from when the job took it up", lambda one: one.service),
    *of_times("alone_latency", "`latency` of the same job alone", lambda one: one.alone.latency),
    Figure("latency_p50_ratio", "times", "`latency_p50_ms` against alone.", lambda one: one.slowdown_p50),
    Figure("latency_p99_ratio", "times", "`latency_p99_ms` against alone.", lambda one: one.slowdown_p99),
    Figure("work_share", "ratio", "Its work as a share of what it does alone.", lambda one: one.share),
    Figure("sm_share", "ratio", "The SMs that its kernels held, of all over time.", lambda one: one.sm_share),
    Figure("completion_seconds", "seconds", "From its begin to its end.", lambda one: one.completion_s),
    Figure("alone_completion_seconds", "seconds", "The same alone.", lambda one: one.alone.completion_s),
    Figure(
        "preemptions",
        "count",
        "How often a kernel of it was stopped in the middle.",
        lambda one: one.preemptions,
    ),
    Figure("gates", "count", "Gates in its streams.", lambda one: one.gates),
    Figure(
        "bursts", "count", "How often it went from having no work to having some.", lambda one: one.bursts
    ),
    Figure("gated_seconds", "seconds", "How long it had work behind a closed gate.", lambda one: one.held_s),
    Figure("wasted_ms", "ms", "Work that was begun anew.", lambda one: one.wasted_us / 1000),
)
