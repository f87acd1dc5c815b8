"""`cotenant pause`: evicts jobs until they are resumed."""

from __future__ import annotations

from pathlib import Path

import click

from cotenant.errors import narrate
from cotenant.options import jobs_argument, segment_option


@click.command(
    "pause",
    short_help="Evict a job's GPU memory to the host until it is resumed.",
    epilog="""\b
Examples:
  cotenant pause finetune.py && nvidia-smi
  cotenant pause 4711""",
)
@jobs_argument()
@segment_option
def command(words: tuple[str, ...], segment_file: Path | None) -> None:
    """Pause all processes of JOB: the work that they have queued on the GPU ends, their memory is evicted to the host,
    and their next launch waits. After `cotenant resume JOB` they run on where they were. If one refuses, none is
    paused. JOB is a job's name, its id or the beginning of that, or a PID of one of its processes or of its launcher.

    Its memory must be able to move, which is settled when it starts: that of jobs started as opportunistic can, that
    of other jobs only with `cotenant run --oversubscribe`. Memory that cannot move stays on the GPU;
    `cotenant explain JOB` shows how much.
    """
    from cotenant import segment, units
    from cotenant.tenants import jobs, pausing

    path = segment.path_to_read(segment_file)
    pids = [pid for job in jobs.select(words, jobs.read(path)) for pid in job.pids]
    for tenant in pausing.pause_all(path, pids):
        stuck = pausing.could_still_go(tenant)
        left = sum(use.memory_bytes for use in tenant.uses) - stuck
        stays = f"; {units.size_shown(left)} that cannot move stay on the GPU" if left else ""
        if stuck:
            why = tenant.refusal.text if tenant.refusal else "it refused"
            stays += f"; {units.size_shown(stuck)} are not evicted yet: {why}; the tenant tries again"
        on_host = units.size_shown(tenant.host_bytes)
        narrate(f"{tenant.job} ({tenant.pid}) is paused: {on_host} on the host{stays}")
