"""`cotenant profile`: runs a command, finds what its kernels are like, and keeps it for later runs.

The online source is the recorder of `cotenant record`; Nsight Compute runs the command by itself, without Cotenant.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cotenant import classes, output_files
from cotenant.errors import USAGE, Problem, narrate, unknown
from cotenant.launch import environment, execute, job_name
from cotenant.options import OneOf, gpu_option, output_option, segment_option
from cotenant.terminal import Stdout, say

if TYPE_CHECKING:
    from cotenant.profile.online import Found
    from cotenant.traces import Trace

SOURCES = ("online", "ncu", "both")
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
DEFAULT = "run"


class WithDefault(click.Group):
    """What is no subcommand is a command to run."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


@click.group(
    "profile",
    cls=WithDefault,
    short_help="Run a command and find what its kernels are like.",
    subcommand_metavar="[options] [--] COMMAND... | show | add",
    epilog="""\b
Examples:
  cotenant profile -- python model.py
  cotenant profile --source both -- python model.py
  cotenant profile show
  cotenant profile show --plot roofline.png""",
)
def command() -> None:
    """Run COMMAND and find for each of its kernels the time, the SMs that it fills, its throughput and its class.

    It is kept per model of GPU in the user's cache, and merged over runs. Nothing needs a profile; with one,
    `run --share auto` decides well at a job's first start, and `mig plan` knows what a job needs.
    """


@command.command(
    DEFAULT,
    short_help="Run a command and find what its kernels are like; the word `run` can be left out.",
    context_settings={"allow_interspersed_args": False},
    epilog="""\b
Examples:
  cotenant profile -- python model.py
  cotenant profile --source ncu -- python model.py
  cotenant profile --trace job.trace -- python model.py""",
)
@click.option(
    "--source",
    type=OneOf("source", SOURCES),
    default=SOURCES[0],
    show_default=True,
    envvar="COTENANT_PROFILE_SOURCE",
    help="online: times, SMs and estimates, while the command runs as always. ncu: Nsight Compute replays one launch"
    " of each kernel and measures; slow. both: one after the other, so the command runs twice.",
)
@click.option(
    "--name",
    metavar="NAME",
    envvar="COTENANT_NAME",
    help="What the job is called, as for `run`.  [default: its script or program]",
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar="COTENANT_PROFILE_TRACE",
    help="Write the trace too, with the profile's columns, for `simulate` and `trace`.",
)
@gpu_option
@segment_option
@click.argument("words", metavar="[--] COMMAND...", nargs=-1, type=click.UNPROCESSED)
def run(
    source: str,
    name: str | None,
    trace: Path | None,
    gpu: str | None,
    segment_file: Path | None,
    words: tuple[str, ...],
) -> int:
    """Run COMMAND, and keep what its kernels are like. Its exit status is that of COMMAND.

    Where COMMAND ends well and nothing can be kept it is 1.
    """
    if not words:
        raise Problem("no command given", "cotenant profile [options] [--] command...", USAGE)
    if trace is not None:
        if source == "ncu":
            raise Problem("--trace needs the online source", "leave out --source ncu, or take both", USAGE)
        if trace.exists() and not trace.is_dir():
            raise Problem(f"{trace} exists", "name another file", USAGE)
        output_files.check(trace)
    job = job_name.checked(name) if name else job_name.of_command(words)
    before = execute.inherited()
    program = execute.find_program(words[0], before)
    measuring = ""
    if source != "online":
        from cotenant.profile import ncu

        measuring = ncu.required(before)
    from cotenant.profile import store

    store.check_place(before)
    status = 0
    if source != "ncu":
        status = online(before, program, words, job, gpu, segment_file, trace)
    if measuring and not status:
        status = with_counters(before, measuring, words, gpu)
    return status


