"""A GPU with production jobs and neighbours in virtual time, for controllers that keep promises.

It shows a controller what a daemon would, applies its knobs, and knows what no daemon knows: how much each production
job truly is slowed down in every moment, and what an oracle would have let the neighbours do: the most that keeps every
promise that is there, with one position for all; below 1 that is a constant duty.

    slowdown = (1 + harm of the neighbours at this level * duty) * (1 + clock_bound * (1 / clock - 1)) - 1
    duty     = share of production's pauses in which the neighbours run: 1, or less where they have a rate
    clock    = 1 - heat * (busy - COOL) / (1 - COOL)     where busy is what the neighbours do, HEAT_US late

A neighbour with a rate saves it up and spends it in turns, as tenants do (native/admission/share.h). Under COOL the GPU
is under its power limit. (An H200, a neighbour of large matrix products, by duty and period: 25 % of
40 ms +1 %, 50 % +5 %, 75 % +20 %; of 400 ms +6, +12 and +18 %. It is cool again after 80 ms.)
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cotenant.classes import TenantClass
from cotenant.policies.interface import GpuState, Knobs, Policy, Tenant, TenantKnobs, View

TICK_US = 10_000.0
HEAT_US, COOL = 40_000.0, 0.3
TURN_US = 20_000.0  # of a neighbour that has a rate; it saves no more than one
TURNS_US = 100_000.0  # over which its turns even out
HIGHEST_MHZ = 1980.0
TAIL = 4.0  # how much longer the long bursts are
SETTLED_S, WINDOW_S = 2.0, 4.0
STARTS_S = 0.5
SHORT_S = 1.5
LITTLE = 0.01
LEAST_WORK_US = 100_000.0  # in a window: less is no mean


@dataclass(frozen=True)
class Production:
    """`name`: jobs that follow each other under one name are one stream, judged together."""

    promise: float | None = None
    name: str = "production"
    every_us: float = 20_000.0  # between the beginnings of bursts; 0: never idle
    jitter: float = 0.5  # of that
    operations: int = 100
    operation_us: float = 50.0
    eager: bool = False  # launches while it runs; else a burst is launched at once
    noise: float = 0.02  # sigma of the log-normal length of a burst
    tail: float = 0.0  # share of the bursts that are TAIL times as long
    begins_s: float = 0.0
    ends_s: float = math.inf
    works_s: float = 0.0  # then it is idle for idle_s, and so on
    idle_s: float = 0.0
    phases: tuple[
        tuple[float, float], ...
    ] = ()  # from this second on an operation takes so many times as long
    clock_bound: float = 0.0  # share of its time that follows the clock


@dataclass(frozen=True)
class Neighbour:
    strict: float = 0.0  # slowdown of production while it runs in the pauses
    tolerant: float = 0.5  # and while it runs at the same time
    overlap: float = 0.5  # of its speed that it has then
    heat: float = 0.0  # how far the clock falls where it runs all the time
    jitter: float = (
        0.0  # sigma of what a burst's length varies by, beside that of its own, where it runs all the time
    )
    begins_s: float = 0.0
    ends_s: float = math.inf
    arrival: float = 1.0  # times as much harm while it starts, for STARTS_S

    def strict_at(self, now_us: float) -> float:
        return self.strict * (self.arrival if now_us < (self.begins_s + STARTS_S) * 1e6 else 1.0)


@dataclass
class Budget:
    """Of a neighbour: what it has saved of its rate."""

    credit_us: float = 0.0
    in_credit: bool = False
    has_rate: bool = False

    def allows(self, rate: float | None) -> float:
        """In this tick."""
        had_rate, self.has_rate = self.has_rate, rate is not None
        if rate is None:
            return TICK_US
        if not had_rate:
            self.credit_us, self.in_credit = rate * TURN_US, True
        self.spend(-rate * TICK_US)
        return self.credit_us if self.in_credit else 0.0

    def spend(self, us: float) -> None:
        self.credit_us = min(self.credit_us - us, TURN_US)
        self.in_credit = self.credit_us >= TURN_US or (self.in_credit and self.credit_us > 0)


def over_limit(activity: float) -> float:
    return max(0.0, activity - COOL) / (1 - COOL)


class RunningJob:
    def __init__(self, about: Production, number: int, seed: int) -> None:
        self.about, self.id = about, number
        self.random = random.Random(f"{seed} {number}")
        self.next_us = about.begins_s * 1e6
        self.queue: list[float] = []  # what is left of each burst, in microseconds alone
        self.share: list[float] = []  # operations for each of these microseconds
        self.busy_us = self.full_us = 0.0
        self.launched = 0.0
        self.bursts = 0
        self.jitter = 0.0  # by the neighbours, in this tick

    def is_there(self, now_us: float) -> bool:
        return self.about.begins_s * 1e6 <= now_us < self.about.ends_s * 1e6

    def factor(self, now_us: float) -> float:
        return next((by for since, by in reversed(self.about.phases) if since * 1e6 <= now_us), 1.0)

    def pause_until_us(self, now_us: float) -> float:
        about = self.about
        if not about.idle_s:
            return now_us
        period = (about.works_s + about.idle_s) * 1e6
        turn, part = divmod(now_us - about.begins_s * 1e6, period)
        return about.begins_s * 1e6 + (turn + 1) * period if part >= about.works_s * 1e6 else now_us

    def launch(self, now_us: float) -> None:
        about = self.about
        if self.queue and not about.every_us:
            return
        if self.next_us > now_us:
            return
        if (until := self.pause_until_us(now_us)) > now_us:
            self.next_us = until
            return
        self.bursts += not self.queue and bool(about.every_us or not self.bursts or about.idle_s)
        length = about.operations * about.operation_us * self.factor(now_us)
        length *= self.random.lognormvariate(0, about.noise) * (
            TAIL if self.random.random() < about.tail else 1.0
        )
        if self.jitter:
            length *= self.random.lognormvariate(-(self.jitter**2) / 2, self.jitter)
        self.queue.append(length)
        self.share.append(about.operations / length if about.eager else 0.0)
        self.launched += 0 if about.eager else about.operations
        gap = about.every_us * self.random.uniform(1 - about.jitter, 1 + about.jitter)
        self.next_us = now_us + gap

    def advance(self, now_us: float, until_us: float, slower: float) -> float:
        """Returns how long it was busy."""
        before = self.busy_us
        while now_us < until_us:
            self.launch(now_us)
            end_us = now_us + self.queue[0] * slower if self.queue else math.inf
            next_us = self.next_us if self.about.every_us or not self.queue else math.inf
            step = max(min(until_us, end_us, max(next_us, now_us + 1e-3)) - now_us, 0.0)
            now_us += step
            if self.queue:
                self.busy_us += step
                self.full_us += step / slower
                self.queue[0] -= step / slower
                self.launched += self.share[0] * step / slower
                if now_us >= end_us:
                    self.queue.pop(0)
                    self.share.pop(0)
        return self.busy_us - before

    def seen(self, now_us: float) -> Tenant:
        never_idle = not self.about.every_us and self.pause_until_us(now_us) == now_us
        return Tenant(
            self.id,
            TenantClass.production,
            slowdown=self.about.promise,
            has_work=bool(self.queue) or never_idle,
            used_us=self.busy_us,
            busy_us=self.busy_us,
            operations=math.floor(self.launched + 1e-6),
            bursts=self.bursts,
        )


@dataclass
class Record:
    """What happened in one tick."""

    at_s: float
    truth: dict[str, tuple[float, float]]  # of each name: busy, and what that takes alone
    work_us: float
    oracle_us: float
    shut: bool
    wanted: bool


@dataclass
class Plant:
    production: Sequence[Production]
    neighbours: Sequence[Neighbour]
    seed: int = 1
    shows_clock: bool = False
    now_us: float = 0.0
    records: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.jobs = [RunningJob(one, 1 + number, self.seed) for number, one in enumerate(self.production)]
        self.used_us = [0.0] * len(self.neighbours)
        self.budgets = [Budget() for _ in self.neighbours]
        self.ran_us = -1.0  # of a rate, recent, of TURNS_US; below 0: they had none
        self.idle_us = 0.0  # and what they could have run
        self.heat = self.activity = self.hottest = 0.0
        self.best: dict[tuple[object, ...], float] = {}  # positions that were found before
        self.knobs = Knobs()
        self.gpu: GpuState | None = None

    def there(self) -> list[int]:
        return [
            number
            for number, one in enumerate(self.neighbours)
            if one.begins_s * 1e6 <= self.now_us < one.ends_s * 1e6
        ]

    def view(self) -> View:
        tenants = [job.seen(self.now_us) for job in self.jobs if job.is_there(self.now_us)]
        busy = any(one.has_work for one in tenants)
        for number in self.there():
            used = self.used_us[number]
            tenants.append(
                Tenant(
                    1000 + number,
                    TenantClass.opportunistic,
                    has_work=True,
                    is_held=busy,
                    used_us=used,
                    busy_us=used,
                    operations=round(used / 50),
                )
            )
        # NVML is read a few times a second.
        if self.shows_clock and (self.gpu is None or self.now_us - self.gpu.at_us >= 200_000):
            self.gpu = GpuState(self.now_us, HIGHEST_MHZ * (1 - self.heat), HIGHEST_MHZ)
        return View(self.now_us, tenants, gpu=self.gpu)

    def tick(self, controller: Policy) -> None:
        self.knobs = controller.tick(self.view())
        there = self.there()
        now_us, until_us = self.now_us, self.now_us + TICK_US
        jobs = [job for job in self.jobs if job.is_there(now_us)]
        set_for = {number: self.knobs.tenants.get(1000 + number, TenantKnobs()) for number in there}
        open_to = [number for number in there if not set_for[number].shut]
        has_rates = any(set_for[number].rate is not None for number in open_to)
        kept = math.exp(-TICK_US / TURNS_US)
        if has_rates and self.ran_us < 0:
            self.ran_us = sum(set_for[number].rate or 0.0 for number in open_to) * TICK_US / (1 - kept)
        duty = min(self.ran_us / self.idle_us, 1.0) if has_rates and self.idle_us else 1.0
        truth: dict[str, tuple[float, float]] = {}
        busy_us, tolerant = 0.0, True
        for job in jobs:
            is_tolerant = self.knobs.tenants.get(job.id, TenantKnobs()).tolerant
            tolerant &= is_tolerant
            position = 0.0 if not open_to else 2.0 if is_tolerant else 1.0
            slower = self.slower(job.about, position, open_to, self.heat, duty)
            before = job.full_us
            job.jitter = math.sqrt(duty * sum(self.neighbours[one].jitter ** 2 for one in open_to))
            busy = job.advance(now_us, until_us, slower)
            busy_us = max(busy_us, busy)
            so_far = truth.get(job.about.name, (0.0, 0.0))
            truth[job.about.name] = (so_far[0] + busy, so_far[1] + job.full_us - before)
        work = 0.0
        for number in open_to:
            one = self.neighbours[number]
            could = (TICK_US - busy_us + (one.overlap * busy_us if tolerant else 0.0)) / len(open_to)
            did = min(could, self.budgets[number].allows(set_for[number].rate))
            if set_for[number].rate is not None:
                self.budgets[number].spend(did)
            self.used_us[number] += did
            work += did
        hot = sum(self.neighbours[number].heat for number in open_to) / len(open_to) if open_to else 0.0
        kept = math.exp(-TICK_US / HEAT_US)
        self.activity = self.activity * kept + work / TICK_US * (1 - kept)
        kept = math.exp(-TICK_US / TURNS_US)
        self.ran_us = self.ran_us * kept + work if has_rates else -1.0
        self.idle_us = self.idle_us * kept + TICK_US - busy_us
        self.hottest = hot or self.hottest
        self.heat = self.hottest * over_limit(self.activity)
        self.records.append(
            Record(
                now_us / 1e6,
                truth,
                work,
                self.oracle_us(jobs, there, busy_us),
                bool(there) and not open_to,
                bool(there),
            )
        )
        self.now_us = until_us

    def slower(
        self, about: Production, position: float, beside: Sequence[int], heat: float, duty: float = 1.0
    ) -> float:
        """The neighbours take turns: their harm is the mean of theirs. There are no pauses to run in beside a job that
        is never idle."""
        strict = sum(self.neighbours[number].strict_at(self.now_us) for number in beside) / max(
            len(beside), 1
        )
        tolerant = sum(self.neighbours[number].tolerant for number in beside) / max(len(beside), 1)
        if any(job.is_there(self.now_us) and not job.about.every_us for job in self.jobs):
            strict = 0.0
        harm = strict * min(position, 1.0) * duty + max(tolerant - strict, 0.0) * max(position - 1.0, 0.0)
        return (1 + harm) * (1 + about.clock_bound * (1 / (1 - heat) - 1))

    def oracle_us(self, jobs: Sequence[RunningJob], there: Sequence[int], busy_us: float) -> float:
        if not there:
            return 0.0
        beside_training = any(not job.about.every_us for job in jobs)
        harm = [self.neighbours[number].strict_at(self.now_us) for number in there]
        position = 1.0 if not jobs else 2.0
        for job in jobs:
            key = (job.id, job.factor(self.now_us), beside_training, *there, *harm)
            if key not in self.best:
                self.best[key] = self.best_position(job, there)
            position = min(position, self.best[key])
        overlap = sum(self.neighbours[number].overlap for number in there) / len(there)
        return min(position, 1.0) * (TICK_US - busy_us) + max(position - 1.0, 0.0) * overlap * busy_us

    def best_position(self, job: RunningJob, there: Sequence[int]) -> float:
        about = job.about
        if about.promise is None:
            return 1.0
        busy = about.operations * about.operation_us * job.factor(self.now_us) / (about.every_us or 1e-9)
        idle = max(0.0, 1 - busy) if about.every_us else 0.0
        hot = sum(self.neighbours[number].heat for number in there) / len(there)

        def is_kept(position: float) -> bool:
            heat = hot * over_limit(min(position, 1.0) * idle)
            if position <= 1.0:
                return self.slower(about, 1.0, there, heat, position) - 1 <= (about.promise or 0.0)
            below, above = (self.slower(about, level, there, heat) for level in (1.0, 2.0))
            return 1 / ((2 - position) / below + (position - 1) / above) - 1 <= (about.promise or 0.0)

        low, high = 0.0, 2.0
        if about.ends_s - about.begins_s < SHORT_S:
            high = 1.0  # nobody finds out about company in so short a time
        if is_kept(high):
            return high
        for _ in range(12):
            middle = (low + high) / 2
            low, high = (middle, high) if is_kept(middle) else (low, middle)
        return low

    def play(
        self, controller: Policy, seconds: float, after_tick: Callable[[Knobs], None] | None = None
    ) -> Plant:
        for _ in range(round(seconds * 1e6 / TICK_US)):
            self.tick(controller)
            if after_tick:
                after_tick(self.knobs)
        return self

    # ---- what it came to ----

    def judged(self) -> dict[str, Production]:
        """The first job of each name that has a promise."""
        found: dict[str, Production] = {}
        for one in self.production:
            if one.promise:
                found.setdefault(one.name, one)
        return found

    def windows(self, name: str) -> list[tuple[float, float]]:
        """When each window began, and the true mean slowdown in it over the promise."""
        about = self.judged()[name]
        length, every = round(WINDOW_S * 1e6 / TICK_US), round(0.1e6 / TICK_US)
        ends = max(one.ends_s for one in self.production if one.name == name)
        arrivals = [one.begins_s for one in self.neighbours]
        busy, full = [0.0], [0.0]
        for record in self.records:
            more = record.truth.get(name, (0.0, 0.0))
            busy.append(busy[-1] + more[0])
            full.append(full[-1] + more[1])
        found = []
        for first in range(0, len(self.records) - length + 1, every):
            at = self.records[first].at_s
            if not about.begins_s + SETTLED_S <= at <= ends - WINDOW_S or any(
                at - SETTLED_S < one < at + WINDOW_S for one in arrivals
            ):
                continue
            alone = full[first + length] - full[first]
            if alone >= LEAST_WORK_US:
                found.append(
                    (at, ((busy[first + length] - busy[first]) / alone - 1) / (about.promise or 1.0))
                )
        return found

    def worst(self) -> float:
        """The largest slowdown of any window, of any promise, in promises."""
        return max((over for name in self.judged() for _, over in self.windows(name)), default=0.0)

    def work(self, since_s: float = SETTLED_S) -> float:
        """What the neighbours did, of what the oracle would have let them do; LITTLE of the GPU's time is nothing."""
        seen = [one for one in self.records if one.at_s >= since_s and one.wanted]
        oracle = sum(one.oracle_us for one in seen) - LITTLE * len(seen) * TICK_US
        return sum(one.work_us for one in seen) / oracle if oracle > 0 else 1.0

    def shut(self, since_s: float = 0.0) -> float:
        """Share of the time in which neighbours were there that all of them were shut."""
        seen = [one for one in self.records if one.at_s >= since_s and one.wanted]
        return sum(one.shut for one in seen) / max(len(seen), 1)
