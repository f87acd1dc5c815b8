"""`cotenant config`: what is set, and where each value comes from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cotenant import segment
from cotenant.cli import Nested, report
from cotenant.errors import FAILED, USAGE, Problem, narrate
from cotenant.options import output_option, segment_option
from cotenant.terminal import say

if TYPE_CHECKING:
    from cotenant.config import files, standing


@click.group(
    "config",
    cls=Nested,
    short_help="Show what is set, and where it comes from.",
    epilog="""\b
Examples:
  cotenant config show
  cotenant config show -o json | jq '.settings[] | select(.source!="default")'
  cotenant config check ./config.toml
  cotenant config table""",
)
def command() -> None:
    """Show every setting with its value and where that comes from, or check a file of settings.

    Settings come from a flag, else a variable, else the user's file (~/.config/cotenant/config.toml), else the
    machine's (/etc/cotenant/config.toml): docs/configuration.md. The daemon follows changes of the files;
    `cotenant ctl` changes its settings live.
    """


@command.command(
    "show",
    short_help="Print every setting, its value and where it comes from.",
    epilog="""\b
Examples:
  cotenant config show
  cotenant config show -o json""",
)
@output_option("config", ("table", "json"))
@segment_option
def show(output: str, segment_file: Path | None) -> int:
    """Print every setting, its value and where it comes from. The exit status is 1 where a file is wrong."""
    from cotenant.config import files, standing

    path = segment_file.absolute() if segment_file else segment.path_for({})
    found = files.load(os.environ, deep=True)
    every = [
        *standing.of_segment(path, os.environ, found),
        *standing.of_commands(os.environ, found),
    ]
    if output == "json":
        print_json(every, path, found)
    else:
        standing.print_table(every)
    for problem in found.problems.values():
        report(problem.message, problem.hint, FAILED)
    return FAILED if found.problems else 0


def print_json(every: list[standing.Standing], path: Path, found: files.Settings) -> None:
    import json

    from cotenant.config import files, live

    left = live.read(path) if path.exists() else live.NOTHING
    whole = {
        "schema": 1,
        "segment": str(path),
        "files": [
            {
                "which": file.which,
                "path": str(file.path) if file.path else None,
                "is_there": file.stamp is not None,
                "problem": found.problems[file.which].message if file.which in found.problems else None,
            }
            for file in files.files(os.environ)
        ],
        "daemon_problem": left.problem or None,
        "settings": [one.record() for one in every],
    }
    say(json.dumps(whole, indent=2))


@command.command(
    "check",
    short_help="Check a file of settings.",
    epilog="""\b
Examples:
  cotenant config check
  cotenant config check ./config.toml""",
)
@click.argument("file", type=click.Path(path_type=Path), required=False)
def check(file: Path | None) -> None:
    """Check FILE, or the user's and the machine's file, before it counts. The exit status is 2 where it is wrong."""
    from cotenant.config import files

    if file is not None and (file.is_dir() or not file.exists()):
        raise Problem(f"there is no file {file}", "name a file, or leave it out", USAGE)
    wanted = [files.File("named", file)] if file else files.files(os.environ)
    found = [(one.path, files.read(one, deep=True)) for one in wanted if one.stamp is not None]
    for path, said in found:
        narrate(f"{path}: {len(said)} {'setting' if len(said) == 1 else 'settings'}, all right")


@command.command(
    "table",
    short_help="Print the table of all settings.",
    epilog="""\b
Examples:
  cotenant config table""",
)
def print_settings() -> None:
    """Print every setting with its key, flag, variable and default, as docs/configuration.md has it."""
    from cotenant.config import page

    say(page.table())
