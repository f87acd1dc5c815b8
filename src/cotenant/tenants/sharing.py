"""How a tenant shares its GPU, in turns or by overlap in MPS, and why `cotenant run` decided so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cotenant.segment import Tenant

WHY = b"COTENANT_SHARE_WHY="


def of(tenant: Tenant) -> dict[str, Any]:
    """The reason is in the process's environment: None where that cannot be read."""
    _, _, reason = decided(tenant.pid).partition(": ")
    return {
        "share": "spatial" if tenant.mps_daemon else "turns",
        "reason": reason or None,
        "fault": tenant.mps_fault or None,
    }


def in_words(about: dict[str, Any], who: str) -> Iterator[str]:
    how = "overlaps with others in MPS" if about["share"] == "spatial" else "takes turns"
    yield f"{who} {how}" + (f": {about['reason']}" if about["reason"] else "")
    if about["fault"]:
        yield f"the MPS server of {who} has failed (CUDA error {about['fault']}): start the job again, in a new one"


def decided(pid: int) -> str:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    found = next((one for one in environment if one.startswith(WHY)), WHY)
    return found.removeprefix(WHY).decode(errors="replace")
