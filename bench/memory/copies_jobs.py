"""The processes of copies.py and first_pause.py: `hold MIB` has so much GPU memory and does nothing; `copy` copies four
bytes from the GPU and four to it, now and then many more, and says at the end of stdin when, which, and how long each
took.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from cuda.bindings import driver
from gpu import MIB, begin, check

PIECE_MIB = 256
PAUSE_SECONDS = 0.0005
LARGE_BYTES, LARGE_EVERY = 64 * MIB, 10


def hold(mib: int) -> None:
    for at in range(0, mib, PIECE_MIB):
        size = min(PIECE_MIB, mib - at) * MIB
        check(driver.cuMemsetD8(check(driver.cuMemAlloc(size)), 1, size))
    check(driver.cuCtxSynchronize())
    print("ready", flush=True)
    sys.stdin.read()


def copy() -> None:
    host = check(driver.cuMemHostAlloc(LARGE_BYTES, 0))
    gpu = check(driver.cuMemAlloc(LARGE_BYTES))
    took: list[tuple[float, str, float]] = []
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        ended.set()

    def timed(what: str, size: int) -> None:
        began = time.monotonic()
        check(driver.cuMemcpyDtoH(host, gpu, size))
        halfway = time.monotonic()
        check(driver.cuMemcpyHtoD(gpu, host, size))
        check(driver.cuCtxSynchronize())
        took.append((began, f"{what} from the GPU", halfway - began))
        took.append((halfway, f"{what} to the GPU", time.monotonic() - halfway))

    threading.Thread(target=listen, daemon=True).start()
    print("ready", flush=True)
    number = 0
    while not ended.wait(PAUSE_SECONDS):
        number += 1
        if number % LARGE_EVERY:
            timed("4 bytes", 4)
        else:
            timed("64 MiB", LARGE_BYTES)
    print(json.dumps(took), flush=True)


def main() -> None:
    begin()
    if sys.argv[1] == "hold":
        hold(int(sys.argv[2]))
    else:
        copy()


if __name__ == "__main__":
    main()
