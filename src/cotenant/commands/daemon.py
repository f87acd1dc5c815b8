"""`cotenant daemon`: ticks the policy of a segment. `cotenant run` starts it where none runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cotenant import segment
from cotenant.config.settings import option
from cotenant.errors import USAGE, Problem, narrate
from cotenant.options import segment_option
from cotenant.terminal import say

if TYPE_CHECKING:
    from cotenant.config import live
    from cotenant.daemon.control import Control

TAKEOVER_SECONDS = 15.0


@click.group(
    "daemon",
    invoke_without_command=True,
    subcommand_metavar="[install]",
    short_help="Tick the policy of a segment.",
    epilog="""\b
Examples:
  cotenant daemon --policy strict
  cotenant daemon --policy ./mine.py:Mine
  cotenant daemon --capacity 24G --headroom 1G
  cotenant daemon --linger 3600 &
  sudo cotenant daemon --replace --admins gpu-admins
  cotenant daemon install --user --dry-run""",
)
@option("daemon.policy")
@option("daemon.linger")
@option("daemon.capacity")
@option("daemon.headroom")
@option("daemon.host_memory")
@option("daemon.stay")
@click.option(
    "--admins",
    metavar="GROUP",
    envvar="COTENANT_DAEMON_ADMINS",
    help="In a segment of several users: members of this group steer all tenants, as root does.",
)
@click.option(
    "--replace",
    is_flag=True,
    envvar="COTENANT_DAEMON_REPLACE",
    help="Take over from the daemon that runs, instead of leaving the tenants to it.",
)
@segment_option
@click.pass_context
def command(
    context: click.Context,
    policy: str | None,
    linger: float,
    capacity: int | None,
    headroom: int | None,
    host_memory: int | None,
    stay_us: int | None,
    admins: str | None,
    replace: bool,
    segment_file: Path | None,
) -> None:
    """Tick the policy's controller for the tenants of a segment, and write the knobs that it sets.

    `cotenant run` starts the daemon in the background where none runs. A segment has one daemon; when it ends, the
    jobs run on. The daemon follows `cotenant ctl --policy NAME`, and changes of the files of settings
    (docs/configuration.md); what `ctl` has set goes first. --policy names the policy for good; its variable and the
    files count only while no command has named one.
    """
    if context.invoked_subcommand:
        return
    from cotenant.config.live import LiveSettings
    from cotenant.daemon import choice, lock, readiness
    from cotenant.daemon.attachment import Attachment
    from cotenant.daemon.loop import Daemon
    from cotenant.events.watching import Watching
    from cotenant.mps import pairs
    from cotenant.policies import registry

    group = None if admins is None else group_number(admins)
    path = segment_file.absolute() if segment_file else segment.path_for(os.environ)
    if policy is not None and is_said("policy"):
        policy = choice.for_segment(policy)
    given = given_here(
        {
            "policy": policy,
            "linger": linger,
            "capacity": capacity,
            "headroom": headroom,
            "host_memory": host_memory,
            "stay": stay_us,
        }
    )
    # What is typed holds for the segment, as with `run --policy`; the variable only while no command has named one.
    source = context.get_parameter_source("policy")
    named = policy if source is click.core.ParameterSource.COMMANDLINE else None
    try:
        segment.ensure(path)
        held = taken_over(path) if replace else lock.acquire(path)
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
            socket = control_socket(path, group)
            settings = LiveSettings(path, given, registry.DEFAULT)
            try:
                events = Watching(path)
                # Jobs of a segment of their own, as a benchmark's, are no rule for later ones.
                kept = pairs.file_in(os.environ) if path == segment.path_for({}) else None
                readiness.tell(os.environ)
                Daemon(
                    attachment,
                    policy or registry.DEFAULT,
                    linger,
                    settings=settings,
                    events=events,
                    pairs_file=kept,
                    lock_file=held,
                ).run()
            finally:
                if socket:
                    socket.end()
            attachment.close()
        finally:
            lock.release(path, held)
    except (segment.BadSegment, OSError) as error:
        raise Problem(str(error), segment.remedy(path)) from None


def group_number(name: str) -> int:
    import grp

    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise Problem(f"there is no group '{name}'", "`getent group` lists them", USAGE) from None


def taken_over(path: Path) -> int | None:
    """The lock, once the daemon that has it has ended. Its tenants run on meanwhile."""
    import time

    from cotenant.daemon import control, lock

    deadline = time.monotonic() + TAKEOVER_SECONDS
    held = lock.acquire(path)
    if held is None:
        control.send(path, {"do": "hand over"})
    while held is None and time.monotonic() < deadline:
        held = lock.acquire(path)
    if held is None:
        raise Problem(f"the daemon of {path} does not end", "`cotenant explain` names its PID")
    return held


def control_socket(path: Path, admins: int | None) -> Control | None:
    """The daemon looks after the tenants also where it can have none."""
    from cotenant.daemon.control import Control

    try:
        made = Control(path, admins)
    except (OSError, Problem) as error:
        narrate(f"cotenant: there is no control socket: {error}")
        return None
    made.start()
    return made


@command.command(
    "install",
    short_help="Let systemd start the daemon.",
    epilog="""\b
Examples:
  cotenant daemon install --user
  sudo cotenant daemon install --system
  cotenant daemon install --system --dry-run""",
)
@click.option(
    "--user/--system",
    "is_user",
    default=True,
    show_default=True,
    envvar="COTENANT_DAEMON_INSTALL_USER",
    help="For your jobs, or for all users'.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    envvar="COTENANT_DAEMON_DRY_RUN",
    help="Print the unit, and stop.",
)
def install(is_user: bool, dry_run: bool) -> None:
    """Write a systemd unit for the daemon.

    The user's unit looks after that user's own segment from login to logout (`loginctl enable-linger` keeps it); the
    system's makes the segment of all users, if there is none, and looks after that.
    """
    from cotenant.daemon import units

    program = units.this_program()
    text = units.unit(not is_user, program)
    file = units.folder(not is_user, os.environ) / units.NAME
    if dry_run:
        say(text.rstrip("\n"))
        narrate(f"{file} would have this")
        return
    if not is_user and units.is_hidden(program):
        raise Problem(
            f"the service has a /tmp of its own, and would not find {program}",
            "install Cotenant for all users, as into /opt/cotenant: python3 -m venv /opt/cotenant",
        )
    try:
        units.write(file, text)
    except OSError as error:
        hint = "use sudo, or --user" if not is_user else "check the folder's permissions"
        raise Problem(f"cannot write {file}: {error.strerror}", hint) from None
    manage = "systemctl --user" if is_user else "sudo systemctl"
    narrate(f"{file} is written\nnext: {manage} daemon-reload && {manage} enable --now cotenant")


def is_said(parameter: str) -> bool:
    """By flag or variable; what files say the daemon reads again when they change."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source in (click.core.ParameterSource.COMMANDLINE, click.core.ParameterSource.ENVIRONMENT)


def given_here(values: Mapping[str, Any]) -> dict[str, live.Holds]:
    from cotenant.config import live, settings

    given = {}
    for name, value in values.items():
        parameter = settings.BY_KEY[f"daemon.{name}"].argument
        if value is not None and is_said(parameter):
            source = click.get_current_context().get_parameter_source(parameter)
            is_flag = source is click.core.ParameterSource.COMMANDLINE
            given[name] = live.Holds(live.encoded(name, value), live.FLAG if is_flag else live.VARIABLE)
    return given
