"""What the native library does with a segment, through ctypes."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from ctypes import c_char_p, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path

from cotenant.launch import native_files
from cotenant.segment.layout import BadSegment
from cotenant.segment.wire import Header, Slot


@functools.cache
def wire_library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(native_files.require(native_files.wire())))
    except OSError as error:
        raise BadSegment(str(error)) from error


@functools.cache
def clock() -> Callable[[], int]:
    found = wire_library().cotenant_now_ns
    found.restype = c_uint64
    return found


def now_ns() -> int:
    """The clock of every moment in the segment: the machine's monotonic one, also seen from a time namespace."""
    return clock()()


def is_in_memory(path: Path) -> bool:
    """NVIDIA's driver maps only such a segment's gates; the software GPU does not care."""
    return bool(wire_library().cotenant_segment_is_in_memory(os.fsencode(path)))


def ensure(path: Path) -> None:
    """Makes the segment if there is none, and checks that it is one that our tenants can use."""
    library = wire_library()
    library.cotenant_segment_open.argtypes = [c_char_p, c_int, c_char_p, c_size_t]
    library.cotenant_segment_open.restype = c_void_p
    library.cotenant_segment_close.argtypes = [c_void_p]
    library.cotenant_segment_close.restype = None
    why = ctypes.create_string_buffer(512)
    segment = library.cotenant_segment_open(os.fsencode(path), 1, why, len(why))
    if not segment:
        raise BadSegment(why.value.decode(errors="replace"))
    library.cotenant_segment_close(segment)


def make_shared_header(file: Path) -> None:
    library = wire_library()
    library.cotenant_segment_create_shared_header.argtypes = [c_char_p, c_char_p, c_size_t]
    why = ctypes.create_string_buffer(512)
    if not library.cotenant_segment_create_shared_header(os.fsencode(file), why, len(why)):
        raise BadSegment(why.value.decode(errors="replace"))


def seal(header: Header) -> None:
    """After a change of what counts only with its check word: capacity, memory knobs, grants."""
    library = wire_library()
    library.cotenant_segment_seal.argtypes = [c_void_p]
    library.cotenant_segment_seal(ctypes.addressof(header))


def seal_requests(slot: Slot) -> None:
    library = wire_library()
    library.cotenant_segment_seal_requests.argtypes = [c_void_p]
    library.cotenant_segment_seal_requests(ctypes.addressof(slot))
