"""Traces that nobody recorded, for tests of whatever reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cotenant.traces import Direction, Gpu, Kind, Operations, Shape, Trace

GPU = Gpu(0, "A made-up GPU", "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", 100, 80 << 30)


def shape(kind: Kind = Kind.kernel, name: str = "", us: float = 0.0, **more: object) -> Shape:
    values: dict[str, object] = {
        "kind": kind,
        "name": name,
        "grid": (4, 1, 1),
        "block": (128, 1, 1),
        "shared_bytes": 0,
        "blocks_per_sm": 2,
        "sms": 2,
        "nodes": 0,
        "bytes": 0,
        "direction": Direction.unknown,
        "samples": 3 if us else 0,
        "mean_us": us,
        "min_us": us,
        "max_us": us,
    }
    return Shape(**{**values, **more})  # type: ignore[arg-type]


def trace(
    shapes: Sequence[Shape],
    operations: Sequence[tuple[Kind, int, float, float, int]],
    streams: Sequence[int] = (),
) -> Trace:
    """Of operations as (kind, shape or -1, gap before it, how long it kept the host, bytes)."""
    kinds, numbers, gaps, waits, sizes = (
        (list(column) for column in zip(*operations, strict=True)) if operations else ([],) * 5
    )
    time_us = np.cumsum(np.array(gaps, dtype=np.float64) + np.array(waits, dtype=np.float64))
    if len(time_us):
        time_us -= time_us[0]
    number = np.array(numbers, dtype=np.int32)
    count = len(number)
    return Trace(
        path=Path("made-up.trace"),
        version=1,
        facts={"program": "made-up", "pid": "7", "recorded": "2026-01-02T03:04:05Z"},
        gpus=(GPU,),
        shapes=tuple(shapes),
        operations=Operations(
            time_us=time_us,
            kind=np.array(kinds, dtype=np.uint8),
            shape=number,
            duration_us=np.array([one.mean_us for one in shapes] + [0.0], dtype=np.float32)[number],
            sms=np.array([one.sms for one in shapes] + [0], dtype=np.int32)[number],
            bytes=np.array(sizes, dtype=np.int64),
            gap_us=np.array(gaps, dtype=np.float32),
            wait_us=np.array(waits, dtype=np.float32),
            stream=np.array(streams or [0] * count, dtype=np.uint16),
            gpu=np.zeros(count, dtype=np.uint8),
            thread=np.ones(count, dtype=np.uint16),
            ends_request=np.zeros(count, dtype=np.bool_),
        ),
        lost=0,
        complete=True,
        damage="",
    )


def requests(count: int = 3, kernels: int = 5) -> Trace:
    """A copy, some kernels, a wait; again and again."""
    shapes = [
        shape(name="first", us=10.0),
        shape(name="second", us=20.0),
        shape(Kind.copy, us=5.0, direction=Direction.to_device, bytes=4096, sms=0),
    ]
    one = [
        (Kind.copy, 2, 3.0, 0.0, 4096),
        *((Kind.kernel, i % 2, 4.0, 0.0, 0) for i in range(kernels)),
        (Kind.wait, -1, 1.0, 100.0, 0),
    ]
    return trace(
        shapes, [(Kind.allocate, -1, 0.0, 0.0, 1 << 20), *one * count, (Kind.free, -1, 1.0, 0.0, 1 << 20)]
    )
