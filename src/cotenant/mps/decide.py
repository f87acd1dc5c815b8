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
# Below it a job's kernels leave so many SMs free, in the mean over their time, that others' kernels fit beside them.
SMALL = 0.5
# In MPS nothing cuts a kernel, and production waits for the rest of the one that runs: where that would be longer than
# this, in the mean, a lower class takes turns.
LONGEST_REST_US = 1000.0


@dataclass(frozen=True)
class Known:
    """What earlier runs of the job were like."""

    filled: (
        float  # share of its time at work in which it had work on the GPU and did not wait for its own CPU
    )
    harmless: bool | None = None  # whether overlap with others was; None: it never overlapped
    rest_us: float | None = None  # that its kernels had left at a random moment; None: not known


@dataclass(frozen=True)
class Profiled:
    """What `cotenant profile` found of the job on this model of GPU; None: not known."""

    filled: float | None  # as above
    sms: float | None  # share of the SMs that its kernels fill, in the mean over their time
    rest_us: float | None = None  # as above


def decide(
    asked: str,
    tenant_class: TenantClass,
    isolated: bool,
    can_overlap: bool,
    known: Known | None,
    company: bool,
    profile: Profiled | None = None,
) -> tuple[str, str]:
    """`company`: a production job runs in MPS, and could be overlapped with."""
    if isolated:
        return TURNS, "--isolate keeps it out of MPS"
    if asked != AUTO:
        return asked, f"--share {asked} was asked for"
    if not can_overlap:
        return TURNS, "there is no MPS control program here"
    if known and known.harmless is False:
        return TURNS, "in an earlier run its overlap slowed production down"
    if known and known.harmless:
        return SPATIAL, "in an earlier run its overlap was harmless"
    is_below = tenant_class is not TenantClass.production
    rest_us, when = known.rest_us if known else None, "in its last run"
    if rest_us is None and profile:
        rest_us, when = profile.rest_us, "by its profile"
    if is_below and rest_us is not None and rest_us > LONGEST_REST_US:
        return TURNS, f"{when} its kernels had {rest_us / 1000:.1f} ms left in the mean; MPS cuts none"
    if known and known.filled < LIGHT:
        return (
            SPATIAL,
            f"in its last run it waited for its own CPU {1 - known.filled:.0%} of its time at work",
        )
    if profile and profile.sms is not None and profile.sms < SMALL:
        return SPATIAL, f"by its profile its kernels fill {profile.sms:.0%} of the SMs"
    if profile and not known and profile.filled is not None and profile.filled < LIGHT:
        return (
            SPATIAL,
            f"by its profile it waits for its own CPU {1 - profile.filled:.0%} of its time at work",
        )
    if company and is_below and rest_us is not None:
        return SPATIAL, "a production job runs in MPS, and leaves the GPU idle in between"
    if company and is_below:
        return TURNS, "how long its kernels are is not known, and MPS cuts none"
    if known:
        return TURNS, f"in its last run it kept the GPU at work for {known.filled:.0%} of its time at work"
    if profile and profile.sms is not None:
        return TURNS, f"by its profile its kernels fill {profile.sms:.0%} of the SMs"
    return TURNS, "nothing is known of an earlier run"
