"""guard: a production job slows down by no more than promised, and lower classes get everything else.

What it measures, for each production job, in windows of the time that the job is at work (cost.py):

    cost     = d(busy_us) / d(operations)       GPU-busy time that one operation takes
    alone    = the cost while no lower class runs, a running mean with its spread
    slowdown = cost / alone - 1

Moments in which a lower-class tenant is evicted or restored are left out: no position stops a move.

What it sets: a position for each production job (position.py); the smallest of the jobs that are at work, and do not
pause for more than three of their gaps, is in force:

    SHUT  lower classes are shut     STRICT  they run while production is idle     TOLERANT  they may overlap with it

Below STRICT they have a rate, the same part of every pause; between STRICT and TOLERANT guard alternates, 20 ms each
or longer. With a stated promise (promise.py):

    slowdown(p) = strict * min(p, 1) + extra * max(p - 1, 0)       both learned from the windows at these levels
    position    = where slowdown(p) is at most 0.92 of the promise, and at least 0.003 below it

and less while what the job was slowed down by too much in the last seconds is made up for.

A job without a promise stands at STRICT, so that lower classes run in every gap, or at TOLERANT where a trial has shown
that overlap is harmless (trials.py): by 2 %, or by 5 % where all of them go through one MPS daemon. There the lower
classes may have fewer SMs while they overlap, with a promise and without (reserve.py).

Overlap must also be worth it (worth.py): where the lower classes get less than 5 % more done at TOLERANT than at
STRICT, no position is over STRICT for a while.

What overlap did to a pair of programs is remembered over runs (pairs.py).

guard learns the cost alone whenever the lower classes pause. Where it is needed and not known,
is 10 s old (5 s where the job is noisy, 4 s at a position up to 0.85), or may have changed, guard shuts them for up
to 0.4 s (1 s where nothing is known yet): altogether at most 5 % of the time (allowance.py). Without a stated promise
it is needed for a trial only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from cotenant.classes import TenantClass
from cotenant.policies.guard.allowance import SHARE, Allowance
from cotenant.policies.guard.cost import Below
from cotenant.policies.guard.duty import Duty
from cotenant.policies.guard.job import RETRY_US, Job
from cotenant.policies.guard.pairs import Company, Pairs
from cotenant.policies.guard.position import SHUT, STRICT, TOLERANT, Mixer, in_words
from cotenant.policies.guard.promise import Promise
from cotenant.policies.guard.reserve import ALL
from cotenant.policies.guard.worth import GAIN, Harvest, Worth
from cotenant.policies.interface import (
    SMALLEST_RATE,
    Knobs,
    Met,
    Pair,
    Policy,
    Said,
    Tenant,
    TenantId,
    TenantKnobs,
    View,
)
from cotenant.policies.journal import Journal

CALIBRATION_US, FIRST_CALIBRATION_US = 400_000, 1_000_000
STUCK_US = 30_000_000  # memory that moves for longer does not: its process was stopped
LONGEST_STEP_US = (
    500_000  # between two ticks; more has passed while no tenant was at work, or the daemon was stopped
)
SHORT_US = 1_000_000  # a job may be one of many short ones: for so long it is judged by the last one
NO_KNOBS = TenantKnobs()
ABSENT_US = 1_000_000  # lower classes that have not wanted to run for so long count as new


class Guard(Policy):
    name = "guard"
    title = "production slows down by no more than promised; lower classes get everything else"
    every_ms = 10

    def __init__(self) -> None:
        self.jobs: dict[TenantId, Job] = {}
        self.below: dict[TenantId, Tenant] = {}  # at the last tick
        self.ticked_us = 0.0
        self.step_us = 0.0  # since the tick before
        self.wanted_us = 0.0  # when lower classes last wanted to run
        self.calibrating_since_us: float | None = None
        self.moving_since_us: float | None = None
        self.earlier = Promise(1.0)  # what is known from jobs that have left
        self.allowance = Allowance()
        self.worth = Worth()
        self.harvest = Harvest()  # since the tick before
        self.mixer = Mixer()
        self.sm_share = ALL  # of the lower classes' kernels
        self.duty = Duty()
        self.journal = Journal()
        self.pairs = Pairs()

    def tick(self, view: View) -> Knobs:
        now_us = view.now_us
        self.step_us = min(now_us - self.ticked_us, LONGEST_STEP_US)
        production = view.of_class(TenantClass.production)
        others = [tenant for tenant in view.tenants if tenant.tenant_class is not TenantClass.production]
        below = self.look_below(production, others, now_us)
        self.meet_jobs(production, now_us)
        self.meet_neighbours(others, below, now_us)
        mhz = view.gpu.clock_mhz or 0.0 if view.gpu else 0.0
        has_pauses = not any(job.meter.is_never_idle(now_us) for job in self.jobs.values())
        for tenant in production:
            job = self.jobs[tenant.id]
            job.go_together(
                bool(tenant.mps_daemon) and all(one.mps_daemon == tenant.mps_daemon for one in others),
                any(one.takes_sm_share for one in others),
            )
            self.meet_company(job, tenant, others, now_us)
            if job.promise:
                job.promise.meet_pauses(has_pauses)
            self.look(job, tenant, now_us, below, mhz)
            self.note_company(job)
        self.weigh_company(below, now_us)
        self.calibrate(below, now_us)
        self.choose_level(now_us)
        knobs = self.knobs(production, others)
        self.below, self.ticked_us = {one.id: one for one in others}, now_us
        return Knobs(rule=self.rule, tenants=knobs)

    def explain(self, tenant: TenantId) -> list[str]:
        if tenant not in self.jobs and tenant not in self.below:
            return []
        if not self.jobs:
            return ["No production job is on its GPU."]
        if tenant in self.jobs:
            return self.explain_job(tenant)
        leading = min(self.jobs, key=lambda one: self.jobs[one].position)
        return [Said(told, leading) for told in self.explain_job(leading)]

    def explain_job(self, number: TenantId) -> list[str]:
        job = self.jobs[number]
        return [*job.figures(), *self.journal.of(number, job.standing)]

    def look_below(self, production: Sequence[Tenant], others: Sequence[Tenant], now_us: float) -> Below:
        before = [(self.below.get(one.id, one), one) for one in others]
        ran_us = sum(max(0.0, one.used_us - then.used_us) for then, one in before)
        known = [(self.jobs[one.id].last, one) for one in production if one.id in self.jobs]
        busy_us = max((one.busy_us - last.busy_us for last, one in known), default=0.0)
        self.harvest = Harvest(
            done=sum(max(0, one.operations - then.operations) for then, one in before),
            time_us=self.step_us,
            busy_us=min(busy_us, self.step_us),
            work_us=sum(self.jobs[one.id].work_us(one) for _, one in known),
        )
        return Below(
            ran_us=ran_us,
            floors=sum(one.floor for one in others),
            want=any(one.has_work for one in others),
            level=self.mixer.level,
            duty=self.duty.see(
                ran_us,
                self.step_us - busy_us,
                self.step_us,
                self.mixer.duty,
                any(job.is_in_swing(now_us) for job in self.jobs.values()),
            ),
            moves=self.sees_move(others, now_us),
        )

    def sees_move(self, others: Sequence[Tenant], now_us: float) -> bool:
        if not any(one.moved_us > self.ticked_us for one in others):
            self.moving_since_us = None
        elif self.moving_since_us is None:
            self.moving_since_us = now_us
        return self.moving_since_us is not None and now_us - self.moving_since_us < STUCK_US

    def meet_jobs(self, production: Sequence[Tenant], now_us: float) -> None:
        there = {one.id for one in production}
        for number, job in self.jobs.items():
            if number not in there and job.promise:
                if job.sm_share < ALL:
                    job.reserve.take(ALL, job.promise)
                self.earlier.remember(job.promise)
        self.jobs = {one.id: self.job_of(one, now_us) for one in production}
        self.journal.keep_only(self.jobs)

    def job_of(self, tenant: Tenant, now_us: float) -> Job:
        job = self.jobs.get(tenant.id)
        if job is None:
            job = Job.of(tenant, now_us, partial(self.journal.note, tenant.id))
            if job.promise and self.earlier.strict.windows:
                job.promise.take_over(self.earlier)
                job.learn_from_us = now_us + SHORT_US
        job.see(tenant, now_us, self.step_us)
        return job

    def meet_neighbours(self, others: Sequence[Tenant], below: Below, now_us: float) -> None:
        """A newcomer may slow production down as no tenant did before, and so may those who stay when one leaves: they
        have its part of the pauses, too. What a short job took over from the one before was about others."""
        if {one.id for one in others} != set(self.below):
            come_anew = now_us - self.wanted_us > ABSENT_US
            for job in self.jobs.values():
                job.reserve.doubt()
                if job.promise:
                    job.promise.begin_anew(come_anew or job.alone is None)
                if job.alone is None:
                    job.learn_from_us = now_us
            self.earlier.begin_anew(come_anew=True)
        if below.want:
            self.wanted_us = now_us

    def meet_company(self, job: Job, tenant: Tenant, others: Sequence[Tenant], now_us: float) -> None:
        beside = frozenset(one.program for one in others)
        company = Company(tenant.program, beside, job.is_together) if others else None
        if company != job.company:
            known = self.pairs.known(company, job.trials.harmless) if company else None
            job.meet_company(company, known, now_us)

    def note_company(self, job: Job) -> None:
        met = job.take_shown()
        if met is not None and job.company is not None:
            self.pairs.note(job.company, met, job.trials.harmless)

    def recall(self, pairs: Mapping[Pair, Met]) -> None:
        self.pairs.recall(pairs)

    def learned(self) -> Mapping[Pair, Met]:
        return self.pairs.take_new()

    def look(self, job: Job, tenant: Tenant, now_us: float, below: Below, mhz: float) -> None:
        if below.want and job.is_at_work(now_us):
            job.trials.shared_us += self.step_us
        window = job.meter.look(tenant, now_us, self.step_us, below, mhz)
        job.saw_stretch()
        if window is not None:
            job.meet(window, now_us, TOLERANT if self.worth.may_be_tried(now_us) else STRICT)
        job.end_gross_company(tenant, now_us)

    def weigh_company(self, below: Below, now_us: float) -> None:
        if not below.want or not any(job.is_at_work(now_us) for job in self.jobs.values()):
            return
        level, has_all_sms, jobs = self.mixer.level, self.sm_share == ALL, self.jobs.values()
        is_meant = has_all_sms and all(job.is_together for job in jobs)
        if (level == STRICT and not has_all_sms) or (level == TOLERANT and is_meant):
            return
        needed = 0.0 if any(job.reserve.is_lesser_evil for job in jobs) else GAIN
        gain = self.worth.weigh(level, self.harvest, now_us, needed)
        if gain is None:
            return
        for job in jobs:
            if job.position > STRICT:
                job.return_to_strict()
                job.say(f"Overlap brought the lower classes {gain:+.1%}: {in_words(job.position)} now.")

    def calibrate(self, below: Below, now_us: float) -> None:
        since_us = self.calibrating_since_us
        binding = self.binding(now_us)
        is_free = binding is not None and binding.gives_little
        if below.want:
            self.allowance.pass_time(self.step_us, since_us is not None and not is_free)
        needing = [job for job in self.jobs.values() if job.needs_calibration(now_us)]
        borrows = any(job.promise and job.is_unknown(now_us) for job in needing)
        if since_us is None:
            if not needing or not below.want or below.moves:
                return
            if not is_free and not self.allowance.is_enough(borrows):
                for job in needing:
                    job.say(
                        f"Its cost alone should be measured again, but the lower classes were shut for {SHARE:.0%} of "
                        "their time for that already, which is the most."
                    )
                return
            self.calibrating_since_us = now_us
            for job in self.jobs.values():
                job.meter.begin_look(now_us)
            return
        is_first = any(job.is_unknown(now_us) for job in needing)
        longest_us = FIRST_CALIBRATION_US if is_first else CALIBRATION_US
        at_work = [job for job in self.jobs.values() if job.is_at_work(now_us)]
        is_over = now_us - since_us >= longest_us or (not is_free and self.allowance.is_spent(borrows))
        is_over |= not any(job.alone is None or job.is_in_swing(now_us) for job in at_work)
        is_enough = all(job.has_learned_enough() for job in at_work)
        if not is_over and not is_enough and below.want:
            return
        self.calibrating_since_us = None
        for job in needing:
            part = job.meter.parts[SHUT]
            window = part.window(SHUT) if job.meter.windows_learned == 0 and part.is_something else None
            if window is not None:
                job.meter.forget_parts(SHUT)
                job.meet(window, now_us, STRICT)
            job.learn_from_us = now_us + RETRY_US if job.alone is None else now_us

    def binding(self, now_us: float) -> Job | None:
        """The job whose position counts."""
        holding = [job for job in self.jobs.values() if job.is_at_work(now_us) and job.holds(now_us)]
        return min(holding, key=lambda job: (job.held, job.sm_share), default=None)

    def choose_level(self, now_us: float) -> None:
        job = self.binding(now_us)
        position, passed_us = (job.held, job.passed_us) if job else (STRICT, 0.0)
        sm_share = job.sm_share if job else ALL
        if sm_share != self.sm_share:
            self.sm_share = sm_share
            self.worth.forget_overlap()
        if self.calibrating_since_us is not None:
            self.mixer.learn(position, passed_us, now_us)
        else:
            self.mixer.follow(position, passed_us, now_us)

    def knobs(self, production: Sequence[Tenant], others: Sequence[Tenant]) -> dict[TenantId, TenantKnobs]:
        if self.mixer.level == SHUT:
            wanted = {one.id: TenantKnobs(shut=True) for one in others}
        elif self.mixer.level == TOLERANT:
            wanted = {one.id: TenantKnobs(tolerant=True) for one in production}
        else:
            wanted = self.rates(others) if self.mixer.duty < STRICT else {}
        if self.sm_share < ALL:
            # Also while they wait: what they launch then runs later.
            for one in others:
                wanted[one.id] = replace(wanted.get(one.id, NO_KNOBS), sm_share=self.sm_share)
        return wanted

    def rates(self, others: Sequence[Tenant]) -> dict[TenantId, TenantKnobs]:
        """The lower classes' part of production's pauses, by the weights of those of a class that have work: while one
        class has work, those below it have no use for theirs."""
        rate = self.mixer.duty * self.duty.idle
        at_work: defaultdict[TenantClass, float] = defaultdict(float)  # the weights of a class
        for one in others:
            at_work[one.tenant_class] += one.weight if one.has_work else 0.0
        parts = {}
        for one in others:
            weights = at_work[one.tenant_class] + (0.0 if one.has_work else one.weight)
            parts[one.id] = rate * one.weight / weights
        return {
            number: TenantKnobs(rate=part) if part >= SMALLEST_RATE else TenantKnobs(shut=True)
            for number, part in parts.items()
        }
