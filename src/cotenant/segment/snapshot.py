"""What a segment says at one moment: its GPUs, and its live tenants with what each does on each of them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cotenant.segment.layout import FIGURES, PAGE, SEGMENT_BYTES, BadSegment, check_header, is_live, uuid_text
from cotenant.segment.refusals import Refusal
from cotenant.segment.requests import asked_of
from cotenant.segment.wire import (
    DEFAULT_STALE_MS,
    GATE_OPEN,
    GPU_VALID,
    OWNER_DIED,
    Header,
    Residence,
    Rule,
    Slot,
    Where,
)
from cotenant.terminal import printable


@dataclass(frozen=True)
class Use:
    """What one tenant does on one GPU."""

    gpu: int
    uuid: str
    busy: bool
    gated: bool
    figures: dict[str, int]
    used_ns: int = 0
    busy_ns: int = 0
    in_flight_us: int = 0
    holds_turn: bool = False
    shut_until_ns: int = 0
    tolerant_until_ns: int = 0
    rate: int = 0  # thousandths; 0: no limit
    over_rate: bool = False
    below_floor: bool = False
    memory_bytes: int = 0
    driver_bytes: int = 0  # of these, contexts, modules and what else the driver took by itself
    refused: int = 0  # allocations that the memory limit did not allow
    movable_bytes: int = 0  # of memory_bytes, what can go to host memory; the rest is pinned
    # Of one that passes no gates: see cotenant.tenants.breakdown.
    waits: int = 0
    waited_ns: int = 0
    gap_ns: int = 0
    operation_ns: int = 0
    operation_alone_ns: int = 0
    # Of one that takes turns with equals.
    switch_us: int = 0  # what a switch to it from an equal was measured to cost; 0: none was
    turn_us: int = 0  # how much it executes in a turn; 0: it has taken none


@dataclass(frozen=True)
class Tenant:
    pid: int
    uid: int
    started: int
    program: str
    run_id: str
    tenant_class: int
    unknown_functions: int
    time_slice_us: int  # that the hardware gives it; 0: not known
    time_slice_refused: bool
    uses: tuple[Use, ...]
    weight: int = 1000  # thousandths, as the next two
    slowdown: int = 0  # 0: nothing was promised
    floor: int = 0
    export_tables: int = 0  # of private driver functions, handed out uncounted
    ungated_graphs: int = 0  # long ones that could not be given gates inside
    checkpoints: int = 0
    grace_us: int = 0
    heartbeat_ns: int = 0
    asked: tuple[str, ...] = ()  # what it shall change and has not yet
    memory_limit: int = 0  # as cotenant.units has it; 0: none
    host_bytes: int = 0  # of its GPU memory that lies in host memory now
    where: Where = Where.pinned
    paused: bool = False  # by hand: it stays away
    refusal: Refusal | None = None  # why its last eviction was refused
    refused_ns: int = 0
    waiting_since_ns: int = 0  # for room in the GPU's memory; 0: it does not wait
    wanted_bytes: int = 0
    times_left: int = 0
    transfer_ns: int = 0  # its last leaving and return together
    leaving_ns: int = 0  # and of that the leaving
    host_pinned: int = 0  # host memory that it has pinned for leaving
    saved_bytes: int = 0  # copied to the host, ever
    dropped_bytes: int = 0  # and not copied, as the program had no use for them


@dataclass(frozen=True)
class Snapshot:
    gpus: dict[int, str]
    tenants: tuple[Tenant, ...]
    lost: int  # slots whose owner died and that no tenant has reaped yet
    policy: str = ""  # that was chosen; empty: the default
    rule: int = Rule.strict
    stale_ms: int = DEFAULT_STALE_MS


def snapshot_of(memory: bytes, path: Path) -> Snapshot:
    if len(memory) < ctypes.sizeof(Header):
        raise BadSegment(f"{path} is not a Cotenant segment")
    header = Header.from_buffer_copy(memory[: ctypes.sizeof(Header)])
    check_header(header, path)
    if len(memory) != SEGMENT_BYTES:
        raise BadSegment(f"{path} is not a Cotenant segment: it is {len(memory)} bytes long")
    gpus = {i: uuid_text(bytes(gpu.uuid)) for i, gpu in enumerate(header.gpus) if gpu.known == GPU_VALID}
    tenants, lost = [], 0
    for at in range(PAGE, SEGMENT_BYTES, PAGE):
        slot = Slot.from_buffer_copy(memory, at)
        lost += bool(slot.owner & OWNER_DIED)
        if is_live(slot):
            tenants.append(tenant_in(slot, gpus))
    policy = printable(header.policy.decode(errors="replace"))
    return Snapshot(gpus, tuple(tenants), lost, policy, header.knobs.rule, header.knobs.stale_ms)


def tenant_in(slot: Slot, gpus: dict[int, str]) -> Tenant:
    return Tenant(
        pid=slot.pid,
        uid=slot.uid,
        started=slot.started,
        program=printable(slot.name.decode(errors="replace")),
        run_id=bytes(slot.run_id).hex(),
        tenant_class=slot.tenant_class,
        unknown_functions=slot.unknown_functions,
        export_tables=slot.export_tables,
        ungated_graphs=slot.ungated_graphs,
        checkpoints=slot.checkpoints,
        time_slice_us=slot.time_slice_us,
        time_slice_refused=bool(slot.time_slice_refused),
        uses=tuple(uses_of(slot, gpus)),
        weight=slot.weight,
        slowdown=slot.slowdown,
        floor=slot.floor,
        grace_us=slot.grace_us,
        heartbeat_ns=slot.heartbeat_ns,
        asked=tuple(asked_of(slot)),
        memory_limit=slot.memory_limit,
        host_bytes=slot.host_bytes,
        where=where_of(slot.residence),
        paused=bool(slot.residence.paused),
        refusal=Refusal.of(slot.residence.refusal),
        refused_ns=slot.residence.refused_ns,
        waiting_since_ns=slot.residence.waiting_since_ns,
        wanted_bytes=slot.residence.wanted_bytes if slot.residence.waiting_since_ns else 0,
        times_left=slot.residence.times_left,
        transfer_ns=slot.residence.transfer_ns,
        leaving_ns=slot.residence.leaving_ns,
        host_pinned=slot.residence.host_pinned,
        saved_bytes=slot.residence.saved_bytes,
        dropped_bytes=slot.residence.dropped_bytes,
    )


def where_of(residence: Residence) -> Where:
    try:
        return Where(residence.where)
    except ValueError:  # a tenant writes its own slot as it likes
        return Where.pinned


def uses_of(slot: Slot, gpus: dict[int, str]) -> Iterator[Use]:
    for number, uuid in gpus.items():
        on = slot.gpus[number]
        figures = {name: int(getattr(on.figures, name)) for name in FIGURES}
        if on.busy or on.memory_bytes or any(figures.values()):
            yield Use(
                number,
                uuid,
                bool(on.busy),
                on.gate != GATE_OPEN,
                figures,
                on.used_ns,
                on.busy_ns,
                on.in_flight_us,
                bool(on.holds_turn),
                on.shut_until_ns,
                on.tolerant_until_ns,
                on.rate,
                bool(on.over_rate),
                bool(on.below_floor),
                on.memory_bytes,
                slot.memory[number].driver_bytes,
                slot.memory[number].refused,
                slot.memory[number].movable_bytes,
                on.waits,
                on.waited_ns,
                on.gap_ns,
                slot.pace[number].now_ns,
                slot.pace[number].alone_ns,
                on.switch_us,
                on.turn_us,
            )
