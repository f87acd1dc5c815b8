"""Production jobs beside opportunistic ones on a real GPU: what each way of sharing does to both.

python bench/pairs/run.py --quick                       # four pairs, three modes
python bench/pairs/run.py --pairs decode+gpt --modes timeslice,cotenant
python bench/pairs/run.py short                         # requests of 1 to 2 ms: compiled, with copies, with launches
python bench/pairs/run.py preemption                    # how long production waits for a GPU that is held
python bench/pairs/run.py bus                           # production's copies of 1 MiB beside a job that copies
python bench/pairs/run.py light                         # production that leaves room, beside jobs that could overlap
python bench/pairs/run.py promises                      # are 2, 5, 10 and 20 % kept, and at what cost
python bench/pairs/run.py overhead                      # what the interposer costs a job alone
python bench/pairs/run.py page --markdown PAGE          # the tables of what an earlier run has found
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

try:
    import bus
    import clocks
    import overhead
    import preemption
    import promises
    import report
    from catalogue import (
        CHOOSABLE,
        CONTROL,
        DEFAULT_MODES,
        DUTIES,
        IN_OWN_MPS,
        JOBS,
        LIGHT_MODES,
        LIGHT_PAIRS,
        MODES,
        MPS,
        PAIRS,
        PROMISE_PAIRS,
        PROMISED,
        QUICK_MODES,
        QUICK_PAIRS,
        RUN_OPTIONS,
        SHORT_MODES,
        SHORT_PAIRS,
        Pair,
        parse_modes,
        parse_pairs,
    )
    from crew import Crew, Skipped, setting
    from options import add_start, at_least_one, machine, positive, status_of, words
    from outcome import PairFigures, observations_as_json, pair_figures
    from rounds import gpu_ms, measure_pair, rehearse

    from cotenant import __version__
    from cotenant.errors import USAGE, Problem, narrate
except ImportError as missing:
    raise SystemExit(
        f"error: {missing}\nhint: run this in the Python that has cotenant: pip install 'cotenant[demo]'; "
        "--python names the one that has PyTorch"
    ) from None

OVERHEAD_JOBS = ["eager", "graph"]
# Rounds and seconds a window, where the user does not say.
DEFAULTS = {
    "pairs": (6, 1.75),  # a thousand requests of 100/s
    "quick": (6, 1.0),
    "short": (6, 1.0),
    "light": (6, 1.2),
    "preemption": (6, 1.8),  # a thousand kernels of 100/s
    "bus": (6, 0.5),  # more than a thousand copies of 600/s
    "overhead": (6, 0.5),
    "promises": (3, 10.0),  # six windows of 4 s, each after the first 2
    "page": (1, 1.0),
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what",
        nargs="?",
        choices=("pairs", "short", "light", "promises", "preemption", "bus", "overhead", "page"),
        default="pairs",
    )
    parser.add_argument("--pairs", type=words, metavar="A+B,...", help="default: all that --list shows")
    parser.add_argument(
        "--modes", type=words, metavar="MODE,...", help="of " + ", ".join(CHOOSABLE).replace("%", "%%")
    )
    parser.add_argument(
        "--quick", action="store_true", help=f"{', '.join(QUICK_PAIRS)} in {', '.join(QUICK_MODES)}"
    )
    parser.add_argument("--rounds", type=at_least_one, help="every mode once a round; default 6 of pairs")
    parser.add_argument("--seconds", type=positive, help="a window's length; solo windows take half")
    parser.add_argument(
        "--first-run",
        action="store_true",
        help="no job has a last run that `cotenant run` could go by: saves the start of each",
    )
    parser.add_argument("--output", type=Path, default=Path("pairs.json"), help="default pairs.json")
    parser.add_argument("--markdown", type=Path, metavar="PAGE", help="rewrite the tables in this page")
    parser.add_argument(
        "--resume", action="store_true", help="go on where an interrupted run has left --output"
    )
    add_start(parser)
    parser.add_argument(
        "--jobs", type=words, default=OVERHEAD_JOBS, help="of overhead; default " + ",".join(OVERHEAD_JOBS)
    )
    parser.add_argument(
        "--processes", type=at_least_one, default=5, help="of overhead, of each kind; default 5"
    )
    parser.add_argument("--list", action="store_true", help="show jobs, pairs and modes, and stop")
    options = parser.parse_args()
    rounds, seconds = DEFAULTS["quick" if options.quick and options.what == "pairs" else options.what]
    options.rounds = rounds if options.rounds is None else options.rounds
    options.seconds = options.seconds or seconds
    return options


def show_list() -> None:
    for kind in ("production", "opportunistic"):
        print(f"{kind} jobs")
        for job in JOBS.values():
            if job.kind == kind:
                pace = f", {job.rate:g}/s" if job.rate else ""
                print(f"  {job.name:14} {job.title}{pace}")
    for title, entries in (
        ("pairs", PAIRS),
        ("short", SHORT_PAIRS),
        ("light", LIGHT_PAIRS),
        ("modes", CHOOSABLE),
    ):
        print(f"{title}\n  {' '.join(entries)}")


class Reporter:
    """Progress to stderr, each with the seconds since the start; what is found, to the files at once."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._begin = time.monotonic()

    def narrate(self, text: str) -> None:
        narrate(f"{time.monotonic() - self._begin:6.1f} s  {text}")

    def keep(self, section: dict[str, Any]) -> None:
        report.save_section(self._options.output, self._options.what, section)
        if self._options.markdown:
            report.publish(self._options.markdown, self._options.what, section)

    def show(self, section: dict[str, Any]) -> None:
        print(report.TABLES[self._options.what](section), flush=True)


