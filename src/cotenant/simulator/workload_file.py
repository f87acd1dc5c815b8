"""Workload files: TOML, described in docs/simulator.md. An error is one line that names its place."""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Set
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from cotenant.classes import TenantClass
from cotenant.errors import USAGE, Problem, nearest, unknown
from cotenant.simulator.workload import ArrivalKind, Arrivals, Job, Op, OpKind, Workload

T = TypeVar("T")

FOLDER = Path(__file__).parent / "workloads"
UNITS = {"": 1, "B": 1, "K": 2**10, "KIB": 2**10, "M": 2**20, "MIB": 2**20, "G": 2**30, "GIB": 2**30}
LARGEST = 1 << 63
NO_MOMENTS: tuple[float, ...] = ()
MOST_OPERATIONS = 10_000_000  # of one request


def shipped() -> dict[str, Path]:
    return {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}


def find_workload(item: str) -> Workload:
    """A shipped workload by name, a workload file, or a recorded trace (one job, production)."""
    if item in shipped():
        return read_workload(shipped()[item])
    path = Path(item)
    if path.suffix == ".trace":
        return Workload(path.stem, (trace_job(path, path.stem, TenantClass.production),))
    if os.sep not in item and path.suffix != ".toml":
        raise unknown("workload", item, shipped())
    return read_workload(path)


def from_items(items: tuple[str, ...]) -> Workload:
    """One workload, or several traces that share a GPU: the first is production, the others are opportunistic."""
    if len(items) == 1:
        return find_workload(items[0])
    jobs: list[Job] = []
    for item in items:
        path = Path(item)
        if path.suffix != ".trace":
            raise Problem(
                f"'{item}' cannot share a GPU with the others named",
                "give one workload, or several .trace files",
                USAGE,
            )
        tenant_class = TenantClass.opportunistic if jobs else TenantClass.production
        jobs.append(trace_job(path, free_name(path.stem, {job.name for job in jobs}), tenant_class))
    return Workload("+".join(job.name for job in jobs), tuple(jobs))


def free_name(name: str, taken: Set[str]) -> str:
    """name, name-2, name-3 …"""
    return next(one for one in (name, *(f"{name}-{n}" for n in range(2, len(taken) + 3))) if one not in taken)


def trace_job(path: Path, name: str, tenant_class: TenantClass) -> Job:
    from cotenant.simulator.trace_program import program_from, read_whole
    from cotenant.traces.summary import peak_memory

    trace = read_whole(path)
    recorded_on = (trace.gpus[0].name, trace.gpus[0].sms) if trace.gpus else None
    return Job(
        name,
        tenant_class,
        program=program_from(trace),
        recorded_on=recorded_on,
        memory_bytes=peak_memory(trace),
    )


def read_workload(path: Path) -> Workload:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        known = ", ".join(shipped())
        raise Problem(f"there is no workload file {path}", f"shipped workloads: {known}", USAGE) from None
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(f"{path} cannot be read: {error}", "give a TOML file", USAGE) from None
    except (ValueError, RecursionError) as error:  # ValueError also: a number of thousands of digits
        raise Problem(f"{path} is no TOML: {error}", "docs/simulator.md has an example", USAGE) from None
    table = Table(content, str(path))
    workload = Workload(
        name=path.stem,
        title=table.take("title", text, ""),
        seconds=table.take("seconds", positive, 20.0),
        gpus=table.take("gpus", whole(1, 100_000), 1),
        jobs=tuple(read_job(job, path.parent) for job in table.tables("job")),
    )
    table.end()
    return workload


class Table:
    """A TOML table that is taken apart: what is left at the end is a mistake."""

    def __init__(self, content: Mapping[str, Any], where: str) -> None:
        self._left = dict(content)
        self._known: list[str] = []
        self.where = where

    def take(self, key: str, convert: Callable[[Any], T], default: T) -> T:
        self._known.append(key)
        if key not in self._left:
            return default
        value = self._left.pop(key)
        try:
            return convert(value)
        except ValueError as error:
            raise self.problem(f"'{key}' {error}, not {in_words(value)}") from None

    def tables(self, key: str) -> list[Table]:
        self._known.append(key)
        found = self._left.pop(key, [])
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise self.problem(f"'{key}' is a list of tables: [[{key}]]")
        return [Table(one, f"{self.where}: {key} {number}") for number, one in enumerate(found, 1)]

    def end(self) -> None:
        for key in self._left:
            raise self.problem(
                f"unknown key '{key}'", nearest(key, self._known) or f"known: {', '.join(self._known)}"
            )

    def problem(self, what: str, hint: str = "docs/simulator.md describes workload files") -> Problem:
        return Problem(f"{self.where}: {what}", hint, USAGE)


