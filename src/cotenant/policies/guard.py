"""guard: a production job slows down by no more than was promised, and everything else is given away.

What it measures, for each production job and window of time (guard_cost.py):

    cost     = d(busy_us) / d(operations)       GPU-busy time that one operation takes
    alone    = the cost while nobody below runs, a running mean with its spread
    slowdown = cost / alone - 1

Moments in which the memory of one below moves to the host or back are left out: no position stops a move.

What it turns, a position for each production job (guard_position.py); the smallest counts:

    SHUT  those below are shut     STRICT  they run while production is idle     TOLERANT  production tolerates company

Between two of these both are taken in turn. How it moves (guard_job.py), with the mean m of the slowdowns since the
last move, the doubt that is left after so many windows, and the promise P:

    m - doubt > 0.9 * P      down, in proportion to what is over
    m + doubt < 0.7 * P      up, a step or two

A stated promise goes first: it may take the position to SHUT. A job without one stands at STRICT, so every pause of it
is given away, or at TOLERANT where a trial has shown that company is harmless.

Company must also be worth it (guard_worth.py): where those below get less than 5 % more done at TOLERANT than at
STRICT, no position is over STRICT for a while.

Where the cost alone is needed and not known, or has grown old, those below are shut for up to 0.4 s: about 1 % of the
time, and none where they pause by themselves. Without a stated promise it is needed for a trial only.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from cotenant.classes import TenantClass
from cotenant.policies.guard_cost import CALIBRATION_US, CALIBRATION_WINDOWS, Below
from cotenant.policies.guard_job import Job
from cotenant.policies.guard_position import SHUT, STRICT, TOLERANT, Mixer, in_words, mixing_period_us
from cotenant.policies.guard_worth import Worth
from cotenant.policies.interface import Knobs, Rule, Tenant, TenantId, TenantKnobs, View
from cotenant.policies.journal import Journal

STUCK_US = 30_000_000  # memory that moves for longer does not: its process was stopped
LONGEST_STEP_US = (
    500_000  # between two ticks; more has passed while nobody was at work, or the daemon was stopped
)


class Guard:
    name: ClassVar[str] = "guard"
    title: ClassVar[str] = "production slows down by no more than promised; everything else is given away"
    every_ms: ClassVar[float] = 10
    rule: ClassVar[Rule] = Rule.strict

    def __init__(self) -> None:
        self.jobs: dict[TenantId, Job] = {}
        self.below: dict[TenantId, Tenant] = {}  # at the last tick
        self.ticked_us = 0.0
        self.step_us = 0.0  # since the tick before
        self.calibrating_since_us: float | None = None
        self.moving_since_us: float | None = None
        self.worth = Worth()
        self.mixer = Mixer()
        self.journal = Journal()

    def tick(self, view: View) -> Knobs:
        now_us = view.now_us
        self.step_us = min(now_us - self.ticked_us, LONGEST_STEP_US)
        production = view.of_class(TenantClass.production)
        others = [tenant for tenant in view.tenants if tenant.tenant_class is not TenantClass.production]
        below = self.look_below(others, now_us)
        self.jobs = {one.id: self.job_of(one, now_us) for one in production}
        self.journal.keep_only(self.jobs)
        for tenant in production:
            self.look(self.jobs[tenant.id], tenant, now_us, below)
        self.weigh_company(below, now_us)
        self.calibrate(production, below, now_us)
        self.choose_level(now_us)
        self.below, self.ticked_us = {one.id: one for one in others}, now_us
        return Knobs(rule=self.rule, tenants=self.knobs(production, others))

    def explain(self, tenant: TenantId) -> list[str]:
        if tenant not in self.jobs and tenant not in self.below:
            return []
        if not self.jobs:
            return ["No production job is on its GPU."]
        leading = min(self.jobs, key=lambda one: self.jobs[one].position)
        about = tenant if tenant in self.jobs else leading
        return self.journal.of(about, self.jobs[about].standing)

    def look_below(self, others: Sequence[Tenant], now_us: float) -> Below:
        before = [(self.below.get(one.id, one), one) for one in others]
        want = any(one.has_work for one in others)
        return Below(
            ran_us=sum(max(0.0, one.used_us - then.used_us) for then, one in before),
            done=sum(max(0, one.operations - then.operations) for then, one in before),
            floors=sum(one.floor for one in others),
            want=want,
            # Where they are shut they may want as they like: they do not run.
            may_run=want and self.mixer.level != SHUT,
            moves=self.sees_move(others, now_us),
        )

    def sees_move(self, others: Sequence[Tenant], now_us: float) -> bool:
        if not any(one.moved_us > self.ticked_us for one in others):
            self.moving_since_us = None
        elif self.moving_since_us is None:
            self.moving_since_us = now_us
        return self.moving_since_us is not None and now_us - self.moving_since_us < STUCK_US

    def job_of(self, tenant: Tenant, now_us: float) -> Job:
        job = self.jobs.get(tenant.id) or Job.of(tenant, now_us, partial(self.journal.note, tenant.id))
        job.see(tenant, now_us)
        return job

    def look(self, job: Job, tenant: Tenant, now_us: float, below: Below) -> None:
        calibrating = self.calibrating_since_us is not None
        if below.want and job.is_at_work(now_us):
            job.shared_us += self.step_us
        if not job.meter.watch(tenant, now_us, below, calibrating) or job.end_gross_company(tenant, now_us):
            return
        if job.meter.measure(tenant, now_us, mixing_period_us(job.position), calibrating):
            job.move(now_us, TOLERANT if self.worth.may_be_tried(now_us) else STRICT)

    def weigh_company(self, below: Below, now_us: float) -> None:
        if not below.want or not any(job.is_at_work(now_us) for job in self.jobs.values()):
            return
        gain = self.worth.weigh(self.mixer.level, below.done, self.step_us, now_us)
        if gain is None:
            return
        for job in self.jobs.values():
            if job.position > STRICT:
                job.return_to_strict()
                job.say(f"Company brought those below {gain:+.1%}: {in_words(job.position)} now.")

    def calibrate(self, production: Sequence[Tenant], below: Below, now_us: float) -> None:
        meters = [(self.jobs[tenant.id].meter, tenant) for tenant in production]
        needing = {tenant.id for tenant in production if self.jobs[tenant.id].needs_calibration(now_us)}
        if self.calibrating_since_us is None:
            if needing and below.want and not below.moves:
                self.calibrating_since_us = now_us
                for meter, tenant in meters:
                    meter.begin_calibration(tenant, now_us)
            return
        is_over = now_us - self.calibrating_since_us >= CALIBRATION_US
        is_enough = all(meter.windows_learned >= CALIBRATION_WINDOWS for meter, _ in meters)
        if is_over or is_enough or not below.want:
            self.calibrating_since_us = None
            for meter, tenant in meters:
                if tenant.id in needing and meter.windows_learned == 0:
                    meter.gather(tenant, now_us)
                meter.restart(tenant, now_us)

    def choose_level(self, now_us: float) -> None:
        positions = [job.position for job in self.jobs.values() if job.is_at_work(now_us)]
        if self.calibrating_since_us is not None:
            self.mixer.take(SHUT)
        elif not positions:
            self.mixer.take(STRICT)
        else:
            self.mixer.follow(min(positions), now_us)

    def knobs(self, production: Sequence[Tenant], others: Sequence[Tenant]) -> dict[TenantId, TenantKnobs]:
        if self.mixer.level == SHUT:
            return {one.id: TenantKnobs(shut=True) for one in others}
        if self.mixer.level == TOLERANT:
            return {one.id: TenantKnobs(tolerant=True) for one in production}
        return {}
