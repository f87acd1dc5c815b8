"""An SM reserve: how many SMs the lower classes' kernels get while they may overlap with a job without a promise.

Only where the job and all lower classes go through one MPS daemon: elsewhere their kernels are not on the GPU at once.

    round    trials of TOLERANT with 1, 0.75 and 0.5 of the SMs, in this order, each twice as far away as the last one
    holds    the first of them that is harmless (5 %),
             else one that slows production down least, where STRICT slows it down clearly more,
             else STRICT, until the next round

Only what a trial showed counts: persistent kernels, graphs and cooperative launches take all SMs whatever the limit is
(native/tenant/detour.h), and STRICT costs more than overlap where each change of turns takes 0.1 to 0.2 ms of a short
request.

Kernels that wait behind a gate have the SMs of when they were launched. So a share is in force before its trial, while
production is still at STRICT, until the windows there are clear again.

Where overlap has fewer SMs, or is the lesser evil, another round begins after a minute at work, later after two, up to
ten, and once production's cost alone or its neighbours have changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cotenant.policies.back_off import BackOff
from cotenant.policies.interface import Met

ALL = 1.0
SHARES = (ALL, 0.75, 0.5)
CLEARLY, CLEAR_PART = 0.02, 0.1  # that slowdowns differ by: points, or a part of the larger one
FIRST_ROUND_US, LONGEST_ROUND_US = 60_000_000, 600_000_000


def is_clearly_less(slowdown: float, other: float) -> bool:
    return slowdown <= other - max(CLEARLY, CLEAR_PART * other)


@dataclass(slots=True)
class Reserve:
    share: float = ALL
    is_in_force: bool = False
    is_lesser_evil: bool = False
    strict: float = 0.0  # the slowdown at STRICT, lately
    failed: dict[float, float] = field(default_factory=dict)  # slowdown by share, in this round
    can_limit: bool = True  # a lower class can be given fewer SMs
    rounds: BackOff = field(default_factory=lambda: BackOff(FIRST_ROUND_US, LONGEST_ROUND_US))

    @property
    def sm_share(self) -> float:
        return self.share if self.is_in_force else ALL

    def next_share(self) -> float | None:
        """None: all have failed."""
        return next(
            (one for one in SHARES if one not in self.failed and (one == ALL or self.can_limit)), None
        )

    def prepare(self, strict: float) -> bool:
        """At STRICT, with its slowdown in clear windows. Whether a trial begins now, or its share must be in force for
        a while before."""
        share, is_ready = self.next_share() or ALL, self.is_in_force
        if not is_ready:
            self.strict = strict
        self.share, self.is_in_force = share, True
        return is_ready or share == ALL

    def fail(self, slowdown: float) -> bool:
        """The share that is in force does harm, and so would a larger one. Returns whether overlap goes on, as the
        lesser evil."""
        for share in SHARES:
            if share > self.share:
                self.failed.setdefault(share, slowdown)
        self.failed[self.share] = slowdown
        self.lift()
        if self.next_share() is not None:
            return False
        failed, self.failed = self.failed, {}
        least = min(failed.values())
        if not is_clearly_less(least, self.strict):
            return False
        self.share = max(share for share, slowdown in failed.items() if slowdown <= least + CLEARLY)
        self.is_in_force = self.is_lesser_evil = True
        return True

    def hold(self, now_us: float) -> None:
        """Overlap goes on with this share."""
        self.failed = {}
        self.rounds.begin(now_us)

    def is_due(self, now_us: float) -> bool:
        """Another round is, as long as overlap is not harmless with all SMs."""
        return (self.sm_share < ALL or self.is_lesser_evil) and not self.rounds.holds(now_us)

    def doubt(self) -> None:
        """What was seen may not be so any more."""
        self.rounds = BackOff(FIRST_ROUND_US, LONGEST_ROUND_US)

    def lift(self) -> None:
        self.is_in_force = self.is_lesser_evil = False

    def recall(self, known: Met, limit: float, now_us: float) -> None:
        self.hold(now_us)
        self.share, self.is_in_force, self.strict = known.sm_share, True, known.strict
        self.is_lesser_evil = known.overlap > limit
