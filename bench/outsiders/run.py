"""Jobs outside Cotenant beside tenants: what each gets, and how soon jobs of several segments that start at once work.

    python bench/outsiders/run.py                          # both, about four minutes; needs a GPU
    python bench/outsiders/run.py start --segments 6
    cotenant softgpu --device h200 -- python bench/outsiders/run.py beside --rounds 1

`beside`: an opportunistic tenant and an outsider always have work, a production tenant serves requests of 1 ms; each is
alone, and then beside the others. `start`: in each segment a production and an opportunistic job, and as many jobs
without Cotenant, start at once; production has 5 requests a second, so that it rests between them though each waits for
slices of all outsiders. Both say what the daemon's two questions to NVML cost, and whether it answers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parents[1]
sys.path.append(str(BENCH / "pairs"))
try:
    from intervals import of_ratios, of_shares, shown
    from options import at_least_one, positive, status_of

    from cotenant import output_files
    from cotenant.daemon.clocks import LIST_SECONDS
    from cotenant.demo.rounds import private_folder, worker_environment
    from cotenant.demo.workers import Worker
    from cotenant.errors import Problem, narrate
except ImportError as missing:
    raise SystemExit(f"error: {missing}\nhint: run this in a Python that has cotenant[demo]") from None

JOB = BENCH / "drills" / "job.py"
ASK = BENCH / "outsiders" / "ask_nvml.py"
TENANT, OUTSIDER, PRODUCTION = "tenant", "outsider", "production"
SHAPES = {
    TENANT: ("--kernels", "2", "--kernel-us", "5000"),
    OUTSIDER: ("--kernels", "2", "--kernel-us", "5000"),
    PRODUCTION: ("--kernels", "5", "--kernel-us", "200", "--rate", "50"),
}
SELDOM = ("--rate", "5")
CLASSES = {TENANT: "opportunistic", PRODUCTION: "production"}
TOGETHER = (
    (TENANT,),
    (OUTSIDER,),
    (PRODUCTION,),
    (PRODUCTION, OUTSIDER),
    (PRODUCTION, TENANT),
    (TENANT, OUTSIDER),
    (PRODUCTION, TENANT, OUTSIDER),
)
NOTICED_SECONDS = 2 * LIST_SECONDS + 2  # the second list tells who worked since the first
START_SECONDS = 300.0
END_SECONDS = 60.0


class Job:
    """A job of the drills."""

    def __init__(
        self, kind: str, segment: str, folder: Path, work_per_us: float | None, shape: Sequence[str]
    ) -> None:
        self.kind, self.segment = kind, segment
        command = [sys.executable, str(JOB), *shape]
        command += ["--work-per-us", repr(work_per_us)] if work_per_us else []
        if kind in CLASSES:
            run = [sys.executable, "-m", "cotenant", "run", "--require", "--share", "turns"]
            command = [*run, "--class", CLASSES[kind], "--", *command]
        self.environment = worker_environment(folder) | {"COTENANT_SEGMENT": str(folder / segment)}
        self.began = time.monotonic()
        self.worker = Worker(f"{kind} of {segment} {self.began:.3f}", command, self.environment, folder)
        self.about: dict[str, Any] = {}
        self.steps: list[tuple[float, float]] = []  # when each ended, and the milliseconds that it took

    def begin(self) -> float:
        """Waits for its first step; gives the seconds since its start."""
        self.about = self.worker.answer(START_SECONDS)
        return self.hear()[0] - self.began

    def hear(self) -> tuple[float, float]:
        said = self.worker.answer(END_SECONDS)
        if "at" not in said:
            raise Problem(f"{self.worker.title} has ended: {said}")
        self.steps.append((said["at"], said["ms"]))
        return self.steps[-1]

    def finish(self) -> None:
        """Hears all that it did; raises Problem where that was not right."""
        self.worker.ask_to_end()
        while "at" in (said := self.worker.answer(END_SECONDS)):
            self.steps.append((said["at"], said["ms"]))
        if self.worker.end(END_SECONDS) or said["steps"] != said["counted_by_gpu"] or not said["intact"]:
            raise Problem(f"{self.worker.title}: wrong results: {said}")

    def between(self, begin: float, end: float) -> list[float]:
        return [ms for at, ms in self.steps if begin <= at < end]


@contextlib.contextmanager
def started(
    kinds: Sequence[tuple[str, str]],
    folder: Path,
    work_per_us: float | None,
    shapes: Mapping[str, Sequence[str]] = SHAPES,
) -> Iterator[list[Job]]:
    """All at once. They end on the way out."""
    jobs: list[Job] = []
    try:
        for kind, segment in kinds:
            jobs.append(Job(kind, segment, folder, work_per_us, shapes[kind]))
        yield jobs
    finally:
        for job in jobs:
            job.worker.end()


def named_by_status(job: Job) -> list[int]:
    """The outsiders of the tenant's GPU, as `cotenant status` has them."""
    command = [sys.executable, "-m", "cotenant", "status", "--interval", "0", "-o", "json"]
    done = subprocess.run(command, env=job.environment, capture_output=True, text=True, check=False)
    gpus = json.loads(done.stdout)["gpus"] if done.returncode == 0 else []
    return [pid for gpu in gpus for pid in gpu["outsider_pids"] or ()]


