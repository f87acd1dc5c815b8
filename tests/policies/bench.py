"""A toy GPU in virtual time for controllers: a production job in bursts, and a neighbour that always has work.

How much the production job is slowed down depends only on what the controller lets the neighbour do, so that a test
can say what a controller should find out.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from cotenant.classes import TenantClass
from cotenant.policies.interface import Knobs, Policy, Tenant, TenantKnobs, View

TICK_US = 10_000.0
PRODUCTION, NEIGHBOUR = 1, 2
RECENT = 0.02  # of a tick, in the running mean of production's idle time


@dataclass
class Plant:
    strict_slowdown: float = 0.0  # while the neighbour runs in the pauses
    tolerant_slowdown: float = 0.0  # while it runs at the same time
    overlap: float = 0.5  # of its full speed that the neighbour has while production runs too
    every_us: float = 40_000.0  # between bursts; 0: never idle
    operations: int = 100  # in a burst
    operation_us: float = 100.0
    host_us: float = 0.0  # that its CPU takes for an operation, with nothing on the GPU meanwhile
    host_noise: float = 0.0
    hidden: float = 0.0  # of its GPU time, beside what its CPU does
    polls: bool = False  # it waits for the GPU in calls that nobody sees; else once a burst inside the driver
    noise: float = 0.01
    seed: int = 1
    promise: float | None = None
    mps_daemon: int = 0  # of both
    programs: tuple[str, str] = ("", "")  # production's and the neighbour's
    has_production: bool = True
    has_neighbour: bool = True
    # The neighbour's memory moves for so long, so often, and production is slowed down by it whatever is shut.
    move_us: float = 0.0
    move_every_us: float = 850_000.0
    move_slowdown: float = 0.0
    shows_moves: bool = True

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.now_us = self.next_us = 0.0
        self.queue_us: list[float] = []  # what is left of each burst that has arrived, at full speed
        self.busy_us = self.full_us = 0.0  # production: how long it had work, how long that takes alone
        self.gap_us = 0.0
        self.host_of_burst = 0.0  # its part of a burst
        self.hidden_of_burst = 0.0  # of that, while the GPU runs
        self.blocked_us, self.blocking_calls = 0.0, 0
        self.own_cpu_us = self.asleep_us = 0.0  # what its thread does between its waits
        self.launched = self.bursts = 0
        self.used_us = self.shut_us = 0.0  # the neighbour
        self.idle = 0.5  # share of the time that production is, a running mean
        self.moved_us = 0.0
        self.knobs = Knobs()

    def advance(self, until_us: float) -> None:
        shut = self.knobs.tenants.get(NEIGHBOUR, TenantKnobs()).shut
        tolerant = self.knobs.tenants.get(PRODUCTION, TenantKnobs()).tolerant
        rate = self.knobs.tenants.get(NEIGHBOUR, TenantKnobs()).rate
        duty = 1.0 if rate is None or not self.idle else min(rate / self.idle, 1.0)
        slowdown = self.tolerant_slowdown if tolerant else self.strict_slowdown * duty
        beside = 1 + (slowdown if self.has_neighbour and not shut else 0.0)
        began_us, busy_us = self.now_us, self.busy_us
        while self.now_us < until_us:
            self.launch()
            moves = self.now_us % self.move_every_us < self.move_us
            slower = beside * (1 + self.move_slowdown * moves)
            # The CPU's part of a burst lasts as long as ever.
            slower = self.host_of_burst + (1 - self.host_of_burst) * slower
            next_us = self.next_us if self.has_production and self.every_us else math.inf
            end_us = self.now_us + self.queue_us[0] * slower if self.queue_us else math.inf
            step = min(until_us, next_us, end_us, self.next_edge_us(moves)) - self.now_us
            self.now_us += step
            self.moved_us = self.now_us if moves else self.moved_us
            busy = bool(self.queue_us)
            if busy:
                self.busy_us += step
                self.gap_us += step * max(self.host_of_burst - self.hidden_of_burst * beside, 0.0) / slower
                own_cpu_us = step * self.host_of_burst / slower
                self.own_cpu_us += 0.0 if self.polls else own_cpu_us
                self.blocked_us += 0.0 if self.polls else step - own_cpu_us
                self.full_us += step / slower
                self.queue_us[0] -= step / slower
                if self.now_us >= end_us:
                    self.queue_us.pop(0)
                    self.blocking_calls += not self.polls
            elif not self.polls:
                self.asleep_us += step
            if self.has_neighbour:
                self.shut_us += step if shut else 0.0
                self.used_us += step * (
                    0.0 if shut else duty if not busy else self.overlap if tolerant else 0.0
                )
        idle = 1 - (self.busy_us - busy_us) / (until_us - began_us)
        self.idle += RECENT * (idle - self.idle)

    def next_edge_us(self, moves: bool) -> float:
        if not self.move_us:
            return math.inf
        turn = self.now_us // self.move_every_us
        return turn * self.move_every_us + self.move_us if moves else (turn + 1) * self.move_every_us

    def launch(self) -> None:
        if not self.has_production or (self.queue_us if not self.every_us else self.now_us < self.next_us):
            return
        # A job that is never idle launches ahead: all is one burst.
        self.bursts += not self.queue_us and (self.every_us > 0 or self.bursts == 0)
        self.launched += self.operations
        run_us = self.operations * self.operation_us * self.random.lognormvariate(0, self.noise)
        host_us = self.operations * self.host_us * self.random.lognormvariate(0, self.host_noise)
        whole_us = run_us * (1 - self.hidden) + host_us
        self.queue_us.append(whole_us)
        if len(self.queue_us) == 1:
            self.host_of_burst = host_us / whole_us
            self.hidden_of_burst = self.hidden * run_us / whole_us
        self.next_us = self.now_us + self.every_us

    def view(self) -> View:
        tenants = []
        busy = bool(self.queue_us) or not self.every_us
        if self.has_production:
            tenants.append(
                Tenant(
                    PRODUCTION,
                    TenantClass.production,
                    slowdown=self.promise,
                    mps_daemon=self.mps_daemon,
                    program=self.programs[0],
                    has_work=busy,
                    busy_us=self.busy_us,
                    gap_us=self.gap_us,
                    blocked_us=self.blocked_us,
                    own_cpu_us=self.own_cpu_us,
                    asleep_us=self.asleep_us,
                    blocking_calls=self.blocking_calls,
                    used_us=self.busy_us,
                    operations=self.launched,
                    bursts=self.bursts,
                )
            )
        if self.has_neighbour:
            tenants.append(
                Tenant(
                    NEIGHBOUR,
                    TenantClass.opportunistic,
                    has_work=True,
                    mps_daemon=self.mps_daemon,
                    program=self.programs[1],
                    is_held=busy,
                    used_us=self.used_us,
                    operations=round(self.used_us / 50),
                    moved_us=self.moved_us if self.shows_moves else 0.0,
                )
            )
        return View(self.now_us, tenants)

    def play(
        self, controller: Policy, seconds: float, after_tick: Callable[[Knobs], None] | None = None
    ) -> Outcome:
        """Lets time pass under the controller, and says what it brought."""
        began = self.now_us
        busy, full, used, shut = self.busy_us, self.full_us, self.used_us, self.shut_us
        while self.now_us < began + seconds * 1e6:
            self.knobs = controller.tick(self.view())
            if after_tick:
                after_tick(self.knobs)
            self.advance(self.now_us + TICK_US)
        elapsed, full = self.now_us - began, self.full_us - full
        return Outcome(
            slowdown=(self.busy_us - busy) / full - 1 if full else 0.0,
            share=(self.used_us - used) / elapsed,
            shut=(self.shut_us - shut) / elapsed,
        )


@dataclass(frozen=True)
class Outcome:
    slowdown: float  # of the production job
    share: float  # of the GPU's time that the neighbour had
    shut: float  # of the time that the neighbour was shut
