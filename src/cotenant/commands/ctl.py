"""`cotenant ctl`: changes a tenant while it runs.

The request is written into the tenant's slot; the interposer inside the job takes it and puts it into effect.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from cotenant import classes, segment
from cotenant.cli import OneOf, segment_option
from cotenant.errors import USAGE, Problem, narrate

PATIENCE_SECONDS = 5.0


@click.command(
    "ctl",
    short_help="Change a tenant while it runs.",
    epilog="""\b
Examples:
  cotenant ctl 4711 --class opportunistic
  cotenant ctl $(pgrep -f finetune.py) --class standard""",
)
@click.argument("pid", type=int)
@click.option(
    "--class",
    "tenant_class",
    type=OneOf("class", classes.NAMES),
    envvar="COTENANT_CTL_CLASS",
    show_envvar=True,
    help="The class it shall have from now on.",
)
@segment_option
def command(pid: int, tenant_class: str | None, segment_file: Path | None) -> None:
    """Change the tenant with process number PID while it runs.

    What it has queued keeps its order and its results; the new class counts from its next launch on.
    """
    if tenant_class is None:
        raise Problem("nothing to change", "say what: --class", USAGE)
    path = segment_file.absolute() if segment_file else segment.path_for(os.environ)
    wanted = classes.TenantClass[tenant_class].value
    ask(path, pid, wanted)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (now := class_of(path, pid)) != wanted:
        if now is None:
            raise Problem(f"tenant {pid} has ended")
        if time.monotonic() > deadline:
            raise Problem(f"tenant {pid} does not answer", "is it stopped? It changes when it goes on")
        time.sleep(0.01)
    narrate(f"tenant {pid} is {tenant_class} now")


def ask(path: Path, pid: int, wanted: int) -> None:
    try:
        if not segment.ask_for_class(path, pid, wanted):
            raise Problem(f"no tenant has the process number {pid}", f"there are {known_pids(path)}")
    except FileNotFoundError:
        raise Problem(f"no tenant has the process number {pid}", "there are no tenants") from None
    except segment.BadSegment as error:
        raise Problem(str(error), "`cotenant doctor` says more; --segment names another file") from None


def class_of(path: Path, pid: int) -> int | None:
    return next((t.tenant_class for t in segment.read(path).tenants if t.pid == pid), None)


def known_pids(path: Path) -> str:
    return ", ".join(f"{t.pid} ({t.program})" for t in segment.read(path).tenants) or "no tenants"
