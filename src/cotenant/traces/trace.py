"""What a trace says, in arrays: one place for each operation, in the order in which the calls returned.

Durations belong to shapes, not to operations: the recorder times a part of the operations of each shape, and every
operation of the shape has their mean.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cotenant.profile import estimate, peaks
from cotenant.profile.columns import Columns


class Kind(enum.IntEnum):
    kernel = 0
    graph = 1
    copy = 2
    fill = 3
    wait = 4  # a thread of the host waited for the GPU
    allocate = 5
    free = 6


# What occupies the GPU; the rest are moments of the host.
GPU_KINDS = (Kind.kernel, Kind.graph, Kind.copy, Kind.fill)


class Direction(enum.IntEnum):
    """Of a copy."""

    unknown = 0
    to_device = 1
    to_host = 2
    on_device = 3
    on_host = 4
    between_devices = 5


@dataclass(frozen=True)
class Gpu:
    number: int  # as CUDA counts in the recorded process
    name: str
    uuid: str
    sms: int
    memory_bytes: int
    memory_gbps: int = 0  # of its memory, by its clock and width; 0: not known


@dataclass(frozen=True)
class Shape:
    """What makes operations alike: the kernel and its dimensions, the graph, the size and direction of a copy."""

    kind: Kind
    name: str  # of the kernel; "" for what has none
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    blocks_per_sm: int  # 0: not known
    sms: int  # that it fills at this occupancy, of a graph the mean of its kernels; 0: not known
    nodes: int  # of a graph
    bytes: int  # of a copy or fill, rounded to an eighth
    direction: Direction
    samples: int  # operations that were timed; 0: the figures below say nothing
    mean_us: float
    min_us: float
    max_us: float
    registers: int = 0  # of a kernel, a thread; 0: not known
    static_shared_bytes: int = 0  # of a kernel, a block
    columns: Columns | None = None  # of a profile; None: there was none, and `Trace.columns` has estimates


@dataclass(frozen=True)
class Operations:
    """Arrays of the same length."""

    time_us: NDArray[np.float64]  # since the first operation: when the call had been made
    kind: NDArray[np.uint8]
    shape: NDArray[np.int32]  # place in Trace.shapes
    duration_us: NDArray[np.float32]  # on the GPU; 0 for waits and memory, and where nothing was timed
    sms: NDArray[np.int32]  # that it can fill; 0: not known, or none
    bytes: NDArray[np.int64]  # of copies, fills, allocations and frees
    gap_us: NDArray[
        np.float32
    ]  # of the host, between the return of the call before and this one; without wait_us
    wait_us: NDArray[
        np.float32
    ]  # how long the call kept its thread, where it did: waits, blocking copies, a full queue
    stream: NDArray[np.uint16]
    gpu: NDArray[np.uint8]
    thread: NDArray[np.uint16]
    # The host waited for work of the GPU here: what comes next is another request, or another step.
    ends_request: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.time_us)


@dataclass(frozen=True)
class Trace:
    path: Path
    version: int
    facts: Mapping[str, str]  # program, pid, driver, recorded (when), class
    gpus: tuple[Gpu, ...]
    shapes: tuple[Shape, ...]
    operations: Operations
    lost: int  # operations that came faster than they could be written down
    complete: bool  # the job ended, or was told to stop recording, in order
    damage: str  # why reading ended before the end of the file; "" if it did not

    @cached_property
    def columns(self) -> tuple[Columns, ...]:
        """Of each shape: what a profile said, else an estimate."""
        return tuple(shape.columns or self._estimate(shape) for shape in self.shapes)

    def _estimate(self, shape: Shape) -> Columns:
        gpu = self.gpus[0] if self.gpus else Gpu(0, "", "", 0, 0)
        gbps = gpu.memory_gbps or peaks.memory_gbps(gpu.name)
        if shape.kind is Kind.kernel:
            return estimate.of_kernel(
                shape.name, shape.grid, shape.block, shape.sms, gpu.sms, shape.mean_us, gbps
            )
        if shape.kind in (Kind.copy, Kind.fill):
            is_fill = shape.kind is Kind.fill
            on_device = is_fill or shape.direction is Direction.on_device
            return estimate.of_copy(shape.bytes, shape.mean_us, on_device, not is_fill, gbps)
        return Columns()

    @property
    def seconds(self) -> float:
        """From the first operation to the end of the last, on the host or on the GPU."""
        if not len(self.operations):
            return 0.0
        _, end = self.timeline
        return float(max(self.operations.time_us[-1], end.max())) / 1e6

    @cached_property
    def timeline(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """When each operation began and ended on the GPU, if each stream runs its own in order, and alone.

        For a wait: when the host began to wait, and when it went on.
        """
        ops = self.operations
        begin = ops.time_us - ops.wait_us
        end = ops.time_us.copy()
        runs = np.isin(ops.kind, GPU_KINDS)
        for queue in np.unique(ops.stream[runs]):
            here = np.flatnonzero(runs & (ops.stream == queue))
            lengths = ops.duration_us[here].astype(np.float64)
            done = np.cumsum(lengths)
            # end[i] = max(ready[i], end[i - 1]) + length[i], without a loop.
            end[here] = done + np.maximum.accumulate(begin[here] - (done - lengths))
            begin[here] = end[here] - lengths
        return begin, end

    @property
    def busy_share(self) -> float:
        """Of the time, how much the GPUs had work, taken together."""
        runs = np.isin(self.operations.kind, GPU_KINDS)
        if not runs.any() or not self.seconds:
            return 0.0
        begin, end = (side[runs] for side in self.timeline)
        order = np.argsort(begin, kind="stable")
        begin, end = begin[order], np.maximum.accumulate(end[order])
        covered_before = np.concatenate(([-np.inf], end[:-1]))
        busy = np.maximum(end - np.maximum(begin, covered_before), 0.0).sum()
        return float(busy) / 1e6 / self.seconds
