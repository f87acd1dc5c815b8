"""`cotenant timeline`: what all tenants of a GPU do, moment by moment, in one picture."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cotenant.errors import USAGE, Problem, narrate
from cotenant.options import Number, jobs_argument, segment_option
from cotenant.units import bytes_in

LEAST_RING, MOST_RING = 64 << 10, 64 << 20
ANSWER_SECONDS = 3.0  # an idle tenant looks for requests every half second


def ring_bytes(text: str) -> int:
    size = bytes_in(text)
    if not LEAST_RING <= size <= MOST_RING:
        raise Problem(f"no size of a ring: '{text}'", "give it as 1M, from 64K to 64M", USAGE)
    return size


def out_file(ctx: click.Context, param: click.Parameter, value: Path) -> Path:
    from cotenant import output_files

    output_files.check(value)
    return value.absolute()


output_option = click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    callback=out_file,
    envvar="COTENANT_TIMELINE_OUTPUT",
    help="The file to write, as timeline.json.",
)
ring_option = click.option(
    "--ring",
    "ring",
    type=ring_bytes,
    default="1M",
    show_default=True,
    metavar="SIZE",
    envvar="COTENANT_TIMELINE_RING",
    help="How much each tenant keeps, 40 bytes an interval: the newest.",
)
seconds_option = click.option(
    "--seconds",
    type=Number(0.01),
    envvar="COTENANT_TIMELINE_SECONDS",
    help="End by itself after so long.",
)


@click.group(
    "timeline",
    short_help="Record what all tenants of a GPU do, moment by moment.",
    epilog="""\b
Examples:
  cotenant timeline start serve.py -o timeline.json
  cotenant timeline stop serve.py
  cotenant timeline start serve.py --seconds 10 -o timeline.json
  cotenant run --timeline timeline.json -- python serve.py""",
)
def command() -> None:
    """Record bursts, gates, waits, cuts, copies and evictions of every tenant that uses a GPU of a running job, into
    one picture that ui.perfetto.dev opens. docs/timelines.md says what it shows."""


@command.command(
    "start",
    short_help="Begin to record the tenants of a job's GPUs.",
    epilog="""\b
Examples:
  cotenant timeline start serve.py -o timeline.json
  cotenant timeline start 4711 --seconds 10 -o timeline.json""",
)
@jobs_argument()
@output_option
@ring_option
@seconds_option
@segment_option
def start(
    words: tuple[str, ...], output: Path, ring: int, seconds: float | None, segment_file: Path | None
) -> None:
    """Record all tenants that use a GPU of JOB, in the background, until `cotenant timeline stop JOB`, until JOB has
    ended, or for so many seconds. Then FILE is written."""
    from cotenant import segment
    from cotenant.tenants import jobs
    from cotenant.timeline import recordings

    path = segment.path_to_read(segment_file)
    chosen = jobs.select(words, jobs.read(path))
    options = ["--ring", str(ring), *(["--seconds", str(seconds)] if seconds else [])]
    for job in chosen:
        options += ["--run", recordings.run_of(job.uid, job.id)] if job.id else []
        options += ["--process", f"{job.tenants[0].pid}-{job.tenants[0].started}"] if not job.id else []
    recorder = recordings.start(path, output, *options)
    recordings.wait_for_start(recorder, path, output)
    recordings.wait_for_rings(recorder, ANSWER_SECONDS)
    for tenant in silent(path, {(one.pid, one.started) for job in chosen for one in job.tenants}):
        narrate(f"{tenant.job} ({tenant.pid}) does not answer yet: it is stopped, or runs an older Cotenant")
    named = " ".join(job.name for job in chosen)
    narrate(f"recording {', '.join(map(str, chosen))}; cotenant timeline stop {named} writes {output}")


def silent(path: Path, meant: set[tuple[int, int]]) -> list[Any]:
    """Those that have not begun to note."""
    from cotenant.tenants import jobs

    there = [one for one in jobs.read(path) if (one.pid, one.started) in meant and not one.lane]
    return [one for one in there if not one.timeline]


@command.command(
    "stop",
    short_help="End a recording, and write its picture.",
    epilog="""\b
Examples:
  cotenant timeline stop serve.py
  cotenant timeline stop""",
)
@jobs_argument(required=False)
@segment_option
def stop(words: tuple[str, ...], segment_file: Path | None) -> None:
    """End the recordings of JOB, or all of the segment's, and write their files."""
    from cotenant import segment
    from cotenant.tenants import jobs
    from cotenant.timeline import recordings

    path = segment.path_to_read(segment_file)
    runs = None
    if words:
        chosen = jobs.select(words, jobs.read(path))
        runs = {handle for job in chosen for handle in handles_of(job)}
    found = recordings.going_on(path)
    meant = [(one, file) for one, file in found if runs is None or runs & set(one.runs)]
    if not meant:
        raise Problem("nothing is being recorded", "cotenant timeline start JOB -o timeline.json")
    for one, file in meant:
        narrate(recordings.stop(one, file))


