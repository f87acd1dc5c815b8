"""A stated promise: how much of the time the lower classes may have.

guard learns two slopes about a job, each from the windows at one level (cost.py):

    strict   slowdown a share of its gaps in which they run
    extra    what overlap adds to that

    slowdown(p) = strict * min(p, 1) + extra * max(p - 1, 0)
    position    = where slowdown(p) is at most 0.92 of the promise, and at least 0.003 below it

    weight  = share / share held now
    windows += weight^2, and two thirds of that after the first window
    slope   += weight * (slowdown - slope * share) / (windows * share held now)

which is a line through the windows: one in which they hardly ran says little, and the later ones say more, since a job
and its neighbours begin with what they never do again. A window moves the position by the same factor whether the share
is large or small. `windows` is how many the slope rests on: more, up to 128, the noisier windows are against the
promise; fewer when they drift away from it in one direction. A slope is that of the share that is held: half of the
time costs more than half where each burst pays for a change of contexts, and less where the GPU's clock falls at its
power limit only, so what was seen at another share counts for less. No slope is over 4: where the lower classes hardly
run, a window that is slow by itself (two production jobs wait for each other) seems to say that they do endless harm,
and a position that followed would never come back.

What counts in the end is not the slopes but what the job was slowed down by. Where that was more than the aim lately,
the position that is held is lower until it is made up for:

    excess = mean of slowdown - aim over the last 2 s at work
    held   = where slowdown(p) is at most aim - excess

Where windows are noisier than the promise, three times the doubt about that mean is chance, and no excess.

The position falls there at once; where windows are noisier than the promise, only by what is beyond doubt. It rises
there in a few steps, and only while the cost alone was measured in the last 5 s. Where less is lost than was expected,
in the mean of some windows, that may be the job, which has become cheaper: then the position rises after the next look
at the cost alone. The share is that of the level which was held, whichever job set it: where another job's promise is
the binding one, this job still learns the truth.

A window that is far from slowdown(p), or clearly negative, is odd: the job's own cost has changed, or the lower classes
have. So is one in which turns, of which nothing is known yet, seem to make the job more than twice as slow: most likely
its cost alone was that of its start. Odd windows are set aside until the cost alone is measured again. If it has
changed, they say nothing; if it has not, they are all that is known. Where it cannot be measured, guard believes the
windows that leave the lower classes less: an old cost alone is no reason to give them more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from cotenant.policies.guard.cost import ODD, WINDOW_US, Alone, Ended, Window
from cotenant.policies.guard.position import SHUT, STRICT, TOLERANT
from cotenant.policies.interface import Met

AIM = 0.92  # of the promise
PRECISION = 0.003  # to which the slowdown of a few seconds is known at best
FRESH_US = 5_000_000
LEAST_RISE, FIRST_RISE = 0.01, 0.1
LEAST_COMPANY, MOST_COMPANY = 0.05, 0.2  # share of the time that company is first tried for
SLACK = 0.3  # of what was expected that a window may be off by, beside its spread
FEW, MANY = 6, 128  # windows that a mean remembers
ENOUGH = 4  # windows of overlap that later runs may go by
EXACT = 0.05  # part of itself that a mean is to be known to
MOST_ASIDE, SUSPICIOUS = 4, 2
UNHEARD_OF = 1.0  # slowdown by turns, before anything is known of them
SMALLEST = 0.001  # share of the time that is not none
ELSEWHERE = 1.4  # times a share that is another one
DRIFT_WINDOWS = 8  # of the running mean that tells a drift
DRIFT = 3  # spreads of that mean that are one; half of the aim at least
LAG_WINDOWS = 4  # of the running mean that tells that less is lost than expected
LAG = 0.1  # of the aim that it must be, at least
NOISY_DOUBTS = 3  # of a mean of windows that are noisier than the promise, which are chance
EXCESS_US = 2_000_000.0  # at work that the excess is a mean of
LATER = 2 / 3  # of a window that each one after the first adds to those that a slope rests on
LATELY = 8  # windows of the running mean that is told
CURVED = 0.2  # part of the slope that it may differ by there
STEEPEST = 4.0  # slowdown by all of the gaps: more is chance, seen while the lower classes hardly ran


@dataclass(slots=True)
class Effect:
    """What a level does to a job: slowdown = slope * share."""

    slope: float = 0.0  # below 0 by chance, or where the cost alone is not what it was
    clock: float = 0.0  # the part of it that is the GPU's clock
    windows: float = 0.0  # that it rests on; those of a smaller share count less

    @property
    def value(self) -> float | None:
        return max(self.slope, 0.0) if self.windows else None

    def add(
        self, slowdown: float, share: float, at: float, clock: float = 0.0, memory: float = math.inf
    ) -> None:
        """Of a window; `at`: the share that is held now, around which the slope is to be known."""
        at = max(at, share, SMALLEST)
        weight = share / at
        if weight <= 0:
            return
        new = weight * weight * (LATER if self.windows else 1.0)
        self.windows = min(self.windows + new, memory)
        gain = weight / max(self.windows, weight * weight) / at
        self.slope += gain * (slowdown - self.slope * share)
        self.clock += gain * (clock - self.clock * share)

    def fade(self, windows: float) -> None:
        """It is to weigh no more than so many."""
        self.windows = min(self.windows, windows)


def is_stale(window: Window, alone: Alone) -> bool:
    """Nobody is faster beside others than alone: then it is not known what alone is."""
    return alone.slowdown(window.cost) < -ODD * alone.doubt(1)


@dataclass(slots=True)
class Promise:
    limit: float
    position: float = STRICT
    strict: Effect = field(default_factory=Effect)
    extra: Effect = field(default_factory=Effect)
    aside: list[Window] = field(default_factory=list)
    wants_look: bool = False  # at the cost alone
    has_met_company: bool = False  # since it last rose
    last_off: float | None = None  # what the last window was from what was expected
    drift: float = 0.0  # a running mean of that
    lag: float = 0.0  # and one of fewer windows
    seems_cheaper: bool = False  # the job, or its neighbours: not known which
    over: float = 0.0  # slowdown beyond the aim in the last seconds at work; below 0: less than the aim
    excess: float = 0.0  # of that, what is more than chance
    seen_at: float = STRICT  # the share that the windows of `strict` are about
    has_pauses: bool = True  # the lower classes can run at STRICT
    believed: tuple[Effect, Effect] | None = None  # the slopes before odd windows were, without a look
    lately: float | None = None  # slowdown beside others, a running mean, to be told

    @property
    def aim(self) -> float:
        return max(min(AIM * self.limit, self.limit - PRECISION), self.limit / 2)

    @property
    def at_strict(self) -> float | None:
        """Beside production that is never idle nobody runs there."""
        return self.strict.value if self.has_pauses else 0.0

    def meet_pauses(self, has_pauses: bool) -> None:
        if has_pauses == self.has_pauses:
            return
        self.has_pauses, self.aside = has_pauses, []
        self.extra.fade(1)
        if has_pauses:
            self.position = min(self.position, max(self.target(STRICT), SMALLEST))

    def slowdown(self, position: float) -> float | None:
        strict = self.at_strict
        if strict is None:
            return None
        return strict * min(position, STRICT) + (self.extra.value or 0.0) * max(position - STRICT, 0.0)

    def clock(self, position: float) -> float:
        """The part of the slowdown that is the GPU's clock."""
        strict, extra = max(self.strict.clock, 0.0), max(self.extra.clock, 0.0)
        return strict * min(position, STRICT) + extra * max(position - STRICT, 0.0)

    def begin_anew(self, come_anew: bool) -> None:
        """Beside other tenants than before; `come_anew`: beside others, where there were none."""
        self.aside = []
        self.extra = Effect()
        if come_anew:
            self.strict, self.position = Effect(), STRICT
            self.seen_at = STRICT
        else:
            self.strict.fade(1)
            self.position = min(self.position, STRICT)

    def forget(self) -> None:
        """All of it: the cost alone is another quantity now."""
        self.begin_anew(come_anew=True)
        self.believed, self.last_off, self.drift, self.lag = None, None, 0.0, 0.0
        self.seems_cheaper, self.over, self.excess = False, 0.0, 0.0

    def take_over(self, earlier: Promise) -> None:
        """At first the lower classes are taken to slow a job down as they did the last one."""
        self.strict, self.extra = replace(earlier.strict), replace(earlier.extra)
        self.strict.fade(1)
        self.extra.fade(1)
        self.position = max(self.target(TOLERANT if self.extra.windows else STRICT), SMALLEST)
        self.seen_at = min(self.position, STRICT)

    def recall(self, known: Met) -> None:
        """What an earlier run showed of the same programs weighs as one window."""
        self.strict = Effect(max(known.strict, 0.0), windows=1.0)
        self.extra = Effect(max(known.overlap - known.strict, 0.0), windows=1.0)
        self.position = max(self.target(TOLERANT), SMALLEST)

    def shown(self) -> Met | None:
        """What overlap does to the job, where enough windows say it."""
        strict, extra = self.strict.value, self.extra.value
        if strict is None or extra is None or self.extra.windows < ENOUGH:
            return None
        return Met(strict + extra, strict)

    def remember(self, leaving: Promise) -> None:
        if leaving.strict.windows:
            self.strict = leaving.strict
        if leaving.extra.windows:
            self.extra = leaving.extra

    # ---- windows ----

    def saw_stretch(self, ended: Ended, alone: Alone) -> None:
        kept = math.exp(-ended.worked_us / EXCESS_US)
        self.over = self.over * kept + (ended.slowdown - self.aim) * (1 - kept)
        # Where windows are noisier than the promise, their mean may be that by chance.
        doubt = alone.spread * math.sqrt(WINDOW_US / EXCESS_US) if alone.spread > self.limit else 0.0
        self.excess = max(self.over - NOISY_DOUBTS * doubt, 0.0)

    def see(self, window: Window, alone: Alone) -> bool:
        """A window beside others. Returns whether anything is known better now."""
        slowdown = alone.slowdown(window.cost)
        self.lately = slowdown if self.lately is None else self.lately + (slowdown - self.lately) / LATELY
        if alone.odd is not None or self.is_odd(window, alone):
            self.aside.append(window)
            self.wants_look |= len(self.aside) >= SUSPICIOUS
            return len(self.aside) >= MOST_ASIDE and self.settle(alone, looked=False)
        # The odd ones were chance.
        chance, self.aside = self.aside, []
        for one in (*chance, window):
            self.notice(one, alone)
            self.count(one, alone)
        return True

    def notice(self, window: Window, alone: Alone) -> None:
        """How far a window is from what was expected. Windows that are off in the same direction again and again mean
        that it is not so any more, however noisy each of them is."""
        if (expected := self.expected(window)) is None:
            return
        off = alone.slowdown(window.cost) - expected
        if self.last_off is not None:
            alone.saw_difference((off - self.last_off) / math.sqrt(2))
        self.last_off = off
        self.drift += (off - self.drift) / DRIFT_WINDOWS
        effect, share = (self.strict, 1.0) if window.level == STRICT else (self.extra, window.share)
        self.lag = self.lag + (off - self.lag) / LAG_WINDOWS if effect.windows >= FEW * share**2 else 0.0
        if self.lag < -max(alone.spread, LAG * self.aim):
            self.seems_cheaper = self.wants_look = True
        if abs(self.drift) > max(DRIFT * alone.spread / math.sqrt(DRIFT_WINDOWS), self.aim / 2):
            self.drift = 0.0
            effect.fade(FEW)

    def is_odd(self, window: Window, alone: Alone) -> bool:
        if is_stale(window, alone):
            return True
        expected = self.expected(window)
        if expected is None:
            return window.level == STRICT and alone.slowdown(window.cost) > UNHEARD_OF
        return abs(alone.slowdown(window.cost) - expected) > ODD * alone.doubt(1) + SLACK * abs(expected)

    def expected(self, window: Window) -> float | None:
        strict, extra = self.at_strict, self.extra.value
        if strict is None or window.level == STRICT:
            return None if strict is None else strict * window.share
        return None if extra is None else strict + extra * window.share

    def looked(self, alone: Alone, changed: bool) -> bool:
        """The cost alone was looked at. Returns whether anything is known better now."""
        if alone.odd is not None:
            return False
        seemed_cheaper = self.seems_cheaper
        self.wants_look, self.seems_cheaper, self.lag = False, False, 0.0
        believed, self.believed = self.believed, None
        if changed:
            self.aside, self.over, self.excess = [], 0.0, 0.0
            if believed:
                self.strict, self.extra = believed
            self.strict.fade(FEW / 2)
            self.extra.fade(FEW / 2)
            return False
        if seemed_cheaper:
            # Then its neighbours are: what is known of them is old.
            self.strict.fade(SUSPICIOUS)
            self.extra.fade(SUSPICIOUS)
        return bool(self.aside) and self.settle(alone, looked=True)

    def settle(self, alone: Alone, looked: bool) -> bool:
        """What odd windows say. Where nobody could look, the one that leaves less room is believed: those below do
        more harm, or the job has become cheaper."""
        aside, self.aside = self.aside, []
        if not looked and not all(self.is_too_slow(one, alone) for one in aside):
            last = aside[-1]
            alone.assume(last.cost / alone.ratio(max(self.expected(last) or 0.0, 0.0)))
            return False
        believed = [one for one in aside if not is_stale(one, alone)]
        if believed:
            self.believed = None if looked else self.believed or (replace(self.strict), replace(self.extra))
            self.strict.fade(1)
            self.extra.fade(1)
        for one in believed:
            self.count(one, alone)
        return bool(believed)

    def is_too_slow(self, window: Window, alone: Alone) -> bool:
        return alone.slowdown(window.cost) > max(self.expected(window) or 0.0, 0.0)

    def count(self, window: Window, alone: Alone) -> None:
        slowdown = alone.slowdown(window.cost)
        clock = max(alone.mhz / window.mhz - 1, 0.0) if window.mhz else 0.0
        if window.level == STRICT:
            at = min(self.position, STRICT)
            if self.has_pauses:
                self.strict.add(slowdown, window.share, at, clock, self.memory(self.strict, at, alone))
                self.strict.slope = min(self.strict.slope, STEEPEST)
        else:
            strict = self.at_strict or 0.0
            memory = self.memory(self.extra, window.share, alone)
            self.extra.add(slowdown - strict, window.share, STRICT, clock, memory)
            self.has_met_company = True

    def memory(self, effect: Effect, share: float, alone: Alone) -> float:
        """Windows: the noisier, and the smaller what they are to tell, the more."""
        mean = max(abs(effect.slope * share), self.aim)
        return min(max((alone.spread / (EXACT * mean)) ** 2, FEW), MANY)

    # ---- the position ----

    @property
    def held(self) -> float:
        """The position, or what makes up for an excess."""
        if not self.excess:
            return self.position
        allowed = max(self.aim - self.excess, 0.0)
        if self.position <= STRICT:
            return max(self.position * allowed / self.aim, SMALLEST)
        highest = self.position if self.extra.windows else STRICT
        return max(self.target(highest, aim=allowed), SMALLEST)

    def target(
        self,
        highest: float,
        doubt: float = 0.0,
        with_extra: Effect | None = None,
        aim: float | None = None,
    ) -> float:
        aim = self.aim if aim is None else aim
        strict, extra = self.at_strict, (with_extra or self.extra).value
        if strict is None:
            return STRICT
        strict = max(strict - doubt, 0.0)
        if strict > aim:
            return max(aim / strict, SHUT)
        room = aim - strict
        if extra is None or extra <= room:
            return highest
        return min(STRICT + room / extra, highest)

    def move(self, now_us: float, alone: Alone, highest: float) -> None:
        self.step(now_us, alone, highest)
        # The slowdown is not quite proportional to the share: what was seen at another one says less.
        at, seen_at = min(self.position, STRICT), self.seen_at
        if not seen_at / ELSEWHERE < at < seen_at * ELSEWHERE:
            self.seen_at = at
            self.strict.fade(max((alone.spread / (CURVED * self.aim)) ** 2, 1.0))

    def step(self, now_us: float, alone: Alone, highest: float) -> None:
        mean = self.strict.slope * min(self.position, STRICT)
        if self.has_pauses and mean < -2 * alone.doubt(self.strict.windows):
            alone.assume(alone.cost * alone.ratio(mean))
            self.strict.slope, self.wants_look = 0.0, True
            self.position = min(self.position, STRICT)
            return
        before, target = self.position, max(self.target(highest), SMALLEST)
        if target > max(before, STRICT) and self.extra.windows:
            # What was seen of company in a little of the time is doubtful.
            most = replace(self.extra, slope=self.extra.slope + alone.spread / math.sqrt(self.extra.windows))
            target = max(self.target(highest, with_extra=most), min(before, target))
        if target < before:
            # Windows that are noisier than the promise move it only where their mean is clearly over it.
            is_noisy = alone.spread > self.limit
            doubt = alone.doubt(self.strict.windows) if is_noisy else 0.0
            self.position = min(before, max(self.target(highest, doubt), SMALLEST))
        elif target > before + LEAST_RISE * max(before, 0.1):
            if now_us - alone.learned_us > FRESH_US or self.seems_cheaper:
                self.wants_look = True
                return
            if before < STRICT:
                self.position = min(target, 2 * before + FIRST_RISE / 2, STRICT)
                return
            # Company is tried for a little of the time, and for more when that is known.
            first = min(max(2 * self.limit, LEAST_COMPANY), MOST_COMPANY)
            is_first = before - STRICT < first / 2
            is_known = (self.at_strict or 0.0) + alone.doubt(self.strict.windows) <= self.aim
            if is_known and (is_first or self.has_met_company):
                self.position = min(target, STRICT + max(2 * (before - STRICT), first))
                self.has_met_company = False
