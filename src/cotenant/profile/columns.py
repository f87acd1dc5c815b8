"""What a profile says of a kernel beside its time and its SMs: its class and its throughput."""

from __future__ import annotations

import enum
from dataclasses import dataclass

# A kernel whose compute or memory throughput is over this share of the GPU's is bound by it (Orion, EuroSys 2024).
BOUND = 0.6


class KernelClass(enum.IntEnum):
    """What limits it. The first three have the values of `Bound` in native/admission/moment.h."""

    unknown = 0  # nothing is known, or neither compute nor memory limits it
    compute = 1
    memory = 2
    copy = 3


@dataclass(frozen=True, slots=True)
class Columns:
    kernel_class: KernelClass = KernelClass.unknown
    tensor: bool = False  # it works on tensor cores
    measured: bool = False  # by the GPU's counters; else all of this is an estimate
    compute: float | None = None  # share of the GPU's compute throughput, 0 to 1; None: not known
    memory_gbps: float | None = None  # of the GPU's memory; None: not known


def class_by_throughput(compute: float | None, memory: float | None) -> KernelClass:
    """Of shares of the GPU's. Where both are high, the higher one limits."""
    compute, memory = compute or 0.0, memory or 0.0
    if max(compute, memory) < BOUND:
        return KernelClass.unknown
    return KernelClass.compute if compute >= memory else KernelClass.memory
