"""What was written is read; what was cut off is read up to there; what is no trace is an error and nothing else."""

from __future__ import annotations

import dataclasses
import struct
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.errors import USAGE, Problem
from cotenant.traces import Direction, Kind, Operations, Trace, read, writer
from cotenant.traces.reader import BLOCK_HEAD, HEADER, LONG_GAP, Cursor, request_ends
from cotenant.traces.summary import peak_memory
from cotenant.traces.writer import (
    LONG_FROM_NS,
    block,
    gap_code,
    gap_meaning,
    part,
    record,
    varint,
    varints,
    write,
)
from tests.traces.made_up import requests, shape, trace

EXAMPLES = Path(__file__).parents[2] / "examples" / "traces"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cotenant-test-") as name:
        yield Path(name)


def written(one: Trace, folder: Path) -> bytes:
    path = folder / "written"
    path.unlink(missing_ok=True)
    write(one, path)
    return path.read_bytes()


def read_bytes(data: bytes, folder: Path) -> Trace:
    path = folder / "read"
    path.write_bytes(data)
    return read(path)


def same_operations(a: Operations, b: Operations) -> None:
    for column in ("kind", "shape", "bytes", "stream", "gpu", "thread", "sms", "duration_us"):
        assert np.array_equal(getattr(a, column), getattr(b, column)), column


def test_what_was_written_is_read(folder: Path) -> None:
    one = requests()
    again = read_bytes(written(one, folder), folder)
    same_operations(one.operations, again.operations)
    assert (again.facts, again.gpus, again.shapes) == (one.facts, one.gpus, one.shapes)
    assert (again.complete, again.damage, again.lost) == (True, "", 0)
    # Short gaps have five digits, and errors do not add up.
    assert np.allclose(again.operations.time_us, one.operations.time_us, atol=0.3)
    assert np.allclose(again.operations.gap_us, one.operations.gap_us, atol=0.3)
    assert np.allclose(again.operations.wait_us, one.operations.wait_us, atol=0.02)


operation = st.tuples(
    st.sampled_from(Kind),
    st.integers(0, 2),
    st.floats(0, 1e6),
    st.sampled_from([0.0, 0.0, 7.0, 25_000.0]),
    st.integers(0, 1 << 40),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(operation, max_size=60), st.integers(1, 4))
def test_any_operations_come_back(
    folder: Path, some: list[tuple[Kind, int, float, float, int]], rounds: int
) -> None:
    shapes = [shape(name=f"kernel_{i}", us=i + 1.5) for i in range(3)]
    fitting = [(k, -1 if k >= Kind.wait else n, gap, wait, size) for k, n, gap, wait, size in some] * rounds
    one = trace(shapes, fitting)
    again = read_bytes(written(one, folder), folder)
    same_operations(one.operations, again.operations)
    if len(one.operations):
        assert np.abs(again.operations.time_us - one.operations.time_us).max() < 2.1
        assert np.abs(again.operations.wait_us - one.operations.wait_us).max() < 0.05


def test_the_hosts_time_between_two_blocks_is_a_gap(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "OPERATIONS_A_BLOCK", 4)
    one = requests()
    again = read_bytes(written(one, folder), folder)
    assert np.allclose(again.operations.gap_us, one.operations.gap_us, atol=0.3)


def test_a_loop_takes_little_more_than_a_byte_an_operation(folder: Path) -> None:
    one = requests(count=3000, kernels=20)
    assert len(written(one, folder)) < 1.5 * len(one.operations)


def test_every_beginning_of_a_file_is_read_or_refused(folder: Path) -> None:
    one = requests()
    shorter = dataclasses.replace(one, complete=False)
    data = written(shorter, folder)
    tail = written(one, folder)[len(data) :]
    whole = data + tail
    for length in range(len(whole)):
        if length < HEADER.size:
            with pytest.raises(Problem) as caught:
                read_bytes(whole[:length], folder)
            assert caught.value.status == USAGE
            continue
        cut = read_bytes(whole[:length], folder)
        assert len(cut.operations) == (len(one.operations) if length >= len(data) else 0)
        assert bool(cut.damage) == (length not in (HEADER.size, len(data)))
        assert not cut.complete


