"""Training from a DataLoader with worker processes; a module of its own so that spawned workers can import it."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import evidence
import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset[tuple[torch.Tensor, int]]):
    """Pictures made of their index: the same in whichever process."""

    def __len__(self) -> int:
        return 512

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        source = torch.Generator().manual_seed(index)
        return torch.randn(3, 32, 32, generator=source), index % 10


def train_from_workers(start_method: str) -> None:
    """Two epochs with workers that start after CUDA has been initialised, pinned memory and asynchronous copies."""
    evidence.deterministic_torch()
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 16, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(16 * 16 * 16, 10),
    ).cuda()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(
        Images(),
        batch_size=32,
        shuffle=True,
        num_workers=2,
        pin_memory=True,
        multiprocessing_context=start_method,
        persistent_workers=True,
        generator=torch.Generator().manual_seed(7),
    )
    losses = []
    for _ in range(2):
        for images, labels in loader:
            optimiser.zero_grad(set_to_none=True)
            logits = model(images.cuda(non_blocking=True))
            loss = torch.nn.functional.cross_entropy(logits, labels.cuda(non_blocking=True))
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
    digests = {"losses": evidence.digest(repr(losses).encode()), "weights": evidence.digest_model(model)}
    evidence.report(digests, "torch")
