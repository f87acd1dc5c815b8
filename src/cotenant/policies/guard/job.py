"""One production job under guard: its promise, and its position.

With a stated promise the position follows promise.py.

A job without a promise stands at STRICT, so that lower classes run in every gap, or at TOLERANT where overlap is
harmless. guard tries TOLERANT when the job's slowdown at STRICT is under HARMLESS, and not before a minute at work
beside others. Where the job and all lower classes go through one MPS daemon, overlap is what they are there for: their
kernels are on the GPU at once, so guard tries it after a second, and 5 % is harmless. The trial has a few windows to
show that overlap is harmless; two bursts that are slowed down grossly end it; the next trial is twice as far away. A
job so noisy that a few windows could prove nothing is not tried at all. The job is never between the two: a mean that
looks harmless may hide a few requests that are not. In one MPS daemon guard then tries overlap with fewer SMs for the
lower classes (reserve.py), also where STRICT itself is not harmless. What earlier runs showed of the same programs
comes before all that (pairs.py).

MPS cuts no kernel, so there production may find kernels of many milliseconds in its bursts at STRICT, too. Where that
slows the job down by over a half, guard keeps the lower classes off as if 5 % had been promised.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cotenant.policies.back_off import BackOff
from cotenant.policies.guard.cost import Alone, Meter, Window
from cotenant.policies.guard.pairs import TRUSTED_US, TRUSTED_WITH_PROMISE_US, Company
from cotenant.policies.guard.position import STRICT, TOLERANT, in_words
from cotenant.policies.guard.promise import Promise, is_stale
from cotenant.policies.guard.reserve import ALL, Reserve, is_clearly_less
from cotenant.policies.interface import Met, Tenant

# A job that has launched nothing for 8 of its usual gaps is not at work: lower classes run in its pause.
GAPS, SHORTEST_PAUSE_US, LONGEST_GAP_US = 8, 400_000, 2_000_000
SWING_GAPS = 4  # after so many it may be a pause, which says nothing about its gaps
WEIGHT_OF_NEW = 0.2  # in the running mean of its gaps
BUSY_US, LEAST_BUSY = 500_000, 0.05

KNOWN_FOR_US, BARELY_KNOWN_FOR_US = 10_000_000, 5_000_000
FREE, FREELY_KNOWN_FOR_US = 0.85, 4_000_000  # up to this position, learning is given back
KNOWN_TOGETHER_FOR_US = 30_000_000
HARDLY_KNOWN_FOR_US = 1_500_000  # from fewer windows than FIRST_WINDOWS, as after it has changed
RETRY_US = 4_000_000
FIRST_WINDOWS, LOOKS = 3, 1  # that end a calibration: the first, and another
TRUSTED_WINDOWS = 2  # alone, before overlap is tried in an MPS daemon
MOST_WINDOWS = 16  # slowdowns until their mean is taken for what it is

HARMLESS, HARMLESS_TOGETHER = 0.02, 0.05
REMARKABLE = 0.05  # a slowdown that is worth a word where nothing was promised
TRIAL_WINDOWS, TRIAL_BURSTS = 4, 2
GROSS, ENDLESS = 0.1, 0.5
GROSS_TURNS, FAIR_TURNS = 0.5, 0.25  # slowdowns at STRICT, in one MPS daemon
WHOLE = 0.95  # share of a window at a level that is taken for all of it
FIRST_TRY_US, LONGEST_TRY_BACK_OFF_US = 60_000_000, 600_000_000
FIRST_TRY_TOGETHER_US, LONGEST_TOGETHER_BACK_OFF_US = 1_000_000, 60_000_000
TOLD = 0.05  # a change of the position that is worth a word


def first_try(together: bool, now_us: float = 0.0) -> BackOff:
    first_us, longest_us = FIRST_TRY_US, LONGEST_TRY_BACK_OFF_US
    if together:
        first_us, longest_us = FIRST_TRY_TOGETHER_US, LONGEST_TOGETHER_BACK_OFF_US
    return BackOff(first_us, longest_us, now_us + first_us)


@dataclass(slots=True)
class Job:
    stated: float | None  # the promise; None: nothing was stated
    meter: Meter
    say: Callable[[str], None]
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
    # Without a promise.
    level: float = STRICT
    slowdowns: list[float] = field(default_factory=list)  # since the last move
    since_us: float = 0.0  # when the first of them began
    shared_us: float = 0.0  # at work while lower classes wanted to run: the clock of its trials
    is_together: bool = False  # with all lower classes, in one MPS daemon
    try_back_off: BackOff = field(default_factory=lambda: first_try(False))
    is_on_trial: bool = False
    reserve: Reserve = field(default_factory=Reserve)
    company: Company | None = None  # the programs beside it; None: there are none
    proved: Met | None = None  # what a trial has just shown of them, or the windows of a promise have

    @classmethod
    def of(cls, tenant: Tenant, now_us: float, say: Callable[[str], None]) -> Job:
        active_us = now_us if tenant.has_work else -math.inf
        promise = Promise(tenant.slowdown) if tenant.slowdown else None
        meter = Meter.of(tenant, now_us, say)
        meter.be_exact(tenant.slowdown)
        return cls(tenant.slowdown, meter, say, tenant, active_us, promise=promise)

    @property
    def alone(self) -> Alone | None:
        return self.meter.alone

    @property
    def position(self) -> float:
        return self.promise.position if self.promise else self.level

    @property
    def sm_share(self) -> float:
        """Of the SMs, that the lower classes' kernels may have."""
        return self.reserve.sm_share

    @property
    def stand(self) -> str:
        return in_words(self.position, self.sm_share)

    @property
    def standing(self) -> str:
        stated = "It has a promise" if self.stated else "No slowdown was stated for it (--slowdown)"
        return f"{stated}: {self.stand}."

    def figures(self) -> list[str]:
        """What is known now, with a promise."""
        promise, alone = self.promise, self.alone
        if promise is None or alone is None:
            return []
        beside = "" if promise.lately is None else f", and {promise.lately:+.1%} lately beside others"
        known = promise.at_strict
        gaps = "" if known is None else f" All of its gaps would cost {known:.1%}."
        return [
            f"An operation takes {alone.cost:.1f} us alone, where windows vary by {alone.spread:.1%}{beside}: "
            f"{self.stand} now.{gaps}"
        ]

    def see(self, tenant: Tenant, now_us: float, step_us: float = 0.0) -> None:
        if self.stated != tenant.slowdown:
            self.stated, earlier = tenant.slowdown, self.promise
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

    def is_in_swing(self, now_us: float) -> bool:
        return self.last.has_work or now_us - self.active_us < SWING_GAPS * self.gap_us

    # ---- the cost alone ----

    def trusts(self, alone: Alone) -> bool:
        """Enough to try overlap. A cost that is a small part of the job's time may be wholly wrong, and hides no
        slowdown that is larger than that part."""
        return alone.windows >= TRUSTED_WINDOWS or alone.part <= self.harmless

    def needs_calibration(self, now_us: float) -> bool:
        if now_us < self.learn_from_us or not self.is_at_work(now_us):
            return False
        alone = self.alone
        if self.promise is None:
            # Strict: nothing is judged before the next try.
            if self.level == STRICT and self.try_back_off.holds(self.shared_us):
                return False
        elif self.promise.wants_look:
            return True
        if alone is None or (self.is_together and not self.promise and not self.trusts(alone)):
            return True
        if self.promise and alone.windows < FIRST_WINDOWS:
            return now_us - alone.learned_us > HARDLY_KNOWN_FOR_US
        if self.promise and self.position <= FREE:
            return now_us - alone.learned_us > FREELY_KNOWN_FOR_US
        if self.is_together and not self.promise:
            return now_us - alone.learned_us > KNOWN_TOGETHER_FOR_US
        is_sure = alone.doubt(MOST_WINDOWS) < (self.stated or REMARKABLE) / 2
        return now_us - alone.learned_us > (KNOWN_FOR_US if is_sure else BARELY_KNOWN_FOR_US)

    def has_learned_enough(self) -> bool:
        """In this calibration."""
        alone = self.alone
        if alone is None or alone.odd is not None:
            return False
        return self.meter.windows_learned >= (FIRST_WINDOWS if alone.windows <= FIRST_WINDOWS else LOOKS)

    # ---- windows ----

    def meet(self, window: Window, now_us: float, highest: float) -> None:
        """A window that has become whole; the lever goes to no more than `highest`."""
        if window.level < STRICT:
            before = self.alone
            changed = self.meter.learn(window, now_us)
            assert self.alone is not None
            if changed:
                self.slowdowns = []
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
        elif window.level == self.level and window.share >= WHOLE:
            self.judge(window, self.alone, now_us, highest)

    def follow(self, promise: Promise, alone: Alone, now_us: float, highest: float) -> None:
        if not self.stated and (promise.at_strict or 0.0) < FAIR_TURNS:
            self.promise = None
            self.say("Turns slow it down by less now.")
            self.return_to_strict()
            return
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
        elif self.reserve.fit(promise, alone, self.busy, now_us, self.shared_us):
            self.say(
                f"Overlap with {self.sm_share:.0%} of the SMs may let others do more within its promise of "
                f"{promise.limit:.1%} than with {before:.0%}."
            )

    def shown(self) -> Met | None:
        """What the windows of a stated promise have."""
        met = self.promise.shown() if self.promise and self.stated else None
        return met and replace(met, sm_share=self.sm_share)

    # ---- without a promise ----

    @property
    def harmless(self) -> float:
        return HARMLESS_TOGETHER if self.is_together else HARMLESS

    def go_together(self, together: bool, can_limit: bool = True) -> None:
        if together != self.is_together:
            self.is_together = together
            self.begin_trials()
        self.reserve.can_limit = can_limit

    def begin_trials(self) -> None:
        """As if none had been made."""
        self.return_to_strict()
        if not self.stated:
            self.promise = None
        self.try_back_off = first_try(self.is_together, self.shared_us)
        self.reserve = Reserve(can_limit=self.reserve.can_limit)

    def meet_company(self, company: Company | None, known: Met | None, now_us: float) -> None:
        """Other programs than before are beside it; `known`: what is remembered of them."""
        self.company, self.proved = company, None
        if self.promise and not self.stated:
            self.promise = None
        if company is None:
            return
        if known is None:
            if self.level == TOLERANT and company.pairs:
                # What was harmless were others.
                self.begin_trials()
            return
        seen = f"In an earlier run overlap with {company.in_words()} slowed it down by {known.overlap:.1%}"
        # Turns did it more harm.
        is_lesser_evil = self.is_together and is_clearly_less(known.overlap, known.strict)
        if self.promise:
            if self.is_together and known.sm_share < ALL:
                self.reserve.take(known.sm_share, self.promise)
                self.reserve.rounds.begin(self.shared_us)
            self.promise.recall(known)
            self.learn_from_us = now_us + TRUSTED_WITH_PROMISE_US
        elif self.is_together and known.strict > GROSS_TURNS and not is_lesser_evil:
            self.limit_turns(known.strict)
            seen += f", and turns by {known.strict:.1%}"
        elif known.overlap <= self.harmless or is_lesser_evil:
            if self.is_together:
                self.reserve.recall(known, self.harmless, self.shared_us)
            self.tolerate(is_trial=not is_lesser_evil)
            self.learn_from_us = now_us + TRUSTED_US
        else:
            until_us = self.shared_us + known.trust * self.try_back_off.longest_us
            self.try_back_off.until_us = max(self.try_back_off.until_us, until_us)
            wait_s = (self.try_back_off.until_us - self.shared_us) / 1e6
            self.say(f"{seen}: it is tried again after {wait_s:.0f} s at work beside them.")
            return
        self.told = self.position
        self.say(f"{seen}: {self.stand} from the beginning.")

    def limit_turns(self, strict: float) -> None:
        """A job without a promise is kept as if it had one."""
        self.return_to_strict()
        self.promise = Promise(HARMLESS_TOGETHER)
        self.promise.recall(Met(strict, strict))
        self.told = self.promise.position

    def prove(self, slowdown: float) -> None:
        """What overlap with its company has just been shown to do."""
        self.proved = Met(slowdown, self.reserve.strict, sm_share=self.sm_share)

    def tolerate(self, is_trial: bool) -> None:
        self.level, self.slowdowns, self.is_on_trial = TOLERANT, [], is_trial
        self.meter.forget_parts(STRICT, TOLERANT)

    def return_to_strict(self) -> None:
        self.level, self.slowdowns, self.is_on_trial = STRICT, [], False
        if self.promise:
            self.reserve.take(ALL, self.promise)
        self.reserve.lift()
        self.meter.forget_parts(STRICT, TOLERANT)

    def judge(self, window: Window, alone: Alone, now_us: float, highest: float) -> None:
        """With another slowdown: moves, or waits for more of them."""
        slowdown = alone.slowdown(window.cost)
        if is_stale(window, alone):
            # That it is harmless beside others proves nothing: what it costs alone is not known.
            self.meter.alone = None
            self.return_to_strict()
            return
        if self.is_together and self.level == STRICT and slowdown > GROSS_TURNS and self.trusts(alone):
            self.limit_turns(slowdown)
            self.proved = Met(slowdown, slowdown)
            self.say(
                f"It is slowed down by {slowdown:.0%} although lower classes run only in its gaps, since MPS cuts no "
                f"kernel (--share turns does): {self.stand} now, as if {HARMLESS_TOGETHER:.0%} had been promised."
            )
            return
        if self.slowdowns:
            # Both are off by as much.
            alone.saw_difference((slowdown - self.slowdowns[-1]) / math.sqrt(2))
        else:
            self.since_us = window.began_us
        self.slowdowns.append(slowdown)
        slowdowns, before, stood = self.slowdowns, self.level, self.stand
        is_last = len(slowdowns) >= MOST_WINDOWS
        mean = sum(slowdowns) / len(slowdowns)
        doubt = 0.0 if is_last else alone.doubt(len(slowdowns))
        if not self.try_company(alone, mean, doubt, highest) and not is_last:
            return
        if self.level != before:
            seconds = (now_us - self.since_us) / 1e6
            is_round = self.level == STRICT and mean <= self.harmless
            why = " Overlap with more SMs is tried again." if is_round and self.is_together else ""
            if before == STRICT and mean > self.harmless:
                why = " That may cost it less."
            self.say(
                f"It was slowed down by {mean:.1%} over the last {seconds:.1f} s, the limit is {self.harmless:.0%}: "
                f"{self.stand} now (before: {stood}).{why}"
            )
        elif mean - doubt > REMARKABLE and self.level == STRICT:
            self.say(
                f"It is slowed down by over {REMARKABLE:.0%} although lower classes run only in its gaps; with a "
                "stated promise (--slowdown) they would be shut for a part of the time."
            )
        self.slowdowns = []

    def try_company(self, alone: Alone, mean: float, doubt: float, highest: float) -> bool:
        """Whether the windows so far were clear enough to move, or to stay."""
        windows = len(self.slowdowns)
        if self.level == TOLERANT:
            limit = max(self.harmless, self.reserve.strict) if self.reserve.is_lesser_evil else self.harmless
            if mean + 2 * doubt <= limit:
                self.prove(mean)
                self.go_on()
                return True
            is_over = self.is_on_trial and windows >= TRIAL_WINDOWS
            if mean - 2 * doubt <= limit and not is_over:
                return False
            if mean > limit:
                self.prove(mean)
            self.end_company(mean)
            return True
        if self.try_back_off.holds(self.shared_us) or highest < TOLERANT:
            return mean - doubt > self.harmless
        if self.reserve.failed:
            # The next of a round: what STRICT does is known.
            if self.reserve.prepare(mean):
                self.tolerate(is_trial=True)
            return True
        if 2 * alone.doubt(TRIAL_WINDOWS) >= (
            max(self.harmless, mean) if self.is_together else self.harmless
        ):
            # Too noisy, unless that has just not been learned yet.
            if windows < MOST_WINDOWS:
                return False
            self.try_back_off.begin(self.shared_us)
            return True
        is_clearly_over = mean - doubt > self.harmless
        if self.is_together and not self.trusts(alone):
            return False
        if mean + doubt < self.harmless or (self.is_together and is_clearly_over):
            if not self.is_together or self.reserve.prepare(mean):
                self.tolerate(is_trial=True)
            return True
        return is_clearly_over

    def end_gross_company(self, tenant: Tenant, now_us: float) -> None:
        """Two bursts of a trial are enough where they were slowed down grossly, and one that does not end. Outside of a
        trial only two that are grosser."""
        if self.alone is None:
            return
        if self.promise:
            self.count_gross_company(self.promise, self.alone, tenant, now_us)
            return
        if self.level != TOLERANT:
            return
        # Where turns cost as much, that much is not gross.
        excess = max(self.reserve.strict - self.harmless, 0.0)
        gross = (GROSS if self.is_on_trial else ENDLESS) + excess
        slowdown = ENDLESS + excess
        if not (self.is_on_trial and self.meter.drags_on(tenant, slowdown)):
            window = self.meter.parts[TOLERANT].window(TOLERANT)
            if tenant.has_work or window is None or window.bursts < TRIAL_BURSTS:
                return
            slowdown = self.alone.slowdown(self.meter.judged(window).cost)
            if slowdown <= gross:
                return
        self.prove(gross)
        tried = "Overlap" if self.sm_share == ALL else f"Overlap with {self.sm_share:.0%} of the SMs"
        tried += " was tried, and" if self.is_on_trial else " has"
        self.end_company(slowdown)
        self.say(f"{tried} slowed it down by over {gross:.0%}: {self.stand} now.")

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

    def go_on(self) -> None:
        """Overlap is harmless, or the lesser evil."""
        if self.is_on_trial:
            self.is_on_trial = False
            self.reserve.hold(self.shared_us)
        elif self.reserve.is_due(self.shared_us):
            self.return_to_strict()
            self.try_back_off = first_try(True, self.shared_us)

    def end_company(self, slowdown: float) -> None:
        if self.is_together and self.reserve.fail(slowdown):
            self.tolerate(is_trial=False)
            self.reserve.hold(self.shared_us)
            self.say(
                f"It is slowed down by {self.reserve.strict:.1%} where others run in its gaps only, and by less where "
                f"they overlap: {self.stand} now."
            )
            return
        self.return_to_strict()
        self.try_back_off.begin(self.shared_us)
        if self.reserve.failed:
            # The next share of this round is tried at once.
            self.try_back_off.until_us = self.shared_us
            self.proved = None
