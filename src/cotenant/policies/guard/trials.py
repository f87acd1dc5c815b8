"""A production job without a promise: STRICT, so that lower classes run in every gap, or TOLERANT where trials have
shown that overlap is harmless.

guard tries TOLERANT when the job's slowdown at STRICT is under HARMLESS, and not before a minute at work beside others.
The trial has a few windows to show that overlap is harmless; two bursts that are slowed down grossly end it; the next
trial is twice as far away. A job so noisy that a few windows could prove nothing is not tried at all. The job is never
between the two: a mean that looks harmless may hide a few requests that are not.

Where the job and all lower classes go through one MPS daemon, overlap is what they are there for: their kernels are on
the GPU at once. So there

- guard tries it after a second at work, also where STRICT itself is not harmless, and 5 % is harmless;
- a trial lasts until it is clear, since overlap goes on meanwhile: mean - 1.5 doubt > limit ends it, mean + 2 doubt <=
  limit proves it, and after MOST_WINDOWS_TOGETHER it is taken for harmless unless mean - doubt > limit;
- bursts that are slowed down grossly end it where that is over NOISE spreads;
- turns tell what the job costs, without shutting anybody: nobody is faster in turns than alone, so two windows at
  STRICT that are clearly cheaper than the cost alone replace it (a job that warms up), and where windows are so noisy
  that four of them could prove nothing, those at STRICT that are slower by a quarter at most count as alone;
- the next trials give the lower classes fewer SMs (reserve.py).

MPS cuts no kernel, so there production may find kernels of many milliseconds in its bursts at STRICT, too. Where that
slows the job down by over a half, guard keeps the lower classes off for a while, and then sees what STRICT does:

    level = KEPT_OFF / slowdown      of the gaps: with the windows at STRICT that costs the job about 5 %
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from cotenant.policies.back_off import BackOff
from cotenant.policies.guard.cost import Alone, Meter, Window
from cotenant.policies.guard.position import STRICT, TOLERANT, in_words
from cotenant.policies.guard.promise import is_stale
from cotenant.policies.guard.reserve import ALL, Reserve, is_clearly_less
from cotenant.policies.interface import Met, Tenant

TRUSTED_WINDOWS = 2  # alone, before overlap is tried in an MPS daemon
MOST_WINDOWS, MOST_WINDOWS_TOGETHER = 16, 64  # slowdowns until their mean is taken for what it is

HARMLESS, HARMLESS_TOGETHER = 0.02, 0.05
REMARKABLE = 0.05  # a slowdown that is worth a word where nothing was promised
TRIAL_WINDOWS, TRIAL_BURSTS = 4, 2
GROSS, ENDLESS = 0.1, 0.5
NOISE = 4  # spreads of a window, in one MPS daemon
GROSS_TURNS = ((1, 1.5), (2, 1.0), (3, 0.5))  # windows at STRICT in one MPS daemon, and their slowdowns
LEAST_GROSS_TURNS = GROSS_TURNS[-1][1]
MOST_FOR_ALONE = 0.25  # slowdown of windows at STRICT that may still be the cost alone
MOSTLY, OF_TURNS = 5, 6  # of the last windows at STRICT that are gross, however much they vary
WHOLE = 0.95  # share of a window at a level that is taken for all of it
FIRST_TRY_US, LONGEST_TRY_BACK_OFF_US = 60_000_000, 600_000_000
FIRST_TRY_TOGETHER_US, LONGEST_TOGETHER_BACK_OFF_US = 1_000_000, 60_000_000
KEPT_OFF, KEPT_OFF_US = 0.03, 15_000_000  # slowdown by then, and for how long at first


def first_try(together: bool, now_us: float = 0.0) -> BackOff:
    first_us, longest_us = FIRST_TRY_US, LONGEST_TRY_BACK_OFF_US
    if together:
        first_us, longest_us = FIRST_TRY_TOGETHER_US, LONGEST_TOGETHER_BACK_OFF_US
    return BackOff(first_us, longest_us, now_us + first_us)


def first_keep_off() -> BackOff:
    return BackOff(KEPT_OFF_US, LONGEST_TRY_BACK_OFF_US)


@dataclass(slots=True)
class Trials:
    meter: Meter
    say: Callable[[str], None]
    level: float = STRICT
    slowdowns: list[float] = field(default_factory=list)  # since the last move
    since_us: float = 0.0  # when the first of them began
    shared_us: float = 0.0  # at work while lower classes wanted to run: the clock of trials
    looked_us: float = 0.0  # when the cost alone was last learned, by that clock
    is_together: bool = False  # with all lower classes, in one MPS daemon
    back_off: BackOff = field(default_factory=lambda: first_try(False))
    keeps_off: BackOff = field(default_factory=first_keep_off)  # where STRICT does gross harm
    is_on_trial: bool = False
    reserve: Reserve = field(default_factory=Reserve)
    proved: Met | None = None  # what a trial has just shown
    has_asked_turns: bool = False  # whether the cost alone is still what it was
    turns: list[float] = field(default_factory=list)  # the last slowdowns at STRICT, in one MPS daemon

    @property
    def harmless(self) -> float:
        return HARMLESS_TOGETHER if self.is_together else HARMLESS

    @property
    def most_windows(self) -> int:
        return MOST_WINDOWS_TOGETHER if self.is_together else MOST_WINDOWS

    @property
    def sm_share(self) -> float:
        """Of the SMs, that the lower classes' kernels may have."""
        return self.reserve.sm_share

    @property
    def stand(self) -> str:
        return in_words(self.level, self.sm_share)

    @property
    def waits(self) -> bool:
        """For the next try: nothing is judged before."""
        if self.is_together and (self.meter.alone is None or not self.trusts(self.meter.alone)):
            return False
        if self.level < STRICT:
            return self.keeps_off.holds(self.shared_us)
        return self.level == STRICT and self.back_off.holds(self.shared_us)

    def trusts(self, alone: Alone) -> bool:
        """Enough to try overlap. A cost that is a small part of the job's time may be wholly wrong, and hides no
        slowdown that is larger than that part."""
        return alone.windows >= TRUSTED_WINDOWS or alone.part <= self.harmless

    def begin(self) -> None:
        """As if none had been made."""
        self.return_to_strict()
        self.turns = []
        self.back_off = first_try(self.is_together, self.shared_us)
        self.keeps_off = first_keep_off()
        self.reserve = Reserve(can_limit=self.reserve.can_limit)

    def recall(self, known: Met, seen: str) -> bool:
        """What is remembered of the lower classes beside the job, and in words. Returns whether they may overlap."""
        # Turns did it more harm.
        is_lesser_evil = self.is_together and is_clearly_less(known.overlap, known.strict)
        if self.is_together and known.strict > LEAST_GROSS_TURNS and not is_lesser_evil:
            self.keep_off(known.strict)
            seen += f", and turns by {known.strict:.1%}"
        elif known.overlap <= self.harmless or is_lesser_evil:
            if self.is_together:
                self.reserve.recall(known, self.harmless, self.shared_us)
            self.tolerate(is_trial=not is_lesser_evil)
        else:
            until_us = self.shared_us + known.trust * self.back_off.longest_us
            self.back_off.until_us = max(self.back_off.until_us, until_us)
            wait_s = (self.back_off.until_us - self.shared_us) / 1e6
            self.say(f"{seen}: it is tried again after {wait_s:.0f} s at work beside them.")
            return False
        self.say(f"{seen}: {self.stand} from the beginning.")
        return self.level == TOLERANT

    def keep_off(self, slowdown: float) -> None:
        """At STRICT."""
        self.return_to_strict()
        self.level, self.turns = KEPT_OFF / slowdown, []
        self.keeps_off.begin(self.shared_us)

    def prove(self, slowdown: float) -> None:
        """What overlap with its company has just been shown to do."""
        self.proved = Met(slowdown, self.reserve.strict, sm_share=self.sm_share)

    def tolerate(self, is_trial: bool) -> None:
        self.level, self.slowdowns, self.is_on_trial = TOLERANT, [], is_trial
        self.meter.forget_parts(STRICT, TOLERANT)

    def return_to_strict(self) -> None:
        self.level, self.slowdowns, self.is_on_trial = STRICT, [], False
        self.reserve.lift()
        self.meter.forget_parts(STRICT, TOLERANT)

    # ---- windows ----

    def meet(self, window: Window, alone: Alone, now_us: float, highest: float) -> None:
        """A window beside others."""
        if self.level < STRICT and not self.keeps_off.holds(self.shared_us):
            self.return_to_strict()
        elif window.level == self.level and (window.share >= WHOLE or self.is_in_turns_together):
            self.judge(window, alone, now_us, highest)

    @property
    def is_in_turns_together(self) -> bool:
        """Beside a job without pauses turns are nobody's: whoever waits for its gaps waits for ever, and overlap is all
        that the lower classes can get."""
        return self.is_together and self.level == STRICT

    def judge(self, window: Window, alone: Alone, now_us: float, highest: float) -> None:
        """With another slowdown: moves, or waits for more of them."""
        if is_stale(window, alone) and self.is_news(window, alone):
            return
        slowdown = alone.slowdown(window.cost)
        if self.slowdowns:
            # Both are off by as much.
            alone.saw_difference((slowdown - self.slowdowns[-1]) / math.sqrt(2))
        else:
            self.since_us = window.began_us
        self.slowdowns.append(slowdown)
        if self.is_gross_in_turns(alone):
            self.keep_off(slowdown)
            self.proved = Met(slowdown, slowdown)
            self.say(
                f"It is slowed down by {slowdown:.0%} although lower classes run only in its gaps, since MPS cuts no "
                f"kernel (--share turns does): {self.stand} now."
            )
            return
        slowdowns, before, stood = self.slowdowns, self.level, self.stand
        is_last = len(slowdowns) >= self.most_windows
        mean = sum(slowdowns) / len(slowdowns)
        doubt = alone.doubt(len(slowdowns))
        if self.is_together:
            if self.level == STRICT and self.learn_from_turns(window, alone, mean, doubt):
                return
            doubt *= 0.5 if is_last else 1.0
        elif is_last:
            doubt = 0.0
        if not self.decide(alone, mean, doubt, highest) and not is_last:
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

    def is_gross_in_turns(self, alone: Alone) -> bool:
        """Three windows in a row, or fewer that are grosser, or nearly all of the last ones."""
        if not self.is_together or self.level != STRICT or not self.trusts(alone):
            return False
        self.turns = [*self.turns, self.slowdowns[-1]][-OF_TURNS:]
        if sum(one > LEAST_GROSS_TURNS for one in self.turns) >= MOSTLY:
            return True
        return any(
            min(self.slowdowns[-windows:]) - alone.doubt(windows) > limit
            for windows, limit in GROSS_TURNS
            if len(self.slowdowns) >= windows
        )

    def is_news(self, window: Window, alone: Alone) -> bool:
        """A window is clearly faster than alone: that it is harmless beside others proves nothing, since what it costs
        alone is not known. In one MPS daemon turns tell."""
        if not self.is_together:
            self.meter.alone = None
            self.return_to_strict()
        elif self.level == STRICT or self.has_asked_turns:
            return False
        else:
            self.has_asked_turns = True
            self.return_to_strict()
            self.back_off.until_us = self.shared_us
        return True

    def learn_from_turns(self, window: Window, alone: Alone, mean: float, doubt: float) -> bool:
        """Nobody is faster in turns than alone, so turns tell the most that the job can cost alone. Returns whether it
        costs less than was known."""
        windows = len(self.slowdowns)
        lately = sum(self.slowdowns[-2:]) / 2
        if (windows > 1 and lately < -2 * alone.doubt(2)) or (windows >= TRIAL_WINDOWS and mean < -doubt):
            lately = min(lately, mean)
            alone.assume(alone.cost * alone.ratio(lately))
            alone.part = self.meter.part
            self.slowdowns, self.has_asked_turns = [], False
            return True
        is_noisy = 2 * alone.doubt(TRIAL_WINDOWS) > self.harmless and mean <= 2 * doubt
        is_due = not self.trusts(alone) and not self.back_off.holds(self.shared_us)
        if (is_noisy or is_due) and mean <= MOST_FOR_ALONE:
            alone.include(window.cost)
            alone.part = self.meter.part
        return False

    def decide(self, alone: Alone, mean: float, doubt: float, highest: float) -> bool:
        """Whether the windows so far were clear enough to move, or to stay."""
        windows = len(self.slowdowns)
        if self.level == TOLERANT:
            limit = max(self.harmless, self.reserve.strict) if self.reserve.is_lesser_evil else self.harmless
            if mean + 2 * doubt <= limit:
                self.prove(mean)
                self.go_on()
                return True
            is_over = self.is_on_trial and windows >= TRIAL_WINDOWS and not self.is_together
            if mean - (1.5 if self.is_on_trial and self.is_together else 2) * doubt <= limit and not is_over:
                return False
            if mean > limit:
                self.prove(mean)
            self.end_company(mean)
            return True
        if self.back_off.holds(self.shared_us) or highest < TOLERANT:
            return mean - doubt > self.harmless
        if self.is_together and (mean < -doubt or self.slowdowns[-1] > LEAST_GROSS_TURNS):
            # Another window tells whether the cost alone has changed, or turns do gross harm.
            return False
        if self.reserve.failed:
            # The next of a round: what STRICT does is known.
            if self.reserve.prepare(mean):
                self.tolerate(is_trial=True)
            return True
        if self.is_together:
            is_clear = abs(mean - self.harmless) > doubt
            if not self.trusts(alone) or not (is_clear or windows >= TRIAL_WINDOWS):
                return False
            if self.reserve.prepare(mean):
                self.tolerate(is_trial=True)
            return True
        if 2 * alone.doubt(TRIAL_WINDOWS) >= self.harmless:
            # Too noisy, unless that has just not been learned yet.
            if windows < MOST_WINDOWS:
                return False
            self.back_off.begin(self.shared_us)
            return True
        if mean + doubt < self.harmless:
            self.tolerate(is_trial=True)
            return True
        return mean - doubt > self.harmless

    def end_gross_company(self, alone: Alone, tenant: Tenant) -> None:
        """Two bursts of a trial are enough where they were slowed down grossly, and one that does not end. Outside of a
        trial only two that are grosser."""
        if self.level != TOLERANT:
            return
        # Where turns cost as much, that much is not gross.
        excess = max(self.reserve.strict - self.harmless, 0.0)
        noise = NOISE * alone.spread if self.is_together else 0.0
        gross = max(GROSS if self.is_on_trial else ENDLESS, noise) + excess
        slowdown = max(ENDLESS, noise) + excess
        if not (self.is_on_trial and self.meter.drags_on(tenant, slowdown)):
            window = self.meter.parts[TOLERANT].window(TOLERANT)
            if tenant.has_work or window is None or window.bursts < TRIAL_BURSTS:
                return
            slowdown = alone.slowdown(self.meter.judged(window).cost)
            if slowdown <= gross:
                return
        self.prove(gross)
        tried = "Overlap" if self.sm_share == ALL else f"Overlap with {self.sm_share:.0%} of the SMs"
        tried += " was tried, and" if self.is_on_trial else " has"
        self.end_company(slowdown)
        self.say(f"{tried} slowed it down by over {gross:.0%}: {self.stand} now.")

    def go_on(self) -> None:
        """Overlap is harmless, or the lesser evil."""
        if self.is_on_trial:
            self.is_on_trial = False
            self.reserve.hold(self.shared_us)
        elif self.reserve.is_due(self.shared_us):
            self.return_to_strict()
            self.back_off = first_try(True, self.shared_us)

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
        self.back_off.begin(self.shared_us)
        if self.reserve.failed:
            # The next share of this round is tried at once.
            self.back_off.until_us = self.shared_us
            self.proved = None
