"""Reads a trace file. docs/traces.md draws the layout; native/tenant/record/trace_file.cpp writes it.

A file that ends in the middle of a block, as after a crash, is read up to there, and `damage` says so. Bytes that are
no trace, or that have a right checksum and no meaning, are a Problem.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cotenant.errors import USAGE, Problem
from cotenant.profile.columns import Columns as Profiled
from cotenant.profile.columns import KernelClass
from cotenant.traces.trace import GPU_KINDS, Direction, Gpu, Kind, Operations, Shape, Trace

MAGIC = b"cotrace\0"
VERSION = 1
HEADER = struct.Struct("<8sIIQQII")
BLOCK_MAGIC = b"BLK1"
BLOCK_HEAD = struct.Struct("<4sII")
LARGEST_BLOCK = 64 << 20
MOST_OPERATIONS = 1 << 16  # of one block
MOST_SMS = 1 << 20

# Short gaps take a byte: 0, or (16 to 31) times a power of two, in nanoseconds.
GAP_NS = np.array([0, *((16 + (step & 15)) << (step >> 4) for step in range(255))], dtype=np.int64)
LONG_GAP = 255
UNIT_NS = 16  # of what stands in full
LONGEST = (1 << 56) // UNIT_NS


class Malformed(Exception):
    """A record that no recorder has written."""


class Cursor:
    """Walks through bytes; never past their end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._data)

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise Malformed("a record ends too early")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def byte(self) -> int:
        return self.take(1)[0]

    def varint(self, most: int = (1 << 64) - 1) -> int:
        value = shift = 0
        data, at = self._data, self._at
        while True:
            if at >= len(data) or shift > 63:
                raise Malformed("a number does not end")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        if value > most:
            raise Malformed(f"{value} is too large")
        self._at = at
        return value

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._at)

    def text(self) -> str:
        return self.rest().decode(errors="replace")


@dataclass
class Timing:
    samples: int = 0
    mean_us: float = 0.0
    min_us: float = 0.0
    max_us: float = 0.0


@dataclass
class Described:
    """A shape as it stands in the file."""

    kind: Kind
    direction: Direction
    name: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    blocks_per_sm: int
    sms: int
    nodes: int
    bytes: int
    timing: Timing = field(default_factory=Timing)
    registers: int = 0
    static_shared_bytes: int = 0
    columns: Profiled | None = None


@dataclass
class Columns:
    """The operations of one block."""

    time_ns: NDArray[np.int64]
    gap_ns: NDArray[np.int64]
    wait_ns: NDArray[np.int64]
    kind: NDArray[np.uint8]
    direction: NDArray[np.uint8]
    shape: NDArray[np.int32]
    stream: NDArray[np.uint16]
    thread: NDArray[np.uint16]
    bytes: NDArray[np.int64]


@dataclass
class Contents:
    """What the blocks said so far."""

    facts: dict[str, str] = field(default_factory=dict)
    gpus: dict[int, Gpu] = field(default_factory=dict)
    streams: list[int] = field(default_factory=list)  # the GPU of each
    names: list[str] = field(default_factory=lambda: [""])
    shapes: list[Described] = field(default_factory=list)
    columns: list[Columns] = field(default_factory=list)
    lost: int = 0
    complete: bool = False


def read(path: Path) -> Trace:
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or "it cannot be read").lower()
        raise Problem(f"{path}: {reason}", "name a file that `cotenant record` has written", USAGE) from None
    contents = Contents()
    version = read_header(path, data, contents)
    try:
        damage = read_blocks(data, HEADER.size, contents)
    except (Malformed, ValueError) as error:
        raise Problem(
            f"{path} is damaged: {error}", "record it again, or read it with the version that wrote it", USAGE
        ) from None
    return Trace(
        path=path,
        version=version,
        facts=contents.facts,
        gpus=tuple(contents.gpus[number] for number in sorted(contents.gpus)),
        shapes=tuple(shape(one, contents.names) for one in contents.shapes),
        operations=operations(contents),
        lost=contents.lost,
        complete=contents.complete,
        damage=damage,
    )


