"""A production server, in PyTorch: a request every 20 ms, one CUDA graph and its result, latency from when it was due.

On stdin: `grow GIB STEPS` takes so much memory in so many steps, `shrink` gives it back, `mark NAME` begins a part of
the figures, or goes on with it; the end of stdin ends it, with the figures as JSON: of each part's requests the
latency, and when it was due (time.monotonic(), which all processes share).
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from typing import Any

WIDTH = 4096
LAYERS = 16  # a GiB of weights
PERIOD = 0.02
GROWTH_PERIOD = 0.2


def orders() -> queue.Queue[list[str]]:
    """What stdin says, a line's words at a time; no words for its end."""
    heard: queue.Queue[list[str]] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            heard.put(line.split())
        heard.put([])

    threading.Thread(target=listen, daemon=True).start()
    return heard


class Figures:
    """Of the requests, by part, in their order; and of the steps of growth."""

    def __init__(self) -> None:
        self.latency_ms: dict[str, list[float]] = {}
        self.due: dict[str, list[float]] = {}
        self.growth_ms: list[float] = []

    def answered(self, part: str, due: float) -> None:
        self.latency_ms.setdefault(part, []).append(1000 * (time.monotonic() - due))
        self.due.setdefault(part, []).append(due)

    def say(self) -> None:
        print(json.dumps(vars(self)), flush=True)


def main() -> None:
    import torch

    heard = orders()

    layers = [torch.randn(WIDTH, WIDTH, device="cuda") / WIDTH**0.5 for _ in range(LAYERS)]
    inputs = torch.randn(8, WIDTH, device="cuda")

    def answer() -> torch.Tensor:
        values = inputs
        for layer in layers:
            values = torch.relu(values @ layer)
        return values.sum()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        answer()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = answer()

    def request() -> None:
        graph.replay()
        result.item()

    for _ in range(200):
        request()
    figures = Figures()
    held: list[Any] = []
    part, to_grow, step_bytes, next_growth = "alone", 0, 0, 0.0
    print("ready", flush=True)
    due = time.monotonic()
    while True:
        due += PERIOD
        while (left := due - time.monotonic()) > 0:
            try:
                words = heard.get(timeout=left)
            except queue.Empty:
                break
            if not words:
                figures.say()
                return
            if words[0] == "mark":
                part = words[1]
            elif words[0] == "grow":
                to_grow = int(words[2])
                step_bytes = int(float(words[1]) * (1 << 30)) // to_grow
            elif words[0] == "shrink":
                held.clear()
                torch.cuda.empty_cache()
                print("shrunk", flush=True)
        request()
        figures.answered(part, due)
        if to_grow and time.monotonic() >= next_growth:
            before = time.monotonic()
            held.append(torch.empty(step_bytes, dtype=torch.uint8, device="cuda"))
            figures.growth_ms.append(1000 * (time.monotonic() - before))
            held[-1].fill_(1)
            to_grow -= 1
            next_growth = before + GROWTH_PERIOD
            if not to_grow:
                print("grown", flush=True)


if __name__ == "__main__":
    main()
