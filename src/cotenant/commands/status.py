"""`cotenant status`: who is on which GPU, once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cotenant import figures, segment, table
from cotenant.config.settings import option
from cotenant.errors import narrate
from cotenant.figures import Of, Width
from cotenant.options import jobs_argument, segment_option
from cotenant.tenants.lately import Key, Lately
from cotenant.terminal import Stdout, printable, say

if TYPE_CHECKING:
    from cotenant.gpus.instances import Instance


def help_text() -> str:
    """The columns of the table, as figures.py explains them."""
    import textwrap

    lines = [
        "Show the tenants of each GPU: their class, what they use of it, whether promises are kept, their memory; with",
        "JOB only those of this job: its name, its id or the beginning of that, or a PID of one of its processes or of",
        "its launcher. Where a terminal is too narrow the least important columns are left out; -o wide has more.",
        "",
        "\b",
    ]
    for figure in figures.columns(Width.table):
        meaning = figure.help.replace("`", "")
        lines += textwrap.wrap(f"{figure.column:<8}  {meaning}", 76, subsequent_indent=" " * 10)
    return "\n".join([*lines, "", "All figures: docs/figures.md."])


@click.command(
    "status",
    help=help_text(),
    short_help="Show the tenants of each GPU.",
    epilog="""\b
Examples:
  cotenant status
  cotenant status -o wide
  cotenant status train.py
  cotenant status -o json | jq '.tenants[] | select(.class == "production")'""",
)
@jobs_argument(required=False)
@option("status.output", "-o")
@option("status.interval")
@segment_option
def command(words: tuple[str, ...], output: str, interval_seconds: float, segment_file: Path | None) -> None:
    from cotenant.tenants import looking

    path = segment.path_to_read(segment_file)
    seen, lately = looking.twice(path, interval_seconds)
    gpus = states_of(seen, path)
    if words:
        from cotenant.tenants import jobs

        chosen = {id(one) for job in jobs.select(words, seen.tenants) for one in job.tenants}
        seen = replace(seen, tenants=tuple(one for one in seen.tenants if id(one) in chosen))
    if not seen.tenants:
        narrate("no tenants")
    tell_wrong_settings(path)
    for number, state in gpus.items():
        for line in state["outside_in_words"]:
            narrate(f"GPU {number} {printable(line)}")
    nvml = nvml_bytes() if seen.tenants and output != "table" else {}
    parts = mig_instances(seen) if output in ("json", "wide") else {}
    if output == "json":
        print_json(seen, path, gpus, nvml, lately, parts)
    elif output == "csv":
        print_csv(seen, nvml, lately)
    elif seen.tenants:
        print_table(seen, nvml, lately, wide=output == "wide")
        for number, part in parts.items():
            say(f"GPU {number} is {part.uuid}, {part.name}, of GPU {part.gpu.index} {part.gpu.uuid}")


def tell_wrong_settings(path: Path) -> None:
    """That the daemon goes on under what a file said before it was wrong."""
    from cotenant.config import live

    if problem := live.problem_of_daemon(path):
        narrate(f"cotenant: the daemon keeps the last settings that were right: {problem}")


def states_of(seen: segment.Snapshot, path: Path) -> dict[int, dict[str, Any]]:
    """What the daemon last saw of each GPU."""
    from cotenant.gpus import states

    shown = states.read(path)
    return {number: states.figures(shown, number, seen.tenants) for number in seen.gpus}


def nvml_bytes() -> figures.NvmlBytes:
    from cotenant.gpus import process_memory

    return process_memory.by_process(os.environ)


def mig_instances(seen: segment.Snapshot) -> dict[int, Instance]:
    """Of the GPUs of the segment, those that are MIG instances."""
    from cotenant.gpus import instances

    known = instances.here(os.environ) if seen.gpus else {}
    return {number: known[uuid] for number, uuid in seen.gpus.items() if uuid in known}


def print_json(
    seen: segment.Snapshot,
    path: Path,
    states: Mapping[int, Mapping[str, Any]],
    nvml: figures.NvmlBytes,
    lately: Mapping[Key, Lately],
    parts: Mapping[int, Instance],
) -> None:
    import json

    gpus = [
        {"gpu": number, "uuid": parts[number].uuid if number in parts else uuid}
        | figures.read(Of.gpu, states[number])
        for number, uuid in seen.gpus.items()
    ]
    tenants = [figures.record(tenant, nvml, lately) for tenant in seen.tenants]
    for here in (on_gpu for tenant in tenants for on_gpu in tenant["gpus"] if on_gpu["gpu"] in parts):
        here["uuid"] = parts[here["gpu"]].uuid
    whole = {"schema": figures.SCHEMA, "segment": str(path), "gpus": gpus, "tenants": tenants}
    say(json.dumps(whole, indent=2))


def print_csv(seen: segment.Snapshot, nvml: figures.NvmlBytes, lately: Mapping[Key, Lately]) -> None:
    import csv

    columns = figures.columns(Width.table, Width.wide, Width.data)
    writer = csv.writer(Stdout(), lineterminator="\n")
    writer.writerow([*(figure.name for figure in columns), "schema"])
    writer.writerows([*row, figures.SCHEMA] for row in figures.rows(seen, nvml, lately, columns))


def print_table(
    seen: segment.Snapshot, nvml: figures.NvmlBytes, lately: Mapping[Key, Lately], wide: bool
) -> None:
    shown = figures.columns(Width.table, *([Width.wide] if wide else []))
    columns = [
        table.Column(figure.column, figure.is_number, figure.goes, is_name=figure.name == "job")
        for figure in shown
    ]
    rows = [
        [printable(figure.cell(value)) for figure, value in zip(shown, row, strict=True)]
        for row in figures.rows(seen, nvml, lately, shown)
    ]
    for line in table.lines(columns, rows, table.WHOLE if wide else table.width_of_stdout()):
        say(line)