def test_a_damaged_block_ends_the_reading(folder: Path) -> None:
    one = requests(count=8000, kernels=10)
    data = bytearray(written(one, folder))
    data[len(data) // 2] ^= 0x10
    damaged = read_bytes(bytes(data), folder)
    assert "damaged" in damaged.damage
    assert 0 < len(damaged.operations) < len(one.operations)
    count = len(damaged.operations)
    assert np.array_equal(damaged.operations.kind, one.operations.kind[:count])


def refused_or_read(data: bytes, folder: Path) -> None:
    try:
        one = read_bytes(data, folder)
    except Problem as problem:
        assert problem.status == USAGE and problem.hint
        return
    assert 0.0 <= one.busy_share <= 1.0 + 1e-9 or not one.seconds
    begin, end = one.timeline
    assert len(begin) == len(end) == len(one.operations)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused(folder: Path, data: bytes) -> None:
    with pytest.raises(Problem):
        read_bytes(data, folder)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_records_never_surprise(folder: Path, payload: bytes) -> None:
    refused_or_read(written(requests(), folder)[: HEADER.size] + block(payload), folder)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_changed_bytes_behind_a_right_checksum_never_surprise(folder: Path, data: st.DataObject) -> None:
    whole = bytearray(written(requests(), folder))
    begin = HEADER.size + BLOCK_HEAD.size
    size = struct.unpack_from("<I", whole, HEADER.size + 4)[0]
    for _ in range(data.draw(st.integers(1, 4))):
        whole[begin + data.draw(st.integers(0, size - 1))] = data.draw(st.integers(0, 255))
    struct.pack_into("<I", whole, HEADER.size + 8, zlib.crc32(whole[begin : begin + size]))
    refused_or_read(bytes(whole), folder)


def test_records_that_end_too_early_are_refused(folder: Path) -> None:
    whole = written(requests(count=1), folder)
    records = Cursor(
        whole[HEADER.size + BLOCK_HEAD.size :][: struct.unpack_from("<I", whole, HEADER.size + 4)[0]]
    )
    before = b""
    while not records.at_end:
        tag, body = chr(records.byte()), records.take(records.varint())
        # Texts take whatever is left; of the others every byte counts.
        for length in range(len(body)) if tag in "QSDO" else ():
            with pytest.raises(Problem, match="damaged"):
                read_bytes(whole[: HEADER.size] + block(before + record(tag, body[:length])), folder)
        before += record(tag, body)


def test_more_sms_than_any_gpu_has_are_refused(folder: Path) -> None:
    one = trace([shape(name="k", us=1.0)], [(Kind.kernel, 0, 1.0, 0.0, 0)])
    one = dataclasses.replace(one, shapes=(shape(name="k", us=1.0, sms=1 << 31),))
    with pytest.raises(Problem, match="damaged: 2147483648 is too large"):
        read_bytes(written(one, folder), folder)


NO_OPERATIONS = record("O", varints(5, 0, 0))


@pytest.mark.parametrize("place", ["before", "behind", "alone"])
def test_a_record_of_no_operations_changes_nothing(folder: Path, place: str) -> None:
    whole = written(requests(), folder)
    head, blocks = whole[: HEADER.size], whole[HEADER.size :]
    empty = block(NO_OPERATIONS)
    data = {"before": head + empty + blocks, "behind": whole + empty, "alone": head + empty}[place]
    again = read_bytes(data, folder)
    if place == "alone":
        assert (len(again.operations), again.seconds) == (0, 0.0)
    else:
        same_operations(again.operations, requests().operations)


def test_moments_past_the_end_of_time_are_refused(folder: Path) -> None:
    whole = written(requests(count=1), folder)
    count, longest = 200, (1 << 56) // 16
    body = varints(1 << 62, count, 1) + bytes((Kind.allocate, 0)) + varints(0, 0, 0, 0)
    body += varints(1, 0, count - 1, 1)  # the first word, and the same again
    body += b"\xff" * count + varint(longest) * count
    with pytest.raises(Problem, match="end of time"):
        read_bytes(whole + block(record("O", body)), folder)


def test_another_version_is_named(folder: Path) -> None:
    data = bytearray(written(requests(), folder))
    struct.pack_into("<I", data, 8, 9)
    with pytest.raises(Problem, match="version 9"):
        read_bytes(bytes(data), folder)


def test_what_a_later_version_adds_is_left_out(folder: Path) -> None:
    data = written(requests(), folder) + block(b"Z\x03abc")
    assert read_bytes(data, folder).damage == ""


def test_the_timeline_runs_each_stream_in_order() -> None:
    shapes = [shape(name="k", us=100.0)]
    ops = [(Kind.kernel, 0, 10.0, 0.0, 0)] * 3 + [
        (Kind.wait, -1, 0.0, 270.0, 0),
        (Kind.kernel, 0, 1000.0, 0.0, 0),
    ]
    one = trace(shapes, ops, streams=[0, 0, 1, 0, 0])
    begin, end = one.timeline
    assert begin.tolist() == [0, 100, 20, 20, 1290]
    assert end.tolist() == [100, 200, 120, 290, 1390]
    # 200 of the first 200, then 100 of the last 100.
    assert one.busy_share == pytest.approx(300 / 1390)


def test_what_runs_under_a_longer_operation_makes_the_gpu_no_busier() -> None:
    shapes = [shape(name="long", us=100.0), shape(name="short", us=20.0)]
    ops = [
        (Kind.kernel, 0, 0.0, 0.0, 0),
        (Kind.kernel, 1, 10.0, 0.0, 0),
        (Kind.kernel, 1, 40.0, 0.0, 0),
        (Kind.kernel, 0, 150.0, 0.0, 0),
    ]
    one = trace(shapes, ops, streams=[0, 1, 1, 0])
    assert one.timeline[1].tolist() == [100, 30, 70, 300]
    assert one.busy_share == pytest.approx(200 / 300)


def test_a_part_begins_with_the_memory_of_its_time(folder: Path) -> None:
    one = requests(count=4)
    ops = one.operations
    middle = float(ops.time_us[len(ops) // 2])
    kept = read_bytes(written(part(one, middle, 1e9), folder), folder)
    assert kept.operations.kind[0] == Kind.allocate
    assert kept.operations.time_us[0] == 0
    inside = ops.time_us >= middle
    assert np.array_equal(kept.operations.kind[1:], ops.kind[inside])


def test_a_part_has_what_was_recorded_from_its_first_moment_up_to_its_last(folder: Path) -> None:
    calls = [(Kind.copy, 0, 0.0, 0.0, 64), (Kind.allocate, -1, 5.0, 7.0, 64)]
    whole = trace([shape(Kind.copy, us=1.0)], [*calls, *((Kind.copy, 0, 10.0, 0.0, 64) for _ in range(4))])
    assert whole.operations.time_us.tolist() == [0, 12, 22, 32, 42, 52]
    found = part(dataclasses.replace(whole, complete=False, damage="cut"), 22.0, 42.0)
    ops = found.operations
    assert ops.kind.tolist() == [Kind.allocate, Kind.copy, Kind.copy]
    assert (ops.time_us.tolist(), ops.gap_us.tolist(), ops.wait_us.tolist()) == (
        [0, 0, 10],
        [0, 10, 10],
        [0, 0, 0],
    )
    assert (found.complete, found.damage) == (True, "")
    # An allocation at the very beginning is inside, and keeps the host's time before it.
    at_once = part(whole, 12.0, 13.0).operations
    assert (at_once.kind.tolist(), at_once.gap_us.tolist(), at_once.wait_us.tolist()) == (
        [Kind.allocate],
        [5],
        [7],
    )


def test_what_is_missing_in_a_trace_is_missing_in_its_copy(folder: Path) -> None:
    one = requests()
    fast = (dataclasses.replace(one.gpus[0], memory_gbps=4800),)
    odd = dataclasses.replace(one, gpus=fast, lost=3, complete=False, facts={"pid": "none", "program": "x"})
    again = read_bytes(written(odd, folder), folder)
    assert (again.lost, again.complete, again.gpus) == (3, False, fast)
    assert (again.facts["program"], again.facts["pid"]) == ("x", "0")
    nothing = dataclasses.replace(trace([], []), gpus=(), facts={}, complete=False)
    assert len(read_bytes(written(nothing, folder), folder).operations) == 0


def test_a_short_gap_has_the_nearest_of_its_codes() -> None:
    assert [gap_code(ns) for ns in (0, 7, 8, 15, 16)] == [0, 0, 1, 1, 1]
    codes = [gap_code(ns) for ns in range(16, LONG_FROM_NS)]
    assert codes == sorted(codes) and max(codes) < LONG_GAP == gap_code(LONG_FROM_NS)
    for ns, code in zip(range(16, LONG_FROM_NS), codes, strict=True):
        assert abs(gap_meaning(code) - ns) <= ns / 32


def test_a_gpu_that_ran_nothing_was_not_busy() -> None:
    assert trace([], [(Kind.allocate, -1, 1.0, 1.0, 1), (Kind.free, -1, 1.0, 1.0, 1)]).busy_share == 0
    assert trace([shape()], [(Kind.kernel, 0, 0.0, 0.0, 0)]).busy_share == 0  # and in no time at all


def test_what_was_freed_before_a_part_is_not_in_it(folder: Path) -> None:
    whole = trace([], [(kind, -1, 10.0, 0.0, 1 << 20) for kind in (Kind.allocate, Kind.free, Kind.allocate)])
    kept = read_bytes(written(part(whole, 15.0, 1e9), folder), folder)
    assert peak_memory(kept) == 1 << 20


def test_requests_end_where_the_host_waits_for_work(folder: Path) -> None:
    again = read_bytes(written(requests(count=7), folder), folder)
    ends = np.flatnonzero(again.operations.ends_request)
    assert len(ends) == 7
    assert set(again.operations.kind[ends].tolist()) == {int(Kind.wait)}


def test_a_copy_to_the_host_ends_a_request_only_where_the_host_waited_for_it() -> None:
    kinds = np.array([Kind.kernel, Kind.copy, Kind.kernel, Kind.copy], dtype=np.uint8)
    directions = np.array([Direction.unknown, Direction.to_host] * 2, dtype=np.uint8)
    waits = np.array([0, 0, 0, 5], dtype=np.float32)
    assert request_ends(kinds, directions, waits).tolist() == [False, False, False, True]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.trace")), ids=lambda path: path.stem)
def test_the_shipped_traces_are_whole(path: Path) -> None:
    one = read(path)
    assert (one.complete, one.damage, one.lost) == (True, "", 0)
    assert 0.02 < one.busy_share <= 1
    assert one.operations.ends_request.sum() > 10
    assert path.stat().st_size < 400_000
