"""Observations as a CSV: what a pair's jobs are like, what the simulator says of it, and what was measured.

A user's own lines (`cotenant predict --observed`) are learned from beside the shipped ones, which are the H200's.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TextIO

from cotenant.cluster.predict.model import MODES, Observation, Pair
from cotenant.cluster.predict.traits import Traits
from cotenant.errors import USAGE, Problem

TRAITS = tuple(one.name for one in fields(Traits))
COLUMNS = (
    "pair",
    "mode",
    *(f"production_{name}" for name in TRAITS),
    *(f"other_{name}" for name in TRAITS),
    "simulated_slowdown",
    "simulated_share",
    "measured_slowdown",
    "measured_share",
)


@cache
def shipped() -> tuple[Observation, ...]:
    """bench/simulator/kinds.py makes them, from the table of pairs in docs/benchmarks.md."""
    return tuple(parsed((files("cotenant.cluster.predict") / "h200.csv").read_text(), "h200.csv"))


def read(path: Path) -> list[Observation]:
    try:
        return parsed(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(f"{path} cannot be read: {error}", "give a CSV file", USAGE) from None


def parsed(text: str, where: str) -> list[Observation]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    reader = csv.DictReader(lines)
    missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
    if missing:
        raise Problem(f"{where} has no column '{missing[0]}'", f"needed: {', '.join(COLUMNS)}", USAGE)
    found = []
    for row in reader:
        try:
            found.append(observation(row))
        except (TypeError, ValueError) as error:
            hint = "docs/cluster.md describes observations"
            raise Problem(f"{where}, line {reader.line_num}: {error}", hint, USAGE) from None
    return found


def observation(row: Mapping[str, str]) -> Observation:
    if row["mode"] not in MODES:
        raise ValueError(f"the mode is one of {', '.join(MODES)}, not '{row['mode']}'")

    def traits(whose: str) -> Traits:
        return Traits(*(amount(row, f"{whose}_{name}") for name in TRAITS))

    pair = Pair(
        row["mode"],
        traits("production"),
        traits("other"),
        positive(row, "simulated_slowdown"),
        amount(row, "simulated_share"),
    )
    return Observation(row["pair"], pair, positive(row, "measured_slowdown"), amount(row, "measured_share"))


def amount(row: Mapping[str, str], column: str) -> float:
    value = float(row[column])
    if not 0 <= value < math.inf:
        raise ValueError(f"{column} is {row[column]}")
    return value


def positive(row: Mapping[str, str], column: str) -> float:
    value = amount(row, column)
    if not value:
        raise ValueError(f"{column} is 0")
    return value


def write(observations: Iterable[Observation], file: TextIO) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in observations:
        pair = one.pair
        traits = [getattr(job, name) for job in (pair.production, pair.other) for name in TRAITS]
        figures = [*traits, pair.slowdown, pair.share, one.slowdown, one.share]
        writer.writerow([one.name, pair.mode, *(f"{figure:.4g}" for figure in figures)])
