"""What the PyTorch helper knows of PyTorch, and no more: PyTorch itself does not start on the software GPU."""

from torch import cuda, optim  # noqa: F401
