"""The segment as the daemon has it: what controllers may see, taken from the live slots, and where knobs are written.

Fields are read and written one by one where they lie in shared memory. Each is a word that the native side loads and
stores atomically; so does ctypes, for it lies aligned. In which order others see what ctypes stores is settled by the
next call of the native library only.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from ctypes import c_char_p, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from pathlib import Path

from cotenant import segment
from cotenant.classes import TenantClass
from cotenant.policies.interface import Knobs, Tenant, TenantId, TenantKnobs, View

# As native/wire/segment.cpp makes a new segment; tests/test_daemon.py holds them equal.
DEFAULTS = {"gate_every_us": 100, "in_flight_us": 50_000, "turn_us": 20_000}
NO_KNOBS = TenantKnobs()
MOVING = (segment.Where.leaving, segment.Where.returning)


@dataclass(frozen=True, slots=True)
class Member:
    """A live slot."""

    index: int
    id: TenantId
    slot: segment.Slot


class Attachment:
    def __init__(self, path: Path) -> None:
        """Raises BadSegment."""
        library = segment.wire_library()
        library.cotenant_segment_open.argtypes = [c_char_p, c_int, c_char_p, c_size_t]
        library.cotenant_segment_open.restype = c_void_p
        library.cotenant_segment_close.argtypes = [c_void_p]
        library.cotenant_segment_bury_the_dead.argtypes = [c_void_p]
        library.cotenant_segment_refresh_gates.argtypes = [c_void_p, c_int]
        library.cotenant_segment_members.argtypes = [c_void_p, c_void_p]
        library.cotenant_segment_steer.argtypes = [c_void_p, c_int, c_int]
        why = ctypes.create_string_buffer(512)
        address = library.cotenant_segment_open(os.fsencode(path), 0, why, len(why))
        if not address:
            raise segment.BadSegment(why.value.decode(errors="replace"))
        self.is_shared = path.is_dir()
        if self.is_shared and not os.access(path / "header", os.W_OK):
            raise segment.BadSegment(f"{path} belongs to its administrator, whose daemon looks after it")
        self.words = (ctypes.c_uint64 * (segment.SLOTS // 64))()
        self.path = path
        self.file = os.stat(path)
        self.library = library
        self.address = int(address)
        self.header = segment.Header.from_address(self.address)
        self.slots = [
            segment.Slot.from_address(self.address + segment.PAGE * (1 + index))
            for index in range(segment.SLOTS)
        ]
        self.ids: dict[tuple[int, int, int], TenantId] = {}
        self.next_id = 1

    def close(self) -> None:
        self.library.cotenant_segment_close(self.address)

    def is_current(self) -> bool:
        """Whether new tenants still find this segment under its name."""
        try:
            return os.path.samestat(self.file, os.stat(self.path))
        except OSError:
            return False

    @property
    def policy(self) -> str:
        return bytes(self.header.policy).decode(errors="replace")

    @policy.setter
    def policy(self, name: str) -> None:
        self.header.policy = name.encode()

    def members(self) -> list[Member]:
        """The live tenants. One whose owner died is freed on the way, and what it kept closed opened."""
        found, lost = [], False
        for index in self.taken():
            slot = self.slots[index]
            if segment.is_live(slot):
                found.append(Member(index, self.id_of(index, slot), slot))
            lost |= bool(slot.owner & segment.OWNER_DIED)
        if lost:
            self.library.cotenant_segment_bury_the_dead(self.address)
        if len(self.ids) > len(found):
            living = {member.id for member in found}
            self.ids = {key: number for key, number in self.ids.items() if number in living}
        return found

    def taken(self) -> Iterator[int]:
        self.library.cotenant_segment_members(self.address, self.words)
        for word in range(segment.SLOTS // 64):
            bits = self.words[word]
            while bits:
                lowest = bits & -bits
                yield word * 64 + lowest.bit_length() - 1
                bits ^= lowest

    def id_of(self, index: int, slot: segment.Slot) -> TenantId:
        key = (index, slot.started, slot.pid)
        number = self.ids.get(key)
        if number is None:
            number = self.ids[key] = self.next_id
            self.next_id += 1
        return number

    def gpus(self) -> list[int]:
        return [number for number, gpu in enumerate(self.header.gpus) if gpu.known == segment.GPU_VALID]

    def view(self, gpu: int, members: Iterable[Member]) -> View:
        now_ns = time.monotonic_ns()
        stale_ns = self.header.knobs.stale_ms * 1_000_000
        tenants = []
        for member in members:
            slot, residence = member.slot, member.slot.residence
            here, figures = slot.gpus[gpu], slot.gpus[gpu].figures
            bursts, tenant_class = figures.bursts, slot.tenant_class
            if tenant_class >= segment.CLASSES or not (bursts or here.busy):
                continue
            tenants.append(
                Tenant(
                    member.id,
                    TenantClass(tenant_class),
                    weight=slot.weight / 1000,
                    slowdown=slot.slowdown / 1000 or None,
                    floor=slot.floor / 1000,
                    # A stopped process has work and does none.
                    has_work=bool(here.busy) and now_ns - slot.heartbeat_ns < stale_ns,
                    is_held=here.gate != segment.GATE_OPEN,
                    used_us=here.used_ns / 1000,
                    busy_us=here.busy_ns / 1000,
                    operations=figures.kernels + figures.graphs + figures.copies + figures.memory_ops,
                    bursts=bursts,
                    in_flight_us=here.in_flight_us,
                    # A move that began and ended between two looks is seen too: since then it is where it is.
                    moved_us=(now_ns if residence.where in MOVING else residence.since_ns) / 1000,
                )
            )
        return View(now_ns / 1000, tenants)

    def turn(
        self, gpu: int, members: Iterable[Member], knobs: Mapping[TenantId, TenantKnobs], hold_ns: int
    ) -> None:
        """Writes what the controller wants of each tenant; its gates are looked at again where that has changed."""
        changed = False
        until = time.monotonic_ns() + hold_ns
        for member in members:
            here, wanted = member.slot.gpus[gpu], knobs.get(member.id, NO_KNOBS)
            rate = 0 if wanted.rate is None else max(1, round(1000 * min(wanted.rate, 1.0)))
            was_shut, was_tolerant, was_rate = here.shut_until_ns, here.tolerant_until_ns, here.rate
            changed |= bool(was_shut) != wanted.shut or bool(was_tolerant) != wanted.tolerant
            if wanted.shut or was_shut:
                here.shut_until_ns = until if wanted.shut else 0
            if wanted.tolerant or was_tolerant:
                here.tolerant_until_ns = until if wanted.tolerant else 0
            if here.rate != rate:
                here.rate = rate
            if self.is_shared and (
                wanted.shut or was_shut or wanted.tolerant or was_tolerant or rate != was_rate
            ):
                self.library.cotenant_segment_steer(self.address, member.index, gpu)
        if changed:
            self.refresh_gates(gpu)

    def turn_all(self, wanted: Iterable[Knobs]) -> None:
        """The knobs that all GPUs of a segment share: where their controllers differ the smallest counts."""
        every = list(wanted)
        if not every:
            return
        knobs = self.header.knobs
        for name, default in DEFAULTS.items():
            values = [default if (value := getattr(one, name)) is None else value for one in every]
            if getattr(knobs, name) != min(values):
                setattr(knobs, name, min(values))
        rule = int(every[0].rule)
        if knobs.rule != rule:
            knobs.rule = rule
            for gpu in self.gpus():
                self.refresh_gates(gpu)

    def reset(self) -> None:
        """Takes back what was set for each tenant; the rule stays."""
        for member in self.members():
            for gpu in self.gpus():
                self.turn(gpu, [member], {}, 0)

    def refresh_gates(self, gpu: int) -> None:
        self.library.cotenant_segment_refresh_gates(self.address, gpu)
