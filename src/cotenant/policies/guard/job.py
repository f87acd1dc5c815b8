"""One production job under guard: its promise, and its position.

With a stated promise the position follows promise.py.

Without one it stands at STRICT, or at TOLERANT where overlap is harmless (trials.py). What earlier runs showed of the
same programs comes before both (pairs.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from cotenant.policies.guard.cost import Alone, Meter, Window
from cotenant.policies.guard.pairs import TRUSTED_US, TRUSTED_WITH_PROMISE_US, Company
from cotenant.policies.guard.position import STRICT, TOLERANT, in_words
from cotenant.policies.guard.promise import Promise
from cotenant.policies.guard.reserve import ALL, Reserve
from cotenant.policies.guard.trials import GROSS, MOST_WINDOWS, REMARKABLE, TRIAL_BURSTS, Trials
from cotenant.policies.interface import Met, Tenant

# A job that has launched nothing for 8 of its usual gaps is not at work: lower classes run in its pause.
GAPS, SHORTEST_PAUSE_US, LONGEST_GAP_US = 8, 400_000, 2_000_000
HOLDING_GAPS, SHORTEST_HOLD_US = 3, 100_000
SWING_GAPS = 4  # after so many it may be a pause, which says nothing about its gaps
WEIGHT_OF_NEW = 0.2  # in the running mean of its gaps
BUSY_US, LEAST_BUSY = 500_000, 0.05

KNOWN_FOR_US, BARELY_KNOWN_FOR_US = 10_000_000, 5_000_000
FREE, FREELY_KNOWN_FOR_US = 0.85, 4_000_000  # up to this position, learning is given back
KNOWN_TOGETHER_FOR_US = 30_000_000  # at work beside others
HARDLY_KNOWN_FOR_US = 1_500_000  # from fewer windows than FIRST_WINDOWS, as after it has changed
RETRY_US = 4_000_000
FIRST_WINDOWS, LOOKS = 3, 1  # that end a calibration: the first, and another
TOLD = 0.05  # a change of the position that is worth a word


@dataclass(slots=True)
class Job:
    meter: Meter
    say: Callable[[str], None]
    trials: Trials  # without a promise
    last: Tenant
    active_us: float  # when it last launched something
    busy: float = 0.5  # share of its time at work that it is busy, a running mean
    passed_us: float = (
        0.0  # since the last tick, its busy and its idle time counting the same in the long run
    )
    gap_us: float = 0.0  # between two bursts, a running mean
    promise: Promise | None = None
    told: float = STRICT  # the position that was last spoken of
    learn_from_us: float = 0.0  # no calibration before
    company: Company | None = None  # the programs beside it; None: there are none

    @classmethod
    def of(cls, tenant: Tenant, now_us: float, say: Callable[[str], None]) -> Job:
        active_us = now_us if tenant.has_work else -math.inf
        promise = Promise(tenant.slowdown) if tenant.slowdown else None
        meter = Meter.of(tenant, now_us, say)
        meter.be_exact(tenant.slowdown)
        return cls(meter, say, Trials(meter, say), tenant, active_us, promise=promise)

    @property
    def alone(self) -> Alone | None:
        return self.meter.alone

    def is_unknown(self, now_us: float) -> bool:
        """What it costs alone; or whether that has changed, where no pause tells it."""
        return self.alone is None or (self.alone.odd is not None and self.meter.is_never_idle(now_us))

    @property
    def position(self) -> float:
        return self.promise.position if self.promise else self.trials.level

    @property
    def held(self) -> float:
        """The position that is in force."""
        return self.promise.held if self.promise else self.trials.level

    @property
    def gives_little(self) -> bool:
        """To the lower classes: to shut them costs nothing, or is given back."""
        if self.promise and not self.promise.has_pauses:
            return self.held <= STRICT
        return self.held <= FREE

    @property
    def reserve(self) -> Reserve:
        return self.trials.reserve

    @property
    def is_together(self) -> bool:
        """With all lower classes, in one MPS daemon."""
        return self.trials.is_together

    @property
    def sm_share(self) -> float:
        """Of the SMs, that the lower classes' kernels may have."""
        return self.reserve.sm_share

    @property
    def stand(self) -> str:
        return in_words(self.position, self.sm_share)

    @property
    def standing(self) -> str:
        stated = "It has a promise" if self.promise else "No slowdown was stated for it (--slowdown)"
        return f"{stated}: {self.stand}."

    def figures(self) -> list[str]:
        """What is known now, with a promise."""
        promise, alone = self.promise, self.alone
        if promise is None or alone is None:
            return []
        beside = "" if promise.lately is None else f", and {promise.lately:+.1%} lately beside others"
        known = promise.at_strict
        gaps = "" if known is None else f" All of its gaps would cost {known:.1%}."
        if promise.excess:
            gaps += f" It was slowed down by {promise.excess:.1%} too much: others have less until that is made up for."
        return [
            f"An operation takes {alone.cost:.1f} us alone, where windows vary by {alone.spread:.1%}{beside}: "
            f"{self.stand} now.{gaps}"
        ]

    def work_us(self, tenant: Tenant) -> float:
        """What it has done since the last tick: how long that takes alone."""
        if self.alone is None:
            return max(tenant.busy_us - self.last.busy_us, 0.0)
        return max(tenant.operations - self.last.operations, 0) * self.alone.cost

    def see(self, tenant: Tenant, now_us: float, step_us: float = 0.0) -> None:
        if self.last.slowdown != tenant.slowdown:
            earlier = self.promise
            self.promise = Promise(tenant.slowdown) if tenant.slowdown else None
            self.meter.be_exact(tenant.slowdown)
            if self.promise and earlier:
                self.promise.take_over(earlier)
            self.return_to_strict()
        if tenant.operations > self.last.operations:
            if (bursts := tenant.bursts - self.last.bursts) > 0 and self.active_us > -math.inf:
                gap_us = min(now_us - self.active_us, LONGEST_GAP_US) / bursts
                self.gap_us += WEIGHT_OF_NEW * (gap_us - self.gap_us)
            self.active_us = now_us
        busy_us = min(max(tenant.busy_us - self.last.busy_us, 0.0), step_us)
        self.passed_us = (busy_us / self.busy + (step_us - busy_us) / (1 - self.busy)) / 2
        if step_us and self.is_at_work(now_us):
            self.busy += min(step_us / BUSY_US, 1.0) * (busy_us / step_us - self.busy)
            self.busy = min(max(self.busy, LEAST_BUSY), 1 - LEAST_BUSY)
        self.last = tenant

    def is_at_work(self, now_us: float) -> bool:
        if self.last.has_work and self.promise:
            return True
        pause_us = min(max(SHORTEST_PAUSE_US, GAPS * self.gap_us), LONGEST_GAP_US)
        return now_us - self.active_us < pause_us

    def holds(self, now_us: float) -> bool:
        """Its position counts. In a longer pause than usual nobody below it slows it down."""
        gaps_us = max(HOLDING_GAPS * self.gap_us, SHORTEST_HOLD_US)
        return self.last.has_work or not self.gap_us or now_us - self.active_us < gaps_us

    def is_in_swing(self, now_us: float) -> bool:
        return self.last.has_work or now_us - self.active_us < SWING_GAPS * self.gap_us

    # ---- the cost alone ----

    def needs_calibration(self, now_us: float) -> bool:
        if now_us < self.learn_from_us or not self.is_at_work(now_us):
            return False
        alone = self.alone
        if alone is not None and not self.is_in_swing(now_us):
            return False  # nothing would be seen of it
        if self.promise is None:
            # Strict: nothing is judged before the next try.
            if self.trials.waits:
                return False
        elif self.promise.wants_look:
            return True
        if alone is None or (self.is_together and not self.promise and not self.trials.trusts(alone)):
            return True
        if self.promise and alone.windows < FIRST_WINDOWS:
            return now_us - alone.learned_us > HARDLY_KNOWN_FOR_US
        if self.promise and self.position <= FREE:
            return now_us - alone.learned_us > FREELY_KNOWN_FOR_US
        if self.is_together and not self.promise:
            return self.trials.shared_us - self.trials.looked_us > KNOWN_TOGETHER_FOR_US
        is_sure = alone.doubt(MOST_WINDOWS) < (self.promise.limit if self.promise else REMARKABLE) / 2
        return now_us - alone.learned_us > (KNOWN_FOR_US if is_sure else BARELY_KNOWN_FOR_US)

    def has_learned_enough(self) -> bool:
        """In this calibration."""
        alone = self.alone
        if alone is None or alone.odd is not None:
            return False
        return self.meter.windows_learned >= (FIRST_WINDOWS if alone.windows <= FIRST_WINDOWS else LOOKS)

    # ---- windows ----

    def saw_stretch(self) -> None:
        if self.promise and self.alone and self.meter.ended:
            self.promise.saw_stretch(self.meter.ended, self.alone)

    def meet(self, window: Window, now_us: float, highest: float) -> None:
        """A window that has become whole; the lever goes to no more than `highest`."""
        if window.level < STRICT:
            before = self.alone
            changed = self.meter.learn(window, now_us)
            self.trials.looked_us = self.trials.shared_us
            assert self.alone is not None
            if changed:
                self.trials.slowdowns = []
                if before is not None:
                    self.reserve.doubt()
                    if before is not self.alone and self.promise:
                        # It was eager and is not, or the other way round: its cost is another quantity.
                        self.promise.forget()
            if self.promise and self.promise.looked(self.alone, changed):
                self.follow(self.promise, self.alone, now_us, highest)
            return
        if self.alone is None:
            return
        window = self.meter.judged(window)
        if self.promise:
            if self.promise.see(window, self.alone):
                self.follow(self.promise, self.alone, now_us, highest)
        else:
            self.trials.meet(window, self.alone, now_us, highest)

    def follow(self, promise: Promise, alone: Alone, now_us: float, highest: float) -> None:
        if self.is_together:
            self.choose_share(promise, alone, now_us, highest)
        is_settled = now_us >= self.reserve.settled_us
        promise.move(now_us, alone, highest if is_settled else min(highest, STRICT))
        if (
            abs(promise.position - self.told) < TOLD * max(promise.position, 0.2)
            or promise.position == self.told
        ):
            return
        before, self.told = self.told, promise.position
        full = max(STRICT, promise.position)
        slowdown, clock = promise.slowdown(full) or 0.0, promise.clock(full)
        by_clock = (
            f" Of its {slowdown:.1%} slowdown {min(clock, slowdown):.1%} are the GPU's clock."
            if clock > 0.002
            else ""
        )
        beside = "while others run in its gaps" if full == STRICT else "beside others"
        self.say(
            f"It is slowed down by {slowdown:.1%} {beside}, its promise is {promise.limit:.1%}: "
            f"{self.stand} now (before: {in_words(before)}).{by_clock}"
        )

    def choose_share(self, promise: Promise, alone: Alone, now_us: float, highest: float) -> None:
        before = self.sm_share
        if highest < TOLERANT:
            if before < ALL:
                self.reserve.take(ALL, promise)
        elif self.reserve.fit(promise, alone, self.busy, now_us, self.trials.shared_us):
            self.say(
                f"Overlap with {self.sm_share:.0%} of the SMs may let others do more within its promise of "
                f"{promise.limit:.1%} than with {before:.0%}."
            )

    def return_to_strict(self) -> None:
        if self.promise:
            self.reserve.take(ALL, self.promise)
        self.trials.return_to_strict()

    # ---- the lower classes beside it ----

    def go_together(self, together: bool, can_limit: bool = True) -> None:
        if together != self.is_together:
            self.trials.is_together = together
            self.begin_trials()
        self.reserve.can_limit = can_limit

    def begin_trials(self) -> None:
        self.return_to_strict()
        self.trials.begin()

    def meet_company(self, company: Company | None, known: Met | None, now_us: float) -> None:
        """Other programs than before are beside it; `known`: what is remembered of them."""
        self.company, self.trials.proved = company, None
        if self.trials.level < STRICT:
            self.begin_trials()
        if company is None:
            return
        if known is None:
            if self.trials.level == TOLERANT and company.pairs:
                # What was harmless were others.
                self.begin_trials()
            return
        seen = f"In an earlier run overlap with {company.in_words()} slowed it down by {known.overlap:.1%}"
        if not self.promise:
            if self.trials.recall(known, seen):
                self.learn_from_us = now_us + TRUSTED_US
            return
        if self.is_together and known.sm_share < ALL:
            self.reserve.take(known.sm_share, self.promise)
            self.reserve.rounds.begin(self.trials.shared_us)
        self.promise.recall(known)
        self.learn_from_us = now_us + TRUSTED_WITH_PROMISE_US
        self.told = self.position
        self.say(f"{seen}: {self.stand} from the beginning.")

    def take_shown(self) -> Met | None:
        """What overlap with its company has just been shown to do, by a trial or by the windows of a promise."""
        proved, self.trials.proved = self.trials.proved, None
        if proved or not self.promise:
            return proved
        met = self.promise.shown()
        return met and replace(met, sm_share=self.sm_share)

    def end_gross_company(self, tenant: Tenant, now_us: float) -> None:
        """Without waiting for a whole window."""
        if self.alone is None:
            return
        if self.promise:
            self.count_gross_company(self.promise, self.alone, tenant, now_us)
        else:
            self.trials.end_gross_company(self.alone, tenant)

    def count_gross_company(self, promise: Promise, alone: Alone, tenant: Tenant, now_us: float) -> None:
        """With a promise two such bursts are a window, where nothing is known of overlap in one MPS daemon yet."""
        if not self.is_together or tenant.has_work or promise.extra.windows or promise.position <= STRICT:
            return
        window = self.meter.parts[TOLERANT].window(TOLERANT)
        if window is None or window.bursts < TRIAL_BURSTS:
            return
        if alone.slowdown(self.meter.judged(window).cost) > GROSS + promise.limit:
            self.meter.forget_parts(TOLERANT)
            self.meet(window, now_us, STRICT)