def online(
    before: Mapping[str, str],
    program: str,
    words: Sequence[str],
    job: str,
    gpu: str | None,
    segment_file: Path | None,
    trace: Path | None,
) -> int:
    try:
        after = environment.of_command(
            before, classes.TenantClass.production.name, segment_file, job, program=program
        )
    except environment.NotShared as reason:
        raise Problem(f"nothing can be profiled: {reason.message}", reason.hint) from None
    if gpu:
        environment.show_gpus(after, gpu)
    for setting in ("COTENANT_RECORD_SECONDS", "COTENANT_RECORD_LIMIT"):
        after.pop(setting, None)
    with tempfile.TemporaryDirectory(prefix="cotenant-profile-") as folder:
        after["COTENANT_RECORD"] = os.path.join(folder, "job")
        status = wait_for(program, words, after)
        traces = [one for file in sorted(Path(folder).iterdir()) if (one := read(file))]
        from cotenant.profile.online import of_run

        found = of_run(traces)
        if found is None:
            narrate("cotenant: nothing was profiled: the command put no work on a GPU")
            return status
        # The trace has columns of the profile, and is written where there is none, too.
        kept = afterwards(lambda: keep(before, job, found))
        written = 0 if trace is None else afterwards(lambda: write_trace(before, traces, trace))
    return status or kept or written


def afterwards(work: Callable[[], object]) -> int:
    """The command has run: what goes wrong now is told, and its own status counts before ours."""
    from cotenant.cli import report

    try:
        work()
    except Problem as problem:
        return report(problem.message, problem.hint, problem.status)
    return 0


def read(file: Path) -> Trace | None:
    from cotenant.traces import read as read_trace

    try:
        return read_trace(file)
    except Problem as problem:
        narrate(f"warning: {problem.message}")
        return None


def keep(before: Mapping[str, str], job: str, found: Found) -> None:
    from cotenant.profile import store, tables

    store.add(before, found.gpu, found.kernels)
    store.add_job(before, job, found.gpu.name, found.job)
    time_by_class = tables.in_words(found.job.classes, found.job.tensor)
    narrate(f"cotenant: {job} on {found.gpu.name}: {tables.about(found.job)}; {time_by_class}")
    narrate("cotenant: `cotenant profile show` lists the kernels")


def write_trace(before: Mapping[str, str], traces: Sequence[Trace], target: Path) -> None:
    """Of the process with the most operations, with what is known of its kernels."""
    from cotenant.profile.online import annotated
    from cotenant.traces.writer import write

    most = max(traces, key=lambda one: len(one.operations))
    with output_files.replaced(target) as beside:
        write(annotated(most, before), beside)
    narrate(f"{target}: {len(most.operations)} operations")


def with_counters(before: Mapping[str, str], measuring: str, words: Sequence[str], gpu: str | None) -> int:
    """The command under Nsight Compute, without Cotenant."""
    from cotenant.profile import hardware, ncu, store
    from cotenant.profile.online import today

    plain = environment.of_no_tenant(before)
    if (shown := hardware.visible(plain, gpu)) is not None:
        plain["CUDA_VISIBLE_DEVICES"] = shown
    model = hardware.model(plain, shown)
    with tempfile.TemporaryDirectory(prefix="cotenant-profile-") as folder:
        log = Path(folder) / "ncu.csv"
        status = wait_for(measuring, ncu.command(measuring, log, words), plain)
        try:
            said = log.read_text(errors="replace")
        except OSError:
            said = ""
        found = ncu.kernels_in(said, model.sms, today())
    if failed := afterwards(lambda: store.add(before, model, found)):
        return status or failed
    narrate(f"cotenant: Nsight Compute measured {len(found)} kernels on {model.name}")
    narrate("cotenant: `cotenant profile show` lists the kernels")
    return status


def wait_for(program: str, words: Sequence[str], child_environment: Mapping[str, str]) -> int:
    """Runs it as a child with our terminal; its status, as a shell tells it."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    child = os.fork()
    if not child:
        try:
            execute.become(program, words, child_environment)
        except Problem as problem:
            narrate(f"error: {problem.message}")
            os._exit(problem.status)
        except BaseException:
            os._exit(1)
    # The terminal's signals reach the child by themselves.
    kept = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}
    for number in FORWARDED:
        kept[number] = signal.signal(number, lambda number, _frame: os.kill(child, number))
    try:
        _, status = os.waitpid(child, 0)
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


@command.command(
    "show",
    short_help="Show the kernels that took the most time, and their classes.",
    epilog="""\b
