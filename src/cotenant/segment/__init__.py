"""The memory that tenants share (native/wire/wire.h), as Python reads and writes it.

wire        the structures, written by the build from native/wire/wire.h
layout      what else is known of the bytes
snapshot    what a segment says at one moment
file        one user's segment
folder      an administrator's, for several users
grants      what the administrator allows whom
refusals    why a tenant was not evicted, and what to do about it
requests    what a tenant is asked to change to
paths       where a segment lies
library     what the native library does with one
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cotenant.segment.file import FileSegment
from cotenant.segment.folder import FolderSegment, NotYours
from cotenant.segment.interface import Segment
from cotenant.segment.layout import (
    FIGURES,
    LONGEST_POLICY_NAME,
    PLACE,
    SEGMENT_BYTES,
    BadSegment,
    is_live,
    remedy,
    uuid_text,
    version_of,
)
from cotenant.segment.library import ensure, is_in_memory, now_ns, seal, wire_library
from cotenant.segment.paths import SHARED, is_folder, is_trusted, path_for, path_to_read
from cotenant.segment.refusals import Refusal
from cotenant.segment.requests import is_process, with_pid
from cotenant.segment.snapshot import Snapshot, Tenant, Use
from cotenant.segment.wire import (
    GATE_OPEN,
    GPU_VALID,
    GPUS,
    GRANTS,
    MAGIC,
    OWNER_DIED,
    SLOTS,
    VERSION,
    Busy,
    Figures,
    Gpu,
    Header,
    Knobs,
    OnGpu,
    Slot,
    Where,
)

__all__ = [
    "FIGURES",
    "GATE_OPEN",
    "GPUS",
    "GPU_VALID",
    "GRANTS",
    "LONGEST_POLICY_NAME",
    "MAGIC",
    "OWNER_DIED",
    "PLACE",
    "SEGMENT_BYTES",
    "SHARED",
    "SLOTS",
    "VERSION",
    "BadSegment",
    "Busy",
    "Figures",
    "FileSegment",
    "FolderSegment",
    "Gpu",
    "Header",
    "Knobs",
    "NotYours",
    "OnGpu",
    "Refusal",
    "Segment",
    "Slot",
    "Snapshot",
    "Tenant",
    "Use",
    "Where",
    "ask",
    "choose_policy",
    "ensure",
    "is_folder",
    "is_in_memory",
    "is_live",
    "is_process",
    "is_trusted",
    "now_ns",
    "open",
    "path_for",
    "path_to_read",
    "read",
    "remedy",
    "seal",
    "uuid_text",
    "version_of",
    "wire_library",
    "with_pid",
]


def open(path: Path) -> Segment:
    """What lies there; where nothing does, the file that a first tenant would make."""
    return FolderSegment(path) if is_folder(path) else FileSegment(path)


def read(path: Path) -> Snapshot:
    return open(path).read()


def ask(path: Path, pid: int, wanted: Mapping[str, int]) -> bool:
    return open(path).ask(pid, wanted)


def choose_policy(path: Path, name: str) -> None:
    open(path).choose_policy(name)
