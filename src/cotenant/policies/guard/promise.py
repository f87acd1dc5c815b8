"""A stated promise: how much of the time the lower classes may have.

guard learns two numbers about a job, each from the windows at one level (cost.py), and forgets old ones:

    strict = sum(slowdown) / sum(share)                       while they run in its gaps
    extra  = sum(slowdown - strict) / sum(share)              what overlap adds to that

    slowdown(p) = strict * min(p, 1) + extra * max(p - 1, 0)
    position    = where slowdown(p) is 0.92 of the promise

The position falls there at once; where windows are noisier than the promise, only by what is beyond doubt. It rises
there in a few steps, and only while the cost alone was measured in the last 3 s. The share is that of the level which
was held, whichever job set it: where another job's promise is the binding one, this job still learns the truth.

A window that is far from slowdown(p), or clearly negative, is odd: the job's own cost has changed, or the lower classes
have. Odd windows are set aside until the cost alone is measured again. If it has changed, they say nothing; if it has
not, they are all that is known. Where it cannot be measured, guard believes the windows that leave the lower classes
less: an old cost alone is no reason to give them more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cotenant.policies.guard.cost import ODD, Alone, Window
from cotenant.policies.guard.position import SHUT, STRICT, TOLERANT
from cotenant.policies.interface import Met

AIM = 0.92  # of the promise
FRESH_US = 3_000_000
LEAST_RISE, FIRST_RISE = 0.04, 0.1
LEAST_COMPANY, MOST_COMPANY = 0.05, 0.2  # share of the time that company is first tried for
SLACK = 0.3  # of what was expected that a window may be off by, beside its spread
FEW, MANY = 6, 128  # windows that a mean remembers
ENOUGH = 4  # windows of overlap that later runs may go by
EXACT = 0.1  # part of itself that a mean is to be known to
MOST_ASIDE, SUSPICIOUS = 4, 2
SMALLEST = 0.001  # share of the time that is not none


@dataclass(slots=True)
class Effect:
    """What a level does to a job: sum(slowdown) / sum(share)."""

    slowdowns: float = 0.0
    shares: float = 0.0
    clocks: float = 0.0  # the part of the slowdowns that is the GPU's clock
    windows: float = 0.0

    @property
    def value(self) -> float | None:
        return max(self.slowdowns / self.shares, 0.0) if self.shares > 0 else None

    @property
    def mean(self) -> float:
        return self.slowdowns / self.windows if self.windows else 0.0

    def add(self, slowdown: float, share: float, clock: float, spread: float, aim: float) -> None:
        mean = max(abs(self.mean), aim)
        memory = min(max((spread / (EXACT * mean)) ** 2, FEW), MANY)
        self.keep(1 - 1 / memory)
        self.slowdowns += slowdown
        self.shares += share
        self.clocks += clock
        self.windows += 1

    def keep(self, part: float) -> None:
        self.slowdowns *= part
        self.shares *= part
        self.clocks *= part
        self.windows *= part

    def fade(self, windows: float) -> None:
        """It is to weigh no more than so many."""
        if self.windows > windows:
            self.keep(windows / self.windows)


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

    @property
    def aim(self) -> float:
        return AIM * self.limit

    def slowdown(self, position: float) -> float | None:
        strict = self.strict.value
        if strict is None:
            return None
        return strict * min(position, STRICT) + (self.extra.value or 0.0) * max(position - STRICT, 0.0)

    def clock(self, position: float) -> float:
        """The part of the slowdown that is the GPU's clock."""
        strict, extra = (
            max(one.clocks / one.shares, 0.0) if one.shares else 0.0 for one in (self.strict, self.extra)
        )
        return strict * min(position, STRICT) + extra * max(position - STRICT, 0.0)

    def begin_anew(self, come_anew: bool) -> None:
        """Beside other tenants than before; `come_anew`: beside others, where there were none."""
        self.aside = []
        self.extra = Effect()
        if come_anew:
            self.strict, self.position = Effect(), STRICT
        else:
            self.strict.fade(1)
            self.position = min(self.position, STRICT)

    def take_over(self, earlier: Promise) -> None:
        """At first the lower classes are taken to slow a job down as they did the last one."""
        self.strict, self.extra = replace(earlier.strict), replace(earlier.extra)
        self.strict.fade(1)
        self.extra.fade(1)
        self.position = max(self.target(TOLERANT if self.extra.windows else STRICT), SMALLEST)

    def recall(self, known: Met) -> None:
        """What an earlier run showed of the same programs weighs as one window."""
        self.strict = Effect(max(known.strict, 0.0), 1.0, windows=1.0)
        self.extra = Effect(max(known.overlap - known.strict, 0.0), 1.0, windows=1.0)
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

    def see(self, window: Window, alone: Alone) -> bool:
        """A window beside others. Returns whether anything is known better now."""
        if alone.odd is not None or self.is_odd(window, alone):
            self.aside.append(window)
            self.wants_look |= len(self.aside) >= SUSPICIOUS
            return len(self.aside) >= MOST_ASIDE and self.settle(alone, looked=False)
        # The odd ones were chance.
        chance, self.aside = self.aside, []
        for one in (*chance, window):
            if (expected := self.expected(one)) is not None:
                alone.saw_difference(alone.slowdown(one.cost) - expected)
            self.count(one, alone)
        return True

    def is_odd(self, window: Window, alone: Alone) -> bool:
        if is_stale(window, alone):
            return True
        expected = self.expected(window)
        if expected is None:
            return False
        return abs(alone.slowdown(window.cost) - expected) > ODD * alone.doubt(1) + SLACK * abs(expected)

    def expected(self, window: Window) -> float | None:
        strict, extra = self.strict.value, self.extra.value
        if strict is None or window.level == STRICT:
            return None if strict is None else strict * window.share
        return None if extra is None else strict + extra * window.share

    def looked(self, alone: Alone, changed: bool) -> bool:
        """The cost alone was looked at. Returns whether anything is known better now."""
        if alone.odd is not None:
            return False
        self.wants_look = False
        if changed:
            self.aside = []
            self.strict.fade(FEW / 2)
            self.extra.fade(FEW / 2)
            return False
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
            self.strict.add(slowdown, window.share, clock, alone.spread, self.aim)
        else:
            strict = self.strict.value or 0.0
            self.extra.add(slowdown - strict, window.share, clock, alone.spread, self.aim)
            self.has_met_company = True

    # ---- the position ----

    def target(self, highest: float, doubt: float = 0.0) -> float:
        strict, extra = self.strict.value, self.extra.value
        if strict is None:
            return STRICT
        strict = max(strict - doubt, 0.0)
        if strict >= self.aim:
            return max(self.aim / strict, SHUT)
        room = self.aim - strict
        if extra is None or extra <= room:
            return highest
        return min(STRICT + room / extra, highest)

    def move(self, now_us: float, alone: Alone, highest: float) -> None:
        if (mean := self.strict.mean) < -2 * alone.doubt(self.strict.windows):
            alone.assume(alone.cost * alone.ratio(mean))
            self.strict.slowdowns, self.wants_look = 0.0, True
            self.position = min(self.position, STRICT)
            return
        before, target = self.position, max(self.target(highest), SMALLEST)
        if target < before:
            # Windows that are noisier than the promise move it only where their mean is clearly over it.
            is_noisy = alone.spread > self.limit
            doubt = alone.doubt(self.strict.windows) if is_noisy else 0.0
            self.position = min(before, max(self.target(highest, doubt), SMALLEST))
        elif target > before + LEAST_RISE * max(before, 0.1):
            if now_us - alone.learned_us > FRESH_US:
                self.wants_look = True
                return
            if before < STRICT:
                self.position = min(target, 2 * before + FIRST_RISE / 2, STRICT)
                return
            # Company is tried for a little of the time, and for more when that is known.
            first = min(max(2 * self.limit, LEAST_COMPANY), MOST_COMPANY)
            is_first = before - STRICT < first / 2
            is_known = (self.strict.value or 0.0) + alone.doubt(self.strict.windows) <= self.aim
            if is_known and (is_first or self.has_met_company):
                self.position = min(target, STRICT + max(2 * (before - STRICT), first))
                self.has_met_company = False
