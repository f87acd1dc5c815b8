"""The opportunistic job: a training loop, step after step as fast as they go, one queued ahead."""

from __future__ import annotations

import bisect
import sys
import time

from cotenant.demo.orders import Answer, Order, obey
from cotenant.demo.spin import SpinGpu

KERNELS_PER_STEP = 40
KERNEL_US = 500.0
# It runs before and after the window too, so that production never meets an empty GPU inside it.
LEAD_SECONDS = 0.25
TAIL_SECONDS = 0.25


def steps_within(completions: list[float], begin: float, end: float) -> float:
    """Steps of work done in [begin, end), a step that straddles an edge counted by its part inside.

    `completions` are the times at which steps ended, in order, the first the time at which the loop began.
    """

    def done_by(moment: float) -> float:
        after = bisect.bisect_right(completions, moment)
        if after == 0:
            return 0.0
        if after == len(completions):
            return float(after - 1)
        before, following = completions[after - 1], completions[after]
        return after - 1 + (moment - before) / (following - before)

    return done_by(end) - done_by(begin)


def train(gpu: SpinGpu, order: Order) -> Answer:
    end = order.start + order.seconds
    events = [gpu.new_event(), gpu.new_event()]
    time.sleep(max(0.0, order.start - LEAD_SECONDS - time.monotonic()))
    completions = [time.monotonic()]
    submitted = 0

    def submit_step() -> None:
        nonlocal submitted
        gpu.submit_burst(KERNELS_PER_STEP, KERNEL_US)
        gpu.record(events[submitted % 2])
        submitted += 1

    submit_step()
    while completions[-1] < end + TAIL_SECONDS:
        submit_step()
        gpu.wait(events[submitted % 2])
        completions.append(time.monotonic())
    gpu.synchronise()
    return {"steps": steps_within(completions, order.start, end), "done": submitted}


if __name__ == "__main__":
    sys.exit(obey(train))
