"""What a segment says at one moment: its GPUs, and its live tenants with what each does on each of them."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotenant.segment.layout import (
    FIGURES,
    PLACE,
    SEGMENT_BYTES,
    BadSegment,
    check_header,
    is_live,
    uuid_text,
)
from cotenant.segment.pids import process_of, seen
from cotenant.segment.refusals import Refusal
from cotenant.segment.requests import asked_of
from cotenant.segment.wire import (
    DEFAULT_STALE_MS,
    GATE_OPEN,
    GPU_VALID,
    OWNER_DIED,
    Busy,
    Header,
    Residence,
    Rule,
    Slot,
    Where,
)
from cotenant.terminal import printable


@dataclass(frozen=True)
class Use:
    """What one tenant does on one GPU. A field that has the name of a word of OnGpu or Memory (wire.h) is that word."""

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
    sms: int = 0  # thousandths of the SMs that the policy gives its kernels until then; 0: all
    sms_until_ns: int = 0
    sms_now: int = 0  # SMs that its kernels get; 0: all
    detours: int = 0  # kernels that were launched into so many
    undetoured: int = 0  # and those that meanwhile were not
    below_floor: bool = False
    memory_bytes: int = 0
    driver_bytes: int = 0  # of these, contexts, modules and what else the driver took by itself
    refused: int = 0  # allocations that the memory limit did not allow
    movable_bytes: int = 0  # of memory_bytes, what can go to host memory; the rest is pinned
    # Of one that passes no gates: see cotenant.tenants.breakdown.
    waits: int = 0
    waited_ns: int = 0
    gap_ns: int = 0
    blocking_calls: int = 0
    blocked_ns: int = 0
    own_cpu_ns: int = 0
    asleep_ns: int = 0
    operation_ns: int = 0
    operation_alone_ns: int = 0
    # Of one that takes turns with equals.
    switch_us: int = 0  # what a switch to it from an equal was measured to cost; 0: none was
    turn_us: int = 0  # how much it executes in a turn; 0: it has taken none
    preemptions: int = 0  # its gate was closed while it had work
    wait_counts: tuple[int, ...] = ()  # of its waits for the GPU, by length (cotenant.tenants.waits)
    wait_sum_ns: int = 0
    # Long copies between host and GPU wait at a gate of their own (native/admission/bus.h).
    copies_gated: bool = False
    only_copies: bool = (
        False  # its gate is closed, and all the work that it has waits at the other or has passed it
    )
    copying: bool = False  # the copies of lower classes wait for its own

    @property
    def held(self) -> bool:
        """Whether the gate of what it has, or would have, is closed."""
        return self.copies_gated if self.only_copies else self.gated


@dataclass(frozen=True)
class Tenant:
    """One process. A field that has the name of a word of Slot or Residence (wire.h) is that word."""

    pid: int  # in this process's PID namespace (pids.py)
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
    sms: int = 0  # thousandths of a GPU's SMs that its kernels get; 0: all
    sms_refused: int = 0  # why it cannot be given fewer (native/tenant/detour.h); 0: it can
    job: str = ""  # the name of its run; the program's where none was given
    mps_daemon: int = 0  # in which its contexts live; 0: in none
    mps_fault: int = 0  # the CUDA error with which they have failed there
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
    evictions: int = 0
    transfer_ns: int = 0  # its last eviction and restore together
    eviction_ns: int = 0  # and of that the eviction
    host_pinned_bytes: int = 0  # host memory that it has pinned for evictions
    own_pid: int = 0  # in its own PID namespace, as the daemon's report has it
    is_elsewhere: bool = False  # its process cannot be seen from here, and `pid` is its own number
    saved_bytes: int = 0  # copied to the host, ever
    dropped_bytes: int = 0  # and not copied, as the program had no use for them
    timeline: int = 0  # 1 + the descriptor of its ring (cotenant.timeline.rings); 0: it has none
    lane: int = 0  # its number among the lanes of its process, from 1; 0: it is the process's own tenant
    process: int = 0  # the process that it is, or is a lane of; as `pid`

    def __post_init__(self) -> None:
        if not self.own_pid:
            object.__setattr__(self, "own_pid", self.pid)
        if not self.process:
            object.__setattr__(self, "process", self.pid)

    @property
    def is_here(self) -> bool:
        return not self.is_elsewhere


NO_KNOBS: Mapping[str, tuple[int, ...]] = {
    "capacity": (),
    "headroom": (0,),
    "host_memory": (0,),
    "stay": (0,),
}


@dataclass(frozen=True)
class Snapshot:
    gpus: dict[int, str]
    tenants: tuple[Tenant, ...]
    lost: int  # slots whose owner died and that no tenant has reaped yet
    policy: str = ""  # that was chosen; empty: the default
    rule: int = Rule.strict
    stale_ms: int = DEFAULT_STALE_MS
    # By name, 0 for what nobody has set: of `capacity` one for each GPU, of the others one. Headroom is 1 + bytes.
    memory_knobs: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=lambda: dict(NO_KNOBS))


def snapshot_of(memory: bytes, path: Path, is_shared: bool = False) -> Snapshot:
    """`is_shared`: the slots' users are those of their files, whatever the tenants say."""
    if len(memory) < ctypes.sizeof(Header):
        raise BadSegment(f"{path} is not a Cotenant segment")
    header = Header.from_buffer_copy(memory[: ctypes.sizeof(Header)])
    check_header(header, path)
    if len(memory) != SEGMENT_BYTES:
        raise BadSegment(f"{path} is not a Cotenant segment: it is {len(memory)} bytes long")
    gpus = {i: uuid_text(bytes(gpu.uuid)) for i, gpu in enumerate(header.gpus) if gpu.known == GPU_VALID}
    tenants, lost = [], 0
    for at in range(PLACE, SEGMENT_BYTES, PLACE):
        if not memory[at : at + Slot.owner.size].strip(b"\0"):
            continue
        slot = Slot.from_buffer_copy(memory, at)
        lost += bool(slot.owner & OWNER_DIED)
        if is_live(slot):
            tenants.append(tenant_in(slot, gpus, is_shared))
    policy = printable(header.policy.decode(errors="replace"))
    knobs = memory_knobs_in(header)
    return Snapshot(gpus, tuple(tenants), lost, policy, header.knobs.rule, header.knobs.stale_ms, knobs)


