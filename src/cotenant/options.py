"""What several subcommands take: the kinds of values, and the options and arguments that they share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from cotenant.errors import Problem, unknown


class OneOf(click.Choice[str]):
    """A word out of a few; for a wrong one the nearest right one is the hint."""

    def __init__(self, kind: str, words: Sequence[str]) -> None:
        super().__init__(words)
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            raise unknown(self.kind, str(value), self.choices)
        return str(value)


class Number(click.FloatRange):
    """A number in a range. Click takes "nan" for one in every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


gpu_option = click.option(
    "--gpu",
    envvar="COTENANT_GPU",
    metavar="GPU[,GPU...]",
    help="The GPUs that the command sees: index, UUID or PCI id.",
)


def complete_job(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names and ids; nothing where the segment cannot be read."""
    from cotenant import segment
    from cotenant.tenants import jobs

    try:
        known = list(jobs.words_for_completion(segment.path_to_read(ctx.params.get("segment_file"))))
    except Problem:
        return []
    return [word for word in known if word.startswith(incomplete)]


def jobs_argument(required: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Which jobs the command is about (tenants/jobs.py)."""
    metavar = "JOB..." if required else "[JOB...]"
    return click.argument("words", metavar=metavar, nargs=-1, required=required, shell_complete=complete_job)


segment_option = click.option(
    "--segment",
    "segment_file",
    envvar="COTENANT_SEGMENT",
    # Whether it can be used is the command's to say: `run` goes on without one that it may not read.
    type=click.Path(readable=False, path_type=Path),
    help="The shared-memory file of the tenants.  [default: /dev/shm/cotenant-UID.vN]",
)


def output_option(
    of: str, words: Sequence[str] = ("table", "json"), help: str = "How to print it."
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """How the command `of` prints what it knows; the first word is the default."""
    return click.option(
        "-o",
        "--output",
        type=OneOf("output", words),
        default=words[0],
        show_default=True,
        envvar=f"COTENANT_{of.upper()}_OUTPUT",
        help=help,
    )
