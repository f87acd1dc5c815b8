"""The demo's report: summary.json and latency.png, both or neither, and the table that it prints."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cotenant import output_files
from cotenant.demo.figures import PHASES, Measurement
from cotenant.errors import Problem

if TYPE_CHECKING:
    from rich.table import Table

TITLES = {"alone": "alone", "shared": "shared", "cotenant": "with Cotenant"}


def summary(measurement: Measurement) -> dict[str, Any]:
    figures = {phase: dataclasses.asdict(measurement.figures(phase)) for phase in PHASES}
    return {
        "gpu": measurement.gpu,
        "software_gpu": measurement.software_gpu,
        **{phase: _rounded(values) for phase, values in figures.items()},
        "opportunistic_alone": {
            "steps_per_second": round(measurement.opportunistic_alone.steps_per_second, 3),
            "seconds": round(measurement.opportunistic_alone.seconds, 3),
        },
        "production_busy_share": round(measurement.production_busy_share, 4),
        "rounds": measurement.rounds,
        "load_average": round(measurement.load_average, 2),
        "seconds": round(_measured_seconds(measurement), 3),
        "versions": _versions(measurement),
    }


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in values.items()}


def _measured_seconds(measurement: Measurement) -> float:
    return sum(s.seconds for s in measurement.phases.values()) + measurement.opportunistic_alone.seconds


def _versions(measurement: Measurement) -> dict[str, str]:
    cuda = measurement.driver_version
    versions = {"python": platform.python_version(), "cuda_driver_api": f"{cuda // 1000}.{cuda % 1000 // 10}"}
    for package in ("cotenant", "cuda-bindings"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def table(measurement: Measurement) -> Table:
    from rich.table import Table

    kind = "software GPU, modelled on " if measurement.software_gpu else ""
    made = Table(title=f"Two jobs on one GPU ({kind}{measurement.gpu})", title_justify="left")
    made.add_column("production job")
    for heading in ("requests", "p50 ms", "p99 ms", "p99 / alone", "other job's work"):
        made.add_column(heading, justify="right")
    for phase in PHASES:
        figures = measurement.figures(phase)
        made.add_row(
            TITLES[phase],
            str(figures.requests),
            f"{figures.p50_ms:.2f}",
            f"{figures.p99_ms:.2f}",
            "1"
            if phase == "alone"
            else f"{figures.p99_ratio:.2f} [{figures.p99_ratio_low:.2f}, {figures.p99_ratio_high:.2f}]",
            "-" if phase == "alone" else f"{figures.opportunistic_share:.0%}",
        )
    made.caption = (
        f"p99 / alone: with its 95 % interval; other job's work: share of what it does alone; "
        f"production leaves {1 - measurement.production_busy_share:.0%} of the time"
    )
    made.caption_justify = "left"
    return made


def headline(measurement: Measurement) -> str:
    return measurement.conclusion() + "."


def doubts(measurement: Measurement) -> str:
    """Why these figures may be off, or nothing. The software GPU and the jobs need the CPUs on time."""
    cores = os.cpu_count() or 1
    if measurement.load_average >= cores:
        return (
            f"this machine was busy (load {measurement.load_average:.1f} on {cores} CPUs): waiting for a CPU is part "
            "of the latencies, alone too; run it again on a quiet machine"
        )
    still = {phase: measurement.figures(phase).stalls for phase in PHASES}
    if not any(still.values()):
        return ""
    longest = max(measurement.figures(phase).longest_stall_ms for phase in PHASES)
    times = ", ".join(f"{TITLES[phase]} {count}" for phase, count in still.items())
    return (
        f"this machine stood still now and then ({times} times, for up to {longest:.0f} ms): its slowest requests "
        "may be no more than that; run it again"
    )


def check_place(folder: Path) -> None:
    """Before anything is measured: the report must have a place to go."""
    above = (folder.absolute(), *folder.absolute().parents)
    output_files.check_folder(next(one for one in above if one.exists()))


def leave(measurement: Measurement, folder: Path) -> None:
    """Writes the report beside its final place first, so that a failure leaves the last report as it was."""
    from cotenant.demo.picture import draw

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".making-", dir=folder) as workshop:
            made = Path(workshop)
            (made / "summary.json").write_text(json.dumps(summary(measurement), indent=2) + "\n")
            draw(measurement, made / "latency.png")
            for name in ("latency.png", "summary.json"):
                os.replace(made / name, folder / name)
    except OSError as failure:
        raise Problem(f"cannot write the report: {failure}", "--output names another folder") from failure
