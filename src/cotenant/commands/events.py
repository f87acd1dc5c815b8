"""`cotenant events`: what happened to the tenants, each with its cause."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cotenant import segment
from cotenant.errors import USAGE, Problem, narrate
from cotenant.options import jobs_argument, output_option, segment_option
from cotenant.terminal import printable, say

if TYPE_CHECKING:
    from cotenant.events import Event

AGO = re.compile(r"(\d+(?:\.\d*)?)(s|m|h|d)")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def moment(text: str) -> float:
    """Seconds since 1970: of a length before now, or of a time as ISO 8601 has it."""
    import datetime

    if found := AGO.fullmatch(text.strip()):
        return time.time() - float(found[1]) * SECONDS[found[2]]
    try:
        return datetime.datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        hint = "give a length as 30s, 10m, 2h or 1d, or a time as 2026-01-31T14:00"
        raise Problem(f"no time: '{text}'", hint, USAGE) from None


@click.command(
    "events",
    short_help="Show what happened, and why.",
    epilog="""\b
Examples:
  cotenant events
  cotenant events train.py --since 1h
  cotenant events --follow
  cotenant events -o json | jq 'select(.kind == "promise-broken")'""",
)
@jobs_argument(required=False)
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    envvar="COTENANT_EVENTS_FOLLOW",
    help="Go on with what happens from now on, until interrupted.",
)
@click.option(
    "--since",
    type=moment,
    metavar="LENGTH|TIME",
    envvar="COTENANT_EVENTS_SINCE",
    help="Only what happened in the last 30s, 10m, 2h or 1d, or since a time such as 2026-01-31T14:00.",
)
@output_option("events", ("text", "json"), "How to print it; json has an object a line.")
@segment_option
def command(
    words: tuple[str, ...], follow: bool, since: float | None, output: str, segment_file: Path | None
) -> None:
    """Show what happened to the tenants, the eldest first: who came and left, whose memory was evicted and restored,
    which promise was broken and kept again, what was refused, and what the daemon did; each with its cause. With JOB
    only what happened to this job, also where it has ended: its name, its id or the beginning of that, or a PID.

    The daemon writes it down; where none runs nothing is.
    """
    from cotenant.events import log

    path = segment.path_to_read(segment_file)
    found = log.follow(path, from_start=True) if follow else iter(log.read(path))
    shown = (one for one in found if (since is None or one.at >= since) and is_meant(one, words))
    if not print_events(shown, output):
        narrate("no events")


def is_meant(event: Event, words: tuple[str, ...]) -> bool:
    return not words or any(
        word in (event.job, str(event.pid)) or (event.run_id.startswith(word.lower()) and len(word) >= 4)
        for word in words
    )


def print_events(events: Iterable[Event], output: str) -> int:
    """Returns how many."""
    import json

    count = 0
    for event in events:
        count += 1
        if output == "json":
            say(json.dumps(event.record()))
        else:
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.at))
            where = "" if event.gpu is None else f" on GPU {event.gpu}"
            say(printable(f"{at}  {event.kind.word:<18} {event.subject}{where}: {event.cause}"))
    return count
