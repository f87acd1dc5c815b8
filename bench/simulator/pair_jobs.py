"""The jobs of bench/pairs in the simulator's words: from their traces, recorded alone on an H200 (examples/traces)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from cotenant.policies.mps import Mps
from cotenant.simulator import ArrivalKind, Arrivals, Job, Program, TenantClass
from cotenant.simulator.trace_program import read_program

TRACES = Path(__file__).parents[2] / "examples" / "traces"
FIRST_GAP_US = 30.0  # of the CPU, from taking a request up to its first launch

SERVING = ("decode", "encoder", "vision", "training")
RATES = {"decode": 20.0, "encoder": 100.0, "vision": 40.0}
LOADER_MS = {"training": (15.0, 35.0)}
STEPS = ("gpt", "longk", "graph", "copies", "resnet")
CROWD_STEPS = (*STEPS, "eager")


def one_request(program: Program) -> Program:
    """One from the middle of a trace; the pause before it is not the job's but the arrivals'."""
    ends = program.request_ends
    middle = len(ends) // 2
    ops = program.ops[ends[middle - 1] : ends[middle]].copy()
    ops["gap_us"][0] = FIRST_GAP_US
    ops["sync"][0] = 0
    return Program(ops, np.array([len(ops)], dtype=np.uint32))


def running_ahead(program: Program) -> Program:
    """The steps from the middle of a trace, of which the CPU is always some ahead."""
    first, last = len(program.request_ends) // 4, 3 * len(program.request_ends) // 4
    begin = program.request_ends[first]
    ops = program.ops[begin : program.request_ends[last]].copy()
    ops["sync"] = 0
    return Program(ops, (program.request_ends[first + 1 : last + 1] - begin).astype(np.uint32))


@cache
def production_job(name: str) -> Job:
    rate = RATES.get(name, 0.0)
    return Job(
        name,
        TenantClass.production,
        program=one_request(read_program(TRACES / f"{name}.trace")),
        arrivals=Arrivals(ArrivalKind.poisson, rate) if rate else Arrivals(),
        think_ms=LOADER_MS.get(name, (0.0, 0.0)),
        trains=not rate,
    )


@cache
def opportunistic_job(name: str) -> Job:
    program = running_ahead(read_program(TRACES / f"{name}.trace"))
    return Job(name, TenantClass.opportunistic, program=program, waits=False, trains=True)


class MpsWithPriority(Mps):
    """MPS with client priorities, as `mps-priority` of bench/pairs is measured."""

    name = "mps-priority"
    title = "MPS, production's clients more urgent"
    priorities = True


# A mode of bench/pairs, and the policy that stands for it.
POLICIES: dict[str, object] = {
    "timeslice": "timeslice",
    "mps": "mps",
    "mps-priority": MpsWithPriority,
    "cotenant": "strict",
}
