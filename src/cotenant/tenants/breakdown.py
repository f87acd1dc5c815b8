"""Where the time of a job that passes no gates goes, burst by burst: waiting for the GPU, waiting for itself, running.

The job's own watcher measures it (native/tenant/breakdown.h); all figures are means since the job began.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cotenant import segment

MOST_SLOWER = 1.0

SUMS = ("bursts", "busy_ns", "waits", "waited_ns", "gap_ns")


@dataclass(frozen=True)
class Breakdown:
    burst_us: float
    wait_us: float | None  # for the GPU; None: no lower class was there, or no start was timed yet
    timed_bursts: int  # bursts whose wait for the GPU was timed
    gap_us: float  # its streams were empty inside the burst: the CPU had not launched yet
    run_us: float  # the rest
    slower: (
        float | None
    )  # what an operation takes lately against when no other tenant was at work, 0.1: 10 % more


def of(use: segment.Use) -> Breakdown | None:
    """None: it has had no bursts."""
    known = use.operation_ns and use.operation_alone_ns
    slower = use.operation_ns / use.operation_alone_ns - 1 if known else None
    # Sharing does not do that: these are other operations than those that it ran alone.
    if slower is not None and not -0.5 < slower < MOST_SLOWER:
        slower = None
    return _of_sums(use.figures["bursts"], use.busy_ns, use.waits, use.waited_ns, use.gap_ns, slower)


def in_trace(facts: Mapping[str, str]) -> Breakdown | None:
    """What the recorder wrote of a production job; None: nothing."""
    sums = sums_in_trace(facts)
    if sums is None:
        return None
    bursts, busy_ns, waits, waited_ns, gap_ns = (sums[name] for name in SUMS)
    return _of_sums(bursts, busy_ns, waits, waited_ns, gap_ns, None)


def sums_in_trace(facts: Mapping[str, str]) -> dict[str, int] | None:
    """ "1000 bursts 1800000000 busy_ns ...", of a production job; None: nothing."""
    words = facts.get("breakdown", "").split()
    said = dict(zip(words[1::2], words[::2], strict=False))
    if facts.get("class", "production") != "production":
        return None
    try:
        return {name: int(said[name]) for name in SUMS}
    except (KeyError, ValueError):
        return None


def _of_sums(
    bursts: int, busy_ns: int, waits: int, waited_ns: int, gap_ns: int, slower: float | None
) -> Breakdown | None:
    if not bursts or not busy_ns:
        return None
    burst_us, gap_us = busy_ns / bursts / 1000, gap_ns / bursts / 1000
    wait_us = waited_ns / waits / 1000 if waits else None
    return Breakdown(burst_us, wait_us, waits, gap_us, max(burst_us - gap_us - (wait_us or 0), 0), slower)


def in_words(found: Breakdown, who: str = "it") -> Iterator[str]:
    parts = [f"ran {found.run_us / 1000:.2f} ms", f"waited {found.gap_us / 1000:.2f} ms for its own CPU"]
    if found.wait_us is not None:
        parts.insert(0, f"waited {found.wait_us / 1000:.2f} ms for the GPU")
    yield f"of a burst of {found.burst_us / 1000:.2f} ms {who} {', '.join(parts[:-1])} and {parts[-1]}"
    if found.slower is not None:
        whose = "its" if who == "it" else f"{who}'s"
        more = f"{abs(found.slower):.0%} {'more' if found.slower >= 0 else 'less'}"
        yield f"{whose} operations take {more} GPU time than when no other tenant was at work"
