"""The same pair under the same strict rule, written for simpy: one event for each operation.

What it leaves out (learned grace, several GPUs, copies, bandwidth, other policies) makes it faster, not slower.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

# The grace is about what ours learns from this job's pauses.
LAUNCH_US, GATE_US, OPEN_US, GATE_EVERY_US = 2.0, 2.0, 7.0, 100.0
GRACE_US, SLICE_US, CUT_US, DRAIN_US = 900.0, 1000.0, 200.0, 150.0


@dataclass
class Pair:
    """A request is `kernels` of `kernel_us`; the other job's kernels take `other_us`."""

    kernels: int
    kernel_us: float
    rate: float
    other_us: float
    seconds: float
    seed: int = 0
    operations: int = 0
    other_work_us: float = 0.0
    latencies_us: list[float] = field(default_factory=list)


class Device:
    def __init__(self, env: simpy.Environment, pair: Pair) -> None:
        self.env, self.pair = env, pair
        self.has_work = False  # production
        self.opened = env.event()
        self.opened.succeed()
        self.runs: Any = None  # the opportunistic process, while its kernel is on
        self.drained = env.event()  # it has come to a closed gate
        self.turn_began_us = 0.0

    def production(self) -> Generator[Any, Any, None]:
        env, pair, source = self.env, self.pair, random.Random(self.pair.seed)
        arrival = 0.0
        while True:
            arrival += source.expovariate(pair.rate) * 1e6
            if arrival > env.now:
                yield env.timeout(min(GRACE_US, arrival - env.now))
                if arrival > env.now:
                    self.has_work = False
                    if not self.opened.triggered:
                        self.opened.succeed()
                    yield env.timeout(arrival - env.now)
            yield env.timeout(LAUNCH_US)
            if not self.has_work:
                self.has_work = True
                self.opened = env.event()
                if self.runs is not None:
                    slices = math.floor((env.now - self.turn_began_us) / SLICE_US) + 1
                    self.drained = env.event()
                    yield self.drained | env.timeout(self.turn_began_us + slices * SLICE_US - env.now)
                if self.runs is not None:
                    self.runs.interrupt()
                    yield env.timeout(CUT_US)
                else:
                    yield env.timeout(DRAIN_US)
            for _ in range(pair.kernels):
                yield env.timeout(pair.kernel_us)
                pair.operations += 1
            pair.latencies_us.append(env.now - arrival)

    def opportunistic(self) -> Generator[Any, Any, None]:
        env, pair = self.env, self.pair
        since_gate = 0.0
        me = env.active_process
        while True:
            if since_gate + pair.other_us > GATE_EVERY_US:
                since_gate = 0.0
                if self.has_work:
                    self.runs = None
                    if not self.drained.triggered:
                        self.drained.succeed()
                    yield self.opened
                    yield env.timeout(OPEN_US + DRAIN_US)
                    self.turn_began_us = env.now
                yield env.timeout(GATE_US)
            since_gate += pair.other_us
            left = pair.other_us
            while left > 0:
                begin = env.now
                self.runs = me
                try:
                    yield env.timeout(left)
                    left = 0.0
                except simpy.Interrupt:
                    left -= env.now - begin
                    self.runs = None
                    yield self.opened
                    yield env.timeout(DRAIN_US)
                    self.turn_began_us = env.now
            pair.other_work_us += pair.other_us
            pair.operations += 1


def simulate(pair: Pair) -> Pair:
    env = simpy.Environment()
    device = Device(env, pair)
    env.process(device.production())
    env.process(device.opportunistic())
    env.run(until=pair.seconds * 1e6)
    return pair
