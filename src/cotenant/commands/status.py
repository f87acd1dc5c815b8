"""`cotenant status`: who is on which GPU, once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from cotenant import classes, segment, units
from cotenant.cli import output_option, segment_option
from cotenant.errors import Problem, narrate
from cotenant.terminal import Stdout, console, say

Row = dict[str, Any]
NvmlBytes = dict[tuple[str, int], int]

NARROW = (
    "gpu",
    "pid",
    "program",
    "class",
    "state",
    "weight",
    "promise",
    "used_s",
    "memory",
    "kernels",
    "graphs",
    "copies",
    "gates",
    "escaped",
    "unknown",
)
MEMORY = (
    "memory_bytes",
    "memory_limit",
    "driver_bytes",
    "movable_bytes",
    "host_bytes",
    "nvml_bytes",
    "refused",
    "times_left",
)
UNCOVERED = ("export_tables", "ungated_graphs", "checkpoints")
WIDE = (
    "uuid",
    "tenant",
    "uid",
    "slice_us",
    "in_flight_us",
    "memory_ops",
    "host_calls",
    "bursts",
    *UNCOVERED,
    *MEMORY,
)


@click.command(
    "status",
    short_help="Show the tenants of each GPU.",
    epilog="""\b
Examples:
  cotenant status
  cotenant status -o wide
  cotenant status -o json | jq '.tenants[] | select(.class == "production")'""",
)
@output_option("status", ("table", "wide", "json", "csv"))
@segment_option
def command(output: str, segment_file: Path | None) -> None:
    """Show the tenants of each GPU: their class, what they launched, and what escaped control.

    STATE is busy, idle, gated (its gate is closed), away (evicted: other tenants need the memory) or paused
    (evicted by hand). PROMISE is by how much a production job may slow down (<5%), or which share of the GPU a job
    of another class gets at least (>5%); USED_S is the GPU time charged to it. MEMORY is what the process has
    allocated of the GPU's memory and, after the slash, what all processes of its run may allocate. ESCAPED counts
    work that reached the GPU without passing a gate, UNKNOWN the driver functions that the program looked up and
    Cotenant does not know.
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
    nvml = nvml_bytes() if seen.tenants and output != "table" else {}
    if output == "json":
        print_json(seen, path, nvml)
    elif output == "csv":
        print_csv(seen, nvml)
    elif seen.tenants:
        print_table(seen, nvml, wide=output == "wide")


def nvml_bytes() -> NvmlBytes:
    from cotenant.gpus import process_memory

    return process_memory.by_process(os.environ)


def state(tenant: segment.Tenant, use: segment.Use) -> str:
    if tenant.where in (segment.Where.away, segment.Where.returning):
        return "paused" if tenant.held else "away"
    if use.gated:
        return "gated"
    return "busy" if use.busy else "idle"


def class_name(value: int) -> str:
    return classes.NAMES[value] if value < len(classes.NAMES) else str(value)


def promise(tenant: segment.Tenant) -> str:
    if tenant.slowdown:
        return f"<{units.percent(tenant.slowdown)}"
    return f">{units.percent(tenant.floor)}" if tenant.floor else ""


def memory(tenant: segment.Tenant, use: segment.Use | None, nvml: NvmlBytes) -> Row:
    """`driver_bytes` is part of `memory_bytes`; what NVML has on top of these is the driver's own, not measured."""
    here = use.memory_bytes if use else 0
    limit = units.limit_written(tenant.memory_limit) if tenant.memory_limit else ""
    return {
        "memory": units.size_shown(here) + (f"/{units.limit_shown(tenant.memory_limit)}" if limit else ""),
        "memory_bytes": here,
        "memory_limit": limit,
        "driver_bytes": use.driver_bytes if use else 0,
        "movable_bytes": use.movable_bytes if use else 0,
        "host_bytes": tenant.host_bytes,
        "nvml_bytes": nvml.get((use.uuid, tenant.pid), "") if use else "",
        "refused": use.refused if use else 0,
        "times_left": tenant.times_left,
    }


