"""Production jobs whose requests of 1 to 2 ms are more than a graph: compiled, behind copies, before small launches."""

from __future__ import annotations

from typing import Any

import models
import pytorch
import torch
from production import Encoder, _OpenLoop


class Compiled(_OpenLoop):
    """An encoder as torch.compile makes it in the mode reduce-overhead: graph trees, tokens from the host, `.cpu()`."""

    BATCH, LENGTH = 4, 512
    SHAPE = models.Shape(8, 1024, 16, 8192, LENGTH, causal=False)

    def __init__(self) -> None:
        self.about = pytorch.start()
        model: Any = models.on_gpu(lambda: models.Transformer(self.SHAPE)).eval()
        batches = pytorch.token_batches(self.SHAPE.vocabulary, self.BATCH, self.LENGTH - 1, 16)
        self._inputs = [batch.cpu().pin_memory() for batch in batches]
        self._encode: Any = torch.compile(
            lambda tokens: model.hidden(tokens).mean(dim=1), mode="reduce-overhead"
        )
        # Graph trees: once to compile, once to warm up, once to record.
        for number in range(6):
            self.request(number)

    def _queue(self, number: int) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        with torch.no_grad():
            return self._encode(self._inputs[number % len(self._inputs)].to("cuda", non_blocking=True))

    def gpu_ms(self) -> float:
        return pytorch.gpu_ms(lambda: self._queue(0))

    def request(self, number: int) -> bytes:
        return pytorch.bytes_of(self._queue(number))


class PinnedCopy(Encoder):
    """Begins with 4 MiB from pinned memory, in the graph's stream."""

    def __init__(self) -> None:
        pytorch.start()
        source = torch.Generator().manual_seed(pytorch.SEED)
        shape = (self.BATCH, self.LENGTH, self.SHAPE.width)
        self._pinned = [torch.randn(shape, generator=source).bfloat16().pin_memory() for _ in range(4)]
        self._embedded = self._pinned[0].cuda()
        self._aside = torch.cuda.Stream()
        super().__init__()

    def _encode(self) -> None:
        x = self._embedded
        for block in self._model.blocks:
            x = block(x, None)
        self._output.copy_(self._model.last(x).mean(dim=1))

    def _queue(self, number: int) -> None:
        self._embedded.copy_(self._pinned[number % len(self._pinned)], non_blocking=True)
        self._graph.replay()


class BehindCopies(PinnedCopy):
    """The 4 MiB come in four copies in a stream of their own, for which the graph's stream waits."""

    PARTS = 4

    def _queue(self, number: int) -> None:
        ours = torch.cuda.current_stream()
        self._aside.wait_stream(ours)
        pinned = self._pinned[number % len(self._pinned)]
        with torch.cuda.stream(self._aside):
            for there, here in zip(self._embedded.chunk(self.PARTS), pinned.chunk(self.PARTS), strict=True):
                there.copy_(here, non_blocking=True)
        ours.wait_stream(self._aside)
        self._graph.replay()


class BeforeLaunches(Encoder):
    """A handful of small eager kernels after the graph, then `.cpu()`: what serving code does with an output."""

    def request(self, number: int) -> bytes:
        return pytorch.bytes_of(self._tail(number))

    def _tail(self, number: int) -> Any:
        self._queue(number)
        scores = torch.softmax(self._output.float(), dim=-1)
        best, where = scores.topk(8, dim=-1)
        weighed = best / best.sum(dim=-1, keepdim=True)
        return torch.cat([weighed, where.float(), scores.mean(dim=-1, keepdim=True)], dim=-1)

    def gpu_ms(self) -> float:
        return pytorch.gpu_ms(lambda: self._tail(0))