def questions(job: Job) -> Any:
    """What ask_nvml.py finds on this job's GPU."""
    done = subprocess.run(
        [sys.executable, str(ASK)], env=job.environment, capture_output=True, text=True, check=False
    )
    return json.loads(done.stdout) if done.returncode == 0 else {"problem": done.stderr.strip()}


def window(kinds: Sequence[str], seconds: float, notice: float, work_per_us: float) -> dict[str, Any]:
    """Steps a second of each, and how long production's requests take."""
    with (
        private_folder() as folder,
        started([(one, "segment") for one in kinds], folder, work_per_us) as jobs,
    ):
        for job in jobs:
            job.begin()
        with_outsider = len(kinds) > 1 and OUTSIDER in kinds
        time.sleep(notice if with_outsider else min(notice, 1.0))
        tenants = [job for job in jobs if job.kind in CLASSES]
        outside = [job.worker.pid for job in jobs if job.kind == OUTSIDER]
        seen: dict[str, Any] = {}
        if with_outsider:
            seen = {"named": named_by_status(tenants[0]) == outside, "nvml": questions(tenants[0])}
        begin = time.monotonic()
        time.sleep(seconds)
        end = time.monotonic()
        for job in jobs:
            job.finish()
        for job in jobs:
            steps = job.between(begin, end)
            seen[job.kind] = len(steps) / (end - begin)
            if job.kind == PRODUCTION and steps:
                seen["p50_ms"] = statistics.median(steps)
                seen["p95_ms"] = statistics.quantiles(steps, n=20)[18] if len(steps) > 1 else steps[0]
        return seen


def calibrated() -> tuple[float, str]:
    with private_folder() as folder, started([(OUTSIDER, "none")], folder, None) as [job]:
        job.begin()
        return float(job.about["work_per_us"]), str(job.about["gpu"])


def beside(options: argparse.Namespace, work_per_us: float) -> dict[str, Any]:
    rounds = []
    for number in range(options.rounds):
        found = {}
        for kinds in TOGETHER:
            found[" + ".join(kinds)] = window(kinds, options.seconds, options.notice, work_per_us)
            narrate(f"round {number + 1} of {options.rounds}: {' + '.join(kinds)}")
        rounds.append(found)
    print("| beside | production's p50, x alone | p95 | tenant's work | outsider's work | named by status |")
    print("| --- | --: | --: | --: | --: | --- |")

    def over_alone(name: str, figure: str, alone: str) -> str:
        if figure not in rounds[0][name]:
            return ""
        above, below = ([float(one[which][figure]) for one in rounds] for which in (name, alone))
        if figure.endswith("_ms"):
            return shown(of_ratios(above, below))
        return shown(of_shares([a / b for a, b in zip(above, below, strict=True)]))

    for kinds in TOGETHER:
        name = " + ".join(kinds)
        named = {"yes" if one[name]["named"] else "no" for one in rounds if "named" in one[name]}
        cells = [
            name,
            over_alone(name, "p50_ms", PRODUCTION),
            over_alone(name, "p95_ms", PRODUCTION),
            over_alone(name, TENANT, TENANT),
            over_alone(name, OUTSIDER, OUTSIDER),
            ", ".join(sorted(named)),
        ]
        print(f"| {' | '.join(cells)} |", flush=True)
    return {"rounds": rounds}


def start(options: argparse.Namespace, work_per_us: float) -> dict[str, Any]:
    """Seconds to each job's first step, after all were started at once."""
    kinds = [
        (kind, f"segment-{number}")
        for number in range(options.segments)
        for kind in (PRODUCTION, TENANT, OUTSIDER)
    ]
    shapes = SHAPES | {PRODUCTION: SHAPES[PRODUCTION] + SELDOM}
    with private_folder() as folder, started(kinds, folder, work_per_us, shapes) as jobs:
        took = {f"{job.kind} of {job.segment}": round(job.begin(), 2) for job in jobs}
        asked = questions(jobs[0])
        for job in jobs:
            job.worker.ask_to_end()
        for job in jobs:
            job.finish()
    for kind in (PRODUCTION, TENANT, OUTSIDER):
        of_kind = sorted(seconds for name, seconds in took.items() if name.startswith(kind))
        print(f"{kind:12} first step after {' '.join(f'{one:.1f}' for one in of_kind)} s", flush=True)
    return {"first_step_s": took, "nvml": asked}


def run(options: argparse.Namespace) -> int:
    work_per_us, gpu = calibrated()
    print(gpu, flush=True)
    found: dict[str, Any] = {"gpu": gpu}
    for name, measure in (("start", start), ("beside", beside)):
        if options.what in (name, "all"):
            found[name] = measure(options, work_per_us)
            if options.output:
                options.output.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("all", "start", "beside"), default="all")
    parser.add_argument("--segments", type=at_least_one, default=6, help="of start; default 6")
    parser.add_argument("--rounds", type=at_least_one, default=3, help="of beside; default 3")
    parser.add_argument("--seconds", type=positive, default=4.0, help="that are measured; default 4")
    parser.add_argument(
        "--notice",
        type=positive,
        default=NOTICED_SECONDS,
        help=f"seconds in which the daemon finds outsiders; default {NOTICED_SECONDS:g}",
    )
    parser.add_argument("--output", type=output_files.argument, metavar="FILE.json")
    options = parser.parse_args()
    return status_of(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
