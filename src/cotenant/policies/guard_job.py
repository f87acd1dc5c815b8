"""One production job under guard: what was promised to it, where its lever stands, and the rules that move it.

With the mean m of the slowdowns since the last move, its doubt (guard_cost.py) and the promise P:

    m - doubt > 0.9 * P      position -= FALL * (m - 0.9 P) / P, at least a step and at most half a level
    m + doubt < 0.7 * P      position += a step or two
    else, after 16 windows   the same by m alone

Where it was too much is not tried again for a while: 5 s, and twice as long each time it proves so again.

A job without a stated promise stands at STRICT, so every pause of it is given away, or at TOLERANT where company is
harmless. It is tried there when its slowdown at STRICT is under HARMLESS, and no sooner than after a minute at work
beside others. Company then has a few windows to prove harmless, and where two bursts are slowed down grossly that is
the end of it; the next try is twice as far away. A job so noisy that a few windows could prove nothing is not tried at
all. It is never in between: a mean that looks harmless may be a few requests that are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from cotenant.policies.back_off import BackOff
from cotenant.policies.guard_cost import MOST_WINDOWS, Alone, Meter, Window
from cotenant.policies.guard_position import SHUT, STEPS, STRICT, TOLERANT, in_words
from cotenant.policies.interface import Tenant

ACTIVE_US = 2_000_000  # a job that has launched nothing for so long is not looked after

ROOM, AIM = 0.7, 0.9  # of the promise; between the two nothing is moved
FALL, LARGEST_FALL = 4, STEPS // 2  # steps for each promise that it is over
FIRST_BACK_OFF_US, LONGEST_BACK_OFF_US = 5_000_000, 60_000_000

HARMLESS = 0.02
REMARKABLE = 0.05  # a slowdown that is worth a word where nothing was promised
TRIAL_WINDOWS, TRIAL_BURSTS = 4, 2
GROSS = 0.1
FIRST_TRY_US, LONGEST_TRY_BACK_OFF_US = 60_000_000, 600_000_000


@dataclass(slots=True)
class Job:
    promise: float | None  # None: nothing was stated
    meter: Meter
    say: Callable[[str], None]
    operations: int
    active_us: float  # when it last launched something
    position: int = STRICT
    # With a promise: over the ceiling it was too much. The first time at the top counts as the second.
    ceiling: int = TOLERANT
    ceiling_back_off: BackOff = field(
        default_factory=lambda: BackOff(2 * FIRST_BACK_OFF_US, LONGEST_BACK_OFF_US)
    )
    # Without a promise.
    shared_us: float = 0.0  # at work while those below wanted to be: the clock of its tries
    try_back_off: BackOff = field(
        default_factory=lambda: BackOff(FIRST_TRY_US, LONGEST_TRY_BACK_OFF_US, FIRST_TRY_US)
    )
    is_on_trial: bool = False

    @classmethod
    def of(cls, tenant: Tenant, now_us: float, say: Callable[[str], None]) -> Job:
        active_us = now_us if tenant.has_work else -math.inf
        return cls(tenant.slowdown, Meter(Window(now_us, tenant), say), say, tenant.operations, active_us)

    @property
    def alone(self) -> Alone | None:
        return self.meter.alone

    @property
    def standing(self) -> str:
        stated = (
            "Its promise is being looked after"
            if self.promise
            else "No slowdown was stated for it (--slowdown)"
        )
        return f"{stated}: {in_words(self.position)}."

    def see(self, tenant: Tenant, now_us: float) -> None:
        if self.promise != tenant.slowdown:
            self.promise, self.ceiling = tenant.slowdown, TOLERANT
            self.return_to_strict()
        if tenant.operations > self.operations:
            self.active_us = now_us
        self.operations = tenant.operations

    def is_at_work(self, now_us: float) -> bool:
        return now_us - self.active_us < ACTIVE_US

    def needs_calibration(self, now_us: float) -> bool:
        # Strict without a promise: nothing is judged before the next try.
        is_judged = (
            self.promise is not None or self.position != STRICT or not self.try_back_off.holds(self.shared_us)
        )
        limit = self.promise or REMARKABLE
        return is_judged and self.is_at_work(now_us) and self.meter.is_calibration_due(now_us, limit)

    def return_to_strict(self) -> None:
        self.position, self.meter.slowdowns, self.is_on_trial = STRICT, [], False

    def move(self, now_us: float, highest: int) -> None:
        """With another slowdown: moves, to no more than `highest`, or waits for more of them."""
        slowdowns, before = self.meter.slowdowns, self.position
        is_last = len(slowdowns) >= MOST_WINDOWS
        mean = sum(slowdowns) / len(slowdowns)
        doubt = 0.0 if is_last else self.doubt(len(slowdowns))
        if self.promise is None:
            is_clear = self.try_company(mean, doubt, highest)
        else:
            is_clear = self.keep_promise(self.promise, mean, doubt, now_us, highest)
        if not is_clear and not is_last:
            return
        if self.position != before:
            limit = f"promised are {self.promise:.1%}" if self.promise else f"harmless are {HARMLESS:.0%}"
            seconds = (now_us - self.meter.since_us) / 1e6
            self.say(
                f"It was slowed down by {mean:.1%} over the last {seconds:.1f} s, {limit}: "
                f"{in_words(self.position)} now (before: {in_words(before)})."
            )
        elif self.promise is None and mean - doubt > REMARKABLE:
            self.say(
                f"It is slowed down by over {REMARKABLE:.0%} although those below run only in its pauses; with a "
                "stated promise (--slowdown) they would be shut for a part of the time."
            )
        self.meter.slowdowns = []

    def keep_promise(self, promise: float, mean: float, doubt: float, now_us: float, highest: int) -> bool:
        """Whether the windows so far were clear enough to move."""
        before = self.position
        if mean - doubt > AIM * promise:
            fall = min(max(1, round(FALL * (mean / promise - AIM))), LARGEST_FALL)
            self.position = max(SHUT, before - fall)
            self.hold_below(before, now_us)
            return True
        if mean + doubt < ROOM * promise:
            highest = min(highest, self.ceiling) if self.ceiling_back_off.holds(now_us) else highest
            rise = 2 if mean < promise / 2 else 1
            self.position = max(before, min(before + rise, highest))
            return True
        return False

    def hold_below(self, breached: int, now_us: float) -> None:
        is_again = abs(breached - self.ceiling - 1) <= 1
        if not is_again:
            self.ceiling_back_off = BackOff(FIRST_BACK_OFF_US, LONGEST_BACK_OFF_US)
        self.ceiling = max(SHUT, breached - 1)
        self.ceiling_back_off.begin(now_us)

    def try_company(self, mean: float, doubt: float, highest: int) -> bool:
        """Whether the windows so far were clear enough to move, or to stay."""
        windows = len(self.meter.slowdowns)
        if self.position == TOLERANT:
            if mean + 2 * doubt <= HARMLESS:
                self.is_on_trial = False
                return True
            is_over = self.is_on_trial and windows >= TRIAL_WINDOWS
            if mean - 2 * doubt <= HARMLESS and not is_over:
                return False
            self.end_company()
            return True
        if self.try_back_off.holds(self.shared_us) or highest < TOLERANT:
            return mean - doubt > HARMLESS
        if 2 * self.doubt(TRIAL_WINDOWS) >= HARMLESS:
            # Too noisy, unless that has just not been learned yet.
            if windows < MOST_WINDOWS:
                return False
            self.try_back_off.begin(self.shared_us)
            return True
        if mean + doubt < HARMLESS:
            self.position, self.is_on_trial = TOLERANT, True
            return True
        return mean - doubt > HARMLESS

    def end_gross_company(self, tenant: Tenant, now_us: float) -> bool:
        """Two bursts of a trial are enough where they were slowed down grossly."""
        if not self.is_on_trial or tenant.has_work or self.alone is None:
            return False
        grown = self.meter.window.grown(tenant)
        if grown.bursts < TRIAL_BURSTS or self.alone.slowdown(grown) <= GROSS:
            return False
        self.meter.restart(tenant, now_us)
        self.end_company()
        self.say(f"Company was tried, and slowed it down by over {GROSS:.0%}: {in_words(self.position)} now.")
        return True

    def end_company(self) -> None:
        self.return_to_strict()
        self.try_back_off.begin(self.shared_us)

    def doubt(self, windows: int) -> float:
        assert self.alone is not None
        return self.alone.doubt(windows)
