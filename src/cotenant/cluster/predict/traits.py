"""What the regression sees of a job: a few shares between 0 and 1, from its recorded operations. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.simulator.workload import OpKind, Program

LONG_US = 1000.0  # a kernel that is long against the driver's time slice of 2 ms


@dataclass(frozen=True, slots=True)
class Traits:
    busy: float  # of its time alone, the part in which it has an operation on the GPU
    idle_inside: float  # of a request's time alone, the part in which its CPU keeps the GPU waiting
    long_kernels: float  # of its GPU time, the part in kernels of a millisecond or more
    host_copies: float  # of its GPU time, the part in copies to and from the host


def traits_of(program: Program, busy: float, service_us: float) -> Traits:
    """`busy` and the length of a request alone (`service_us`) are the simulator's."""
    ops = program.ops
    us = ops["us"].astype(np.float64)
    whole = max(float(us.sum()), 1e-9)
    is_copy = np.isin(ops["kind"], (OpKind.copy_to_device, OpKind.copy_to_host))
    is_long = (ops["kind"] == OpKind.kernel) & (us >= LONG_US)
    request_us = whole / max(1, len(program.request_ends))
    return Traits(
        busy=min(1.0, busy),
        idle_inside=min(1.0, max(0.0, 1 - request_us / service_us)) if service_us > 0 else 0.0,
        long_kernels=float(us[is_long].sum()) / whole,
        host_copies=float(us[is_copy].sum()) / whole,
    )
