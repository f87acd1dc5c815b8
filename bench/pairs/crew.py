"""The worker processes of a benchmark: started in parallel, kept while they are needed, ended whatever happens."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import mps
from catalogue import (
    AS_OPPORTUNISTIC,
    IN_OWN_MPS,
    MPS,
    MPS_LOW,
    OWN_SEGMENTS,
    PLAIN,
    RUN_OPTIONS,
    SM_SHARES,
    Job,
)
from clocks import Clocks
from pace import MEASURED, Pace

from cotenant.demo.orders import Answer
from cotenant.demo.rounds import private_folder, worker_environment
from cotenant.demo.workers import Worker
from cotenant.errors import Problem

WORKER = Path(__file__).resolve().parent / "worker.py"
START_SECONDS = 120.0  # the libraries may have to come from a cold disk, for several workers at once
# NVIDIA's words: 0 is normal, 1 below normal.
_MPS_PRIORITY = {MPS: "0", MPS_LOW: "1"} | dict.fromkeys(SM_SHARES, "1")


class Skipped(Exception):
    """A job cannot run here; says why."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """How workers are started on this machine."""

    python: Sequence[str]
    cotenant: Sequence[str]
    folder: Path  # private: the segment and the workers' stderr
    environment: Mapping[str, str]
    mps_environment: Mapping[str, str] | None
    no_mps: str  # why there is none

    def command(self, job: Job, start: str, options: Sequence[str]) -> list[str]:
        plain = [*self.python, str(WORKER), job.source, *options]
        if start in RUN_OPTIONS:
            return [*self.cotenant, "run", "--require", *RUN_OPTIONS[start], "--", *plain]
        return plain

    def environment_of(self, start: str) -> dict[str, str]:
        if start in _MPS_PRIORITY:
            if self.mps_environment is None:
                raise Skipped(self.no_mps)
            client = {"CUDA_MPS_CLIENT_PRIORITY": _MPS_PRIORITY[start]}
            if start in SM_SHARES:
                client["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{100 * SM_SHARES[start]:.0f}"
            return dict(self.mps_environment) | client
        if start in IN_OWN_MPS and self.no_mps:
            raise Skipped(self.no_mps)
        own = {"COTENANT_MPS_DIR": str(self.folder / "m")}
        if start in OWN_SEGMENTS:
            own["COTENANT_SEGMENT"] = str(self.folder / OWN_SEGMENTS[start])
        return dict(self.environment) | own


@contextlib.contextmanager
def setting(python: Sequence[str], cotenant: Sequence[str], with_mps: bool) -> Iterator[Setting]:
    with private_folder() as folder, contextlib.ExitStack() as stack:
        environment = mps.without_mps(worker_environment(folder)) | {
            "COTENANT_SHARE": "turns",
            # What other runs of the same program were like is no business of a measurement.
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
        clients = None
        reason = mps.missing() if with_mps else "MPS was not asked for"
        if not reason:
            try:
                clients = stack.enter_context(mps.control_daemon(environment))
            except Problem as problem:
                reason = problem.message
        yield Setting(python, cotenant, folder, environment, clients, reason)


def waves(keys: Sequence[tuple[Job, str]]) -> list[list[tuple[Job, str]]]:
    """Who starts at once. Of a job that compiles, one comes before the others. Opportunistic tenants of different
    segments take no turns with each other: each comes alone, or they would cut each other's kernels for minutes."""
    first = list({job: (job, start) for job, start in reversed(keys) if job.compiles}.values())
    rest = [key for key in keys if key not in first]
    apart = [key for key in rest if key[0].kind == "opportunistic" and key[1] in OWN_SEGMENTS]
    return [first, [key for key in rest if key not in apart], *([key] for key in apart)]


