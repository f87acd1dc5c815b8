"""What would sharing do to my jobs? GPUs in virtual time, under the same policies as live ones.

from cotenant.simulator import Arrivals, ArrivalKind, Job, Op, Workload, simulate

serving = Job("serving", ops=(Op(us=20, repeat=50),), arrivals=Arrivals(ArrivalKind.poisson, rate=200))
training = Job("training", TenantClass.opportunistic, ops=(Op(us=400, repeat=100),), waits=False)
outcome = simulate(Workload("pair", (serving, training)), "strict", seconds=10)
print(outcome.tenants[0].slowdown_p99, outcome.opportunistic_share)
"""

from __future__ import annotations

from cotenant.classes import TenantClass
from cotenant.simulator.engine import Recording
from cotenant.simulator.machine import Interference, SimulatedGpu, gpu_named
from cotenant.simulator.results import Alone, GpuOutcome, Outcome, Span, TenantOutcome, Times
from cotenant.simulator.study import Study, simulate
from cotenant.simulator.workload import ArrivalKind, Arrivals, Job, Op, OpKind, Program, Workload
from cotenant.simulator.workload_file import find_workload, shipped

__all__ = [
    "Alone",
    "ArrivalKind",
    "Arrivals",
    "GpuOutcome",
    "Interference",
    "Job",
    "Op",
    "OpKind",
    "Outcome",
    "Program",
    "Recording",
    "SimulatedGpu",
    "Span",
    "Study",
    "TenantClass",
    "TenantOutcome",
    "Times",
    "Workload",
    "find_workload",
    "gpu_named",
    "shipped",
    "simulate",
]