def read_header(path: Path, data: bytes, contents: Contents) -> int:
    if not data.startswith(MAGIC):
        what = "is empty" if not data else "is no trace"
        raise Problem(f"{path} {what}", "`cotenant record -o FILE -- command...` writes one", USAGE)
    if len(data) < HEADER.size:
        raise Problem(
            f"{path} ends within its header", "the recorded program used no GPU; record again", USAGE
        )
    _, version, _, wall_ns, _, pid, checksum = HEADER.unpack_from(data)
    if version != VERSION:
        raise Problem(
            f"{path} is a trace of version {version}, not {VERSION}",
            "use the version of Cotenant that wrote it",
            USAGE,
        )
    if checksum != zlib.crc32(data[: HEADER.size - 4]):
        raise Problem(f"{path} is damaged: its header's checksum is wrong", "record it again", USAGE)
    contents.facts["recorded"] = moment(wall_ns)
    contents.facts["pid"] = str(pid)
    return int(version)


def moment(wall_ns: int) -> str:
    import datetime

    try:
        when = datetime.datetime.fromtimestamp(wall_ns / 1e9, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return "unknown"
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def read_blocks(data: bytes, at: int, contents: Contents) -> str:
    """Why reading ended early; "" if it did not."""
    while at < len(data):
        left = len(data) - at
        if left < BLOCK_HEAD.size:
            return f"the last {left} bytes are no whole block"
        magic, size, checksum = BLOCK_HEAD.unpack_from(data, at)
        begin = at + BLOCK_HEAD.size
        if magic != BLOCK_MAGIC or size > LARGEST_BLOCK:
            return f"no block begins at byte {at}; the last {left} bytes are left out"
        if begin + size > len(data):
            return f"the last block is cut off; the last {left} bytes are left out"
        payload = data[begin : begin + size]
        if zlib.crc32(payload) != checksum:
            return f"the block at byte {at} is damaged; the last {left} bytes are left out"
        read_payload(payload, contents)
        at = begin + size
    return ""


def read_payload(payload: bytes, contents: Contents) -> None:
    records = Cursor(payload)
    while not records.at_end:
        tag = records.byte()
        body = Cursor(records.take(records.varint(LARGEST_BLOCK)))
        if (
            read_record := RECORDS.get(tag)
        ) is not None:  # others belong to a later version, and may be left out
            read_record(body, contents)


def read_fact(body: Cursor, contents: Contents) -> None:
    key = body.take(body.varint(256)).decode(errors="replace")
    contents.facts[key] = body.text()


def read_gpu(body: Cursor, contents: Contents) -> None:
    number, sms, memory = body.varint(255), body.varint(MOST_SMS), body.varint(1 << 60)
    digits = body.take(16).hex()
    uuid = "-".join(digits[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
    contents.gpus[number] = Gpu(number, body.text(), f"GPU-{uuid}", sms, memory)


def next_number(body: Cursor, expected: int, most: int) -> None:
    if body.varint(most) != expected:
        raise Malformed("a number is out of order")


def read_stream(body: Cursor, contents: Contents) -> None:
    next_number(body, len(contents.streams), 65535)
    contents.streams.append(body.varint(255))


def read_name(body: Cursor, contents: Contents) -> None:
    next_number(body, len(contents.names), 1 << 20)
    contents.names.append(body.text())


def read_shape(body: Cursor, contents: Contents) -> None:
    next_number(body, len(contents.shapes), 1 << 20)
    kind, direction = enumerated(Kind, body.byte()), enumerated(Direction, body.byte())
    name = body.varint(len(contents.names) - 1)
    x, y, z, u, v, w, shared, per_sm = (body.varint((1 << 32) - 1) for _ in range(8))
    sms, nodes = body.varint(MOST_SMS), body.varint((1 << 32) - 1)
    size = body.varint(1 << 60)
    contents.shapes.append(
        Described(kind, direction, name, (x, y, z), (u, v, w), shared, per_sm, sms, nodes, size)
    )


def read_timing(body: Cursor, contents: Contents) -> None:
    number = body.varint((1 << 32) - 1)
    if number >= len(contents.shapes):
        raise Malformed("a time has no shape")
    samples = body.varint(1 << 60)
    mean, least, most = (body.varint(1 << 60) / 1000 for _ in range(3))
    contents.shapes[number].timing = Timing(samples, mean, least, most)


def read_bandwidth(body: Cursor, contents: Contents) -> None:
    number, gbps = body.varint(255), body.varint(1 << 30)
    if number not in contents.gpus:
        raise Malformed("a bandwidth has no GPU")
    contents.gpus[number] = replace(contents.gpus[number], memory_gbps=gbps)


def described(body: Cursor, contents: Contents) -> Described:
    number = body.varint((1 << 32) - 1)
    if number >= len(contents.shapes):
        raise Malformed("a kernel's figures have no shape")
    return contents.shapes[number]


def read_kernel(body: Cursor, contents: Contents) -> None:
    kernel = described(body, contents)
    kernel.registers, kernel.static_shared_bytes = body.varint(1 << 20), body.varint(1 << 40)


def read_profile(body: Cursor, contents: Contents) -> None:
    kernel = described(body, contents)
    kernel_class, flags = enumerated(KernelClass, body.byte()), body.byte()
    compute, megabytes = body.varint(100_001), body.varint(1 << 50)
    kernel.columns = Profiled(
        kernel_class,
        bool(flags & 1),
        bool(flags & 2),
        (compute - 1) / 100_000 if compute else None,
        (megabytes - 1) / 1000 if megabytes else None,
    )


Member = TypeVar("Member", Kind, Direction, KernelClass)


def enumerated(kind: type[Member], value: int) -> Member:
    try:
        return kind(value)
    except ValueError:
        raise Malformed(f"{value} is no {kind.__name__.lower()}") from None


def read_operations(body: Cursor, contents: Contents) -> None:
    base_ns, count = body.varint(1 << 62), body.varint(MOST_OPERATIONS)
    word_count = body.varint(count)
    words = np.array([read_word(body, contents) for _ in range(word_count)], dtype=np.int64).reshape(-1, 8)
    columns = words[read_order(body, count, word_count)]
    codes = np.frombuffer(body.take(count), dtype=np.uint8)
    gaps = GAP_NS[codes]
    in_full(body, gaps, codes == LONG_GAP)
    waits = np.zeros(count, dtype=np.int64)
    in_full(body, waits, columns[:, 1] == 1)
    # A wait that overlaps other calls was over when they were, and takes no time of its own here.
    times = base_ns + np.cumsum(gaps + np.where(columns[:, 2] == 1, 0, waits))
    if not count:
        return
    if (times[1:] < times[:-1]).any():
        raise Malformed("its moments go past the end of time")
    if contents.columns:
        gaps[0] += max(base_ns - int(contents.columns[-1].time_ns[-1]), 0)
    contents.columns.append(
        Columns(
            time_ns=times,
            gap_ns=gaps,
            wait_ns=waits,
            kind=columns[:, 0].astype(np.uint8),
            direction=columns[:, 3].astype(np.uint8),
            shape=(columns[:, 4] - 1).astype(np.int32),
            stream=columns[:, 5].astype(np.uint16),
            thread=columns[:, 6].astype(np.uint16),
            bytes=columns[:, 7],
        )
    )


def in_full(body: Cursor, into: NDArray[np.int64], where: NDArray[np.bool_]) -> None:
    places = np.flatnonzero(where)
    into[places] = [UNIT_NS * body.varint(LONGEST) for _ in places]


def read_word(body: Cursor, contents: Contents) -> tuple[int, ...]:
    """Kind, whether it waited, whether that overlaps, direction, 1 + shape, stream, thread, bytes."""
    kind, flags = enumerated(Kind, body.byte()), body.byte()
    direction = enumerated(Direction, flags >> 2)
    shape_number = body.varint(len(contents.shapes))
    stream, thread, size = body.varint(65535), body.varint(65535), body.varint(1 << 60)
    if stream >= len(contents.streams):
        raise Malformed("an operation has no stream")
    if (shape_number == 0) == (kind in GPU_KINDS):
        raise Malformed("an operation has no shape")
    return int(kind), flags & 1, flags >> 1 & 1, int(direction), shape_number, stream, thread, size


def read_order(body: Cursor, count: int, word_count: int) -> NDArray[np.int64]:
    """Which word each operation is: some as they stand, then so many as so far back, and again."""
    order = np.empty(count, dtype=np.int64)
    at = 0
    while at < count:
        literals = body.varint(count - at)
        for place in range(at, at + literals):
            order[place] = body.varint(word_count - 1)
        at += literals
        length = body.varint(count - at)
        if not length and not literals:
            raise Malformed("the order of operations does not go on")
        if length:
            distance = body.varint(at)
            if not distance:
                raise Malformed("a repetition of nothing")
            order[at : at + length] = np.resize(order[at - distance : at], length)
            at += length
    return order


def read_lost(body: Cursor, contents: Contents) -> None:
    contents.lost = body.varint(1 << 62)


def read_end(body: Cursor, contents: Contents) -> None:
    contents.complete = True


RECORDS: dict[int, Callable[[Cursor, Contents], None]] = {
    ord("F"): read_fact,
    ord("G"): read_gpu,
    ord("Q"): read_stream,
    ord("N"): read_name,
    ord("S"): read_shape,
    ord("D"): read_timing,
    ord("O"): read_operations,
    ord("B"): read_bandwidth,
    ord("K"): read_kernel,
    ord("P"): read_profile,
    ord("L"): read_lost,
    ord("E"): read_end,
}


def shape(one: Described, names: list[str]) -> Shape:
    timing = one.timing
    return Shape(
        kind=one.kind,
        name=names[one.name],
        grid=one.grid,
        block=one.block,
        shared_bytes=one.shared_bytes,
        blocks_per_sm=one.blocks_per_sm,
        sms=one.sms,
        nodes=one.nodes,
        bytes=one.bytes,
        direction=one.direction,
        samples=timing.samples,
        mean_us=timing.mean_us,
        min_us=timing.min_us,
        max_us=timing.max_us,
        registers=one.registers,
        static_shared_bytes=one.static_shared_bytes,
        columns=one.columns,
    )


def operations(contents: Contents) -> Operations:
    whole = joined(contents.columns)
    time_us = np.maximum.accumulate(whole.time_ns - whole.time_ns[:1].sum()) / 1000
    wait_us = (whole.wait_ns / 1000).astype(np.float32)
    # What has no shape has the number -1, and finds the last place.
    by_shape_us = np.array([one.timing.mean_us for one in contents.shapes] + [0.0], dtype=np.float32)
    by_shape_sms = np.array([one.sms for one in contents.shapes] + [0], dtype=np.int32)
    gpu_of_stream = np.array(contents.streams or [0], dtype=np.uint8)
    return Operations(
        time_us=time_us,
        kind=whole.kind,
        shape=whole.shape,
        duration_us=by_shape_us[whole.shape],
        sms=by_shape_sms[whole.shape],
        bytes=whole.bytes,
        gap_us=(whole.gap_ns / 1000).astype(np.float32),
        wait_us=wait_us,
        stream=whole.stream,
        gpu=gpu_of_stream[whole.stream],
        thread=whole.thread,
        ends_request=request_ends(whole.kind, whole.direction, wait_us),
    )


def joined(blocks: list[Columns]) -> Columns:
    long, narrow, short = np.empty(0, np.int64), np.empty(0, np.uint8), np.empty(0, np.uint16)
    none = Columns(long, long, long, narrow, narrow, np.empty(0, np.int32), short, short, long)
    parts = [none, *blocks]
    return Columns(
        *(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(Columns))
    )


def request_ends(
    kind: NDArray[np.uint8], direction: NDArray[np.uint8], wait_us: NDArray[np.float32]
) -> NDArray[np.bool_]:
    """Where the host waited for the GPU's results, and the GPU had been given something since the last such wait."""
    waits = (kind == Kind.wait) | ((kind == Kind.copy) & (direction == Direction.to_host) & (wait_us > 0))
    given = np.cumsum(np.isin(kind, GPU_KINDS))
    at = np.flatnonzero(waits)
    ends = np.zeros(len(kind), dtype=np.bool_)
    ends[at] = np.diff(given[at], prepend=0) > 0
    return ends
