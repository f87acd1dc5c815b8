"""guard: a production job slows down by no more than was promised, and everything else is given away.

What it measures, for each production job and window of time:

    cost     = d(busy_us) / d(operations)       GPU-busy time that one operation takes
    alone    = the cost while nobody below runs, a running mean with its spread
    slowdown = cost / alone - 1

A window closes after 100 ms and 8 bursts, or after 400 ms and 200 operations (a job that is never idle), not before
every position that is being mixed has had its share, and between two bursts where there are any. Neighbours are all
tenants below production.

What it turns, a position for each production job; the smallest counts:

    0  those below are shut      1  they run while production is idle      2  production tolerates company

Between two whole positions both are taken in turn, HOLD_US each, so that the mean is the position. With the mean m of
the slowdowns in the n windows since the last move, the k windows in which `alone` was learned, and the promise P:

    doubt = spread * sqrt(1 / n + 1 / k)
    m - doubt > 0.9 * P      position -= FALL * (m - 0.9 P) / P, at least a step and at most half a position
    m + doubt < 0.7 * P      position += a step or two
    else, after 16 windows   the same by m alone

A stated promise goes first: it may take the position to 0. Where it was too much is not tried again for a while: 5 s,
and twice as long each time it proves so again.

A job without a stated promise stands at 1, so every pause of it is given away, or at 2 where company is harmless. It is
tried at 2 when its slowdown at 1 is under HARMLESS, and no sooner than after a minute at work beside others. Company
then has a few windows to prove harmless, and where two bursts are slowed down grossly that is the end of it; the next
try is twice as far away. A job so noisy that a few windows could prove nothing is not tried at all. It is never in
between: a mean that looks harmless may be a few requests that are not.

Company must also be worth it. Where those below get less than GAIN more done while production tolerates them than
while they have its pauses only, no position is over 1 for a minute, and twice as long each time it proves so again.

Where the cost alone is needed and not known, those below are shut for up to 0.4 s, and again when that knowledge is
30 s old (about 1 % of the time, and none where they pause by themselves), or when the job's bursts have changed by over
half: under load some run together, and that is no other job. Without a stated promise it is needed for a try only.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from cotenant.classes import TenantClass
from cotenant.policies.interface import Knobs, Rule, Tenant, TenantId, TenantKnobs, View

HARMLESS = 0.02
REMARKABLE = 0.05  # a slowdown that is worth a word where nothing was promised
SHUT, STRICT, TOLERANT = 0, 1, 2
STEPS = 20  # between two whole positions
HOLD_US = 40_000
WINDOW_US, WINDOW_BURSTS = 100_000, 8
LONG_WINDOW_US, LONG_WINDOW_OPERATIONS = 400_000, 200
MOST_WINDOWS = 16
FALL, LARGEST_FALL = 4, STEPS // 2  # steps for each promise that it is over
ROOM, AIM = 0.7, 0.9  # of the promise; between the two nothing is moved
CALIBRATION_US, SETTLING_US = 400_000, 20_000
CALIBRATION_WINDOWS = 3
FEWEST_BURSTS, FEWEST_OPERATIONS = 3, 100  # that are enough at its end; a slower job is learned in several
KNOWN_FOR_US, BARELY_KNOWN_FOR_US = 30_000_000, 10_000_000
RETRY_US = 4_000_000
FIRST_BACK_OFF_US, LONGEST_BACK_OFF_US = 5_000_000, 60_000_000
FIRST_TRY_BACK_OFF_US, LONGEST_TRY_BACK_OFF_US = 60_000_000, 600_000_000
TRIAL_WINDOWS, TRIAL_BURSTS = 4, 2
GROSS = 0.1
ANOTHER_COST, OTHER_BURSTS = 0.2, 0.5
GAIN = 0.05
HARVEST_HALF_LIFE_US, ENOUGH_HARVEST_US = 10_000_000, 1_000_000
ACTIVE_US = 2_000_000  # a job that has launched nothing for so long is not looked after
FIRST_SPREAD, SMALLEST_SPREAD = 0.02, 0.005
WEIGHT_OF_NEW = 0.3  # in the running mean of the spread
MOST_LEARNED = 10  # windows in that of the cost alone
COMPANY = 0.01  # of the time that those below may have run in a window that counts as alone
DECISIONS = 20


@dataclass(slots=True)
class Window:
    began_us: float
    busy_us: float
    operations: int
    bursts: int
    ran_us: float = 0.0  # those below
    is_alone: bool = True
    is_wanted: bool = False  # by those below
    began_idle: bool = False


@dataclass(slots=True)
class Alone:
    cost: float
    operations_per_burst: float  # 0: it was never idle
    learned_us: float
    spread: float = FIRST_SPREAD
    windows: int = 1

    def doubt(self, windows: int) -> float:
        return self.spread * math.sqrt(1 / windows + 1 / self.windows)

    def saw_difference(self, difference: float) -> None:
        """Between two windows that should have been equal; the mean of such is 0.8 of their spread."""
        self.spread += WEIGHT_OF_NEW * (abs(difference) / 0.8 - self.spread)
        self.spread = max(self.spread, SMALLEST_SPREAD)

    def learn(self, cost: float, operations_per_burst: float, now_us: float) -> None:
        self.saw_difference(cost / self.cost - 1)
        self.windows = min(self.windows + 1, MOST_LEARNED)
        self.cost += (cost - self.cost) / self.windows
        if operations_per_burst:
            self.operations_per_burst = operations_per_burst
        self.learned_us = now_us


@dataclass(slots=True)
class Harvest:
    """What those below got done at a level, of late."""

    operations: float = 0.0
    time_us: float = 0.0

    def add(self, operations: int, time_us: float) -> None:
        kept = 0.5 ** (time_us / HARVEST_HALF_LIFE_US)
        self.operations = self.operations * kept + operations
        self.time_us = self.time_us * kept + time_us

    @property
    def rate(self) -> float:
        return self.operations / self.time_us if self.time_us else 0.0


@dataclass(slots=True)
class Job:
    """What is known about one production job, and where its lever stands."""

    promise: float | None  # None: nothing was stated
    window: Window
    position: int = STRICT * STEPS
    alone: Alone | None = None
    slowdowns: list[float] = field(default_factory=list)  # since the last move
    since_us: float = 0.0
    active_us: float = 0.0  # when it last launched something
    operations: int = 0
    learn_from_us: float = 0.0  # no calibration before
    partial: Window | None = None  # what calibrations that were too short have gathered
    windows_learned: int = 0  # in this calibration
    changed: int = 0  # windows in a row whose bursts were another job's
    change_back_off_us: float = FIRST_BACK_OFF_US
    change_from_us: float = 0.0
    ceiling: int = TOLERANT * STEPS
    ceiling_until_us: float = 0.0
    back_off_us: float = FIRST_BACK_OFF_US
    shared_us: float = 0.0  # at work while those below wanted to be
    try_at_us: float = FIRST_TRY_BACK_OFF_US  # of that
    try_back_off_us: float = FIRST_TRY_BACK_OFF_US
    is_on_trial: bool = False
    decisions: deque[str] = field(default_factory=lambda: deque(maxlen=DECISIONS))

    def say(self, line: str) -> None:
        if not self.decisions or self.decisions[0] != line:
            self.decisions.appendleft(line)


class Guard:
    name: ClassVar[str] = "guard"
    title: ClassVar[str] = "production slows down by no more than promised; everything else is given away"
    every_ms: ClassVar[float] = 10
    rule: ClassVar[Rule] = Rule.strict

    def __init__(self) -> None:
        self.jobs: dict[TenantId, Job] = {}
        self.below: dict[TenantId, Tenant] = {}  # at the last tick
        self.ticked_us = 0.0
        self.harvest = {STRICT: Harvest(), TOLERANT: Harvest()}
        self.tolerance_from_us = 0.0
        self.tolerance_back_off_us: float = FIRST_TRY_BACK_OFF_US
        self.calibrating_since_us: float | None = None
        self.level = STRICT
        self.mix = 0  # steps of the position that the levels taken so far still owe
        self.hold_until_us = 0.0

    def tick(self, view: View) -> Knobs:
        production = view.of_class(TenantClass.production)
        below = [tenant for tenant in view.tenants if tenant.tenant_class is not TenantClass.production]
        ran_us = sum(max(0.0, one.used_us - self.below.get(one.id, one).used_us) for one in below)
        done = sum(max(0, one.operations - self.below.get(one.id, one).operations) for one in below)
        wanted = any(one.has_work for one in below)
        self.jobs = {one.id: self.job_of(one, view.now_us) for one in production}
        # At position 0 those below may want as they like: they do not run.
        company = wanted and self.level != SHUT
        floors = sum(one.floor for one in below)
        for tenant in production:
            self.jobs[tenant.id].window.is_wanted |= wanted
            if wanted and is_at_work(self.jobs[tenant.id], view.now_us):
                self.jobs[tenant.id].shared_us += view.now_us - self.ticked_us
            self.look(self.jobs[tenant.id], tenant, view.now_us, ran_us, company, floors)
        self.weigh_company(done, view.now_us, wanted)
        self.below, self.ticked_us = {one.id: one for one in below}, view.now_us
        self.calibrate(production, view.now_us, wanted)
        self.choose_level(view.now_us)
        knobs = {}
        if self.level == SHUT:
            knobs = {one.id: TenantKnobs(shut=True) for one in below}
        elif self.level == TOLERANT:
            knobs = {one.id: TenantKnobs(tolerant=True) for one in production}
        return Knobs(rule=self.rule, tenants=knobs)

    def explain(self, tenant: TenantId) -> list[str]:
        if job := self.jobs.get(tenant):
            return told_of(job)
        if tenant not in self.below:
            return []
        leading = min(self.jobs.values(), key=lambda job: job.position, default=None)
        return told_of(leading) if leading else ["No production job is on its GPU."]

    def job_of(self, tenant: Tenant, now_us: float) -> Job:
        job = self.jobs.get(tenant.id)
        if job is None:
            job = Job(tenant.slowdown, window_from(tenant, now_us), operations=tenant.operations)
            job.active_us = now_us if tenant.has_work else -math.inf
        if job.promise != tenant.slowdown:
            job.promise, job.position, job.is_on_trial = tenant.slowdown, STRICT * STEPS, False
            job.ceiling, job.slowdowns = TOLERANT * STEPS, []
        if tenant.operations > job.operations:
            job.active_us = now_us
        job.operations = tenant.operations
        return job

    def look(
        self, job: Job, tenant: Tenant, now_us: float, ran_us: float, company: bool, floors: float
    ) -> None:
        window = job.window
        window.ran_us += ran_us
        elapsed = now_us - window.began_us
        # A floor is a promise too: what it lets through can never be kept away.
        if company or window.ran_us > (COMPANY + floors) * elapsed:
            window.is_alone = False
        if self.calibrating_since_us is not None and not window.is_alone:
            job.window = window_from(tenant, now_us)
            return
        if not window.began_idle and not tenant.has_work and elapsed < WINDOW_US / 2:
            # Operations are counted when they are launched: only between bursts does the busy time fit them.
            job.window = window_from(tenant, now_us)
            return
        bursts, operations = tenant.bursts - window.bursts, tenant.operations - window.operations
        if job.is_on_trial and bursts >= TRIAL_BURSTS and not tenant.has_work and is_gross(job, tenant):
            job.window = window_from(tenant, now_us)
            return_from_company(job)
            job.say(
                f"Company was tried, and slowed it down by over {GROSS:.0%}: {in_words(job.position)} now."
            )
            return
        shortest = WINDOW_US if window.is_alone else max(WINDOW_US, mixing_period_us(job.position))
        is_whole = (elapsed >= shortest and bursts >= WINDOW_BURSTS) or (
            elapsed >= max(shortest, LONG_WINDOW_US) and operations >= LONG_WINDOW_OPERATIONS
        )
        if not is_whole or (tenant.has_work and bursts and elapsed < 2 * max(shortest, LONG_WINDOW_US)):
            return
        job.window = window_from(tenant, now_us)
        cost, per_burst = cost_of(window, tenant)
        if window.is_alone:
            learn(job, cost, per_burst, bursts, now_us)
        # Those that are shut by the position and want to run are owed another try.
        judged = not window.is_alone or (window.is_wanted and self.calibrating_since_us is None)
        if judged and job.alone is not None and not is_another_job(job, per_burst, now_us):
            job.slowdowns.append(cost / job.alone.cost - 1)
            if len(job.slowdowns) == 1:
                job.since_us = window.began_us
            else:
                # Both are off by as much.
                job.alone.saw_difference((job.slowdowns[-1] - job.slowdowns[-2]) / math.sqrt(2))
            # Before company is tried, it must be known what those below get done without.
            compared = self.harvest[STRICT].time_us >= ENOUGH_HARVEST_US and now_us >= self.tolerance_from_us
            move(job, now_us, (TOLERANT if compared else STRICT) * STEPS)

    def weigh_company(self, done: int, now_us: float, wanted: bool) -> None:
        active = any(is_at_work(job, now_us) for job in self.jobs.values())
        if not wanted or not active or self.level not in self.harvest:
            return
        self.harvest[self.level].add(done, now_us - self.ticked_us)
        strict, tolerant = self.harvest[STRICT], self.harvest[TOLERANT]
        if min(strict.time_us, tolerant.time_us) < ENOUGH_HARVEST_US or not strict.rate:
            return
        gain = tolerant.rate / strict.rate - 1
        if gain >= GAIN:
            return
        self.harvest[TOLERANT] = Harvest()
        self.tolerance_from_us = now_us + self.tolerance_back_off_us
        self.tolerance_back_off_us = min(2 * self.tolerance_back_off_us, LONGEST_TRY_BACK_OFF_US)
        for job in self.jobs.values():
            if job.position > STRICT * STEPS:
                job.position, job.slowdowns, job.is_on_trial = STRICT * STEPS, [], False
                job.say(f"Company brought those below {gain:+.1%}: {in_words(job.position)} now.")

    def calibrate(self, production: Sequence[Tenant], now_us: float, wanted: bool) -> None:
        needing = [
            (self.jobs[tenant.id], tenant)
            for tenant in production
            if needs_calibration(self.jobs[tenant.id], now_us)
        ]
        if self.calibrating_since_us is None:
            if needing and wanted:
                self.calibrating_since_us = now_us
                for tenant in production:
                    # What was in flight still runs for a moment.
                    self.jobs[tenant.id].window = window_from(tenant, now_us + SETTLING_US)
                    self.jobs[tenant.id].windows_learned = 0
            return
        unlearned = [(job, tenant) for job, tenant in needing if job.windows_learned == 0]
        over = now_us - self.calibrating_since_us >= CALIBRATION_US
        enough = all(self.jobs[tenant.id].windows_learned >= CALIBRATION_WINDOWS for tenant in production)
        if over or enough or not wanted or not production:
            for job, tenant in unlearned:
                gather(job, tenant, now_us)
            self.calibrating_since_us = None
            for tenant in production:
                self.jobs[tenant.id].window = window_from(tenant, now_us)

    def choose_level(self, now_us: float) -> None:
        if self.calibrating_since_us is not None:
            self.level, self.hold_until_us = SHUT, 0.0
            return
        positions = [job.position for job in self.jobs.values() if is_at_work(job, now_us)]
        if not positions:
            self.level, self.hold_until_us = STRICT, 0.0
            return
        if now_us < self.hold_until_us:
            return
        lower, part = divmod(min(positions), STEPS)
        self.mix += part
        self.level = lower + self.mix // STEPS if part else lower
        self.mix %= STEPS
        self.hold_until_us = now_us + HOLD_US


def told_of(job: Job) -> list[str]:
    stated = (
        "Its promise is being looked after" if job.promise else "No slowdown was stated for it (--slowdown)"
    )
    return list(job.decisions) or [f"{stated}: {in_words(job.position)}."]


def window_from(tenant: Tenant, now_us: float) -> Window:
    return Window(now_us, tenant.busy_us, tenant.operations, tenant.bursts, began_idle=not tenant.has_work)


def is_at_work(job: Job, now_us: float) -> bool:
    return now_us - job.active_us < ACTIVE_US


def mixing_period_us(position: int) -> float:
    part = position % STEPS
    return HOLD_US * STEPS / min(part, STEPS - part) if part else 0.0


def cost_of(window: Window, tenant: Tenant) -> tuple[float, float]:
    """Of an operation, and how many a burst had; 0 where no burst began."""
    operations, bursts = tenant.operations - window.operations, tenant.bursts - window.bursts
    return (tenant.busy_us - window.busy_us) / max(operations, 1), operations / bursts if bursts else 0.0


def needs_calibration(job: Job, now_us: float) -> bool:
    if not is_at_work(job, now_us) or now_us < job.learn_from_us:
        return False
    # Strict without a promise: nothing is judged before the next try.
    if job.promise is None and job.position == STRICT * STEPS and job.shared_us < job.try_at_us:
        return False
    if job.alone is None:
        return True
    is_sure = job.alone.doubt(MOST_WINDOWS) < (job.promise or REMARKABLE) / 2
    return now_us - job.alone.learned_us > (KNOWN_FOR_US if is_sure else BARELY_KNOWN_FOR_US)


def learn(job: Job, cost: float, per_burst: float, bursts: int, now_us: float) -> None:
    if cost <= 0:
        return
    job.windows_learned += 1
    job.changed, job.partial = 0, None
    if job.alone is None:
        job.alone = Alone(cost, per_burst, now_us)
        what = f"{bursts} bursts" if bursts else "a job that was never idle"
        job.say(
            f"Learned from {what} that an operation takes {cost:.1f} us of GPU time while nobody below runs."
        )
        return
    before = job.alone.cost
    job.alone.learn(cost, per_burst, now_us)
    if abs(cost / before - 1) > ANOTHER_COST:
        job.alone.cost, job.alone.spread, job.slowdowns = cost, FIRST_SPREAD, []
        job.say(f"An operation takes {cost:.1f} us alone now (before {before:.1f} us).")


def gather(job: Job, tenant: Tenant, now_us: float) -> None:
    """At the end of a calibration that saw too little for a window."""
    window, gathered = job.window, job.partial or Window(0.0, 0.0, 0, 0)
    gathered.busy_us += tenant.busy_us - window.busy_us
    gathered.operations += tenant.operations - window.operations
    gathered.bursts += tenant.bursts - window.bursts
    job.partial = gathered
    job.learn_from_us = now_us + RETRY_US
    if gathered.bursts >= FEWEST_BURSTS or gathered.operations >= FEWEST_OPERATIONS:
        per_burst = gathered.operations / gathered.bursts if gathered.bursts else 0.0
        learn(job, gathered.busy_us / max(gathered.operations, 1), per_burst, gathered.bursts, now_us)


def is_another_job(job: Job, per_burst: float, now_us: float) -> bool:
    """Twice in a row the bursts were others than those that were learned: the cost alone has to be learned again."""
    assert job.alone is not None
    known = job.alone.operations_per_burst
    if not known or not per_burst or abs(per_burst / known - 1) <= OTHER_BURSTS:
        job.changed = 0
        return False
    job.changed += 1
    if job.changed < 2 or now_us < job.change_from_us:
        return False
    job.say(
        f"Its bursts have {per_burst:.3g} operations now (before {known:.3g}): what they cost alone is learned again."
    )
    # Bursts may also change because they queue up. Then each time is further from the last.
    job.change_from_us = now_us + job.change_back_off_us
    job.change_back_off_us = min(2 * job.change_back_off_us, LONGEST_BACK_OFF_US)
    job.alone, job.slowdowns, job.changed, job.learn_from_us = None, [], 0, 0.0
    return True


def move(job: Job, now_us: float, highest: int) -> None:
    """With another window's slowdown: moves, to no more than `highest`, or waits for more of them."""
    assert job.alone is not None
    n = len(job.slowdowns)
    mean = sum(job.slowdowns) / n
    doubt = job.alone.doubt(n) if n < MOST_WINDOWS else 0.0
    before = job.position
    if job.promise is None:
        is_clear = try_company(job, mean, doubt, highest)
    else:
        is_clear = keep_promise(job, job.promise, mean, doubt, now_us, highest)
    if not is_clear and n < MOST_WINDOWS:
        return
    if job.position != before:
        limit = f"promised are {job.promise:.1%}" if job.promise else f"harmless are {HARMLESS:.0%}"
        job.say(
            f"It was slowed down by {mean:.1%} over the last {(now_us - job.since_us) / 1e6:.1f} s, {limit}: "
            f"{in_words(job.position)} now (before: {in_words(before)})."
        )
    elif job.promise is None and mean - doubt > REMARKABLE:
        job.say(
            f"It is slowed down by over {REMARKABLE:.0%} although those below run only in its pauses; with a "
            "stated promise (--slowdown) they would be shut for a part of the time."
        )
    job.slowdowns = []


