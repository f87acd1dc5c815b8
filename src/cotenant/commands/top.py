"""`cotenant top`: who is on which GPU and what they do there, live."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from cotenant.config.settings import option
from cotenant.options import jobs_argument, segment_option


@click.command(
    "top",
    short_help="Watch the GPUs and their tenants.",
    epilog="""\b
Examples:
  cotenant top
  cotenant top --readonly
  cotenant top train.py serve.py
  cotenant top --once
  cotenant top --interval 5 | cat""",
)
@jobs_argument(required=False)
@click.option(
    "--once",
    is_flag=True,
    envvar="COTENANT_TOP_ONCE",
    help="Print one frame and stop, as without a terminal.",
)
@option("top.readonly")
@option("top.interval")
@segment_option
def command(
    words: tuple[str, ...], once: bool, readonly: bool, interval_seconds: float, segment_file: Path | None
) -> int:
    """Show each GPU with what each class used of it, its clock and power, and its tenants; with JOB only the tenants of
    this job. In a terminal it goes on until q, and its keys sort, filter and steer the tenants.

    \b
    GPU%        GPU time charged to it since the last look
    PROMISE     what it was promised, and whether it was kept of late
    SHARE       among the tenants of its class that have work: what it got,
                and what it should get by its weight
    MEMORY      what it has allocated, and its run's limit
    HOST        of its memory, what is evicted to the host
    P50, P99    how long it waited for the GPU with work of its own:
                half and 99 % of the waits were shorter
    PRE         how often its gate was closed while it had work
    EVI         how often its memory was evicted
    ESC         work that reached the GPU without the gate that it should pass
    DELAYED-BY  for whom it waited with work of its own, as a part of the last
                looks
    """
    from cotenant import segment, table
    from cotenant.terminal import say
    from cotenant.top import frame, looking

    path = segment.path_to_read(segment_file)
    looking.check(path, words)  # what is wrong is an error before there is a screen
    if once or not is_on_terminal():
        say(frame.frame(looking.twice(path, interval_seconds, words), table.width_of_stdout()))
        return 0
    from cotenant.top.screen import Top

    screen = Top(path, interval_seconds, readonly, words)
    screen.run()
    return screen.return_code or 0


def is_on_terminal() -> bool:
    """textual reads from stdin and draws on stderr."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(one is not None and one.isatty() for one in streams) and os.environ.get("TERM") != "dumb"
