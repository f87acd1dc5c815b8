"""PyTorch as the jobs use it: deterministic, in bf16, with work that can be waited for.

Imported before torch is used: it sets what must be set before cuBLAS is loaded.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

# Same sums in every run: cuBLAS with one workspace a stream.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.utils.deterministic
from torch import nn

SEED = 1234
_FASTEST_HZ = 2e9  # no GPU's clock is far beyond: a spin of so many cycles lasts at least as long as wanted


def start() -> dict[str, Any]:
    """Gets the GPU ready; gives what a worker says of it. ImportError where PyTorch has no GPU."""
    if not torch.cuda.is_available():
        raise ImportError("torch sees no GPU")
    torch.manual_seed(SEED)
    torch.set_num_threads(2)
    # Warnings only: whether the results repeat is seen in the results.
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Else every new tensor would be filled, which no job in production does.
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    return {"gpu": torch.cuda.get_device_name(0), "versions": {"torch": torch.__version__}}


def bytes_of(tensor: Any) -> bytes:
    """Its very bits, on the host."""
    return bytes(tensor.detach().reshape(-1).view(torch.uint8).cpu().numpy().tobytes())


def mark() -> Callable[[], object]:
    """A function that waits, without spinning, for all that has been queued so far."""
    event = torch.cuda.Event(blocking=True)
    event.record()
    wait: Callable[[], object] = event.synchronize
    return wait


def gpu_ms(queue: Callable[[], object], repeats: int = 5) -> float:
    """GPU time of what `queue` queues, without the host's pauses: all of it waits behind a kernel that spins meanwhile.

    `queue` must wait for nothing.
    """
    queue()
    torch.cuda.synchronize()
    began = time.perf_counter()
    queue()
    spin_seconds = 2 * (time.perf_counter() - began) + 0.005
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(int(spin_seconds * _FASTEST_HZ))
        begin.record()
        queue()
        end.record()
        end.synchronize()
        times.append(float(begin.elapsed_time(end)))
    return statistics.median(times)


def captured(work: Callable[[], None], pool: Any = None) -> Any:
    """A CUDA graph of what `work` queues; it runs twice before, for what libraries set up on first use."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            work()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        work()
    return graph


class Trainer:
    """A model in training that can go back to its first state."""

    def __init__(self, model: nn.Module, loss_of: Callable[[int], Any]) -> None:
        self._model = model
        self._loss_of = loss_of
        self._optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        self._state: list[Any] = [*model.parameters(), *model.buffers()]
        self._initial = [tensor.detach().clone() for tensor in self._state]
        self._number = 0
        self._loss: Any = None

    def reset(self) -> None:
        with torch.no_grad():
            for tensor, initial in zip(self._state, self._initial, strict=True):
                tensor.copy_(initial)
        self._optimiser.state.clear()
        self._number = 0
        torch.cuda.synchronize()

    def step(self) -> Any:
        """Queues a step; gives its loss, still on the GPU."""
        self._optimiser.zero_grad(set_to_none=True)
        self._loss = self._loss_of(self._number)
        self._loss.backward()
        self._optimiser.step()
        self._number += 1
        return self._loss.detach()

    def warm_up(self, steps: int = 3) -> None:
        for _ in range(steps):
            self.step()
        self.reset()

    def snapshot(self) -> Callable[[], bytes]:
        """Reads the loss of the last step queued: a figure that all steps before it have made."""
        loss = self._loss.detach().clone()
        return lambda: bytes_of(loss)


def token_batches(vocabulary: int, batch: int, length: int, count: int = 4) -> list[Any]:
    source = torch.Generator().manual_seed(SEED)
    shape = (batch, length + 1)
    return [torch.randint(vocabulary, shape, generator=source).cuda() for _ in range(count)]


def pictures(batch: int, count: int) -> list[Any]:
    """Pinned, as a data loader leaves them."""
    source = torch.Generator().manual_seed(SEED)

    def picture() -> Any:
        values = torch.randn(batch, 3, 224, 224, generator=source).bfloat16()
        return values.contiguous(memory_format=torch.channels_last).pin_memory()

    return [picture() for _ in range(count)]
