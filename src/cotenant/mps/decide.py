"""Whether a job takes turns or overlaps: decided once, at its start, as a process cannot change over while it runs.

Pure, and the only place where it is decided. `run` gathers what is known, and `explain` tells the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from cotenant.classes import TenantClass

TURNS, SPATIAL, AUTO = "turns", "spatial", "auto"
CHOICES = (AUTO, TURNS, SPATIAL)
# Below it a job waits for its own CPU for most of its time at work, and turns would waste that time. A job that is
# often idle is not light by that: turns give its pauses away too, and it may fill the GPU when it works.
LIGHT = 0.5


@dataclass(frozen=True)
class Known:
    """What the last run of the job was like."""

    filled: (
        float  # share of its time at work in which it had work on the GPU and did not wait for its own CPU
    )
    harmless: bool | None = None  # whether overlap with others was; None: it never overlapped


def decide(
    asked: str,
    tenant_class: TenantClass,
    isolated: bool,
    can_overlap: bool,
    known: Known | None,
    company: bool,
) -> tuple[str, str]:
    """`company`: a production job runs in MPS, and could be overlapped with."""
    if isolated:
        return TURNS, "--isolate keeps it out of MPS"
    if asked != AUTO:
        return asked, f"--share {asked} was asked for"
    if not can_overlap:
        return TURNS, "there is no MPS control program here"
    if known and known.harmless is False:
        return TURNS, "in its last run overlap hurt a production job"
    if known and known.harmless:
        return SPATIAL, "in its last run overlap was harmless"
    if known and known.filled < LIGHT:
        return (
            SPATIAL,
            f"in its last run it waited for its own CPU {1 - known.filled:.0%} of its time at work",
        )
    if company and tenant_class is not TenantClass.production:
        return SPATIAL, "a production job runs in MPS, and leaves the GPU idle in between"
    if known:
        return TURNS, f"in its last run it kept the GPU at work for {known.filled:.0%} of its time at work"
    return TURNS, "nothing is known of an earlier run"
