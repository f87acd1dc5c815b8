"""Traces of real jobs on a real GPU, and what recording costs them.

python bench/record/run.py traces --output examples/traces   # one trace for each job of bench/pairs
python bench/record/run.py overhead                          # steps a second with recording and without, in turns
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PAIRS = Path(__file__).resolve().parents[1] / "pairs"
sys.path.insert(0, str(PAIRS))

from catalogue import AS_PRODUCTION, JOBS, PLAIN, Job  # noqa: E402
from crew import Crew, Setting, Skipped, setting  # noqa: E402
from intervals import of_ratios  # noqa: E402
from pace import MEASURED  # noqa: E402
from rounds import Window, run_window  # noqa: E402

from cotenant import output_files  # noqa: E402
from cotenant.errors import Problem, narrate, unknown  # noqa: E402
from cotenant.traces import Trace, read  # noqa: E402
from cotenant.traces.writer import part, write  # noqa: E402

RECORDED = "recorded"
TRACED_JOBS = (
    "decode",
    "encoder",
    "vision",
    "training",
    "gpt",
    "resnet",
    "longk",
    "graph",
    "copies",
    "eager",
)
OVERHEAD_JOBS = ("eager", "gpt", "resnet")
MOST_COST = 0.03
WARM_UP_SECONDS = 1.0
NO_UUID = "GPU-00000000-0000-0000-0000-000000000000"


@dataclasses.dataclass(frozen=True)
class Recording(Setting):
    """Workers are started plainly, under `cotenant run`, or under `cotenant record`."""

    def command(self, job: Job, start: str, options: Sequence[str]) -> list[str]:
        plain = super().command(job, PLAIN if start == RECORDED else start, options)
        if start != RECORDED:
            return plain
        return [*self.cotenant, "record", "-o", str(self.trace_of(job)), "--force", "--", *plain]

    def trace_of(self, job: Job) -> Path:
        return self.folder / f"{job.name}.trace"


def jobs_named(names: Sequence[str]) -> list[Job]:
    for name in names:
        if name not in JOBS:
            raise unknown("job", name, JOBS)
    return [JOBS[name] for name in names]


def window(crew: Crew, job: Job, start: str, seconds: float, seed: int) -> float:
    """Steps, or requests, a second."""
    worker = crew.worker(job, start)
    if job.kind == "production":
        samples = run_window(worker, job.rate, None, Window(start, seconds, seed)).samples
        return len(samples.services_ms) / seconds
    return run_window(None, 0.0, worker, Window(start, seconds, seed)).samples.steps_per_second


def record_job(crew: Crew, place: Recording, job: Job, seconds: float, output: Path) -> Trace:
    crew.gather([(job, RECORDED)])
    window(crew, job, RECORDED, WARM_UP_SECONDS, seed=0)
    window(crew, job, RECORDED, seconds, seed=1)
    crew.dismiss()
    # Without the start: libraries that load, warm-up, captures.
    whole = read(place.trace_of(job))
    last_us = 1e6 * whole.seconds
    kept = part(whole, max(last_us - 1e6 * (seconds + MEASURED.notice / 2), 0.0), last_us + 1.0)
    # For everybody to have: the machine's own number is nobody's business.
    kept = dataclasses.replace(kept, gpus=tuple(dataclasses.replace(gpu, uuid=NO_UUID) for gpu in kept.gpus))
    path = output / f"{job.name}.trace"
    path.unlink(missing_ok=True)
    write(kept, path)
    return read(path)


def record_all(crew: Crew, place: Recording, options: argparse.Namespace) -> int:
    options.output.mkdir(parents=True, exist_ok=True)
    print(
        f"{'job':10} {'operations':>10} {'seconds':>8} {'busy':>7} {'requests':>8} {'lost':>5} {'bytes':>9} {'B/op':>5}"
    )
    failed = 0
    for job in jobs_named(options.jobs or TRACED_JOBS):
        try:
            trace = record_job(crew, place, job, options.seconds, options.output)
        except (Problem, Skipped) as problem:
            narrate(f"error: {job.name}: {problem}")
            crew.dismiss()
            failed += 1
            continue
        count, size = len(trace.operations), trace.path.stat().st_size
        print(
            f"{job.name:10} {count:10} {trace.seconds:8.2f} {100 * trace.busy_share:5.1f} %"
            f" {int(trace.operations.ends_request.sum()):8} {trace.lost:5} {size:9} {size / max(count, 1):5.2f}",
            flush=True,
        )
    return 1 if failed else 0


def measure_overhead(crew: Crew, options: argparse.Namespace) -> int:
    """Against `cotenant run` of the same class: what recording adds, not what the interposer costs."""
    rows: list[dict[str, Any]] = []
    for job in jobs_named(options.jobs or OVERHEAD_JOBS):
        starts = (AS_PRODUCTION, RECORDED)
        crew.gather((job, start) for start in starts)
        rates: dict[str, list[float]] = {start: [] for start in starts}
        for start in starts:
            window(crew, job, start, WARM_UP_SECONDS, seed=0)
        for number in range(options.rounds):
            for start in starts if number % 2 else reversed(starts):
                rates[start].append(window(crew, job, start, options.seconds, seed=number))
        plain, recorded = rates[AS_PRODUCTION], rates[RECORDED]
        kept = of_ratios(recorded, plain)
        low, high = kept.interval or (0.0, float("inf"))  # one round does not say how rounds differ
        rows.append(
            {
                "job": job.name,
                "without": sum(plain) / len(plain),
                "with": sum(recorded) / len(recorded),
                "cost": 1.0 - kept.value,
                "cost_interval": kept.interval and [1.0 - high, 1.0 - low],
            }
        )
        row = rows[-1]
        print(
            f"{job.name:8} {row['without']:9.2f} -> {row['with']:9.2f} a second: {100 * row['cost']:+.2f} %"
            f" [{100 * (1.0 - high):+.2f}, {100 * (1.0 - low):+.2f}]",
            flush=True,
        )
    if options.json:
        options.json.write_text(
            json.dumps({"when": time.strftime("%Y-%m-%d"), "rows": rows}, indent=2) + "\n"
        )
    return 1 if any(row["cost_interval"] and row["cost_interval"][0] > MOST_COST for row in rows) else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("traces", "overhead"))
    parser.add_argument("--jobs", type=lambda text: text.split(","), help="default: " + ",".join(TRACED_JOBS))
    parser.add_argument("--seconds", type=float, default=2.0, help="of each window; default 2")
    parser.add_argument("--rounds", type=int, default=8, help="of overhead; default 8")
    parser.add_argument("--output", type=Path, default=Path("examples/traces"), help="where the traces go")
    parser.add_argument("--json", type=output_files.argument, help="write the overhead's figures here too")
    parser.add_argument("--python", default=shlex.quote(sys.executable), help="the interpreter with PyTorch")
    parser.add_argument("--cotenant", default=shlex.join([sys.executable, "-m", "cotenant"]))
    options = parser.parse_args()
    with setting(shlex.split(options.python), shlex.split(options.cotenant), with_mps=False) as plain:
        place = Recording(**vars(plain))
        with Crew(place, narrate) as crew:
            if options.what == "overhead":
                return measure_overhead(crew, options)
            return record_all(crew, place, options)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Problem as problem:
        raise SystemExit(f"error: {problem.message}\nhint: {problem.hint}") from None
