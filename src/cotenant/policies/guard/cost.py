"""What an operation of a production job costs, and how much more that is beside others than alone.

    cost     = d(busy_us) / d(operations)       GPU-busy time that one operation takes
    alone    = the cost while no lower class runs, a running mean with its spread
    slowdown = cost / alone - 1
    doubt    = spread * sqrt(1 / n + 1 / k)     about the mean of n windows; `alone` was learned in k

Operations are counted when they are launched, so the busy time fits them only between bursts: a stretch lasts from one
moment in which the job was idle to another. (A job that is not idle for a second is cut every 100 ms.) A stretch
belongs to the highest level that it saw, and a stretch that begins within 0.1 s of that to STRICT at least; its share
is the part of its busy time in which this level was held, at STRICT times the part of the pauses that the lower classes
had.

Stretches of a level add up to a window: 100 ms at work and 8 bursts, or 200 ms at work and 200 operations. Time in
which the job had nothing to do is not part of a window.

Most jobs wait for the GPU inside the driver, once a burst at least and before the driver holds their launches back.
Then guard knows better what an operation takes: what the job's threads wait there and what they work in between. GPU
time that the CPU runs ahead of costs such a job nothing, and time in which a thread sleeps until the next request comes
is no part of one, however short. Threads that wait at once count each.

    took_us  = blocked_us + own_cpu_us, of such a job; busy_us, of another
    cost     = d(took_us) / d(operations)

A thread that never sleeps may spin until the next request comes: then its CPU time counts only inside of bursts.

A job whose own CPU takes most of its time (eager PyTorch) varies from window to window by far more than sharing costs
it. Sharing the GPU does not make the CPU slower, so of such a job

    cost     = d(took_us - host_us) / d(operations)
    slowdown = (cost / alone - 1) * part        part: of its time alone, not the CPU's

    host_us  = own_cpu_us, where that is known
             = gap_us else: its streams were empty. The slowdown is then at least what sharing has cost it.

and where took_us, without what gap_us has grown by, is over 50 % more than alone, that counts.

Stretches in which a lower-class tenant was evicted or restored are left out: no position stops a move, so they are
neither the cost alone nor a slowdown that a position causes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cotenant.policies.guard.position import SHUT, STRICT, TOLERANT
from cotenant.policies.interface import Tenant
from cotenant.policies.window import Growth

WINDOW_US, WINDOW_BURSTS = 100_000, 8
LONG_WINDOW_US, LONG_WINDOW_OPERATIONS = 200_000, 200
COMPANY = 0.01  # of the time that lower classes may have run in a stretch that counts as alone
SETTLING_US = 100_000  # what was in flight still runs for a moment, and the clock rises (H200: 80 ms)
NEVER_IDLE_US, CUT_US = 600_000, 100_000
LOOK_US = 1_000_000  # stretches alone that are older say nothing in a new look

FIRST_SPREAD, SMALLEST_SPREAD = 0.02, 0.005
WEIGHT_OF_NEW = 0.2  # in the running mean of the spread
LEARNED, MOST_LEARNED = 4, 64  # windows in that of the cost alone; the noisier the more
EXACT, EXACT_OF_PROMISE = 0.01, 0.05  # that it is to be known to: whichever is less
ALIKE = 0.3  # of what they are off by that two odd windows may differ
ODD = 4  # spreads from what was expected that make a window odd

# Shares of the time that a job waits for its own CPU: from which on it is judged by its GPU time, and down to which it
# still is.
WAITS_FROM, WAITS_TO = 0.5, 0.4
SLEEPS_FROM, SLEEPS_TO = 0.1, 0.05  # times the CPU time of its threads that they sleep
STRETCHES = 100  # that tell whether they do
SMALLEST_US = 0.001  # that a cost can be
GROSSLY = 0.5  # slower
MOST_AHEAD = (
    1000  # operations that a job may launch between two calls that wait; the driver holds a thread back then
)
FIRST_LEARNED = 3  # windows alone
HOST_WINDOWS = 16  # in the running mean of what an operation waits for the CPU

FEWEST_BURSTS, FEWEST_OPERATIONS = 3, 100  # that are enough at the end of a calibration


@dataclass(frozen=True, slots=True)
class Below:
    """What all tenants below production did since the last tick."""

    ran_us: float
    floors: float  # share of the GPU that they were promised together
    want: bool  # to run
    level: float  # that was held
    duty: float  # part of production's pauses that they have at STRICT
    moves: bool  # the memory of one of them did

    @property
    def may_run(self) -> bool:
        """Where they are shut they may want as they like: they do not run."""
        return self.want and self.level != SHUT


@dataclass(frozen=True, slots=True)
class Window:
    level: float
    cost: float
    share: float  # of its busy time at this level
    mhz: float  # the GPU's clock, 0 where it is not known
    bursts: int
    began_us: float
    host: float = 0.0  # of the cost, what the job's CPU took
    gap: float = 0.0  # and of that, with empty streams


def times_us(grown: Growth) -> tuple[float, float]:
    """How long the job took for its operations, and what its own CPU took of that, which sharing does not lengthen."""
    if grown.blocking_calls >= max(grown.bursts, grown.operations / MOST_AHEAD, 1):
        return grown.blocked_us + grown.own_cpu_us, grown.own_cpu_us
    return grown.busy_us, min(grown.gap_us, grown.busy_us)


@dataclass(slots=True)
class Part:
    """The stretches of one level since its last window."""

    began_us: float = 0.0
    grown: Growth = field(default_factory=Growth)
    worked_us: float = 0.0
    at_level_us: float = 0.0
    clocked: float = 0.0  # MHz times microseconds

    @property
    def is_window(self) -> bool:
        return (self.worked_us >= WINDOW_US and self.grown.bursts >= WINDOW_BURSTS) or (
            self.worked_us >= LONG_WINDOW_US and self.grown.operations >= LONG_WINDOW_OPERATIONS
        )

    @property
    def is_something(self) -> bool:
        return self.grown.bursts >= FEWEST_BURSTS or self.grown.operations >= FEWEST_OPERATIONS

    def add(self, stretch: Stretch, grown: Growth, level: float) -> None:
        self.began_us = self.began_us or stretch.began_us
        self.grown += grown
        self.worked_us += stretch.worked_us
        self.at_level_us += stretch.at_us[level]
        self.clocked += stretch.clocked

    def window(self, level: float) -> Window | None:
        busy_us, operations = self.grown.busy_us, self.grown.operations
        if busy_us <= 0 or not operations:
            return None
        took_us, host_us = times_us(self.grown)
        return Window(
            level,
            max(took_us / operations, SMALLEST_US),
            min(self.at_level_us / busy_us, 1.0),
            self.clocked / busy_us,
            self.grown.bursts,
            self.began_us,
            host_us / operations,
            self.grown.gap_us / operations,
        )


@dataclass(slots=True)
class Stretch:
    began_us: float
    first: Tenant
    worked_us: float = 0.0
    at_us: dict[float, float] = field(default_factory=lambda: {SHUT: 0.0, STRICT: 0.0, TOLERANT: 0.0})
    level: float = SHUT
    is_settled: bool = True
    ran_us: float = 0.0  # the lower classes
    clocked: float = 0.0

    def grown(self, tenant: Tenant) -> Growth:
        return Growth.of(self.first, tenant)


@dataclass(frozen=True, slots=True)
class Ended:
    """A stretch of any level: short, and so less exact than a window."""

    slowdown: float
    worked_us: float


@dataclass(slots=True)
class Alone:
    cost: float
    learned_us: float
    spread: float = FIRST_SPREAD
    windows: int = 1
    mhz: float = 0.0
    odd: float | None = None  # the cost of the last window, where that was another
    part: float = 1.0  # of the job's time that its cost is about
    exact: float = EXACT  # that the cost is to be known to
    is_assumed: bool = False  # nobody has measured it

    def slowdown(self, cost: float) -> float:
        return (cost / self.cost - 1) * self.part

    def ratio(self, slowdown: float) -> float:
        """Of a cost that means this slowdown to the cost alone."""
        return max(1 + slowdown / self.part, 0.01)

    def doubt(self, windows: float) -> float:
        return self.spread * math.sqrt(1 / max(windows, 1) + 1 / self.windows)

    def is_odd(self, difference: float) -> bool:
        return abs(difference) > ODD * self.doubt(1)

    def saw_difference(self, difference: float) -> None:
        """Between two windows that should have been equal; the mean of such is 0.8 of their spread."""
        self.spread += WEIGHT_OF_NEW * (min(abs(difference) / 0.8, 3 * self.spread) - self.spread)
        self.spread = max(self.spread, SMALLEST_SPREAD)

    def learn(self, window: Window, now_us: float) -> bool:
        """Returns whether it has changed: it was only assumed, or twice in a row it was another, and the same."""
        self.learned_us = now_us
        self.mhz = max(self.mhz, window.mhz)
        difference = self.slowdown(window.cost)
        earlier, self.odd = self.odd, None
        if self.is_assumed:
            self.cost, self.is_assumed = window.cost, False
            return True
        if self.is_odd(difference):
            # Another cost is the same each time; chance is not.
            if earlier is not None and abs(self.slowdown(earlier) - difference) < ALIKE * abs(difference):
                # What was still in flight can only have made one of them longer.
                self.cost, self.windows = min(earlier, window.cost), 2
                return True
            self.odd = window.cost
        if earlier is not None:
            self.include(earlier)
        if self.odd is None:
            self.include(window.cost)
        return False

    def assume(self, cost: float) -> None:
        """Until it is looked at."""
        self.cost, self.windows, self.odd, self.is_assumed = cost, 1, None, True

    def include(self, cost: float) -> None:
        self.saw_difference(self.slowdown(cost))
        most = min(max((self.spread / self.exact) ** 2, LEARNED), MOST_LEARNED)
        self.windows = min(self.windows + 1, round(most))
        # Of the first ones the cheapest counts: what still ran, and a clock that had to rise, only make them dearer.
        is_first = self.windows <= FIRST_LEARNED and cost < self.cost
        self.cost = cost if is_first else self.cost + (cost - self.cost) / self.windows


@dataclass(slots=True)
class Meter:
    """Measures one production job."""

    stretch: Stretch
    last: Tenant
    say: Callable[[str], None]
    alone: Alone | None = None
    host: float = 0.0  # what the job's CPU takes of an operation alone, a running mean
    gap: float = 0.0  # and of that with empty streams
    host_windows: int = 0
    own_cpu_us: float = 0.0  # of the last stretches
    asleep_us: float = 0.0
    sleeps: bool = False  # its threads do while they have nothing to do
    is_eager: bool = False  # it waits for its CPU for most of the time: it is judged by its GPU time
    parts: dict[float, Part] = field(default_factory=lambda: {SHUT: Part(), STRICT: Part(), TOLERANT: Part()})
    exposed_us: float = -math.inf  # when lower classes last may have run
    moved_us: float = -math.inf  # when memory was last seen moving
    paused_us: float = -math.inf  # when the job was last seen idle
    windows_learned: int = 0  # in this calibration
    ended: Ended | None = None  # with this tick
    exact: float = EXACT  # that the cost alone is to be known to

    @classmethod
    def of(cls, tenant: Tenant, now_us: float, say: Callable[[str], None]) -> Meter:
        return cls(Stretch(now_us, tenant), tenant, say, paused_us=-math.inf if tenant.has_work else now_us)

    def be_exact(self, promise: float | None) -> None:
        self.exact = min(EXACT, EXACT_OF_PROMISE * promise) if promise else EXACT
        if self.alone:
            self.alone.exact = self.exact

    def begin_look(self, now_us: float) -> None:
        """At the cost alone as it is now: what is left of an earlier look may be about another."""
        self.windows_learned = 0
        if now_us - self.parts[SHUT].began_us > LOOK_US:
            self.forget_parts(SHUT)

    def is_never_idle(self, now_us: float) -> bool:
        return now_us - self.paused_us > NEVER_IDLE_US

    def begin(self, tenant: Tenant, now_us: float) -> None:
        is_settled = now_us - self.exposed_us >= SETTLING_US
        self.stretch = Stretch(now_us, tenant, is_settled=is_settled)

    def look(
        self, tenant: Tenant, now_us: float, step_us: float, below: Below, mhz: float = 0.0
    ) -> Window | None:
        """At every tick. Returns the window that has become whole with it."""
        self.ended = None
        before, self.last = self.last, tenant
        busy_us = tenant.busy_us - before.busy_us
        is_at_work = tenant.has_work or busy_us > 0 or tenant.operations > before.operations
        is_alone = not below.may_run and below.ran_us <= (COMPANY + below.floors) * step_us
        if not is_alone:
            self.exposed_us = now_us
        # What was launched during a move is done at the next pause; a job that is never idle has none.
        is_never_idle = self.is_never_idle(now_us)
        is_behind = self.paused_us < self.moved_us and not is_never_idle
        if below.moves:
            self.moved_us = now_us
        if not tenant.has_work:
            self.paused_us = now_us
        if below.moves or is_behind:
            self.begin(tenant, now_us)
            return None
        window = None
        if is_never_idle and self.stretch.level == SHUT and self.stretch.is_settled and not is_alone:
            window = self.end(before, now_us - step_us)
        stretch = self.stretch
        level = SHUT if is_alone else max(below.level, STRICT)
        stretch.level = max(stretch.level, level)
        stretch.at_us[level] += busy_us * (below.duty if level == STRICT else 1.0)
        stretch.worked_us += step_us if is_at_work else 0.0
        stretch.clocked += mhz * busy_us
        is_ripe = is_never_idle and (
            stretch.worked_us >= CUT_US
            or (is_alone and stretch.level > SHUT and now_us - self.exposed_us >= SETTLING_US)
        )
        if not tenant.has_work or is_ripe:
            window = self.end(tenant, now_us) or window
        return window

    def end(self, tenant: Tenant, now_us: float) -> Window | None:
        """Of a stretch."""
        stretch = self.stretch
        grown = stretch.grown(tenant)
        self.begin(tenant, now_us)
        if grown.operations <= 0:
            return None
        self.know_sleep(grown)
        grown = self.counted(grown)
        self.ended = self.in_short(stretch, grown)
        # What follows at once is still slowed down by what was.
        level = stretch.level if stretch.is_settled else max(stretch.level, STRICT)
        part = self.parts[level]
        part.add(stretch, grown, level)
        return self.close(level, now_us) if part.is_window else None

    def know_sleep(self, grown: Growth) -> None:
        self.own_cpu_us += grown.own_cpu_us - self.own_cpu_us / STRETCHES
        self.asleep_us += grown.asleep_us - self.asleep_us / STRETCHES
        sleeps = self.asleep_us > (SLEEPS_TO if self.sleeps else SLEEPS_FROM) * self.own_cpu_us
        if sleeps != self.sleeps:
            self.sleeps, self.alone = sleeps, None
            self.forget_parts()

    def counted(self, grown: Growth) -> Growth:
        """Of its threads' CPU time only what may be work: between bursts one that never sleeps may spin."""
        if self.sleeps:
            return grown
        in_bursts_us = max(grown.busy_us - grown.blocked_us, 0.0)
        return replace(grown, own_cpu_us=min(grown.own_cpu_us, in_bursts_us))

    def in_short(self, stretch: Stretch, grown: Growth) -> Ended | None:
        window = Part(grown=grown).window(stretch.level)
        if window is None or self.alone is None:
            return None
        return Ended(self.alone.slowdown(self.judged(window).cost), stretch.worked_us)

    def close(self, level: float, now_us: float) -> Window | None:
        window = self.parts[level].window(level)
        self.parts[level] = Part()
        return window

    def without_host(self, window: Window) -> Window:
        """Of an eager job, what sharing can lengthen."""
        return replace(window, cost=max(window.cost - window.host, SMALLEST_US)) if self.is_eager else window

    def judged(self, window: Window) -> Window:
        """Beside others. A job may wait for the GPU in a way that nobody sees, so where an eager job's GPU time and its
        whole time have both grown grossly, that counts: sharing can have cost it no more than either."""
        judged = self.without_host(window)
        if judged is window or self.alone is None:
            return judged
        whole = self.alone.cost + self.host
        grown = window.cost - whole - max(window.gap - self.gap, 0.0)
        return replace(window, cost=self.alone.cost + grown) if grown > GROSSLY * whole else judged

    def drags_on(self, tenant: Tenant, slowdown: float) -> bool:
        """Whether the stretch so far is slowed down by more than this already, however soon it ends."""
        window = Part(grown=self.counted(self.stretch.grown(tenant))).window(TOLERANT)
        if window is None or self.alone is None:
            return False
        return self.alone.slowdown(self.judged(window).cost) > slowdown

    def forget_parts(self, *levels: float) -> None:
        for level in levels or self.parts:
            self.parts[level] = Part()

    def know_host(self, window: Window) -> None:
        """From a window alone."""
        self.host_windows = min(self.host_windows + 1, HOST_WINDOWS)
        self.host += (window.host - self.host) / self.host_windows
        self.gap += (window.gap - self.gap) / self.host_windows
        run = max(window.cost - window.host, SMALLEST_US)
        waits = self.host / (run + self.host)
        is_eager = waits > (WAITS_TO if self.is_eager else WAITS_FROM)
        if is_eager != self.is_eager:
            self.is_eager, self.alone = is_eager, None
        if self.alone is not None:
            self.alone.part = self.part

    @property
    def part(self) -> float:
        if not self.is_eager or self.alone is None:
            return 1.0
        return self.alone.cost / (self.alone.cost + self.host)

    def learn(self, window: Window, now_us: float) -> bool:
        """From a window alone. Returns whether the cost alone has changed."""
        self.windows_learned += 1
        self.know_host(window)
        window = self.without_host(window)
        if self.alone is None:
            self.alone = Alone(window.cost, now_us, mhz=window.mhz, exact=self.exact)
            self.alone.part = self.part
            what = f"{window.bursts} bursts" if window.bursts else "a job that was never idle"
            self.say(
                f"Learned from {what} that an operation takes {window.cost:.1f} us of GPU time while no lower "
                "class runs."
            )
            return True
        before = self.alone.cost
        if not self.alone.learn(window, now_us):
            return False
        self.say(f"An operation takes {self.alone.cost:.1f} us alone now (before {before:.1f} us).")
        return True
