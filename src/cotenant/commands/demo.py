"""`cotenant demo`: what sharing costs a production job on this machine, without Cotenant and with it."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from cotenant import endings
from cotenant.errors import USAGE, Problem
from cotenant.terminal import console

DEFAULT_SECONDS = 60.0
MINIMUM_SECONDS = 2.0
NEEDED = {"cuda.bindings": "cuda-bindings", "matplotlib": "matplotlib"}


@click.command(
    "demo",
    short_help="Measure two jobs that share the GPU, without Cotenant and with it.",
    epilog="""\b
Examples:
  cotenant demo
  cotenant demo --seconds 20 --output /tmp/report
  cotenant demo --software-gpu""",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo-report"),
    show_default=True,
    envvar="COTENANT_DEMO_OUTPUT",
    help="The folder for summary.json and latency.png.",
)
@click.option(
    "--seconds",
    type=float,
    default=DEFAULT_SECONDS,
    show_default=True,
    envvar="COTENANT_DEMO_SECONDS",
    help="How long to measure, all phases together; starting takes some seconds more.",
)
@click.option(
    "--software-gpu",
    is_flag=True,
    envvar="COTENANT_DEMO_SOFTWARE_GPU",
    help="Use the software GPU even where there is an NVIDIA GPU.",
)
def command(output: Path, seconds: float, software_gpu: bool) -> None:
    """A production job and an opportunistic job share one GPU.

    The demo interleaves three phases in rounds: production alone; both jobs with the driver's own time slices;
    both jobs under `cotenant run`. It prints a table and writes summary.json and latency.png. Where there is no
    NVIDIA GPU it uses the software GPU.
    """
    if not MINIMUM_SECONDS <= seconds < float("inf"):
        raise Problem(f"--seconds {seconds:g} is too short", f"give at least {MINIMUM_SECONDS:g}", USAGE)
    for module, package in NEEDED.items():
        if not _installed(module):
            raise Problem(f"the demo needs {package}, which is not installed", "pip install 'cotenant[demo]'")

    from cotenant.demo.report import check_place, doubts, headline, leave, table
    from cotenant.demo.rounds import measure

    check_place(output)

    with endings.tidy(), _narration(seconds) as narrate:
        measurement = measure(seconds, True if software_gpu else None, narrate)
        narrate("drawing", seconds)
        leave(measurement, output)
    out = console(width=100)
    out.print(table(measurement))
    out.print(f"\n{headline(measurement)}", soft_wrap=True)
    if doubt := doubts(measurement):
        click.echo(f"note: {doubt}", err=True)
    out.print(f"{output / 'summary.json'}\n{output / 'latency.png'}", soft_wrap=True)


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@contextlib.contextmanager
def _narration(seconds: float) -> Iterator[Callable[[str, float], None]]:
    """On a terminal one line that moves; elsewhere a line for each thing that begins. On stderr."""
    if not sys.stderr.isatty():
        yield lambda what, behind: click.echo(f"{behind:5.1f} of {seconds:g} s  {what}", err=True)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(30), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=seconds)

        def narrate(what: str, behind: float) -> None:
            progress.update(task, description=what, completed=behind)

        yield narrate
