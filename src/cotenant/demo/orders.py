"""What the demo and its worker processes say to each other: one JSON object a line, over stdin and stdout.

    demo   -> worker   {"start": 1234.5, "seconds": 4.0, "seed": 7}     measure in this window
    worker -> demo     {"gpu": ..., ...} once when ready, then one answer for each order

Times are CLOCK_MONOTONIC seconds, which all processes of a machine share. A worker ends when its stdin does,
so none outlives the demo, however that ends.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable
from typing import Any

from cotenant.demo.spin import GpuError, SpinGpu

Answer = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Order:
    start: float
    seconds: float
    seed: int

    def line(self) -> str:
        return json.dumps(dataclasses.asdict(self)) + "\n"

    @staticmethod
    def parse(line: str) -> Order:
        return Order(**json.loads(line))


def say(answer: Answer) -> None:
    print(json.dumps(answer), flush=True)


def obey(serve: Callable[[SpinGpu, Order], Answer]) -> int:
    """A worker's whole life: get the GPU ready, then serve one order after another."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--work-per-us", type=float, help="the calibration of another worker")
    options = parser.parse_args()
    try:
        gpu = SpinGpu()
        if options.work_per_us is None:
            gpu.calibrate()
        else:
            gpu.work_per_us = options.work_per_us
        say(
            {
                "gpu": gpu.name,
                "software_gpu": gpu.software,
                "driver_version": gpu.driver_version,
                "work_per_us": gpu.work_per_us,
            }
        )
        for line in sys.stdin:
            gpu.reset_count()
            answer = serve(gpu, Order.parse(line))
            say(answer | {"counted_by_gpu": gpu.count()})
    except (GpuError, RuntimeError) as failure:  # cuda-bindings reports a missing driver as RuntimeError
        print(failure, file=sys.stderr)
        return 1
    return 0
