"""The device model as Python sees it, through its C interface: a GPU in virtual time."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable
from ctypes import c_double, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

MARKER, KERNEL, TO_DEVICE, TO_HOST, ON_DEVICE, HOLD = range(6)


class DeviceFigures(ctypes.Structure):
    _fields_ = [
        ("sms", c_int32),
        ("all_at_once", c_int32),
        ("memory_gbps", c_double),
        ("bus_gbps", c_double),
        ("slice_us", c_double),
        ("switch_us", c_double),
        ("launch_us", c_double),
    ]


class Work(ctypes.Structure):
    _fields_ = [
        ("kind", c_int32),
        ("sms", c_int32),
        ("time_us", c_double),
        ("gbps", c_double),
        ("bytes", c_uint64),
    ]


class NoticeRecord(ctypes.Structure):
    _fields_ = [
        ("tag", c_uint64),
        ("op", c_uint64),
        ("start_us", c_double),
        ("end_us", c_double),
        ("queue", c_uint32),
        ("reached", c_uint32),
    ]


@dataclass(frozen=True)
class Span:
    start: float
    end: float


@cache
def library(native: Path) -> ctypes.CDLL:
    lib = ctypes.CDLL(str(native / "libcotenant_model.so"))
    signatures: dict[str, tuple[object, list[object]]] = {
        "read_device": (c_int32, [ctypes.c_char_p, c_void_p, ctypes.c_char_p, c_size_t]),
        "new": (c_void_p, [c_void_p]),
        "delete": (None, [c_void_p]),
        "open_context": (c_uint32, [c_void_p]),
        "cancel_context": (None, [c_void_p, c_uint32]),
        "set_slice": (None, [c_void_p, c_uint32, c_double]),
        "open_queue": (c_uint32, [c_void_p, c_uint32, c_int32]),
        "close_queue": (None, [c_void_p, c_uint32]),
        "submit": (c_uint64, [c_void_p, c_uint32, c_void_p, c_void_p, c_size_t, c_uint64]),
        "release": (None, [c_void_p, c_uint64]),
        "now": (c_double, [c_void_p]),
        "earliest_end": (c_double, [c_void_p, c_uint64]),
        "next_event": (c_double, [c_void_p]),
        "advance": (c_size_t, [c_void_p, c_double]),
        "notice": (None, [c_void_p, c_size_t, c_void_p]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, f"cotenant_model_{name}")
        function.restype = result
        function.argtypes = arguments
    return lib


def read_device_file(native: Path, path: Path) -> DeviceFigures:
    """Raises ValueError with the model's own words."""
    figures = DeviceFigures()
    why = ctypes.create_string_buffer(1000)
    if library(native).cotenant_model_read_device(str(path).encode(), ctypes.byref(figures), why, len(why)):
        raise ValueError(why.value.decode())
    return figures


@dataclass
class ModelledDevice:
    """8 SMs, 100 GB/s memory, 10 GB/s link; switching and launching cost nothing unless a test says so."""

    native: Path
    sms: int = 8
    memory_gbps: float = 100
    bus_gbps: float = 10
    slice_us: float = 2000
    switch_us: float = 0
    launch_us: float = 0
    all_at_once: bool = False
    ended: dict[int, Span] = field(default_factory=dict)
    ended_in_order: list[int] = field(default_factory=list)
    reached: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lib = library(self.native)
        figures = DeviceFigures(
            self.sms,
            self.all_at_once,
            self.memory_gbps,
            self.bus_gbps,
            self.slice_us,
            self.switch_us,
            self.launch_us,
        )
        self._model = self._lib.cotenant_model_new(ctypes.byref(figures))
        self._submitted = 0

    def __del__(self) -> None:
        self._lib.cotenant_model_delete(self._model)

    def context(self) -> int:
        return int(self._lib.cotenant_model_open_context(self._model))

    def cancel(self, context: int) -> None:
        self._lib.cotenant_model_cancel_context(self._model, context)

    def set_slice(self, context: int, us: float) -> None:
        self._lib.cotenant_model_set_slice(self._model, context, us)

    def queue(self, context: int, priority: int = 0) -> int:
        return int(self._lib.cotenant_model_open_queue(self._model, context, priority))

    def close(self, queue: int) -> None:
        self._lib.cotenant_model_close_queue(self._model, queue)

    def submit(self, queue: int, work: Work, after: Iterable[int] = ()) -> int:
        self._submitted += 1
        before = list(after)
        array = (c_uint64 * len(before))(*before)
        op = self._lib.cotenant_model_submit(
            self._model, queue, ctypes.byref(work), array, len(before), self._submitted
        )
        return int(op)

    def kernel(self, queue: int, us: float, sms: int = 8, gbps: float = 0, after: Iterable[int] = ()) -> int:
        return self.submit(queue, Work(KERNEL, sms, us, gbps, 0), after)

    def copy(self, queue: int, kind: int, size: int, after: Iterable[int] = ()) -> int:
        return self.submit(queue, Work(kind, 0, 0, 0, size), after)

    def marker(self, queue: int, after: Iterable[int] = ()) -> int:
        return self.submit(queue, Work(MARKER, 0, 0, 0, 0), after)

    def hold(self, queue: int, after: Iterable[int] = ()) -> int:
        return self.submit(queue, Work(HOLD, 0, 0, 0, 0), after)

    def release(self, op: int) -> None:
        self._lib.cotenant_model_release(self._model, op)

    def now(self) -> float:
        return float(self._lib.cotenant_model_now(self._model))

    def next_event(self) -> float:
        return float(self._lib.cotenant_model_next_event(self._model))

    def earliest_end(self, op: int) -> float:
        return float(self._lib.cotenant_model_earliest_end(self._model, op))

    def advance(self, to: float) -> None:
        record = NoticeRecord()
        for i in range(self._lib.cotenant_model_advance(self._model, to)):
            self._lib.cotenant_model_notice(self._model, i, ctypes.byref(record))
            if record.reached:
                assert record.op not in self.reached, "a hold is reached once"
                self.reached[record.op] = record.start_us
            else:
                assert record.op not in self.ended, "an operation ends once"
                self.ended[record.op] = Span(record.start_us, record.end_us)
                self.ended_in_order.append(record.op)

    def run(self) -> None:
        """Until nothing happens by itself any more."""
        while not math.isinf(event := self.next_event()):
            self.advance(event)
