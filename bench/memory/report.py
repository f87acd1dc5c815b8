"""The benchmark's figures as a table."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from moves import Span, latency_while

from cotenant.demo.figures import percentile

sys.path.append(str(Path(__file__).resolve().parents[1] / "pairs"))
from intervals import MET, Estimate, of_series, shown

PROMISE = 0.2  # of the server
BEGIN, END = "<!-- memory: begin -->", "<!-- memory: end -->"

WAYS = (
    ("step_end", "at the end of a step"),
    ("amid", "amid a step"),
    ("no_helper", "without the helper"),
)
FRESH = "no_helper"  # this job has never left before


def as_markdown(found: dict[str, Any]) -> str:
    """What was found, also where some of it is missing."""
    rows = [*about_all(found), *about_pauses(found), *about_server(found)]
    rows += [("**missed**", problem) for problem in found.get("problems", [])]
    return "\n".join(
        ["| what | found |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows)]
    )


def unit_of(found: dict[str, Any]) -> str:
    return "MiB" if found["toy"] else "GiB"


def size(found: dict[str, Any], count: float) -> str:
    return f"{count / (2**20 if found['toy'] else 2**30):.2f} {unit_of(found)}"


def about_all(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    unit = unit_of(found)
    if copy := found.get("copy"):
        yield "GPU, and what all share of it", f"{copy['gpu']}, {found['capacity_gib']} {unit}"
    yield "two trainings of", f"{found['job_gib']} {unit} each"
    if "most_bytes_at_once" in found:
        yield "most on the GPU at once", size(found, found["most_bytes_at_once"])
    if "evictions" in found:
        times = " and ".join(map(str, found["evictions"]))
        yield "evictions of each", f"{times} in {found['seconds']:.0f} s"
    if "steps" in found:
        each = " and ".join(map(str, found["steps"]))
        yield (
            "steps of each meanwhile",
            f"{each}, together {sum(found['steps']) / found['seconds']:.2f} a second",
        )
    if losses := found.get("losses"):
        same = (f"{'yes' if one['same'] else 'NO'} ({one['compared']} steps)" for one in losses)
        yield "losses as alone, bit for bit", " and ".join(same)


def by_hand(found: dict[str, Any], key: str) -> list[dict[str, Any]]:
    samples: list[dict[str, Any]] = found.get(key, {}).get("samples", [])
    return samples


def later(found: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Those for which the host memory was there already."""
    return by_hand(found, key)[1 if key == FRESH else 0 :]


def middle(samples: list[dict[str, Any]], figure: str) -> float:
    return statistics.median(float(one[figure]) for one in samples)


def about_pauses(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    copy = found.get("copy")
    if (samples := later(found, FRESH) or later(found, "step_end")) and copy:
        for name, way, took in (
            ("eviction", "to_host", "eviction_seconds"),
            ("restore", "to_gpu", "restore_seconds"),
        ):
            rate = statistics.median(one["saved_bytes"] / one[took] / 1e9 for one in samples)
            yield name, f"{rate:.1f} GB/s, {rate / copy[way]:.0%} of a pinned copy ({copy[way]:.1f})"
    if samples := by_hand(found, FRESH):
        first = samples[0]["pause_seconds"]
        yield "`cotenant pause`, the first of a job, host memory not pinned yet", f"{first:.2f} s"
    for key, when in WAYS:
        if samples := later(found, key):
            of = f"{'the next ' if key == FRESH else ''}{len(samples)}"
            yield f"`cotenant pause`, {when}, median of {of}", f"{middle(samples, 'pause_seconds'):.2f} s"
    for key, when in WAYS:
        if samples := by_hand(found, key):
            dropped, saved = middle(samples, "dropped_bytes"), middle(samples, "saved_bytes")
            yield f"not copied, {when}", not_copied(found, dropped, saved)
    if "saved_bytes" in found:
        kinds = zip(
            ("at the end of a step", "amid"), found["dropped_bytes"], found["saved_bytes"], strict=True
        )
        for when, dropped, saved in kinds:
            yield f"not copied, all evictions {when}", not_copied(found, dropped, saved)


def not_copied(found: dict[str, Any], dropped: float, saved: float) -> str:
    return (
        f"{size(found, dropped)} of {size(found, saved + dropped)}, {dropped / max(1, saved + dropped):.0%}"
    )


def about_server(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if server := found.get("server"):
        growth = server["growth_ms"]
        more = f"the server's {found['growth_gib']} {unit_of(found)} more, longest wait of {len(growth)}"
        yield more, f"{max(growth, default=0):.0f} ms"
        for part, samples in server["latency_ms"].items():
            ratio = f"; {against_alone(server, samples)}" if part != "alone" else ""
            yield f"its latency, {part}, p50 / p95 / p99", f"{percentiles(samples)}{ratio}"
            if part == "turns":
                yield from about_moves(server, found)


def about_moves(server: dict[str, Any], found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """While they take turns: nobody has looked in the other parts."""
    moves = [Span(*one) for one in found.get("moves", [])]
    due = server.get("due", {}).get("turns")
    if not moves or not due:
        return
    for state, samples in latency_while(moves, due, server["latency_ms"]["turns"]).items():
        if samples:
            figures = f"{percentiles(samples)}; {against_alone(server, samples)}; {len(samples)} requests"
            yield f"its latency, turns, while {state}, p50 / p95 / p99", figures


def percentiles(samples: list[float]) -> str:
    return " / ".join(f"{percentile(samples, percent):.1f}" for percent in (50, 95, 99)) + " ms"


def against_alone(server: dict[str, Any], samples: list[float]) -> str:
    return f"mean {shown(slowdown(server, samples))} of alone"


def slowdown(server: dict[str, Any], samples: list[float]) -> Estimate:
    """The mean latency, as a multiple of that alone."""
    return of_series(samples, server["latency_ms"]["alone"])


def promise_broken(found: dict[str, Any]) -> list[str]:
    """In which parts: where not all of the interval is within it."""
    server = found.get("server", {"latency_ms": {}})
    return [
        part
        for part, samples in server["latency_ms"].items()
        if part != "alone" and slowdown(server, samples).at_most(1 + PROMISE) != MET
    ]


def into_page(page: Path, table: str) -> None:
    text = page.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    page.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")
