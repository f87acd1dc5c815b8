"""An SM reserve: how many SMs the lower classes' kernels get while they may overlap with production.

Only where the job and all lower classes go through one MPS daemon: elsewhere their kernels are not on the GPU at once.

Without a promise:

    round    trials of TOLERANT with 1, 0.75 and 0.5 of the SMs, in this order, one directly after the other
    holds    the first of them that is harmless (5 %),
             else one that slows production down least, where STRICT slows it down clearly more,
             else STRICT, until the next round: the more trials have failed, the later

Only what a trial showed counts: persistent kernels, graphs and cooperative launches take all SMs whatever the limit is
(native/tenant/detour.h), and STRICT costs more than overlap where each change of turns takes 0.1 to 0.2 ms of a short
request.

Kernels that wait behind a gate have the SMs of when they were launched. So a share is in force before its trial, while
production is still at STRICT, for a window.

With a promise (promise.py) overlap costs its `extra` with each share, learned while that share is in force:

    p(share)     = the position with this extra
    work(share)  = share * (idle * min(p, 1) + busy * max(p - 1, 0))     idle, busy: shares of production's time
    in force     the share of the most work, among those that were seen;
                 before that, all that could do clearly more were tried: p is at most that of any smaller share, and
                 where STRICT alone breaks the promise, that of STRICT

Where overlap has fewer SMs, or is the lesser evil, another round begins after a minute at work, later after two, up to
ten, and once production's cost alone or its neighbours have changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cotenant.policies.back_off import BackOff
from cotenant.policies.guard.cost import Alone
from cotenant.policies.guard.position import STRICT, TOLERANT
from cotenant.policies.guard.promise import Effect, Promise
from cotenant.policies.interface import Met

ALL = 1.0
SHARES = (ALL, 0.75, 0.5)
CLEARLY, CLEAR_PART = 0.02, 0.1  # that slowdowns differ by: points, or a part of the larger one
FIRST_ROUND_US, LONGEST_ROUND_US = 60_000_000, 600_000_000
SETTLING_US = 200_000  # until what was launched with another share has run
MORE = 1.05  # times the work that is clearly more


def is_clearly_less(slowdown: float, other: float) -> bool:
    return slowdown <= other - max(CLEARLY, CLEAR_PART * other)


def work(share: float, position: float, busy: float) -> float:
    """Of the lower classes, at most as much as with all SMs and nobody beside them."""
    return share * ((1 - busy) * min(position, STRICT) + busy * max(position - STRICT, 0.0))


def is_known(extra: Effect, spread: float, aim: float) -> bool:
    """Well enough to choose by: to a quarter of itself, or of what may be."""
    return extra.windows > 0 and spread / math.sqrt(extra.windows) <= max(extra.slope, aim) / 4


def best_share(
    work: Callable[[float, float], float],
    known: Mapping[float, float],
    shares: Sequence[float] = SHARES,
    highest: float = TOLERANT,
) -> float:
    """`known`: positions by share. One of them, or another of `shares` that may bring more; `highest`: the position
    where overlap adds nothing."""
    best = max(known, key=lambda share: (work(share, known[share]), share))
    for share in shares:
        most = min((known[one] for one in known if one < share), default=highest)
        if share not in known and work(share, most) > MORE * work(best, known[best]):
            return share
    return best


@dataclass(slots=True)
class Reserve:
    share: float = ALL
    is_in_force: bool = False
    is_lesser_evil: bool = False
    strict: float = 0.0  # the slowdown at STRICT, lately
    failed: dict[float, float] = field(default_factory=dict)  # slowdown by share, in this round
    can_limit: bool = True  # a lower class can be given fewer SMs
    rounds: BackOff = field(default_factory=lambda: BackOff(FIRST_ROUND_US, LONGEST_ROUND_US))
    # With a promise.
    effects: dict[float, Effect] = field(
        default_factory=dict
    )  # what overlap adds with the shares not in force
    is_round: bool = False  # other shares are tried
    settled_us: float = 0.0

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
        self.effects = {}
        self.rounds = BackOff(FIRST_ROUND_US, LONGEST_ROUND_US)

    def lift(self) -> None:
        self.is_in_force = self.is_lesser_evil = False

    # ---- with a promise ----

    def fit(self, promise: Promise, alone: Alone, busy: float, now_us: float, at_work_us: float) -> bool:
        """Puts a share in force, and with it what is known of it. Returns whether it is another. `busy`: share of its
        time that production is; `at_work_us`: the clock of rounds."""
        if not self.is_round and not self.rounds.holds(at_work_us):
            # What was seen of the other shares may not be so any more.
            self.is_round, self.effects = True, {}
        seen = self.effects | {self.share: promise.extra}
        known = {
            share: promise.target(TOLERANT, with_extra=effect)
            for share, effect in seen.items()
            if is_known(effect, alone.spread, promise.aim)
        }
        if not known or not self.can_limit or (self.is_round and self.share not in known):
            return False
        # Also where overlap was harmless with the only share that is known, and is not any more.
        self.is_round |= [*known] == [self.share] and known[self.share] < TOLERANT
        untried = SHARES if self.is_round else ()
        highest = promise.target(TOLERANT, with_extra=Effect())
        share = best_share(lambda one, position: work(one, position, busy), known, untried, highest)
        if self.is_round and share in known:
            self.is_round = False
            self.rounds.begin(at_work_us)
        if share == self.share:
            return False
        self.take(share, promise)
        self.settled_us = now_us + SETTLING_US
        return True

    def take(self, share: float, promise: Promise) -> None:
        self.effects[self.share] = promise.extra
        self.share, self.is_in_force = share, True
        promise.extra = self.effects.pop(share, Effect())
        promise.position = min(promise.position, STRICT)

    def recall(self, known: Met, limit: float, now_us: float) -> None:
        self.hold(now_us)
        self.share, self.is_in_force, self.strict = known.sm_share, True, known.strict
        self.is_lesser_evil = known.overlap > limit
