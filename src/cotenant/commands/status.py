"""`cotenant status`: who is on which GPU, once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from cotenant import classes, segment
from cotenant.cli import OneOf, segment_option
from cotenant.errors import Problem, narrate

Row = dict[str, Any]

NARROW = (
    "gpu",
    "pid",
    "program",
    "class",
    "state",
    "kernels",
    "graphs",
    "copies",
    "gates",
    "escaped",
    "unknown",
)
WIDE = ("uuid", "tenant", "uid", "slice_us", "memory_ops", "host_calls", "bursts")


@click.command(
    "status",
    short_help="Show the tenants of each GPU.",
    epilog="""\b
Examples:
  cotenant status
  cotenant status -o wide
  cotenant status -o json | jq '.tenants[] | select(.class == "production")'""",
)
@click.option(
    "-o",
    "--output",
    type=OneOf("output", ("table", "wide", "json", "csv")),
    default="table",
    show_default=True,
    envvar="COTENANT_STATUS_OUTPUT",
    show_envvar=True,
    help="How to print it.",
)
@segment_option
def command(output: str, segment_file: Path | None) -> None:
    """Show the tenants of each GPU: their class, what they launched, and what escaped control.

    STATE is busy, idle or gated (held back for a class above). ESCAPED counts work that reached the GPU
    without passing a gate, UNKNOWN the driver functions that the program took and Cotenant does not know.
    """
    path = segment_file.absolute() if segment_file else segment.path_for(os.environ)
    try:
        seen = segment.read(path)
    except FileNotFoundError:
        seen = segment.Snapshot({}, (), 0)
    except segment.BadSegment as error:
        raise Problem(str(error), "remove it when no tenant runs, or name another with --segment") from None
    if not seen.tenants:
        narrate("no tenants")
    if output == "json":
        print_json(seen, path)
    elif output == "csv":
        print_csv(seen)
    elif seen.tenants:
        print_table(seen, wide=output == "wide")


def state(use: segment.Use) -> str:
    if use.gated:
        return "gated"
    return "busy" if use.busy else "idle"


def class_name(value: int) -> str:
    return classes.NAMES[value] if value < len(classes.NAMES) else str(value)


def rows(seen: segment.Snapshot) -> Iterator[Row]:
    """A row for each tenant on each GPU it has used; one without a GPU where it has used none."""
    for tenant in seen.tenants:
        about: Row = {
            "pid": tenant.pid,
            "program": tenant.program,
            "class": class_name(tenant.tenant_class),
            "unknown": tenant.unknown_functions,
            "tenant": tenant.tenant,
            "uid": tenant.uid,
            "slice_us": tenant.time_slice_us,
        }
        unused = dict.fromkeys(segment.FIGURES, 0)
        if not tenant.uses:
            yield about | {"gpu": "", "uuid": "", "state": "idle"} | unused
        for use in tenant.uses:
            yield about | {"gpu": use.gpu, "uuid": use.uuid, "state": state(use)} | use.figures


def print_json(seen: segment.Snapshot, path: Path) -> None:
    import json

    tenants = [
        {
            "pid": tenant.pid,
            "uid": tenant.uid,
            "program": tenant.program,
            "class": class_name(tenant.tenant_class),
            "tenant": tenant.tenant,
            "unknown_functions": tenant.unknown_functions,
            "time_slice_us": tenant.time_slice_us,
            "time_slice_refused": tenant.time_slice_refused,
            "gpus": [
                {"gpu": use.gpu, "uuid": use.uuid, "busy": use.busy, "gated": use.gated} | use.figures
                for use in tenant.uses
            ],
        }
        for tenant in seen.tenants
    ]
    gpus = [{"gpu": number, "uuid": uuid} for number, uuid in seen.gpus.items()]
    print(json.dumps({"segment": str(path), "gpus": gpus, "tenants": tenants}, indent=2))


def print_csv(seen: segment.Snapshot) -> None:
    import csv

    writer = csv.DictWriter(sys.stdout, (*NARROW, *WIDE), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(seen))


def print_table(seen: segment.Snapshot, wide: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    columns = NARROW + WIDE if wide else NARROW
    table = Table(box=None, pad_edge=False)
    for name in columns:
        words = name in ("program", "class", "state", "uuid", "tenant")
        table.add_column(name.upper(), justify="left" if words else "right", no_wrap=True)
    for row in sorted(rows(seen), key=lambda row: (str(row["gpu"]), row["pid"])):
        table.add_row(*(str(row[name]) for name in columns))
    # Into a pipe or file the width is the content's, so that nothing is cut off.
    Console(width=None if sys.stdout.isatty() and not wide else 400, highlight=False, markup=False).print(
        table
    )
