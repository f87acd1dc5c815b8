"""Crowds that bench/crowd has measured, beside the same crowds simulated."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pair_jobs import CROWD_STEPS, POLICIES, SERVING, hot_job, production_job

from cotenant.errors import Problem
from cotenant.simulator import Interference, Study, Workload, gpu_named

WEIGHTED = "cotenant 1:2:4"
WEIGHTS = (1.0, 2.0, 4.0)
WANTED_POINTS = 10.0  # how far the sum of work may be off
SECONDS = 10.0
BEGIN, END = "<!-- simulated crowds: begin -->", "<!-- simulated crowds: end -->"
MODE_COLUMNS = {
    "time slicing": "timeslice",
    "Cotenant": "cotenant",
}  # of the page's table without a mode column


@dataclasses.dataclass(frozen=True)
class CrowdPoint:
    """A crowd in a mode, beside production or nobody."""

    jobs: tuple[str, ...]  # each by a name of its own: longk, longk 2
    production: str | None
    mode: str
    shares: tuple[float, ...]  # of their work alone; none where only their sum was noted
    noted: float | None = None  # the sum, where it was noted

    @property
    def total(self) -> float:
        return sum(self.shares) if self.noted is None else self.noted

    @property
    def title(self) -> str:
        return " + ".join(self.jobs) + (f" beside {self.production}" if self.production else "")


def is_crowds(path: Path) -> bool:
    return path.suffix == ".json" and "crowds" in json.loads(path.read_text())


def read(path: Path) -> list[CrowdPoint]:
    """What bench/crowd/run.py left, of the jobs and modes that can be simulated."""
    rows: list[dict[str, Any]] = json.loads(path.read_text())["crowds"]["rows"]
    points = [
        CrowdPoint(numbered(row["jobs"]), row["production"], row["mode"], tuple(row["shares"]))
        for row in rows
    ]
    return known(points)


def from_page(text: str) -> list[CrowdPoint]:
    """The tables of a page that have a crowd in their first column: one row a mode, or one column a mode."""
    points, titles = list[CrowdPoint](), list[str]()
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if cells[:1] == ["Crowd"]:
            titles = cells
        elif len(cells) != len(titles):
            titles = []
        elif titles:
            points += of_row(dict(zip(titles, cells, strict=True)))
    return known(points)


def of_row(row: dict[str, str]) -> Iterator[CrowdPoint]:
    jobs = numbered(crowd_named(row["Crowd"]))
    for column, mode in MODE_COLUMNS.items():
        if total := re.match(r"(\d+)%", row.get(column, "")):
            yield CrowdPoint(jobs, None, mode, (), int(total[1]) / 100)
    if total := re.match(r"(\d+)%", row.get("Sum of work [95 %]", "")):
        beside = None if row["Beside"] == "nobody" else row["Beside"]
        shares = tuple(int(share) / 100 for share in re.findall(r"(\d+)%", row["Each job's"]))
        yield CrowdPoint(jobs, beside, row["Mode"], shares, int(total[1]) / 100)


def crowd_named(name: str) -> list[str]:
    """longk*2 is two of them; "one of them" is no crowd."""
    found = []
    for part in name.replace("\\", "").split("+"):
        kind, _, count = part.partition("*")
        found += [kind] * int(count or 1)
    return found


def known(points: Sequence[CrowdPoint]) -> list[CrowdPoint]:
    return [
        point
        for point in points
        if (point.mode in POLICIES or point.mode == WEIGHTED)
        and all(kind_of(job) in CROWD_STEPS for job in point.jobs)
        and (point.production is None or point.production in SERVING)
    ]


def numbered(kinds: Sequence[str]) -> tuple[str, ...]:
    before = [kinds[:place].count(kind) for place, kind in enumerate(kinds)]
    return tuple(f"{kind} {count + 1}" if count else kind for kind, count in zip(kinds, before, strict=True))


def kind_of(job: str) -> str:
    return job.partition(" ")[0]


def simulated(point: CrowdPoint, interference: Interference, seconds: float) -> CrowdPoint:
    weights = WEIGHTS if point.mode == WEIGHTED else (1.0,) * len(point.jobs)
    jobs = [
        dataclasses.replace(hot_job(kind_of(name)), name=name, weight=weight)
        for name, weight in zip(point.jobs, weights, strict=True)
    ]
    first = [production_job(point.production)] if point.production else []
    study = Study(Workload(point.title, (*first, *jobs)), gpu_named("h200", interference), seconds, seed=1)
    policy: Any = POLICIES["cotenant" if point.mode == WEIGHTED else point.mode]
    shares = tuple(one.share for one in study.run(policy).below)
    return dataclasses.replace(point, shares=shares, noted=None)


def table(rows: Sequence[tuple[CrowdPoint, CrowdPoint]]) -> list[str]:
    def each(point: CrowdPoint) -> str:
        return " ".join(f"{100 * share:.0f}" for share in point.shares)

    lines = [
        "| crowd | mode | sum measured | simulated | each measured | simulated |",
        "| --- | --- | --: | --: | --- | --- |",
    ]
    for a, b in rows:
        sums = f"{a.total:.0%} | {b.total:.0%}"
        lines.append(f"| {a.title} | {a.mode} | {sums} | {each(a)} | {each(b)} |")
    return lines


def error(rows: Sequence[tuple[CrowdPoint, CrowdPoint]]) -> str:
    off = [100 * abs(a.total - b.total) for a, b in rows]
    within = sum(points <= WANTED_POINTS for points in off)
    return (
        f"sum of work {sum(off) / len(off):.1f} points off in the mean over {len(off)}; "
        f"{within} within {WANTED_POINTS:.0f} points"
    )


def compared(
    points: Sequence[CrowdPoint], interference: Interference, seconds: float
) -> list[tuple[CrowdPoint, CrowdPoint]]:
    return [(point, simulated(point, interference, seconds)) for point in points]


def section(rows: Sequence[tuple[CrowdPoint, CrowdPoint]]) -> str:
    """What docs/simulator.md has between its marks."""
    return "\n".join([BEGIN, "", f"Crowds: {error(rows)}.", "", *table(rows), "", END])


def compare(path: Path, interference: Interference, seconds: float) -> int:
    points = read(path)
    if not points:
        raise Problem(
            f"{path} has no crowd that can be simulated", "run bench/crowd with its own jobs and modes"
        )
    rows = compared(points, interference, seconds)
    print(f"Crowds: {error(rows)}\n")
    print("\n".join(table(rows)) + "\n")
    return 0


def rewrite(page: Path, measured: Path, interference: Interference) -> int:
    rows = compared(from_page(measured.read_text()), interference, SECONDS)
    before, begun, rest = page.read_text().partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not begun or not ended:
        raise Problem(f"{page} has no place for the crowds", f"put {BEGIN} and {END} into it")
    page.write_text(before + section(rows) + after)
    print(error(rows))
    return 0
