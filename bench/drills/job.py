"""A job of the drills, by the driver's own calls: no framework, so that it starts quickly on any machine.

    python job.py --kernels 20 --kernel-us 200 [--rate 60] [--mib 64]

Step after step until its stdin ends, or `--rate` of them a second. It says when each step ended and how long it took;
in the end how many the GPU counted, and whether the job's memory still holds what it wrote there.
"""

from __future__ import annotations

import argparse
import ctypes
import select
import sys
import time

from cotenant.demo.orders import say
from cotenant.demo.spin import SpinGpu, call

PATTERN = 0x5EED0000
MIB = 1 << 20
CHECKED_EVERY = 1021  # words; a prime, so that every page's every part is met over a buffer
AHEAD = 2  # steps queued, of a job without a rate


def told_to_stop(seconds: float) -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], max(0.0, seconds))
    return bool(ready)


class Memory:
    """A buffer with a pattern that only this job knows."""

    def __init__(self, mib: int, seed: int) -> None:
        self.words = mib * MIB // 4
        self.value = (PATTERN + seed) & 0xFFFFFFFF
        self.address = int(call("cuMemAlloc", 4 * self.words)) if mib else 0
        if mib:
            call("cuMemsetD32", self.address, self.value, self.words)

    def is_intact(self) -> bool:
        if not self.address:
            return True
        host = (ctypes.c_uint32 * self.words)()
        call("cuMemcpyDtoH", ctypes.addressof(host), self.address, 4 * self.words)
        return all(word == self.value for word in host[::CHECKED_EVERY])


def work(gpu: SpinGpu, options: argparse.Namespace) -> int:
    """Gives how many steps there were."""
    events = [gpu.new_event() for _ in range(AHEAD)]
    begun = [0.0] * AHEAD
    ahead = 1 if options.rate else AHEAD
    due = time.monotonic()
    steps = waited = 0
    stop = False
    while not stop or waited < steps:
        while not stop and steps - waited < ahead:
            stop = told_to_stop(due - time.monotonic() if options.rate else 0.0)
            if stop:
                break
            due += 1 / options.rate if options.rate else 0.0
            begun[steps % AHEAD] = time.monotonic()
            gpu.submit_burst(options.kernels, options.kernel_us)
            gpu.record(events[steps % AHEAD])
            steps += 1
        if waited < steps:
            gpu.wait(events[waited % AHEAD])
            now = time.monotonic()
            say({"at": now, "ms": 1000 * (now - begun[waited % AHEAD])})
            waited += 1
    return steps


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernels", type=int, default=20)
    parser.add_argument("--kernel-us", type=float, default=200.0)
    parser.add_argument("--rate", type=float, default=0.0, help="steps a second; 0: one after another")
    parser.add_argument("--mib", type=int, default=16, help="of GPU memory with a pattern")
    parser.add_argument("--work-per-us", type=float, help="the calibration of another job")
    options = parser.parse_args()
    gpu = SpinGpu()
    if options.work_per_us is None:
        gpu.calibrate()
    else:
        gpu.work_per_us = options.work_per_us
    memory = Memory(options.mib, options.kernels)
    say({"gpu": gpu.name, "software_gpu": gpu.software, "work_per_us": gpu.work_per_us})
    steps = work(gpu, options)
    say({"steps": steps, "counted_by_gpu": gpu.count(), "intact": memory.is_intact()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
