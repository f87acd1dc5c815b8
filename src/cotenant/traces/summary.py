"""A trace in a few figures."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from cotenant.traces.export import title
from cotenant.traces.trace import GPU_KINDS, Kind, Trace

Figures = dict[str, Any]


def summary(trace: Trace, top: int) -> Figures:
    ops = trace.operations
    kinds = np.bincount(ops.kind, minlength=len(Kind))
    kernels = by_shape(trace)
    return {
        "file": str(trace.path),
        "version": trace.version,
        "complete": trace.complete,
        "damage": trace.damage,
        "lost": trace.lost,
        "facts": dict(trace.facts),
        "gpus": [asdict(gpu) for gpu in trace.gpus],
        "operations": len(ops),
        "by_kind": {kind.name: int(kinds[kind]) for kind in Kind},
        "seconds": round(trace.seconds, 6),
        "busy_share": round(trace.busy_share, 4),
        "requests": int(ops.ends_request.sum()),
        "bytes_copied": int(ops.bytes[ops.kind == Kind.copy].sum()),
        "peak_memory_bytes": peak_memory(trace),
        "shapes": len(trace.shapes),
        "top": kernels[:top],
    }


def by_shape(trace: Trace) -> list[Figures]:
    """What took the GPU's time, the most first; one entry for all dimensions of a kernel."""
    ops = trace.operations
    runs = np.isin(ops.kind, GPU_KINDS)
    counts = np.bincount(ops.shape[runs], minlength=len(trace.shapes))
    found: dict[tuple[Kind, str], Figures] = {}
    most: dict[tuple[Kind, str], float] = {}
    for shape, columns, count in zip(trace.shapes, trace.columns, counts.tolist(), strict=False):
        if not count:
            continue
        key = (shape.kind, title(shape, shape.kind))
        entry = found.setdefault(
            key,
            {
                "kind": shape.kind.name,
                "name": key[1],
                "operations": 0,
                "shapes": 0,
                "total_us": 0.0,
                "untimed": 0,
                "most_sms": 0,
                "class": columns.kernel_class.name,
                "tensor": columns.tensor,
            },
        )
        if count * shape.mean_us > most.get(key, 0.0):  # that of the dimensions with the most time
            most[key] = count * shape.mean_us
            entry["class"], entry["tensor"] = columns.kernel_class.name, columns.tensor
        entry["operations"] += count
        entry["shapes"] += 1
        entry["total_us"] += count * shape.mean_us
        entry["untimed"] += 0 if shape.samples else count
        entry["most_sms"] = max(entry["most_sms"], shape.sms)
    whole = sum(entry["total_us"] for entry in found.values()) or 1.0
    for entry in found.values():
        entry["mean_us"] = round(entry["total_us"] / entry["operations"], 3)
        entry["share"] = round(entry["total_us"] / whole, 4)
        entry["total_us"] = round(entry["total_us"], 1)
    return sorted(found.values(), key=lambda entry: -entry["total_us"])


def peak_memory(trace: Trace) -> int:
    """Of what was allocated while recording."""
    ops = trace.operations
    change = np.where(ops.kind == Kind.allocate, ops.bytes, 0) - np.where(ops.kind == Kind.free, ops.bytes, 0)
    return int(max(np.cumsum(change).max(initial=0), 0))
