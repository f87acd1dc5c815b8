"""What the benchmark leaves: one JSON file of sections, and tables between markers of a page. Pure but for `save`."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Section = dict[str, Any]
NOT_RUN = "Not run yet on this version."


def save(path: Path, text: str) -> None:
    """All of it or nothing: a run that is interrupted while it writes keeps the file that was there."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        # As any other program would have made it: mkstemp's files are for their owner alone.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def load(path: Path) -> dict[str, Section]:
    return dict(json.loads(path.read_text())) if path.exists() else {}


def save_section(path: Path, name: str, section: Section) -> None:
    """The file's other sections stay as they are."""
    save(path, json.dumps(load(path) | {name: section}, indent=1) + "\n")


def markers(name: str) -> tuple[str, str]:
    return f"<!-- {name} table: begin -->", f"<!-- {name} table: end -->"


def with_table(page: str, name: str, table: str) -> str:
    """The page with what stands between the section's two markers replaced."""
    first, last = markers(name)
    before, begin, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"the page has no '{first}' followed by '{last}'")
    return f"{before}{first}\n\n{table.strip()}\n\n{last}{after}"


def milliseconds(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _ratio(ratio: Mapping[str, Any]) -> str:
    low, high = ratio["interval"]
    return f"{ratio['value']:.2f} [{low:.2f}, {high:.2f}]"


def line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |"


_PAIR_COLUMNS = (
    "Pair",
    "Mode",
    "Service p50, ms",
    "x alone [95 %]",
    "Latency p50, ms",
    "p95",
    "p99",
    "max",
    "p99 x alone [95 %]",
    "Other job's work",
    "of ideal",
    "SM clock, MHz",
    "Results",
)


def pairs_table(section: Section) -> str:
    lines = [section["machine"], "", line(_PAIR_COLUMNS), line(["---"] * 2 + ["--:"] * 10 + ["---"])]
    notes = [
        f"`{mode}` was not measured: {reason}." for mode, reason in section.get("skipped_modes", {}).items()
    ]
    for entry in section["pairs"]:
        if "figures" not in entry:
            state, reason = (
                ("skipped", entry["skipped"]) if "skipped" in entry else ("failed", entry["failed"])
            )
            lines.append(line([entry["pair"], f"{state}: {_in_short(reason)}", *[""] * 11]))
            continue
        figures = entry["figures"]
        for mode, row in figures["modes"].items():
            lines.append(line(_pair_row(entry["pair"], mode, row, figures["ideal_share"])))
        notes += [f"{entry['pair']}: {miss}." for miss in figures["misses"]]
    if notes:
        lines += ["", "Missed, or not measured:", "", *(f"- {note}" for note in notes)]
    return "\n".join(lines) + "\n"


def _in_short(reason: str) -> str:
    """What happened, and the last thing that was said of it."""
    told = reason.splitlines()
    return told[0] if len(told) == 1 else f"{told[0]} {told[-1].strip()}"


def _pair_row(pair: str, mode: str, row: Mapping[str, Any], ideal: float) -> list[str]:
    alone = mode == "alone"
    bound = "> " if row["unanswered"] else ""  # of a request that nobody answered only a lower bound is known
    results = row["production_results"] if alone else _results(row)
    return [
        f"**{pair}**" if alone else "",
        mode,
        milliseconds(row["service_p50_ms"]),
        "" if alone else _ratio(row["service_p50_ratio"]),
        milliseconds(row["latency_p50_ms"]),
        milliseconds(row["latency_p95_ms"]),
        bound + milliseconds(row["latency_p99_ms"]),
        bound + milliseconds(row["latency_max_ms"]),
        "" if alone else bound + _ratio(row["latency_p99_ratio"]),
        f"(ideal {ideal:.0%})" if alone else f"{row['opportunistic_share']:.0%}",
        "" if row["share_of_ideal"] is None else f"{row['share_of_ideal']:.2f}",
        "" if row.get("sm_mhz") is None else f"{row['sm_mhz']:.0f}",
        results,
    ]


def _results(row: Mapping[str, Any]) -> str:
    production, opportunistic = row["production_results"], row["opportunistic_results"]
    return production if production == opportunistic else f"{production} / {opportunistic}"


def preemption_table(section: Section) -> str:
    columns = ("The GPU is held by", "Mode", "Samples", "p50, ms", "p99, ms", "max, ms")
    lines = [section["machine"], "", line(columns), line(["---"] * 2 + ["--:"] * 4)]
    for row in section["rows"]:
        times = [f"{row[name]:.3f}" for name in ("p50_ms", "p99_ms", "max_ms")]
        lines.append(line([row["held_by"], row["mode"], str(row["samples"]), *times]))
    lines += ["", *(f"- Missed: {miss}." for miss in section["misses"])]
    return "\n".join(lines) + "\n"


def overhead_table(section: Section) -> str:
    columns = ("Job alone", "Class", "Steps/s without", "Steps/s with", "Cost [95 %]", "Wanted")
    lines = [section["machine"], "", line(columns), line(["---"] * 2 + ["--:"] * 4)]
    for row in section["rows"]:
        low, high = row["cost_interval"]
        lines.append(
            line(
                [
                    row["job"],
                    row["class"],
                    f"{row['plain_per_second']:.1f}",
                    f"{row['tenant_per_second']:.1f}",
                    f"{row['cost']:.1%} [{low:.1%}, {high:.1%}]",
                    f"at most {row['wanted']:.1%}",
                ]
            )
        )
    return "\n".join(lines) + "\n"


def promises_table(section: Section) -> str:
    columns = (
        "Pair",
        "Mode",
        "Service mean, x alone [95 %]",
        "Service p50, x alone",
        "Other job's work",
        "of ideal",
    )
    lines = [section["machine"], "", line(columns), line(["---"] * 2 + ["--:"] * 4)]
    misses = []
    for entry in section["pairs"]:
        if "figures" not in entry:
            lines.append(line([entry["pair"], entry.get("skipped") or entry["failed"], *[""] * 4]))
            continue
        figures = entry["figures"]
        misses += figures["misses"]
        for mode, row in figures["modes"].items():
            if mode != "alone":
                share, of_ideal = row["opportunistic_share"], row["share_of_ideal"]
                ratios = [_ratio(row["service_mean_ratio"]), _ratio(row["service_p50_ratio"])]
                lines.append(line([entry["pair"], mode, *ratios, f"{share:.0%}", f"{of_ideal:.2f}"]))
    lines += ["", *(f"- Not kept: {miss}." for miss in misses)]
    return "\n".join(lines) + "\n"


TABLES = {
    "pairs": pairs_table,
    "promises": promises_table,
    "preemption": preemption_table,
    "overhead": overhead_table,
}


def publish(page: Path, name: str, section: Section) -> None:
    save(page, with_table(page.read_text(), name, TABLES[name](section)))
