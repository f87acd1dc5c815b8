"""Who runs when: rounds of short windows, interleaved, so that a machine that drifts drifts for all modes alike.

Within a round all modes see the same arrivals; from round to round their order turns. An opportunistic job runs on
until production has answered its last request, so that no backlog drains on an empty GPU.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Sequence

import bursts
from catalogue import MODES, PLAIN, RUN_OPTIONS, SOLO, SPATIAL, SPATIAL_PROMISED, Job, Pair
from crew import Crew
from pace import MEASURED, Pace

from cotenant import segment
from cotenant.demo.arrivals import poisson_arrivals
from cotenant.demo.figures import Samples
from cotenant.demo.opportunistic import steps_within
from cotenant.demo.orders import Order
from cotenant.demo.workers import Worker
from cotenant.errors import Problem

Narrate = Callable[[str], None]

# A closed loop's rate is known sooner than an open loop's tail.
SOLO_LENGTH = 0.5
NOTEWORTHY_DELAY_MS = 20.0


@dataclasses.dataclass(frozen=True)
class WindowOrder(Order):
    arrivals: list[float]
    gpu_time: bool = False


STOP = WindowOrder(start=0.0, seconds=0.0, seed=0, arrivals=[])
TELL_GPU_TIME = WindowOrder(start=0.0, seconds=0.0, seed=0, arrivals=[], gpu_time=True)


@dataclasses.dataclass(frozen=True)
class Window:
    mode: str
    seconds: float
    seed: int


@dataclasses.dataclass(frozen=True)
class Observation:
    """One window of one mode."""

    samples: Samples
    unanswered: int = 0  # their latencies are lower bounds
    production_digests: list[str] = dataclasses.field(default_factory=list)
    opportunistic_digests: list[str] = dataclasses.field(default_factory=list)
    late_ms: float = 0.0  # by how much a job was not ready at the window's start
    step_seconds: list[float] = dataclasses.field(default_factory=list)  # of the opportunistic job
    # Since the window's start: when each request that was answered ended, and each step.
    ended_s: list[float] = dataclasses.field(default_factory=list)
    completions_s: list[float] = dataclasses.field(default_factory=list)
    start: float = 0.0
    sm_mhz: float | None = None
    bursts: segment.Use | None = None  # of production under Cotenant: what it did in this window
    explained: list[str] = dataclasses.field(
        default_factory=list
    )  # `cotenant explain` of production at its end


def plan(modes: Sequence[str], rounds: int, seconds: float, seed: int = 1) -> list[list[Window]]:
    """Every mode once a round; over the rounds, the modes that begin a round lie evenly apart."""
    planned = []
    for number in range(rounds):
        turn = number * len(modes) // rounds % len(modes)
        turned = [*modes[turn:], *modes[:turn]]
        planned.append(
            [Window(mode, seconds * (SOLO_LENGTH if mode == SOLO else 1.0), seed + number) for mode in turned]
        )
    return planned


def run_window(
    production: Worker | None,
    rate: float,
    opportunistic: Worker | None,
    window: Window,
    pace: Pace = MEASURED,
) -> Observation:
    arrivals = poisson_arrivals(rate, window.seconds, window.seed) if production and rate else []
    order = WindowOrder(time.monotonic() + pace.notice, window.seconds, window.seed, arrivals)
    for worker in (production, opportunistic):
        if worker:
            worker.order(order)
    samples = Samples(seconds=window.seconds)
    answered = {}
    if production:
        # Twice the window: a backlog is worked off for as long again.
        answered = production.answer(pace.notice + 2 * window.seconds)
        samples.latencies_ms += answered["latencies_ms"]
        samples.services_ms += answered["services_ms"]
    worked = {}
    if opportunistic:
        end = order.start + order.seconds
        time.sleep(max(0.0, end - time.monotonic()))
        opportunistic.order(STOP)
        worked = opportunistic.answer()
        samples.steps = steps_within(worked["completions"], order.start, end)
    return Observation(
        samples,
        answered.get("unanswered", 0),
        answered.get("digests", []),
        worked.get("digests", []),
        max(answered.get("late_ms", 0.0), worked.get("late_ms", 0.0)),
        [after - before for before, after in itertools.pairwise(worked.get("completions", []))],
        [ended - order.start for ended in answered.get("ended", [])],
        [ended - order.start for ended in worked.get("completions", [])],
        order.start,
    )


def gpu_ms(crew: Crew, production: Job) -> float | None:
    """What one request keeps the GPU busy for, with nobody else on it; None where the job cannot tell."""
    worker = crew.worker(production, PLAIN)
    worker.order(TELL_GPU_TIME)
    told = worker.answer()["gpu_ms"]
    return None if told is None else float(told)


def observe(crew: Crew, production: Job | None, opportunistic: Job | None, window: Window) -> Observation:
    starts = MODES[window.mode]
    first, second = (
        crew.worker(job, start) if job is not None and start is not None else None
        for job, start in zip((production, opportunistic), starts, strict=True)
    )
    is_tenant = first is not None and starts[0] in RUN_OPTIONS

    def look() -> segment.Use | None:
        return bursts.look(crew.segment_of(starts[0] or ""), first.pid) if first and is_tenant else None

    before = look()
    seen = run_window(first, production.rate if production else 0.0, second, window, crew.pace)
    return dataclasses.replace(
        seen,
        sm_mhz=crew.clocks.between(seen.start, seen.start + window.seconds),
        bursts=bursts.between(before, look()),
    )


def rehearse(crew: Crew, pair: Pair, modes: Sequence[str]) -> None:
    """Where `cotenant run` goes by the job's last run, the job has one, as a user's second run has. The other modes of
    Cotenant see the same record, and do not look."""
    if not any(MODES[mode][1] in (SPATIAL[1], SPATIAL_PROMISED[1]) for mode in modes):
        return
    with crew.rehearsal(pair.opportunistic) as worker:
        if worker:
            run_window(None, 0.0, worker, Window("rehearsal", crew.pace.rehearsal, seed=0), crew.pace)


def warm_up(crew: Crew, pair: Pair, modes: Sequence[str]) -> None:
    for mode in modes:
        # The seed of no round: nobody has met these arrivals before they count.
        is_tenant = any(start in RUN_OPTIONS for start in MODES[mode])
        length = crew.pace.learning if is_tenant else crew.pace.warm_up
        observe(crew, pair.production, pair.opportunistic, Window(mode, length, seed=0))


def measure_pair(
    crew: Crew, pair: Pair, modes: Sequence[str], rounds: int, seconds: float, narrate: Narrate
) -> dict[str, list[Observation]]:
    """What was seen in each mode, and in `solo`, round by round. The pair's workers are in the crew already."""
    everything = [*modes, SOLO]
    warm_up(crew, pair, everything)
    seen: dict[str, list[Observation]] = {mode: [] for mode in everything}
    for number, windows in enumerate(plan(everything, rounds, seconds), start=1):
        narrate(f"{pair.name}: round {number} of {rounds}: {', '.join(window.mode for window in windows)}")
        for window in windows:
            observation = observe(crew, pair.production, pair.opportunistic, window)
            if observation.late_ms > NOTEWORTHY_DELAY_MS:
                narrate(
                    f"{pair.name}: {window.mode}: a job was {observation.late_ms:.0f} ms late for its window"
                )
            seen[window.mode].append(observation)
    for mode in modes:
        if not all(observation.samples.services_ms for observation in seen[mode]):
            raise Problem(f"no request was answered in a window of {mode}: give more --seconds")
    if not all(observation.samples.steps for observation in seen[SOLO]):
        raise Problem(f"{pair.opportunistic.name} did nothing in a window of its own: give more --seconds")
    return seen
