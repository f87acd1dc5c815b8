"""Writes a trace: a part of a recorded one, or one that was made up. The interposer's own writer is native.

What stands in a file and cannot be said again here (the clock at the start, the class) goes into the facts.
"""

from __future__ import annotations

import dataclasses
import struct
import time
import zlib
from pathlib import Path

import numpy as np

from cotenant.profile.columns import Columns
from cotenant.traces.reader import BLOCK_MAGIC, HEADER, LONG_GAP, MAGIC, UNIT_NS, VERSION
from cotenant.traces.trace import Gpu, Kind, Operations, Shape, Trace

OPERATIONS_A_BLOCK = 32768
LONG_FROM_NS = 63488
SHORTEST_COPY = 4
NOT_FACTS = ("recorded", "pid")  # the header has them

Word = tuple[int, ...]


def part(trace: Trace, begin_us: float, end_us: float) -> Trace:
    """What was recorded between two moments. Allocations and frees before them come with it, as of its start."""
    ops = trace.operations
    inside = (ops.time_us >= begin_us) & (ops.time_us < end_us)
    memory = (ops.time_us < begin_us) & np.isin(ops.kind, (Kind.allocate, Kind.free))
    kept = np.flatnonzero(inside | memory)
    columns = {field.name: getattr(ops, field.name)[kept] for field in dataclasses.fields(Operations)}
    columns["time_us"] = np.maximum(columns["time_us"] - begin_us, 0.0)
    before = memory[kept]
    columns["gap_us"] = np.where(before, 0, columns["gap_us"]).astype(np.float32)
    columns["wait_us"] = np.where(before, 0, columns["wait_us"]).astype(np.float32)
    return dataclasses.replace(trace, operations=Operations(**columns), complete=True, damage="")


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varints(*values: int) -> bytes:
    return b"".join(map(varint, values))


def record(tag: str, body: bytes) -> bytes:
    return tag.encode() + varint(len(body)) + body


def gap_code(ns: int) -> int:
    if ns < 16:
        return 0 if ns < 8 else 1
    if ns >= LONG_FROM_NS:
        return LONG_GAP
    exponent = ns.bit_length() - 5
    digits = ns >> exponent
    if exponent:
        digits += ns >> (exponent - 1) & 1
    return 1 + exponent * 16 + digits - 16


def gap_meaning(code: int) -> int:
    step = code - 1
    return (16 + (step & 15)) << (step >> 4) if code else 0


def write(trace: Trace, path: Path) -> None:
    """The file must not exist."""
    ops = trace.operations
    with path.open("xb") as out:
        pid = trace.facts.get("pid", "0")
        head = HEADER.pack(
            MAGIC, VERSION, HEADER.size, wall_ns(trace), 0, int(pid) if pid.isdecimal() else 0, 0
        )
        out.write(head[:-4] + struct.pack("<I", zlib.crc32(head[:-4])))
        payload = definitions(trace)
        reached_ns = 0
        for begin in range(0, len(ops), OPERATIONS_A_BLOCK):
            body, reached_ns = operations_body(trace, begin, begin + OPERATIONS_A_BLOCK, reached_ns)
            out.write(block(payload + record("O", body)))
            payload = b""
        if trace.lost:
            payload += record("L", varint(trace.lost))
        if trace.complete:
            payload += record("E", b"written")
        if payload:
            out.write(block(payload))


def wall_ns(trace: Trace) -> int:
    import calendar

    try:
        return calendar.timegm(time.strptime(trace.facts.get("recorded", ""), "%Y-%m-%dT%H:%M:%SZ")) * 10**9
    except ValueError:
        return 0


def block(payload: bytes) -> bytes:
    return BLOCK_MAGIC + struct.pack("<II", len(payload), zlib.crc32(payload)) + payload


def definitions(trace: Trace) -> bytes:
    out = [
        record("F", varint(len(key.encode())) + key.encode() + value.encode())
        for key, value in trace.facts.items()
        if key not in NOT_FACTS
    ]
    out += [record("G", gpu_body(gpu)) for gpu in trace.gpus]
    out += [record("B", varints(gpu.number, gpu.memory_gbps)) for gpu in trace.gpus if gpu.memory_gbps]
    gpu_of = dict(zip(trace.operations.stream.tolist(), trace.operations.gpu.tolist(), strict=True))
    for stream in range(max(gpu_of, default=-1) + 1):
        out.append(record("Q", varints(stream, gpu_of.get(stream, 0))))
    names: dict[str, int] = {"": 0}
    for number, shape in enumerate(trace.shapes):
        if shape.name not in names:
            names[shape.name] = len(names)
            out.append(record("N", varint(names[shape.name]) + shape.name.encode(errors="replace")))
        out.append(record("S", shape_body(number, shape, names[shape.name])))
        if shape.samples:
            times = (round(1000 * us) for us in (shape.mean_us, shape.min_us, shape.max_us))
            out.append(record("D", varints(number, shape.samples, *times)))
        if shape.registers or shape.static_shared_bytes:
            out.append(record("K", varints(number, shape.registers, shape.static_shared_bytes)))
        if shape.columns is not None:
            out.append(record("P", profile_body(number, shape.columns)))
    return b"".join(out)