def rows(seen: segment.Snapshot, nvml: NvmlBytes) -> Iterator[Row]:
    """A row for each tenant on each GPU it has used; one without a GPU where it has used none."""
    for tenant in seen.tenants:
        about: Row = {
            "pid": tenant.pid,
            "program": tenant.program,
            "class": class_name(tenant.tenant_class),
            "weight": f"{tenant.weight / 1000:g}",
            "promise": promise(tenant),
            "unknown": tenant.unknown_functions,
            **{name: getattr(tenant, name) for name in UNCOVERED},
            "tenant": tenant.tenant,
            "uid": tenant.uid,
            "slice_us": tenant.time_slice_us,
        }
        unused = dict.fromkeys((*segment.FIGURES, "used_s", "in_flight_us"), 0)
        if not tenant.uses:
            yield about | {"gpu": "", "uuid": "", "state": "idle"} | unused | memory(tenant, None, nvml)
        for use in tenant.uses:
            here = {"gpu": use.gpu, "uuid": use.uuid, "state": state(tenant, use)}
            times = {"used_s": f"{use.used_ns / 1e9:.1f}", "in_flight_us": use.in_flight_us}
            yield about | here | times | memory(tenant, use, nvml) | use.figures


def print_json(seen: segment.Snapshot, path: Path, nvml: NvmlBytes) -> None:
    import json

    from cotenant.gpus import states

    tenants = [
        {
            "pid": tenant.pid,
            "uid": tenant.uid,
            "program": tenant.program,
            "class": class_name(tenant.tenant_class),
            "tenant": tenant.tenant,
            "weight": tenant.weight / 1000,
            "slowdown": tenant.slowdown / 1000 or None,
            "floor": tenant.floor / 1000,
            "memory_limit": units.limit_written(tenant.memory_limit) if tenant.memory_limit else None,
            "host_bytes": tenant.host_bytes,
            "where": tenant.where.name,
            "held": tenant.held,
            "times_left": tenant.times_left,
            "saved_bytes": tenant.saved_bytes,
            "dropped_bytes": tenant.dropped_bytes,
            "host_pinned": tenant.host_pinned,
            "unknown_functions": tenant.unknown_functions,
            **{name: getattr(tenant, name) for name in UNCOVERED},
            "time_slice_us": tenant.time_slice_us,
            "time_slice_refused": tenant.time_slice_refused,
            "gpus": [
                {"gpu": use.gpu, "uuid": use.uuid, "busy": use.busy, "gated": use.gated}
                | {"used_ns": use.used_ns, "busy_ns": use.busy_ns, "in_flight_us": use.in_flight_us}
                | {"turn_us": use.turn_us, "switch_us": use.switch_us}
                | {"memory_bytes": use.memory_bytes, "driver_bytes": use.driver_bytes, "refused": use.refused}
                | {"movable_bytes": use.movable_bytes}
                | {"waits": use.waits, "waited_ns": use.waited_ns, "gap_ns": use.gap_ns}
                | {"operation_ns": use.operation_ns, "operation_alone_ns": use.operation_alone_ns}
                | {"nvml_bytes": nvml.get((use.uuid, tenant.pid))}
                | use.figures
                for use in tenant.uses
            ],
        }
        for tenant in seen.tenants
    ]
    shown = states.read(path)
    gpus = [
        {"gpu": number, "uuid": uuid, "state": states.figures(shown, number)}
        for number, uuid in seen.gpus.items()
    ]
    say(json.dumps({"segment": str(path), "gpus": gpus, "tenants": tenants}, indent=2))


def print_csv(seen: segment.Snapshot, nvml: NvmlBytes) -> None:
    import csv

    writer = csv.DictWriter(Stdout(), (*NARROW, *WIDE), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(seen, nvml))


def print_table(seen: segment.Snapshot, nvml: NvmlBytes, wide: bool) -> None:
    from rich.table import Table

    columns = NARROW + WIDE if wide else NARROW
    table = Table(box=None, pad_edge=False)
    for name in columns:
        words = name in ("program", "class", "state", "promise", "uuid", "tenant")
        table.add_column(name.upper(), justify="left" if words else "right", no_wrap=True)
    for row in sorted(rows(seen, nvml), key=lambda row: (str(row["gpu"]), row["pid"])):
        table.add_row(*(str(row[name]) for name in columns))
    console(width=400, is_wide=wide).print(table)
