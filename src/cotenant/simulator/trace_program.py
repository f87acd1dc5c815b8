"""A recorded trace as a program: its operations in one stream, cut where the host waited."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from cotenant.errors import USAGE, Problem
from cotenant.profile.columns import Columns, KernelClass
from cotenant.simulator.workload import LONGEST_BLOCK_US, OP_RECORD, OpKind, Program
from cotenant.traces import reader
from cotenant.traces.trace import GPU_KINDS, Direction, Kind, Shape, Trace

TRIFLE = 0.01  # of a request's work in the mean


def read_program(path: Path) -> Program:
    return program_from(read_whole(path))


def read_whole(path: Path) -> Trace:
    trace = reader.read(path)
    if trace.damage:
        raise Problem(
            f"{path} is not whole: {trace.damage}", f"cotenant trace cut {path} -o FILE keeps what is", USAGE
        )
    return trace


def program_from(trace: Trace) -> Program:
    """Streams become one, in the order of their launches. What was never timed takes as long as its kind's median."""
    ops = trace.operations
    runs = np.isin(ops.kind, GPU_KINDS)
    places = np.flatnonzero(runs)
    if not len(places):
        raise Problem(f"{trace.path} has no operations of a GPU", "record a program that uses one", USAGE)
    records = np.zeros(len(places), dtype=OP_RECORD)
    shapes = ops.shape[places]
    kinds = np.array([_kind(shape) for shape in trace.shapes], dtype=np.uint8)
    blocks = np.array([_blocks_in_a_row(shape, _sms(trace)) for shape in trace.shapes], dtype=np.float32)
    records["kind"] = kinds[shapes]
    records["bound"] = np.array([_bound(columns) for columns in trace.columns], dtype=np.uint8)[shapes]
    records["gbps"] = np.array([_gbps(columns) for columns in trace.columns], dtype=np.float32)[shapes]
    records["us"] = ops.duration_us[places]
    unknown = records["us"] <= 0
    if unknown.any():
        known = records["us"][~unknown]
        records["us"][unknown] = np.median(known) if len(known) else 5.0
    copies = records["kind"] >= OpKind.copy_to_device
    sms = ops.sms[places]
    records["sms"] = np.where(copies, 0, np.where(sms > 0, sms, _sms(trace)))
    records["block_us"] = np.minimum(records["us"] / blocks[shapes], LONGEST_BLOCK_US * 100)
    # The host's time between two launches, whatever else it did there.
    host_us = np.concatenate(([0.0], np.cumsum(ops.gap_us.astype(np.float64))))[places + 1]
    records["gap_us"] = np.diff(host_us, prepend=0.0)
    waits = np.concatenate(([0], np.cumsum(ops.ends_request)))[places]
    records["sync"] = np.diff(waits, prepend=0) > 0
    ends = np.append(np.flatnonzero(np.diff(waits) > 0) + 1, len(places))
    return Program(records, _without_trifles(ends, records).astype(np.uint32))


def _without_trifles(ends: npt.NDArray[np.int64], ops: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """A host that waits again after next to nothing (it fetches a number, say) is still in the same request: in the
    one before or behind, whichever is nearer in the host's time."""
    begins = np.append(0, ends[:-1])
    work_us = np.add.reduceat(ops["us"].astype(np.float64), begins)
    gap_us = np.append(ops["gap_us"][begins], np.inf)
    kept = np.ones(len(ends), dtype=bool)
    for number in np.flatnonzero(work_us < TRIFLE * work_us.mean()):
        nearer_before = number > 0 and gap_us[number] <= gap_us[number + 1]
        kept[number - 1 if nearer_before else number] = False
    kept[-1] = True
    return ends[kept]


def _sms(trace: Trace) -> int:
    return trace.gpus[0].sms if trace.gpus and trace.gpus[0].sms else 1


def _kind(shape: Shape) -> int:
    """Fills and copies on the device are kernels to the driver: they run in their context's turn."""
    if shape.kind is Kind.graph:
        return OpKind.graph
    if shape.kind is Kind.copy:
        links = {Direction.to_device: OpKind.copy_to_device, Direction.to_host: OpKind.copy_to_host}
        return links.get(shape.direction, OpKind.kernel)
    return OpKind.kernel


def _bound(columns: Columns) -> int:
    """What a rule is told of the operation's class: that of the trace, whether estimated or measured."""
    is_copy = columns.kernel_class is KernelClass.copy
    return 1 + (KernelClass.memory if is_copy else columns.kernel_class)


def _gbps(columns: Columns) -> float:
    """Slows others down in the model, so it must have been measured."""
    return columns.memory_gbps or 0.0 if columns.measured else 0.0


def _blocks_in_a_row(shape: Shape, sms: int) -> float:
    """How many blocks an SM runs one after the other."""
    if not shape.blocks_per_sm:
        return 1.0
    blocks = shape.grid[0] * shape.grid[1] * shape.grid[2]
    return max(1.0, blocks / (shape.blocks_per_sm * sms))
