"""Crowds of opportunistic jobs on a real GPU, with production and without: what each way of sharing gives them.

python bench/crowd/run.py --quick                            # two crowds beside nobody and decode: 3 minutes
python bench/crowd/run.py                                    # five, and beside encoder: 8 minutes
python bench/crowd/run.py --crowds 'longk*2,gpt+resnet+longk' --beside decode --modes timeslice,cotenant
python bench/crowd/run.py --crowds 'gpt+longk*3' --beside none
python bench/crowd/run.py churn                              # sixteen jobs, one killed every second, for a minute
cotenant softgpu --device h200 -- python bench/crowd/run.py --crowds 'spin-11ms*2' --beside none

A crowd is named by its jobs. In a round every crowd has a window in each mode beside nobody and beside each production
job; each kind of job has one alone, each production job has one alone and one beside each kind of job. All processes
are started once. Crowds that share nothing but windows can be run apart: see --crowds.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import shlex
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "pairs"))
try:
    import churn
    import clocks
    import report
    import tables
    from catalogue import JOBS, MPS, MPS_LOW, PLAIN, Job, parse_job
    from crew import Crew, Setting, Skipped, setting
    from crowds import (
        CROWDS,
        MODES,
        PRODUCTION,
        QUICK_CROWDS,
        QUICK_MODES,
        QUICK_PRODUCTION,
        STARTS,
        Case,
        Crowd,
        cases,
        kind,
        parse_crowd,
        parse_modes,
    )
    from intervals import LEAST_ROUNDS, MISSED
    from options import add_start, at_least_one, machine, positive, status_of, words
    from rounds import gpu_ms
    from standing import Row, Standing, Target, targets
    from windows import Seen, measure

    from cotenant import output_files
    from cotenant.errors import Problem, narrate
except ImportError as missing:
    raise SystemExit(
        f"error: {missing}\nhint: run this in the Python that has cotenant: pip install 'cotenant[demo]'; "
        "--python names the one that has PyTorch"
    ) from None

SECONDS = 0.6
NOTICE_SECONDS = 0.3  # before each of some sixty windows a round


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("crowds", "churn"), default="crowds")
    parser.add_argument("--crowds", type=words, metavar="A+B*2,...", help="default: " + ", ".join(CROWDS))
    parser.add_argument(
        "--beside",
        type=words,
        metavar="JOB,...",
        help=f"production jobs; default {', '.join(PRODUCTION)}; none: without production only",
    )
    parser.add_argument("--modes", type=words, metavar="MODE,...", help="of " + ", ".join(MODES))
    parser.add_argument(
        "--quick", action="store_true", help=f"{', '.join(QUICK_CROWDS)} in {', '.join(QUICK_MODES)}"
    )
    parser.add_argument("--rounds", type=at_least_one, default=LEAST_ROUNDS, help=f"default {LEAST_ROUNDS}")
    parser.add_argument(
        "--seconds",
        type=positive,
        default=SECONDS,
        help=f"a window's length, default {SECONDS}; solo windows take half, Cotenant's without production twice that",
    )
    parser.add_argument("--markdown", type=Path, metavar="PAGE", help="rewrite the tables in this page")
    parser.add_argument("--output", type=Path, default=Path("crowd.json"), help="default crowd.json")
    parser.add_argument(
        "--processes", type=at_least_one, default=churn.PROCESSES, help="of churn; default 16"
    )
    parser.add_argument("--kills", type=int, default=churn.KILLS, help="of churn, one a second; default 60")
    parser.add_argument(
        "--patience",
        type=positive,
        default=churn.LONGEST_GAP_SECONDS,
        help=f"of churn: longer without a step is a hang; default {churn.LONGEST_GAP_SECONDS:g} s",
    )
    parser.add_argument("--list", action="store_true", help="show jobs, crowds and modes, and stop")
    add_start(parser)
    return parser.parse_args()


def show_list() -> None:
    print("opportunistic jobs")
    for job in JOBS.values():
        if job.kind == "opportunistic":
            print(f"  {job.name:14} {job.title}")
    print("crowds\n  " + "\n  ".join(CROWDS))
    print(f"beside\n  none {' '.join(PRODUCTION)}\nmodes\n  {', '.join(MODES)}")


class Report:
    """Progress to stderr; what is found, to the file after each round."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._begin = time.monotonic()
        self.section: dict[str, Any] = {
            "machine": "",
            "rounds": 0,
            "seconds": options.seconds,
            "skipped": {},
            "failed": None,
        }

    def narrate(self, text: str) -> None:
        narrate(f"{time.monotonic() - self._begin:6.1f} s  {text}")

    def skip(self, what: str, why: str) -> None:
        self.section["skipped"][what] = why
        self.narrate(f"{what} is skipped: {why}")

    def keep(self) -> None:
        report.save_section(self._options.output, self._options.what, self.section)

    def publish(self, text: str) -> None:
        print(text, flush=True)
        if page := self._options.markdown:
            report.save(page, report.with_table(page.read_text(), self._options.what, text))


def needs_mps(mode: str) -> bool:
    return MPS in STARTS[mode] or MPS_LOW in STARTS[mode]


