"""`cotenant status`: who is on which GPU, once."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import click

from cotenant import figures, segment
from cotenant.cli import jobs_argument, output_option, segment_option
from cotenant.errors import Problem, narrate
from cotenant.figures import Of, Width
from cotenant.terminal import Stdout, console, say


def help_text() -> str:
    """The columns of the table, as figures.py explains them."""
    import textwrap

    lines = [
        "Show the tenants of each GPU: their class, what they launched, and what escaped control; with JOB only those",
        "of this job: its name, its id or the beginning of that, or a PID of one of its processes or of its launcher.",
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
@output_option("status", ("table", "wide", "json", "csv"))
@segment_option
def command(words: tuple[str, ...], output: str, segment_file: Path | None) -> None:
    path = segment.path_to_read(segment_file)
    try:
        seen = segment.read(path)
    except FileNotFoundError:
        seen = segment.Snapshot({}, (), 0)
    except segment.BadSegment as error:
        raise Problem(str(error), "remove it when no tenant runs, or name another with --segment") from None
    if words:
        from cotenant.tenants import jobs

        chosen = {id(one) for job in jobs.select(words, seen.tenants) for one in job.tenants}
        seen = replace(seen, tenants=tuple(one for one in seen.tenants if id(one) in chosen))
    if not seen.tenants:
        narrate("no tenants")
    nvml = nvml_bytes() if seen.tenants and output != "table" else {}
    if output == "json":
        print_json(seen, path, nvml)
    elif output == "csv":
        print_csv(seen, nvml)
    elif seen.tenants:
        print_table(seen, nvml, wide=output == "wide")


def nvml_bytes() -> figures.NvmlBytes:
    from cotenant.gpus import process_memory

    return process_memory.by_process(os.environ)


def print_json(seen: segment.Snapshot, path: Path, nvml: figures.NvmlBytes) -> None:
    import json

    from cotenant.gpus import states

    shown = states.read(path)
    gpus = [
        {"gpu": number, "uuid": uuid} | figures.read(Of.gpu, states.figures(shown, number))
        for number, uuid in seen.gpus.items()
    ]
    tenants = [figures.record(tenant, nvml) for tenant in seen.tenants]
    say(json.dumps({"segment": str(path), "gpus": gpus, "tenants": tenants}, indent=2))


def print_csv(seen: segment.Snapshot, nvml: figures.NvmlBytes) -> None:
    import csv

    columns = figures.columns(Width.table, Width.wide, Width.data)
    writer = csv.writer(Stdout(), lineterminator="\n")
    writer.writerow(figure.name for figure in columns)
    writer.writerows(figures.rows(seen, nvml, columns))


def print_table(seen: segment.Snapshot, nvml: figures.NvmlBytes, wide: bool) -> None:
    from rich.table import Table

    columns = figures.columns(Width.table, *([Width.wide] if wide else []))
    table = Table(box=None, pad_edge=False)
    for figure in columns:
        table.add_column(figure.column, justify="right" if figure.is_number else "left", no_wrap=True)
    rows = [
        [figure.cell(value) for figure, value in zip(columns, row, strict=True)]
        for row in figures.rows(seen, nvml, columns)
    ]
    for row in sorted(rows, key=lambda row: (row[0], int(row[1]))):  # by GPU and process number
        table.add_row(*row)
    console(width=1000, is_wide=wide).print(table)
