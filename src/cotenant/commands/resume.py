"""`cotenant resume`: restores paused jobs."""

from __future__ import annotations

from pathlib import Path

import click

from cotenant.errors import narrate
from cotenant.options import Number, jobs_argument, segment_option


@click.command(
    "resume",
    short_help="Restore a paused job's GPU memory, and let it run on.",
    epilog="""\b
Examples:
  cotenant resume finetune.py
  cotenant resume 4711 --wait 60""",
)
@jobs_argument()
@click.option(
    "--wait",
    "wait_seconds",
    type=Number(min=0),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    envvar="COTENANT_RESUME_WAIT",
    help="How long to wait until its memory is restored.",
)
@segment_option
def command(words: tuple[str, ...], wait_seconds: float, segment_file: Path | None) -> None:
    """Resume all processes of JOB: the memory of each is restored at the same addresses as soon as there is space for
    all of it, and then its threads run on. JOB is a job's name, its id or the beginning of that, or a PID of one of its
    processes or of its launcher.
    """
    from cotenant import figures, segment, units
    from cotenant.tenants import jobs, pausing

    path = segment.path_to_read(segment_file)
    pids = [pid for job in jobs.select(words, jobs.read(path)) for pid in job.pids]
    for tenant in pausing.resume_all(path, pids, wait_seconds):
        if tenant.where == segment.Where.resident:
            narrate(f"{tenant.job} ({tenant.pid}) runs on")
        elif figures.evicted_for(tenant) is figures.EvictedFor.limit:
            limit = units.limit_shown(tenant.memory_limit)
            narrate(
                f"{tenant.job} ({tenant.pid}) has more memory than its limit {limit}: it is restored when it frees"
                f" some, or under a higher limit: cotenant ctl {tenant.pid} --memory"
            )
        else:
            need = units.size_shown(tenant.host_bytes)
            narrate(f"{tenant.job} ({tenant.pid}) is restored when {need} of the GPU's memory are free")
