"""One window of a crowd, and rounds of them: who is told what, and what they and the segment say afterwards."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from catalogue import AS_OPPORTUNISTIC, AS_PRODUCTION, RUN_OPTIONS
from crew import Crew
from crowds import COTENANT, MPS_PRIORITY, STARTS, TIMESLICE, WEIGHTED, WEIGHTS, Case
from rounds import NOTEWORTHY_DELAY_MS, STOP, WindowOrder

from cotenant import segment
from cotenant.demo.arrivals import poisson_arrivals
from cotenant.demo.opportunistic import steps_within
from cotenant.demo.workers import Worker
from cotenant.errors import Problem

Narrate = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Worked:
    """What one opportunistic job did in a window."""

    steps: float
    longest_gap_ms: float  # between two steps that ended, or an edge of the window
    used_s: float | None  # GPU time that the segment says it had; None: it does not
    digests: list[str]


@dataclasses.dataclass(frozen=True)
class Seen:
    """A window of a case; the jobs in the case's order."""

    seconds: float
    jobs: list[Worked]
    latencies_ms: list[float]
    services_ms: list[float]
    unanswered: int = 0
    production_digests: list[str] = dataclasses.field(default_factory=list)
    late_ms: float = 0.0
    sm_mhz: float | None = None


def longest_gap(completions: Sequence[float], begin: float, end: float) -> float:
    moments = [begin, *(moment for moment in completions if begin < moment < end), end]
    return max(after - before for before, after in itertools.pairwise(moments))


def used_seconds(path: Path) -> dict[int, float]:
    """By process; nothing where there is no segment that we can read."""
    try:
        tenants = segment.read(path).tenants
    except (OSError, segment.BadSegment):
        return {}
    return {tenant.pid: sum(use.used_ns for use in tenant.uses) / 1e9 for tenant in tenants}


def set_weights(path: Path, workers: Sequence[Worker], weights: Sequence[float]) -> bool:
    try:
        return all(
            segment.ask(path, worker.pid, {"weight": round(1000 * weight)})
            for worker, weight in zip(workers, weights, strict=True)
        )
    except (OSError, segment.BadSegment):
        return False


def sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def run_case(crew: Crew, case: Case, seconds: float, seed: int, path: Path) -> Seen:
    """A job that does not answer is a Problem that says which window it was, and what each tenant of it waits for."""
    try:
        return _run_case(crew, case, seconds, seed, path)
    except Problem as problem:
        tenants = [worker for worker in case.workers() if worker[1] in RUN_OPTIONS]
        said = [f"\n  {job.name}: {line}" for job, start in tenants for line in crew.explained(job, start)]
        raise Problem(f"{case.title}: {problem.message}{''.join(said)}", problem.hint) from None


def _run_case(crew: Crew, case: Case, seconds: float, seed: int, path: Path) -> Seen:
    everyone = [crew.worker(job, start) for job, start in case.workers()]
    production = everyone[0] if case.production else None
    workers = everyone[1:] if case.production else everyone
    weighted = case.mode == WEIGHTED and set_weights(path, workers, WEIGHTS)
    rate = case.production.rate if case.production else 0.0
    arrivals = poisson_arrivals(rate, seconds, seed) if rate else []
    order = WindowOrder(time.monotonic() + crew.pace.notice, seconds, seed, arrivals)
    end = order.start + seconds
    for worker in everyone:
        worker.order(order)
    sleep_until(order.start)
    before = used_seconds(path)
    sleep_until(end)
    after = used_seconds(path)
    answered = production.answer(2 * seconds) if production else {}
    for worker in workers:
        worker.order(STOP)
    said = [worker.answer() for worker in workers]
    if weighted:
        set_weights(path, workers, [1.0] * len(workers))

    def worked(worker: Worker, answer: dict[str, object]) -> Worked:
        completions: list[float] = answer["completions"]  # type: ignore[assignment]
        known = worker.pid in before and worker.pid in after
        return Worked(
            steps_within(completions, order.start, end),
            1000 * longest_gap(completions, order.start, end),
            after[worker.pid] - before[worker.pid] if known else None,
            answer["digests"],  # type: ignore[arg-type]
        )

    return Seen(
        seconds,
        [worked(worker, answer) for worker, answer in zip(workers, said, strict=True)],
        answered.get("latencies_ms", []),
        answered.get("services_ms", []),
        answered.get("unanswered", 0),
        answered.get("digests", []),
        max(answer.get("late_ms", 0.0) for answer in (answered, *said)),
        crew.clocks.between(order.start, end),
    )


def warm_up(crew: Crew, cases: Sequence[Case], path: Path) -> None:
    """Every way of starting a job once, all that are in it at the same time; guard learns each production job alone."""
    everyone = dict.fromkeys(worker for case in cases for worker in case.workers())
    for mode in (TIMESLICE, MPS_PRIORITY, COTENANT):
        crowd = tuple(job for job, how in everyone if how == STARTS[mode][1] and job.kind == "opportunistic")
        if crowd:
            run_case(crew, Case(mode, None, crowd), crew.pace.warm_up, 0, path)
    for job, start in everyone:
        if start == AS_PRODUCTION:
            beside = tuple(other for other, how in everyone if how == AS_OPPORTUNISTIC)
            run_case(crew, Case(COTENANT, job, beside), crew.pace.learning, 0, path)


def measure(
    crew: Crew, cases: Sequence[Case], rounds: int, seconds: float, path: Path, narrate: Narrate
) -> Iterator[dict[Case, Seen]]:
    """Round by round: every case once, in the same order from another beginning each time."""
    warm_up(crew, cases, path)
    for number in range(rounds):
        narrate(f"round {number + 1} of {rounds}: {len(cases)} windows")
        turn = number * len(cases) // rounds
        found = {}
        for case in [*cases[turn:], *cases[:turn]]:
            seen = run_case(crew, case, case.length(seconds), 1 + number, path)
            if seen.late_ms > NOTEWORTHY_DELAY_MS:
                narrate(f"{case.title}: a job was {seen.late_ms:.0f} ms late for its window")
            found[case] = seen
        yield found