def try_company(job: Job, mean: float, doubt: float, highest: int) -> bool:
    """Whether the windows so far were clear enough to move, or to stay."""
    assert job.alone is not None
    if job.position == TOLERANT * STEPS:
        if mean + 2 * doubt <= HARMLESS:
            job.is_on_trial = False
            return True
        is_over = job.is_on_trial and len(job.slowdowns) >= TRIAL_WINDOWS
        if mean - 2 * doubt <= HARMLESS and not is_over:
            return False
        return_from_company(job)
        return True
    if job.shared_us < job.try_at_us or highest < TOLERANT * STEPS:
        return mean - doubt > HARMLESS
    if 2 * job.alone.doubt(TRIAL_WINDOWS) >= HARMLESS:
        # Too noisy, unless that has just not been learned yet.
        if len(job.slowdowns) < MOST_WINDOWS:
            return False
        postpone_try(job)
        return True
    if mean + doubt < HARMLESS:
        job.position, job.is_on_trial = TOLERANT * STEPS, True
        return True
    return mean - doubt > HARMLESS


def is_gross(job: Job, tenant: Tenant) -> bool:
    cost, _ = cost_of(job.window, tenant)
    return job.alone is not None and cost / job.alone.cost - 1 > GROSS


def return_from_company(job: Job) -> None:
    job.position, job.slowdowns, job.is_on_trial = STRICT * STEPS, [], False
    postpone_try(job)