class Crew:
    """`apart`: each tenant has a segment of its own, and so meets nobody."""

    def __init__(
        self,
        setting: Setting,
        narrate: Callable[[str], None],
        apart: bool = False,
        clocks: Clocks | None = None,
        pace: Pace = MEASURED,
    ) -> None:
        self.pace = pace
        self.clocks = clocks or Clocks()
        self._setting = setting
        self._apart = apart
        self._narrate = narrate
        self._workers: dict[tuple[Job, str], Worker] = {}
        self._ready: dict[tuple[Job, str], Answer] = {}
        self._started = 0
        self._rehearsed: set[Job] = set()

    def gather(self, wanted: Iterable[tuple[Job, str]], *options: str) -> Answer:
        """Exactly these workers, ready and idle. Gives what one of them said about the machine."""
        needed = list(wanted)
        self._end([key for key in self._workers if key not in needed])
        missing = [key for key in needed if key not in self._workers]
        if missing:
            names = ", ".join(f"{job.name} ({start})" for job, start in missing)
            self._narrate(f"starting {names}")
        answers: dict[tuple[Job, str], Answer] = {}
        for keys in waves(missing):
            for job, start in keys:
                self._workers[job, start] = self._started_worker(job, start, options)
            answers |= {key: self._workers[key].answer(START_SECONDS) for key in keys}
        self._ready |= {key: answer for key, answer in answers.items() if "skipped" not in answer}
        # Those that cannot run here go; the others stay for whoever can do without.
        skipped = [key for key in missing if "skipped" in answers[key]]
        self._end(skipped)
        # Plain ones first: what cannot run plainly is skipped, what cannot run in another mode alone has failed.
        for job, start in sorted(skipped, key=lambda key: key[1] != PLAIN):
            reason = f"{job.name}: {answers[job, start]['skipped']}"
            raise Skipped(reason) if start == PLAIN else Problem(f"as {start} only, {reason}")
        return self._ready[needed[0]]

    @contextlib.contextmanager
    def rehearsal(self, job: Job) -> Iterator[Worker | None]:
        """The job as an opportunistic tenant, alone; None: it has had its rehearsal, or cannot run here."""
        if job in self._rehearsed:
            yield None
            return
        self._rehearsed.add(job)
        self._narrate(f"{job.name} runs alone for a moment: `cotenant run` goes by a job's last run")
        worker = self._started_worker(job, AS_OPPORTUNISTIC, ())
        try:
            yield None if "skipped" in worker.answer(START_SECONDS) else worker
        finally:
            worker.ask_to_end()
            worker.end()

    def _started_worker(self, job: Job, start: str, options: Sequence[str]) -> Worker:
        env = self._setting.environment_of(start) | {"COTENANT_NAME": job.name}
        # Numbered: a worker that is started again must not lose the words of the one before it.
        self._started += 1
        folder = self._setting.folder / f"worker-{self._started}"
        folder.mkdir()
        if self._apart:
            env["COTENANT_SEGMENT"] = str(folder / "segment")
        title = job.name if start == PLAIN else f"{job.name} ({start})"
        return Worker(title, self._setting.command(job, start, options), env, folder)

    def segment_of(self, start: str) -> Path:
        return Path(self._setting.environment_of(start)["COTENANT_SEGMENT"])

    def worker(self, job: Job, start: str) -> Worker:
        return self._workers[job, start]

    def explained(self, job: Job, start: str) -> list[str]:
        """What the policy has decided about a tenant, in its own words; nothing where nobody says so."""
        command = [*self._setting.cotenant, "explain", str(self.worker(job, start).pid)]
        env = self._setting.environment_of(start)
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout.splitlines() if done.returncode == 0 else []

    def dismiss(self) -> None:
        self._end(list(self._workers))

    def _end(self, keys: Sequence[tuple[Job, str]]) -> None:
        for key in keys:
            self._workers[key].ask_to_end()
        for key in keys:
            # Off the list first: an interrupt in here must not leave the others to be forgotten.
            self._ready.pop(key, None)
            self._workers[key].end()
            del self._workers[key]

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self.dismiss()
