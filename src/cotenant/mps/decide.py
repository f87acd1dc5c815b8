"""Whether a job takes turns or overlaps: decided once, at its start, as a process cannot change over while it runs.

Pure, and the only place where it is decided. `run` gathers what is known, and `explain` tells the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from cotenant.classes import TenantClass

TURNS, SPATIAL, AUTO = "turns", "spatial", "auto"
CHOICES = (AUTO, TURNS, SPATIAL)
# Below it a job leaves most of the GPU's time to others, and strict turns would waste it.
LIGHT = 0.5


@dataclass(frozen=True)
class Known:
    """What the last run of the job was like."""

    busy: float  # share of its time in which it had work on the GPU
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
    if known and known.busy < LIGHT:
        return SPATIAL, f"in its last run it had work on the GPU {known.busy:.0%} of the time"
    if company and tenant_class is not TenantClass.production:
        return SPATIAL, "a production job that leaves the GPU time runs in MPS"
    if known:
        return TURNS, f"in its last run it had work on the GPU {known.busy:.0%} of the time, which fills it"
    return TURNS, "nothing is known of an earlier run"