def gather(crew: Crew, wanted: list[Case], found: Report) -> list[Case]:
    """Starts all jobs of these cases; what cannot run here, and the crowds that it is in, are skipped. What is left."""
    while wanted:
        everyone = list(dict.fromkeys(worker for case in wanted for worker in case.workers()))
        spinning = [worker for worker in everyone if worker[0].source.startswith("spinning:")]
        calibration: tuple[str, ...] = ()
        try:
            if spinning:
                # The first has the GPU to itself, so that it can tell how much work a microsecond is.
                about = crew.gather([(spinning[0][0], PLAIN)])
                calibration = ("--work-per-us", repr(float(about["work_per_us"])))
            about = crew.gather(everyone, *calibration)
        except Skipped as reason:
            name = str(reason).partition(":")[0]
            found.skip(name, str(reason).partition(": ")[2])
            wanted = [case for case in wanted if name not in map(kind, jobs_of(case))]
            continue
        found.section["machine"] = machine(about)
        return wanted
    raise Problem("nothing to measure", "see what was skipped, --crowds and --python")


def jobs_of(case: Case) -> Iterable[Job]:
    return (*((case.production,) if case.production else ()), *case.jobs)


def run_crowds(options: argparse.Namespace, place: Setting, crew: Crew, found: Report) -> int:
    crowds = [parse_crowd(name) for name in options.crowds]
    productions = [parse_job(name, "production") for name in options.beside if name != "none"]
    modes = parse_modes(options.modes)
    if place.mps_environment is None:
        for mode in filter(needs_mps, modes):
            found.skip(mode, place.no_mps)
        modes = [mode for mode in modes if not needs_mps(mode)]
    wanted = gather(crew, cases(crowds, modes, productions), found)
    productions = [job for job in productions if any(case.production == job for case in wanted)]
    crowds = [crowd for crowd in crowds if any(case.jobs == crowd.jobs for case in wanted)]
    busy = {job.name: gpu_ms(crew, job) for job in productions}
    found.section["busy_ms"] = busy
    seen: dict[Case, list[Seen]] = {case: [] for case in wanted}
    rows: list[Row] = []
    verdicts: list[Target] = []
    try:
        path = place.folder / "segment"
        for windows in measure(crew, wanted, options.rounds, options.seconds, path, found.narrate):
            for case, window in windows.items():
                seen[case].append(window)
            rows, verdicts = settle(found, Standing(seen, busy), crowds, modes, productions)
    except Problem as problem:
        found.section["failed"] = problem.message
        found.narrate(f"error: {problem.message}")
    found.keep()
    found.publish(tables.table(found.section["machine"], rows) + "\n" + tables.verdicts(verdicts))
    return 1 if found.section["failed"] or any(target.verdict == MISSED for target in verdicts) else 0


def settle(
    found: Report, standing: Standing, crowds: list[Crowd], modes: list[str], productions: list[Job]
) -> tuple[list[Row], list[Target]]:
    """The figures of the rounds so far, into the file."""
    rows = standing.rows(crowds, modes, productions)
    verdicts = targets(rows)
    found.section |= {
        "rounds": len(next(iter(standing.rounds.values()))),
        "solo": {job.name: 1 / standing.solo_step_s(job) for crowd in crowds for job in crowd.kinds},
        "rows": [row.as_json() for row in rows],
        "targets": [vars(target) for target in verdicts],
        "windows": [
            {"case": case.title, "rounds": [as_json(seen) for seen in windows]}
            for case, windows in standing.rounds.items()
        ],
    }
    found.keep()
    return rows, verdicts


def as_json(seen: Seen) -> dict[str, Any]:
    return {
        "steps": [round(job.steps, 3) for job in seen.jobs],
        "used_s": [job.used_s for job in seen.jobs],
        "longest_gap_ms": [round(job.longest_gap_ms, 1) for job in seen.jobs],
        "services_ms": [round(value, 3) for value in seen.services_ms],
        "latencies_ms": [round(value, 3) for value in seen.latencies_ms],
        "unanswered": seen.unanswered,
        "seconds": seen.seconds,
        "late_ms": round(seen.late_ms, 1),
        "sm_mhz": seen.sm_mhz,
    }


def run(options: argparse.Namespace) -> int:
    output_files.check(options.output)
    if options.markdown:
        try:
            report.with_table(options.markdown.read_text(), options.what, "")
        except (OSError, ValueError) as error:
            raise Problem(f"no place for the tables: {error}", "see --markdown") from None
    found = Report(options)
    if options.what == "churn":
        found.section = churn.measure(options.processes, options.kills, found.narrate, options.patience)
        found.keep()
        found.publish(tables.churn(found.section))
        return 1 if found.section["harm"] else 0
    options.crowds = options.crowds or (QUICK_CROWDS if options.quick else CROWDS)
    options.beside = options.beside or (QUICK_PRODUCTION if options.quick else PRODUCTION)
    options.modes = options.modes or (QUICK_MODES if options.quick else MODES)
    for crowd in options.crowds:
        parse_crowd(crowd)
    with_mps = any(map(needs_mps, parse_modes(options.modes)))
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(
            setting(shlex.split(options.python), shlex.split(options.cotenant), with_mps)
        )
        watched = stack.enter_context(clocks.watched())
        pace = dataclasses.replace(options.pace, notice=min(options.pace.notice, NOTICE_SECONDS))
        crew = stack.enter_context(Crew(place, found.narrate, clocks=watched, pace=pace))
        return run_crowds(options, place, crew, found)


def main() -> int:
    options = arguments()
    if options.list:
        show_list()
        return 0
    return status_of(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
