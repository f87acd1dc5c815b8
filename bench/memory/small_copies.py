"""The two processes of copies.py: `hold MIB` has so much GPU memory and does nothing; `copy` copies four bytes from the
GPU and four to it, again and again, and says at the end of stdin when, and how long each took.
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


def hold(mib: int) -> None:
    for at in range(0, mib, PIECE_MIB):
        size = min(PIECE_MIB, mib - at) * MIB
        check(driver.cuMemsetD8(check(driver.cuMemAlloc(size)), 1, size))
    check(driver.cuCtxSynchronize())
    print("ready", flush=True)
    sys.stdin.read()


def copy() -> None:
    here, there = bytearray(4), check(driver.cuMemAlloc(4096))
    took: list[tuple[float, float, float]] = []
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    print("ready", flush=True)
    while not ended.wait(PAUSE_SECONDS):
        began = time.monotonic()
        check(driver.cuMemcpyDtoH(here, there, len(here)))
        from_gpu = time.monotonic()
        check(driver.cuMemcpyHtoD(there, here, len(here)))
        check(driver.cuCtxSynchronize())
        took.append((began, from_gpu - began, time.monotonic() - from_gpu))
    print(json.dumps(took), flush=True)


def main() -> None:
    begin()
    if sys.argv[1] == "hold":
        hold(int(sys.argv[2]))
    else:
        copy()


if __name__ == "__main__":
    main()