Examples:
  cotenant profile show
  cotenant profile show --gpu H200 --top 30
  cotenant profile show -o csv > kernels.csv
  cotenant profile show --plot roofline.svg""",
)
@click.option(
    "--gpu",
    "model",
    metavar="MODEL",
    envvar="COTENANT_PROFILE_GPU",
    help="A part of the GPU's name.  [default: all]",
)
@click.option(
    "--top",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    envvar="COTENANT_PROFILE_TOP",
    help="How many kernels to list.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar="COTENANT_PROFILE_PLOT",
    help="Draw a roofline and how much of the GPU kernels fill: a .png, .svg or .pdf. Needs cotenant[demo].",
)
@output_option("profile", ("table", "json", "csv"))
def show(model: str | None, top: int, plot: Path | None, output: str) -> None:
    """Show what is kept of kernels and jobs, for each model of GPU."""
    from cotenant.profile import store, tables

    if plot is not None:
        check_plot(plot)
    found = store.profiles(os.environ)
    if not found:
        raise Problem("there is no profile", "`cotenant profile -- command...` makes one")
    chosen = [one for one in found if not model or model.casefold() in one.gpu.name.casefold()]
    if not chosen:
        raise unknown("GPU", str(model), [one.gpu.name for one in found])
    if plot is not None and len(chosen) > 1:
        raise Problem("there are profiles of several GPUs", "choose one with --gpu", USAGE)
    known = {name: store.job(os.environ, name) for name in store.job_names(os.environ)}
    if output == "json":
        import json

        say(json.dumps(tables.as_json(chosen, known, top), indent=2))
    elif output == "csv":
        tables.write_csv(chosen, top, Stdout())
    else:
        for number, one in enumerate(chosen):
            if number:
                say()
            tables.print_profile(one, top)
        print_jobs(known, {one.gpu.name for one in chosen})
    if plot is not None:
        from cotenant.profile.roofline import draw

        with output_files.replaced(plot) as beside:
            draw(chosen[0], beside)
        narrate(f"{plot}: {len(chosen[0].kernels)} kernels")


def print_jobs(known: Mapping[str, Mapping[str, Any]], models: set[str]) -> None:
    from cotenant.profile import tables

    lines = [
        f"  {name} on {gpu}: {tables.about(job)}"
        for name, by_gpu in known.items()
        for gpu, job in by_gpu.items()
        if gpu in models
    ]
    if lines:
        say("\njobs:\n" + "\n".join(lines))


def check_plot(plot: Path) -> None:
    from cotenant.profile.roofline import FORMATS
    from cotenant.simulator.pictures import require_matplotlib

    require_matplotlib()
    if plot.suffix not in FORMATS:
        raise Problem(f"no picture can be '{plot.name}'", f"its ending is one of {', '.join(FORMATS)}", USAGE)
    output_files.check(plot)


@command.command(
    "add",
    short_help="Add what recorded traces show.",
    epilog="""\b
Examples:
  cotenant profile add job.trace
  cotenant profile add --name serve.py serve.trace""",
)
@click.option(
    "--name",
    metavar="NAME",
    envvar="COTENANT_NAME",
    help="The job whose traces these are.  [default: only kernels are added]",
)
@click.argument("files", metavar="TRACE...", nargs=-1, required=True, type=click.Path(path_type=Path))
def add(name: str | None, files: tuple[Path, ...]) -> None:
    """Add the kernels of traces that `cotenant record` has written; several are the processes of one run."""
    from cotenant.profile import store
    from cotenant.profile.online import of_run
    from cotenant.traces import read as read_trace

    job = job_name.checked(name) if name else None
    found = of_run([read_trace(file) for file in files])
    if found is None:
        raise Problem("these traces have no work of a GPU", "record a program that uses one", USAGE)
    if job:
        keep(os.environ, job, found)
        return
    path = store.add(os.environ, found.gpu, found.kernels)
    narrate(f"{path}: {len(found.kernels)} kernels of {found.gpu.name}")