def memory_knobs_in(header: Header) -> dict[str, tuple[int, ...]]:
    memory = header.memory_knobs
    return {
        "capacity": tuple(gpu.capacity for gpu in header.gpus if gpu.known == GPU_VALID),
        "headroom": (memory.headroom,),
        "host_memory": (memory.host_memory,),
        "stay": (memory.stay_ms,),
    }


def tenant_in(slot: Slot, gpus: dict[int, str], is_shared: bool = False) -> Tenant:
    residence = slot.residence
    moved = words(residence, Tenant)
    if not residence.waiting_since_ns:
        moved["wanted_bytes"] = 0
    program = printable(slot.name.decode(errors="replace"))
    here = seen(slot.pid, slot.pid_namespace, slot.started)
    made = {
        "pid": here.pid,
        "own_pid": slot.pid,
        "is_elsewhere": not here.is_here,
        "process": process_of(here.pid, slot.started) if slot.lane and here.is_here else here.pid,
        "uid": slot.uid if here.uid is None or is_shared else here.uid,
        "program": program,
        "job": printable(slot.job.decode(errors="replace")) or program,
        "run_id": bytes(slot.run_id).hex(),
        "uses": tuple(uses_of(slot, gpus)),
        "asked": tuple(asked_of(slot)),
        "where": where_of(residence),
        "refusal": Refusal.of(residence.refusal),
    }
    return Tenant(**(words(slot, Tenant) | moved | made))


def where_of(residence: Residence) -> Where:
    try:
        return Where(residence.where)
    except ValueError:  # a tenant writes its own slot as it likes
        return Where.pinned


def uses_of(slot: Slot, gpus: dict[int, str]) -> Iterator[Use]:
    for number, uuid in gpus.items():
        on, pace, waiting = slot.gpus[number], slot.pace[number], slot.waiting[number]
        figures = {name: int(getattr(on.figures, name)) for name in FIGURES}
        if on.busy or on.memory_bytes or any(figures.values()):
            made = {
                "gpu": number,
                "uuid": uuid,
                "gated": on.gate != GATE_OPEN,
                "figures": figures,
                "own_cpu_ns": slot.own[number].cpu_ns,
                "asleep_ns": slot.own[number].asleep_ns,
                "operation_ns": pace.now_ns,
                "operation_alone_ns": pace.alone_ns,
                "preemptions": waiting.preemptions,
                "wait_counts": tuple(waiting.counts),
                "wait_sum_ns": waiting.sum_ns,
                "copies_gated": slot.copy_gates[number] != GATE_OPEN,
                "only_copies": bool(on.busy) and on.gate != GATE_OPEN and not on.ready,
                "copying": on.busy == Busy.copying,
            }
            yield Use(**(words(on, Use) | words(slot.memory[number], Use) | made))


def words(structure: ctypes.Structure, into: type) -> dict[str, Any]:
    """What a structure holds for the fields of a dataclass that have its words' names."""
    return {
        name: bool(getattr(structure, name)) if is_flag else getattr(structure, name)
        for name, is_flag in words_for(type(structure), into)
    }


@functools.cache
def words_for(structure: type[ctypes.Structure], into: type) -> list[tuple[str, bool]]:
    words = {name for name, *_ in structure._fields_}
    return [(one.name, one.type == "bool") for one in dataclasses.fields(into) if one.name in words]
