"""The models: a transformer that encodes, trains or decodes, and a residual network like ResNet-50. Random weights.

Attention is written out, and the residual network begins with a strided convolution rather than a maximum: the fused
backward pass and the maximum's are not deterministic.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional


@dataclasses.dataclass(frozen=True)
class Shape:
    layers: int
    width: int
    heads: int
    vocabulary: int
    longest: int  # positions
    causal: bool


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, self.size = shape.heads, shape.width // shape.heads
        self.inward = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.outward = nn.Linear(shape.width, shape.width, bias=False)

    def split(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        batch, length, _ = x.shape
        parts = self.inward(x).view(batch, length, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        return parts[0], parts[1], parts[2]

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        scores = (query * self.size**-0.5) @ key.transpose(-1, -2)
        if mask is not None:
            scores = scores + mask
        mixed = torch.softmax(scores, dim=-1) @ value
        batch, _, length, _ = mixed.shape
        return self.outward(mixed.transpose(1, 2).reshape(batch, length, self.heads * self.size))


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.attention = Attention(shape)
        self.widen = nn.Linear(shape.width, 4 * shape.width)
        self.narrow = nn.Linear(4 * shape.width, shape.width)

    def dense(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(functional.gelu(self.widen(self.second(x))))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        x = x + self.attention.attend(*self.attention.split(self.first(x)), mask)
        return self.dense(x)

    def decode(
        self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, position: int
    ) -> torch.Tensor:
        """One token a sequence; it joins the cache at `position` and attends to all up to it."""
        query, key, value = self.attention.split(self.first(x))
        keys[:, :, position : position + 1].copy_(key)
        values[:, :, position : position + 1].copy_(value)
        seen = position + 1
        x = x + self.attention.attend(query, keys[:, :, :seen], values[:, :, :seen], None)
        return self.dense(x)


class Transformer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.longest, shape.width)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.last = nn.LayerNorm(shape.width)
        mask = torch.full((shape.longest, shape.longest), float("-inf")).triu(1) if shape.causal else None
        self.register_buffer("mask", mask, persistent=False)

    def head(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(self.last(x), self.tokens.weight)

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        mask = self.mask[:length, :length] if self.mask is not None else None
        x = self.tokens(tokens) + self.positions.weight[:length]
        for block in self.blocks:
            x = block(x, mask)
        return self.last(x)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return functional.linear(self.hidden(tokens), self.tokens.weight)

    def decode(
        self, tokens: torch.Tensor, caches: list[tuple[torch.Tensor, torch.Tensor]], position: int
    ) -> torch.Tensor:
        """The logits of what follows `tokens`, one a sequence."""
        x = (self.tokens(tokens) + self.positions.weight[position]).unsqueeze(1)
        for block, (keys, values) in zip(self.blocks, caches, strict=True):
            x = block.decode(x, keys, values, position)
        return self.head(x.squeeze(1))


def next_token_loss(model: Transformer, batch: torch.Tensor) -> torch.Tensor:
    logits = model(batch[:, :-1])
    return functional.cross_entropy(
        logits.reshape(-1, model.shape.vocabulary).float(), batch[:, 1:].reshape(-1)
    )


def on_gpu(build: Callable[[], nn.Module]) -> nn.Module:
    """In bf16. The weights are drawn on the GPU: drawing them on the host would take seconds."""
    with torch.device("cuda"):
        model = build()
    return model.to(dtype=torch.bfloat16)


class Bottleneck(nn.Module):
    def __init__(self, inward: int, width: int, stride: int) -> None:
        super().__init__()
        outward = 4 * width
        self.body = nn.Sequential(
            *_convolution(inward, width, 1),
            nn.ReLU(inplace=True),
            *_convolution(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *_convolution(width, outward, 1),
        )
        straight = stride == 1 and inward == outward
        self.aside = nn.Identity() if straight else nn.Sequential(*_convolution(inward, outward, 1, stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(x) + self.aside(x), inplace=True)


def _convolution(inward: int, outward: int, size: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    convolution = nn.Conv2d(inward, outward, size, stride, padding=size // 2, bias=False)
    return convolution, nn.BatchNorm2d(outward)


class ResidualNetwork(nn.Module):
    """The layers and widths of ResNet-50."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [*_convolution(3, 64, 7, 2), nn.ReLU(inplace=True)]
        layers += [*_convolution(64, 64, 3, 2), nn.ReLU(inplace=True)]
        inward = 64
        for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for number in range(blocks):
                layers.append(Bottleneck(inward, width, stride if number == 0 else 1))
                inward = 4 * width
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(inward, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x).mean(dim=(2, 3)))


def residual_network() -> nn.Module:
    return on_gpu(ResidualNetwork).to(memory_format=torch.channels_last)
