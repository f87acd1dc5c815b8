"""How long does a process that only waits hold the GPU? Two processes without Cotenant, by the driver's own calls.

    python bench/parked/run.py                        # half a minute; needs a GPU
    python bench/parked/run.py --gaps 0.1,3 --repeats 200

One process sets memory again and again, waits for it each time, and computes for a moment in between, as production
does between two steps of a request. Meanwhile another process waits at a gate that stays closed: with one stream, with
another stream behind it that waits for an event of the first, or with the legacy default stream behind a stream that it
waits for. The table has what one round takes, medians in ms.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parents[1]
sys.path.append(str(BENCH / "pairs"))
try:
    from copying import MIB, begin, check
    from cuda.bindings import driver
    from options import at_least_one, positive, status_of, words

    from cotenant.errors import Problem
except ImportError as missing:
    raise SystemExit(f"error: {missing}\nhint: run this in a Python that has cotenant[demo]") from None

WAYS = {
    "nobody waits": "a context without work",
    "a stream": "a stream at a closed gate",
    "an event": "and another stream that waits for its event",
    "the legacy stream": "a stream at a closed gate, and the legacy default stream behind it",
}
LEGACY = driver.CUstream(1)


def wait_in(way: str) -> None:
    """The other process: waits as it is told, until its stdin ends."""
    begin()
    host = check(driver.cuMemHostAlloc(64, driver.CU_MEMHOSTALLOC_DEVICEMAP))
    gate = ctypes.c_uint32.from_address(int(host))
    gate.value = 0
    address = check(driver.cuMemHostGetDevicePointer(host, 0))
    memory = check(driver.cuMemAlloc(MIB))
    flags = driver.CUstream_flags
    kind = flags.CU_STREAM_DEFAULT if way == "the legacy stream" else flags.CU_STREAM_NON_BLOCKING
    stream, other = check(driver.cuStreamCreate(kind)), check(driver.cuStreamCreate(kind))
    for each in (stream, other, LEGACY):
        check(driver.cuMemsetD32Async(memory, 1, MIB // 4, each))
    check(driver.cuCtxSynchronize())
    if way != "nobody waits":
        check(driver.cuStreamWaitValue32(stream, address, 1, 0))
        check(driver.cuMemsetD32Async(memory, 1, MIB // 4, stream))
    if way == "an event":
        event = check(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))
        check(driver.cuEventRecord(event, stream))
        check(driver.cuStreamWaitEvent(other, event, 0))
        check(driver.cuMemsetD32Async(memory, 1, MIB // 4, other))
    if way == "the legacy stream":
        check(driver.cuMemsetD32Async(memory, 1, MIB // 4, LEGACY))
    print("waits", flush=True)
    sys.stdin.read()
    gate.value = 1
    check(driver.cuCtxSynchronize())


def round_ms(memory: Any, bytes_set: int, gap_ms: float, repeats: int) -> float:
    took = []
    for _ in range(repeats):
        began = time.perf_counter()
        check(driver.cuMemsetD32Async(memory, 1, bytes_set // 4, LEGACY))
        check(driver.cuStreamSynchronize(LEGACY))
        ended = time.perf_counter()
        took.append(1000 * (ended - began))
        while time.perf_counter() < ended + gap_ms / 1000:
            pass
    return statistics.median(took)


def measure(gaps_ms: Sequence[float], repeats: int, mib: int) -> None:
    try:
        begin()
    except RuntimeError as error:
        raise Problem(f"there is no GPU: {error}", "cotenant doctor says why") from None
    memory = check(driver.cuMemAlloc(mib * MIB))
    round_ms(memory, mib * MIB, 0.1, repeats)
    print(f"| the other process has | {' | '.join(f'{gap:g} ms between' for gap in gaps_ms)} |")
    print(f"| --- |{' --: |' * len(gaps_ms)}")
    for way, title in WAYS.items():
        command = [sys.executable, __file__, "--wait-in", way]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout and other.stdin
            if other.stdout.readline() != "waits\n":
                raise SystemExit("error: the process that waits has ended")
            found = [round_ms(memory, mib * MIB, gap, repeats) for gap in gaps_ms]
            other.stdin.close()
        print(f"| {title} | {' | '.join(f'{one:.2f}' for one in found)} |", flush=True)


def run(options: argparse.Namespace) -> int:
    if options.wait_in:
        wait_in(options.wait_in)
    else:
        measure([positive(word) for word in words(options.gaps)], options.repeats, options.mib)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--gaps", default="0.1,0.4,0.8", help="ms in which nothing is queued; default 0.1,0.4,0.8"
    )
    parser.add_argument(
        "--repeats", type=at_least_one, default=200, help="rounds for each figure; default 200"
    )
    parser.add_argument("--mib", type=at_least_one, default=2048, help="that a round sets; default 2048")
    parser.add_argument("--wait-in", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    return status_of(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