def needs_mps(mode: str) -> bool:
    return MPS in MODES[mode] or MODES[mode][0] in IN_OWN_MPS


def default_pairs(options: argparse.Namespace) -> Sequence[str]:
    if options.what == "promises":
        return PROMISE_PAIRS
    if options.what == "short":
        return SHORT_PAIRS
    if options.what == "light":
        return LIGHT_PAIRS
    return QUICK_PAIRS if options.quick else PAIRS


def default_modes(options: argparse.Namespace) -> Sequence[str]:
    if options.what == "promises":
        return (CONTROL, *PROMISED, *DUTIES)
    if options.what == "short":
        return SHORT_MODES
    if options.what == "light":
        return LIGHT_MODES
    return QUICK_MODES if options.quick else DEFAULT_MODES


def run_pairs(options: argparse.Namespace, reporter: Reporter) -> int:
    pairs = parse_pairs(options.pairs or default_pairs(options))
    modes = parse_modes(options.modes or default_modes(options))
    section: dict[str, Any] = {
        "machine": "",
        "rounds": options.rounds,
        "seconds": options.seconds,
        "modes": list(modes),
        "skipped_modes": {},
        "pairs": [],
    }
    if options.resume:
        take_up(section, options)
        measured = {entry["pair"] for entry in section["pairs"]}
        pairs = [pair for pair in pairs if pair.name not in measured]
    python, cotenant = shlex.split(options.python), shlex.split(options.cotenant)
    with (
        setting(python, cotenant, any(map(needs_mps, modes))) as place,
        clocks.watched() as seen,
        Crew(place, reporter.narrate, clocks=seen, pace=options.pace) as crew,
    ):
        if place.mps_environment is None:
            section["skipped_modes"] = {mode: place.no_mps for mode in modes if needs_mps(mode)}
            modes = [mode for mode in modes if not needs_mps(mode)]
            for mode, reason in section["skipped_modes"].items():
                reporter.narrate(f"{mode} is skipped: {reason}")
        for pair in pairs:
            section["pairs"].append(one_pair(crew, pair, modes, options, reporter, section))
            reporter.keep(section)
    reporter.show(section)
    return 1 if any("failed" in entry for entry in section["pairs"]) else 0


def take_up(section: dict[str, Any], options: argparse.Namespace) -> None:
    """The pairs that an interrupted run has measured in the same way."""
    try:
        before = report.load(options.output).get(options.what, {})
    except (OSError, ValueError) as error:
        raise Problem(f"cannot go on with {options.output}: {error}", "leave out --resume") from None
    for name in ("rounds", "seconds", "modes"):
        if before and before.get(name) != section[name]:
            raise Problem(
                f"{options.output} is of a run with other {name}: {before.get(name)}",
                "give the same, or leave out --resume",
                USAGE,
            )
    section["machine"] = before.get("machine", "")
    section["pairs"] = [entry for entry in before.get("pairs", []) if "figures" in entry]


