"""The benchmark's figures as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

BEGIN, END = "<!-- memory: begin -->", "<!-- memory: end -->"


def percentile(samples: list[float], percent: float) -> float:
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def as_markdown(found: dict[str, Any]) -> str:
    hand, copy, losses = found["by_hand"], found["copy"], found["losses"]
    latency, growth = found["server"]["latency_ms"], found["server"]["growth_ms"]
    saved, dropped = sum(found["saved_bytes"]), sum(found["dropped_bytes"])
    unit = "MiB" if found["toy"] else "GiB"
    of_copy = {way: hand[way] / copy[way] for way in ("to_host", "to_gpu")}
    rows = [
        ("GPU, and what all share of it", f"{copy['gpu']}, {found['capacity_gib']} {unit}"),
        ("two trainings of", f"{found['job_gib']} {unit} each"),
        ("most on the GPU at once", f"{found['most_bytes_at_once'] / 2**30:.2f} GiB"),
        ("evictions of each", " and ".join(map(str, found["evictions"]))),
        (
            "losses as alone, bit for bit",
            " and ".join(f"{'yes' if one['same'] else 'NO'} ({one['compared']} steps)" for one in losses),
        ),
        (
            "eviction",
            f"{hand['to_host']:.1f} GB/s, {of_copy['to_host']:.0%} of a pinned copy ({copy['to_host']:.1f})",
        ),
        (
            "return",
            f"{hand['to_gpu']:.1f} GB/s, {of_copy['to_gpu']:.0%} of a pinned copy ({copy['to_gpu']:.1f})",
        ),
        ("`cotenant pause`, median", f"{hand['pause_seconds']:.2f} s"),
        ("not copied, as PyTorch held it free", f"{dropped / max(1, saved + dropped):.0%} of all that left"),
        (
            f"the server's {found['growth_gib']} {unit} more, longest wait of {len(growth)}",
            f"{max(growth, default=0):.0f} ms",
        ),
    ]
    for part, samples in latency.items():
        figures = f"{percentile(samples, 50):.1f} / {percentile(samples, 99):.1f} ms"
        rows.append((f"its latency, {part}, p50 / p99", figures))
    lines = ["| what | found |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows)]
    return "\n".join(lines)


def into_page(page: Path, table: str) -> None:
    text = page.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    page.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")
