"""The memory that all tenants of one user share, as Python reads it.

The structures mirror native/wire/wire.h; tests/test_wire.py holds them equal to what the compiler says.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Iterator, Mapping
from ctypes import c_char, c_int, c_size_t, c_uint8, c_uint32, c_uint64
from dataclasses import dataclass
from pathlib import Path

from cotenant import parts

MAGIC = b"cotenant"
VERSION = 1
PAGE = 4096
SLOTS = 256
GPUS = 16
CLASSES = 3
OWNER_DIED = 0x40000000
OWNER_MASK = 0x3FFFFFFF
GATE_CLOSED = 0
GPU_VALID = 2


class Knobs(ctypes.Structure):
    _fields_ = [
        ("rule", c_uint32),
        ("grace_us", c_uint32),
        ("gate_every_us", c_uint32),
        ("stale_ms", c_uint32),
    ]


class Gpu(ctypes.Structure):
    _fields_ = [("known", c_uint32), ("unused", c_uint32), ("uuid", c_uint8 * 16), ("unused_b", c_uint8 * 8)]


class Header(ctypes.Structure):
    _fields_ = [
        ("magic", c_char * 8),
        ("version", c_uint32),
        ("header_bytes", c_uint32),
        ("slot_bytes", c_uint32),
        ("slots", c_uint32),
        ("knobs", Knobs),
        ("unused_a", c_uint8 * 24),
        ("members", c_uint64 * (SLOTS // 64) * CLASSES),
        ("unused_b", c_uint8 * 32),
        ("gpus", Gpu * GPUS),
    ]


class Figures(ctypes.Structure):
    _fields_ = [
        (name, c_uint64)
        for name in ("kernels", "graphs", "copies", "memory_ops", "host_calls", "gates", "escaped", "bursts")
    ]


FIGURES = tuple(field[0] for field in Figures._fields_)


class OnGpu(ctypes.Structure):
    _fields_ = [
        ("gate", c_uint32),
        ("gate_line", c_uint8 * 60),
        ("busy", c_uint32),
        ("unused", c_uint32),
        ("figures", Figures),
        ("busy_line", c_uint8 * 56),
    ]


class Slot(ctypes.Structure):
    _fields_ = [
        ("owner", c_uint32 * 10),
        ("pid", c_uint32),
        ("uid", c_uint32),
        ("started", c_uint64),
        ("tenant_class", c_uint32),
        ("weight", c_uint32),
        ("unknown_functions", c_uint64),
        ("tenant", c_uint8 * 16),
        ("name", c_char * 64),
        ("heartbeat_ns", c_uint64),
        ("time_slice_us", c_uint32),
        ("time_slice_refused", c_uint32),
        ("grace_us", c_uint32),
        ("asked_class", c_uint32),
        ("unused", c_uint8 * 80),
        ("gpus", OnGpu * GPUS),
    ]


SEGMENT_BYTES = PAGE * (1 + SLOTS)


class BadSegment(Exception):
    """The segment cannot be used; the text says why."""


@dataclass(frozen=True)
class Use:
    """What one tenant does on one GPU."""

    gpu: int
    uuid: str
    busy: bool
    gated: bool
    figures: dict[str, int]


@dataclass(frozen=True)
class Tenant:
    pid: int
    uid: int
    started: int
    program: str
    tenant: str
    tenant_class: int
    unknown_functions: int
    time_slice_us: int  # that the hardware gives it; 0: not known
    time_slice_refused: bool
    uses: tuple[Use, ...]


@dataclass(frozen=True)
class Snapshot:
    gpus: dict[int, str]
    tenants: tuple[Tenant, ...]
    lost: int  # slots whose owner died and that nobody has cleared yet


def path_for(environment: Mapping[str, str]) -> Path:
    given = environment.get("COTENANT_SEGMENT")
    return Path(given).absolute() if given else Path(f"/dev/shm/cotenant-{os.getuid()}.v{VERSION}")


def wire_library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(parts.require(parts.wire())))
    except OSError as error:
        raise BadSegment(str(error)) from error


def is_in_memory(path: Path) -> bool:
    """NVIDIA's driver maps only such a segment's gates; the software GPU does not care."""
    return bool(wire_library().cotenant_segment_is_in_memory(os.fsencode(path)))


def ensure(path: Path) -> None:
    """Makes the segment if there is none, and checks that it is one that our tenants can use."""
    library = wire_library()
    library.cotenant_segment_open.argtypes = [ctypes.c_char_p, c_int, ctypes.c_char_p, c_size_t]
    library.cotenant_segment_open.restype = ctypes.c_void_p
    library.cotenant_segment_close.argtypes = [ctypes.c_void_p]
    library.cotenant_segment_close.restype = None
    why = ctypes.create_string_buffer(512)
    segment = library.cotenant_segment_open(os.fsencode(path), 1, why, len(why))
    if not segment:
        raise BadSegment(why.value.decode(errors="replace"))
    library.cotenant_segment_close(segment)


def read(path: Path) -> Snapshot:
    """Raises FileNotFoundError where there is none, BadSegment where it is not one of ours."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
            return snapshot(memory, path)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # ValueError: an empty file
        raise BadSegment(f"{path} cannot be read: {error}") from error


