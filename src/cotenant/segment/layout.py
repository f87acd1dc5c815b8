"""What lies where in a segment: the structures of native/wire/wire.h; tests/test_wire.py holds them equal to what the
compiler says.
"""

from __future__ import annotations

import ctypes
import mmap
import re
from ctypes import c_char, c_uint8, c_uint32, c_uint64
from enum import IntEnum
from pathlib import Path

MAGIC = b"cotenant"
VERSION = 5
PAGE = max(4096, mmap.PAGESIZE)  # as wire::page_bytes
SLOTS = 256
GPUS = 16
RIGHTS = 32
CLASSES = 3
OWNER_DIED = 0x40000000
OWNER_MASK = 0x3FFFFFFF
GATE_OPEN = 1  # closed is any other value
GPU_VALID = 2
UUID = re.compile(
    r"(?:GPU|MIG)-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})", re.IGNORECASE
)


class Where(IntEnum):
    """Of a tenant's memory."""

    pinned = 0  # it does not move
    resident = 1
    leaving = 2
    away = 3  # in host memory, the tenant paused
    returning = 4


REFUSALS = {
    1: "a graph was being captured",
    2: "its work on the GPU did not end in time",
    3: "the host memory budget is used up",
    4: "the host memory could not be had",
    5: "a call of the driver failed",
}


class Knobs(ctypes.Structure):
    _fields_ = [
        ("rule", c_uint32),
        ("grace_us", c_uint32),
        ("gate_every_us", c_uint32),
        ("stale_ms", c_uint32),
        ("in_flight_us", c_uint32),
        ("turn_us", c_uint32),
        ("patience_ms", c_uint32),
    ]


class Gpu(ctypes.Structure):
    _fields_ = [
        ("known", c_uint32),
        ("capacity_check", c_uint32),
        ("uuid", c_uint8 * 16),
        ("capacity", c_uint64),
    ]


class Crowding(ctypes.Structure):
    _fields_ = [
        ("headroom", c_uint64),
        ("host_memory", c_uint64),
        ("stay_ms", c_uint32),
        ("check", c_uint32),
    ]


class Right(ctypes.Structure):
    _fields_ = [
        ("whose", c_uint32),
        ("id", c_uint32),
        ("best_class", c_uint32),
        ("check", c_uint32),
        ("memory_limit", c_uint64),
    ]


class Header(ctypes.Structure):
    _fields_ = [
        ("magic", c_char * 8),
        ("version", c_uint32),
        ("header_bytes", c_uint32),
        ("slot_bytes", c_uint32),
        ("slots", c_uint32),
        ("knobs", Knobs),
        ("bell", c_uint32),
        ("choices", c_uint32),
        ("unused_a", c_uint8 * 4),
        ("members", c_uint64 * (SLOTS // 64) * CLASSES),
        ("policy", c_char * 512),
        ("gpus", Gpu * GPUS),
        ("crowding", Crowding),
        ("rights", Right * RIGHTS),
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
        ("over_rate", c_uint32),
        ("below_floor", c_uint32),
        ("waits", c_uint32),
        ("waited_ns", c_uint64),
        ("gap_ns", c_uint64),
        ("ready", c_uint32),
        ("on", c_uint32),
        ("switch_us", c_uint32),
        ("turn_us", c_uint32),
        ("stop_ns", c_uint64),
        ("switch_ns", c_uint64),
        ("busy", c_uint32),
        ("holds_turn", c_uint32),
        ("figures", Figures),
        ("used_ns", c_uint64),
        ("busy_ns", c_uint64),
        ("memory_bytes", c_uint64),
        ("shut_until_ns", c_uint64),
        ("tolerant_until_ns", c_uint64),
        ("rate", c_uint32),
        ("in_flight_us", c_uint32),
        ("turn_key", c_uint64),
    ]


class Asked(ctypes.Structure):
    _fields_ = [(name, c_uint32) for name in ("tenant_class", "weight", "slowdown", "floor", "time_slice_us")]


class Memory(ctypes.Structure):
    _fields_ = [("driver_bytes", c_uint64), ("refused", c_uint64), ("movable_bytes", c_uint64)]


class Pace(ctypes.Structure):
    _fields_ = [("now_ns", c_uint32), ("alone_ns", c_uint32)]


class Residence(ctypes.Structure):
    _fields_ = [
        ("where", c_uint32),
        ("wake", c_uint32),
        ("wanted_hard", c_uint32),
        ("asked_hold", c_uint32),
        ("held", c_uint32),
        ("refusal", c_uint32),
        ("refused_ns", c_uint64),
        ("since_ns", c_uint64),
        ("transfer_ns", c_uint64),
        ("leaving_ns", c_uint64),
        ("waiting_since_ns", c_uint64),
        ("wanted_bytes", c_uint64),
        ("wanted_gpu", c_uint32),
        ("times_left", c_uint32),
        ("host_pinned", c_uint64),
        ("saved_bytes", c_uint64),
        ("dropped_bytes", c_uint64),
    ]


class Slot(ctypes.Structure):
    _fields_ = [
        ("owner", c_uint32),
        ("identity_check", c_uint32),
        ("asked_check", c_uint32),
        ("limit_check", c_uint32),
        ("pid_namespace", c_uint64),
        ("unused_b", c_uint8 * 24),
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
        ("slowdown", c_uint32),
        ("floor", c_uint32),
        ("asked", Asked),
        ("memory_limit", c_uint64),
        ("host_bytes", c_uint64),
        ("asked_memory", c_uint64),
        ("residence", Residence),
        ("export_tables", c_uint64),
        ("ungated_graphs", c_uint64),
        ("checkpoints", c_uint64),
        ("unused", c_uint8 * 152),
        ("gpus", OnGpu * GPUS),
        ("memory", Memory * GPUS),
        ("pace", Pace * GPUS),
    ]


SEGMENT_BYTES = PAGE * (1 + SLOTS)
LONGEST_POLICY_NAME = Header.policy.size - 1


class BadSegment(Exception):
    """The segment cannot be used; the text says why."""


def check_header(header: Header, path: Path) -> None:
    """Raises BadSegment for what is none of ours."""
    if header.magic != MAGIC:
        raise BadSegment(f"{path} is not a Cotenant segment")
    if (header.version, header.slots) != (VERSION, SLOTS):
        raise BadSegment(f"{path} has layout version {header.version}, this Cotenant uses {VERSION}")
    if header.slot_bytes != PAGE:
        raise BadSegment(
            f"{path} was made where pages have {header.slot_bytes} bytes, this kernel's have {PAGE}"
        )


def is_live(slot: Slot) -> bool:
    word = slot.owner
    return bool(word & OWNER_MASK) and not word & OWNER_DIED


def uuid_text(uuid: bytes) -> str:
    digits = uuid.hex()
    return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def uuid_bytes(text: str) -> bytes | None:
    found = UUID.fullmatch(text.strip())
    return bytes.fromhex(found[1].replace("-", "")) if found else None
