"""The memory that all tenants of one user share, as Python reads it.

The structures mirror native/wire/wire.h; tests/test_wire.py holds them equal to what the compiler says.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import mmap
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from ctypes import c_char, c_int, c_size_t, c_uint8, c_uint32, c_uint64
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Protocol, TypeVar

from cotenant.launch import native_files
from cotenant.terminal import printable

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
SHARED = Path("/dev/shm/cotenant.shared")
LONGEST_POLICY_NAME = Header.policy.size - 1


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
    tenant: str
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
    held: bool = False  # by hand: it stays away
    refusal: int = 0  # why it did not leave when it last should have: REFUSALS
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
    lost: int  # slots whose owner died and that nobody has cleared yet
    policy: str = ""  # that was chosen; empty: the default
    rule: int = 1
    stale_ms: int = 60


def path_for(environment: Mapping[str, str]) -> Path:
    given = environment.get("COTENANT_SEGMENT")
    if given:
        return Path(given).absolute()
    return administrators() or own_default()


def own_default() -> Path:
    return Path(f"/dev/shm/cotenant-{os.getuid()}.v{VERSION}")


def is_trusted(about: os.stat_result) -> bool:
    """Whether what the segment says may be believed beyond this segment: it is root's or one's own."""
    return about.st_uid in (0, os.geteuid())


def check_owner(path: Path, about: os.stat_result) -> None:
    """A stranger's segment is used only where somebody named it, not where it lies in wait; as in native/wire."""
    if not is_trusted(about) and path in (SHARED, own_default()):
        raise BadSegment(f"{path} belongs to another user")


def is_folder(path: Path) -> bool:
    """Whether it is an administrator's segment (cotenant.shared_segment). No link is followed."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def open_file(path: Path, flags: int) -> int:
    """A segment's file, or a part of a folder's. Raises FileNotFoundError, PermissionError or BadSegment."""
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, PermissionError):
        raise
    except OSError as error:
        why = "is a symbolic link" if error.errno == errno.ELOOP else f"cannot be opened: {error.strerror}"
        raise BadSegment(f"{path} {why}") from error
    about = os.fstat(descriptor)
    try:
        check_owner(path, about)
        if not stat.S_ISREG(about.st_mode):
            raise BadSegment(f"{path} is not a Cotenant segment")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def administrators() -> Path | None:
    """The segment that root has made for all users (cotenant.shared_segment); as wire::default_shared_segment."""
    try:
        about = SHARED.lstat()
    except OSError:
        return None
    is_roots = stat.S_ISDIR(about.st_mode) and about.st_uid == 0 and not about.st_mode & 0o022
    return SHARED if is_roots else None


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
        if is_folder(path):
            from cotenant import shared_segment

            return snapshot(shared_segment.contents(path), path)
        # Read, not mapped: whoever cuts a mapped file short kills its readers.
        with os.fdopen(open_file(path, os.O_RDONLY), "rb") as file:
            return snapshot(file.read(SEGMENT_BYTES), path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BadSegment(f"{path} cannot be read: {error}") from error


def ask(path: Path, pid: int, wanted: Mapping[str, int]) -> bool:
    """Writes requests into the tenant's slot (fields of Asked, "memory", "hold"); False: no tenant has this PID."""

    if is_folder(path):
        from cotenant import shared_segment

        return shared_segment.ask(path, pid, wanted)
    try:
        memory = writable(path)
    except PermissionError as error:
        raise BadSegment(f"{path} is not writable") from error
    slots = [Slot.from_buffer(memory, at) for at in range(PAGE, SEGMENT_BYTES, PAGE)]
    found = with_pid(pid, (slot for slot in slots if is_live(slot)))
    if found is not None:
        write_requests(found, wanted)
    return found is not None


def write_requests(slot: Slot, wanted: Mapping[str, int]) -> None:
    """The tenant takes them once the check word agrees with all of them."""
    for name, value in wanted.items():
        if name == "memory":
            slot.asked_memory = 1 + value
        elif name == "hold":
            slot.residence.asked_hold = 1 + value
        else:
            setattr(slot.asked, name, 1 + value)
    library = wire_library()
    library.cotenant_segment_seal_requests.argtypes = [ctypes.c_void_p]
    library.cotenant_segment_seal_requests(ctypes.addressof(slot))


def seal(header: Header) -> None:
    """After a change of what counts only with its check word: capacity, crowding, rights."""
    library = wire_library()
    library.cotenant_segment_seal.argtypes = [ctypes.c_void_p]
    library.cotenant_segment_seal(ctypes.addressof(header))


def writable(path: Path) -> mmap.mmap:
    """A segment of one file, locked against others who change it as long as it is mapped. It goes with the last that
    refers to it: closing it would take it from the caller's hands."""
    with os.fdopen(open_file(path, os.O_RDWR), "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_size != SEGMENT_BYTES:
            snapshot(file.read(SEGMENT_BYTES), path)  # says what it is instead
            raise BadSegment(f"{path} is not a Cotenant segment")
        memory = mmap.mmap(file.fileno(), SEGMENT_BYTES)
    check_header(Header.from_buffer_copy(memory), path)
    return memory


class Claimant(Protocol):
    @property
    def pid(self) -> int: ...
    @property
    def uid(self) -> int: ...
    @property
    def started(self) -> int: ...


Claims = TypeVar("Claims", bound=Claimant)


def with_pid(pid: int, candidates: Iterable[Claims]) -> Claims | None:
    """Every tenant writes its own slot: of several that claim a process, the one that it belongs to."""
    claims = [one for one in candidates if one.pid == pid]
    if len(claims) > 1:
        claims = [one for one in claims if is_process(one)]
        if len(claims) != 1:
            raise BadSegment(f"several tenants claim to be process {pid}")
    return claims[0] if claims else None


def is_process(claim: Claimant) -> bool:
    """Whether the process that this tenant claims to be is its user's, and began when it says."""
    try:
        stat_text = Path(f"/proc/{claim.pid}/stat").read_text(errors="replace")
        status = Path(f"/proc/{claim.pid}/status").read_text(errors="replace")
    except OSError:
        return False
    started = int(stat_text.rpartition(")")[2].split()[19])
    uids = next((line.split()[1:] for line in status.splitlines() if line.startswith("Uid:")), [])
    return started == claim.started and str(claim.uid) in uids


def choose_policy(path: Path, name: str) -> None:
    """For whoever turns the knobs. Raises BadSegment where it cannot be written."""
    encoded = name.encode()
    assert len(encoded) <= LONGEST_POLICY_NAME
    if is_folder(path):
        from cotenant import shared_segment

        with shared_segment.writable_header(path) as header:
            header.policy = encoded
            header.choices = (header.choices + 1) % 2**32
        return
    try:
        header = Header.from_buffer(writable(path))
        header.policy = encoded
        header.choices = (
            header.choices + 1
        ) % 2**32  # after the name: who sees it counted finds the whole name
    except PermissionError as error:
        raise BadSegment(f"{path} is not writable") from error


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


def snapshot(memory: mmap.mmap | bytes, path: Path) -> Snapshot:
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


def is_live(slot: Slot) -> bool:
    word = slot.owner
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
        held=bool(slot.residence.held),
        refusal=slot.residence.refusal,
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


def asked_of(slot: Slot) -> Iterator[str]:
    for name, *_ in Asked._fields_:
        if getattr(slot.asked, name):
            yield name
    if slot.asked_memory:
        yield "memory"
    if slot.residence.asked_hold:
        yield "hold"


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


def uuid_text(uuid: bytes) -> str:
    digits = uuid.hex()
    return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
