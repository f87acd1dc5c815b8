"""The opportunistic jobs: step after step, as fast as they go. All begin every window in the same state."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import models
import pytorch
import torch
from torch.nn import functional


class _Training(abc.ABC):
    """Trains what `_build` gives."""

    def __init__(self) -> None:
        self.about = pytorch.start()
        self._trainer = self._build()
        self._trainer.warm_up()

    @abc.abstractmethod
    def _build(self) -> pytorch.Trainer: ...

    def prepare(self) -> None:
        self._trainer.reset()

    def step(self) -> Callable[[], object]:
        self._trainer.step()
        return pytorch.mark()

    def snapshot(self) -> Callable[[], bytes]:
        return self._trainer.snapshot()


def _transformer_trainer(shape: models.Shape, batch: int) -> pytorch.Trainer:
    model: Any = models.on_gpu(lambda: models.Transformer(shape))
    batches = pytorch.token_batches(shape.vocabulary, batch, shape.longest)
    return pytorch.Trainer(
        model, lambda number: models.next_token_loss(model, batches[number % len(batches)])
    )


class Gpt(_Training):
    """0.3 G parameters, 8192 tokens a step: kernels of 0.1 to 2 ms."""

    def _build(self) -> pytorch.Trainer:
        return _transformer_trainer(models.Shape(6, 2048, 16, 8192, 1024, causal=True), batch=8)


class Eager(_Training):
    """Kernels so short that the host cannot keep up."""

    def _build(self) -> pytorch.Trainer:
        return _transformer_trainer(models.Shape(6, 256, 4, 1024, 64, causal=True), batch=8)


class Resnet(_Training):
    def _build(self) -> pytorch.Trainer:
        model = models.residual_network().train()
        pictures = [picture.cuda() for picture in pytorch.pictures(64, 2)]
        source = torch.Generator().manual_seed(pytorch.SEED)
        labels = torch.randint(1000, (64,), generator=source).cuda()

        def loss_of(number: int) -> Any:
            logits = model(pictures[number % len(pictures)])
            return functional.cross_entropy(logits.float(), labels)

        return pytorch.Trainer(model, loss_of)


class LongKernels:
    """One matrix product of about 10 ms after another."""

    SIZE = 16384
    fill: Any = staticmethod(torch.randn)

    def __init__(self) -> None:
        self.about = pytorch.start()
        options = {"device": "cuda", "dtype": torch.bfloat16}
        self._left = self.fill(self.SIZE, self.SIZE, **options)
        self._right = self.fill(self.SIZE, self.SIZE, **options)
        self._product = torch.empty(self.SIZE, self.SIZE, **options)
        for _ in range(2):
            self.step()()

    def prepare(self) -> None:
        self._product.zero_()
        torch.cuda.synchronize()

    def step(self) -> Callable[[], object]:
        torch.mm(self._left, self._right, out=self._product)
        return pytorch.mark()

    def snapshot(self) -> Callable[[], bytes]:
        part = self._product[:64].clone()
        return lambda: pytorch.bytes_of(part)


class LongKernelsOfZeros(LongKernels):
    """The same kernels, but they draw less power: what the GPU's clock does can be told from what the sharing does."""

    fill = staticmethod(torch.zeros)


class ManyKernelGraph:
    """200 kernels of a few microseconds in one graph, launched again and again."""

    LAYERS, SIZE = 100, 512

    def __init__(self) -> None:
        self.about = pytorch.start()
        options = {"device": "cuda", "dtype": torch.bfloat16}
        self._weights = torch.randn(self.LAYERS, self.SIZE, self.SIZE, **options) * self.SIZE**-0.5
        self._first = torch.randn(self.SIZE, self.SIZE, **options)
        self._state = self._first.clone()
        self._graph = pytorch.captured(self._layers)
        for _ in range(3):
            self.step()()

    def _layers(self) -> None:
        x = self._state
        for weight in self._weights:
            x = torch.tanh(x @ weight)
        self._state.copy_(x + self._first)

    def prepare(self) -> None:
        self._state.copy_(self._first)
        torch.cuda.synchronize()

    def step(self) -> Callable[[], object]:
        self._graph.replay()
        return pytorch.mark()

    def snapshot(self) -> Callable[[], bytes]:
        state = self._state.clone()
        return lambda: pytorch.bytes_of(state)


class Streams:
    """Eight streams of short matrix products, which wait for each other by events before and after each step."""

    STREAMS, PRODUCTS, WIDTH = 8, 6, 2048

    def __init__(self) -> None:
        self.about = pytorch.start()
        source = torch.Generator(device="cuda").manual_seed(pytorch.SEED)
        options = {"device": "cuda", "dtype": torch.bfloat16, "generator": source}
        self._streams = [torch.cuda.Stream() for _ in range(self.STREAMS)]
        self._first = [torch.randn(512 * (1 + i % 4), self.WIDTH, **options) for i in range(self.STREAMS)]
        self._weights = torch.randn(self.WIDTH, self.WIDTH, **options) / self.WIDTH**0.5
        self._now = [one.clone() for one in self._first]
        for _ in range(5):
            self.step()()

    def prepare(self) -> None:
        for now, first in zip(self._now, self._first, strict=True):
            now.copy_(first)

    def step(self) -> Callable[[], object]:
        begun = torch.cuda.current_stream()
        for stream, now in zip(self._streams, self._now, strict=True):
            stream.wait_stream(begun)
            with torch.cuda.stream(stream):
                for _ in range(self.PRODUCTS):
                    now.copy_(torch.tanh(now @ self._weights))
        for stream in self._streams:
            begun.wait_stream(stream)
        return pytorch.mark()

    def snapshot(self) -> Callable[[], bytes]:
        result = torch.stack([now[0] for now in self._now])
        return lambda: pytorch.bytes_of(result)


class Copies:
    """64 MiB to the GPU, a small kernel, 64 MiB back; both ends pinned."""

    BYTES = 64 << 20

    def __init__(self) -> None:
        self.about = pytorch.start()
        source = torch.Generator().manual_seed(pytorch.SEED)
        values = torch.randint(256, (self.BYTES,), dtype=torch.uint8, generator=source)
        self._outward, self._homeward = values.pin_memory(), torch.empty_like(values).pin_memory()
        self._arrived = torch.zeros(self.BYTES, dtype=torch.uint8, device="cuda")
        self._total = torch.zeros_like(self._arrived)
        for _ in range(3):
            self.step()()

    def prepare(self) -> None:
        self._total.zero_()
        torch.cuda.synchronize()

    def step(self) -> Callable[[], object]:
        self._arrived.copy_(self._outward, non_blocking=True)
        self._total.add_(self._arrived)
        self._homeward.copy_(self._total, non_blocking=True)
        return pytorch.mark()

    def snapshot(self) -> Callable[[], bytes]:
        total = self._total.clone()
        return lambda: pytorch.bytes_of(total)
