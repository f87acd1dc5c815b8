"""The production jobs. Each request's result depends on its number alone, so results can be compared bit for bit."""

from __future__ import annotations

import random
import time
from typing import Any

import models
import pytorch
import torch


class _OpenLoop:
    paced_by_arrivals = True

    def prepare(self) -> None:
        pass

    def load_seconds(self, source: random.Random) -> float:
        return 0.0


class Decode(_OpenLoop):
    """16 tokens for each of 8 sequences by a model of 0.67 G parameters, one CUDA graph a step.

    The steps follow each other on the GPU without the host, as servers do that schedule ahead.
    """

    STEPS, PROMPT, BATCH = 16, 128, 8
    SHAPE = models.Shape(12, 2048, 16, 32000, PROMPT + STEPS, causal=False)

    def __init__(self) -> None:
        self.about = pytorch.start()
        shape = self.SHAPE
        self._model: Any = models.on_gpu(lambda: models.Transformer(shape))
        size = (self.BATCH, shape.heads, shape.longest, shape.width // shape.heads)
        options = {"device": "cuda", "dtype": torch.bfloat16}
        # The prompt's part of the cache is noise that stays; a request writes all that comes after.
        self._caches = [
            (torch.randn(size, **options), torch.randn(size, **options)) for _ in range(shape.layers)
        ]
        self._token = torch.zeros(self.BATCH, dtype=torch.int64, device="cuda")
        self._tokens = torch.zeros(self.STEPS, self.BATCH, dtype=torch.int64, device="cuda")
        self._logits = torch.zeros(self.BATCH, shape.vocabulary, **options)
        source = torch.Generator().manual_seed(pytorch.SEED)
        self._prompts = torch.randint(shape.vocabulary, (64, self.BATCH), generator=source).cuda()
        # One pool: the graphs only ever run one after another, in this order.
        pool = torch.cuda.graph_pool_handle()
        with torch.no_grad():
            self._graphs = [self._captured_step(step, pool) for step in range(self.STEPS)]
        for number in range(3):
            self.request(number)

    def _captured_step(self, step: int, pool: Any) -> Any:
        def work() -> None:
            self._logits.copy_(self._model.decode(self._token, self._caches, self.PROMPT + step))
            self._token.copy_(self._logits.argmax(dim=-1))
            self._tokens[step].copy_(self._token)

        return pytorch.captured(work, pool)

    def _queue(self, number: int) -> None:
        self._token.copy_(self._prompts[number % len(self._prompts)])
        for graph in self._graphs:
            graph.replay()

    def gpu_ms(self) -> float:
        return pytorch.gpu_ms(lambda: self._queue(0))

    def request(self, number: int) -> bytes:
        self._queue(number)
        return pytorch.bytes_of(self._tokens) + pytorch.bytes_of(self._logits[0])


class Tokens(Decode):
    """The same, but each token goes to the host before the next step is launched: in between the server samples and
    schedules."""

    HOST_SECONDS = 0.0004

    def request(self, number: int) -> bytes:
        self._token.copy_(self._prompts[number % len(self._prompts)])
        told = b""
        for graph in self._graphs:
            graph.replay()
            told += pytorch.bytes_of(self._token)
            until = time.perf_counter() + self.HOST_SECONDS
            while time.perf_counter() < until:
                pass
        return told


class Encoder(_OpenLoop):
    """2048 tokens through 8 layers, all in one graph."""

    BATCH, LENGTH = 4, 512
    SHAPE = models.Shape(8, 1024, 16, 8192, LENGTH, causal=False)

    def __init__(self) -> None:
        self.about = pytorch.start()
        self._model: Any = models.on_gpu(lambda: models.Transformer(self.SHAPE))
        self._inputs = pytorch.token_batches(self.SHAPE.vocabulary, self.BATCH, self.LENGTH - 1, 16)
        self._tokens = self._inputs[0].clone()
        self._output = torch.zeros(self.BATCH, self.SHAPE.width, device="cuda", dtype=torch.bfloat16)
        with torch.no_grad():
            self._graph = pytorch.captured(self._encode)
        for number in range(3):
            self.request(number)

    def _encode(self) -> None:
        self._output.copy_(self._model.hidden(self._tokens).mean(dim=1))

    def _queue(self, number: int) -> None:
        self._tokens.copy_(self._inputs[number % len(self._inputs)])
        self._graph.replay()

    def gpu_ms(self) -> float:
        return pytorch.gpu_ms(lambda: self._queue(0))

    def request(self, number: int) -> bytes:
        self._queue(number)
        return pytorch.bytes_of(self._output)


class BusyEncoder(Encoder):
    """The same, one request after the other."""

    paced_by_arrivals = False


class SmallEncoder(Encoder):
    """128 tokens: kernels that fill a part of the SMs."""

    BATCH, LENGTH = 1, 128
    SHAPE = models.Shape(8, 1024, 16, 8192, LENGTH, causal=False)


class SmallEncoder8(SmallEncoder):
    BATCH = 8


class Vision(_OpenLoop):
    """A residual network like ResNet-50, kernel by kernel, on four pictures from the host."""

    def __init__(self) -> None:
        self.about = pytorch.start()
        self._model = models.residual_network().eval()
        self._pictures = pytorch.pictures(4, 16)
        for number in range(5):
            self.request(number)

    def _queue(self, number: int) -> Any:
        with torch.inference_mode():
            return self._model(self._pictures[number % len(self._pictures)].to("cuda", non_blocking=True))

    def gpu_ms(self) -> float:
        return pytorch.gpu_ms(lambda: self._queue(0))

    def request(self, number: int) -> bytes:
        return pytorch.bytes_of(self._queue(number))


class Training:
    """A transformer of 0.1 G parameters in training; its data loader takes about as long as its step."""

    paced_by_arrivals = False
    BATCH, LENGTH = 16, 512
    SHAPE = models.Shape(8, 1024, 16, 8192, LENGTH, causal=True)

    def __init__(self) -> None:
        self.about = pytorch.start()
        model: Any = models.on_gpu(lambda: models.Transformer(self.SHAPE))
        batches = [
            batch.cpu().pin_memory()
            for batch in pytorch.token_batches(self.SHAPE.vocabulary, self.BATCH, self.LENGTH)
        ]

        def loss_of(number: int) -> Any:
            batch = batches[number % len(batches)].to("cuda", non_blocking=True)
            return models.next_token_loss(model, batch)

        self._trainer = pytorch.Trainer(model, loss_of)
        self._trainer.warm_up()

    def prepare(self) -> None:
        self._trainer.reset()

    def load_seconds(self, source: random.Random) -> float:
        return source.uniform(0.015, 0.035)

    def gpu_ms(self) -> float:
        return pytorch.gpu_ms(self._trainer.step)

    def request(self, number: int) -> bytes:
        return pytorch.bytes_of(self._trainer.step())
