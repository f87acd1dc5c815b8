"""The segment as the daemon uses it: what controllers see, read from the live slots, and where knobs are written.

Figures come from one native look at all slots, which loads each word atomically. Knobs are written one by one into
shared memory: each is an aligned word that the native side loads and stores atomically, and so does ctypes. The order
in which others see what ctypes stores is settled only by the next call of the native library.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from ctypes import c_char_p, c_float, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from cotenant import segment
from cotenant.classes import TenantClass
from cotenant.policies import border
from cotenant.policies.interface import Knobs, Tenant, TenantId, TenantKnobs, View
from cotenant.segment import wire
from cotenant.terminal import printable

DEFAULTS = {
    "gate_every_us": wire.DEFAULT_GATE_EVERY_US,
    "in_flight_us": wire.DEFAULT_IN_FLIGHT_US,
    "turn_us": wire.DEFAULT_TURN_US,
}
NO_KNOBS = TenantKnobs()
CLASSES = tuple(TenantClass)
ROW = struct.Struct(wire.ROW_FORMAT)
LONGEST_PROGRAM = 64
OUTSIDERS_SECONDS = 15.0  # for which it holds that there are some
MOST_ROWS = segment.SLOTS * segment.GPUS


def thousandths(share: float) -> int:
    """As the segment holds it, where 0 is no limit."""
    return max(1, round(1000 * min(share, 1.0)))


class Place(NamedTuple):
    """A tenant, and what a look found of it: where its knobs lie, and how they stand."""

    id: TenantId
    row: wire.Row


@dataclass(slots=True)
class Look:
    """All tenants at one moment."""

    live: int  # how many there are, whether they have used a GPU or not
    views: dict[int, View] = field(default_factory=dict)  # by the GPU's number
    places: dict[int, list[Place]] = field(default_factory=dict)


class Attachment:
    def __init__(self, path: Path) -> None:
        """Raises BadSegment."""
        there = segment.open(path)
        if not there.may_have_daemon():
            raise segment.BadSegment(f"{path} belongs to its administrator, whose daemon looks after it")
        self.is_shared = there.is_shared
        library = segment.wire_library()
        library.cotenant_segment_open.argtypes = [c_char_p, c_int, c_char_p, c_size_t]
        library.cotenant_segment_open.restype = c_void_p
        library.cotenant_segment_close.argtypes = [c_void_p]
        library.cotenant_segment_refresh_gates.argtypes = [c_void_p, c_int]
        library.cotenant_segment_look.argtypes = [c_void_p, c_uint64, c_void_p, c_void_p, c_int, c_void_p]
        library.cotenant_segment_sleep.argtypes = [c_void_p, c_uint32, c_int, c_void_p, c_int]
        library.cotenant_segment_steer.argtypes = [c_void_p, c_int, c_int]
        why = ctypes.create_string_buffer(512)
        address = library.cotenant_segment_open(os.fsencode(path), 0, why, len(why))
        if not address:
            raise segment.BadSegment(why.value.decode(errors="replace"))
        self.rows = ctypes.create_string_buffer(ROW.size * MOST_ROWS)
        self.earlier_rows = ctypes.create_string_buffer(ROW.size * MOST_ROWS)
        self.path = path
        self.file = os.lstat(path)
        self.library = library
        self.address = int(address)
        self.header = segment.Header.from_address(self.address)
        self.slots = [
            segment.Slot.from_address(self.address + segment.PLACE * (1 + index))
            for index in range(segment.SLOTS)
        ]
        self.ids: dict[tuple[int, int, int], TenantId] = {}
        self.programs: dict[TenantId, str] = {}
        self.next_id = 1

    def close(self) -> None:
        self.library.cotenant_segment_close(self.address)

    def is_current(self) -> bool:
        """Whether new tenants still find this segment under its name."""
        try:
            return os.path.samestat(self.file, os.lstat(self.path))
        except OSError:
            return False

    @property
    def policy(self) -> str:
        name = bytes(self.header.policy).decode(errors="replace")
        # Only root or this very user can name what is executed here: no other user's segment is read.
        is_file = os.sep in name or ".py" in name
        return "" if is_file and not segment.is_trusted(self.file) else name

    @policy.setter
    def policy(self, name: str) -> None:
        self.header.policy = name.encode()

    @property
    def choices(self) -> int:
        """How often a policy was named."""
        return int(self.header.choices)

    def gpus(self) -> list[int]:
        return [number for number, gpu in enumerate(self.header.gpus) if gpu.known == segment.GPU_VALID]

    def uuids(self) -> dict[int, str]:
        return {number: segment.uuid_text(bytes(self.header.gpus[number].uuid)) for number in self.gpus()}

    def look(self) -> Look:
        """At the live tenants. One whose owner died is freed on the way, and what it kept closed opened."""
        live = c_int()
        now_ns = segment.now_ns()
        count = self.library.cotenant_segment_look(
            self.address, now_ns, self.rows, self.earlier_rows, MOST_ROWS, ctypes.byref(live)
        )
        look = Look(live.value)
        tenants: dict[int, list[Tenant]] = {gpu: [] for gpu in self.gpus()}
        look.places = {gpu: [] for gpu in tenants}
        ids = self.ids
        self.ids = {}
        rows = ROW.iter_unpack(memoryview(self.rows)[: count * ROW.size])
        for row in map(wire.Row._make, rows):
            gpu = row.gpu
            if gpu not in tenants:
                continue  # it has become known in this moment
            key = (row.slot, row.started, row.pid)
            number = ids.get(key) or self.ids.get(key)
            if number is None:
                number = self.next_id
                self.next_id += 1
                self.programs[number] = self.program(row.slot)
            self.ids[key] = number
            look.places[gpu].append(Place(number, row))
            # As Tenant(...) would do it, in a tenth of the time.
            tenant = Tenant.__new__(Tenant)
            about = tenant.__dict__
            about["id"] = number
            about["tenant_class"] = CLASSES[row.tenant_class]
            about["weight"] = border.weight(row.weight)
            about["slowdown"] = border.slowdown(row.slowdown)
            about["floor"] = border.floor(row.floor)
            about["has_work"] = row.has_work != 0
            about["is_held"] = row.is_held != 0
            about["used_us"] = row.used_ns / 1000
            about["busy_us"] = row.busy_ns / 1000
            about["gap_us"] = min(row.gap_ns, row.busy_ns) / 1000
            about["blocked_us"] = row.blocked_ns / 1000
            about["blocking_calls"] = row.blocking_calls
            about["own_cpu_us"] = row.own_cpu_ns / 1000
            about["asleep_us"] = row.asleep_ns / 1000
            about["operations"] = row.operations
            about["bursts"] = row.bursts
            about["in_flight_us"] = float(row.in_flight_us)
            about["moved_us"] = row.moved_ns / 1000
            about["mps_daemon"] = row.mps_daemon
            about["profiled_kernels"] = row.profiled_kernels
            about["unprofiled_kernels"] = row.unprofiled_kernels
            about["takes_sm_share"] = row.sms_refused == 0
            about["program"] = self.programs[number]
            tenants[gpu].append(tenant)
        if len(self.programs) > len(self.ids):
            living = set(self.ids.values())
            self.programs = {one: name for one, name in self.programs.items() if one in living}
        look.views = {gpu: View(now_ns / 1000, found) for gpu, found in tenants.items()}
        return look

    def program(self, index: int) -> str:
        """The name of a tenant's job. In a segment of several users, whose names may be the same, with the user's
        number."""
        slot = self.slots[index]
        name = printable((slot.job or slot.name).decode(errors="replace"))
        return f"{slot.uid}:{name}"[:LONGEST_PROGRAM] if self.is_shared and name else name

    def limit_sms(self, gpu: int, row: wire.Row, sm_share: float | None, until_ns: int) -> None:
        """Writes the share of the SMs that a tenant's kernels get; all of them are no limit."""
        sms = 0 if sm_share is None or sm_share >= 1 else thousandths(sm_share)
        if not sms and not row.sms:
            return
        here = self.slots[row.slot].gpus[gpu]
        here.sms, here.sms_until_ns = sms, until_ns if sms else 0
        if self.is_shared:
            segment.wire_library().cotenant_segment_steer(self.address, row.slot, gpu)

    def note_outsiders(self, gpu: int, are_there: bool) -> None:
        """Processes that are no tenants use this GPU's SMs: what a tenant's time slice depends on (time_slices.h)."""
        until_ns = segment.now_ns() + round(OUTSIDERS_SECONDS * 1e9) if are_there else 0
        self.header.gpus[gpu].outsiders_until_ns = until_ns

    def sleep(self, most_ms: int, choices: int, signals: Sequence[int]) -> int:
        """Until a tenant has work, comes or goes, or a policy is named; the signal that ended it, or 0."""
        wanted = (c_int * len(signals))(*signals)
        return int(self.library.cotenant_segment_sleep(self.address, choices, most_ms, wanted, len(signals)))

    def turn(
        self, gpu: int, places: Iterable[Place], knobs: Mapping[TenantId, TenantKnobs], hold_ns: int
    ) -> None:
        """Writes what the controller wants of each tenant; its gates are looked at again where that has changed."""
        changed = False
        until = segment.now_ns() + hold_ns
        for number, row in places:
            was_shut, was_tolerant, was_rate = row.shut_until_ns, row.tolerant_until_ns, row.rate
            wanted = knobs.get(number, NO_KNOBS)
            self.limit_sms(gpu, row, wanted.sm_share, until)
            if wanted is NO_KNOBS and not (was_shut or was_tolerant or was_rate):
                continue
            here = self.slots[row.slot].gpus[gpu]
            rate = 0 if wanted.rate is None else thousandths(wanted.rate)
            changed |= bool(was_shut) != wanted.shut or bool(was_tolerant) != wanted.tolerant
            if wanted.shut or was_shut:
                here.shut_until_ns = until if wanted.shut else 0
            if wanted.tolerant or was_tolerant:
                here.tolerant_until_ns = until if wanted.tolerant else 0
            if rate or was_rate:
                here.rate, here.rate_until_ns = rate, until if rate else 0
            is_touched = wanted.shut or was_shut or wanted.tolerant or was_tolerant or rate or was_rate
            if self.is_shared and is_touched:
                self.library.cotenant_segment_steer(self.address, row.slot, gpu)
        if changed:
            self.refresh_gates(gpu)

    def turn_all(self, wanted: Iterable[Knobs]) -> None:
        """The knobs that all GPUs of a segment share: where their controllers differ the smallest counts."""
        every = list(wanted)
        if not every:
            return
        knobs, knobs_of_rule = self.header.knobs, self.header.parameters
        for name, default in DEFAULTS.items():
            values = [default if (value := getattr(one, name)) is None else value for one in every]
            # 0 says nothing: the tenants learn it.
            smallest = round(min((value for value in values if value), default=0))
            if getattr(knobs, name) != smallest:
                setattr(knobs, name, smallest)
        for place, value in enumerate(every[0].parameters):
            bits = c_uint32.from_buffer_copy(c_float(value)).value
            if knobs_of_rule[place] != bits:
                knobs_of_rule[place] = bits
        rule = int(every[0].rule)
        if knobs.rule != rule:
            knobs.rule = rule
            for gpu in self.gpus():
                self.refresh_gates(gpu)

    def reset(self) -> None:
        """Takes back what was set for each tenant; the rule stays."""
        for gpu, places in self.look().places.items():
            self.turn(gpu, places, {}, 0)

    def refresh_gates(self, gpu: int) -> None:
        self.library.cotenant_segment_refresh_gates(self.address, gpu)
