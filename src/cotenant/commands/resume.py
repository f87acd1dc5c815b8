"""`cotenant resume`: restores a paused tenant."""

from __future__ import annotations

from pathlib import Path

import click

from cotenant.cli import segment_option
from cotenant.errors import narrate


@click.command(
    "resume",
    short_help="Restore a paused tenant's GPU memory, and let it run on.",
    epilog="""\b
Examples:
  cotenant resume 4711
  cotenant resume 4711 --wait 60""",
)
@click.argument("pid", type=int)
@click.option(
    "--wait",
    "wait_seconds",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    envvar="COTENANT_RESUME_WAIT",
    show_envvar=True,
    help="How long to wait until its memory is restored.",
)
@segment_option
def command(pid: int, wait_seconds: float, segment_file: Path | None) -> None:
    """Resume the tenant with process number PID: its memory is restored at the same addresses as soon as there is
    space for all of it, and then its threads run on.
    """
    from cotenant import segment, units
    from cotenant.tenants import pausing

    path = segment.path_to_read(segment_file)
    tenant = pausing.resume(path, pid, wait_seconds)
    if tenant.where == segment.Where.resident:
        narrate(f"{pid} ({tenant.program}) runs on")
    else:
        need = units.size_shown(tenant.host_bytes)
        narrate(f"{pid} ({tenant.program}) is restored when {need} of the GPU's memory are free")
