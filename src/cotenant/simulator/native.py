"""The engine's C interface: plain structures, the same as in native/sim, and typed functions."""

from __future__ import annotations

import ctypes
from ctypes import (
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from functools import cache
from typing import Any

from cotenant.errors import Problem
from cotenant.launch import native_files

PARAMETERS = 8
HISTOGRAM_PLACES = 1600
HISTOGRAM_LEAST_US = 0.1
HISTOGRAM_GROWTH = 1.02

Tick = ctypes.CFUNCTYPE(c_int, c_void_p)


def _doubles(names: str) -> list[tuple[str, Any]]:
    return [(name, c_double) for name in names.split()]


def _counts(names: str) -> list[tuple[str, Any]]:
    return [(name, c_uint64) for name in names.split()]


class Device(ctypes.Structure):
    _fields_ = [
        ("sms", c_int32),
        ("all_at_once", c_int32),
        *_doubles("memory_gbps bus_gbps slice_us switch_us launch_us"),
        ("memory_bytes", c_uint64),
    ]


class Machine(ctypes.Structure):
    _fields_ = [
        ("sms", c_uint32),
        ("together", c_uint32),
        ("priorities", c_uint32),
        ("holds_memory", c_uint32),
        *_doubles("memory_gbps slice_us launch_us"),
        ("memory_bytes", c_uint64),
        ("grace_us", c_double),
        *_doubles(
            "drain_us cut_us cold_us kill_us gate_us open_us keep_us tail blocks together_tax contention"
            " watch_us clock_us look_us"
        ),
    ]


class Operation(ctypes.Structure):
    _fields_ = [
        ("us", c_float),
        ("sms", c_float),
        ("gbps", c_float),
        ("gap_us", c_float),
        ("block_us", c_float),
        ("kind", ctypes.c_uint8),
        ("sync", ctypes.c_uint8),
        ("bound", ctypes.c_uint8),
        ("unused", ctypes.c_uint8),
    ]


class Job(ctypes.Structure):
    _fields_ = [
        ("program", c_uint32),
        ("tenant_class", c_uint32),
        ("priority", c_uint32),
        ("arrivals", c_uint32),
        ("waits_for_request", c_uint32),
        ("is_recorded", c_uint32),
        ("requests", c_uint64),
        *_doubles("every_us burst_us pause_us think_least_us think_most_us spread request_spread begins_us"),
        *_doubles("run_ahead_us weight floor clock"),
        *_counts("persistent_bytes ephemeral_bytes seed"),
    ]


class Tenant(ctypes.Structure):
    _fields_ = [
        ("is_here", c_uint32),
        ("has_work", c_uint32),
        ("is_held", c_uint32),
        ("in_request", c_uint32),
        *_counts("operations requests unanswered bursts gates preemptions blocking_calls"),
        *_doubles(
            "work_us wasted_us sm_us used_us busy_us gap_us blocked_us own_cpu_us asleep_us"
            " held_us executed_us longest_wait_us begun_us ended_us"
        ),
        *_doubles("in_flight_us remaining_us alone_us"),
        *_doubles("latency_sum_us latency_least_us latency_most_us"),
        *_doubles("service_sum_us service_least_us service_most_us"),
        *_counts("latency_count service_count"),
    ]


class Gpu(ctypes.Structure):
    _fields_ = [
        *_doubles("now_us busy_us sm_us switch_us"),
        *_counts("switches events spans spans_left_out"),
    ]


class Knobs(ctypes.Structure):
    _fields_ = [
        ("rule", c_uint32),
        ("unused", c_uint32),
        *_doubles("gate_every_us in_flight_us turn_us"),
        ("parameters", c_float * PARAMETERS),
    ]


class TenantKnobs(ctypes.Structure):
    _fields_ = [
        ("shut", c_uint32),
        ("tolerant", c_uint32),
        *_doubles("rate sm_share slice_us rank"),
        ("lane", c_int64),
    ]


class Span(ctypes.Structure):
    _fields_ = [
        ("start_us", c_double),
        ("end_us", c_double),
        ("tenant", c_uint32),
        ("kind", c_uint32),
        ("request", c_uint64),
    ]


@cache
def library() -> ctypes.CDLL:
    path = native_files.require(native_files.folder() / "libcotenant_sim.so")
    lib = ctypes.CDLL(str(path))
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "sizes": (None, [c_void_p]),
        "log_normal": (c_double, [c_double, c_double, c_double, c_int]),
        "read_device": (c_int, [c_char_p, c_void_p, c_char_p, c_size_t]),
        "new": (c_void_p, [c_void_p, c_uint32, c_double, c_double, c_uint64]),
        "delete": (None, [c_void_p]),
        "add_program": (c_int64, [c_void_p, c_void_p, c_uint32, c_void_p, c_uint32]),
        "add_tenant": (c_int64, [c_void_p, c_void_p, c_void_p, c_uint64]),
        "run": (c_int, [c_void_p, c_double, c_double, Tick, c_void_p]),
        "tenants": (None, [c_void_p, c_void_p]),
        "gpu": (None, [c_void_p, c_void_p]),
        "set_knobs": (None, [c_void_p, c_void_p, c_void_p]),
        "histogram": (None, [c_void_p, c_uint32, c_int, c_void_p]),
        "timeline": (None, [c_void_p, c_uint32, c_void_p]),
        "spans": (None, [c_void_p, c_void_p]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, f"cotenant_sim_{name}")
        function.restype = result
        function.argtypes = arguments
    found = (c_uint64 * 9)()
    lib.cotenant_sim_sizes(found)
    here = [ctypes.sizeof(each) for each in (Machine, Operation, Job, Tenant, Gpu, Knobs, TenantKnobs, Span)]
    if list(found) != [*here, HISTOGRAM_PLACES]:
        raise Problem(f"{path} is of another version", "install the package again")
    return lib
