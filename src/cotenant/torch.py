"""`import cotenant.torch`: memory that PyTorch's allocator keeps free is not copied when a job leaves the GPU.

PyTorch gives freed memory back to its own allocator, not to the driver: for Cotenant it looks like any other. A
thread started here tells the interposer, whenever the job's memory is about to leave and all its work is done, which
blocks the allocator holds free; these are dropped instead of saved. Without Cotenant, or without CUDA, the import does
nothing.

Blocks of CUDA graphs' private pools are always saved: a graph may use them without the allocator's knowing.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_LOOK_MS = 1000
_NO_POOL = (0, 0)


def unused_ranges(segments: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, int]]:
    """Address and bytes of the blocks that are free in a snapshot of PyTorch's allocator."""
    for segment in segments:
        if tuple(segment.get("segment_pool_id", _NO_POOL)) != _NO_POOL:
            continue
        at = int(segment["address"])
        for block in segment["blocks"]:
            # "active_pending_free" may still be read by a stream; only "inactive" is nobody's.
            if block["state"] == "inactive":
                yield at, int(block["size"])
            at += int(block["size"])


def _snapshot() -> Sequence[Mapping[str, Any]]:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return ()
    segments: Sequence[Mapping[str, Any]] = torch.cuda.memory_snapshot()
    return segments


def _answer_questions(interposer: ctypes.CDLL) -> None:
    # Called without the interpreter's lock: the job's threads go on meanwhile.
    ask, answer = interposer.cotenant_memory_question, interposer.cotenant_memory_unused
    ask.argtypes, ask.restype = [ctypes.c_uint32], ctypes.c_uint32
    answer.argtypes = [ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint32]
    answer.restype = None
    while True:
        question = ask(_LOOK_MS)
        if not question:
            continue
        try:
            numbers = [number for range_ in unused_ranges(_snapshot()) for number in range_]
        except (RuntimeError, LookupError, TypeError, ValueError):
            numbers = []  # another version of PyTorch tells it in another way: everything is saved
        answer(question, (ctypes.c_uint64 * len(numbers))(*numbers), len(numbers) // 2)


def _start() -> bool:
    interposer = ctypes.CDLL(None)
    if not hasattr(interposer, "cotenant_memory_question"):
        return False
    threading.Thread(target=_answer_questions, args=(interposer,), name="cotenant-torch", daemon=True).start()
    return True


active = _start()
"""Whether this process runs under Cotenant, and its free blocks are told."""
