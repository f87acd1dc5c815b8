"""Outcomes of a simulated cluster as a table for people, as JSON and as CSV."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from cotenant.cluster.simulation.outcome import ClusterOutcome
from cotenant.terminal import Stdout, console

COLUMNS = (
    "placement",
    "mean done\nafter h",
    "median\nh",
    "p99\nh",
    "mean\nqueued h",
    "GPUs\nbusy",
    "SMs\nbusy",
    "memory",
    "promises\nbroken",
    "moves",
    "never\nran",
    "took\ns",
)


def row(outcome: ClusterOutcome) -> list[str]:
    return [
        outcome.policy,
        hours(outcome.mean_completion_s),
        hours(outcome.median_completion_s),
        hours(outcome.p99_completion_s),
        hours(outcome.mean_queued_s),
        percent(outcome.utilisation),
        percent(outcome.sm_activity),
        percent(outcome.memory),
        f"{outcome.broken:.1%}" if not math.isnan(outcome.broken) else "",
        str(outcome.moves or ""),
        str(outcome.never_ran or ""),
        f"{outcome.wall_seconds:.1f}",
    ]


def hours(seconds: float) -> str:
    return "" if math.isnan(seconds) else f"{seconds / 3600:.2f}"


def percent(part: float) -> str:
    return "" if math.isnan(part) else f"{part:.0%}"


def title(outcome: ClusterOutcome) -> str:
    jobs = len(outcome.jobs) + outcome.never_ran
    services = f", {outcome.services} services" if outcome.services else ""
    days = outcome.arrivals_s / 86400
    what = f"{jobs} jobs in {days:.1f} days on {outcome.gpus} GPUs{services}"
    return f"  {outcome.log}: {what}; shared by {outcome.sharing}"


def print_table(outcomes: Sequence[ClusterOutcome]) -> None:
    """Fits into 110 columns; a column that would be empty is left out."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    rows = [row(outcome) for outcome in outcomes]
    found = Table(box=SIMPLE_HEAD, title=title(outcomes[0]), title_style="", title_justify="left")
    shown = [number for number in range(len(COLUMNS)) if any(cells[number] for cells in rows)]
    for number in shown:
        found.add_column(COLUMNS[number], justify="left" if number == 0 else "right", no_wrap=True)
    for cells in rows:
        found.add_row(*(cells[number] for number in shown))
    console(width=160).print(found)


def as_json(outcomes: Sequence[ClusterOutcome]) -> str:
    return json.dumps({"outcomes": [record(outcome) for outcome in outcomes]}, indent=1)


def record(outcome: ClusterOutcome) -> dict[str, Any]:
    figures = {
        "placement": outcome.policy,
        "log": outcome.log,
        "sharing": outcome.sharing,
        "gpus": outcome.gpus,
        "services": outcome.services,
        "arrivals_s": outcome.arrivals_s,
        "makespan_s": outcome.makespan_s,
        "mean_completion_s": outcome.mean_completion_s,
        "median_completion_s": outcome.median_completion_s,
        "p99_completion_s": outcome.p99_completion_s,
        "mean_queued_s": outcome.mean_queued_s,
        "utilisation": outcome.utilisation,
        "sm_activity": outcome.sm_activity,
        "memory": outcome.memory,
        "promises_broken": outcome.broken,
        "moves": outcome.moves,
        "never_ran": outcome.never_ran,
    }
    known = {
        key: None if isinstance(value, float) and math.isnan(value) else value
        for key, value in figures.items()
    }
    return {**known, "jobs": [asdict(job) for job in outcome.jobs]}


def print_csv(outcomes: Sequence[ClusterOutcome]) -> None:
    """A line for each job under each policy."""
    writer: Any = None
    for outcome in outcomes:
        for job in outcome.jobs:
            line = {"placement": outcome.policy, **asdict(job)}
            if writer is None:
                writer = csv.DictWriter(Stdout(), list(line), lineterminator="\n")
                writer.writeheader()
            writer.writerow(line)
