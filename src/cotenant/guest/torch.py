"""For PyTorch jobs whose memory can be evicted: what PyTorch's allocator holds free is not copied, and a training is
evicted between two steps, when the most is free. `cotenant run` loads this helper (startup/); `import
cotenant.guest.torch` does the same by hand. Without Cotenant, or without CUDA, it does nothing.

PyTorch returns freed memory to its own allocator, not to the driver, so the interposer cannot tell it from memory in
use. A thread started here tells the interposer, whenever the job is about to be evicted and all its work is done, which
blocks the allocator holds free; the interposer drops these instead of copying them. After each step of an optimiser the
helper tells the interposer that a step has ended; if the job has to be evicted, the next step begins only when the list
of free blocks is complete.

Blocks of CUDA graphs' private pools are always copied: a graph may use them without the allocator's knowledge.

This file also runs in Pythons that do not have Cotenant installed, from 3.9 on: with the standard library alone.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

_LOOK_MS = 1000
_NO_POOL = (0, 0)
_BY_RUN = "_cotenant_torch"  # its name where `cotenant run` has loaded it


def unused_ranges(segments: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, int]]:
    """Address and bytes of the blocks that are free in a snapshot of PyTorch's allocator."""
    for segment in segments:
        if tuple(segment.get("segment_pool_id", _NO_POOL)) != _NO_POOL:
            continue
        at = int(segment["address"])
        for block in segment["blocks"]:
            # "active_pending_free" may still be read by a stream; only "inactive" is unused.
            if block["state"] == "inactive":
                yield at, int(block["size"])
            at += int(block["size"])


def _snapshot() -> Sequence[Mapping[str, Any]]:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return ()
    segments: Sequence[Mapping[str, Any]] = torch.cuda.memory_snapshot()
    return segments


class _Helper:
    def __init__(self, interposer: ctypes.CDLL) -> None:
        # These are called without the interpreter's lock: the job's other threads go on meanwhile.
        self.ask = interposer.cotenant_memory_question
        self.ask.argtypes, self.ask.restype = [ctypes.c_uint32], ctypes.c_uint32
        self.answer = interposer.cotenant_memory_unused
        self.answer.argtypes = [ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint32]
        self.answer.restype = None
        self.step_ended = interposer.cotenant_step_ended
        self.step_ended.argtypes, self.step_ended.restype = [], None
        self.sees_steps = False

    def start(self) -> None:
        torch = sys.modules.get("torch")
        self.see_steps()
        # A process that never uses the GPU, a data loader's worker say, needs no thread.
        when_it_uses_cuda = getattr(getattr(torch, "cuda", None), "_lazy_call", None)
        if when_it_uses_cuda is not None:
            when_it_uses_cuda(self.start_thread)
        else:
            self.start_thread()

    def start_thread(self) -> None:
        # Where no thread can be started, everything is saved.
        with suppress(RuntimeError):
            threading.Thread(target=self.answer_questions, name="cotenant-torch", daemon=True).start()

    def see_steps(self) -> None:
        optimizers = sys.modules.get("torch.optim.optimizer")
        # PyTorch 2.0 and newer.
        register: Callable[..., Any] | None = getattr(optimizers, "register_optimizer_step_post_hook", None)
        if self.sees_steps or register is None:
            return
        self.sees_steps = True
        step_ended = self.step_ended
        compiler = getattr(sys.modules["torch"], "compiler", None)
        is_compiling = getattr(compiler, "is_compiling", bool)

        def at_its_end(*_: object) -> None:
            # A step that torch.compile reads cannot call us: it would be compiled in two halves, or not at all.
            if not is_compiling():
                step_ended()

        register(at_its_end)

    def answer_questions(self) -> None:
        while True:
            question = self.ask(_LOOK_MS)
            if not question:
                self.see_steps()
                continue
            try:
                numbers = [number for range_ in unused_ranges(_snapshot()) for number in range_]
            except Exception:
                numbers = []  # another version of PyTorch tells it in another way: everything is saved
            self.answer(question, (ctypes.c_uint64 * len(numbers))(*numbers), len(numbers) // 2)


def _start() -> bool:
    by_run = sys.modules.get(_BY_RUN)
    if by_run is not None and __name__ != _BY_RUN:
        return bool(by_run.active)
    interposer = ctypes.CDLL(None)
    if not hasattr(interposer, "cotenant_step_ended"):
        return False
    _Helper(interposer).start()
    return True


active = _start()
"""Whether this process runs under Cotenant, and its free blocks are told."""
