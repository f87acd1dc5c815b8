"""A production job and an opportunistic one beside it, in a segment of their own, and what a drill did to them."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cotenant.demo.rounds import private_folder, worker_environment
from cotenant.demo.workers import Worker
from cotenant.errors import Problem

HERE = Path(__file__).resolve().parent
END_SECONDS = 20.0


@dataclasses.dataclass(frozen=True)
class Shape:
    """How large a job's steps and its memory are."""

    options: tuple[str, ...]

    @staticmethod
    def of(kernels: int, kernel_us: float, rate: float, mib: int) -> Shape:
        return Shape(
            ("--kernels", str(kernels), "--kernel-us", str(kernel_us), "--rate", str(rate), "--mib", str(mib))
        )


@dataclasses.dataclass(frozen=True)
class Step:
    at: float
    ms: float


class Job:
    """One job.py under `cotenant run`."""

    def __init__(
        self, tenant_class: str, shape: Shape, calibration: float, folder: Path, number: int
    ) -> None:
        self.tenant_class = tenant_class
        place = folder / f"job-{number}"
        place.mkdir()
        run = [sys.executable, "-m", "cotenant", "run", "--require", "--class", tenant_class, "--"]
        program = [sys.executable, str(HERE / "job.py"), *shape.options, "--work-per-us", repr(calibration)]
        self.worker = Worker(tenant_class, [*run, *program], worker_environment(folder), place)
        self.was_killed = False
        self.steps: list[Step] = []
        self.right: bool | None = None  # None: it did not live to say so
        self.status: int | None = None

    @property
    def pid(self) -> int:
        return self.worker.pid

    def begin(self) -> None:
        self.worker.answer()

    def finish(self) -> None:
        """Hears all that it said; never raises: that it did not end well is what the drill finds."""
        self.worker.ask_to_end()
        with contextlib.suppress(Problem):
            while "at" in (said := self.worker.answer(END_SECONDS)):
                self.steps.append(Step(said["at"], said["ms"]))
            self.right = said["steps"] == said["counted_by_gpu"] and said["intact"]
        self.status = self.worker.end(END_SECONDS)

    def between(self, begin: float, end: float) -> list[Step]:
        return [step for step in self.steps if begin <= step.at < end]

    def longest_gap_ms(self, begin: float, end: float) -> float:
        moments = [begin, *(step.at for step in self.between(begin, end)), end]
        return 1000 * max(after - before for before, after in itertools.pairwise(moments))


@dataclasses.dataclass(frozen=True)
class Fate:
    """What became of a job: before the drill, across it, after it."""

    tenant_class: str
    ending: str
    results: str
    service_ms: tuple[float, float]  # medians before and after
    per_second: tuple[float, float]
    longest_gap_ms: tuple[float, float]  # before, and from the damage on

    @property
    def is_well(self) -> bool:
        return self.results in ("right", "killed")


class Stage:
    def __init__(self, folder: Path, calibration: float, shapes: dict[str, Shape]) -> None:
        self.folder = folder
        self.calibration = calibration
        self.shapes = shapes
        self.jobs: list[Job] = []
        self.complaints: list[str] = []
        self.production = self._start("production")
        self.opportunistic = self._start("opportunistic")
        for job in self.jobs:
            job.begin()

    @property
    def segment(self) -> Path:
        return self.folder / "segment"

    def _start(self, tenant_class: str) -> Job:
        job = Job(tenant_class, self.shapes[tenant_class], self.calibration, self.folder, len(self.jobs))
        self.jobs.append(job)
        return job

    def add_job(self, tenant_class: str) -> None:
        self._start(tenant_class).begin()

    def complain(self, what: str) -> None:
        self.complaints.append(what)

    def kill(self, job: Job) -> None:
        job.was_killed = True
        os.kill(job.pid, signal.SIGKILL)

    def run_to_its_end(self, program: str, tenant_class: str) -> int:
        """Gives its exit status; a signal's is negative."""
        run = [sys.executable, "-m", "cotenant", "run", "--require", "--class", tenant_class, "--"]
        environment = worker_environment(self.folder)
        try:
            return subprocess.run(
                [*run, sys.executable, str(HERE / program)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                timeout=60,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            self.complain(f"{program} hung")
            return 1

    def end(self) -> None:
        for job in self.jobs:
            job.finish()


def fate(job: Job, seconds: float, damage: tuple[float, float]) -> Fate:
    began, ended = damage
    before, after = job.between(began - seconds, began), job.between(ended, ended + seconds)

    def median(steps: Sequence[Step]) -> float:
        return statistics.median(step.ms for step in steps) if steps else 0.0

    right = {True: "right", False: "WRONG", None: "killed" if job.was_killed else "NONE"}[job.right]
    if job.was_killed:
        ending = "killed"
    else:
        ending = (
            f"exit {job.status}" if job.status is not None and job.status >= 0 else f"signal {job.status}"
        )
    return Fate(
        job.tenant_class,
        ending,
        right if job.was_killed or job.status == 0 else "NONE",
        (median(before), median(after)),
        (len(before) / seconds, len(after) / seconds),
        (job.longest_gap_ms(began - seconds, began), job.longest_gap_ms(began, ended + seconds)),
    )


@contextlib.contextmanager
def stage(calibration: float, shapes: dict[str, Shape]) -> Iterator[Stage]:
    with private_folder() as folder:
        made = Stage(folder, calibration, shapes)
        try:
            yield made
        finally:
            for job in made.jobs:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(job.pid, signal.SIGCONT)
            made.end()


def perform(
    drill: Callable[[Stage], str], calibration: float, shapes: dict[str, Shape], seconds: float
) -> tuple[str, list[Fate], list[str]]:
    """What was done, what became of the two jobs, and what else was wrong."""
    with stage(calibration, shapes) as here:
        # guard learns what production costs alone in its first second.
        time.sleep(2 * seconds)
        began = time.monotonic()
        done = drill(here)
        ended = time.monotonic()
        time.sleep(seconds)
    return done, [fate(job, seconds, (began, ended)) for job in here.jobs[:2]], here.complaints
