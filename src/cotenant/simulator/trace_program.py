"""A recorded trace as a program: its operations in one stream, cut where the host waited."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cotenant.errors import USAGE, Problem
from cotenant.simulator.workload import LONGEST_BLOCK_US, OP_RECORD, OpKind, Program
from cotenant.traces import reader
from cotenant.traces.trace import GPU_KINDS, Direction, Kind, Shape, Trace


def read_program(path: Path) -> Program:
    trace = reader.read(path)
    if trace.damage:
        raise Problem(
            f"{path} is truncated: {trace.damage}", "record it again; `cotenant trace info` shows it", USAGE
        )
    return program_from(trace)


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
    ends = np.flatnonzero(np.diff(waits) > 0) + 1
    return Program(records, np.append(ends, len(places)).astype(np.uint32))


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


def _blocks_in_a_row(shape: Shape, sms: int) -> float:
    """How many blocks an SM runs one after the other."""
    if not shape.blocks_per_sm:
        return 1.0
    blocks = shape.grid[0] * shape.grid[1] * shape.grid[2]
    return max(1.0, blocks / (shape.blocks_per_sm * sms))
