"""`cotenant daemon`: ticks the policy of a segment. `cotenant run` starts it where none runs."""

from __future__ import annotations

import os
from pathlib import Path

import click

from cotenant import segment
from cotenant.cli import segment_option
from cotenant.errors import USAGE, Problem, narrate

LINGER_SECONDS = 10.0


@click.command(
    "daemon",
    short_help="Tick the policy of a segment.",
    epilog="""\b
Examples:
  cotenant daemon --policy strict
  cotenant daemon --policy ./mine.py:Mine
  cotenant daemon --linger 3600 &""",
)
@click.option(
    "--policy",
    metavar="NAME|FILE.py[:CLASS]",
    envvar="COTENANT_DAEMON_POLICY",
    show_envvar=True,
    help="The policy from now on; `cotenant policies` lists them. The variable counts only while no command has"
    " named one.",
)
@click.option(
    "--linger",
    type=click.FloatRange(min=0),
    default=LINGER_SECONDS,
    show_default=True,
    metavar="SECONDS",
    envvar="COTENANT_DAEMON_LINGER",
    show_envvar=True,
    help="How long the daemon runs on after the last tenant has ended.",
)
@segment_option
def command(policy: str | None, linger: float, segment_file: Path | None) -> None:
    """Tick the policy's controller for the tenants of a segment, and write the knobs that it sets.

    `cotenant run` starts the daemon in the background where none runs. A segment has one daemon; when it ends, the
    jobs run on. The daemon follows `cotenant ctl --policy NAME`.
    """
    from cotenant.daemon import choice, lock
    from cotenant.daemon.attachment import Attachment
    from cotenant.daemon.loop import Daemon
    from cotenant.policies import registry

    path = segment_file.absolute() if segment_file else segment.path_for(os.environ)
    if policy is not None:
        policy = choice.for_segment(policy)
    # What is typed holds for the segment, as with `run --policy`; the variable only while no command has named one.
    source = click.get_current_context().get_parameter_source("policy")
    named = policy if source is click.core.ParameterSource.COMMANDLINE else None
    try:
        segment.ensure(path)
        held = lock.acquire(path)
        if held is None:
            if named is not None:
                raise Problem(
                    f"a daemon ticks the policy of {path} already", "cotenant ctl --policy NAME", USAGE
                )
            narrate(f"a daemon ticks the policy of {path} already")
            return
        try:
            attachment = Attachment(path)
            if named is not None:
                attachment.policy = named
            Daemon(attachment, policy or registry.DEFAULT, linger).run()
            attachment.close()
        finally:
            lock.release(path, held)
    except (segment.BadSegment, OSError) as error:
        raise Problem(str(error), "`cotenant doctor` says more; --segment names another file") from None
