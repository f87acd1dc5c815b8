"""What the runs of a program say about each other, and the table made of it. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

BEGIN, END = "<!-- coverage table: begin -->", "<!-- coverage table: end -->"
CLASSES = ("production", "opportunistic")
COUNTED = ("kernels", "graphs", "copies", "memory_ops", "host_calls", "gates", "escaped", "unknown_functions")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One run of one program: evidence, or why there is none, and what the interposer counted."""

    evidence: dict[str, Any] | None
    problem: str = ""
    seconds: float = 0.0
    counts: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def skipped(self) -> str:
        return str(self.evidence.get("skipped", "")) if self.evidence else ""

    @property
    def digests(self) -> dict[str, str]:
        return dict(self.evidence.get("digests", {})) if self.evidence else {}


@dataclasses.dataclass(frozen=True)
class Row:
    program: str
    title: str
    plain: Outcome
    plain_again: Outcome | None  # only where something differed: is the program the same as itself?
    shared: dict[str, Outcome]  # by class

    @property
    def verdicts(self) -> dict[str, str]:
        return {name: verdict(self.plain, outcome, self.plain_again) for name, outcome in self.shared.items()}

    @property
    def passed(self) -> bool:
        if self.plain.skipped:
            return True
        return not self.plain.problem and bool(self.shared) and set(self.verdicts.values()) == {"same"}


def sum_counts(reports: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Over all processes of a run."""
    return {name: sum(int(report.get(name, 0)) for report in reports) for name in COUNTED}


def differing(one: dict[str, str], other: dict[str, str]) -> list[str]:
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def verdict(plain: Outcome, shared: Outcome, plain_again: Outcome | None = None) -> str:
    """In a word or two: is it the same with the interposer?"""
    if plain.problem:
        return "no comparison: fails without the interposer"
    if shared.problem:
        return f"fails: {shared.problem}"
    if shared.skipped:
        return f"fails: skips itself ({shared.skipped})"
    different = differing(plain.digests, shared.digests)
    if different and plain_again and differing(plain.digests, plain_again.digests):
        return "no comparison: differs from itself without the interposer"
    if different:
        return f"differs: {', '.join(different)}"
    if not shared.digests:
        return "fails: no results"
    if not shared.counts.get("kernels", 0) + shared.counts.get("graphs", 0):
        return "not interposed: no launch was counted"
    return "same"


def as_json(rows: Sequence[Row], machine: str) -> dict[str, Any]:
    def entry(row: Row) -> dict[str, Any]:
        runs = {"plain": row.plain, **row.shared}
        return {
            "program": row.program,
            "title": row.title,
            "passed": row.passed,
            "verdicts": row.verdicts,
            "runs": {name: dataclasses.asdict(outcome) for name, outcome in runs.items()},
        }

    return {"machine": machine, "programs": [entry(row) for row in rows]}


def as_markdown(rows: Sequence[Row], machine: str) -> str:
    columns = ("Program", "Versions", *(f"As {name}" for name in CLASSES))
    columns += ("Kernels", "Graphs", "Gates", "Escaped", "Unknown functions")
    lines = [machine, "", _line(columns), _line(["---"] * 4 + ["--:"] * 5)]
    for row in rows:
        if row.plain.skipped:
            results = [f"skipped: {row.plain.skipped}", ""]
        elif row.plain.problem:
            results = [f"fails without the interposer: {row.plain.problem}", ""]
        else:
            results = [row.verdicts.get(name, "not run") for name in CLASSES]
        versions = row.plain.evidence.get("versions", {}) if row.plain.evidence else {}
        production = row.shared.get("production", Outcome(None)).counts
        opportunistic = row.shared.get("opportunistic", Outcome(None)).counts
        counts = [
            production.get("kernels", ""),
            production.get("graphs", ""),
            opportunistic.get("gates", ""),
            production.get("escaped", ""),
            production.get("unknown_functions", ""),
        ]
        named = ", ".join(f"{name} {version}" for name, version in versions.items())
        lines.append(_line([row.title, named, *results, *map(str, counts)]))
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |"


def with_table(page: str, table: str) -> str:
    """The page with what stands between the two markers replaced."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no '{BEGIN}' followed by '{END}'")
    return f"{before}{BEGIN}\n\n{table}\n{END}{after}"
