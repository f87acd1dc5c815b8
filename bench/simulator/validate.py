"""How far off is the simulator? Measured pairs and crowds beside simulated ones.

python bench/simulator/validate.py                       # against docs/benchmarks.md, and what only an older run has
python bench/simulator/validate.py --measured pairs.json # against a run of bench/pairs
python bench/simulator/validate.py --measured crowd.json # crowds, against a run of bench/crowd
python bench/simulator/validate.py --crowds docs/simulator.md # crowds, against the page's; rewrites the table there
python bench/simulator/validate.py --set cut_us=300 --modes cotenant

The parameters (cotenant.simulator.Interference) were fitted to the calibration pairs alone; the error that counts is
that of the others.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import crowd_points
from pair_jobs import POLICIES, SERVING, STEPS, opportunistic_job, production_job

from cotenant.errors import Problem
from cotenant.simulator import Interference, Study, Workload, gpu_named

CALIBRATION = ("decode+gpt", "decode+longk", "encoder+gpt")
SLOWDOWN, SHARE = "x alone [95 %]", "Other job's work"  # columns of the table
DOCS = Path(__file__).parents[2] / "docs"
PAGE, OLDER_PAGE = DOCS / "benchmarks.md", DOCS / "lab-notes.md"
SATURATED = (
    4.0  # service this many times alone: production cannot keep up, and its slowdown says only "far too slow"
)


@dataclasses.dataclass(frozen=True)
class Point:
    """One pair in one mode."""

    pair: str
    mode: str
    slowdown: float  # of the service time's median
    share: float  # of the other job's work alone


def from_json(path: Path) -> list[Point]:
    """What bench/pairs/run.py left."""
    section = json.loads(path.read_text())["pairs"]
    return [
        Point(entry["pair"], mode, row["service_p50_ratio"]["value"], row["opportunistic_share"]["value"])
        for entry in section["pairs"]
        if "figures" in entry
        for mode, row in entry["figures"]["modes"].items()
        if mode != "alone"
    ]


def from_page(text: str) -> list[Point]:
    """The table that bench/pairs/run.py has written into a page."""
    points, pair, titles = [], "", list[str]()
    # A page may have other tables of pairs.
    ours = text.partition("<!-- pairs table: begin -->")[2].partition("<!-- pairs table: end -->")[0] or text
    for line in ours.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if {"Pair", "Mode", SLOWDOWN, SHARE} <= set(cells):
            titles = cells
        if len(cells) != len(titles):
            continue
        row = dict(zip(titles, cells, strict=True))
        if named := re.fullmatch(r"\*\*(.+)\*\*", row["Pair"]):
            pair = named[1]
        slowdown, share = re.match(r"[\d.]+", row[SLOWDOWN]), re.match(r"(\d+)%", row[SHARE])
        if pair and slowdown and share:
            points.append(Point(pair, row["Mode"], float(slowdown[0]), int(share[1]) / 100))
    return points


def of_the_docs() -> list[Point]:
    """The newest measurement of every pair in every mode."""
    newest = {
        (point.pair, point.mode): point
        for page in (OLDER_PAGE, PAGE)
        for point in from_page(page.read_text())
    }
    return list(newest.values())


def measured(source: Path | None) -> list[Point]:
    if source is None:
        return of_the_docs()
    return from_page(source.read_text()) if source.suffix == ".md" else from_json(source)


def simulated(point: Point, interference: Interference, seconds: float, studies: dict[str, Study]) -> Point:
    production, _, other = point.pair.partition("+")
    if point.pair not in studies:
        jobs = (production_job(production), opportunistic_job(other))
        studies[point.pair] = Study(
            Workload(point.pair, jobs), gpu_named("h200", interference), seconds, seed=1
        )
    policy: Any = POLICIES[point.mode]
    outcome = studies[point.pair].run(policy)
    serving, harvesting = outcome.tenants
    return Point(point.pair, point.mode, serving.service_slowdown, harvesting.share)


def known(points: Iterable[Point], modes: Sequence[str]) -> list[Point]:
    return [
        point
        for point in points
        if point.mode in modes
        and point.pair.partition("+")[0] in SERVING
        and point.pair.partition("+")[2] in STEPS
    ]


def error(rows: Sequence[tuple[Point, Point]]) -> str:
    """Mean absolute errors in percentage points; slowdowns of jobs that keep up only."""
    slowdowns = [abs(a.slowdown - b.slowdown) for a, b in rows if a.slowdown < SATURATED]
    shares = [abs(a.share - b.share) for a, b in rows]
    agreed = sum((a.slowdown < SATURATED) == (b.slowdown < SATURATED) for a, b in rows)
    return (
        f"slowdown {100 * sum(slowdowns) / max(1, len(slowdowns)):.1f} points over {len(slowdowns)}, "
        f"share {100 * sum(shares) / max(1, len(shares)):.1f} points over {len(shares)}; "
        f"{agreed} of {len(rows)} agree on whether production keeps up"
    )


def table(rows: Sequence[tuple[Point, Point]]) -> list[str]:
    lines = [
        "| pair | mode | slowdown measured | simulated | share measured | simulated |",
        "| --- | --- | --: | --: | --: | --: |",
    ]
    for a, b in rows:
        lines.append(
            f"| {a.pair} | {a.mode} | {a.slowdown:.2f} | {b.slowdown:.2f} | {a.share:.0%} | {b.share:.0%} |"
        )
    return lines


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--measured",
        type=Path,
        help="pairs.json, crowd.json, or a page with the table of pairs; default: the newest of each in docs",
    )
    parser.add_argument("--modes", default=",".join(POLICIES))
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument(
        "--crowds",
        type=Path,
        metavar="PAGE",
        help="simulate the crowds of docs/benchmarks.md, and write the table into this page",
    )
    parser.add_argument("--set", action="append", default=[], metavar="PARAMETER=VALUE")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    try:
        changes = {key: float(value) for key, value in (item.split("=", 1) for item in options.set)}
        interference = dataclasses.replace(Interference(), **changes)
        if options.crowds:
            return crowd_points.rewrite(options.crowds, PAGE, interference)
        if options.measured and crowd_points.is_crowds(options.measured):
            return crowd_points.compare(options.measured, interference, options.seconds)
        points = known(measured(options.measured), options.modes.split(","))
        if not points:
            raise Problem(
                f"{options.measured} has no pair in these modes", "a page with the table, or pairs.json"
            )
        studies: dict[str, Study] = {}
        rows = [(point, simulated(point, interference, options.seconds, studies)) for point in points]
    except (OSError, ValueError, KeyError, TypeError) as failure:
        print(f"error: {failure!r}\nhint: see --measured and --set", file=sys.stderr)
        return 2
    except Problem as problem:
        print(f"error: {problem.message}\nhint: {problem.hint}", file=sys.stderr)
        return problem.status
    for title, wanted in (("Calibration", True), ("Validation", False)):
        part = [row for row in rows if (row[0].pair in CALIBRATION) is wanted]
        print(f"{title}: {error(part)}\n")
        print("\n".join(table(part)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
