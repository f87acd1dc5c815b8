"""Segments written by hand, for tests of their readers."""

from __future__ import annotations

from pathlib import Path

from cotenant import segment

UUID = bytes(range(16))
UUID_TEXT = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


def check_of(*values: int) -> int:
    """As native/wire/wire.h has it; tests/test_wire.py holds them equal."""
    total = 0x636F74656E616E74
    for value in values:
        total = ((total ^ value) * 0x9E3779B97F4A7C15 & 2**64 - 1) ^ total >> 29
    return total >> 32 | 1


def sign(slot: segment.Slot) -> None:
    slot.identity_check = check_of(slot.pid, slot.started, slot.pid_namespace)


class Written:
    def __init__(self) -> None:
        self.header = segment.Header(
            magic=segment.MAGIC,
            version=segment.VERSION,
            header_bytes=segment.PLACE,
            slot_bytes=segment.PLACE,
            slots=segment.SLOTS,
        )
        self.slots: dict[int, segment.Slot] = {}

    def gpu(self, number: int, uuid: bytes) -> None:
        self.header.gpus[number].known = segment.GPU_VALID
        self.header.gpus[number].uuid[:] = uuid

    def tenant(
        self, index: int, pid: int, name: bytes = b"program", tenant_class: int = 1, owner: int | None = None
    ) -> segment.Slot:
        slot = segment.Slot(pid=pid, uid=1000, tenant_class=tenant_class, name=name)
        slot.owner = pid if owner is None else owner
        for on_gpu in slot.gpus:
            on_gpu.gate = 1
        self.slots[index] = slot
        return slot

    def bytes(self) -> bytes:
        memory = bytearray(segment.SEGMENT_BYTES)
        header = bytes(self.header)
        memory[: len(header)] = header
        for index, slot in self.slots.items():
            sign(slot)
            at = segment.PLACE * (1 + index)
            memory[at : at + len(bytes(slot))] = bytes(slot)
        return bytes(memory)

    def to(self, path: Path) -> Path:
        path.write_bytes(self.bytes())
        return path
