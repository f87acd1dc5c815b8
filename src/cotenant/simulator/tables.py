"""Outcomes as a table for people, as JSON and as CSV: all from simulator/figures.py."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from typing import Any

from cotenant import table
from cotenant.simulator.figures import OF_OUTCOME, OF_TENANT, SCHEMA
from cotenant.simulator.results import Outcome
from cotenant.terminal import Stdout, say


def print_table(outcomes: Sequence[Outcome]) -> None:
    """A column that would be empty (no job ends, no job is production) is left out, and what does not fit."""
    shown = [figure for figure in OF_OUTCOME if figure.heading]
    shown = [figure for figure in shown if any(figure.cell(outcome) for outcome in outcomes)]
    columns = [table.Column(figure.heading, figure.unit != "", figure.goes) for figure in shown]
    rows = [[figure.cell(outcome) for figure in shown] for outcome in outcomes]
    say(title(outcomes[0]))
    say()
    for line in table.lines(columns, rows, table.width_of_stdout()):
        say(line)


def title(outcome: Outcome) -> str:
    line = f"{outcome.workload} on {outcome.gpu}, {outcome.seconds:g} s simulated"
    if not outcome.production:
        return line
    first = outcome.production[0]
    cells = {figure.name: figure.cell(first) for figure in OF_TENANT}
    p50, p99 = (cells[f"alone_latency_{part}_ms"] for part in ("p50", "p99"))
    return f"{line}; {first.name} alone: p50 {p50} ms, p99 {p99} ms"


def as_json(outcomes: Sequence[Outcome]) -> str:
    return json.dumps({"schema": SCHEMA, "outcomes": [record(outcome) for outcome in outcomes]}, indent=1)


def record(outcome: Outcome) -> dict[str, Any]:
    tenants = [{figure.name: figure.value(one) for figure in OF_TENANT} for one in outcome.tenants]
    return {figure.name: figure.value(outcome) for figure in OF_OUTCOME} | {"tenants": tenants}


def print_csv(outcomes: Sequence[Outcome]) -> None:
    """A line for each tenant under each policy."""
    of_outcome = ("workload", "policy", "gpu_model")
    names = [*of_outcome, *(figure.name for figure in OF_TENANT), "schema"]
    writer = csv.DictWriter(Stdout(), names, lineterminator="\n")
    writer.writeheader()
    for outcome in outcomes:
        found = record(outcome)
        for tenant in found["tenants"]:
            writer.writerow({name: found[name] for name in of_outcome} | tenant | {"schema": SCHEMA})
