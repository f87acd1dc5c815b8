"""What status, explain, pause and resume return. Plain data: nothing here is read again from the running tenants."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotenant.api import field_name
from cotenant.api.figure_types import GpuFigures, OnGpuFigures, TenantFigures


@dataclass(frozen=True, kw_only=True)
class Gpu(GpuFigures):
    """A GPU of the segment, and how fast it runs."""

    gpu: int
    """The GPU's number in the segment."""
    uuid: str


@dataclass(frozen=True, kw_only=True)
class OnGpu(OnGpuFigures):
    """A tenant on one GPU that it has used."""


@dataclass(frozen=True, kw_only=True)
class Tenant(TenantFigures):
    """A tenant, with what it does on each GPU that it has used."""

    gpus: tuple[OnGpu, ...]


@dataclass(frozen=True, kw_only=True)
class Status:
    """All tenants of a segment, or those of one job."""

    segment: Path
    gpus: tuple[Gpu, ...]
    tenants: tuple[Tenant, ...]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What the policy decided about a tenant on a GPU."""

    gpu: int
    at: float
    """Seconds since the epoch."""
    text: str


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Why a tenant waits, or that it does not."""

    tenant: Tenant
    waits: dict[int, tuple[str, ...]]
    """By GPU: why it waits there, or would if it had work. A GPU on which nothing holds it back is not here."""
    policy: str
    decisions: tuple[Decision, ...]
    """The last ones that the policy took about it; none where no daemon runs."""
    text: str
    """What `cotenant explain` prints."""

    def __str__(self) -> str:
        return self.text


def fields(record: dict[str, Any]) -> dict[str, Any]:
    """A record of cotenant.figures as arguments."""
    return {
        field_name(name): tuple(value) if isinstance(value, list) else value for name, value in record.items()
    }


def tenant_of(record: dict[str, Any]) -> Tenant:
    own = {name: value for name, value in record.items() if name != "gpus"}
    return Tenant(gpus=tuple(OnGpu(**fields(here)) for here in record["gpus"]), **fields(own))