def one_pair(
    crew: Crew,
    pair: Pair,
    modes: Sequence[str],
    options: argparse.Namespace,
    reporter: Reporter,
    section: dict[str, Any],
) -> dict[str, Any]:
    """The pair's entry in the report. A pair that cannot run or fails does not keep the others from running."""
    entry: dict[str, Any] = {"pair": pair.name}
    try:
        if not options.first_run:
            rehearse(crew, pair, modes)
        about = crew.gather(pair.workers(modes))
        section["machine"] = section["machine"] or machine(about)
        if options.what == "promises":
            seen = promises.measure(crew, pair, modes, options.rounds, options.seconds, reporter.narrate)
            figures = promises.figures(pair, seen)
            for told in promises.in_words(figures):
                reporter.narrate(told)
        else:
            busy_ms = gpu_ms(crew, pair.production)
            seen = measure_pair(crew, pair, modes, options.rounds, options.seconds, reporter.narrate)
            figures = summary(pair_figures(pair, seen, busy_ms), reporter)
        explained = {
            f"{job.name} ({start})": crew.explained(job, start)
            for job, start in pair.workers(modes)
            if start in RUN_OPTIONS
        }
    except Skipped as reason:
        reporter.narrate(f"{pair.name}: skipped: {reason}")
        crew.dismiss()
        return entry | {"skipped": str(reason)}
    except Problem as problem:
        reporter.narrate(f"error: {pair.name}: {problem.message}")
        crew.dismiss()
        return entry | {"failed": problem.message}
    return entry | {
        "figures": figures,
        "samples": observations_as_json(seen),
        "explained": explained,
    }


def summary(figures: PairFigures, reporter: Reporter) -> dict[str, Any]:
    """A line for each mode; all of it as JSON."""
    reporter.narrate(f"{figures.pair}: other job alone {figures.solo_steps_per_second:.1f} steps/s")
    for mode, row in figures.modes.items():
        share = "" if row.opportunistic_share is None else f", other job {row.opportunistic_share.value:.0%}"
        reporter.narrate(
            f"{figures.pair}: {mode:12} service p50 {row.service_p50_ms:.2f} ms ({row.service_p50_ratio.value:.2f}x), "
            f"{figures.tail} {row.latency_tail_ms:.2f} ms ({row.tail_ratio.value:.2f}x){share}"
        )
    return figures.as_json()


def run_alone(
    options: argparse.Namespace,
    reporter: Reporter,
    python: Sequence[str],
    measure: Callable[[Crew], dict[str, Any]],
    apart: bool = False,
) -> int:
    """A measurement that is one section, all or nothing."""
    with (
        setting(python, shlex.split(options.cotenant), False) as place,
        Crew(place, reporter.narrate, apart, pace=options.pace) as crew,
    ):
        try:
            section = measure(crew)
        except Skipped as reason:
            raise Problem(f"nothing to measure: {reason}") from None
    section["machine"] = machine(section.pop("about"))
    reporter.keep(section)
    reporter.show(section)
    return 0


def check_files(options: argparse.Namespace) -> None:
    """Before anything is measured: what is found must have a place to go."""
    try:
        report.save_section(options.output, "cotenant", {"version": __version__})
        if options.markdown:
            report.with_table(options.markdown.read_text(), options.what, "")
    except (OSError, ValueError) as error:
        raise Problem(f"no place for the results: {error}", "see --output and --markdown") from None


def publish_found(options: argparse.Namespace) -> int:
    """What an earlier run, perhaps on another machine, has left."""
    if not options.markdown:
        raise Problem("no page to write to", "give --markdown PAGE", USAGE)
    try:
        found = report.load(options.output)
        for name in report.TABLES:
            if name in found:
                report.publish(options.markdown, name, found[name])
    except (OSError, ValueError) as error:
        raise Problem(f"cannot be published: {error}", "see --output and --markdown") from None
    return 0


def run(options: argparse.Namespace) -> int:
    if options.what == "page":
        return publish_found(options)
    check_files(options)
    reporter = Reporter(options)
    rounds, seconds = options.rounds, options.seconds
    if options.what in ("pairs", "short", "light", "promises"):
        return run_pairs(options, reporter)
    if options.what == "preemption":
        # Its workers use the package's own kernels, so they run in this Python.
        return run_alone(
            options,
            reporter,
            [sys.executable],
            lambda crew: preemption.measure(crew, rounds, seconds, reporter.narrate),
        )
    if options.what == "bus":
        return run_alone(
            options,
            reporter,
            [sys.executable],
            lambda crew: bus.measure(
                crew,
                options.pairs or bus.NAMES,
                parse_modes(options.modes or bus.MODES_MEASURED),
                rounds,
                seconds,
                reporter.narrate,
            ),
        )
    return run_alone(
        options,
        reporter,
        shlex.split(options.python),
        lambda crew: overhead.measure(
            crew, options.jobs, rounds, seconds, reporter.narrate, options.processes
        ),
        apart=True,
    )


def main() -> int:
    options = arguments()
    if options.list:
        show_list()
        return 0
    return status_of(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