def handles_of(job: Any) -> set[str]:
    from cotenant.timeline.recordings import run_of

    own = {f"{one.pid}-{one.started}" for one in job.tenants}
    return own | ({run_of(job.uid, job.id)} if job.id else set())


@command.command(
    "collect",
    short_help="Record in the foreground, until Ctrl-C.",
    epilog="""\b
Examples:
  cotenant timeline collect -o timeline.json
  cotenant timeline collect --seconds 10 -o timeline.json""",
)
@output_option
@ring_option
@seconds_option
@click.option("--run", "runs", multiple=True, hidden=True, envvar="COTENANT_TIMELINE_RUN")
@click.option("--process", "processes", multiple=True, hidden=True, envvar="COTENANT_TIMELINE_PROCESS")
@click.option("--launcher", type=int, hidden=True, envvar="COTENANT_TIMELINE_LAUNCHER")
@segment_option
def collect(
    output: Path,
    ring: int,
    seconds: float | None,
    runs: tuple[str, ...],
    processes: tuple[str, ...],
    launcher: int | None,
    segment_file: Path | None,
) -> None:
    """Record all tenants of the segment in the foreground, until Ctrl-C or for so many seconds, and write FILE."""
    from cotenant import segment
    from cotenant.timeline import recordings
    from cotenant.timeline.recordings import Recording

    path = segment.path_to_read(segment_file)
    is_over = ends(seconds, launcher)
    meant = {*runs, *processes}

    def is_meant(tenant: segment.Tenant) -> bool:
        handles = {recordings.run_of(tenant.uid, tenant.run_id), f"{tenant.pid}-{tenant.started}"}
        return not meant or bool(handles & meant)

    recording = Recording(os.getpid(), str(path), str(output), (*runs, *processes))
    with recordings.registered(recording) as file:
        if not meant and launcher is None:
            narrate("recording; Ctrl-C ends it" + (f", or {seconds:g} s" if seconds else ""))
        try:
            said = record(path, output, ring, is_meant, is_over, recording, launcher is not None)
        except Problem as problem:
            recordings.say(file, {"said": problem.message, "error": True})
            raise
        recordings.say(file, {"said": said})
    narrate(said)


def ends(seconds: float | None, launcher: int | None) -> Callable[[bool], bool]:
    """Whether the recording is over, asked again and again: told, out of time, or the jobs have ended."""
    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: told.append(number))
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # else it was started under nohup
        signal.signal(signal.SIGHUP, lambda number, _: told.append(number))
    deadline = time.monotonic() + seconds if seconds else None
    try:
        process = os.pidfd_open(launcher) if launcher else None
    except OSError:
        process = None
        launcher = None

    def is_over(are_jobs_there: bool) -> bool:
        is_late = deadline is not None and time.monotonic() >= deadline
        return bool(told) or is_late or (not are_jobs_there and (process is None or has_ended(process)))

    return is_over


def has_ended(process: int) -> bool:
    import select

    return bool(select.select([process], [], [], 0)[0])


def record(
    path: Path,
    output: Path,
    ring: int,
    is_meant: Callable[[Any], bool],
    is_over: Callable[[bool], bool],
    recording: Any,
    from_start: bool,
) -> str:
    """What there is to say about it. `from_start`: of the jobs, also what was before this process began. Raises
    Problem."""
    from cotenant import segment
    from cotenant.timeline import drawing, recordings
    from cotenant.timeline.collecting import LOOK_SECONDS, Collection

    collection = Collection(path, ring)
    said_it_holds = False
    try:
        while True:
            ours = [one for one in collection.look(is_meant).tenants if is_meant(one)]
            if not said_it_holds and all(map(collection.holds, ours)):
                recordings.say_it_holds_rings(recording)
                said_it_holds = True
            if is_over(not recording.runs or bool(ours)):
                break
            time.sleep(LOOK_SECONDS)
        collection.look(is_meant)
        ended_ns = segment.now_ns()
        if not recordings.are_others(recording):
            collection.stop()
        taken = collection.read()
        began = [collection.began_ns]
        if from_start:
            began += [one.begin_ns for tenant, noted in taken if is_meant(tenant) for one in noted.intervals]
        drawing.write(output, taken, min(began), ended_ns, collection.refused, collection.forgotten)
        return drawing.summary(output, taken, collection.refused)
    except segment.BadSegment as error:
        raise Problem(str(error)) from None
    finally:
        collection.close()
