"""What an operation of a production job costs, and how much more that is beside others than alone.

    cost     = d(busy_us) / d(operations)       GPU-busy time that one operation takes
    alone    = the cost while nobody below runs, a running mean with its spread
    slowdown = cost / alone - 1
    doubt    = spread * sqrt(1 / n + 1 / k)     about the mean of n; `alone` was learned in k windows

A window closes after 100 ms and 8 bursts, or after 400 ms and 200 operations (a job that is never idle), not before
every level that is taken in turn has had its share, and between two bursts where there are any.

Time in which the memory of one below moved to the host or back is left out of every window, as are the bursts that it
fell into: no lever stops a move, so it is neither the cost alone nor a slowdown that a position could be blamed for.

The cost alone is learned from every window in which nobody below ran, so from their pauses too. Where it is needed and
not known, they are shut for up to 0.4 s, and again when that knowledge is 30 s old (10 s where the job is noisy), or
when the job's bursts have changed by over half: under load some run together, and that is no other job.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cotenant.policies.back_off import BackOff
from cotenant.policies.interface import Tenant
from cotenant.policies.window import Growth

WINDOW_US, WINDOW_BURSTS = 100_000, 8
LONG_WINDOW_US, LONG_WINDOW_OPERATIONS = 400_000, 200
MOST_WINDOWS = 16  # slowdowns until their mean is taken for what it is
COMPANY = 0.01  # of the time that those below may have run in a window that counts as alone

PAUSES_US = 10_000_000  # a job that has not been idle for longer is never idle

FIRST_SPREAD, SMALLEST_SPREAD = 0.02, 0.005
WEIGHT_OF_NEW = 0.3  # in the running mean of the spread
MOST_LEARNED = 10  # windows in that of the cost alone
ANOTHER_COST, OTHER_BURSTS = 0.2, 0.5
FIRST_BACK_OFF_US, LONGEST_BACK_OFF_US = 5_000_000, 60_000_000

CALIBRATION_US, SETTLING_US = 400_000, 20_000
CALIBRATION_WINDOWS = 3
FEWEST_BURSTS, FEWEST_OPERATIONS = 3, 100  # that are enough at its end; a slower job is learned in several
RETRY_US = 4_000_000
KNOWN_FOR_US, BARELY_KNOWN_FOR_US = 30_000_000, 10_000_000


@dataclass(frozen=True, slots=True)
class Below:
    """What all tenants below production did since the last tick."""

    ran_us: float
    done: int  # operations
    floors: float  # share of the GPU that they were promised together
    want: bool  # to run
    may_run: bool
    moves: bool  # the memory of one of them did


@dataclass(slots=True)
class Window:
    began_us: float
    first: Tenant  # the job as it was then
    ran_us: float = 0.0  # those below
    is_alone: bool = True
    is_wanted: bool = False  # by those below
    # The last look that it could have ended at.
    last_us: float = field(init=False)
    last: Tenant = field(init=False)

    def __post_init__(self) -> None:
        self.last_us, self.last = self.began_us, self.first

    def look(self, tenant: Tenant, now_us: float) -> None:
        if self.is_between_bursts(tenant):
            self.last_us, self.last = now_us, tenant

    def leave_out(self, tenant: Tenant, now_us: float) -> None:
        """What has happened since the last look, as if the window had begun so much later."""
        self.began_us += now_us - self.last_us
        self.first = replace(
            self.first,
            operations=self.first.operations + tenant.operations - self.last.operations,
            bursts=self.first.bursts + tenant.bursts - self.last.bursts,
            busy_us=self.first.busy_us + tenant.busy_us - self.last.busy_us,
        )
        self.last_us, self.last = now_us, tenant

    def is_between_bursts(self, tenant: Tenant) -> bool:
        """Or never idle."""
        return not (tenant.has_work and self.grown(tenant).bursts)

    def grown(self, tenant: Tenant) -> Growth:
        return Growth(
            operations=tenant.operations - self.first.operations,
            bursts=tenant.bursts - self.first.bursts,
            busy_us=tenant.busy_us - self.first.busy_us,
        )

    def is_whole(self, tenant: Tenant, now_us: float, mixing_us: float) -> bool:
        elapsed = now_us - self.began_us
        shortest = WINDOW_US if self.is_alone else max(WINDOW_US, mixing_us)
        if elapsed < shortest:
            return False
        long, grown = max(shortest, LONG_WINDOW_US), self.grown(tenant)
        if not self.is_between_bursts(tenant) and elapsed < 2 * long:
            return False
        has_many_operations = elapsed >= long and grown.operations >= LONG_WINDOW_OPERATIONS
        return grown.bursts >= WINDOW_BURSTS or has_many_operations


def cost_of(grown: Growth) -> float:
    return grown.busy_us / max(grown.operations, 1)


def operations_per_burst(grown: Growth) -> float:
    """0: no burst began, it was never idle."""
    return grown.operations / grown.bursts if grown.bursts else 0.0


@dataclass(slots=True)
class Alone:
    cost: float
    operations_per_burst: float
    learned_us: float
    spread: float = FIRST_SPREAD
    windows: int = 1

    def slowdown(self, grown: Growth) -> float:
        return cost_of(grown) / self.cost - 1

    def doubt(self, windows: int) -> float:
        return self.spread * math.sqrt(1 / windows + 1 / self.windows)

    def saw_difference(self, difference: float) -> None:
        """Between two windows that should have been equal; the mean of such is 0.8 of their spread."""
        self.spread += WEIGHT_OF_NEW * (abs(difference) / 0.8 - self.spread)
        self.spread = max(self.spread, SMALLEST_SPREAD)

    def learn(self, grown: Growth, now_us: float) -> None:
        self.saw_difference(self.slowdown(grown))
        self.windows = min(self.windows + 1, MOST_LEARNED)
        self.cost += (cost_of(grown) - self.cost) / self.windows
        self.operations_per_burst = operations_per_burst(grown) or self.operations_per_burst
        self.learned_us = now_us

    def has_other_bursts(self, grown: Growth) -> bool:
        known, seen = self.operations_per_burst, operations_per_burst(grown)
        return bool(known and seen) and abs(seen / known - 1) > OTHER_BURSTS


@dataclass(slots=True)
class Meter:
    """Measures one production job."""

    window: Window
    say: Callable[[str], None]
    alone: Alone | None = None
    slowdowns: list[float] = field(default_factory=list)  # since the last move
    since_us: float = 0.0  # when the first of them began
    moved_us: float = -math.inf  # when memory was last seen moving
    paused_us: float = -math.inf  # when the job was last seen idle
    windows_learned: int = 0  # in this calibration
    gathered: Growth = field(default_factory=Growth)  # in calibrations that were too short
    learn_from_us: float = 0.0  # no calibration before
    changed: int = 0  # windows in a row whose bursts were another job's
    change_back_off: BackOff = field(default_factory=lambda: BackOff(FIRST_BACK_OFF_US, LONGEST_BACK_OFF_US))

    def restart(self, tenant: Tenant, now_us: float) -> None:
        self.window = Window(now_us, tenant)

    def watch(self, tenant: Tenant, now_us: float, below: Below, calibrating: bool) -> bool:
        """Whether the window may be measured; else it was begun anew, or this moment is left out of it."""
        window = self.window
        # What was launched during a move is done at the next pause; a job that is never idle has none.
        is_behind = self.paused_us < self.moved_us and now_us - self.paused_us < PAUSES_US
        if below.moves:
            self.moved_us = now_us
        if not tenant.has_work:
            self.paused_us = now_us
        if below.moves or is_behind:
            window.leave_out(tenant, now_us)
            return False
        window.look(tenant, now_us)
        elapsed = now_us - window.began_us
        window.is_wanted |= below.want
        window.ran_us += below.ran_us
        # A floor is a promise too: what it lets through can never be kept away.
        if below.may_run or window.ran_us > (COMPANY + below.floors) * elapsed:
            window.is_alone = False
        # Operations are counted when they are launched: only between bursts does the busy time fit them.
        is_first_pause = window.first.has_work and not tenant.has_work and elapsed < WINDOW_US / 2
        if is_first_pause or (calibrating and not window.is_alone):
            self.restart(tenant, now_us)
            return False
        return True

    def measure(self, tenant: Tenant, now_us: float, mixing_us: float, calibrating: bool) -> bool:
        """Closes the window where it is whole. Returns whether that brought another slowdown."""
        window = self.window
        if not window.is_whole(tenant, now_us, mixing_us):
            return False
        grown = window.grown(tenant)
        self.restart(tenant, now_us)
        if window.is_alone:
            self.learn(grown, now_us)
        # Those that are shut by the position and want to run are owed another try.
        counts = not window.is_alone or (window.is_wanted and not calibrating)
        if not counts or self.alone is None or self.is_another_job(grown, self.alone, now_us):
            return False
        slowdown = self.alone.slowdown(grown)
        if self.slowdowns:
            # Both are off by as much.
            self.alone.saw_difference((slowdown - self.slowdowns[-1]) / math.sqrt(2))
        else:
            self.since_us = window.began_us
        self.slowdowns.append(slowdown)
        return True

    def learn(self, grown: Growth, now_us: float) -> None:
        cost = cost_of(grown)
        if cost <= 0:
            return
        self.windows_learned += 1
        self.changed, self.gathered = 0, Growth()
        if self.alone is None:
            self.alone = Alone(cost, operations_per_burst(grown), now_us)
            what = f"{grown.bursts} bursts" if grown.bursts else "a job that was never idle"
            self.say(
                f"Learned from {what} that an operation takes {cost:.1f} us of GPU time while nobody below runs."
            )
            return
        before = self.alone.cost
        self.alone.learn(grown, now_us)
        if abs(cost / before - 1) > ANOTHER_COST:
            self.alone.cost, self.alone.spread, self.slowdowns = cost, FIRST_SPREAD, []
            self.say(f"An operation takes {cost:.1f} us alone now (before {before:.1f} us).")

    def is_another_job(self, grown: Growth, alone: Alone, now_us: float) -> bool:
        """Twice in a row the bursts were others than were learned: the cost alone has to be learned again."""
        if not alone.has_other_bursts(grown):
            self.changed = 0
            return False
        self.changed += 1
        # Bursts may also change because they queue up. Then each time is further from the last.
        if self.changed < 2 or self.change_back_off.holds(now_us):
            return False
        self.say(
            f"Its bursts have {operations_per_burst(grown):.3g} operations now (before "
            f"{alone.operations_per_burst:.3g}): what they cost alone is learned again."
        )
        self.change_back_off.begin(now_us)
        self.alone, self.slowdowns, self.changed, self.learn_from_us = None, [], 0, 0.0
        return True

    def is_calibration_due(self, now_us: float, limit: float) -> bool:
        """To tell whether slowdowns are over the limit."""
        if now_us < self.learn_from_us:
            return False
        if self.alone is None:
            return True
        is_sure = self.alone.doubt(MOST_WINDOWS) < limit / 2
        return now_us - self.alone.learned_us > (KNOWN_FOR_US if is_sure else BARELY_KNOWN_FOR_US)

    def begin_calibration(self, tenant: Tenant, now_us: float) -> None:
        self.restart(tenant, now_us + SETTLING_US)  # what was in flight still runs for a moment
        self.windows_learned = 0

    def gather(self, tenant: Tenant, now_us: float) -> None:
        """At the end of a calibration that saw too little for a window."""
        self.gathered += self.window.grown(tenant)
        self.learn_from_us = now_us + RETRY_US
        if self.gathered.bursts >= FEWEST_BURSTS or self.gathered.operations >= FEWEST_OPERATIONS:
            self.learn(self.gathered, now_us)
