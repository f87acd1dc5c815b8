"""Whether a job takes turns or overlaps: decided once, at its start, as a process cannot change over while it runs.

Pure, and the only place where it is decided. `run` gathers what is known, and `explain` tells the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cotenant import units
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
# What the kernels of such a job get of the SMs where it shall overlap all the same. They are often persistent, with a
# block for each SM, and a limit that can change later does not hold for those (native/tenant/detour.h). MPS sets this
# one at the job's start, for good.
SMS_OF_LONG_KERNELS = "80%"


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


class Decision(NamedTuple):
    share: str
    reason: str
    sms: str | None = None  # the share of them that was chosen for it; None: what it has asked for, else all


def decide(
    asked: str,
    tenant_class: TenantClass,
    isolated: bool,
    can_overlap: bool,
    known: Known | None,
    company: bool,
    profile: Profiled | None = None,
    sms: str | None = None,
) -> Decision:
    """`company`: a production job runs in MPS, and could be overlapped with. `sms`: the share of them that the job has
    asked for; None: nothing was said."""
    if isolated:
        return Decision(TURNS, "--isolate keeps it out of MPS")
    is_below = tenant_class is not TenantClass.production
    rest_us, when = known.rest_us if known else None, "in its last run"
    if rest_us is None and profile:
        rest_us, when = profile.rest_us, "by its profile"
    is_long = is_below and rest_us is not None and rest_us > LONGEST_REST_US
    rest = f"{when} its kernels had {(rest_us or 0) / 1000:.1f} ms left in the mean"
    if asked == SPATIAL and is_long and sms is None:
        held = f"{rest}; MPS cuts none, so they get {SMS_OF_LONG_KERNELS} of the SMs"
        return Decision(SPATIAL, f"--share {asked} was asked for, and {held}", SMS_OF_LONG_KERNELS)
    if asked != AUTO:
        return Decision(asked, f"--share {asked} was asked for")
    if not can_overlap:
        return Decision(TURNS, "there is no MPS control program here")
    if known and known.harmless is False:
        return Decision(TURNS, "in an earlier run its overlap slowed production down")
    if known and known.harmless:
        return Decision(SPATIAL, "in an earlier run its overlap was harmless")
    if is_long and company and leaves_enough(sms):
        return Decision(SPATIAL, f"{rest}; with {sms} of the SMs it leaves the others to production in MPS")
    if is_long:
        return Decision(TURNS, f"{rest}; MPS cuts none")
    if known and known.filled < LIGHT:
        return Decision(
            SPATIAL,
            f"in its last run it waited for its own CPU {1 - known.filled:.0%} of its time at work",
        )
    if profile and profile.sms is not None and profile.sms < SMALL:
        return Decision(SPATIAL, f"by its profile its kernels fill {profile.sms:.0%} of the SMs")
    if profile and not known and profile.filled is not None and profile.filled < LIGHT:
        return Decision(
            SPATIAL,
            f"by its profile it waits for its own CPU {1 - profile.filled:.0%} of its time at work",
        )
    if company and is_below and rest_us is not None:
        return Decision(SPATIAL, "a production job runs in MPS, and leaves the GPU idle in between")
    if company and is_below:
        return Decision(TURNS, "how long its kernels are is not known, and MPS cuts none")
    if known:
        return Decision(
            TURNS, f"in its last run it kept the GPU at work for {known.filled:.0%} of its time at work"
        )
    if profile and profile.sms is not None:
        return Decision(TURNS, f"by its profile its kernels fill {profile.sms:.0%} of the SMs")
    return Decision(TURNS, "nothing is known of an earlier run")


def leaves_enough(sms: str | None) -> bool:
    """For production's kernels, beside long ones."""
    share, most = (units.thousandths(text) for text in (sms or "", SMS_OF_LONG_KERNELS))
    return share is not None and most is not None and share <= most