def postpone_try(job: Job) -> None:
    job.try_at_us = job.shared_us + job.try_back_off_us
    job.try_back_off_us = min(2 * job.try_back_off_us, LONGEST_TRY_BACK_OFF_US)


def keep_promise(job: Job, promise: float, mean: float, doubt: float, now_us: float, highest: int) -> bool:
    """Whether the windows so far were clear enough to move."""
    before = job.position
    if mean - doubt > AIM * promise:
        fall = min(max(1, round(FALL * (mean / promise - AIM))), LARGEST_FALL)
        job.position = max(SHUT, before - fall)
        hold_below(job, before, now_us)
        return True
    if mean + doubt < ROOM * promise:
        highest = min(highest, job.ceiling) if now_us < job.ceiling_until_us else highest
        rise = 2 if mean < promise / 2 else 1
        job.position = max(before, min(before + rise, highest))
        return True
    return False


def hold_below(job: Job, breached: int, now_us: float) -> None:
    again = abs(breached - job.ceiling - 1) <= 1
    job.back_off_us = min(2 * job.back_off_us, LONGEST_BACK_OFF_US) if again else FIRST_BACK_OFF_US
    job.ceiling = max(SHUT, breached - 1)
    job.ceiling_until_us = now_us + job.back_off_us


def in_words(position: int) -> str:
    part = position / STEPS
    if part == SHUT:
        return "others are shut"
    if part < STRICT:
        return f"others are shut {STRICT - part:.0%} of the time"
    if part == STRICT:
        return "others run in its pauses"
    return (
        "others may always overlap"
        if part == TOLERANT
        else f"others may overlap {part - STRICT:.0%} of the time"
    )
