"""A trace for other programs: as Chrome's JSON trace, which Perfetto and chrome://tracing open, and as a table."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from cotenant.traces.trace import GPU_KINDS, Direction, Kind, Shape, Trace

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

Event = dict[str, Any]

COLUMNS = (
    "time_us",
    "begin_us",
    "end_us",
    "kind",
    "name",
    "gpu",
    "stream",
    "thread",
    "duration_us",
    "gap_us",
    "wait_us",
    "sms",
    "bytes",
    "direction",
    "ends_request",
    "class",
    "tensor",
    "compute",
    "memory_gbps",
)
HOST = 1000  # the process number of the host's threads in a timeline; GPUs have their own number


def title(shape: Shape | None, kind: Kind) -> str:
    if shape is None:
        return kind.name
    if shape.name:
        return shape.name
    if shape.kind is Kind.graph:
        return f"graph of {shape.nodes} nodes" if shape.nodes else "graph"
    if shape.kind is Kind.copy and shape.direction is not Direction.unknown:
        return f"copy {shape.direction.name.replace('_', ' ')}"
    return shape.kind.name


def shape_of(trace: Trace, number: int) -> Shape | None:
    return trace.shapes[number] if number >= 0 else None


def rows(trace: Trace) -> Iterator[tuple[Any, ...]]:
    """In the order of COLUMNS."""
    ops = trace.operations
    begin, end = trace.timeline
    names = [title(shape, shape.kind) for shape in trace.shapes]
    profiled = [
        (
            one.kernel_class.name,
            int(one.tensor),
            "" if one.compute is None else round(one.compute, 4),
            "" if one.memory_gbps is None else round(one.memory_gbps, 1),
        )
        for one in trace.columns
    ]
    for i in range(len(ops)):
        kind = Kind(int(ops.kind[i]))
        number = int(ops.shape[i])
        shape = shape_of(trace, number)
        yield (
            round(float(ops.time_us[i]), 3),
            round(float(begin[i]), 3),
            round(float(end[i]), 3),
            kind.name,
            names[number] if shape else kind.name,
            int(ops.gpu[i]),
            int(ops.stream[i]),
            int(ops.thread[i]),
            round(float(ops.duration_us[i]), 3),
            round(float(ops.gap_us[i]), 3),
            round(float(ops.wait_us[i]), 3),
            int(ops.sms[i]),
            int(ops.bytes[i]),
            shape.direction.name if shape and kind is Kind.copy else "",
            int(ops.ends_request[i]),
            *(profiled[number] if shape else ("", "", "", "")),
        )


def write_csv(trace: Trace, out: SupportsWrite[str]) -> None:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows(trace))


def events(trace: Trace) -> Iterator[Event]:
    """Chrome trace events: a process for each GPU with a track for each stream, one for the host's threads."""
    ops = trace.operations
    program = trace.facts.get("program", "job")
    for gpu in trace.gpus:
        yield named("process_name", f"GPU {gpu.number}: {gpu.name}", gpu.number)
    yield named("process_name", f"{program} ({trace.facts.get('pid', '?')})", HOST)
    for gpu_number, stream in sorted(set(zip(ops.gpu.tolist(), ops.stream.tolist(), strict=True))):
        yield named("thread_name", f"stream {stream}", gpu_number, stream)
    for thread in np.unique(ops.thread).tolist():
        yield named("thread_name", f"thread {thread}", HOST, thread)
    held = 0
    for row in rows(trace):
        at = dict(zip(COLUMNS, row, strict=True))
        if Kind[at["kind"]] in GPU_KINDS:
            yield {
                "ph": "X",
                "name": at["name"],
                "cat": at["kind"],
                "pid": at["gpu"],
                "tid": at["stream"],
                "ts": at["begin_us"],
                "dur": at["duration_us"],
                "args": {"queued_us": at["time_us"], "sms": at["sms"], "bytes": at["bytes"]},
            }
        if at["wait_us"]:
            begin = round(at["time_us"] - at["wait_us"], 3)
            yield {
                "ph": "X",
                "name": "wait" if at["kind"] == "wait" else f"{at['name']} (host)",
                "cat": "host",
                "pid": HOST,
                "tid": at["thread"],
                "ts": begin,
                "dur": at["wait_us"],
                "args": {"ends_request": at["ends_request"]},
            }
        if at["kind"] in ("allocate", "free"):
            held = max(held + (at["bytes"] if at["kind"] == "allocate" else -at["bytes"]), 0)
            yield {
                "ph": "C",
                "name": "memory",
                "pid": at["gpu"],
                "tid": 0,
                "ts": at["time_us"],
                "args": {"bytes": held},
            }


def named(what: str, name: str, process: int, thread: int = 0) -> Event:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def write_chrome(trace: Trace, out: SupportsWrite[str]) -> None:
    about = {**trace.facts, "lost": str(trace.lost), "damage": trace.damage}
    out.write(f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(about)}, "traceEvents": [')
    separator = "\n"
    for event in events(trace):
        out.write(separator + json.dumps(event))
        separator = ",\n"
    out.write("\n]}\n")


# Perfetto's viewer reads Chrome's form.
FORMATS: dict[str, Callable[[Trace, SupportsWrite[str]], None]] = {
    "perfetto": write_chrome,
    "chrome": write_chrome,
    "csv": write_csv,
}
