"""`cotenant pause`: evicts a tenant until it is resumed."""

from __future__ import annotations

from pathlib import Path

import click

from cotenant.cli import segment_option
from cotenant.errors import narrate


@click.command(
    "pause",
    short_help="Evict a tenant's GPU memory to the host until it is resumed.",
    epilog="""\b
Examples:
  cotenant pause 4711
  cotenant pause $(pgrep -f finetune.py) && nvidia-smi""",
)
@click.argument("pid", type=int)
@segment_option
def command(pid: int, segment_file: Path | None) -> None:
    """Pause the tenant with process number PID: the work that it has queued on the GPU ends, its memory is evicted to
    the host, and its next launch waits. After `cotenant resume PID` it runs on where it was.

    Its memory must be able to move, which is settled when it starts: that of tenants started as opportunistic can,
    that of other tenants only with `cotenant run --oversubscribe`. Memory that cannot move stays on the GPU;
    `cotenant explain PID` shows how much.
    """
    from cotenant import segment, units
    from cotenant.tenants import pausing

    path = segment.path_to_read(segment_file)
    tenant = pausing.pause(path, pid)
    stuck = pausing.could_still_go(tenant)
    left = sum(use.memory_bytes for use in tenant.uses) - stuck
    stays = f"; {units.size_shown(left)} that cannot move stay on the GPU" if left else ""
    if stuck:
        why = tenant.refusal.text if tenant.refusal else "it refused"
        stays += f"; {units.size_shown(stuck)} are not evicted yet: {why}; the tenant tries again"
    narrate(f"{pid} ({tenant.program}) is paused: {units.size_shown(tenant.host_bytes)} on the host{stays}")