def in_words(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:  # Python writes out no more than some thousand digits
        return "one of thousands of digits"


def read_job(table: Table, folder: Path) -> Job:
    name = table.take("name", text, "")
    if not name:
        raise table.problem("it has no name", 'add name = "..."')
    table.where = f"{table.where} ('{name}')"
    trace = table.take("trace", text, "")
    ops = tuple(read_op(op) for op in table.tables("ops"))
    layers = table.take("layers", whole(1, MOST_OPERATIONS), 1)
    if bool(trace) == bool(ops):
        raise table.problem("it needs a trace or ops, one of them", "add [[job.ops]] or trace = ...")
    if layers * sum(op.repeat for op in ops) > MOST_OPERATIONS:
        raise table.problem(f"a request has more than {MOST_OPERATIONS} operations", "lower layers or repeat")
    trains = table.take("trains", boolean, False)
    think = table.take("think_ms", interval, (0.0, 0.0))
    recorded = trace_job(folder / trace, name, TenantClass.production) if trace else Job(name)
    job = Job(
        name=name,
        tenant_class=table.take("class", tenant_class, TenantClass.production),
        ops=ops,
        layers=layers,
        program=recorded.program,
        arrivals=read_arrivals(table),
        requests=table.take("requests", whole(1, 10**12), 0),
        think_ms=think,
        waits=table.take("waits", boolean, not trains or think[1] > 0),
        trains=trains,
        spread=table.take("spread", between(0, 3), 0.0),
        request_spread=table.take("request_spread", between(0, 3), 0.0),
        begins_s=table.take("begins", between(0, 1e9), 0.0),
        run_ahead_us=table.take("run_ahead_us", between(0, 1e9), 10_000.0),
        weight=table.take("weight", between(0.1, 100), 1.0),
        slowdown=table.take("slowdown", share_or_none, None),
        floor=table.take("floor", part_of_gpu(0.9), 0.0),
        clock=table.take("clock", part_of_clock, 1.0),
        share_request=table.take("share_request", part_of_gpu(1.0), 0.0),
        share_limit=table.take("share_limit", part_of_gpu(1.0), 1.0),
        memory_bytes=table.take("memory", size, recorded.memory_bytes),
        ephemeral_bytes=table.take("ephemeral", size, 0),
        gpu=table.take("gpu", optional_whole, None),
        copies=table.take("copies", whole(1, 1_000_000), 1),
        begins_every_s=table.take("begins_every", between(0, 1e9), 0.0),
    )
    table.end()
    return job


def read_arrivals(table: Table) -> Arrivals:
    kind = table.take("arrivals", arrival_kind, ArrivalKind.closed)
    rate = table.take("rate", positive, 0.0)
    at: tuple[float, ...] = table.take("at", moments, NO_MOMENTS)
    if kind is ArrivalKind.listed:
        if not at:
            raise table.problem("arrivals 'listed' need moments", "add at = [0.1, 0.25, ...], in seconds")
    elif kind is not ArrivalKind.closed and not rate:
        raise table.problem(f"arrivals '{kind.name}' need a rate", "add rate = REQUESTS_PER_SECOND")
    return Arrivals(kind, rate, table.take("burst", positive, 1.0), table.take("pause", positive, 1.0), at)


def read_op(table: Table) -> Op:
    kind = table.take("kind", op_kind, OpKind.kernel)
    op = Op(
        kind=kind,
        us=table.take("us", positive, 0.0),
        sms=table.take("sms", amount, 1.0),
        gbps=table.take("gbps", amount_or_none, 0.0),
        bytes=table.take("bytes", size, 0),
        gap_us=table.take("gap_us", between(0, 1e9), 0.0),
        block_us=table.take("block_us", positive_or_none, None),
        sync=table.take("sync", boolean, False),
        repeat=table.take("repeat", whole(1, MOST_OPERATIONS), 1),
        sigma=table.take("sigma", between(0, 3), 0.0),
    )
    if kind >= OpKind.copy_to_device and not op.bytes:
        raise table.problem("a copy needs its size", 'add bytes = "64MiB"')
    if kind < OpKind.copy_to_device and not op.us:
        raise table.problem("a kernel needs its length", "add us = MICROSECONDS")
    table.end()
    return op


# ---- values: each returns what it was given in our terms, or says what it should be ----------------------------


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("is a text")
    return value


def boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("is true or false")
    return value


def number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ValueError("is a number")
    if isinstance(value, int) and abs(value) >= LARGEST:
        raise ValueError("is a number of at most 63 bits")
    return float(value)


def positive(value: Any) -> float:
    if not 0 < number(value) <= 1e12:
        raise ValueError("is a number above 0")
    return number(value)


def positive_or_none(value: Any) -> float | None:
    return positive(value)


def between(least: float, most: float) -> Callable[[Any], float]:
    def convert(value: Any) -> float:
        if not least <= number(value) <= most:
            raise ValueError(f"is a number from {least:g} to {most:g}")
        return number(value)

    return convert


def whole(least: int, most: int) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"is a whole number from {least} to {most}")
        return value

    return convert