def gpu_body(gpu: Gpu) -> bytes:
    uuid = bytes.fromhex(gpu.uuid.removeprefix("GPU-").replace("-", ""))
    return varints(gpu.number, gpu.sms, gpu.memory_bytes) + uuid + gpu.name.encode()


def shape_body(number: int, shape: Shape, name: int) -> bytes:
    sizes = (*shape.grid, *shape.block, shape.shared_bytes, shape.blocks_per_sm, shape.sms, shape.nodes)
    return varint(number) + bytes((shape.kind, shape.direction)) + varints(name, *sizes, shape.bytes)


def profile_body(number: int, columns: Columns) -> bytes:
    compute = 0 if columns.compute is None else 1 + round(100_000 * min(max(columns.compute, 0.0), 1.0))
    megabytes = 0 if columns.memory_gbps is None else 1 + round(1000 * columns.memory_gbps)
    flags = int(columns.tensor) | int(columns.measured) << 1
    return varint(number) + bytes((columns.kernel_class, flags)) + varints(compute, megabytes)


def operations_body(trace: Trace, begin: int, end: int, reached_ns: int) -> tuple[bytes, int]:
    """The body of an operations record, and where its reader's clock stands after it."""
    ops = trace.operations
    times = np.rint(ops.time_us[begin:end] * 1000).astype(np.int64).tolist()
    waits = (np.rint(ops.wait_us[begin:end] * 1000).astype(np.int64) // UNIT_NS * UNIT_NS).tolist()
    base_ns = max(times[0] - waits[0], reached_ns)
    reached_ns = base_ns
    words: dict[Word, int] = {}
    order: list[int] = []
    codes = bytearray()
    long_gaps: list[int] = []
    for i, (time_ns, wait_ns) in enumerate(zip(times, waits, strict=True), begin):
        passed = max(time_ns - reached_ns, 0)
        overlaps = wait_ns > passed + UNIT_NS
        waited = 0 if overlaps else wait_ns
        gap = max(passed - waited, 0)
        code = gap_code(gap)
        codes.append(code)
        if code == LONG_GAP:
            long_gaps.append(gap // UNIT_NS)
            gap = gap // UNIT_NS * UNIT_NS
        else:
            gap = gap_meaning(code)
        reached_ns += waited + gap
        number = int(ops.shape[i])
        direction = int(trace.shapes[number].direction) if number >= 0 else 0
        flags = int(wait_ns > 0) | int(overlaps) << 1 | direction << 2
        word = (
            int(ops.kind[i]),
            flags,
            number + 1,
            int(ops.stream[i]),
            int(ops.thread[i]),
            int(ops.bytes[i]),
        )
        order.append(words.setdefault(word, len(words)))
    body = [
        varints(base_ns, len(order), len(words)),
        *(bytes(word[:2]) + varints(*word[2:]) for word in words),
        order_body(order),
        bytes(codes),
        varints(*long_gaps),
        varints(*(wait // UNIT_NS for wait in waits if wait)),
    ]
    return b"".join(body), reached_ns


def order_body(order: list[int]) -> bytes:
    """Words that came in this order before are a length and how far back; others stand as they are."""
    out = []
    seen: dict[tuple[int, ...], int] = {}
    at = literals_from = 0
    while at + SHORTEST_COPY <= len(order):
        key = tuple(order[at : at + SHORTEST_COPY])
        found = seen.get(key)
        seen[key] = at
        if found is None:
            at += 1
            continue
        length = SHORTEST_COPY
        while at + length < len(order) and order[found + length] == order[at + length]:
            length += 1
        out.append(varints(at - literals_from, *order[literals_from:at], length, at - found))
        at += length
        literals_from = at
    if literals_from < len(order):
        out.append(varints(len(order) - literals_from, *order[literals_from:], 0))
    return b"".join(out)
