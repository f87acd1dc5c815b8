"""salus: iterations of many jobs share a GPU's memory safely (Salus, MLSys 2020): what its five policies share.

    P = memory that a job keeps (weights), E = memory that an iteration needs and gives back (activations)
    a lane of jobs takes       sum(P) + max(E)              and all lanes at most the GPU's memory
    admission, in order        P + E is free: a new lane
                               else the lane that it makes grow least, P + max(0, E - max(E) there), if that is free
                               else it waits, and later ones may go before it
    rule lanes                 in a lane one iteration at a time, lanes side by side; who begins next: lowest rank

The condition makes every admitted iteration finish: while one of a lane runs, all the others there hold only their P,
so its E is there for it. Without it two half-allocated iterations can wait for each other for ever, which is why a job
is admitted whole or not at all. A job that does not fit the empty GPU is refused.

Salus moves lanes together to join free memory; here sizes count, not addresses. P and E are what the workload declares.
All of Salus runs in one process, so contexts run together. Iterations cannot be seen from outside, so this only runs in
the simulator. The policies salus_pack, salus_fair, salus_srtf, salus_rr and salus_fifo differ in the rank and who is
admitted.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from cotenant.policies.interface import Knobs, Policy, Rule, Tenant, TenantId, TenantKnobs, View
from cotenant.policies.journal import Journal


@dataclass(frozen=True, slots=True)
class Need:
    persistent: int
    ephemeral: int


@dataclass
class Lane:
    number: int
    jobs: dict[TenantId, Need] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(need.persistent for need in self.jobs.values()) + self.width

    @property
    def width(self) -> int:
        """What its iterations use, one after the other."""
        return max((need.ephemeral for need in self.jobs.values()), default=0)

    def growth(self, more: Need) -> int:
        return more.persistent + max(0, more.ephemeral - self.width)


class Lanes:
    """Who may use which part of the memory. `memory` None: there is no end of it."""

    def __init__(self, memory: int | None) -> None:
        self.memory = memory
        self.lanes: list[Lane] = []
        self._next_number = 1

    def lane_of(self, job: TenantId) -> Lane | None:
        return next((lane for lane in self.lanes if job in lane.jobs), None)

    def free(self) -> float:
        return math.inf if self.memory is None else self.memory - sum(lane.size for lane in self.lanes)

    def can_ever_hold(self, need: Need) -> bool:
        return self.memory is None or need.persistent + need.ephemeral <= self.memory

    def admit(self, job: TenantId, need: Need) -> Lane | None:
        if need.persistent + need.ephemeral <= self.free():
            lane = Lane(self._next_number)
            self._next_number += 1
            self.lanes.append(lane)
        else:
            lane = min(self.lanes, key=lambda one: (one.growth(need), one.width, one.number), default=Lane(0))
            if lane.growth(need) > self.free():
                return None
        lane.jobs[job] = need
        return lane

    def leave(self, job: TenantId) -> None:
        for lane in self.lanes:
            lane.jobs.pop(job, None)
        self.lanes = [lane for lane in self.lanes if lane.jobs]


class Salus(Policy, ABC):
    """The controller; a policy says the order of admission and of iterations."""

    every_ms = 10
    rule = Rule.lanes
    sharing = "together"
    runs_live = False
    in_turn: ClassVar[bool] = False  # who has waited longest begins its iteration first, whatever the rank

    def __init__(self) -> None:
        self.lanes: Lanes | None = None
        self._here: frozenset[TenantId] = frozenset()
        self._journal = Journal()

    @abstractmethod
    def rank(self, tenant: Tenant) -> float:
        """Lower begins its iteration first, and is admitted first."""

    def may_be_admitted(self, waiting: Sequence[Tenant], lanes: Lanes) -> Sequence[Tenant]:
        """Of those that wait, in order of rank, whom memory is offered to."""
        return waiting

    def tick(self, view: View) -> Knobs:
        if self.lanes is None:
            self.lanes = Lanes(view.memory_bytes or None)
        here = frozenset(tenant.id for tenant in view.tenants)
        for gone in self._here - here:
            self.lanes.leave(gone)
        self._here = here
        self._journal.keep_only(here)
        in_order = sorted(view.tenants, key=lambda tenant: (self.rank(tenant), tenant.arrived_us, tenant.id))
        waiting = [tenant for tenant in in_order if self.lanes.lane_of(tenant.id) is None]
        for tenant in self.may_be_admitted(waiting, self.lanes):
            self._offer(tenant, self.lanes)
        return Knobs(
            rule=self.rule,
            tenants={
                tenant.id: self._knobs(0.0 if self.in_turn else float(place), self.lanes.lane_of(tenant.id))
                for place, tenant in enumerate(in_order)
            },
        )

    def explain(self, tenant: TenantId) -> list[str]:
        return self._journal.of(tenant, "It waits for memory: others came first.")

    def _offer(self, tenant: Tenant, lanes: Lanes) -> None:
        need = Need(tenant.persistent_bytes, tenant.ephemeral_bytes)
        sizes = (
            f"{need.persistent / 2**30:.1f} GiB to keep and {need.ephemeral / 2**30:.1f} GiB for an iteration"
        )
        if lane := lanes.admit(tenant.id, need):
            self._journal.note(tenant.id, f"It was admitted to lane {lane.number}: it needs {sizes}.")
        elif lanes.can_ever_hold(need):
            self._journal.note(tenant.id, f"It waits: no lane is safe with {sizes} more.")
        else:
            self._journal.note(tenant.id, f"It is refused: this GPU never holds {sizes}.")

    @staticmethod
    def _knobs(place: float, lane: Lane | None) -> TenantKnobs:
        return TenantKnobs(shut=True) if lane is None else TenantKnobs(rank=place, lane=lane.number)
