"""tgs: best-effort work is let in as fast as production does not notice, found by feedback (TGS, NSDI 2023).

    rate  = operations that production launched in a window of 5 s
    best  = the mean rate of 5 windows with the others shut
    peak  = of the last 5 windows, the largest mean of two neighbours
    d     = |rate - best| / best
    slow start  d <= 3 %: limit = 1.5 limit + 1           else limit /= 1.5, go to avoidance
    avoidance   d <= 3 %: limit += 1000                   else limit -= max(8 % of limit, 1000)
                d >= 9 %: limit /= 10 on top of that, go to slow start
    d >= 12 % 20 times in a row: best *= 0.8, limit /= 2, go to slow start
    peak over 20 % from best, up or down, or another production job: learn again
    production gone, or without work for a whole window: no limit

Constants from TGS's source and paper, but for these. TGS counts blocks of kernels; here production's rate counts
operations, and `limit` is GPU time in microseconds a second (1,000,000 is the whole GPU), so that it means the same on
every card; it stops at the whole GPU. TGS's step up is the larger of 1000 and 0.025 % of the best, which in blocks can
be either; in this unit 0.025 % is 250 at most, so the step is 1000. TGS's best is a peak, and grows to each peak that
is within 10 % of it; here it is the mean, and stays: a job whose pace varies would never come near its peak again. When
TGS learns again it leaves the limit as it was; here the others are shut both times. TGS begins at a limit of 20,000
blocks, here it is nothing. TGS has one best-effort job; here those that have work share the limit equally.
Production waits for nobody and, as in TGS, keeps nobody waiting: the limit alone protects it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from cotenant.classes import TenantClass
from cotenant.policies.interface import SMALLEST_RATE, Knobs, Policy, Tenant, TenantId, TenantKnobs, View
from cotenant.policies.journal import Journal
from cotenant.policies.window import Window

WINDOW_MS = 5000.0
LEARNING_WINDOWS = 5
UNNOTICED = 0.03
TOO_MUCH = 0.09
HOPELESS = 0.12
HOPELESS_WINDOWS = 20
LESS_BEST = 0.8
ANOTHER_PHASE = 0.20
WHOLE_GPU = 1_000_000.0
STEP = 1000.0
FALL = 0.08


class Tgs(Policy):
    name = "tgs"
    title = "TGS: a rate limit on the others, by feedback from production's launch rate"
    learns_s = LEARNING_WINDOWS * WINDOW_MS / 1000

    def __init__(self, window_ms: float = WINDOW_MS) -> None:
        self.window_us = window_ms * 1000
        self.limit = 0.0
        self.best: float | None = None
        self.slow_start = True
        self.production_works = True
        self._window = Window()
        self._samples: list[float] = []
        self._recent: deque[float] = deque(maxlen=LEARNING_WINDOWS)
        self._hopeless = 0
        self._production: frozenset[TenantId] = frozenset()
        self._journal = Journal()

    def tick(self, view: View) -> Knobs:
        production = view.of_class(TenantClass.production)
        others = [tenant for tenant in view.tenants if tenant.tenant_class is not TenantClass.production]
        here = frozenset(tenant.id for tenant in production)
        if here != self._production:
            self._production = here
            self._learn_again("other production jobs")
            self._window.restart(view)
        self._journal.keep_only(tenant.id for tenant in view.tenants)
        lasted_us = self._window.look(view)
        if production and lasted_us >= self.window_us:
            self._see(self._window.growth(production).operations * self.window_us / lasted_us)
            self._window.restart(view)
        return Knobs(rule=self.rule, tenants=self._knobs(production, others))

    def explain(self, tenant: TenantId) -> list[str]:
        return self._journal.of(tenant)

    def _see(self, rate: float) -> None:
        self.production_works = rate > 0
        if not self.production_works:
            return
        self._recent.append(rate)
        if self.best is None:
            self._samples.append(rate)
            if len(self._samples) == LEARNING_WINDOWS:
                self.best = sum(self._samples) / LEARNING_WINDOWS
            return
        peak = max((before + after) / 2 for before, after in pairwise(self._recent))
        moved = peak / self.best - 1
        if abs(moved) > ANOTHER_PHASE:
            self._learn_again(f"its rate has been {moved:+.0%} off for a while")
            return
        self._steer(abs(rate - self.best) / self.best)

    def _steer(self, d: float) -> None:
        before = self.limit
        if self.slow_start:
            if d <= UNNOTICED:
                self.limit = 1.5 * self.limit + 1
            else:
                self.limit /= 1.5
                self.slow_start = False
        elif d <= UNNOTICED:
            self.limit += STEP
        else:
            self.limit -= max(FALL * self.limit, STEP)
            if d >= TOO_MUCH:
                self.limit /= 10
                self.slow_start = True
        self._forgive(d)
        self.limit = min(max(self.limit, 0.0), WHOLE_GPU)
        for tenant in self._production:
            self._journal.note(
                tenant,
                f"Its launch rate was {d:.1%} off its best: the others may use {self.limit / WHOLE_GPU:.2%} of "
                f"the GPU now ({before / WHOLE_GPU:.2%} before).",
            )

    def _forgive(self, d: float) -> None:
        """A best that is never reached again, whatever the limit, was not of this phase of the job."""
        self._hopeless = self._hopeless + 1 if d >= HOPELESS else 0
        if self._hopeless == HOPELESS_WINDOWS and self.best is not None:
            self.best *= LESS_BEST
            self.limit /= 2
            self.slow_start = True
            self._hopeless = 0

    def _learn_again(self, why: str) -> None:
        self.limit, self.best, self.slow_start = 0.0, None, True
        self.production_works = True
        self._samples, self._hopeless = [], 0
        for tenant in self._production:
            self._journal.note(tenant, f"Its best launch rate is learned, the others are shut: {why}.")

    def _knobs(self, production: Sequence[Tenant], others: Sequence[Tenant]) -> dict[TenantId, TenantKnobs]:
        if not production or not self.production_works:
            return {}
        knobs = {tenant.id: TenantKnobs(tolerant=True) for tenant in production}
        wanting = max(1, sum(tenant.has_work for tenant in others))
        share = self.limit / WHOLE_GPU / wanting
        shut = self.best is None or share < SMALLEST_RATE
        for tenant in others:
            knobs[tenant.id] = TenantKnobs(shut=True) if shut else TenantKnobs(rate=share)
            why = "shut" if shut else f"given {share:.1%} of the GPU's time"
            self._journal.note(tenant.id, f"It is {why}, as much as production has not noticed.")
        return knobs
