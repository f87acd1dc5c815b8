"""What the simulated cluster needs of a log, and how a reader refuses a file."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cotenant.errors import USAGE, Problem


@dataclass(frozen=True, slots=True)
class LoggedJob:
    id: str
    at_s: float  # when it was submitted; the first job of a log comes at 0
    seconds: float  # how long it ran
    gpus: int = 1
    share: float = 1.0  # of each of its GPUs
    is_production: bool | None = None  # None: the log does not say


def rows(
    path: Path, columns: Sequence[str], has_header: bool = True
) -> Iterator[tuple[int, Mapping[str, str]]]:
    """The lines of a CSV with their numbers; a log without a header has these columns in this order."""
    try:
        with path.open(newline="") as file:
            reader = csv.reader(file)
            titles = next(reader, []) if has_header else list(columns)
            missing = [column for column in columns if column not in titles]
            if missing:
                raise Problem(f"{path} has no column '{missing[0]}'", f"needed: {', '.join(columns)}", USAGE)
            for line in reader:
                if not line:
                    continue
                if len(line) != len(titles):
                    raise wrong(path, reader.line_num, f"{len(line)} columns instead of {len(titles)}")
                yield reader.line_num, dict(zip(titles, line, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise Problem(f"{path} cannot be read: {error}", "give a CSV file", USAGE) from None


def wrong(path: Path, line: int, what: str) -> Problem:
    return Problem(f"{path}, line {line}: {what}", "docs/cluster.md describes the logs", USAGE)


def number(text: str) -> float:
    """Raises ValueError for what is no finite number of at least 0."""
    found = float(text)
    if not 0 <= found < math.inf:
        raise ValueError(f"'{text}' is no amount")
    return found


def moment_s(text: str) -> float:
    """Of "2017-10-09 07:07:28": seconds since 1970, as if the clock were UTC. Only differences matter."""
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise ValueError(f"'{text}' is no moment such as 2020-04-01 00:00:00") from None


def from_zero(jobs: Sequence[LoggedJob], path: Path) -> list[LoggedJob]:
    """In the order of their arrival, the first at 0."""
    if not jobs:
        raise Problem(f"{path} has no job that ran on a GPU", "give a log of jobs", USAGE)
    first = min(job.at_s for job in jobs)
    moved = [
        LoggedJob(job.id, job.at_s - first, job.seconds, job.gpus, job.share, job.is_production)
        for job in jobs
    ]
    return sorted(moved, key=lambda job: (job.at_s, job.id))
