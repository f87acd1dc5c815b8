"""Outcomes as a table for people, as JSON and as CSV."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from typing import Any

from cotenant.simulator.results import Outcome, TenantOutcome, Times, mean, worst
from cotenant.terminal import Stdout, console


def milliseconds(us: float) -> str:
    if math.isnan(us):
        return ""
    ms = us / 1000
    return f"{ms:.2f}" if ms < 10 else f"{ms:.1f}" if ms < 100 else f"{ms:.0f}"


def times(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2f}x" if value < 10 else f"{value:.0f}x"


def percent(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.0%}"


def seconds(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.1f}"


def row(outcome: Outcome) -> list[str]:
    """Of several production jobs the worst counts."""
    production = outcome.production
    return [
        outcome.policy,
        milliseconds(worst(tenant.latency.p50_us for tenant in production)),
        milliseconds(worst(tenant.latency.p99_us for tenant in production)),
        times(worst(tenant.slowdown_p50 for tenant in production)),
        times(worst(tenant.slowdown_p99 for tenant in production)),
        percent(outcome.opportunistic_share),
        f"{outcome.fairness:.2f}",
        percent(outcome.busy),
        percent(outcome.sm_activity),
        seconds(outcome.completion_s),
        str(outcome.preemptions),
    ]


COLUMNS = (
    "policy",
    "p50\nms",
    "p99\nms",
    "p50\nx alone",
    "p99\nx alone",
    "others'\nshare",
    "fair-\nness",
    "GPU\nbusy",
    "SMs\nbusy",
    "done\nafter s",
    "pre-\nempted",
)


def print_table(outcomes: Sequence[Outcome]) -> None:
    """Fits into 100 columns; a column that would be empty (no job ends, no job is production) is left out."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    rows = [row(outcome) for outcome in outcomes]
    table = Table(box=SIMPLE_HEAD, title=title(outcomes[0]), title_style="", title_justify="left")
    shown = [number for number in range(len(COLUMNS)) if any(cells[number] for cells in rows)]
    for number in shown:
        table.add_column(COLUMNS[number], justify="left" if number == 0 else "right", no_wrap=True)
    for cells in rows:
        table.add_row(*(cells[number] for number in shown))
    console(width=160).print(table)


def title(outcome: Outcome) -> str:
    line = f"  {outcome.workload} on {outcome.gpu}, {outcome.seconds:g} s simulated"
    if not outcome.production:
        return line
    first = outcome.production[0]
    p50, p99 = (milliseconds(us) for us in (first.alone.latency.p50_us, first.alone.latency.p99_us))
    return f"{line}; {first.name} alone: p50 {p50} ms, p99 {p99} ms"


def as_json(outcomes: Sequence[Outcome]) -> str:
    return json.dumps({"outcomes": [outcome_record(outcome) for outcome in outcomes]}, indent=1)


def outcome_record(outcome: Outcome) -> dict[str, Any]:
    return {
        "workload": outcome.workload,
        "policy": outcome.policy,
        "gpu": outcome.gpu,
        "seconds": outcome.seconds,
        "seed": outcome.seed,
        "opportunistic_share": known(outcome.opportunistic_share),
        "fairness": known(outcome.fairness),
        "busy": known(outcome.busy),
        "sm_activity": known(outcome.sm_activity),
        "switching": known(mean(gpu.switching for gpu in outcome.gpus)),
        "completion_s": known(outcome.completion_s),
        "operations": outcome.operations,
        "preemptions": outcome.preemptions,
        "tenants": [tenant_record(tenant) for tenant in outcome.tenants],
    }


def tenant_record(tenant: TenantOutcome) -> dict[str, Any]:
    return {
        "name": tenant.name,
        "class": tenant.tenant_class.name,
        "gpu": tenant.gpu,
        "requests": tenant.requests,
        "unanswered": tenant.unanswered,
        "operations": tenant.operations,
        **times_record("latency", tenant.latency),
        **times_record("service", tenant.service),
        "alone_latency_p50_us": known(tenant.alone.latency.p50_us),
        "alone_latency_p99_us": known(tenant.alone.latency.p99_us),
        "slowdown_p50": known(tenant.slowdown_p50),
        "slowdown_p99": known(tenant.slowdown_p99),
        "share": known(tenant.share),
        "sm_share": known(tenant.sm_share),
        "completion_s": tenant.completion_s,
        "alone_completion_s": tenant.alone.completion_s,
        "preemptions": tenant.preemptions,
        "gates": tenant.gates,
        "bursts": tenant.bursts,
        "held_s": tenant.held_s,
        "wasted_us": tenant.wasted_us,
    }


def times_record(name: str, times: Times) -> dict[str, float | None]:
    return {
        f"{name}_p50_us": known(times.p50_us),
        f"{name}_p95_us": known(times.p95_us),
        f"{name}_p99_us": known(times.p99_us),
        f"{name}_max_us": known(times.most_us),
        f"{name}_mean_us": known(times.mean_us),
    }


def known(value: float) -> float | None:
    """JSON has no word for "not a number"."""
    return None if math.isnan(value) else round(value, 6)


def print_csv(outcomes: Sequence[Outcome]) -> None:
    """A line for each tenant under each policy."""
    writer: Any = None
    for outcome in outcomes:
        for tenant in outcome.tenants:
            record = {
                "workload": outcome.workload,
                "policy": outcome.policy,
                "gpu_kind": outcome.gpu,
                **tenant_record(tenant),
            }
            if writer is None:
                writer = csv.DictWriter(Stdout(), list(record), lineterminator="\n")
                writer.writeheader()
            writer.writerow(record)
