"""The cluster in virtual time. Between two events every job has a constant speed.

    speed of a job = 1 / its slowdown beside the other residents, on that of its GPUs where it is slowest
    a GPU has work for   min(1, sum over its residents of  busy alone x speed)   of the time

The policy sees predicted slowdowns; jobs have the true ones. A round of the policy follows every arrival and every end,
but rounds are at least `round_s` apart. A job that moves does nothing while its memory goes to the host and back.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from cotenant.cluster.placement.fleet import Fleet, Job
from cotenant.cluster.placement.interface import Decision, Placement
from cotenant.cluster.placement.interference import Interference
from cotenant.cluster.simulation.kinds import Kind
from cotenant.cluster.simulation.outcome import ClusterOutcome, JobOutcome
from cotenant.cluster.simulation.scenario import Coming, Scenario

ROUND_S = 60.0
TIMELINE_PLACES = 200
HOST_GBPS = 25.0  # of memory that moves to the host and back
MOVE_LEAST_S = 1.0

ARRIVAL, END, ROUND, MOVED = range(4)
Progress = Callable[[float], None]


@dataclass(slots=True)
class Running:
    coming: Coming
    begun_s: float
    left_s: float  # of its work, alone
    speed: float = 0.0
    since_s: float = 0.0
    paused_until_s: float = 0.0
    version: int = 0  # an end that was computed for another speed does not count
    moves: int = 0
    broken_s: float = 0.0
    slowdown: float = 1.0


@dataclass
class Cluster:
    scenario: Scenario
    policy: Placement
    kinds: Mapping[str, Kind]
    truth: Interference
    predicted: Interference
    sharing: str = "cotenant"
    round_s: float = ROUND_S
    fleet: Fleet = field(init=False)

    def __post_init__(self) -> None:
        here = self.scenario
        self.fleet = Fleet([here.memory_bytes] * here.gpus)
        self._now = 0.0
        self._events: list[tuple[float, int, int, str, int]] = []
        self._number = 0
        self._running: dict[str, Running] = {}
        self._waiting: dict[str, Coming] = {}
        self._refused: set[str] = set()
        self._done: list[JobOutcome] = []
        self._last_round = -self.round_s
        self._round_is_due = False
        self._arrivals_s = max((one.at_s for one in here.coming), default=0.0)
        self._busy = [0.0] * here.gpus
        self._sms = [0.0] * here.gpus
        self._sums = [0.0, 0.0, 0.0]  # busy, SMs and memory now, over all GPUs
        self._areas = [0.0, 0.0, 0.0]
        self._production_s = self._service_broken_s = 0.0
        self._service_broken: dict[str, float] = {}  # since when
        self._timeline: list[tuple[float, float, int]] = []
        self._moves = 0

    def run(self, progress: Progress | None = None) -> ClusterOutcome:
        began = time.perf_counter()
        here = self.scenario
        for number, job in enumerate(here.services):
            self.fleet.add(job, (number,))
        self._refresh(range(len(here.services)))
        by_id = {one.job.id: one for one in here.coming}
        for one in here.coming:
            self._push(one.at_s, ARRIVAL, one.job.id)
        step = max(self._arrivals_s / TIMELINE_PLACES, 1e-9)
        while self._events:
            at, kind, _, id, version = heapq.heappop(self._events)
            self._advance(at, step)
            if kind == ARRIVAL:
                self._waiting[id] = by_id[id]
                self._want_round()
            elif kind == END:
                self._end(id, version)
            elif kind == MOVED:
                self._wake(id)
            elif self._round_is_due:
                self._round()
                if progress is not None and here.coming:
                    progress(len(self._done) / len(here.coming))
        return self._outcome(time.perf_counter() - began)

    # ---- events

    def _push(self, at: float, kind: int, id: str = "", version: int = 0) -> None:
        self._number += 1
        heapq.heappush(self._events, (at, kind, self._number, id, version))

    def _want_round(self) -> None:
        if not self._round_is_due:
            self._round_is_due = True
            self._push(max(self._now, self._last_round + self.round_s), ROUND)

    def _round(self) -> None:
        self._round_is_due = False
        self._last_round = self._now
        # Jobs that were refused are not asked for again before somebody has left.
        new = [one.job for id, one in self._waiting.items() if id not in self._refused]
        new.sort(key=lambda job: job.layer)  # reserved shares first; then by arrival
        decision = self.policy.decide(new, self.fleet, self.predicted)
        self._carry_out(decision)
        if not decision.placed:
            self._refused.update(job.id for job in new)
        elif self._waiting:  # a matching places one job a GPU and round
            self._want_round()

    def _carry_out(self, decision: Decision) -> None:
        touched: set[int] = set()
        for id, places in decision.moved.items():
            running = self._running[id]
            touched.update(self.fleet.remove(running.coming.job))
            self._refused.clear()
            self.fleet.add(running.coming.job, places)
            touched.update(places)
            self._settle(running)
            running.moves += 1
            self._moves += 1
            pause = MOVE_LEAST_S + 2 * running.coming.job.memory_bytes / (HOST_GBPS * 1e9)
            running.paused_until_s = self._now + pause
            self._push(running.paused_until_s, MOVED, id)
        for id, places in decision.placed.items():
            coming = self._waiting.pop(id)
            self.fleet.add(coming.job, places)
            self._running[id] = Running(coming, self._now, coming.seconds, since_s=self._now)
            touched.update(places)
        self._refresh(touched)

    def _wake(self, id: str) -> None:
        if id in self._running and self._running[id].paused_until_s <= self._now:
            self._refresh(self.fleet.places[id])

    def _end(self, id: str, version: int) -> None:
        running = self._running.get(id)
        if running is None or running.version != version:
            return
        self._settle(running)
        del self._running[id]
        coming = running.coming
        touched = self.fleet.remove(coming.job)
        self._refused.clear()
        if coming.job.part.is_production:
            self._production_s += self._now - running.begun_s
        self._done.append(
            JobOutcome(
                id=id,
                kind=coming.job.kind,
                is_production=coming.job.part.is_production,
                gpus=coming.job.gpus,
                submitted_s=coming.at_s,
                begun_s=running.begun_s,
                ended_s=self._now,
                alone_s=coming.seconds,
                moves=running.moves,
                broken_s=running.broken_s,
            )
        )
        self._refresh(touched)
        if self._waiting or self.policy.moves_jobs:
            self._want_round()

    # ---- speeds

    def _refresh(self, gpus: Iterable[int]) -> None:
        """After the residents of these GPUs have changed."""
        touched: dict[str, Job] = {}
        for gpu in gpus:
            for job in self.fleet.residents[gpu]:
                touched[job.id] = job
        for job in touched.values():
            self._set_speed(job)
        for gpu in {place for job in touched.values() for place in self.fleet.places[job.id]} | set(gpus):
            self._load(gpu)

    def _set_speed(self, job: Job) -> None:
        slowdown = 1.0
        for gpu in self.fleet.places[job.id]:
            residents = self.fleet.residents[gpu]
            if len(residents) > 1:
                all_of_them = self.truth.slowdowns([one.part for one in residents])
                slowdown = max(slowdown, all_of_them[residents.index(job)])
        running = self._running.get(job.id)
        if running is None:
            self._tell_service(job, slowdown)
            return
        self._settle(running)
        running.slowdown = slowdown
        is_paused = running.paused_until_s > self._now
        timed = running.coming.is_timed
        running.speed = 0.0 if is_paused else 1.0 if timed else 1 / slowdown
        running.version += 1
        if running.speed > 0:
            self._push(self._now + running.left_s / running.speed, END, job.id, running.version)

    def _settle(self, running: Running) -> None:
        passed = self._now - running.since_s
        running.left_s = max(0.0, running.left_s - passed * running.speed)
        if is_broken(running.coming.job, running.slowdown):
            running.broken_s += passed
        running.since_s = self._now

    def _tell_service(self, job: Job, slowdown: float) -> None:
        since = self._service_broken.pop(job.id, None)
        if since is not None:
            self._service_broken_s += self._within(since)
        if is_broken(job, slowdown):
            self._service_broken[job.id] = self._now

    def _within(self, since: float) -> float:
        """Services count while jobs come."""
        return max(0.0, min(self._now, self._arrivals_s) - since)

    # ---- figures

    def _load(self, gpu: int) -> None:
        busy = sms = 0.0
        for job in self.fleet.residents[gpu]:
            kind = self.kinds[job.kind]
            running = self._running.get(job.id)
            # What arrives at a service is served, however late.
            speed = 1.0 if running is None else running.speed
            busy += kind.busy * speed
            sms += kind.sms * speed
        self._sums[0] += min(1.0, busy) - self._busy[gpu]
        self._sums[1] += min(1.0, sms) - self._sms[gpu]
        self._busy[gpu], self._sms[gpu] = min(1.0, busy), min(1.0, sms)

    def _advance(self, at: float, step: float) -> None:
        if at <= self._now:
            return
        end = min(at, self._arrivals_s)
        if end > self._now:
            taken = float((self.fleet.memory_bytes - self.fleet.free_bytes).sum())
            self._sums[2] = taken / max(1, self.scenario.memory_bytes)
            for i, value in enumerate(self._sums):
                self._areas[i] += value * (end - self._now)
            while len(self._timeline) * step < end:
                moment = len(self._timeline) * step
                self._timeline.append((moment / 3600, self._sums[0] / self.scenario.gpus, len(self._waiting)))
        self._now = at

    def _outcome(self, wall_seconds: float) -> ClusterOutcome:
        here = self.scenario
        for since in self._service_broken.values():
            self._service_broken_s += self._within(since)
        whole = max(self._arrivals_s * here.gpus, 1e-9)
        order = {one.job.id: place for place, one in enumerate(here.coming)}
        done = sorted(self._done, key=lambda job: order[job.id])
        return ClusterOutcome(
            policy=self.policy.name,
            log=here.log,
            sharing=self.sharing,
            gpus=here.gpus,
            jobs=tuple(done),
            services=len(here.services),
            arrivals_s=self._arrivals_s,
            makespan_s=max((job.ended_s for job in done), default=0.0),
            utilisation=self._areas[0] / whole,
            sm_activity=self._areas[1] / whole,
            memory=self._areas[2] / whole,
            production_s=self._production_s + len(here.services) * self._arrivals_s,
            broken_s=self._service_broken_s + sum(job.broken_s for job in done),
            moves=self._moves,
            never_ran=len(self._waiting),
            wall_seconds=wall_seconds,
            timeline=tuple(self._timeline),
        )


def is_broken(job: Job, slowdown: float) -> bool:
    return job.slowdown is not None and slowdown > 1 + job.slowdown + 1e-9
