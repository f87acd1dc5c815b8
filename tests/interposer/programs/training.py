"""A training as the PyTorch helper sees it, on memory of its own: eight blocks of weights, eight of activations, which
are in use during a step and free between two. It does what stdin says.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from moving import Gpu, Memory, check, driver  # type: ignore[import-not-found]

BLOCKS = 8


class Training:
    def __init__(self) -> None:
        self.gpu = Gpu()
        torch.cuda.init()
        self.weights = Memory(1)
        size = BLOCKS * torch.cuda.BLOCK
        torch.cuda.add_segment(self.weights.add("alloc", size), ["active_allocated"] * BLOCKS)
        self.scratch = check(driver.cuMemAlloc(size))
        self.activations = torch.cuda.add_segment(int(self.scratch), ["inactive"] * BLOCKS)
        self.optimiser = torch.optim.Optimizer()

    def begin(self) -> None:
        for block in self.activations:
            block["state"] = "active_allocated"
        check(driver.cuMemsetD8(self.scratch, 7, 1000))

    def end(self) -> None:
        for block in self.activations:
            block["state"] = "inactive"
        self.optimiser.step()

    def steps_of(self, seconds: float) -> None:
        """Two of them: what the next one is expected to take."""
        for _ in range(2):
            self.begin()
            time.sleep(seconds)
            self.end()


def say(answer: Any) -> None:
    print(answer, flush=True)


def main() -> None:
    training = Training()
    say("ready")
    for line in sys.stdin:
        exec(line, {"training": training, "say": say, "driver": driver, "check": check, "torch": torch})


if __name__ == "__main__":
    main()