def ask_for_class(path: Path, pid: int, wanted: int) -> bool:
    """Writes the request into the tenant's slot; False: no tenant has this PID."""
    try:
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            snapshot(memory, path)  # raises for what is not a segment of ours
            for at in range(PAGE, SEGMENT_BYTES, PAGE):
                slot = Slot.from_buffer_copy(memory, at)
                if is_live(slot) and slot.pid == pid:
                    place = at + Slot.asked_class.offset
                    memory[place : place + 4] = (1 + wanted).to_bytes(4, sys.byteorder)
                    return True
            return False
    except PermissionError as error:
        raise BadSegment(f"{path} is not writable") from error


def snapshot(memory: mmap.mmap | bytes, path: Path) -> Snapshot:
    if memory[: len(MAGIC)] != MAGIC or len(memory) < ctypes.sizeof(Header):
        raise BadSegment(f"{path} is not a Cotenant segment")
    header = Header.from_buffer_copy(memory[: ctypes.sizeof(Header)])
    if (header.version, header.slots, len(memory)) != (VERSION, SLOTS, SEGMENT_BYTES):
        raise BadSegment(f"{path} has layout version {header.version}, this Cotenant uses {VERSION}")
    gpus = {i: uuid_text(bytes(gpu.uuid)) for i, gpu in enumerate(header.gpus) if gpu.known == GPU_VALID}
    tenants, lost = [], 0
    for at in range(PAGE, SEGMENT_BYTES, PAGE):
        slot = Slot.from_buffer_copy(memory, at)
        lost += bool(slot.owner[0] & OWNER_DIED)
        if is_live(slot):
            tenants.append(tenant_in(slot, gpus))
    return Snapshot(gpus, tuple(tenants), lost)


def is_live(slot: Slot) -> bool:
    word = slot.owner[0]
    return bool(word & OWNER_MASK) and not word & OWNER_DIED


def tenant_in(slot: Slot, gpus: dict[int, str]) -> Tenant:
    return Tenant(
        pid=slot.pid,
        uid=slot.uid,
        started=slot.started,
        program=printable(slot.name.decode(errors="replace")),
        tenant=bytes(slot.tenant).hex(),
        tenant_class=slot.tenant_class,
        unknown_functions=slot.unknown_functions,
        time_slice_us=slot.time_slice_us,
        time_slice_refused=bool(slot.time_slice_refused),
        uses=tuple(uses_of(slot, gpus)),
    )


def uses_of(slot: Slot, gpus: dict[int, str]) -> Iterator[Use]:
    for number, uuid in gpus.items():
        on = slot.gpus[number]
        figures = {name: int(getattr(on.figures, name)) for name in FIGURES}
        if on.busy or any(figures.values()):
            yield Use(number, uuid, bool(on.busy), on.gate == GATE_CLOSED, figures)


def uuid_text(uuid: bytes) -> str:
    digits = uuid.hex()
    return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def printable(text: str) -> str:
    """The guest chooses its name: no escape sequence of it may reach a terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)
