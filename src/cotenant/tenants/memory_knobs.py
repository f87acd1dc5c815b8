"""The knobs of all tenants where memory is short: how much of each GPU they share, what is kept free, how much host
memory they may pin, how long a restored tenant stays. They are in the segment's header; native/admission/arbiter.h says
what they mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cotenant import segment
from cotenant.errors import Problem


@dataclass(frozen=True)
class Change:
    """None: as it is. 0: the default. Headroom is 1 + bytes."""

    capacity: int | None = None
    headroom: int | None = None
    host_memory: int | None = None
    stay_ms: int | None = None

    def __bool__(self) -> bool:
        return self != Change()


def change(path: Path, wanted: Change) -> None:
    try:
        with segment.open(path).writable_header() as header:
            apply(header, wanted)
            segment.seal(header)
    except FileNotFoundError:
        raise Problem(f"there is no segment {path}", "the first `cotenant run` creates it") from None
    except PermissionError:
        raise Problem(f"{path} is not writable", "only its owner can change it") from None
    except segment.BadSegment as error:
        raise Problem(str(error), segment.remedy(path)) from None


def in_words(wanted: Change) -> Iterator[str]:
    from cotenant.units import size_shown

    if wanted.capacity is not None:
        yield f"the tenants share {size_shown(wanted.capacity) if wanted.capacity else 'all'} of each GPU's memory"
    if wanted.headroom is not None:
        kept = size_shown(wanted.headroom - 1) if wanted.headroom else "5 % and at most 1G"
        yield f"{kept} of it are kept free for the higher classes"
    if wanted.host_memory is not None:
        most = size_shown(wanted.host_memory) if wanted.host_memory else "a quarter of the machine's memory"
        yield f"the tenants pin up to {most} on the host"
    if wanted.stay_ms is not None:
        length = (
            f"{wanted.stay_ms} ms" if wanted.stay_ms else "ten times as long as its eviction and restore take"
        )
        yield f"a restored tenant stays for {length}"


def apply(header: segment.Header, wanted: Change) -> None:
    if wanted.capacity is not None:
        known = [gpu for gpu in header.gpus if gpu.known == segment.GPU_VALID]
        if not known:
            raise Problem("no GPU has been used yet", "set COTENANT_CAPACITY for the first `cotenant run`")
        for gpu in known:
            gpu.capacity = wanted.capacity
    if wanted.headroom is not None:
        header.memory_knobs.headroom = wanted.headroom
    if wanted.host_memory is not None:
        header.memory_knobs.host_memory = wanted.host_memory
    if wanted.stay_ms is not None:
        header.memory_knobs.stay_ms = wanted.stay_ms
