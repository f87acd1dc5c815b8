"""What the benchmark leaves: one JSON file of sections, and tables between markers of a page. Pure but for `save`."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from intervals import Estimate, shown

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


def _ratio(ratio: Mapping[str, Any] | None) -> str:
    return "" if ratio is None else shown(Estimate(**ratio))


def _share(share: Mapping[str, Any] | None) -> str:
    if share is None:
        return ""
    if share["interval"] is None:
        return f"{share['value']:.0%}"
    low, high = share["interval"]
    return f"{share['value']:.0%} [{100 * low:.0f}, {100 * high:.0f}]"


def line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |"


_PAIR_COLUMNS = (
    "Pair",
    "Mode",
    "Service p50, ms",
    "x alone [95 %]",
    "at the same clock",
    "Latency p50, ms",
    "p95",
    "Tail",
    "max",
    "Tail x alone [95 %]",
    "at the same clock",
    "Other job's work",
    "of ideal",
    "SM clock, MHz",
    "Of a burst, ms: waited for the GPU, ran, waited for itself",
    "Results",
)


def pairs_table(section: Section) -> str:
    lines = [section["machine"], "", line(_PAIR_COLUMNS), line(["---"] * 2 + ["--:"] * 13 + ["---"])]
    notes = [
        f"`{mode}` was not measured: {reason}." for mode, reason in section.get("skipped_modes", {}).items()
    ]
    for entry in section["pairs"]:
        if "figures" not in entry:
            state, reason = (
                ("skipped", entry["skipped"]) if "skipped" in entry else ("failed", entry["failed"])
            )
            lines.append(line([entry["pair"], f"{state}: {_in_short(reason)}", *[""] * 14]))
            continue
        figures = entry["figures"]
        for mode, row in figures["modes"].items():
            lines.append(line(_pair_row(entry["pair"], mode, row, figures)))
        notes += [f"{entry['pair']}: {miss}." for miss in figures["misses"]]
    if notes:
        lines += ["", "Missed, or not measured:", "", *(f"- {note}" for note in notes)]
    return "\n".join(lines) + "\n"


def _in_short(reason: str) -> str:
    """What happened, and the last thing that was said of it."""
    told = reason.splitlines()
    return told[0] if len(told) == 1 else f"{told[0]} {told[-1].strip()}"


def _pair_row(pair: str, mode: str, row: Mapping[str, Any], figures: Mapping[str, Any]) -> list[str]:
    alone = mode == "alone"
    bound = "> " if row["unanswered"] else ""  # of a request that nobody answered only a lower bound is known
    results = row["production_results"] if alone else _results(row)
    return [
        f"**{pair}**" if alone else "",
        mode,
        milliseconds(row["service_p50_ms"]),
        "" if alone else _ratio(row["service_p50_ratio"]),
        "" if alone else _ratio(row["service_p50_at_clock"]),
        milliseconds(row["latency_p50_ms"]),
        milliseconds(row["latency_p95_ms"]),
        f"{figures['tail']}: {bound}{milliseconds(row['latency_tail_ms'])}",
        bound + milliseconds(row["latency_max_ms"]),
        "" if alone else bound + _ratio(row["tail_ratio"]),
        "" if alone else bound + _ratio(row["tail_at_clock"]),
        f"(ideal {figures['ideal_share']:.0%} by {figures['ideal_from']})"
        if alone
        else _share(row["opportunistic_share"]),
        _ratio(row["share_of_ideal"]),
        "" if row.get("sm_mhz") is None else f"{row['sm_mhz']:.0f}",
        _breakdown(row.get("breakdown")),
        results,
    ]


def _breakdown(burst: Mapping[str, Any] | None) -> str:
    if burst is None:
        return ""
    waited = "-" if burst["wait_us"] is None else f"{burst['wait_us'] / 1000:.2f}"
    slower = "" if burst["slower"] is None else f" ({burst['slower']:+.0%} an operation)"
    return f"{waited}, {burst['run_us'] / 1000:.2f}{slower}, {burst['gap_us'] / 1000:.2f}"


def _results(row: Mapping[str, Any]) -> str:
    production, opportunistic = row["production_results"], row["opportunistic_results"]
    return production if production == opportunistic else f"{production} / {opportunistic}"


def preemption_table(section: Section) -> str:
    columns = ("Request", "The GPU is held by", "Mode", "Samples", "p50, ms", "p99, ms", "max, ms")
    lines = [section["machine"], "", line(columns), line(["---"] * 3 + ["--:"] * 4)]
    for row in section["rows"]:
        times = [f"{row[name]:.3f}" for name in ("p50_ms", "p99_ms", "max_ms")]
        lines.append(line([row["request"], row["held_by"], row["mode"], str(row["samples"]), *times]))
    lines += ["", *(f"- Missed: {miss}." for miss in section["misses"])]
    return "\n".join(lines) + "\n"


def bus_table(section: Section) -> str:
    columns = (
        "Production copies",
        "Mode",
        "Copies",
        "p50, us",
        "x alone [95 %]",
        "Tail, us",
        "x alone [95 %]",
        "max, us",
        "Other job's work",
        "Results",
    )
    lines = [section["machine"], "", line(columns), line(["---"] * 2 + ["--:"] * 7 + ["---"])]
    for row in section["rows"]:
        alone = row["mode"] == "alone"
        lines.append(
            line(
                [
                    f"**{row['copy']}**" if alone else "",
                    row["mode"],
                    str(row["samples"]),
                    f"{row['p50_us']:.0f}",
                    "" if alone else _ratio(row["p50_ratio"]),
                    f"{row['tail']}: {row['tail_us']:.0f}",
                    "" if alone else _ratio(row["tail_ratio"]),
                    f"{row['max_us']:.0f}",
                    _share(row["share"]),
                    row["results"],
                ]
            )
        )
    lines += ["", *(f"- Missed or open: {miss}." for miss in section["misses"])]
    return "\n".join(lines) + "\n"


def overhead_table(section: Section) -> str:
    columns = ("Job alone", "Class", "Steps/s without", "Steps/s with", "Cost [95 %]", "Wanted")
    lines = [section["machine"], "", line(columns), line(["---"] * 2 + ["--:"] * 4)]
    for row in section["rows"]:
        interval = row["cost_interval"]
        cost = f"{row['cost']:.1%}" + (f" [{interval[0]:.1%}, {interval[1]:.1%}]" if interval else "")
        lines.append(
            line(
                [
                    row["job"],
                    row["class"],
                    f"{row['plain_per_second']:.1f}",
                    f"{row['tenant_per_second']:.1f}",
                    cost,
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
        "Windows over the promise (by more than noise)",
        "Worst window",
        "Other job's work",
        "of the best constant duty",
    )
    lines = [section["machine"], "", line(columns), line(["---"] * 2 + ["--:"] * 5)]
    misses = []
    for entry in section["pairs"]:
        if "figures" not in entry:
            lines.append(line([entry["pair"], entry.get("skipped") or entry["failed"], *[""] * 5]))
            continue
        misses += [f"{entry['pair']}: {miss}" for miss in entry["figures"]["misses"]]
        for row in entry["figures"]["rows"]:
            over = "" if row["promised"] is None else f"{row['over']} of {len(row['windows'])}"
            if over and row.get("over_noise") is not None:
                over += f" ({row['over_noise']})"
            best = "" if row["of_best"] is None else f"{row['of_best']:.2f} (of {row['best']:.0%})"
            means = [_ratio(row["service_mean"]), over, f"{row['worst']:.2f}"]
            lines.append(line([entry["pair"], row["mode"], *means, _share(row["share"]), best]))
    lines += ["", *(f"- Not kept: {miss}." for miss in misses)]
    return "\n".join(lines) + "\n"


TABLES = {
    "pairs": pairs_table,
    "short": pairs_table,
    "light": pairs_table,
    "promises": promises_table,
    "preemption": preemption_table,
    "bus": bus_table,
    "overhead": overhead_table,
}


def publish(page: Path, name: str, section: Section) -> None:
    save(page, with_table(page.read_text(), name, TABLES[name](section)))
