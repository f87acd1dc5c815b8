"""The layout of a segment, from native/wire/wire.h by native/codegen/wire_layout.py."""

from __future__ import annotations

from ctypes import Structure, c_char, c_uint32, c_uint64, c_uint8
from enum import IntEnum

DEFAULT_GRACE_US = 300
DEFAULT_GATE_EVERY_US = 100
DEFAULT_STALE_MS = 60
DEFAULT_IN_FLIGHT_US = 50000
DEFAULT_TURN_US = 0
DEFAULT_PATIENCE_MS = 20
MAGIC = b'cotenant'
VERSION = 5
SMALLEST_PAGE = 4096
SLOTS = 256
GPUS = 16
GPU_VALID = 2
SLOT_WORDS = 4
CLASSES = 3
GATE_OPEN = 1
RIGHTS = 32
OWNER_DIED = 1073741824
OWNER_MASK = 1073741823


class Rule(IntEnum):
    none = 0
    strict = 1
    fair = 2


class Class(IntEnum):
    production = 0
    standard = 1
    opportunistic = 2


class Where(IntEnum):
    pinned = 0
    resident = 1
    leaving = 2
    away = 3
    returning = 4


class Refusal(IntEnum):
    none_refused = 0
    in_capture = 1
    does_not_drain = 2
    host_budget = 3
    host_memory = 4
    driver_failed = 5


class Whose(IntEnum):
    of_nobody = 0
    of_user = 1
    of_group = 2
    of_everybody = 3


class Knobs(Structure):
    _fields_ = [
        ("rule", c_uint32),
        ("grace_us", c_uint32),
        ("gate_every_us", c_uint32),
        ("stale_ms", c_uint32),
        ("in_flight_us", c_uint32),
        ("turn_us", c_uint32),
        ("patience_ms", c_uint32),
    ]


class Gpu(Structure):
    _fields_ = [
        ("known", c_uint32),
        ("capacity_check", c_uint32),
        ("uuid", c_uint8 * 16),
        ("capacity", c_uint64),
    ]


class Crowding(Structure):
    _fields_ = [
        ("headroom", c_uint64),
        ("host_memory", c_uint64),
        ("stay_ms", c_uint32),
        ("check", c_uint32),
    ]


class Right(Structure):
    _fields_ = [
        ("whose", c_uint32),
        ("id", c_uint32),
        ("best_class", c_uint32),
        ("check", c_uint32),
        ("memory_limit", c_uint64),
    ]


class Header(Structure):
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
        ("members", c_uint64 * 4 * 3),
        ("policy", c_char * 512),
        ("gpus", Gpu * 16),
        ("crowding", Crowding),
        ("rights", Right * 32),
    ]


class Asked(Structure):
    _fields_ = [
        ("tenant_class", c_uint32),
        ("weight", c_uint32),
        ("slowdown", c_uint32),
        ("floor", c_uint32),
        ("time_slice_us", c_uint32),
    ]


class Residence(Structure):
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


class Figures(Structure):
    _fields_ = [
        ("kernels", c_uint64),
        ("graphs", c_uint64),
        ("copies", c_uint64),
        ("memory_ops", c_uint64),
        ("host_calls", c_uint64),
        ("gates", c_uint64),
        ("escaped", c_uint64),
        ("bursts", c_uint64),
    ]


class OnGpu(Structure):
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


class Memory(Structure):
    _fields_ = [
        ("driver_bytes", c_uint64),
        ("refused", c_uint64),
        ("movable_bytes", c_uint64),
    ]


class Pace(Structure):
    _fields_ = [
        ("now_ns", c_uint32),
        ("alone_ns", c_uint32),
    ]


class Slot(Structure):
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
        ("gpus", OnGpu * 16),
        ("memory", Memory * 16),
        ("pace", Pace * 16),
    ]
