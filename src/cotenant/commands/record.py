"""`cotenant record`: the command runs as under `run`, and what it puts on the GPU is written into a trace.

What the interposer gets beside what `run` sets: COTENANT_RECORD (the file), COTENANT_RECORD_SECONDS and
COTENANT_RECORD_LIMIT where they were given. They are these options' own variables too, so `cotenant run` with them in
the environment records as well.
"""

from __future__ import annotations

import math
import os
import select
import signal
from pathlib import Path

import click

from cotenant import classes, output_files, units
from cotenant.errors import USAGE, Problem, narrate
from cotenant.launch import environment, execute, job_name
from cotenant.options import OneOf, gpu_option, segment_option

SMALLEST_LIMIT = 4096


def seconds_of(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.001 <= value <= 1e6:
        raise Problem(f"no number of seconds: '{text}'", "give one from 0.001 to 1000000", USAGE)
    return value


def bytes_of(text: str) -> int:
    size = units.bytes_in(text)
    if not SMALLEST_LIMIT <= size < 1 << 49:
        raise Problem(f"no size: '{text}'", "give one of at least 4K, as 512K or 10M", USAGE)
    return size


@click.command(
    "record",
    short_help="Run a command and record what it puts on the GPU.",
    context_settings={"allow_interspersed_args": False},
    epilog="""\b
Examples:
  cotenant record -o job.trace -- python train.py
  cotenant record -o serve.trace --seconds 30 --limit 10M -- python serve.py
  cotenant trace info job.trace""",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar="COTENANT_RECORD",
    help="The trace file to write.  [required]",
)
@click.option(
    "--seconds",
    type=seconds_of,
    metavar="SECONDS",
    envvar="COTENANT_RECORD_SECONDS",
    help="How long to record, from the first work on; the command runs on.  [default: to its end]",
)
@click.option(
    "--limit",
    type=bytes_of,
    metavar="SIZE",
    envvar="COTENANT_RECORD_LIMIT",
    help="Stop recording when the trace has this size, such as 10M; the command runs on.",
)
@click.option(
    "--force",
    is_flag=True,
    envvar="COTENANT_RECORD_FORCE",
    help="Replace the trace if it exists.",
)
@click.option(
    "--class",
    "tenant_class",
    type=OneOf("class", classes.NAMES),
    default=classes.TenantClass.production.name,
    show_default=True,
    envvar="COTENANT_RECORD_CLASS",
    help="As for `run`. Production passes no gates, so its trace shows the job as it is alone.",
)
@gpu_option
@segment_option
@click.argument("words", metavar="[--] COMMAND...", nargs=-1, type=click.UNPROCESSED)
def command(
    output: Path | None,
    seconds: float | None,
    limit: int | None,
    force: bool,
    tenant_class: str,
    gpu: str | None,
    segment_file: Path | None,
    words: tuple[str, ...],
) -> None:
    """Run COMMAND as a tenant and record what it puts on the GPU into a trace.

    COMMAND replaces this process, as under `run`. The trace begins with its first work on a GPU. It is written
    about once a second, so it can be read after a crash too. Each further process of COMMAND that uses a
    GPU gets a file of its own: FILE.PID. Where no process put work on a GPU, one line on stderr says so.
    """
    usage = "cotenant record -o FILE [options] [--] command..."
    if not words:
        raise Problem("no command given", usage, USAGE)
    if output is None:
        raise Problem("no file for the trace given", usage, USAGE)
    before = execute.inherited()
    program = execute.find_program(words[0], before)
    try:
        after = environment.of_command(
            before, tenant_class, segment_file, job_name.of_command(words), program=program
        )
    except environment.NotShared as reason:
        raise Problem(f"nothing can be recorded: {reason.message}", reason.hint) from None
    if gpu:
        environment.show_gpus(after, gpu)
    path = output.absolute()
    make_room(path, force)
    after["COTENANT_RECORD"] = str(path)
    for name, value in (("SECONDS", seconds), ("LIMIT", limit)):
        after.pop(f"COTENANT_RECORD_{name}", None)
        if value is not None:
            after[f"COTENANT_RECORD_{name}"] = f"{value:.15g}"
    tell_afterwards_if_nothing_was_recorded(path)
    execute.become(program, words, after)


def tell_afterwards_if_nothing_was_recorded(path: Path) -> None:
    """The command takes this process, so another one looks when it has ended; it is not the command's child."""
    try:
        ended = os.pidfd_open(os.getpid())
    except OSError:
        return  # an old kernel: nobody tells
    if child := os.fork():
        os.close(ended)
        os.waitpid(child, 0)
        return
    if os.fork():
        os._exit(0)
    try:
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)  # whoever reads the command's output does not wait for us
        select.select([ended], [], [])
        if not path.exists():
            narrate(
                f"cotenant: nothing was recorded: the command put no work on a GPU, {path} was not written"
            )
    finally:
        os._exit(0)


def make_room(path: Path, force: bool) -> None:
    """The interposer makes the file itself, and only where none is; here we see that it will be able to."""
    if path.exists() and not path.is_dir() and not force:
        raise Problem(f"{path} exists", "name another file, or add --force", USAGE)
    output_files.check(path)
    path.unlink(missing_ok=True)
