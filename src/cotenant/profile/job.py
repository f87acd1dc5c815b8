"""What a whole job is like: what `run --share auto` and `mig plan` go by. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cotenant.profile.columns import KernelClass
from cotenant.profile.kernel import Kernel

SHORTEST_SECONDS = 0.2  # at work, of a profile that says something of the job as a whole


@dataclass(frozen=True, slots=True)
class Job:
    """On one model of GPU. The newest profile counts whole."""

    seconds: float  # at work
    filled: float | None  # share of these in which it did not wait for its own CPU; None: not known
    sms: (
        float | None
    )  # share of the GPU's SMs that its kernels fill, averaged over their time; None: not known
    memory_bytes: int  # that it allocated at most
    gpu_bytes: int  # that the GPU has
    classes: Mapping[str, float]  # share of its kernels' time, by class
    tensor: float  # the same, on tensor cores
    seen: str = ""
    rest_us: float | None = (
        None  # that its kernels have left at a random moment, in the mean; None: not known
    )


def rest_us(kernels: Sequence[Kernel]) -> float | None:
    """The longer a kernel, the likelier it runs at that moment: the sum of squares by twice the sum. How long the
    kernels inside a graph are is not known."""
    timed = [one for one in kernels if one.kind == "kernel" and one.total_us > 0]
    whole = sum(one.total_us for one in timed)
    return sum(one.total_us * one.mean_us for one in timed) / (2 * whole) if whole else None


def sms_filled(kernels: Sequence[Kernel], gpu_sms: int) -> float | None:
    known = [one for one in kernels if one.sms and one.total_us > 0]
    whole = sum(one.total_us for one in known)
    if not whole or not gpu_sms:
        return None
    return sum(one.total_us * min(one.sms / gpu_sms, 1.0) for one in known) / whole


def by_class(kernels: Sequence[Kernel]) -> tuple[dict[str, float], float]:
    """The shares of the time by class, and that on tensor cores."""
    whole = sum(one.total_us for one in kernels) or 1.0
    shares = {
        kind.name: sum(one.total_us for one in kernels if one.columns.kernel_class is kind) / whole
        for kind in KernelClass
    }
    return shares, sum(one.total_us for one in kernels if one.columns.tensor) / whole


def as_json(job: Job) -> dict[str, Any]:
    return asdict(job)


def from_json(values: Mapping[str, Any]) -> Job:
    """Raises ValueError, KeyError or TypeError for what no writer has written."""

    def share(name: str) -> float | None:
        return None if values[name] is None else float(values[name])

    return Job(
        seconds=float(values["seconds"]),
        filled=share("filled"),
        sms=share("sms"),
        memory_bytes=int(values["memory_bytes"]),
        gpu_bytes=int(values["gpu_bytes"]),
        classes={str(name): float(part) for name, part in dict(values["classes"]).items()},
        tensor=float(values["tensor"]),
        seen=str(values["seen"]),
        rest_us=share("rest_us") if "rest_us" in values else None,
    )
