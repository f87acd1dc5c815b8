"""Where the time of a job that passes no gates goes, burst by burst: waiting for the GPU, waiting for itself, running.

The job's own watcher measures it (native/tenant/breakdown.h); all figures are means since the job began.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cotenant import segment


@dataclass(frozen=True)
class Breakdown:
    burst_us: float
    wait_us: float | None  # for the GPU; None: no lower class was there, or no start was timed yet
    waits: int  # bursts whose start was timed
    gap_us: float  # its streams were empty inside the burst: the CPU had not launched yet
    run_us: float  # the rest
    slower: (
        float | None
    )  # what an operation takes lately against when nobody else was at work, 0.1: 10 % more


def of(use: segment.Use) -> Breakdown | None:
    """None: it has had no bursts."""
    bursts = use.figures["bursts"]
    if not bursts or not use.busy_ns:
        return None
    burst_us, gap_us = (ns / bursts / 1000 for ns in (use.busy_ns, use.gap_ns))
    wait_us = use.waited_ns / use.waits / 1000 if use.waits else None
    run_us = max(burst_us - gap_us - (wait_us or 0), 0)
    known = use.operation_ns and use.operation_alone_ns
    slower = use.operation_ns / use.operation_alone_ns - 1 if known else None
    return Breakdown(burst_us, wait_us, use.waits, gap_us, run_us, slower)


def in_words(found: Breakdown) -> Iterator[str]:
    parts = [f"ran {found.run_us / 1000:.2f} ms", f"waited {found.gap_us / 1000:.2f} ms for itself"]
    if found.wait_us is not None:
        parts.insert(0, f"waited {found.wait_us / 1000:.2f} ms for the GPU")
    yield f"of a burst of {found.burst_us / 1000:.2f} ms it {', '.join(parts[:-1])} and {parts[-1]}"
    if found.slower is not None:
        more = f"{abs(found.slower):.0%} {'more' if found.slower >= 0 else 'less'}"
        yield f"its operations take {more} GPU time than when nobody else was at work"
