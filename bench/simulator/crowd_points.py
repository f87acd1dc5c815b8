"""Crowds that bench/crowd has measured, beside the same crowds simulated."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pair_jobs import CROWD_STEPS, POLICIES, SERVING, opportunistic_job, production_job

from cotenant.errors import Problem
from cotenant.simulator import Interference, Study, Workload, gpu_named

WEIGHTED = "cotenant 1:2:4"
WEIGHTS = (1.0, 2.0, 4.0)
WANTED_POINTS = 10.0  # how far the sum of work may be off


@dataclasses.dataclass(frozen=True)
class CrowdPoint:
    """A crowd in a mode, beside production or nobody."""

    jobs: tuple[str, ...]  # each by a name of its own: longk, longk 2
    production: str | None
    mode: str
    shares: tuple[float, ...]  # of their work alone

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
        dataclasses.replace(opportunistic_job(kind_of(name)), name=name, weight=weight)
        for name, weight in zip(point.jobs, weights, strict=True)
    ]
    first = [production_job(point.production)] if point.production else []
    study = Study(Workload(point.title, (*first, *jobs)), gpu_named("h200", interference), seconds, seed=1)
    policy: Any = POLICIES["cotenant" if point.mode == WEIGHTED else point.mode]
    return dataclasses.replace(point, shares=tuple(one.share for one in study.run(policy).below))


def table(rows: Sequence[tuple[CrowdPoint, CrowdPoint]]) -> list[str]:
    def each(point: CrowdPoint) -> str:
        return " ".join(f"{100 * share:.0f}" for share in point.shares)

    lines = [
        "| crowd | mode | sum measured | simulated | each measured | simulated |",
        "| --- | --- | --: | --: | --- | --- |",
    ]
    for a, b in rows:
        sums = f"{sum(a.shares):.0%} | {sum(b.shares):.0%}"
        lines.append(f"| {a.title} | {a.mode} | {sums} | {each(a)} | {each(b)} |")
    return lines


def error(rows: Sequence[tuple[CrowdPoint, CrowdPoint]]) -> str:
    off = [100 * abs(sum(a.shares) - sum(b.shares)) for a, b in rows]
    within = sum(points <= WANTED_POINTS for points in off)
    return (
        f"sum of work {sum(off) / len(off):.1f} points off in the mean over {len(off)}; "
        f"{within} within {WANTED_POINTS:.0f} points"
    )


def compare(path: Path, interference: Interference, seconds: float) -> int:
    points = read(path)
    if not points:
        raise Problem(
            f"{path} has no crowd that can be simulated", "run bench/crowd with its own jobs and modes"
        )
    rows = [(point, simulated(point, interference, seconds)) for point in points]
    print(f"Crowds: {error(rows)}\n")
    print("\n".join(table(rows)) + "\n")
    return 0
