"""A small transformer and its training: what the PyTorch programs have in common. Import `evidence` first."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, WIDTH, HEADS, LENGTH, BATCH = 512, 128, 4, 64, 16


class Attention(nn.Module):
    """Written out: the fused backward kernels are not all deterministic."""

    def __init__(self) -> None:
        super().__init__()
        self.inward = nn.Linear(WIDTH, 3 * WIDTH)
        self.outward = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        split = self.inward(x).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        query, key, value = split[0], split[1], split[2]
        weights = torch.softmax(query @ key.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5, dim=-1)
        return self.outward((weights @ value).transpose(1, 2).reshape(batch, length, WIDTH))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.dense = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first(x))
        return x + self.dense(self.second(x))


class Transformer(nn.Module):
    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.convolution = nn.Conv1d(WIDTH, WIDTH, kernel_size=3, padding=1)
        self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        x = self.convolution(x.transpose(1, 2)).transpose(1, 2)
        return self.head(self.blocks(x))


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(step)
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), generator=source).cuda()
    return tokens[:, :-1], tokens[:, 1:]


def loss_of(model: Callable[[torch.Tensor], torch.Tensor], step: int) -> torch.Tensor:
    tokens, wanted = batch(step)
    logits = model(tokens)
    return functional.cross_entropy(logits.reshape(-1, VOCABULARY), wanted.reshape(-1))


def train(
    model: Callable[[torch.Tensor], torch.Tensor], optimiser: torch.optim.Optimizer, steps: int
) -> list[float]:
    losses = []
    for step in range(steps):
        optimiser.zero_grad(set_to_none=True)
        loss: Any = loss_of(model, step)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses
