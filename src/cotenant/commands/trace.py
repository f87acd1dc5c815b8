"""`cotenant trace`: summarises, converts and cuts recorded traces."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cotenant import output_files
from cotenant.cli import Nested
from cotenant.errors import USAGE, Problem, narrate
from cotenant.options import Number, OneOf, output_option
from cotenant.terminal import Stdout, console, say

if TYPE_CHECKING:
    from cotenant.traces import Trace

FORMATS = ("perfetto", "chrome", "csv")
STDOUT = Path("-")


file_option = click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar="COTENANT_TRACE_FILE",
    help="The file to write.  [required]",
)
force_option = click.option(
    "--force",
    is_flag=True,
    envvar="COTENANT_TRACE_FORCE",
    help="Replace the file if it exists.",
)


@click.group(
    "trace",
    cls=Nested,
    short_help="Summarise, convert or cut a recorded trace.",
    epilog="""\b
Examples:
  cotenant trace info job.trace
  cotenant trace info -o json job.trace | jq .busy_share
  cotenant trace export job.trace --format perfetto -o job.json""",
)
def command() -> None:
    """Summarise a trace that `cotenant record` has written, convert it for other programs, or keep a part of it."""


@command.command(
    "info",
    short_help="Summarise a trace.",
    epilog="""\b
Examples:
  cotenant trace info job.trace
  cotenant trace info --top 30 -o json job.trace""",
)
@click.argument("file", type=click.Path(path_type=Path))
@output_option("trace")
@click.option(
    "--top",
    type=click.IntRange(1, 10_000),
    default=10,
    show_default=True,
    envvar="COTENANT_TRACE_TOP",
    help="How many kernels, graphs and copies to list.",
)
def info(file: Path, output: str, top: int) -> None:
    """Show the operations of a trace, its length, how busy the GPU was, and what took its time."""
    trace = load(file)
    from cotenant.traces.summary import summary

    figures = summary(trace, top)
    if output == "json":
        import json

        say(json.dumps(figures, indent=2))
    else:
        print_tables(figures)


@command.command(
    "export",
    short_help="Convert a trace for other programs.",
    epilog="""\b
Examples:
  cotenant trace export job.trace --format perfetto -o job.json
  cotenant trace export job.trace --format csv -o - | head""",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=OneOf("format", FORMATS),
    default="perfetto",
    show_default=True,
    envvar="COTENANT_TRACE_FORMAT",
    help="perfetto and chrome: a timeline for ui.perfetto.dev or chrome://tracing; csv: one row for each operation.",
)
@file_option
@force_option
def export(file: Path, form: str, output: Path | None, force: bool) -> None:
    """Convert a trace into a file that other programs read; `-o -` writes to stdout."""
    target = new_file(output, force)
    trace = load(file)
    from cotenant.traces.export import FORMATS as WRITERS

    if target == STDOUT:
        WRITERS[form](trace, Stdout())
        return
    with output_files.replaced(target) as beside, beside.open("x", newline="") as out:
        WRITERS[form](trace, out)
    narrate(f"{target}: {len(trace.operations)} operations")


@command.command(
    "cut",
    short_help="Keep a part of a trace.",
    epilog="""\b
Examples:
  cotenant trace cut job.trace --from 0.5 --to 2 -o steady.trace""",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--from",
    "begin",
    type=Number(),
    default=0.0,
    show_default=True,
    metavar="SECONDS",
    envvar="COTENANT_TRACE_FROM",
    help="Where the part begins; counted from the end if negative.",
)
@click.option(
    "--to",
    "end",
    type=Number(),
    metavar="SECONDS",
    envvar="COTENANT_TRACE_TO",
    help="Where the part ends.  [default: the trace's end]",
)
@file_option
@force_option
def cut(file: Path, begin: float, end: float | None, output: Path | None, force: bool) -> None:
    """Write the part of a trace between two moments into a trace of its own: for example a job without its start."""
    target = new_file(output, force)
    if target == STDOUT:
        raise Problem("a trace is no text for stdout", "name a file with -o", USAGE)
    trace = load(file)
    from cotenant.traces.writer import part, write

    begin = begin if begin >= 0 else max(trace.seconds + begin, 0.0)
    begin_us, end_us = 1e6 * begin, float("inf") if end is None else 1e6 * end
    if not ((trace.operations.time_us >= begin_us) & (trace.operations.time_us < end_us)).any():
        raise Problem(f"nothing of {file} is there", f"it is {trace.seconds:.3f} s long", USAGE)
    kept = part(trace, begin_us, end_us)
    with output_files.replaced(target) as beside:
        write(kept, beside)
    narrate(f"{target}: {len(kept.operations)} operations")


def new_file(output: Path | None, force: bool) -> Path:
    if output is None:
        raise Problem("no file to write given", "add -o FILE", USAGE)
    if output == STDOUT:
        return output
    if output.exists() and not output.is_dir() and not force:
        raise Problem(f"{output} exists", "name another file, or add --force", USAGE)
    output_files.check(output)
    return output


def load(file: Path) -> Trace:
    from cotenant.traces import read

    trace = read(file)
    if trace.damage:
        narrate(f"warning: {file}: {trace.damage}")
    if trace.lost:
        narrate(f"warning: {file}: {trace.lost} operations came too fast for the recorder and are missing")
    return trace


def print_tables(figures: dict[str, Any]) -> None:
    from rich.table import Table

    from cotenant.tenants import breakdown

    facts = figures["facts"]
    parts = breakdown.in_trace(facts)
    about = Table(box=None, pad_edge=False, show_header=False)
    for name, value in (
        ("program", f"{facts.get('program', '?')}, process {facts['pid']}, {facts['recorded']}"),
        *(("gpu", f"{gpu['number']}: {gpu['name']}, {gpu['sms']} SMs") for gpu in figures["gpus"]),
        ("ended", "in order" if figures["complete"] else "was cut off"),
        ("length", f"{figures['seconds']:.3f} s, GPU busy {100 * figures['busy_share']:.1f} %"),
        ("operations", ", ".join(f"{n} {kind}" for kind, n in figures["by_kind"].items() if n) or "none"),
        ("requests", str(figures["requests"])),
        *(("bursts", line) for line in (breakdown.in_words(parts) if parts else ())),
        ("memory", f"{figures['peak_memory_bytes'] / 2**20:.1f} MiB at most"),
    ):
        about.add_row(name, value)
    top = Table(box=None, pad_edge=False)
    for name in ("SHARE", "TOTAL ms", "MEAN us", "COUNT", "SMS"):
        top.add_column(name, justify="right", no_wrap=True)
    for name in ("CLASS", "WHAT"):
        top.add_column(name, no_wrap=True)
    for entry in figures["top"]:
        timed = entry["untimed"] < entry["operations"]
        top.add_row(
            f"{100 * entry['share']:.1f} %" if timed else "?",
            f"{entry['total_us'] / 1000:.2f}" if timed else "?",
            f"{entry['mean_us']:.2f}" if timed else "?",
            str(entry["operations"]),
            str(entry["most_sms"] or ""),
            entry["class"] + (", tensor" if entry["tensor"] else ""),
            entry["name"],
        )
    out = console(width=400)
    out.print(about)
    if figures["top"]:
        out.print()
        out.print(top)
