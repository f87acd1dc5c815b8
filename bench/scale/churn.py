"""A tenant that makes and destroys many things, and says what a call costs through the interposer and past it.

    cotenant run -- python bench/scale/churn.py streams --count 10000
    cotenant run -- python bench/scale/churn.py allocations --count 1000000

The same calls are made in turns through the interposer and straight to the driver, in one process, so that the
difference is the interposer's. One JSON object on stdout: medians in nanoseconds a call, `added` with its quartiles.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
import time
from collections.abc import Callable
from ctypes import byref, c_char_p, c_size_t, c_uint64, c_void_p

BATCH = 200
NON_BLOCKING = 1
BYTES = 4096
KEPT = 1000  # allocations alive at any time


class Driver:
    """The driver's functions as the program gets them, and as the interposer would call them itself."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        try:
            self.straight = self.library.cotenant_driver_function
        except AttributeError:
            raise SystemExit(
                "error: the interposer is not loaded\nhint: start this with `cotenant run --`"
            ) from None
        self.straight.argtypes, self.straight.restype = [c_char_p], c_void_p

    def through(self, name: str) -> Callable[..., int]:
        function: Callable[..., int] = getattr(self.library, name)
        return function

    def past(self, name: str) -> Callable[..., int]:
        function: Callable[..., int] = ctypes.CFUNCTYPE(ctypes.c_int)(self.straight(name.encode()))
        return function

    def call(self, name: str, *arguments: object) -> None:
        if status := self.through(name)(*arguments):
            raise SystemExit(f"error: {name}: CUDA error {status}")


def begin(driver: Driver) -> None:
    context = c_void_p()
    driver.call("cuInit", 0)
    driver.call("cuDevicePrimaryCtxRetain", byref(context), 0)
    driver.call("cuCtxSetCurrent", context)


def summary(through: list[float], past: list[float]) -> dict[str, float]:
    added = [one - other for one, other in zip(through, past, strict=True)]
    low, middle, high = statistics.quantiles(added, n=4)
    return {
        "through_ns": statistics.median(through),
        "past_ns": statistics.median(past),
        "added_ns": middle,
        "added_low_ns": low,
        "added_high_ns": high,
    }


def nothing() -> None:
    pass


def in_turns(
    first: Callable[[], None], second: Callable[[], None], rounds: int, settle: Callable[[], None] = nothing
) -> dict[str, float]:
    """Each does BATCH calls; `settle` is not timed."""
    took: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for act, times in zip((first, second), took, strict=True):
            began = time.perf_counter_ns()
            act()
            times.append((time.perf_counter_ns() - began) / BATCH)
            settle()
    return summary(*took)


def operation_cost(driver: Driver, stream: c_void_p, memory: c_uint64) -> dict[str, float]:
    """Of a memset of four bytes: an operation as short as the software GPU has."""

    def memsets(memset: Callable[..., int]) -> Callable[[], None]:
        def act() -> None:
            for _ in range(BATCH):
                memset(memory, 0, c_size_t(1), stream)

        return act

    name = "cuMemsetD32Async"
    return in_turns(
        memsets(driver.through(name)),
        memsets(driver.past(name)),
        40,
        lambda: driver.call("cuStreamSynchronize", stream),
    )


def streams(driver: Driver, count: int) -> dict[str, object]:
    memory, kept = c_uint64(), c_void_p()
    driver.call("cuMemAlloc_v2", byref(memory), c_size_t(BYTES))
    driver.call("cuStreamCreate", byref(kept), NON_BLOCKING)
    before = operation_cost(driver, kept, memory)
    began = time.perf_counter_ns()
    for _ in range(count):
        stream = c_void_p()
        driver.call("cuStreamCreate", byref(stream), NON_BLOCKING)
        driver.call("cuMemsetD32Async", memory, 0, c_size_t(1), stream)
        driver.call("cuStreamDestroy_v2", stream)
    took = time.perf_counter_ns() - began
    new = c_void_p()
    driver.call("cuStreamCreate", byref(new), NON_BLOCKING)
    return {
        "made_and_destroyed": count,
        "ns_each": took / count,
        "operation_before": before,
        "operation_after": operation_cost(driver, kept, memory),
        "operation_in_a_new_stream": operation_cost(driver, new, memory),
    }


def allocations(driver: Driver, count: int) -> dict[str, object]:
    def churned(allocate: Callable[..., int], free: Callable[..., int]) -> Callable[[], None]:
        held = [c_uint64() for _ in range(KEPT)]
        for one in held:
            allocate(byref(one), c_size_t(BYTES))
        turn = 0

        def act() -> None:
            nonlocal turn
            for _ in range(BATCH):
                one = held[turn % KEPT]
                turn += 1
                if free(one) or allocate(byref(one), c_size_t(BYTES)):
                    raise SystemExit("error: an allocation failed")

        return act

    names = ("cuMemAlloc_v2", "cuMemFree_v2")
    through = churned(*(driver.through(name) for name in names))
    past = churned(*(driver.past(name) for name in names))
    return {"count": count, "free_and_allocate": in_turns(through, past, max(2, count // BATCH))}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("streams", "allocations"))
    parser.add_argument("--count", type=int, default=10_000)
    options = parser.parse_args()
    driver = Driver()
    begin(driver)
    measure = {"streams": streams, "allocations": allocations}[options.what]
    print(json.dumps(measure(driver, options.count)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
