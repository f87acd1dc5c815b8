"""The benchmark's programs on the software GPU, a MiB for a GiB: for trying the benchmark itself out.

python toy.py trainer|server|bandwidth [as trainer.py, server.py, bandwidth.py]
"""

from __future__ import annotations

import json
import queue
import random
import sys
import time
from typing import Any

from cuda.bindings import driver
from gpu import MIB, begin, check


def trainer() -> None:
    import trainer as real

    options = real.arguments()
    begin()
    chance = random.Random(options.seed)
    state = check(driver.cuMemAlloc(options.gib * MIB))
    contents = bytearray(chance.randbytes(options.gib * MIB))
    check(driver.cuMemcpyHtoD(state, contents, len(contents)))
    print("ready 0", flush=True)
    step = 0
    while step < options.steps if options.steps else not real.told_to_stop():
        step += 1
        at = chance.randrange(len(contents) - 8)
        check(driver.cuMemcpyHtoD(int(state) + at, chance.randbytes(8), 8))
        check(driver.cuMemcpyDtoH(contents, state, len(contents)))
        print(f"loss {step} {(sum(contents[::4096]) / 7).hex()}", flush=True)
    print(f"reserved {len(contents)}", flush=True)


def server() -> None:
    import server as real

    heard = real.orders()
    begin()
    held: list[Any] = [check(driver.cuMemAlloc(MIB))]
    figures = real.Figures()
    part = "alone"
    print("ready", flush=True)
    while True:
        before = time.monotonic()
        check(driver.cuMemsetD8(held[0], 1, 1000))
        figures.answered(part, before)
        try:
            words = heard.get(timeout=0.02)
        except queue.Empty:
            continue
        if not words:
            figures.say()
            return
        if words[0] == "mark":
            part = words[1]
        if words[0] == "grow":
            for _ in range(int(words[2])):
                before = time.monotonic()
                held.append(check(driver.cuMemAlloc(int(float(words[1]) * MIB) // int(words[2]))))
                figures.growth_ms.append(1000 * (time.monotonic() - before))
            print("grown", flush=True)
        if words[0] == "shrink":
            while len(held) > 1:
                check(driver.cuMemFree(held.pop()))
            print("shrunk", flush=True)


def bandwidth() -> None:
    print(json.dumps({"to_host": 0.01, "to_gpu": 0.01, "gpu": "software"}), flush=True)


if __name__ == "__main__":
    {"trainer": trainer, "server": server, "bandwidth": bandwidth}[sys.argv.pop(1)]()
