"""An allocator in one segment, and the calls that wait for the first use of the GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

BLOCK = 2 << 20

segments: list[dict[str, Any]] = []
_queued: list[Callable[[], None]] = []
_initialized: list[bool] = []


def is_initialized() -> bool:
    return bool(_initialized)


def _lazy_call(call: Callable[[], None]) -> None:
    if _initialized:
        call()
    else:
        _queued.append(call)


def init() -> None:
    _initialized.append(True)
    for call in _queued:
        call()


def add_segment(address: int, states: list[str], pool: tuple[int, int] = (0, 0)) -> list[dict[str, Any]]:
    blocks = [{"size": BLOCK, "state": state} for state in states]
    segments.append({"address": address, "segment_pool_id": pool, "blocks": blocks})
    return blocks


def memory_snapshot() -> list[dict[str, Any]]:
    return segments