def optional_whole(value: Any) -> int | None:
    return whole(0, 100_000)(value)


def share(value: Any) -> float:
    """ "30%" or 0.3."""
    if isinstance(value, str) and value.endswith("%"):
        try:
            value = float(value[:-1]) / 100
        except ValueError:
            raise ValueError("is a share such as 30% or 0.3") from None
    if isinstance(value, str) or not 0 <= number(value) <= 10:
        raise ValueError("is a share such as 30% or 0.3")
    return number(value)


def part_of_gpu(most: float) -> Callable[[Any], float]:
    def convert(value: Any) -> float:
        if share(value) > most:
            raise ValueError(f"is a share of at most {most:.0%}")
        return share(value)

    return convert


def part_of_clock(value: Any) -> float:
    if not 0.1 <= share(value) <= 1:
        raise ValueError("is a share of the highest clock, 10% to 100%")
    return share(value)


def share_or_none(value: Any) -> float | None:
    """Nothing, where it is none: as `cotenant run` has it."""
    return share(value) or None


def amount(value: Any) -> float:
    """A part of what the GPU has ("60%"), or a number."""
    found = share(value) if isinstance(value, str) else number(value)
    if found <= 0 or (isinstance(value, str) and found > 1):
        raise ValueError("is a part such as 60%, or a number above 0")
    return found


def amount_or_none(value: Any) -> float:
    return 0.0 if value == 0 else amount(value)


def size(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST:
        return value
    parts = re.fullmatch(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)", value) if isinstance(value, str) else None
    found = float(parts[1]) * UNITS.get(parts[2].upper(), math.inf) if parts else math.inf
    if not found < LARGEST:
        raise ValueError("is a size such as 64MiB or 10G")
    return int(found)


def interval(value: Any) -> tuple[float, float]:
    """One number, or two: the least and the most."""
    ends = value if isinstance(value, list) else [value, value]
    if len(ends) != 2 or not 0 <= number(ends[0]) <= number(ends[1]):
        raise ValueError("is a number, or [least, most]")
    return number(ends[0]), number(ends[1])


def moments(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise ValueError("is a list of seconds")
    found = tuple(number(one) for one in value)
    if any(later < earlier for earlier, later in pairwise(found)) or min(found, default=0) < 0:
        raise ValueError("is a list of seconds that grow")
    return found


def tenant_class(value: Any) -> TenantClass:
    if text(value) not in TenantClass.__members__:
        raise ValueError(f"is one of {', '.join(TenantClass.__members__)}")
    return TenantClass[value]


def arrival_kind(value: Any) -> ArrivalKind:
    if text(value) not in ArrivalKind.__members__:
        raise ValueError(f"is one of {', '.join(ArrivalKind.__members__)}")
    return ArrivalKind[value]


def op_kind(value: Any) -> OpKind:
    name = text(value).replace("-", "_")
    if name not in OpKind.__members__:
        raise ValueError(f"is one of {', '.join(OpKind.__members__)}")
    return OpKind[name]
