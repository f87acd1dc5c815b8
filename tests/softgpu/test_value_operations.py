"""Waits on words in memory and writes to them: how one process holds another's stream."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.softgpu.calls import code, download, value

INVALID_VALUE, NOT_READY = 1, 600
GEQ, EQ, AND, NOR, FLUSH = 0, 1, 2, 3, 1 << 30


@pytest.mark.parametrize(
    ("condition", "wanted", "closed", "opened"),
    [
        (GEQ, 5, 4, 9),
        (GEQ, 2, 0xFFFFFFFF, 2),  # cyclic: -1 is before 2
        (EQ, 5, 9, 5),
        (AND, 6, 1, 2),
        (NOR, 0xFFFFFFF0, 0x0000000F, 0x00000007),
    ],
)
def test_a_wait_ends_when_its_condition_holds(
    cuda: Any,
    new_stream: Callable[..., Any],
    gate: Any,
    condition: int,
    wanted: int,
    closed: int,
    opened: int,
) -> None:
    stream = new_stream(1)
    gate.word.value = closed
    value(cuda.cuStreamWaitValue32(stream, gate.address, wanted, condition))
    gate.settle()
    assert code(cuda.cuStreamQuery(stream)) == NOT_READY
    gate.word.value = opened
    value(cuda.cuStreamSynchronize(stream))


def test_streams_signal_each_other_through_device_memory(
    cuda: Any, new_stream: Callable[..., Any], buffer: Any, gate: Any
) -> None:
    waiting, writing = new_stream(1), new_stream(1)
    value(cuda.cuStreamWaitValue64(waiting, buffer, 1 << 40, GEQ))
    value(cuda.cuStreamWriteValue32(waiting, int(buffer) + 64, 11, 0))
    gate.hold(writing)
    value(cuda.cuStreamWriteValue64(writing, buffer, 1 << 40, 0))
    gate.settle()
    assert code(cuda.cuStreamQuery(waiting)) == NOT_READY
    gate.open()
    value(cuda.cuStreamSynchronize(waiting))
    assert download(cuda, int(buffer) + 64, 4) == (11).to_bytes(4, "little")


def operation(cuda: Any, kind: str, address: int, number: int, flags: int = 0) -> Any:
    one = cuda.CUstreamBatchMemOpParams()
    field = one.waitValue if kind.startswith("WAIT") else one.writeValue
    one.operation = field.operation = getattr(cuda.CUstreamBatchMemOpType, f"CU_STREAM_MEM_OP_{kind}")
    field.address = address
    field.value = cuda.cuuint32_t(number)
    field.flags = flags
    return one


def test_a_batch_runs_in_order(cuda: Any, new_stream: Callable[..., Any], buffer: Any) -> None:
    stream, base = new_stream(1), int(buffer)
    batch = [
        operation(cuda, "WRITE_VALUE_32", base, 3),
        operation(cuda, "WAIT_VALUE_32", base, 3, EQ),
        operation(cuda, "WRITE_VALUE_32", base, 4),
        operation(cuda, "WRITE_VALUE_32", base + 4, 5),
    ]
    value(cuda.cuStreamBatchMemOp(stream, len(batch), batch, 0))
    value(cuda.cuStreamSynchronize(stream))
    assert download(cuda, buffer, 8) == bytes([4, 0, 0, 0, 5, 0, 0, 0])


@pytest.fixture
def shared_page(cuda: Any, context: Any) -> Iterator[tuple[Path, ctypes.c_uint32]]:
    """A page of a file that another process can open, registered with the device; it opens before it goes."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as file:
        file.truncate(4096)
        mapping = mmap.mmap(file.fileno(), 4096)  # unmapped with the last object that refers to it
        word = ctypes.c_uint32.from_buffer(mapping)
        value(cuda.cuMemHostRegister(ctypes.addressof(word), 4096, cuda.CU_MEMHOSTREGISTER_DEVICEMAP))
        yield Path(file.name), word
        word.value = 1
        cuda.cuCtxSynchronize()
        value(cuda.cuMemHostUnregister(ctypes.addressof(word)))


def test_another_process_opens_the_gate_by_a_plain_store(
    cuda: Any,
    new_stream: Callable[..., Any],
    buffer: Any,
    gate: Any,
    shared_page: tuple[Path, ctypes.c_uint32],
) -> None:
    path, word = shared_page
    stream = new_stream()
    address = value(cuda.cuMemHostGetDevicePointer(ctypes.addressof(word), 0))
    value(cuda.cuStreamWaitValue32(stream, address, 1, GEQ))
    value(cuda.cuMemsetD8Async(buffer, 3, 4, stream))
    gate.settle()
    assert code(cuda.cuStreamQuery(stream)) == NOT_READY
    store = "import sys; f = open(sys.argv[1], 'r+b'); f.write(b'\\1'); f.close()"
    subprocess.run([sys.executable, "-c", store, path], check=True, timeout=60)
    value(cuda.cuStreamSynchronize(stream))
    assert download(cuda, buffer, 4) == b"\3" * 4


def test_registered_pages_stay_when_the_program_unmaps_them(
    cuda: Any, new_stream: Callable[..., Any], buffer: Any, gate: Any
) -> None:
    """The device has them pinned. What is stored through another mapping of the file reaches the wait."""
    stream = new_stream(1)
    with tempfile.TemporaryFile(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as file:
        file.truncate(8192)
        other = mmap.mmap(file.fileno(), 8192)
        mapping = mmap.mmap(file.fileno(), 8192)
        view = ctypes.c_uint32.from_buffer(mapping, 4096)
        address = ctypes.addressof(view)
        value(cuda.cuMemHostRegister(address, 4096, cuda.CU_MEMHOSTREGISTER_DEVICEMAP))
        value(cuda.cuStreamWaitValue32(stream, address, 7, EQ))
        value(cuda.cuStreamWriteValue32(stream, address + 4, 9, 0))
        del view
        mapping.close()
        gate.settle()
        assert code(cuda.cuStreamQuery(stream)) == NOT_READY
        other[4096] = 7
        value(cuda.cuStreamSynchronize(stream))
        assert other[4100] == 9
        value(cuda.cuMemHostUnregister(address))
        other.close()
