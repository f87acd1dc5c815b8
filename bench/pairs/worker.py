"""A worker process: one job, ready and idle until it is told to run in a window. Knows nothing of Cotenant.

    bench  -> worker   {"start": 1234.5, "seconds": 3.0, "seed": 7, "arrivals": [0.01, ...]}
    bench  -> worker   {"start": 0, "seconds": 0, ...}     ends an opportunistic job's window
    bench  -> worker   {..., "gpu_time": true}             how long a production job's request keeps the GPU busy
    worker -> bench    {"gpu": ..., ...} or {"skipped": "why"} once, then one answer for each window

Times are CLOCK_MONOTONIC seconds. The worker ends when its stdin does.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import importlib
import json
import os
import queue
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import IO, Any, Protocol

Answer = dict[str, Any]

LEAD_SECONDS = 0.15  # an opportunistic job runs this long before the window: production meets no empty GPU
COMPARED_REQUESTS = 50
COMPARED_STEPS = 8
LONGEST_TAIL_SECONDS = 120.0


class ProductionJob(Protocol):
    """Its request `number` gives the same bytes whenever it comes after the same requests since `prepare`."""

    about: Answer
    paced_by_arrivals: bool

    def prepare(self) -> None: ...
    def load_seconds(self, source: random.Random) -> float: ...  # only where it sets its own pace
    def request(self, number: int) -> bytes: ...

    # Where it can tell: GPU time of one request without the host's pauses, with nobody else on the GPU.
    # def gpu_ms(self) -> float: ...


class OpportunisticJob(Protocol):
    """`step` queues a step and gives the function that waits for it; `snapshot` gives what reads the result of now."""

    about: Answer

    def prepare(self) -> None: ...
    def step(self) -> Callable[[], object]: ...
    def snapshot(self) -> Callable[[], bytes]: ...


@dataclasses.dataclass(frozen=True)
class Window:
    start: float
    seconds: float
    seed: int
    arrivals: list[float]
    gpu_time: bool = False

    @property
    def end(self) -> float:
        return self.start + self.seconds

    @property
    def late_ms(self) -> float:
        return max(0.0, 1000.0 * (time.monotonic() - self.start))


def digest(result: bytes) -> str:
    return hashlib.sha256(result).hexdigest()[:16]


def sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


@dataclasses.dataclass
class Served:
    """What production has to say of a window."""

    late_ms: float
    latencies_ms: list[float] = dataclasses.field(default_factory=list)
    services_ms: list[float] = dataclasses.field(default_factory=list)
    ended: list[float] = dataclasses.field(default_factory=list)  # when, of those that were answered
    results: list[bytes] = dataclasses.field(default_factory=list)
    unanswered: int = 0

    def note(self, due: float, began: float, result: bytes) -> float:
        """A request that has just ended; gives the time."""
        ended = time.monotonic()
        self.latencies_ms.append(1000.0 * (ended - due))
        self.services_ms.append(1000.0 * (ended - began))
        self.ended.append(ended)
        if len(self.results) < COMPARED_REQUESTS:
            self.results.append(result)
        return ended

    def answer(self) -> Answer:
        said = dataclasses.asdict(self)
        said["digests"] = [digest(result) for result in said.pop("results")]
        return said


def serve(job: ProductionJob, window: Window) -> Answer:
    """Requests as they arrive. Latency counts from the intended arrival, service from the request's start."""
    job.prepare()
    served = Served(window.late_ms)
    # A backlog is worked off for as long again; who still waits then has waited at least so long.
    give_up = window.end + window.seconds
    for number, arrival in enumerate(window.arrivals):
        due = window.start + arrival
        if time.monotonic() >= give_up:
            served.latencies_ms.append(1000.0 * (give_up - due))
            served.unanswered += 1
            continue
        sleep_until(due)
        began = time.monotonic()
        served.note(due, began, job.request(number))
    return served.answer()


def train(job: ProductionJob, window: Window) -> Answer:
    """Load, step, load, step. Latency is the whole step, service the part on the GPU."""
    job.prepare()
    served = Served(window.late_ms)
    source = random.Random(window.seed)
    sleep_until(window.start)
    began = time.monotonic()
    while began < window.end:
        time.sleep(job.load_seconds(source))
        loaded = time.monotonic()
        began = served.note(began, loaded, job.request(len(served.services_ms)))
    return served.answer()


def work(job: OpportunisticJob, window: Window, told_to_stop: Callable[[], bool]) -> Answer:
    """Step after step, one queued ahead, until told to stop: as long as production has requests to answer."""
    job.prepare()
    sleep_until(window.start - LEAD_SECONDS)
    late_ms = window.late_ms
    completions = [time.monotonic()]
    waiting = [job.step()]
    submitted = 1
    result: Callable[[], bytes] | None = None
    last = window.end + LONGEST_TAIL_SECONDS
    while completions[-1] < window.end or not (told_to_stop() or completions[-1] > last):
        waiting.append(job.step())
        submitted += 1
        if submitted == COMPARED_STEPS:
            result = job.snapshot()
        waiting.pop(0)()
        completions.append(time.monotonic())
    waiting.pop(0)()
    return {
        "completions": completions,
        "digests": [digest(result())] if result is not None else [],
        "late_ms": late_ms,
    }


def load_job(source: str, work_per_us: float | None) -> Any:
    """The job, or ImportError where a library is missing."""
    module, _, name = source.partition(":")
    build = getattr(importlib.import_module(module), name)
    return build(work_per_us) if module == "spinning" else build()


def private_stdout() -> IO[str]:
    """What libraries print goes to stderr: stdout carries answers and nothing else."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", help="module:class")
    parser.add_argument(
        "--work-per-us", type=float, help="the calibration of another worker's spinning kernels"
    )
    options = parser.parse_args()
    answers = private_stdout()

    def say(answer: Answer) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    inbox: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            inbox.put(line)
        inbox.put("")

    try:
        job = load_job(options.source, options.work_per_us)
    except ImportError as error:
        say({"skipped": str(error)})
        return 0
    say(job.about)
    threading.Thread(target=listen, daemon=True).start()
    while line := inbox.get():
        window = Window(**json.loads(line))
        if window.gpu_time:
            say({"gpu_ms": job.gpu_ms() if hasattr(job, "gpu_ms") else None})
            continue
        if not window.seconds:
            continue  # it came after the window had ended by itself
        if hasattr(job, "step"):
            say(work(job, window, lambda: not inbox.empty()))
        else:
            say(serve(job, window) if job.paced_by_arrivals else train(job, window))
    return 0


if __name__ == "__main__":
    sys.exit(main())
